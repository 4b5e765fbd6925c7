internal import EarshotHTTP
internal import EarshotWire

/// The use of the body of an answer, which bounds its size.
enum BodyUse {
    /// It is delivered: as large as the request allows.
    case result
    /// It explains a status of 400 or more, and is left out if it is too large.
    case page
    /// Its redirect is followed: of use to the cache alone, and not waited for.
    case redirect

    /// - Parameter redirect: the mode of the request.
    init(of head: ResponseHead, redirect: RedirectMode) {
        switch head.status {
        case 301, 302, 303, 307, 308:
            let leads = redirect != .manual && HeaderFields(lines: head.fields).contains("location")
            self = leads ? .redirect : .result
        case 400...: self = .page
        default: self = .result
        }
    }
}
