public import EarshotLoop
internal import EarshotWire

/// Address at which the gateway listens: `tcp://ADDRESS` or `tcp://ADDRESS:PORT` with a numeric address, that of IPv6
/// in brackets.
public struct GatewayAddress: Hashable, Sendable, CustomStringConvertible {
    /// Port of an address without one.
    public static let defaultPort: UInt16 = 5_765
    private static let scheme = "tcp://"

    public let address: TCPSocket.Address
    /// Port; 0 selects a free one.
    public let port: UInt16

    /// The address with a port.
    public init(_ address: TCPSocket.Address, port: UInt16) {
        self.address = address
        self.port = port
    }

    /// Nil if `text` is not an address in this form.
    public init?(_ text: String) {
        guard text.hasPrefix(Self.scheme) else { return nil }
        var host = text.dropFirst(Self.scheme.count)
        var port = Self.defaultPort
        // The colons of an address of IPv6 are within the brackets.
        if let colon = host.lastIndex(of: ":"), host.last != "]" {
            guard let number: UInt16 = Decimal.parse(host[host.index(after: colon)...]) else { return nil }
            port = number
            host = host[..<colon]
        }
        guard let address = TCPSocket.Address(urlHost: host) else { return nil }
        self.address = address
        self.port = port
    }

    public var description: String { Self.addressText(address, port: port) }

    /// Returns the text of an address with a port.
    static func addressText(_ address: TCPSocket.Address, port: UInt16) -> String {
        switch address {
        case .ipv4: "\(scheme)\(address):\(port)"
        case .ipv6: "\(scheme)[\(address)]:\(port)"
        }
    }
}
