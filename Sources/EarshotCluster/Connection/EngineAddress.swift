public import EarshotLoop

/// Address of a server: `HOST:PORT` with a numeric host, in brackets for IPv6, or `unix:PATH`.
public enum EngineAddress: Hashable, Sendable, CustomStringConvertible {
    case network(TCPSocket.Address, port: UInt16)
    case local(path: String)

    /// Nil for any other text. Names of hosts are refused, because the broker's loop cannot wait for their addresses.
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
        } else if host.contains(":") {
            return nil
        }
        self.init(host: String(host), port: port)
    }

    /// Nil if the host is not numeric.
    init?(host: String, port: UInt16) {
        guard let address = TCPSocket.Address(host) else { return nil }
        self = .network(address, port: port)
    }

    public var description: String {
        switch self {
        case .network(let address, let port):
            switch address {
            case .four: "\(address):\(port)"
            case .six: "[\(address)]:\(port)"
            }
        case .local(let path): "unix:\(path)"
        }
    }
}
