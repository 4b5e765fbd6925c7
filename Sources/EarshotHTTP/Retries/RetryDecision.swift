/// What follows from a failed attempt.
public enum RetryDecision: Hashable, Sendable {
    /// Try again after so many nanoseconds, 0 or more.
    case retry(afterNanoseconds: Int64)
    /// The failure is the request's.
    case giveUp
}
