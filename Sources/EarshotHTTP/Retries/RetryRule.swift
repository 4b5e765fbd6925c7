/// Decides whether and when a failed flight is retried: exponential backoff with jitter.
///
/// The pause depends on the number of fruitless attempts in a row.
public struct RetryRule: Hashable, Sendable {
    private let backoff: Backoff

    /// - Parameters: Pauses of 0 or more nanoseconds; 0.25 s and 30 s by default.
    public init(initialDelayNanoseconds: Int64 = 250_000_000, maximumDelayNanoseconds: Int64 = 30_000_000_000) {
        backoff = Backoff(initialNanoseconds: initialDelayNanoseconds, maximumNanoseconds: maximumDelayNanoseconds)
    }

    /// Decides after a failed attempt.
    ///
    /// - Parameters:
    ///   - status: Status that the server sent, if any.
    ///   - attempts: Attempts made, this one included.
    ///   - failedAttempts: Attempts in a row, this one included, that did not extend the body. Progress resets the pause.
    ///   - retries: Attempts allowed after the first.
    ///   - random: Uniformly distributed number for the jitter.
    public func decision(
        after failure: FailureCode, status: Int?, method: HTTPMethod, attempts: Int, failedAttempts: Int, retries: Int,
        random: UInt64
    ) -> RetryDecision {
        guard attempts <= retries, method.isIdempotent, failure.isRetryable(status: status) else { return .fail }
        return .retry(afterNanoseconds: backoff.delayNanoseconds(afterFailures: failedAttempts, random: random))
    }
}

/// Decision after a failed attempt.
public enum RetryDecision: Hashable, Sendable {
    /// Retry after this delay, 0 or more nanoseconds.
    case retry(afterNanoseconds: Int64)
    /// Fail the request.
    case fail
}

/// Exponential backoff: pauses that double from the first to the longest.
public struct Backoff: Hashable, Sendable {
    /// Nanoseconds after the first failure.
    public let initialDelayNanoseconds: Int64
    /// Upper bound of the pauses, in nanoseconds.
    public let maximumDelayNanoseconds: Int64

    /// - Parameters: 0 or more nanoseconds.
    public init(initialNanoseconds: Int64, maximumNanoseconds: Int64) {
        precondition(
            initialNanoseconds >= 0 && maximumNanoseconds >= 0,
            "negative pause: \(initialNanoseconds), \(maximumNanoseconds)")
        self.initialDelayNanoseconds = initialNanoseconds
        self.maximumDelayNanoseconds = maximumNanoseconds
    }

    public init(initialMilliseconds: Int64, maximumMilliseconds: Int64) {
        self.init(
            initialNanoseconds: initialMilliseconds * 1_000_000, maximumNanoseconds: maximumMilliseconds * 1_000_000)
    }

    /// Returns the pause after a number of failures in a row, in nanoseconds.
    public func delayNanoseconds(afterFailures count: Int) -> Int64 {
        var pause = min(initialDelayNanoseconds, maximumDelayNanoseconds)
        // Doubles no further than needed, so that neither shift nor product can overflow.
        var doublings = max(count, 1) - 1
        while doublings > 0, pause > 0, pause < maximumDelayNanoseconds {
            pause = pause > maximumDelayNanoseconds / 2 ? maximumDelayNanoseconds : pause * 2
            doublings -= 1
        }
        return pause
    }

    /// Returns the pause with jitter: its first half is fixed and its second half random, so that attempts that failed
    /// together are not repeated together.
    ///
    /// - Parameter random: A uniformly distributed number.
    public func delayNanoseconds(afterFailures count: Int, random: UInt64) -> Int64 {
        let pause = delayNanoseconds(afterFailures: count)
        let half = pause / 2
        return half + Int64(UInt64(pause - half + 1).multipliedFullWidth(by: random).high)
    }
}
