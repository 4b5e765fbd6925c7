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

    public let place: EngineLocation
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
    public var patienceMilliseconds = 2_000

    /// Whether a primary without replicas is a fault.
    var expectsReplicas: Bool {
        switch place {
        case .servers(let addresses): addresses.count > 1
        case .sentinels: true
        }
    }

    /// - Parameter cluster: 1 to 32 letters, digits and hyphens. Traps on other text.
    public init(place: EngineLocation, cluster: String, keys: ClusterKeys, publicKey: String, description: String) {
        precondition(Self.isCluster(cluster), "\(cluster) is no name of a cluster")
        self.place = place
        self.cluster = cluster
        self.keys = keys
        self.publicKey = publicKey
        self.description = description
    }

    /// Whether `text` can name a cluster.
    public static func isCluster(_ text: String) -> Bool {
        (1...32).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                byte == UInt8(ascii: "-") || byte.isDigit || byte.isLetter
            }
    }
}

extension EngineOptions.Login: CustomStringConvertible, CustomReflectable {
    /// User name without the password.
    public var description: String { "login of \(user ?? "the default user")" }

    /// Without the password, so that `dump` does not print it.
    public var customMirror: Mirror { Mirror(self, children: ["user": user as Any]) }
}
