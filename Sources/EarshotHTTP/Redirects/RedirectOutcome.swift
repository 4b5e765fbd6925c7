/// Result of evaluating a possible redirect.
public enum RedirectOutcome: Hashable, Sendable {
    /// Send this request next.
    case follow(HTTPRequest)
    /// Deliver the response.
    case notARedirect
    /// Fail the request: `redirectRefused`, `redirectLoop` or `tooManyRedirects`.
    case refused(FailureCode)
    /// Fail the request as `malformedURL`: the target is invalid.
    case invalidTarget(FetchURL.ParseError)
}
