public import EarshotLoop
internal import EarshotWire

/// Engine and identity of one node, from the file of its cluster. `EngineClient` and `ClusterCheck` connect with them.
public struct EngineOptions: Sendable {
    /// Place of the engine.
    public enum EngineLocation: Hashable, Sendable {
        /// One server, or several of which one is the primary.
        case servers([EngineAddress])
        /// Sentinels, and the name under which they watch the primary.
        case sentinels([EngineAddress], primary: String)
    }

    /// User name and password of a server.
    public struct Login: Hashable, Sendable {
        /// Nil for the default user.
        public let user: String?
        /// Secret; never written to a log.
        public let password: String

        public init(user: String?, password: String) {
            self.user = user
            self.password = password
        }
    }

    public let engineLocation: EngineLocation
    /// Name of the cluster: its keys begin with it, so that several clusters can use one server.
    public let cluster: String
    public let keys: ClusterKeys
    /// Public key with which all nodes serve and read bodies.
    public let publicKey: String
    /// Text for operators and other nodes: see `EngineSurvey.Member`.
    public var description: String
    public var login: Login?
    /// Login of the sentinels.
    public var sentinelLogin: Login?
    /// Time limit for a connection and for each reply.
    public var timeoutMilliseconds = 2_000

    /// Whether a primary without replicas is a fault.
    var expectsReplicas: Bool {
        switch engineLocation {
        case .servers(let addresses): addresses.count > 1
        case .sentinels: true
        }
    }

    /// - Parameter cluster: 1 to 32 letters, digits and hyphens. Traps on other text.
    public init(location: EngineLocation, cluster: String, keys: ClusterKeys, publicKey: String, description: String) {
        precondition(Self.isClusterName(cluster), "\(cluster) is no name of a cluster")
        self.engineLocation = location
        self.cluster = cluster
        self.keys = keys
        self.publicKey = publicKey
        self.description = description
    }

    /// Whether `text` can name a cluster.
    public static func isClusterName(_ text: String) -> Bool {
        (1...32).contains(text.utf8.count)
            && text.utf8.allSatisfy { $0 == UInt8(ascii: "-") || $0.isDigit || $0.isLetter }
    }
}

extension EngineOptions.Login: CustomStringConvertible, CustomReflectable {
    /// User name without the password.
    public var description: String { "login of \(user ?? "the default user")" }

    /// Without the password, so that `dump` does not print it.
    public var customMirror: Mirror { Mirror(self, children: ["user": user as Any]) }
}

/// Address of a server: `HOST:PORT` with a numeric host, in brackets for IPv6, or with the name of a host; or
/// `unix:PATH`.
public enum EngineAddress: Hashable, Sendable, CustomStringConvertible {
    case ipAddress(TCPSocket.Address, port: UInt16)
    /// A name is looked up for each connection, because its address may change.
    case hostName(HostName, port: UInt16)
    case unixSocket(path: String)

    /// Parses an address; nil for any other text.
    public init?(_ text: String) {
        if text.hasPrefix("unix:") {
            let path = String(text.dropFirst(5))
            guard path.hasPrefix("/") else { return nil }
            self = .unixSocket(path: path)
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

    /// Creates an address; nil if the host is neither numeric nor a name.
    init?(host: String, port: UInt16) {
        if let address = TCPSocket.Address(host) {
            self = .ipAddress(address, port: port)
        } else if let name = HostName(host) {
            self = .hostName(name, port: port)
        } else {
            return nil
        }
    }

    public var description: String {
        switch self {
        case .ipAddress(let address, let port):
            switch address {
            case .ipv4: "\(address):\(port)"
            case .ipv6: "[\(address)]:\(port)"
            }
        case .hostName(let name, let port): "\(name):\(port)"
        case .unixSocket(let path): "unix:\(path)"
        }
    }
}
