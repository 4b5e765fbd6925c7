/// Result of evaluating a possible redirect.
public enum RedirectOutcome: Hashable, Sendable {
    /// Send this request next.
    case follow(HTTPRequest)
    /// Deliver the response.
    case notARedirect
    /// Fail the request: `redirectRefused`, `redirectLoop`, `tooManyRedirects` or `malformedURL`.
    case refused(FailureCode)
}
