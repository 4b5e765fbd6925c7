/// Whether, and when, a flight is tried again.
///
/// The pause after the n-th attempt in a row that brought nothing is `firstPause` × 2^(n-1), at most `longestPause`; of
/// it the first half is waited always and of the second half a random part, so that requests which failed together do
/// not come back together.
public struct RetryRule: Hashable, Sendable {
    /// Nanoseconds after the first attempt, jitter left aside.
    public let firstPause: Int64
    /// Nanoseconds that doubling does not go beyond.
    public let longestPause: Int64
    /// Nanoseconds a server's `Retry-After` can ask for; a longer one counts as this.
    public let longestRetryAfter: Int64

    /// The rule with these pauses, all 0 or more: 0.25 s, 30 s and 10 minutes.
    public init(
        firstPause: Int64 = 250_000_000, longestPause: Int64 = 30_000_000_000,
        longestRetryAfter: Int64 = 600_000_000_000
    ) {
        precondition(
            firstPause >= 0 && longestPause >= 0 && longestRetryAfter >= 0,
            "negative pause: \(firstPause), \(longestPause), \(longestRetryAfter)")
        self.firstPause = firstPause
        self.longestPause = longestPause
        self.longestRetryAfter = longestRetryAfter
    }

    /// Judges a failed attempt.
    ///
    /// - Parameters:
    ///   - status: The status the server sent, if it did.
    ///   - attempts: Attempts made, this one included.
    ///   - fruitless: Attempts since the last one that brought more of the body than there was, that one included; all
    ///     if none did. A body that comes in pieces is not waited for longer and longer.
    ///   - retries: How many attempts may follow the first.
    ///   - retryAfter: What the server asked for. The pause is this if it is longer; nobody is asked earlier.
    ///   - random: Any number, all equally likely.
    /// - Returns: A lost worker says nothing about the origin: its flights are retried at once.
    public func decision(
        after failure: FailureCode, status: Int?, method: HTTPMethod, attempts: Int, fruitless: Int, retries: Int,
        retryAfter: RetryAfter?, random: UInt64
    ) -> RetryDecision {
        guard attempts <= retries, method.isIdempotent, failure.isRetryable(status: status) else { return .giveUp }
        guard failure != .workerLost else { return .retry(afterNanoseconds: 0) }
        let pause = pause(afterAttempt: fruitless, random: random)
        guard let retryAfter else { return .retry(afterNanoseconds: pause) }
        let asked = min(retryAfter.seconds * 1_000_000_000, longestRetryAfter)
        return .retry(afterNanoseconds: max(pause, asked))
    }

    private func pause(afterAttempt attempt: Int, random: UInt64) -> Int64 {
        var pause = min(firstPause, longestPause)
        // Doubled no further than needed: neither shift nor product can overflow.
        var doublings = max(attempt, 1) - 1
        while doublings > 0, pause > 0, pause < longestPause {
            pause = pause > longestPause / 2 ? longestPause : pause * 2
            doublings -= 1
        }
        let half = pause / 2
        return half + Int64(UInt64(pause - half + 1).multipliedFullWidth(by: random).high)
    }
}
