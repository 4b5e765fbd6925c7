internal import ArgumentParser
internal import EarshotClient
internal import EarshotCluster
internal import EarshotGateway
internal import EarshotWire

/// `earshot cluster`: buses of several machines that fetch each URL once.
struct ClusterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cluster",
        abstract: "Show the cluster of several buses, or create one.",
        discussion: """
            The buses of several machines, the nodes, fetch each URL once and respect one limit per origin. They \
            coordinate through a server of Redis or Valkey, the engine, and send bodies to each other over tcp, \
            encrypted with one key pair of the cluster.

              earshot cluster new shop --node 10.0.0.1:5767 --server 10.0.0.1:6379
              earshot serve --cluster cluster.toml
            """,
        subcommands: [Show.self, New.self], defaultSubcommand: Show.self)

    struct Show: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show mode, members, backlog and engine of this node's cluster.",
            discussion: """
                The mode is `member`; `waiting` while the engine is unreachable, for at most 5 s; or `alone`, when the node \
                fetches without the engine. Members are listed with the rest of their leases.

                  earshot cluster
                """)

        @OptionGroup(title: "Output") var format: FormatOptions
        @OptionGroup(title: "Bus") var place: BusOptions

        func run() throws {
            try conclude {
                try Question.ask(.cluster, in: place, json: format.json) { ClusterReport($0).text }
                return .done
            }
        }
    }

    struct New: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create the file of a new cluster.",
            discussion: """
                Writes a file with a new secret and a new key pair, with the mode 0600. Each node needs a copy in which \
                `node` is its own address. Copy the file over a channel that keeps it secret.

                  earshot cluster new shop --node 10.0.0.1:5767 --server 10.0.0.1:6379
                  earshot cluster new shop --node 10.0.0.1:5767 --sentinel 10.0.0.1:26379 --sentinel 10.0.0.2:26379 \
                --primary earshot
                """)

        @Argument(help: ArgumentHelp("Name of the cluster: \(ClusterFile.nameForm).", valueName: "name"))
        var name: String

        @Option(
            help: ArgumentHelp(
                "Address at which other nodes reach this one, such as 10.0.0.1:5767.", valueName: "host:port"))
        var node: String

        @Option(
            help: ArgumentHelp(
                "Number of nodes. A node that starts while the engine is down uses that part of each origin's limit.",
                valueName: "number"))
        var members = 1

        @Option(
            help: ArgumentHelp(
                "Server of the engine, HOST:PORT with a numeric address, or unix:PATH; may be repeated.",
                valueName: "address"))
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
            help: ArgumentHelp("File to create.", valueName: "file"), completion: .file())
        var output = "cluster.toml"

        func validate() throws {
            try GivenPath.check([("--output", output), ("--password-file", passwordFile)])
            guard EngineOptions.isCluster(name) else {
                throw ValidationError("the name must be \(ClusterFile.nameForm)")
            }
            guard ClusterFile.nodeAddress(node) != nil else {
                throw ValidationError("--node must be \(ClusterFile.nodeForm)")
            }
            guard ClusterFile.memberRange.contains(members) else {
                throw ValidationError("--members must be a number from 1 to \(ClusterFile.memberRange.upperBound)")
            }
            for (option, addresses) in [("--server", server), ("--sentinel", sentinel)] {
                for address in addresses where EngineAddress(address) == nil {
                    throw ValidationError("\(option) \(address): give a numeric address, such as 10.0.0.1:6379")
                }
            }
            guard server.isEmpty != sentinel.isEmpty else {
                throw ValidationError("give either --server, or --sentinel with --primary")
            }
            guard sentinel.isEmpty == (primary == nil), primary.map(ClusterFile.isPrimary) ?? true else {
                throw ValidationError("--sentinel and --primary NAME need each other")
            }
            guard user == nil || passwordFile != nil else {
                throw ValidationError("--user needs --password-file: the file with the password of that user")
            }
        }

        func run() throws {
            try conclude {
                guard let node = ClusterFile.nodeAddress(node) else {
                    throw Complaint(.usage, "--node must be \(ClusterFile.nodeForm)")
                }
                let engine: EngineOptions.Place =
                    primary.map { .sentinels(sentinel.compactMap { EngineAddress($0) }, primary: $0) }
                    ?? .servers(server.compactMap { EngineAddress($0) })
                let login = try passwordFile.map { path throws(Complaint) in
                    EngineOptions.Login(user: user, password: try Self.password(path))
                }
                let file = try ClusterFile(new: name, node: node, members: members, engine: engine, login: login)
                try SecretFile.create(output, with: file.text, option: "--output")
                try StandardOutput().write(
                    Array(
                        """
                        cluster file  \(output)
                        Start this node: earshot serve --cluster \(output)
                        On each other node, copy the file, set `node` to the address of that node, and start it alike.

                        """.utf8))
                return .done
            }
        }

        /// Returns the first line of a file.
        private static func password(_ path: String) throws(Complaint) -> String {
            let bytes = try InputFile.read(path, atMost: 65_536)
            let line = bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }
            guard !line.isEmpty else {
                throw Complaint(.noInput, "\(path): the first line is empty; it must be the password of the engine")
            }
            return String(decoding: line, as: UTF8.self)
        }
    }
}
