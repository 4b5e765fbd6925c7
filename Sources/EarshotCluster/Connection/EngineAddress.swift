public import EarshotLoop

/// Address of a server: `HOST:PORT` with a numeric host, in brackets for IPv6, or with the name of a host; or `unix:PATH`.
public enum EngineAddress: Hashable, Sendable, CustomStringConvertible {
    case network(TCPSocket.Address, port: UInt16)
    /// A name is looked up for each connection, because its address may change.
    case named(HostName, port: UInt16)
    case local(path: String)

    /// Nil for any other text.
    public init?(_ text: String) {
        if text.hasPrefix("unix:") {
            let path = String(text.dropFirst(5))
            guard path.hasPrefix("/") else { return nil }
            self = .local(path: path)
            return
        }
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]), port > 0 else {
            return nil
        }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
            guard host.contains(":") else { return nil }
        } else if host.contains(":") {
            return nil
        }
        self.init(host: String(host), port: port)
    }

    /// Nil if the host is neither numeric nor a name.
    init?(host: String, port: UInt16) {
        if let address = TCPSocket.Address(host) {
            self = .network(address, port: port)
        } else if let name = HostName(host) {
            self = .named(name, port: port)
        } else {
            return nil
        }
    }

    public var description: String {
        switch self {
        case .network(let address, let port):
            switch address {
            case .four: "\(address):\(port)"
            case .six: "[\(address)]:\(port)"
            }
        case .named(let name, let port): "\(name):\(port)"
        case .local(let path): "unix:\(path)"
        }
    }
}
