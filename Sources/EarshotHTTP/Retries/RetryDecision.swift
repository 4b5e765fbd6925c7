/// Decision after a failed attempt.
public enum RetryDecision: Hashable, Sendable {
    /// Retry after this delay, 0 or more nanoseconds.
    case retry(afterNanoseconds: Int64)
    /// Fail the request.
    case fail
}
