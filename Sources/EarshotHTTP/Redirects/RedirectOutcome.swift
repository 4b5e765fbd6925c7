/// What follows from an answer that may be a redirect.
public enum RedirectOutcome: Hashable, Sendable {
    /// Ask this next.
    case follow(HTTPRequest)
    /// Hand the answer out as it is.
    case notARedirect
    /// Fail the request: `redirectRefused`, `redirectLoop`, `tooManyRedirects` or `malformedURL`.
    case refused(FailureCode)
}
