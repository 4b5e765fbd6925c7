internal import EarshotHTTP
internal import EarshotWire

/// The use of a response's body, which bounds its size.
enum BodyUse {
    /// The body is delivered, up to the maximum size of the request.
    case result
    /// The body explains a status of 400 or more. It is omitted if too large.
    case page
    /// The body belongs to a redirect that is followed. Only the cache needs it, so the worker does not wait for it.
    case redirect

    /// - Parameters:
    ///   - redirect: The redirect mode of the request.
    ///   - deliversErrors: Whether an error page is a result.
    init(of head: ResponseHead, redirect: RedirectMode, deliversErrors: Bool) {
        switch head.status {
        case 301, 302, 303, 307, 308:
            let leads = redirect != .manual && HeaderFields(lines: head.fields).contains("location")
            self = leads ? .redirect : .result
        case 400... where !deliversErrors: self = .page
        default: self = .result
        }
    }
}
