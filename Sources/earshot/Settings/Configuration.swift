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
    let optionChanges: [SettingChange]
    /// Defaults of a pool of workers; nil for a broker without one.
    let pool: Pool?
    /// Upper limit for the number of workers, regardless of its source; nil for no limit.
    var maximumWorkers: Int?

    /// Defaults of a pool of workers.
    struct Pool: Sendable {
        let workerCount: Int
        /// Concurrent transfers of each worker.
        let slotsPerWorker: Int
        /// Address space of each worker, in bytes. A worker with 740 transfers uses a twentieth of it.
        let memoryBytes = 4 << 30
    }

    /// Reads all sources. Each value records its source.
    ///
    /// - Throws: `CommandError` if a file or a variable is invalid.
    func readSettings() throws(CommandError) -> Settings {
        var settings = Settings()
        if let pool {
            try apply(.setValue(.workers, pool.workerCount), Settings.SourceName.builtInDefault, to: &settings)
            try apply(.setValue(.slots, pool.slotsPerWorker), Settings.SourceName.builtInDefault, to: &settings)
            try apply(.setValue(.workerMemory, pool.memoryBytes), Settings.SourceName.builtInDefault, to: &settings)
        }
        for path in filePaths {
            guard let changes = try ConfigurationFile.read(path) else {
                if file != nil {
                    throw CommandError(
                        .configurationError, "\(path): there is no such file; give another --config or EARSHOT_CONFIG")
                }
                continue
            }
            for change in changes { try apply(change, path, to: &settings) }
        }
        for name in SettingName.allCases {
            guard let text = Environment.value(Self.environmentVariable(name)) else { continue }
            let change: SettingChange
            do throws(SettingError) {
                change = .setValue(name, try name.parseValue(text))
            } catch {
                throw CommandError(.configurationError, "\(Self.environmentVariable(name)): \(error.description)")
            }
            try apply(change, Self.environmentVariable(name), to: &settings)
        }
        for name in ListSettingName.allCases {
            let variable = Self.environmentVariable(name.rawValue)
            guard let text = Environment.value(variable) else { continue }
            let words: [String]
            do throws(SettingError) {
                words = try name.parseWords(text)
            } catch {
                throw CommandError(.configurationError, "\(variable): \(error.description)")
            }
            try apply(.setList(name, words), variable, to: &settings)
        }
        for change in optionChanges { try apply(change, Settings.SourceName.commandLineOption, to: &settings) }
        if let maximumWorkers, let workers = settings[.workers], workers > maximumWorkers {
            try apply(.setValue(.workers, maximumWorkers), Settings.SourceName.builtInDefault, to: &settings)
        }
        try checkUsers(of: settings)
        try checkAddresses(of: settings)
        try checkDoor(of: settings)
        return settings
    }

    /// Program for requests that end, with its path; nil without one. The user's file overrides that of the machine.
    ///
    /// - Throws: `CommandError` if a file is invalid, or if the program cannot be executed.
    func hookProgram() throws(CommandError) -> HookProgram? {
        guard let (words, path) = try onCompleteProgram(), !words.isEmpty else { return nil }
        guard let program = HookProgram(commandWords: words) else {
            throw CommandError(
                .configurationError, "\(path): \(ConfigurationFile.onCompleteKey): the program is empty; give its path")
        }
        return try program.resolvingPath(
            source: "\(path): \(ConfigurationFile.onCompleteKey)", failureStatus: .configurationError)
    }

    /// Configuration files for the commands of clients.
    static var clientConfiguration: Configuration {
        Configuration(file: ConfigurationOptions.pathFromEnvironment, optionChanges: [], pool: nil)
    }

    /// Buses on a network for the commands of clients. The user's file overrides that of the machine.
    ///
    /// - Throws: `CommandError` if a file is invalid.
    func networkBuses() throws(CommandError) -> NetworkChoice {
        var choice = NetworkChoice()
        for path in filePaths {
            if let found = try ConfigurationFile.networkBuses(path) { choice = found.fillingGaps(from: choice) }
        }
        return choice
    }

    /// Values of the buses on a network with their sources: a file or a variable.
    func networkRows() throws(CommandError) -> [(name: String, value: String, source: String)] {
        var sources: [(NetworkChoice, [String])] = []
        for path in filePaths {
            if let choice = try ConfigurationFile.networkBuses(path) { sources.append((choice, [path, path, path])) }
        }
        sources.append((.fromEnvironment, ["EARSHOT_BUS", "EARSHOT_BUS_KEY", "EARSHOT_SERVER_KEY"]))
        let names = [
            ConfigurationFile.busSettingKey, ConfigurationFile.busKeySettingKey, ConfigurationFile.serverKeySettingKey,
        ]
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
    func onCompleteProgram() throws(CommandError) -> (words: [String], path: String)? {
        var last: (words: [String], path: String)?
        for path in filePaths { if let words = try ConfigurationFile.onCompleteProgram(path) { last = (words, path) } }
        return last
    }

    /// Path of the cluster's file, and the file that names it; nil without one. The user's file overrides that of the
    /// machine.
    ///
    /// - Throws: `CommandError` if a file is invalid.
    func cluster() throws(CommandError) -> (file: String, source: String)? {
        var last: (file: String, source: String)?
        for path in filePaths { if let file = try ConfigurationFile.clusterPath(path) { last = (file, path) } }
        return last
    }

    /// Checks that each user and group exists.
    private func checkUsers(of settings: Settings) throws(CommandError) {
        do throws(UserList.UnknownName) {
            _ = try UserList(settings[.allowedUsers])
        } catch {
            throw CommandError(
                .configurationError, "\(Self.settingSource(of: .allowedUsers, in: settings)): \(error.description)")
        }
    }

    /// Checks the form of the addresses for clients on other machines.
    private func checkAddresses(of settings: Settings) throws(CommandError) {
        for text in settings[.clientListenAddresses] where GatewayAddress(text) == nil {
            let source = Self.settingSource(of: .clientListenAddresses, in: settings)
            throw CommandError(
                .configurationError,
                "\(source): \(text): give a numeric address, such as "
                    + "tcp://0.0.0.0:\(GatewayAddress.defaultPort) or tcp://[::]:\(GatewayAddress.defaultPort)")
        }
    }

    /// Checks addresses and users of the HTTP door.
    private func checkDoor(of settings: Settings) throws(CommandError) {
        let hasOthers = [ListSettingName.allowedUsers, .clientListenAddresses, .httpDoorAllowedUsers].contains {
            !settings[$0].isEmpty
        }
        for name in [ListSettingName.httpDoorAddresses, .httpAPIAddresses] {
            for text in settings[name] {
                let place = "\(Self.settingSource(of: name, in: settings)): \(text)"
                guard let listener = DoorAddress.listener(text) else {
                    throw CommandError(
                        .configurationError,
                        "\(place): give a port, a numeric address such as 127.0.0.1:\(DoorAddress.defaultPort), "
                            + "or unix: and an absolute path")
                }
                guard !DoorAddress.isRemote(listener) || !settings[.httpTokenFiles].isEmpty else {
                    throw CommandError(
                        .configurationError, "\(place): an address other than loopback requires `http-tokens`")
                }
                // Downloads of all users are connections of the bus's own user, to which the API would answer.
                let isLoopback = !listener.hasPrefix("/") && !DoorAddress.isRemote(listener)
                guard name == .httpDoorAddresses || !hasOthers || !isLoopback else {
                    throw CommandError(
                        .configurationError, "\(place): the API of a bus with other users needs an address unix:PATH")
                }
            }
        }
        // A page in a sandbox has the origin `null`, and so has each prefixed page.
        for text in settings[.httpAPIAllowedOrigins] where !text.contains("://") {
            let source = Self.settingSource(of: .httpAPIAllowedOrigins, in: settings)
            throw CommandError(
                .configurationError, "\(source): \(text): give an origin such as https://console.example.org")
        }
        for path in settings[.httpTokenFiles] where !path.hasPrefix("/") {
            throw CommandError(
                .configurationError,
                "\(Self.settingSource(of: .httpTokenFiles, in: settings)): \(path): give an absolute path")
        }
        for text in settings[.httpDoorAllowedUsers] where UserList.parseUserID(text) == nil {
            throw CommandError(
                .configurationError,
                "\(Self.settingSource(of: .httpDoorAllowedUsers, in: settings)): \(UserList.UnknownName(name: text))")
        }
    }

    /// Returns the option, the variable, or the name and file from which a setting comes, for messages.
    private static func settingSource(of name: ListSettingName, in settings: Settings) -> String {
        switch settings.source(of: name) {
        case Settings.SourceName.commandLineOption: "--\(name.rawValue)"
        case environmentVariable(name.rawValue): environmentVariable(name.rawValue)
        case let file: "\(name.rawValue) of \(file)"
        }
    }

    /// Environment variable of a setting, such as `EARSHOT_ORIGIN_LIMIT`.
    static func environmentVariable(_ name: SettingName) -> String { environmentVariable(name.rawValue) }

    private static func environmentVariable(_ name: String) -> String {
        "EARSHOT_" + name.uppercased().replacing("-", with: "_")
    }

    /// Variables besides those of settings that this program reads, or sets for programs that it runs.
    private static let otherVariables: Set<String> = [
        "RUNTIME", "BUS", "BUS_KEY", "SERVER_KEY", "CONFIG", "BODIES", "URL", "METHOD", "PRIORITY", "HEADERS",
        "MAX_BYTES", "CAUSE", "FILE", "HANDLER", "LENGTH", "PRINCIPAL", "REQUEST", "SHA256", "STATE", "STATUS",
    ]

    /// Message about variables of this process that begin with `EARSHOT_` and have no meaning; nil without any.
    static var unknownVariables: String? {
        let known =
            SettingName.allCases.map { environmentVariable($0) }
            + ListSettingName.allCases.map { environmentVariable($0.rawValue) }
        let unknown = ChildProcess.inheritedVariables.filter {
            $0.hasPrefix("EARSHOT_") && !known.contains($0) && !otherVariables.contains(String($0.dropFirst(8)))
        }
        guard let first = unknown.first else { return nil }
        let nearest = unknown.count == 1 ? SettingName.mostSimilarName(to: first, among: known) : nil
        return "unknown environment variables are ignored: \(unknown.sorted().joined(separator: ", "))"
            + (nearest.map { "; did you mean \($0)?" } ?? "; see `earshot help environment`")
    }

    /// Files in ascending precedence.
    private var filePaths: [String] {
        if let file { return [file] }
        let own = Environment.value("XDG_CONFIG_HOME") ?? Environment.value("HOME").map { "\($0)/.config" }
        return ["/etc/earshot/config.toml"] + (own.map { ["\($0)/earshot/config.toml"] } ?? [])
    }

    private func apply(_ change: SettingChange, _ source: String, to settings: inout Settings) throws(CommandError) {
        // A file may serve both roles. A broker without a pool ignores the settings of a supervisor.
        if pool == nil, case .setValue(let name, _) = change, name.isAppliedBySupervisor { return }
        do throws(SettingError) {
            try settings.applyChange(change, source: source)
        } catch {
            let place = source == Settings.SourceName.commandLineOption ? "" : "\(source): "
            throw CommandError(.configurationError, place + error.description)
        }
    }
}
