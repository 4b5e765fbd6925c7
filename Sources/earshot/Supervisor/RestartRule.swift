internal import EarshotHTTP

/// Restart back-off of a crashing child, and detection of a crash loop.
///
/// `well -> failing -> well`: a run shorter than `minimumHealthyRun` is an early exit. The restart after the first one
/// is immediate. Further pauses have an exponential backoff with jitter, so that children that died together do not
/// restart together. After `crashLoopThreshold` early exits in a row `isFailing` is true. Restarts continue, and the
/// first healthy run makes it false.
struct RestartRule: Equatable {
    /// Minimum duration of a healthy run. The cause of a later end is unrelated to earlier ones.
    static let minimumHealthyRun = Duration.seconds(10)
    private static let backoff = Backoff(initialMilliseconds: 100, maximumMilliseconds: 30_000)
    static let minimumPause = Duration.nanoseconds(backoff.initialDelayNanoseconds)
    static let maximumPause = Duration.nanoseconds(backoff.maximumDelayNanoseconds)
    /// Number of early exits in a row that indicate a crash loop. Two poisonous requests kill four times at most: each
    /// is tried twice.
    static let crashLoopThreshold = 5

    /// Number of early exits since the last healthy run.
    private(set) var consecutiveEarlyExits = 0

    var isFailing: Bool { consecutiveEarlyExits >= Self.crashLoopThreshold }

    /// Records the end of a run of `lived`; zero for a child that failed to start.
    ///
    /// - Returns: pause before the restart.
    mutating func runEnded(after lived: Duration, using generator: inout some RandomNumberGenerator) -> Duration {
        guard lived < Self.minimumHealthyRun else {
            consecutiveEarlyExits = 0
            return .zero
        }
        consecutiveEarlyExits += 1
        guard consecutiveEarlyExits > 1 else { return .zero }
        return .nanoseconds(
            Self.backoff.delayNanoseconds(afterFailures: consecutiveEarlyExits - 1, random: generator.next()))
    }

    /// Records that the current run has reached `minimumHealthyRun`.
    mutating func recordHealthyRun() { consecutiveEarlyExits = 0 }
}
