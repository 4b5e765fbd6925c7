/// Restart back-off of a crashing child, and detection of a crash loop.
///
/// `well -> failing -> well`: a run shorter than `goodLife` is a quick death. The restart after the first one is
/// immediate. Further pauses double from `shortestPause` to `longestPause`, with up to 50 % jitter, so that children
/// that died together do not restart together. After `mostQuickDeaths` in a row the rule reports failure. Restarts
/// continue, and the first long run ends the failure.
public struct RestartRule: Equatable, Sendable {
    /// Minimum run that counts as success. The cause of a later end is unrelated to earlier ones.
    public static let goodLife = Duration.seconds(10)
    public static let shortestPause = Duration.milliseconds(100)
    public static let longestPause = Duration.seconds(30)
    /// Quick deaths in a row that indicate a crash loop: two poisonous flights kill four times at most.
    public static let mostQuickDeaths = 5

    /// Quick deaths since the last long run.
    public private(set) var quickDeaths = 0

    public init() {}

    public var isFailing: Bool { quickDeaths >= Self.mostQuickDeaths }

    /// Records the end of a run of `lived`; zero for a child that failed to start.
    ///
    /// - Returns: Pause before the restart.
    public mutating func lifeEnded(
        after lived: Duration, using generator: inout some RandomNumberGenerator
    ) -> Duration {
        guard lived < Self.goodLife else {
            quickDeaths = 0
            return .zero
        }
        quickDeaths += 1
        guard quickDeaths > 1 else { return .zero }
        var pause = Self.shortestPause
        for _ in 2..<quickDeaths where pause < Self.longestPause { pause *= 2 }
        return min(pause, Self.longestPause) * Double.random(in: 0.5...1, using: &generator)
    }

    /// Records that the current run has reached `goodLife`.
    public mutating func livesWell() { quickDeaths = 0 }
}
