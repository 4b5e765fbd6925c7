public import EarshotLoop
internal import EarshotWire

/// Address of the node gateway of another node, from which the puller reads bodies.
public struct NodeAddress: Hashable, Sendable, CustomStringConvertible {
    /// Scheme of the URLs that name bodies of nodes: `earshot-node://ADDRESS:PORT/KEY/TOKEN`.
    public static let scheme = "earshot-node"

    public let address: TCPSocket.Address
    /// Port, 1 or more.
    public let port: UInt16

    /// Parses the address in a URL of ``scheme``. Nil for a host name: the puller makes no DNS queries.
    public init?(url: String) {
        let prefix = Self.scheme + "://"
        guard url.hasPrefix(prefix) else { return nil }
        let authority = url.dropFirst(prefix.count).prefix { $0 != "/" }
        guard let colon = authority.lastIndex(of: ":") else { return nil }
        guard let port: UInt16 = Decimal.number(authority[authority.index(after: colon)...]), port > 0,
            let address = TCPSocket.Address(urlHost: authority[..<colon])
        else { return nil }
        self.address = address
        self.port = port
    }

    /// `tcp://ADDRESS:PORT`, the address of IPv6 in brackets.
    public var description: String {
        switch address {
        case .four: "tcp://\(address):\(port)"
        case .six: "tcp://[\(address)]:\(port)"
        }
    }
}
