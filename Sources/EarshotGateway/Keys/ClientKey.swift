public import EarshotWire

/// Key that may connect to the gateway, with its name, role and expiry: an entry of `GatewayKeys`.
public struct ClientKey: Equatable, Sendable {
    /// Kinds of peers.
    public enum Role: String, Sendable {
        /// Requests URLs: EAR/1.
        case client
        /// Serves URLs of its own schemes: EARW/1.
        case worker
        /// Node of a cluster that pulls bodies from this one: EAR/1.
        case node

        /// Roles of the keys in a file of keys. The key of nodes is in the file of their cluster.
        public static let keyFileRoles: [Role] = [.client, .worker]
    }

    /// Default of ``maximumConnections``: the processes of one machine.
    public static let defaultMaximumConnections = 64
    /// Possible values of ``maximumConnections``.
    public static let maximumConnectionsRange = 1...4_096

    public var name: KeyName
    /// 40 characters of Z85.
    public var publicKey: String
    public var role: Role
    /// Key of the client whose requests a worker gets; nil for a client.
    public var servedClient: KeyName?
    /// Time from which the key is refused; nil for none.
    public var expiry: KeyExpiry?
    /// Maximum number of connections at a time; nil for ``defaultMaximumConnections``.
    public var maximumConnections: Int?

    public init(
        name: KeyName, publicKey: String, role: Role = .client, serves: KeyName? = nil, expiry: KeyExpiry? = nil,
        connections: Int? = nil
    ) {
        self.name = name
        self.publicKey = publicKey
        self.role = role
        self.servedClient = serves
        self.expiry = expiry
        self.maximumConnections = connections
    }

    /// Principal of the key's sessions, or of the requests that its worker gets.
    public var principal: PrincipalName { (servedClient ?? name).principal }

    /// Whether the key is accepted at a time, in seconds since 1970.
    public func isValid(at seconds: Int64) -> Bool { expiry.map { seconds < $0.secondsSince1970 } ?? true }
}

/// Name of a client's key: 1 to 60 ASCII letters, digits and `. _ : @ -`.
public struct KeyName: Hashable, Sendable, CustomStringConvertible {
    /// Prefixes of the principals of keys, which no local user has.
    private static let principalPrefix = "key:"
    private static let clusterPrefix = "node:"
    /// Description of the possible names, for messages.
    public static let permittedForm = "1 to 60 letters, digits and . _ : @ -"

    public let description: String
    /// Principal of the sessions of this key: `key:NAME`, or `node:NAME` for the nodes of a cluster.
    public let principal: PrincipalName

    /// Nil if `text` is not a valid name.
    public init?(_ text: String) {
        guard !text.isEmpty, let principal = PrincipalName(Self.principalPrefix + text) else { return nil }
        description = text
        self.principal = principal
    }

    /// Name of the key that the nodes of a cluster share.
    ///
    /// - Parameter text: name of the cluster; nil if it cannot be part of a principal.
    public init?(cluster text: String) {
        guard !text.isEmpty, let principal = PrincipalName(Self.clusterPrefix + text) else { return nil }
        description = text
        self.principal = principal
    }
}
