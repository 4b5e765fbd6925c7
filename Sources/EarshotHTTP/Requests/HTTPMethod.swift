internal import EarshotWire

/// Request method: RFC 9110, section 9. Methods are case-sensitive.
public struct HTTPMethod: Hashable, Sendable, CustomStringConvertible {
    public static let get = HTTPMethod(unchecked: "GET")
    public static let head = HTTPMethod(unchecked: "HEAD")
    public static let post = HTTPMethod(unchecked: "POST")

    /// Method as written on the wire.
    public let description: String

    /// Accepts any token of at most `HTTPLimits.methodBytes` bytes; nil for other text.
    public init?(_ name: String) {
        if name == Self.get.description {
            self = .get
            return
        }
        let count = name.utf8.count
        guard count > 0, count <= HTTPLimits.methodBytes, name.utf8.allSatisfy(\.isToken) else { return nil }
        description = name
    }

    private init(unchecked name: String) {
        description = name
    }

    /// Whether the method is idempotent: RFC 9110, section 9.2.2. Unknown methods are not.
    public var isIdempotent: Bool { Fetch.Options.idempotentMethods.contains(description) }

    /// Whether a request may use the method. CONNECT is for proxies, TRACE exposes credentials in the response. The
    /// Fetch standard, "forbidden method".
    public var isAllowed: Bool {
        canCoalesce || !["CONNECT", "TRACE", "TRACK"].contains(description.uppercased())
    }

    /// Whether requests with this method may be coalesced. Such requests have no body.
    public var canCoalesce: Bool { self == .get || self == .head }
}
