internal import CLibCares

/// Reason why a name has no addresses.
public enum LookupFailure: Error, Hashable, Sendable {
    /// The name does not exist, has no address, or is invalid.
    case notFound
    /// No server responded in time.
    case timeout
    /// No server was reachable, or all of them refused or failed.
    case serverFailure
    /// Another error; the number is c-ares' status.
    case other(status: Int)

    init(status: Int32) {
        switch status {
        case ARES_ENOTFOUND, ARES_ENODATA, ARES_EBADNAME,
            ARES_ENONAME:
            self = .notFound
        case ARES_ETIMEOUT:
            self = .timeout
        case ARES_ESERVFAIL, ARES_EREFUSED, ARES_ECONNREFUSED,
            ARES_EFORMERR, ARES_ENOTIMP, ARES_EBADRESP:
            self = .serverFailure
        default:
            self = .other(status: Int(status))
        }
    }
}
