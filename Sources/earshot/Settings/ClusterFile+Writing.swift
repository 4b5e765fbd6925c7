internal import EarshotCluster
internal import EarshotGateway
internal import EarshotWire
internal import LibCrypto
internal import ZeroMQ

/// Creation of the file of a new cluster.
extension ClusterFile {
    /// Number of random bytes of a secret.
    private static let secretBytes = 32
    private static let head = """
        # Cluster of Earshot buses: earshot-cluster(1). Keep this file secret.
        # Each node has a copy in which `node` is its own address.

        """

    /// Creates a cluster with a new secret and new keys.
    ///
    /// - Parameter name: see `EngineOptions.isCluster`.
    /// - Throws: `CommandError` if libzmq cannot create keys.
    init(
        new name: String, node: NodeEndpoint, members: Int, engine: EngineOptions.EngineLocation,
        login: EngineOptions.Login?
    ) throws(CommandError) {
        let pair = try KeyFile.newPair()
        self.name = name
        secret = Hex.encode(Secret.randomBytes(Self.secretBytes))
        self.node = node
        self.members = members
        publicKey = pair.publicKey
        secretKey = pair.secretKey
        self.engine = engine
        self.login = login
    }

    /// The content of the file.
    var text: String {
        var text = Self.head
        func add(_ key: String, _ value: String?) {
            if let value { text += "\(key) = \(Self.quoted(value))\n" }
        }
        add("name", name)
        add("secret", secret)
        add("node", "\(node)")
        add("listen", listen.map { "\(NodeEndpoint.address($0))" })
        text += "members = \(members)\n"
        add("public-key", publicKey)
        add("secret-key", secretKey)
        text += "\n[engine]\n"
        switch engine {
        case .servers(let servers): text += "servers = \(Self.list(servers))\n"
        case .sentinels(let sentinels, let primary):
            text += "sentinels = \(Self.list(sentinels))\n"
            add("primary", primary)
        }
        add("user", login?.user)
        add("password", login?.password)
        add("sentinel-user", sentinelLogin?.user)
        add("sentinel-password", sentinelLogin?.password)
        return text
    }

    private static func list(_ addresses: [EngineAddress]) -> String {
        "[" + addresses.map { quoted($0.description) }.joined(separator: ", ") + "]"
    }

    /// Returns a basic string of TOML, whose escapes include those of JSON.
    private static func quoted(_ text: String) -> String {
        JSONText.quoted(text) { $0.value < 0x20 || $0.value == 0x7f }
    }
}
