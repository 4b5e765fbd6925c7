/// Numeric IP address: the host of a URL, or a resolver's result.
public enum IPAddress: Hashable, Sendable, CustomStringConvertible {
    case v4(IPv4Address)
    case v6(IPv6Address)

    /// Parses dotted decimal IPv4 or any text form of IPv6, without brackets and zone; nil for other text.
    ///
    /// Legacy forms of IPv4 (`2130706433`, `0x7f.1`) are rejected here. Only the host of a `FetchURL` may have them.
    public init?(_ text: String) {
        let utf8 = text.utf8
        if let address = IPv4Address(strict: utf8.span) {
            self = .v4(address)
        } else if let address = IPv6Address(utf8.span) {
            self = .v6(address)
        } else {
            return nil
        }
    }

    /// Parses the host of a URL, without brackets; nil for a name. The zone of an address is ignored.
    public init?(host: String) {
        guard host.utf8.contains(UInt8(ascii: "%")) else {
            self.init(host)
            return
        }
        self.init(String(host.prefix { $0 != "%" }))
    }

    /// Canonical text without brackets; RFC 5952 for IPv6.
    public var description: String {
        switch self {
        case .v4(let address): address.description
        case .v6(let address): address.description
        }
    }
}
