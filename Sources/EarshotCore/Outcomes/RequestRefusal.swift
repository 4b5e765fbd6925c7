internal import EarshotHTTP

/// Reason why a request cannot be served at all.
struct RequestRefusal: Error {
    let code: FailureCode
    /// Sentence that replaces the code's own; nil for that one.
    var detail: String?
}
