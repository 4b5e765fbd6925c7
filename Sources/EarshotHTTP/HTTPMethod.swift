/// A request method: RFC 9110, section 9. Methods are case-sensitive.
public struct HTTPMethod: Hashable, Sendable, CustomStringConvertible {
    public static let get = HTTPMethod(unchecked: "GET")
    public static let head = HTTPMethod(unchecked: "HEAD")
    public static let post = HTTPMethod(unchecked: "POST")

    /// The method as it is written on the wire.
    public let description: String

    /// Takes any token of at most `HTTPLimits.methodBytes` bytes; nil for other text.
    public init?(_ name: String) {
        let count = name.utf8.count
        guard count > 0, count <= HTTPLimits.methodBytes, name.utf8.allSatisfy(\.isToken) else { return nil }
        description = name
    }

    private init(unchecked name: String) {
        description = name
    }

    /// Whether asking twice does no more than asking once: RFC 9110, section 9.2.2. No unknown method is.
    public var isIdempotent: Bool {
        switch description {
        case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE": true
        default: false
        }
    }
}
