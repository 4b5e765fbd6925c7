internal import EarshotBroker
internal import EarshotCluster
internal import EarshotGateway
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto
internal import ZeroMQ

/// File of a cluster of buses: its name, its secrets, the address of this node, and the engine.
///
/// All nodes have the same file, except the values of `node` and `listen`. Only the bus has access, since it contains
/// secrets: see ``SecretFile``.
struct ClusterFile: Equatable {
    /// Minimum length of the secret in characters: shorter ones can be guessed.
    static let minimumSecretLength = 32
    /// Maximum number of connections of all other nodes. A node has one, and three more while it reads large bodies.
    private static let maximumConnections = ClientKey.maximumConnectionsRange.upperBound
    private static let knownKeys = [
        "name", "secret", "node", "listen", "members", "public-key", "secret-key", "engine",
    ]
    private static let knownEngineKeys = [
        "servers", "sentinels", "primary", "user", "password", "sentinel-user", "sentinel-password",
    ]
    private static let creationAdvice = "create the file with `earshot cluster new`"

    /// Name of the cluster, see `EngineOptions.isClusterName`.
    var name: String
    /// Secret by which flights and origins get their keys in the engine.
    var secret: String
    /// Address at which this node serves bodies to the others.
    var node: NodeEndpoint
    /// Address to listen at; nil for ``node``.
    var listen: GatewayAddress?
    /// Number of nodes that this one assumes until the engine reports it.
    var members = 1
    /// Keys that all nodes share: 40 characters of Z85 each.
    var publicKey: String
    var secretKey: String
    var engine: EngineOptions.EngineLocation
    /// Login of the engine's servers, and of its sentinels.
    var login: EngineOptions.Login?
    var sentinelLogin: EngineOptions.Login?

    // MARK: Use

    /// Returns the membership of the broker.
    ///
    /// - Throws: `CommandError` if the host name of the node does not resolve.
    func membership() throws(CommandError) -> ClusterMembership {
        let place = NodeEndpoint.address(try node.resolvedAddress())
        var membership = ClusterMembership(
            engine: engineOptions(place), gatewayAddress: "\(place)", memberCount: members)
        membership.programVersion = VersionReport.build
        return membership
    }

    /// Returns the location of the engine, and the identity of the node at an endpoint.
    func engineOptions(_ place: NodeEndpoint) -> EngineOptions {
        var options = EngineOptions(
            location: engine, cluster: name, keys: ClusterKeys(secret: Array(secret.utf8)), publicKey: publicKey,
            description: "\(Self.machineName) \(place)")
        options.login = login
        options.sentinelLogin = sentinelLogin
        return options
    }

    /// Returns the address at which the gateway of this node listens.
    ///
    /// - Throws: `CommandError` if the host name of the node does not resolve.
    func listener() throws(CommandError) -> GatewayAddress {
        if let listen { return listen }
        return try node.resolvedAddress()
    }

    /// Returns the keys of that gateway, which admits only clients with the key of the cluster.
    ///
    /// - Throws: `CommandError` if the keys are no pair.
    func gatewayKeys(_ path: String) throws(CommandError) -> GatewayKeys {
        let pair: CurveKeyPair
        do {
            pair = try CurveKeyPair.make(fromSecretKey: secretKey)
        } catch {
            throw CommandError(.cannotServe, "cannot use keys of CURVE: \(error)")
        }
        guard pair.publicKey == publicKey else {
            throw TOMLFile.commandError(
                path, "public-key does not belong to secret-key; copy both from the file of another node")
        }
        guard let name = KeyName(cluster: name) else {
            throw TOMLFile.commandError(path, "name: must be \(Self.nameFormat)")
        }
        let nodes = ClientKey(name: name, publicKey: publicKey, role: .node, connections: Self.maximumConnections)
        return GatewayKeys(secretKey: secretKey, clients: [nodes])
    }

    /// Name of the machine, for operators.
    private static var machineName: String {
        var name = utsname()
        guard unsafe uname(&name) == 0 else { return "-" }
        return unsafe withUnsafeBytes(of: &name.nodename) { bytes in
            String(decoding: unsafe Array(bytes).prefix { $0 != 0 }, as: UTF8.self)
        }
    }

    // MARK: Reading

    static let memberRange = 1...1_024
    static let nameFormat = "1 to 32 letters, digits and hyphens"
    private static let keyFormat = "a key of 40 characters; copy it from the file of another node"
    static let nodeFormat = "the address and port at which other nodes reach this one, such as 10.0.0.1:5767"
    private static let listenFormat = "a numeric address and port, such as 0.0.0.0:5767"
    static let engineFormat = "addresses with ports, such as 10.0.0.1:6379, or of unix:PATH"

    /// Reads a file.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    init(_ path: String) throws(CommandError) {
        try SecretFile.checkAccess(path, content: "secrets of the cluster", mayBeOfGroup: true)
        guard let content = try TOMLFile.table(path) else {
            throw TOMLFile.commandError(
                path, "there is no such file; \(Self.creationAdvice), or copy that of another node")
        }
        let table = try CheckedTable(content, of: path, known: Self.knownKeys)
        name = try Self.requiredText(table, "name", Self.nameFormat, where: EngineOptions.isClusterName)
        secret = try Self.requiredText(
            table, "secret", "a text of at least \(Self.minimumSecretLength) characters, the same on all nodes"
        ) { $0.utf8.count >= Self.minimumSecretLength }
        let text = try Self.requiredText(table, "node", Self.nodeFormat) { NodeEndpoint($0) != nil }
        guard let node = NodeEndpoint(text) else { throw table.commandError("node", "must be \(Self.nodeFormat)") }
        self.node = node
        let address = NodeEndpoint.parseNumericAddress
        listen = try table.text("listen", Self.listenFormat) { address($0) != nil }.flatMap(address)
        members = try table.number("members", in: Self.memberRange) ?? 1
        publicKey = try Self.requiredText(table, "public-key", Self.keyFormat, where: CurveClient.isKey)
        secretKey = try Self.requiredText(table, "secret-key", Self.keyFormat, where: CurveClient.isKey)
        let engine = try table.subtable("engine", known: Self.knownEngineKeys)
        self.engine = try Self.readEngine(engine)
        login = try Self.readLogin(engine, "user", "password")
        sentinelLogin = try Self.readLogin(engine, "sentinel-user", "sentinel-password")
        if case .servers = self.engine, sentinelLogin != nil {
            throw engine.commandError("sentinel-password", "needs sentinels; remove the line")
        }
    }

    private static func requiredText(
        _ table: CheckedTable, _ key: String, _ form: String, where isValid: (String) -> Bool
    ) throws(CommandError) -> String {
        guard let text = try table.text(key, form, where: isValid) else {
            throw table.commandError(key, "is missing; it must be \(form)")
        }
        return text
    }

    private static func readEngine(_ table: CheckedTable) throws(CommandError) -> EngineOptions.EngineLocation {
        let isAddress = { (text: String) in EngineAddress(text) != nil }
        let servers = try table.list("servers", engineFormat, where: isAddress)?.compactMap { EngineAddress($0) }
        let sentinels = try table.list("sentinels", engineFormat, where: isAddress)?.compactMap { EngineAddress($0) }
        let primary = try table.text(
            "primary", "the name under which the sentinels watch the primary", where: isPrimaryName)
        switch (servers, sentinels, primary) {
        case (let servers?, nil, nil): return .servers(servers)
        case (nil, let sentinels?, let primary?): return .sentinels(sentinels, primary: primary)
        case (nil, _?, nil): throw table.commandError("primary", "is missing; sentinels need the name of the primary")
        case (_, nil, _?): throw table.commandError("primary", "needs sentinels; remove the line")
        case (nil, nil, nil), (_?, _?, _):
            throw table.commandError("servers", "give either servers, or sentinels with primary")
        }
    }

    /// Whether a text can be the name of a primary.
    static func isPrimaryName(_ text: String) -> Bool { text.utf8.allSatisfy { (0x21...0x7e).contains($0) } }

    private static func readLogin(
        _ table: CheckedTable, _ userKey: String, _ passwordKey: String
    ) throws(CommandError) -> EngineOptions.Login? {
        let user = try table.text(userKey, "the name of a user of the engine") { _ in true }
        guard let password = try table.text(passwordKey, "a password of the engine", where: { _ in true }) else {
            guard user == nil else { throw table.commandError(passwordKey, "is missing; \(userKey) needs it") }
            return nil
        }
        return EngineOptions.Login(user: user, password: password)
    }
}

/// Creation of the file of a new cluster.
extension ClusterFile {
    /// Number of random bytes of a secret.
    private static let secretBytes = 32
    private static let fileHeader = """
        # Cluster of Earshot buses: earshot-cluster(1). Keep this file secret.
        # Each node has a copy in which `node` is its own address.

        """

    /// Creates a cluster with a new secret and new keys.
    ///
    /// - Parameter name: see `EngineOptions.isClusterName`.
    /// - Throws: `CommandError` if libzmq cannot create keys.
    init(
        new name: String, node: NodeEndpoint, members: Int, engine: EngineOptions.EngineLocation,
        login: EngineOptions.Login?
    ) throws(CommandError) {
        let pair = try KeyFile.makeKeyPair()
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
        var text = Self.fileHeader
        func appendKey(_ key: String, _ value: String?) {
            if let value { text += "\(key) = \(Self.tomlString(value))\n" }
        }
        appendKey("name", name)
        appendKey("secret", secret)
        appendKey("node", "\(node)")
        appendKey("listen", listen.map { "\(NodeEndpoint.address($0))" })
        text += "members = \(members)\n"
        appendKey("public-key", publicKey)
        appendKey("secret-key", secretKey)
        text += "\n[engine]\n"
        switch engine {
        case .servers(let servers): text += "servers = \(Self.tomlArray(servers))\n"
        case .sentinels(let sentinels, let primary):
            text += "sentinels = \(Self.tomlArray(sentinels))\n"
            appendKey("primary", primary)
        }
        appendKey("user", login?.user)
        appendKey("password", login?.password)
        appendKey("sentinel-user", sentinelLogin?.user)
        appendKey("sentinel-password", sentinelLogin?.password)
        return text
    }

    private static func tomlArray(_ addresses: [EngineAddress]) -> String {
        "[" + addresses.map { tomlString($0.description) }.joined(separator: ", ") + "]"
    }

    /// Returns a basic string of TOML, whose escapes include those of JSON.
    private static func tomlString(_ text: String) -> String {
        JSONText.quoted(text) { $0.value < 0x20 || $0.value == 0x7f }
    }
}
