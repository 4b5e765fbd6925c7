internal import EarshotGateway
internal import EarshotLoop
internal import EarshotWire

/// Address and port of a node, at which the others reach it.
///
/// A node resolves its own name when it starts, and sends the address to the others. So no name server can divert
/// bodies.
enum NodeEndpoint: Hashable, CustomStringConvertible {
    case address(GatewayAddress)
    case name(HostName, port: UInt16)

    /// Parses `ADDRESS:PORT`, with brackets for IPv6, or `NAME:PORT`; nil for any other text.
    ///
    /// Also nil for the address of all interfaces, to which other nodes cannot connect, and for an address with a zone,
    /// which has a meaning on its own machine only.
    init?(_ text: String) {
        if let address = Self.parseNumericAddress(text) {
            switch address.address {
            case .ipv4(let bytes), .ipv6(let bytes, zone: ""):
                guard !bytes.allSatisfy({ $0 == 0 }) else { return nil }
            case .ipv6: return nil
            }
            self = .address(address)
            return
        }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, let name = HostName(String(parts[0])), let port: UInt16 = Decimal.parse(parts[1]),
            port > 0
        else { return nil }
        self = .name(name, port: port)
    }

    /// Parses `ADDRESS:PORT` with a numeric address, in brackets for IPv6; nil for any other text.
    static func parseNumericAddress(_ text: String) -> GatewayAddress? {
        // Without this check, a text without a port would get the default port.
        guard GatewayAddress("tcp://\(text):1") == nil, let address = GatewayAddress("tcp://\(text)"), address.port > 0
        else { return nil }
        return address
    }

    var description: String {
        switch self {
        case .address(let address): String(address.description.dropFirst("tcp://".count))
        case .name(let name, let port): "\(name):\(port)"
        }
    }

    /// Host without the port, as in `description` but without brackets.
    var host: String {
        switch self {
        case .address(let address): "\(address.address)"
        case .name(let name, _): "\(name)"
        }
    }

    var port: UInt16 {
        switch self {
        case .address(let address): address.port
        case .name(_, let port): port
        }
    }

    /// Whether the host is a name.
    var isName: Bool { if case .name = self { true } else { false } }

    /// Returns the same host with another port.
    func replacing(port: UInt16) -> NodeEndpoint {
        switch self {
        case .address(let address): .address(GatewayAddress(address.address, port: port))
        case .name(let name, _): .name(name, port: port)
        }
    }

    /// Function that turns a name into addresses.
    typealias Resolver = (HostName) throws(HostName.Failure) -> [TCPSocket.Address]

    /// Returns the address; for a name, the first one that the resolver returns.
    ///
    /// - Throws: `CommandError` if a name does not resolve. It may resolve later, so a service restarts.
    func resolvedAddress(
        by resolve: Resolver = { (name) throws(HostName.Failure) in try name.addresses() }
    ) throws(CommandError) -> GatewayAddress {
        switch self {
        case .address(let address): return address
        case .name(let name, let port):
            let found: [TCPSocket.Address]
            do throws(HostName.Failure) {
                found = try resolve(name)
            } catch {
                throw CommandError(
                    .unknownHost, "`node` of the cluster's file: \(error); correct the name, or give the address")
            }
            return GatewayAddress(found[0], port: port)
        }
    }
}
