internal import EarshotWire

/// What a redirect is to a request.
public enum RedirectPolicy: Sendable {
    /// A way to go on, at most 10 times.
    case follow
    /// A failure, `redirect-refused`.
    case refuse
    /// The response.
    case deliver

    var wire: RedirectMode {
        switch self {
        case .follow: .follow
        case .refuse: .error
        case .deliver: .manual
        }
    }
}
