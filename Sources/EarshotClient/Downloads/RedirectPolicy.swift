internal import EarshotWire

/// Treatment of a redirect.
public enum RedirectPolicy: Sendable {
    /// Follows at most 10 redirects.
    case follow
    /// Fails with the code `redirect-refused`.
    case refuse
    /// Delivers the redirect as the response.
    case deliver

    var wire: RedirectMode {
        switch self {
        case .follow: .follow
        case .refuse: .error
        case .deliver: .manual
        }
    }
}
