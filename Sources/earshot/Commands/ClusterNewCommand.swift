internal import ArgumentParser
internal import EarshotClient
internal import EarshotCluster
internal import EarshotLoop
internal import Glibc

/// `earshot cluster new`: the files of a new cluster.
struct ClusterNewCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "new",
        abstract: "Create the files of a new cluster.",
        discussion: """
            With --nodes, writes a folder for each machine: the file of the cluster, settings of the bus, keys, and a \
            script that installs them. With --with-redis also the files of Redis and its sentinels, on the first three \
            machines, with passwords for all users. README.txt in each folder has the commands and the ports of the firewall.

            With --node, writes the file of one node. Each other node needs a copy in which `node` is its own address.

            All files have new secrets, and the mode 0600. Copy them over a channel that keeps them secret.

              earshot cluster new shop --nodes 10.0.0.1,10.0.0.2,10.0.0.3 --with-redis
              earshot cluster new shop --node 10.0.0.1:5767 --sentinel 10.0.0.1:26379 --sentinel 10.0.0.2:26379 \
            --primary earshot
            """)

    /// Default port of nodes.
    static let defaultPort: UInt16 = 5_767
    private static let nodesFormat = "addresses or host names, each with or without a port, such as 10.0.0.1,10.0.0.2"

    @Argument(help: ArgumentHelp("Name of the cluster: \(ClusterFile.nameFormat).", valueName: "name"))
    var name: String

    @Option(
        help: ArgumentHelp(
            "Addresses of all nodes, separated by commas; writes a folder for each. (default port: \(Self.defaultPort))",
            valueName: "hosts"))
    var nodes: String?

    @Flag(help: "Write the files of Redis and its sentinels, too. Needs --nodes, with one node or at least three.")
    var withRedis = false

    @Option(
        help: ArgumentHelp(
            "Address at which other nodes reach this one, such as 10.0.0.1:5767; writes one file.",
            valueName: "host:port"))
    var node: String?

    @Option(
        help: ArgumentHelp(
            "Number of nodes. A node that starts while the engine is down uses that part of each origin's limit. (default: number of --nodes, or 1)",
            valueName: "number"))
    var members: Int?

    @Option(
        help: ArgumentHelp("Server of the engine, HOST:PORT or unix:PATH; may be repeated.", valueName: "address"))
    var server: [String] = []

    @Option(
        help: ArgumentHelp(
            "Sentinel of the engine, in place of servers; may be repeated. Needs --primary.", valueName: "address"))
    var sentinel: [String] = []

    @Option(help: ArgumentHelp("Name under which the sentinels watch the primary.", valueName: "name"))
    var primary: String?

    @Option(help: ArgumentHelp("User of the engine. Needs --password-file.", valueName: "name"))
    var user: String?

    @Option(
        help: ArgumentHelp(
            "File whose first line is the password of the engine; - for standard input.", valueName: "file"),
        completion: .file())
    var passwordFile: String?

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "File or folder to create. (default: cluster.toml, or a folder with the name of the cluster)",
            valueName: "path"),
        completion: .file())
    var output: String?

    func validate() throws {
        try PathCheck.check([("--output", output), ("--password-file", passwordFile)])
        guard EngineOptions.isClusterName(name) else {
            throw ValidationError("the name must be \(ClusterFile.nameFormat)")
        }
        guard (node == nil) != (nodes == nil) else {
            throw ValidationError("give either --nodes with the addresses of all, or --node with that of this one")
        }
        guard node.map({ NodeEndpoint($0) != nil }) ?? true else {
            throw ValidationError("--node must be \(ClusterFile.nodeFormat)")
        }
        guard let places = nodeEndpoints() else { throw ValidationError("--nodes must be \(Self.nodesFormat)") }
        let folders = Set(places.map { ClusterSetup.folder(of: $0) })
        guard Set(places).count == places.count, folders.count == places.count else {
            throw ValidationError("--nodes has an address twice; each node needs its own")
        }
        let memberRange = ClusterFile.memberRange
        guard members.map(memberRange.contains) ?? true, places.count <= memberRange.upperBound else {
            throw ValidationError("--members must be a number from 1 to \(memberRange.upperBound)")
        }
        try validateEngine(places)
    }

    private func validateEngine(_ places: [NodeEndpoint]) throws {
        for (option, addresses) in [("--server", server), ("--sentinel", sentinel)] {
            for address in addresses where EngineAddress(address) == nil {
                throw ValidationError("\(option) \(address): give an address with a port, such as 10.0.0.1:6379")
            }
        }
        if withRedis {
            let namesEngine = !server.isEmpty || !sentinel.isEmpty || primary != nil
            guard nodes != nil, !namesEngine, user == nil, passwordFile == nil else {
                throw ValidationError("--with-redis needs --nodes, and no options of another engine")
            }
            guard places.count != 2 else {
                throw ValidationError(
                    "--with-redis needs one node, or at least three: two sentinels cannot replace a dead primary")
            }
            return
        }
        guard server.isEmpty != sentinel.isEmpty else {
            throw ValidationError("give --with-redis, or --server, or --sentinel with --primary")
        }
        guard sentinel.isEmpty == (primary == nil), primary.map(ClusterFile.isPrimaryName) ?? true else {
            throw ValidationError("--sentinel and --primary NAME need each other")
        }
        guard user == nil || passwordFile != nil else {
            throw ValidationError("--user needs --password-file: the file with the password of that user")
        }
    }

    /// Returns the endpoints of the nodes; nil if one is malformed.
    private func nodeEndpoints() -> [NodeEndpoint]? {
        if let node { return NodeEndpoint(node).map { [$0] } }
        let texts = (nodes ?? "").split(separator: ",", omittingEmptySubsequences: false)
        let places = texts.compactMap { text -> NodeEndpoint? in
            let isBareIPv6 = !text.hasPrefix("[") && text.count { $0 == ":" } > 1
            let host = isBareIPv6 ? "[\(text)]" : String(text)
            return NodeEndpoint(host) ?? NodeEndpoint("\(host):\(Self.defaultPort)")
        }
        return places.count == texts.count ? places : nil
    }

    func run() throws {
        try runAndExit {
            guard let places = nodeEndpoints() else {
                throw CommandError(.usageError, "--nodes must be \(Self.nodesFormat)")
            }
            let redis = withRedis ? RedisSetup(cluster: name, nodes: places) : nil
            let engine = redis?.engineLocation ?? existingEngineLocation
            let login = try redis?.login ?? existingEngineLogin()
            var file = try ClusterFile(
                new: name, node: places[0], members: members ?? places.count, engine: engine, login: login)
            file.sentinelLogin = redis?.sentinelLogin
            if nodes == nil { try writeFile(file) } else { try writeFolder(file, places, redis) }
            return .success
        }
    }

    private var existingEngineLocation: EngineOptions.EngineLocation {
        primary.map { .sentinels(sentinel.compactMap { EngineAddress($0) }, primary: $0) }
            ?? .servers(server.compactMap { EngineAddress($0) })
    }

    private func existingEngineLogin() throws(CommandError) -> EngineOptions.Login? {
        guard let passwordFile else { return nil }
        return EngineOptions.Login(user: user, password: try Self.readPassword(passwordFile))
    }

    private func writeFile(_ file: ClusterFile) throws {
        let output = output ?? "cluster.toml"
        try SecretFile.create(output, with: file.text, option: "--output")
        try StandardOutput().write(
            Array(
                """
                cluster file  \(output)
                Start this node: earshot serve --cluster \(output) --share-between-users on
                On each other node, copy the file, set `node` to the address of that node, and start it alike.

                """.utf8))
    }

    private func writeFolder(_ file: ClusterFile, _ places: [NodeEndpoint], _ redis: RedisSetup?) throws {
        let output = output ?? name
        let setup = try ClusterSetup(file, nodes: places, redis: redis, folder: output)
        try Self.createFolder(output)
        for place in places {
            let folder = "\(output)/\(ClusterSetup.folder(of: place))"
            try Self.createFolder(folder)
            for (name, text) in setup.files(for: place) { try SecretFile.create("\(folder)/\(name)", with: text) }
        }
        var text = "folder      \(output)\nserver key  \(setup.serverKey)\n"
        text += "Copy each folder to its machine, and run there as root, after the installation of Earshot's package:\n"
        for place in places {
            text += "  \(ClusterSetup.folder(of: place)): \(setup.installCommands(place).joined(separator: "; "))\n"
        }
        text += "README.txt in each folder has the ports of the firewall. When all nodes run, on one of them:\n"
        text += "  runuser -u earshot -- earshot cluster check\n"
        text += "Then remove \(output): it has the secrets of all machines.\n"
        try StandardOutput().write(Array(text.utf8))
    }

    private static func createFolder(_ folder: String) throws(CommandError) {
        guard unsafe mkdir(ByteText.cString(folder), 0o700) == 0 else {
            throw errno == EEXIST
                ? CommandError(.cannotWrite, "\(folder) exists; give another folder with --output")
                : CommandError(.cannotWrite, "cannot create \(folder): \(unsafe String(cString: strerror(errno)))")
        }
    }

    /// Returns the first line of a file.
    private static func readPassword(_ path: String) throws(CommandError) -> String {
        let bytes = try InputFile.read(path, atMost: 65_536)
        let line = bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }
        guard !line.isEmpty else {
            throw CommandError(.noInput, "\(path): the first line is empty; it must be the password of the engine")
        }
        return String(decoding: line, as: UTF8.self)
    }
}
