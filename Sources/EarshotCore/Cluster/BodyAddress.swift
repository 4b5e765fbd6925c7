/// Place of a body that a node holds for others: `HOST:PORT/KEY/TOKEN`.
struct BodyAddress: Hashable, CustomStringConvertible {
    /// Scheme of the URLs by which nodes read bodies of one another.
    static let scheme = "earshot-node"
    /// Maximum length of an address: an IPv6 address in brackets and a port.
    private static let maximumAddressBytes = 64

    /// Numeric address and port of the node's gateway.
    let address: String
    let body: HeldBody

    init(address: String, body: HeldBody) {
        self.address = address
        self.body = body
    }

    init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 3, (1...Self.maximumAddressBytes).contains(parts[0].utf8.count),
            parts[0].utf8.allSatisfy({ Self.isAddressByte($0) }), let key = ClusterKey(parts[1]),
            let token = FencingToken(parts[2])
        else { return nil }
        self.init(address: String(parts[0]), body: HeldBody(key: key, token: token))
    }

    /// Nil for a URL that names no body of a node.
    init?(url: String) {
        let start = "\(Self.scheme)://"
        guard url.hasPrefix(start) else { return nil }
        self.init(String(url.dropFirst(start.count)))
    }

    private static func isAddressByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: ":"), UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "."),
            UInt8(ascii: "["), UInt8(ascii: "]"):
            true
        default: false
        }
    }

    var url: String { "\(Self.scheme)://\(self)" }

    var description: String { "\(address)/\(body.key)/\(body.token)" }
}

/// Name of a body that a node holds for others: the attempt that received it.
struct HeldBody: Hashable {
    let key: ClusterKey
    let token: FencingToken
}
