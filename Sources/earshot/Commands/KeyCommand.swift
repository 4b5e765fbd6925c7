internal import ArgumentParser
internal import EarshotClient
internal import EarshotGateway
internal import EarshotLoop
internal import Glibc
internal import ZeroMQ

/// `earshot key`: keys of the bus and of its clients on other machines.
struct KeyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "key",
        abstract: "Manage the keys of clients on other machines.",
        discussion: """
            A bus with the setting `listen` accepts clients over tcp. Each client has a key pair of its own, and knows the \
            public key of the bus. The bus reads changes after `kill -HUP` of `earshot serve`.

              earshot key new laptop --expires 2027-01-31
              earshot key show
              earshot key revoke laptop
            """,
        subcommands: [New.self, Add.self, List.self, Revoke.self, Show.self])

    /// Location of the keys.
    struct KeyLocation: ParsableArguments {
        @Option(
            help: ArgumentHelp(
                "File of the keys. (default: keys.toml beside the configuration file)", valueName: "file"),
            completion: .file())
        var keys: String?

        @OptionGroup var settings: ConfigurationOptions

        func validate() throws { try PathCheck.check([("--keys", keys)]) }

        var path: String { keys.map(Folder.absolutePath) ?? KeyFile.path(settings) }
    }

    /// Options of a client's key.
    struct KeyOptions: ParsableArguments {
        @Option(
            help: ArgumentHelp(
                "client: requests URLs. worker: serves URLs of its own schemes, see `earshot work`.",
                valueName: "role"))
        var role = ClientKey.Role.client

        @Option(
            help: ArgumentHelp(
                "Name of the client's key whose requests a worker gets; required for role worker.", valueName: "name"))
        var serves: String?

        @Option(
            help: ArgumentHelp(
                "Time from which the key is refused, such as 2027-01-31 or 2027-01-31T18:00:00Z, in UTC.",
                valueName: "time"))
        var expires: String?

        @Option(
            help: ArgumentHelp(
                "Maximum number of connections with the key. (default: \(ClientKey.defaultMaximumConnections))",
                valueName: "n"))
        var connections: Int?

        func validate() throws {
            guard (role == .worker) == (serves != nil) else {
                throw ValidationError(
                    role == .worker
                        ? "--role worker needs --serves NAME: the key of the client whose requests the worker gets"
                        : "--serves is for --role worker")
            }
            guard serves.map({ KeyName($0) != nil }) ?? true else {
                throw ValidationError("--serves must be \(KeyName.permittedForm)")
            }
            guard expires.map({ KeyExpiry($0) != nil }) ?? true else {
                throw ValidationError(
                    "--expires must be a date such as 2027-01-31, or a time such as 2027-01-31T18:00:00Z")
            }
            guard connections.map(ClientKey.maximumConnectionsRange.contains) ?? true else {
                let range = ClientKey.maximumConnectionsRange
                throw ValidationError("--connections must be \(range.lowerBound) to \(range.upperBound)")
            }
        }

        /// Options for another command with these terms, each after a blank.
        var commandLineText: String {
            var words = role == .client ? "" : " --role \(role.rawValue)"
            for (option, value) in [
                ("--serves", serves), ("--expires", expires), ("--connections", connections.map(String.init)),
            ] {
                if let value { words += " \(option) \(value)" }
            }
            return words
        }

        /// Returns the key with these terms.
        func makeKey(named name: KeyName, publicKey: String) -> ClientKey {
            ClientKey(
                name: name, publicKey: publicKey, role: role, serves: serves.flatMap { KeyName($0) },
                expiry: expires.flatMap { KeyExpiry($0) }, connections: connections)
        }
    }

    /// Name of a client's key.
    struct NameArgument: ParsableArguments {
        @Argument(help: ArgumentHelp("Name of the client's key.", valueName: "name"))
        var name: String

        func validate() throws {
            guard KeyName(name) != nil else { throw ValidationError("the name must be \(KeyName.permittedForm)") }
        }

        func parsedName() throws(CommandError) -> KeyName {
            guard let value = KeyName(name) else {
                throw CommandError(.usageError, "the name must be \(KeyName.permittedForm)")
            }
            return value
        }
    }

    private static let reloadNotice =
        "Reload the bus for this change: `kill -HUP` of `earshot serve`, or `systemctl reload`.\n"

    struct New: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a key for a client, and authorize it.",
            discussion: """
                Writes the file for the client with the mode 0600. Copy it over a channel that keeps it secret. The \
                bus stores the public key only.
                """)

        @OptionGroup var name: NameArgument
        @Option(
            name: .shortAndLong,
            help: ArgumentHelp("File to create for the client. (default: NAME.key)", valueName: "file"),
            completion: .file())
        var out: String?
        @OptionGroup var terms: KeyOptions
        @OptionGroup(title: "Bus") var place: KeyLocation

        func validate() throws { try PathCheck.check([("--out", out)]) }

        func run() throws {
            try runAndExit {
                let name = try name.parsedName()
                let pair = try KeyFile.makeKeyPair()
                let out = out ?? "\(name).key"
                let content = """
                    # Key of an Earshot client. Keep it secret.
                    name = "\(name)"
                    public-key = "\(pair.publicKey)"
                    secret-key = "\(pair.secretKey)"

                    """
                var server = ""
                var isCreated = false
                do {
                    try KeyFile.update(place.path) { file in
                        server = try file.makeServer()
                        try file.add(terms.makeKey(named: name, publicKey: pair.publicKey))
                        try SecretFile.create(out, with: content)
                        isCreated = true
                    }
                } catch {
                    if isCreated { unsafe unlink(ByteText.cString(out)) }
                    throw error
                }
                try StandardOutput().write(
                    Array(
                        """
                        key file    \(out)
                        public key  \(pair.publicKey)
                        server key  \(server)
                        The \(terms.role) uses key file and server key: earshot \(terms.role == .client ? "get" : "work --scheme SCHEME") \
                        --bus tcp://HOST:\(GatewayAddress.defaultPort) --bus-key \(out) --server-key '\(server)' \
                        \(terms.role == .client ? "URL" : "-- PROGRAM")
                        On each other node of a cluster: earshot key add \(name) '\(pair.publicKey)'\(terms.commandLineText)
                        \(KeyCommand.reloadNotice)
                        """.utf8))
                return .success
            }
        }
    }

    struct Add: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Authorize a key that a client has created.",
            discussion: "The client keeps its secret key, and sends only the public key.")

        @OptionGroup var name: NameArgument
        @Argument(help: ArgumentHelp("Public key of the client: 40 characters.", valueName: "public-key"))
        var publicKey: String
        @OptionGroup var terms: KeyOptions
        @OptionGroup(title: "Bus") var place: KeyLocation

        func validate() throws {
            guard CurveClient.isKey(publicKey) else {
                throw ValidationError("the public key must have 40 characters of Z85, as `earshot key new` prints them")
            }
        }

        func run() throws {
            try runAndExit {
                let name = try name.parsedName()
                try KeyFile.update(place.path) { file in
                    try file.makeServer()
                    try file.add(terms.makeKey(named: name, publicKey: publicKey))
                }
                try StandardOutput().write(Array(KeyCommand.reloadNotice.utf8))
                return .success
            }
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the keys of clients.",
            discussion:
                "Columns: name, role (of a worker with the name that it serves), state (valid or expired), time of expiry or -, public key."
        )

        @OptionGroup(title: "Output") var format: FormatOptions
        @OptionGroup(title: "Bus") var place: KeyLocation

        func run() throws {
            try runAndExit {
                let now = Int64(time(nil))
                let clients = try KeyFile(place.path).clients
                if format.json {
                    try StandardOutput().write(clients.flatMap { Self.json($0, now) })
                } else {
                    let rows = clients.map { client in
                        [
                            client.name.description,
                            client.role.rawValue + (client.servedClient.map { ":\($0)" } ?? ""),
                            client.isValid(at: now) ? "valid" : "expired",
                            client.expiry?.description ?? "-", client.publicKey,
                        ]
                    }
                    try StandardOutput().write(
                        Array(TextTable(isPadded: isatty(STDOUT_FILENO) == 1).text(rows).utf8))
                }
                return .success
            }
        }

        private static func json(_ client: ClientKey, _ now: Int64) -> [UInt8] {
            var line = JSONLine()
            line.appendMember("name", client.name.description)
            line.appendMember("role", client.role.rawValue)
            if let served = client.servedClient { line.appendMember("serves", served.description) }
            line.appendMember("state", client.isValid(at: now) ? "valid" : "expired")
            if let expiry = client.expiry { line.appendMember("expires", expiry.description) }
            line.appendMember("connections", client.maximumConnections ?? ClientKey.defaultMaximumConnections)
            line.appendMember("public-key", client.publicKey)
            return line.finishedLine()
        }
    }

    struct Revoke: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove the key of a client.",
            discussion: "With the reload of the bus, connections of the key end at once.")

        @OptionGroup var name: NameArgument
        @OptionGroup(title: "Bus") var place: KeyLocation

        func run() throws {
            try runAndExit {
                let name = try name.parsedName()
                try KeyFile.update(place.path) { file in try file.revoke(name) }
                try StandardOutput().write(Array(KeyCommand.reloadNotice.utf8))
                return .success
            }
        }
    }

    struct Show: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the public key of the bus.",
            discussion:
                "Creates the key pair of the bus if there is none. Clients need the public key, which is no secret.")

        @OptionGroup(title: "Bus") var place: KeyLocation

        func run() throws {
            try runAndExit {
                let path = place.path
                var key = try KeyFile(path).server?.publicKey
                if key == nil { try KeyFile.update(path) { file in key = try file.makeServer() } }
                try StandardOutput().write(Array(((key ?? "") + "\n").utf8))
                return .success
            }
        }
    }
}
