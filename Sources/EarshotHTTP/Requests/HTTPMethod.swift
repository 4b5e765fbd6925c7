internal import EarshotWire

/// A request method: RFC 9110, section 9. Methods are case-sensitive.
public struct HTTPMethod: Hashable, Sendable, CustomStringConvertible {
    public static let get = HTTPMethod(unchecked: "GET")
    public static let head = HTTPMethod(unchecked: "HEAD")
    public static let post = HTTPMethod(unchecked: "POST")

    /// The method as it is written on the wire.
    public let description: String

    /// Takes any token of at most `HTTPLimits.methodBytes` bytes; nil for other text.
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

    /// Whether asking twice does no more than asking once: RFC 9110, section 9.2.2. No unknown method is.
    public var isIdempotent: Bool { Fetch.Options.idempotentMethods.contains(description) }

    /// Whether a request may have it: CONNECT is for proxies, TRACE shows credentials to whoever reads the answer. The
    /// Fetch standard, "forbidden method".
    public var isAllowed: Bool {
        canCoalesce || !["CONNECT", "TRACE", "TRACK"].contains(description.uppercased())
    }

    /// Whether others may share a request of it, which has no body then.
    public var canCoalesce: Bool { self == .get || self == .head }
}
