/// Name of a principal, the authenticated identity behind a session: 1 to 64 ASCII letters, digits and `. _ : @ -`.
///
/// `uid:1000` is a local user, `key:laptop` the holder of a key of the gateway.
public struct PrincipalName: Hashable, Sendable, CustomStringConvertible {
    public let description: String

    /// Nil if `text` is not a valid name.
    public init?(_ text: String) {
        guard (1...WireLimits.identifierBytes).contains(text.utf8.count), text.utf8.allSatisfy(Self.isAllowed) else {
            return nil
        }
        description = text
    }

    /// Whether the gateway may name it: `key:NAME`, or `node:NAME` for the nodes of a cluster.
    public var isOfKey: Bool { isOfClientKey || description.hasPrefix("node:") }

    /// Whether it is the holder of a key of the gateway, `key:NAME`.
    public var isOfClientKey: Bool { description.hasPrefix("key:") }

    /// Whether it is a local user, `uid:NUMBER`, which the HTTP door may name.
    public var isOfUser: Bool { description.hasPrefix("uid:") && UInt32(description.dropFirst(4)) != nil }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), Ascii.zero...Ascii.colon,
            Ascii.dot, UInt8(ascii: "_"), UInt8(ascii: "@"), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}
