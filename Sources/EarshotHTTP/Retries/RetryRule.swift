/// Decides whether and when a failed flight is retried: exponential backoff with jitter.
///
/// The pause after the n-th fruitless attempt in a row is `firstPause` × 2^(n-1), at most `longestPause`. Its first
/// half is fixed and its second half random, so that requests that failed together are not retried together.
public struct RetryRule: Hashable, Sendable {
    /// Nanoseconds after the first attempt, without jitter.
    public let firstPause: Int64
    /// Upper bound of the pause, in nanoseconds.
    public let longestPause: Int64

    /// - Parameters: Pauses of 0 or more nanoseconds; 0.25 s and 30 s by default.
    public init(firstPause: Int64 = 250_000_000, longestPause: Int64 = 30_000_000_000) {
        precondition(firstPause >= 0 && longestPause >= 0, "negative pause: \(firstPause), \(longestPause)")
        self.firstPause = firstPause
        self.longestPause = longestPause
    }

    /// Decides after a failed attempt.
    ///
    /// - Parameters:
    ///   - status: Status that the server sent, if any.
    ///   - attempts: Attempts made, this one included.
    ///   - fruitless: Attempts in a row, this one included, that did not extend the body. Progress resets the pause.
    ///   - retries: Attempts allowed after the first.
    ///   - random: Uniformly distributed number for the jitter.
    public func decision(
        after failure: FailureCode, status: Int?, method: HTTPMethod, attempts: Int, fruitless: Int, retries: Int,
        random: UInt64
    ) -> RetryDecision {
        guard attempts <= retries, method.isIdempotent, failure.isRetryable(status: status) else { return .giveUp }
        return .retry(afterNanoseconds: pause(afterAttempt: fruitless, random: random))
    }

    private func pause(afterAttempt attempt: Int, random: UInt64) -> Int64 {
        var pause = min(firstPause, longestPause)
        // Doubles no further than needed, so that neither shift nor product can overflow.
        var doublings = max(attempt, 1) - 1
        while doublings > 0, pause > 0, pause < longestPause {
            pause = pause > longestPause / 2 ? longestPause : pause * 2
            doublings -= 1
        }
        let half = pause / 2
        return half + Int64(UInt64(pause - half + 1).multipliedFullWidth(by: random).high)
    }
}
