internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot config`: the effective settings and the source of each.
struct ConfigCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Show the effective settings and the source of each.",
        discussion: """
            Lists the settings with which `earshot serve` would start. Later sources override earlier ones: defaults, \
            /etc/earshot/config.toml, ~/.config/earshot/config.toml, environment variables such as EARSHOT_ORIGIN_LIMIT. \
            With --running: the settings of the running broker. `bus`, `bus-key` and `server-key` select a bus on a network \
            for the commands of clients; `serve` ignores them.

              earshot config
              earshot config --running
            """)

    @Flag(help: "Show the settings of the running broker.")
    var running = false

    @OptionGroup(title: "Input") var source: ConfigurationOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func validate() throws {
        guard !running || source.config == nil else {
            throw ValidationError("--running and --config exclude each other; give one of them")
        }
    }

    func run() throws {
        try runAndExit {
            if running {
                try SettingList.printRunningSettings(place)
                return .success
            }
            let pool = ConfigurationOptions.pool
            let configuration = Configuration(file: source.file, optionChanges: [], pool: pool)
            // `serve` refuses a program that cannot be executed.
            _ = try configuration.hookProgram()
            if let sentence = Configuration.unknownVariables { CommandError.writeMessage(sentence) }
            try SettingList.printSettings(
                try configuration.readSettings().rows, onComplete: try configuration.onCompleteProgram(),
                cluster: try configuration.cluster(), network: try configuration.networkRows())
            return .success
        }
    }
}

/// `earshot set`: change of a setting of the running broker.
struct SetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "set",
        abstract: "Change a setting of the running bus, or list the settings.",
        discussion: """
            A change lasts until the bus ends or reads its configuration files again (SIGHUP). A lower limit aborts \
            nothing: surplus transfers finish first. Without arguments, the command lists the present settings.

              earshot set origin-limit 2
              earshot set origin '*.example.org' limit=1 spacing=0.5
              earshot set origin '*.example.org' default

            Settings and their values:

            \(SettingName.allCases.map { "\($0.rawValue): \($0.helpPhrase); \($0.possibleValuesDescription)" }.joined(separator: "\n"))
            origin PATTERN limit=N spacing=SECONDS http2=off rate=SIZE: rule for an origin, HOST or *.HOST
            origin PATTERN default: removes the rule
            address ADDRESS allow, deny or default: rule for a network, an address, HOST or *.HOST

            Settings that only options, variables and configuration files change:

            \(ListSettingName.allCases.map { "\($0.rawValue): \($0.helpPhrase); \($0.possibleValuesDescription)" }.joined(separator: "\n"))
            """)

    @Argument(
        help: ArgumentHelp("Name of the setting, and its value.", valueName: "word"),
        completion: ShellCompletion.settingWords)
    var words: [String] = []

    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try runAndExit {
            guard !words.isEmpty else {
                try SettingList.printRunningSettings(place)
                return .success
            }
            do throws(SettingError) {
                _ = try SettingChange(words: words)
            } catch {
                throw CommandError(.usageError, error.description)
            }
            guard let setting = SettingWords(words) else {
                throw CommandError(
                    .usageError, "missing value; give a setting and its value, such as `earshot set slots 32`")
            }
            var changed: SettingWords?
            let session = try BusSession.connect(to: place.busLocation()) { session, event in
                switch event {
                case .settingChanged(let setting): changed = setting
                case .messageRefused(let reply): session.end(with: .refused(reply, .usageError))
                case .accepted, .terminal, .progress, .cancelled, .removed, .queryAnswer, .state: break
                }
            }
            session.connection.changeSetting(setting)
            try session.run { changed != nil }
            try StandardOutput().write(line: changed?.description ?? "")
            return .success
        }
    }
}

/// Printed list of settings.
enum SettingList {
    /// Prints the settings of the running broker.
    static func printRunningSettings(_ place: BusOptions) throws {
        guard let json = BusQuery.mergedAnswer(try BusQuery.answers(.settings, in: place)),
            case .array(let items)? = json.member("settings")
        else {
            throw CommandError.unreadableAnswer
        }
        let lines = items.map { item in
            ["name", "pattern", "value", "source"].map { item.member($0)?.scalarText ?? "" }
        }
        try printRows(lines)
    }

    /// Prints the settings that were read from files and variables, the program for requests that end, the cluster, and
    /// the buses of client commands.
    static func printSettings(
        _ rows: [Settings.SettingRow], onComplete: (words: [String], path: String)?,
        cluster: (file: String, source: String)?, network: [(name: String, value: String, source: String)]
    ) throws(CommandError) {
        let program = onComplete.map {
            [ConfigurationFile.onCompleteKey, "", $0.words.joined(separator: " "), $0.path]
        }
        let cluster = cluster.map { [ConfigurationFile.clusterSettingKey, "", $0.file, $0.source] }
        try printRows(
            rows.map { [$0.name, $0.pattern ?? "", $0.value, $0.source] } + [program, cluster].compactMap(\.self)
                + network.map { [$0.name, "", $0.value, $0.source] })
    }

    /// Prints three columns: name with pattern, value, source.
    private static func printRows(_ rows: [[String]]) throws(CommandError) {
        let lines = rows.map { row in
            [row[1].isEmpty ? row[0] : "\(row[0]) \(row[1])", row[2], row[3]].map(TerminalText.escaped)
        }
        let widths = (0..<2).map { column in lines.map { $0[column].count }.max() ?? 0 }
        let text = lines.map { line in
            let padded = zip(line, widths).map { $0 + String(repeating: " ", count: $1 - $0.count) }
            return padded.joined(separator: "  ") + "  " + line[2] + "\n"
        }.joined()
        try StandardOutput().write(Array(text.utf8))
    }
}
