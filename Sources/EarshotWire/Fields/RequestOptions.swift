/// How urgent a request is; a higher class gets the larger share of slots.
public enum PriorityClass: UInt8, CaseIterable, Comparable, Sendable {
    case background
    case low
    case normal
    case high

    /// Nil if `name` is not a class's name on the wire.
    public init?(name: String) {
        switch name {
        case "background": self = .background
        case "low": self = .low
        case "normal": self = .normal
        case "high": self = .high
        default: return nil
        }
    }

    /// The name on the wire.
    public var name: String {
        switch self {
        case .background: "background"
        case .low: "low"
        case .normal: "normal"
        case .high: "high"
        }
    }

    public static func < (left: PriorityClass, right: PriorityClass) -> Bool { left.rawValue < right.rawValue }
}

/// What a redirect means to a request; the Fetch standard's redirect mode.
public enum RedirectMode: String, CaseIterable, Sendable {
    /// Follow it, hop by hop.
    case follow
    /// It is a failure, `redirect-refused`.
    case error
    /// It is the result.
    case manual
}

/// In which form a body is delivered.
public enum BodyDelivery: String, CaseIterable, Sendable {
    /// In frame 2 while it is small, else as a file.
    case auto
    /// In frame 2; what is larger than small fails.
    case inline
    /// As a file, unless it is empty.
    case file
}

/// How a request deals with the cache: the cache modes of the Fetch standard, and `explicit`.
public enum CacheMode: String, Hashable, Sendable, CaseIterable {
    /// What is fresh is used, what is stale is validated.
    case `default`
    /// As `default`, but fresh means fresh by `max-age` or `Expires`: no lifetime is estimated from `Last-Modified` (RFC
    /// 9111, section 4.2.2).
    case explicit
    /// As if there were no cache: nothing is taken from it and nothing put into it.
    case noStore = "no-store"
    /// Nothing is taken from it; the answer is put into it.
    case reload
    /// What is there is validated before it is used.
    case noCache = "no-cache"
    /// What is there is used, fresh or not.
    case forceCache = "force-cache"
    /// What is there is used, fresh or not, and nothing is ever asked of a server.
    case onlyIfCached = "only-if-cached"
}
