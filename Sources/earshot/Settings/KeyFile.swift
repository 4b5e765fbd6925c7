internal import EarshotClient
internal import EarshotGateway
internal import EarshotLoop
internal import Glibc
internal import TOML
internal import ZeroMQ

/// File of the keys for clients on other machines: `[server]` with the key pair of the bus, and a table
/// `[client."NAME"]` for each client.
///
/// Only its owner has access, since it contains the secret key of the bus.
struct KeyFile {
    /// Name of the file in the folder of the configuration.
    private static let fileName = "keys.toml"
    private static let fileHeader = """
        # Keys of this bus for clients on other machines: earshot-key(1).
        # `earshot key` writes this file again with each change. `kill -HUP` of `earshot serve` reads it again.

        """

    let path: String
    /// Key pair of the bus; nil before it is created.
    private(set) var server: CurveKeyPair?
    /// Clients in the order of their names.
    private(set) var clients: [ClientKey] = []

    // MARK: Place

    /// Returns the path of the file: beside the file of settings if the options name a single one, else in the user's
    /// folder.
    static func path(_ settings: ConfigurationOptions) -> String {
        if let file = settings.file, let slash = file.lastIndex(of: "/") { return "\(file[...slash])\(fileName)" }
        let own = Environment.value("XDG_CONFIG_HOME") ?? Environment.value("HOME").map { "\($0)/.config" }
        return "\(own.map { "\($0)/earshot" } ?? "/etc/earshot")/\(fileName)"
    }

    /// Returns the folder of a file.
    static func folder(of path: String) -> String {
        path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
    }

    // MARK: Reading

    /// Reads the file, if it exists.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    init(_ path: String) throws(CommandError) {
        self.path = path
        try SecretFile.checkAccess(path, content: "a secret key")
        guard let table = try TOMLFile.table(path) else { return }
        for key in table.keys {
            switch key {
            case "server": server = try Self.readPair(table[key]?.table, path)
            case "client": clients = try Self.parseClients(table[key]?.table, path)
            default: throw TOMLFile.commandError(path, "\(key): unknown key; use [server] and [client.\"NAME\"]")
            }
        }
        try checkUniqueness()
    }

    /// Returns the keys for a gateway.
    ///
    /// - Throws: `CommandError` if the file has no key of the bus.
    func gatewayKeys() throws(CommandError) -> GatewayKeys {
        guard let server else {
            throw TOMLFile.commandError(
                path, "the bus has no key for clients on the network; create it with `earshot key show`")
        }
        return GatewayKeys(secretKey: server.secretKey, clients: clients)
    }

    private static func readPair(_ table: TOMLTable?, _ path: String) throws(CommandError) -> CurveKeyPair {
        guard let table, let secretKey = table["secret-key"]?.string, CurveClient.isKey(secretKey) else {
            throw TOMLFile.commandError(
                path, "[server] needs secret-key with 40 characters; create the file with `earshot key show`")
        }
        let pair: CurveKeyPair
        do {
            pair = try CurveKeyPair.make(fromSecretKey: secretKey)
        } catch {
            throw Self.unusableCurveError(error)
        }
        guard table["public-key"]?.string.map({ $0 == pair.publicKey }) ?? true else {
            throw TOMLFile.commandError(path, "[server]: public-key does not belong to secret-key; remove the line")
        }
        return pair
    }

    private static func parseClients(_ table: TOMLTable?, _ path: String) throws(CommandError) -> [ClientKey] {
        guard let table else { throw TOMLFile.commandError(path, "client must be a table for each name") }
        guard table.keys.count <= GatewayKeys.maximumClients else {
            throw TOMLFile.commandError(path, "there are more than \(GatewayKeys.maximumClients) clients")
        }
        var clients: [ClientKey] = []
        for text in table.keys.sorted() { clients.append(try parseClient(text, table[text]?.table, path)) }
        return clients
    }

    private static func parseClient(
        _ text: String, _ table: TOMLTable?, _ path: String
    ) throws(CommandError) -> ClientKey {
        let place = "client.\"\(text)\""
        guard let name = KeyName(text) else {
            throw TOMLFile.commandError(path, "\(place): a name must be \(KeyName.permittedForm)")
        }
        guard let table, let publicKey = table["public-key"]?.string, CurveClient.isKey(publicKey) else {
            throw TOMLFile.commandError(path, "\(place) needs public-key with 40 characters")
        }
        var client = ClientKey(name: name, publicKey: publicKey)
        for key in table.keys {
            switch key {
            case "public-key": break
            case "role":
                guard let role = table[key]?.string.flatMap({ ClientKey.Role(rawValue: $0) }),
                    ClientKey.Role.keyFileRoles.contains(role)
                else {
                    let roles = ClientKey.Role.keyFileRoles.map(\.rawValue).joined(separator: ", ")
                    throw TOMLFile.commandError(path, "\(place): role must be \(roles)")
                }
                client.role = role
            case "serves":
                guard let served = table[key]?.string.flatMap({ KeyName($0) }) else {
                    throw TOMLFile.commandError(path, "\(place): serves must be the name of a client's key")
                }
                client.servedClient = served
            case "expires":
                guard let expiry = table[key]?.string.flatMap({ KeyExpiry($0) }) else {
                    throw TOMLFile.commandError(
                        path, "\(place): expires must be a text such as \"2027-01-31\" or \"2027-01-31T18:00:00Z\"")
                }
                client.expiry = expiry
            case "connections":
                guard let count = table[key]?.int, ClientKey.maximumConnectionsRange.contains(count) else {
                    let range = ClientKey.maximumConnectionsRange
                    throw TOMLFile.commandError(
                        path, "\(place): connections must be \(range.lowerBound) to \(range.upperBound)")
                }
                client.maximumConnections = count
            default:
                throw TOMLFile.commandError(
                    path, "\(place): \(key): unknown key; use public-key, role, serves, expires, connections")
            }
        }
        guard (client.role == .worker) == (client.servedClient != nil) else {
            throw TOMLFile.commandError(path, "\(place): role = \"worker\" and serves = \"NAME\" need each other")
        }
        return client
    }

    private func checkUniqueness() throws(CommandError) {
        var names: [String: KeyName] = [:]
        for client in clients {
            if let other = names.updateValue(client.name, forKey: client.publicKey) {
                throw TOMLFile.commandError(path, "\(other) and \(client.name) have the same public-key; remove one")
            }
        }
    }

    private static func unusableCurveError(_ error: ZeroMQError) -> CommandError {
        CommandError(.cannotServe, "cannot use keys of CURVE: \(error)")
    }

    // MARK: Changes

    /// Changes the file under a lock, so that no concurrent change is lost.
    static func update(_ path: String, _ body: (inout KeyFile) throws -> Void) throws {
        try PrivateFolder.createWithParents(folder(of: path))
        guard let lock = try LockFile.acquire("\(path).lock") else {
            throw CommandError(.cannotServe, "another `earshot key` changes \(path); try again")
        }
        var file = try KeyFile(path)
        try body(&file)
        try file.write()
        withExtendedLifetime(lock) {}
    }

    /// Creates the key pair of the bus, if there is none.
    ///
    /// - Returns: its public key.
    @discardableResult
    mutating func makeServer() throws(CommandError) -> String {
        if let server { return server.publicKey }
        let pair = try Self.makeKeyPair()
        server = pair
        return pair.publicKey
    }

    /// Adds a client.
    ///
    /// - Throws: `CommandError` if there is one of that name or with that key.
    mutating func add(_ client: ClientKey) throws(CommandError) {
        guard !clients.contains(where: { $0.name == client.name }) else {
            throw CommandError(
                .usageError,
                "there is a key named \(client.name); give another name, or run `earshot key revoke \(client.name)`")
        }
        if let other = clients.first(where: { $0.publicKey == client.publicKey }) {
            throw CommandError(.usageError, "\(other.name) has this public key; give the key of another client")
        }
        guard clients.count < GatewayKeys.maximumClients else {
            throw CommandError(.generalError, "there are \(clients.count) clients, which is the maximum; revoke some")
        }
        clients.append(client)
        clients.sort { $0.name.description < $1.name.description }
    }

    /// Removes a client.
    ///
    /// - Throws: `CommandError` if there is none of that name.
    mutating func revoke(_ name: KeyName) throws(CommandError) {
        guard let index = clients.firstIndex(where: { $0.name == name }) else {
            throw CommandError(.noInput, "there is no key named \(name); `earshot key list` shows the names")
        }
        clients.remove(at: index)
    }

    /// Returns a new key pair.
    static func makeKeyPair() throws(CommandError) -> CurveKeyPair {
        do { return try CurveKeyPair.make() } catch { throw unusableCurveError(error) }
    }

    // MARK: Writing

    /// The content of the file.
    var text: String {
        var text = Self.fileHeader
        if let server {
            text += "\n[server]\npublic-key = \"\(server.publicKey)\"\nsecret-key = \"\(server.secretKey)\"\n"
        }
        for client in clients {
            text += "\n[client.\"\(client.name)\"]\npublic-key = \"\(client.publicKey)\"\n"
            if client.role != .client { text += "role = \"\(client.role.rawValue)\"\n" }
            if let served = client.servedClient { text += "serves = \"\(served)\"\n" }
            if let expiry = client.expiry { text += "expires = \"\(expiry)\"\n" }
            if let connections = client.maximumConnections { text += "connections = \(connections)\n" }
        }
        return text
    }

    private func write() throws {
        try SecretFile.replace(path, with: text)
    }
}

/// File from which a gateway reads its keys: that of the clients, or that of a cluster.
enum GatewayKeySource: Equatable {
    /// File of the keys of clients and workers on other machines.
    case keys(String)
    /// File of a cluster, whose nodes share one key.
    case cluster(String)

    /// Absolute path of the file.
    var path: String {
        switch self {
        case .keys(let path), .cluster(let path): path
        }
    }

    /// Options of `earshot gateway` for this file.
    var arguments: [String] {
        switch self {
        case .keys(let path): ["--keys", path]
        case .cluster(let path): ["--cluster", path]
        }
    }

    /// Name of the process in its log.
    var label: String {
        switch self {
        case .keys: "gateway"
        case .cluster: "node-gateway"
        }
    }

    /// Reads the file.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    func read() throws(CommandError) -> GatewayKeys {
        switch self {
        case .keys(let path): try KeyFile(path).gatewayKeys()
        case .cluster(let path): try ClusterFile(path).gatewayKeys(path)
        }
    }
}
