/// Decides whether and when a failed flight is retried: exponential backoff with jitter.
///
/// The pause depends on the number of attempts in a row that did not extend the body. Progress resets it.
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
    ///   - failedAttempts: Attempts in a row, this one included, that did not extend the body.
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
