/// Priority class of a request. A higher class gets a larger share of the slots.
public enum PriorityClass: UInt8, CaseIterable, Comparable, Sendable {
    case background
    case low
    case normal
    case high

    /// Nil if `name` is not the name of a class on the wire.
    public init?(name: String) {
        switch name {
        case "background": self = .background
        case "low": self = .low
        case "normal": self = .normal
        case "high": self = .high
        default: return nil
        }
    }

    /// Name on the wire.
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

/// Treatment of a redirect: the redirect mode of the Fetch standard.
public enum RedirectMode: String, CaseIterable, Sendable {
    /// Follow the redirect, hop by hop.
    case follow
    /// Fail with `redirect-refused`.
    case error
    /// Deliver the redirect as the result.
    case manual
}

/// Form in which a body is delivered.
public enum BodyDelivery: String, CaseIterable, Sendable {
    /// In the second frame up to the inline limit, otherwise as a file.
    case auto
    /// In the second frame. A body above the inline limit is a failure.
    case inline
    /// As a file, unless it is empty.
    case file
}

/// Use of the cache: the cache modes of the Fetch standard, and `explicit`.
public enum CacheMode: String, Hashable, Sendable, CaseIterable {
    /// Fresh responses are used, stale ones are revalidated.
    case `default`
    /// As `default`, but only `max-age` and `Expires` make a response fresh. No lifetime is estimated from
    /// `Last-Modified` (RFC 9111, section 4.2.2).
    case explicit
    /// The cache is neither read nor written.
    case noStore = "no-store"
    /// The cache is written but not read.
    case reload
    /// Cached responses are revalidated before use.
    case noCache = "no-cache"
    /// A cached response is used, fresh or stale. Without one, the request goes to the server.
    case forceCache = "force-cache"
    /// A cached response is used, fresh or stale. No request is sent to a server.
    case onlyIfCached = "only-if-cached"
}
