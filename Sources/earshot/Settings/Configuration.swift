internal import EarshotClient
internal import EarshotCore
internal import EarshotGateway
internal import EarshotLoop

/// Sources of settings in ascending precedence: defaults, machine's file, user's file, environment variables, options.
/// SIGHUP reads all of them again.
struct Configuration: Sendable {
    /// Only file to read; nil for the files of machine and user.
    let file: String?
    /// Changes by options.
    let flags: [SettingChange]
    /// Defaults of a pool of workers; nil for a broker without one.
    let pool: Pool?
    /// Upper limit for the number of workers, regardless of its source; nil for no limit.
    var mostWorkers: Int?

    /// Defaults of a pool of workers.
    struct Pool: Sendable {
        let workers: Int
        /// Concurrent transfers of each worker.
        let slots: Int
        /// Address space of each worker, in bytes. A worker with 740 transfers uses a twentieth of it.
        let memory = 4 << 30
    }

    /// Reads all sources. Each value records its source.
    ///
    /// - Throws: `CommandError` if a file or a variable is invalid.
    func read() throws(CommandError) -> Settings {
        var settings = Settings()
        if let pool {
            try apply(.number(.workers, pool.workers), Settings.Source.standard, to: &settings)
            try apply(.number(.slots, pool.slots), Settings.Source.standard, to: &settings)
            try apply(.number(.workerMemory, pool.memory), Settings.Source.standard, to: &settings)
        }
        for path in paths {
            guard let changes = try ConfigurationFile.read(path) else {
                if file != nil {
                    throw CommandError(
                        .configuration, "\(path): there is no such file; give another --config or EARSHOT_CONFIG")
                }
                continue
            }
            for change in changes { try apply(change, path, to: &settings) }
        }
        for name in SettingName.allCases {
            guard let text = Environment.value(Self.variable(name)) else { continue }
            let change: SettingChange
            do throws(SettingError) {
                change = .number(name, try name.value(text))
            } catch {
                throw CommandError(.configuration, "\(Self.variable(name)): \(error.description)")
            }
            try apply(change, Self.variable(name), to: &settings)
        }
        for name in ListSettingName.allCases {
            let variable = Self.variable(name.rawValue)
            guard let text = Environment.value(variable) else { continue }
            let words: [String]
            do throws(SettingError) { words = try name.value(text) } catch {
                throw CommandError(.configuration, "\(variable): \(error.description)")
            }
            try apply(.list(name, words), variable, to: &settings)
        }
        for change in flags { try apply(change, Settings.Source.flag, to: &settings) }
        if let mostWorkers, let workers = settings[.workers], workers > mostWorkers {
            try apply(.number(.workers, mostWorkers), Settings.Source.standard, to: &settings)
        }
        try checkUsers(of: settings)
        try checkAddresses(of: settings)
        try checkDoor(of: settings)
        return settings
    }

    /// Program for requests that end, with its path; nil without one. The user's file overrides that of the machine.
    ///
    /// - Throws: `CommandError` if a file is invalid, or if the program cannot be executed.
    func hook() throws(CommandError) -> HookProgram? {
        guard let (words, path) = try onComplete(), !words.isEmpty else { return nil }
        guard let program = HookProgram(words: words) else {
            throw CommandError(
                .configuration, "\(path): \(ConfigurationFile.onComplete): the program is empty; give its path")
        }
        return try program.found("\(path): \(ConfigurationFile.onComplete)", .configuration)
    }

    /// Files for the commands of clients.
    static var client: Configuration { Configuration(file: ConfigurationOptions.usualFile, flags: [], pool: nil) }

    /// Buses on a network for the commands of clients. The user's file overrides that of the machine.
    ///
    /// - Throws: `CommandError` if a file is invalid.
    func network() throws(CommandError) -> NetworkChoice {
        var choice = NetworkChoice()
        for path in paths { if let found = try ConfigurationFile.network(path) { choice = found.orElse(choice) } }
        return choice
    }

    /// Values of the buses on a network with their sources: a file or a variable.
    func networkRows() throws(CommandError) -> [(name: String, value: String, source: String)] {
        var sources: [(NetworkChoice, [String])] = []
        for path in paths {
            if let choice = try ConfigurationFile.network(path) { sources.append((choice, [path, path, path])) }
        }
        sources.append((.inEnvironment, ["EARSHOT_BUS", "EARSHOT_BUS_KEY", "EARSHOT_SERVER_KEY"]))
        let names = [ConfigurationFile.bus, ConfigurationFile.busKey, ConfigurationFile.serverKey]
        var rows: [(name: String, value: String, source: String)] = []
        for (index, name) in names.enumerated() {
            for (choice, source) in sources.reversed() {
                guard let value = [choice.buses, choice.keyFile.map { [$0] }, choice.serverKeys][index] else {
                    continue
                }
                rows.append((name, value.joined(separator: ","), source[index]))
                break
            }
        }
        return rows
    }

    /// Value of `on-complete`, and its file; nil without one.
    func onComplete() throws(CommandError) -> (words: [String], path: String)? {
        var last: (words: [String], path: String)?
        for path in paths { if let words = try ConfigurationFile.program(path) { last = (words, path) } }
        return last
    }

    /// Path of the cluster's file, and the file that names it; nil without one. The user's file overrides that of the machine.
    ///
    /// - Throws: `CommandError` if a file is invalid.
    func cluster() throws(CommandError) -> (file: String, source: String)? {
        var last: (file: String, source: String)?
        for path in paths { if let file = try ConfigurationFile.cluster(path) { last = (file, path) } }
        return last
    }

    /// Checks that each user and group exists.
    private func checkUsers(of settings: Settings) throws(CommandError) {
        do throws(UserList.UnknownName) {
            _ = try UserList(settings[.users])
        } catch {
            throw CommandError(.configuration, "\(Self.place(of: .users, in: settings)): \(error.description)")
        }
    }

    /// Checks the form of the addresses for clients on other machines.
    private func checkAddresses(of settings: Settings) throws(CommandError) {
        for text in settings[.listen] where GatewayAddress(text) == nil {
            throw CommandError(
                .configuration,
                "\(Self.place(of: .listen, in: settings)): \(text): give a numeric address, such as "
                    + "tcp://0.0.0.0:\(GatewayAddress.usualPort) or tcp://[::]:\(GatewayAddress.usualPort)")
        }
    }

    /// Checks addresses and users of the HTTP door.
    private func checkDoor(of settings: Settings) throws(CommandError) {
        let hasOthers = [ListSettingName.users, .listen, .httpUsers].contains { !settings[$0].isEmpty }
        for name in [ListSettingName.http, .httpAPI] {
            for text in settings[name] {
                let place = "\(Self.place(of: name, in: settings)): \(text)"
                guard let listener = DoorAddress.listener(text) else {
                    throw CommandError(
                        .configuration,
                        "\(place): give a port, a numeric address such as 127.0.0.1:\(DoorAddress.usualPort), "
                            + "or unix: and an absolute path")
                }
                guard !DoorAddress.isRemote(listener) || !settings[.httpTokens].isEmpty else {
                    throw CommandError(
                        .configuration, "\(place): an address other than loopback requires `http-tokens`")
                }
                // Downloads of all users are connections of the bus's own user, to which the API would answer.
                guard name == .http || !hasOthers || listener.hasPrefix("/") || DoorAddress.isRemote(listener) else {
                    throw CommandError(
                        .configuration, "\(place): the API of a bus with other users needs an address unix:PATH")
                }
            }
        }
        // The origin of a page in a sandbox is `null`, as are those of each prefixed page.
        for text in settings[.httpOrigins] where !text.contains("://") {
            throw CommandError(
                .configuration,
                "\(Self.place(of: .httpOrigins, in: settings)): \(text): give an origin such as https://console.example.org"
            )
        }
        for path in settings[.httpTokens] where !path.hasPrefix("/") {
            throw CommandError(
                .configuration, "\(Self.place(of: .httpTokens, in: settings)): \(path): give an absolute path")
        }
        for text in settings[.httpUsers] where UserList.user(text) == nil {
            throw CommandError(
                .configuration, "\(Self.place(of: .httpUsers, in: settings)): \(UserList.UnknownName(name: text))")
        }
    }

    /// Option, variable, or name and file from which a setting comes, for messages.
    private static func place(of name: ListSettingName, in settings: Settings) -> String {
        switch settings.source(of: name) {
        case Settings.Source.flag: "--\(name.rawValue)"
        case variable(name.rawValue): variable(name.rawValue)
        case let file: "\(name.rawValue) of \(file)"
        }
    }

    /// Environment variable of a setting, such as `EARSHOT_ORIGIN_LIMIT`.
    static func variable(_ name: SettingName) -> String { variable(name.rawValue) }

    private static func variable(_ name: String) -> String {
        "EARSHOT_" + name.uppercased().replacing("-", with: "_")
    }

    /// Variables besides those of settings that this program reads, or gives to programs that it runs.
    private static let otherVariables: Set<String> = [
        "RUNTIME", "BUS", "BUS_KEY", "SERVER_KEY", "CONFIG", "BODIES", "URL", "METHOD", "PRIORITY", "HEADERS",
        "MAX_BYTES",
        "CAUSE", "FILE", "HANDLER", "LENGTH", "PRINCIPAL", "REQUEST", "SHA256", "STATE", "STATUS",
    ]

    /// Message about variables of this process that begin with `EARSHOT_` and have no meaning; nil without any.
    static var unknownVariables: String? {
        let known = SettingName.allCases.map { variable($0) } + ListSettingName.allCases.map { variable($0.rawValue) }
        let unknown = ChildProcess.inheritedVariables.filter {
            $0.hasPrefix("EARSHOT_") && !known.contains($0) && !otherVariables.contains(String($0.dropFirst(8)))
        }
        guard let first = unknown.first else { return nil }
        let nearest = unknown.count == 1 ? SettingName.nearest(to: first, among: known) : nil
        return "unknown environment variables are ignored: \(unknown.sorted().joined(separator: ", "))"
            + (nearest.map { "; did you mean \($0)?" } ?? "; see `earshot help environment`")
    }

    /// Files in ascending precedence.
    private var paths: [String] {
        if let file { return [file] }
        let own = Environment.value("XDG_CONFIG_HOME") ?? Environment.value("HOME").map { "\($0)/.config" }
        return ["/etc/earshot/config.toml"] + (own.map { ["\($0)/earshot/config.toml"] } ?? [])
    }

    private func apply(
        _ change: SettingChange, _ source: String, to settings: inout Settings
    ) throws(CommandError) {
        // A file may serve both roles. A broker without a pool ignores the settings of a supervisor.
        if pool == nil, case .number(let name, _) = change, name.isOfSupervisor { return }
        do throws(SettingError) {
            try settings.apply(change, source: source)
        } catch {
            let place = source == Settings.Source.flag ? "" : "\(source): "
            throw CommandError(.configuration, place + error.description)
        }
    }
}
