internal import EarshotHTTP

/// Restart back-off of a crashing child, and detection of a crash loop.
///
/// `well -> failing -> well`: a run shorter than `goodLife` is a quick death. The restart after the first one is
/// immediate. Further pauses have an exponential backoff with jitter, so that children that died together do not
/// restart together. After `mostQuickDeaths` in a row the rule reports failure. Restarts continue, and the first long
/// run ends the failure.
struct RestartRule: Equatable {
    /// Minimum run that counts as success. The cause of a later end is unrelated to earlier ones.
    static let goodLife = Duration.seconds(10)
    private static let backoff = Backoff(firstMilliseconds: 100, longestMilliseconds: 30_000)
    static let shortestPause = Duration.nanoseconds(backoff.firstPause)
    static let longestPause = Duration.nanoseconds(backoff.longestPause)
    /// Quick deaths in a row that indicate a crash loop. Two poisonous requests kill four times at most: each is tried twice.
    static let mostQuickDeaths = 5

    /// Quick deaths since the last long run.
    private(set) var quickDeaths = 0

    var isFailing: Bool { quickDeaths >= Self.mostQuickDeaths }

    /// Records the end of a run of `lived`; zero for a child that failed to start.
    ///
    /// - Returns: Pause before the restart.
    mutating func lifeEnded(after lived: Duration, using generator: inout some RandomNumberGenerator) -> Duration {
        guard lived < Self.goodLife else {
            quickDeaths = 0
            return .zero
        }
        quickDeaths += 1
        guard quickDeaths > 1 else { return .zero }
        return .nanoseconds(Self.backoff.pause(afterFailures: quickDeaths - 1, random: generator.next()))
    }

    /// Records that the current run has reached `goodLife`.
    mutating func livesWell() { quickDeaths = 0 }
}
