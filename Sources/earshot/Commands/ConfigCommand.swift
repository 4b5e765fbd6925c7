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
        abstract: "Tell what is set, and where each value comes from.",
        discussion: """
            What `earshot serve` without arguments would run with: what is built in, /etc/earshot/config.toml, \
            earshot/config.toml in XDG_CONFIG_HOME or ~/.config, and variables such as EARSHOT_ORIGIN_LIMIT, each \
            stronger than the one before. With --running what the broker works with.
            """)

    @Flag(help: "Ask the broker that runs.")
    var running = false

    @OptionGroup var source: ConfigurationOptions
    @OptionGroup var place: PlaceOptions

    func validate() throws {
        guard !running || source.config == nil else { throw ValidationError("give --running or --config, not both") }
    }

    func run() throws {
        try conclude {
            if running {
                try SettingList.ask(place)
                return .done
            }
            let pool = ConfigurationOptions.pool
            let configuration = Configuration(file: source.file, flags: [], pool: pool)
            try SettingList.show(try configuration.read().rows)
            return .done
        }
    }
}

/// `earshot set`: change of a setting of the running broker.
struct SetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "set",
        abstract: "Change a setting while everything runs; without arguments, tell what is set.",
        discussion: """
            What is set holds until the bus ends or reads its files again (SIGHUP). Nothing that runs is lost: what is \
            over a lower limit drains.

            \(SettingName.allCases.map { "\($0.rawValue): \($0.help); \($0.bounds)" }.joined(separator: "\n"))
            origin PATTERN limit=N spacing=SECONDS http2=off: a rule for https://HOST:PORT, HOST or *.HOST
            origin PATTERN default: removes the rule
            address ADDRESS allow, deny or default: a rule for a network, an address, HOST or *.HOST
            """)

    @Argument(
        help: ArgumentHelp("A setting's name and its value.", valueName: "word"), completion: ShellCompletion.setting)
    var words: [String] = []

    @OptionGroup var place: PlaceOptions

    func run() throws {
        try conclude {
            guard !words.isEmpty else {
                try SettingList.ask(place)
                return .done
            }
            do throws(SettingError) {
                _ = try SettingChange(words)
            } catch {
                throw Complaint(.usage, error.description)
            }
            guard let setting = SettingWords(words) else { throw Complaint(.usage, "give a name and its value") }
            var changed: SettingWords?
            let session = try BusSession.find(in: place.folder(), client: "set") { session, event in
                switch event {
                case .changed(let setting): changed = setting
                case .refused(let reply): session.end(Complaint(.usage, reply.detail ?? reply.code))
                case .accepted, .terminal, .progress, .cancelled, .removed, .answer, .state: break
                }
            }
            session.connection.set(setting)
            try session.run { changed != nil }
            try StandardOutput().write(line: changed?.description ?? "")
            return .done
        }
    }
}

/// Printed list of settings.
enum SettingList {
    /// Prints the settings of the running broker.
    static func ask(_ place: PlaceOptions) throws {
        guard let json = Question.joined(try Question.answers(.settings, in: place)),
            case .array(let items)? = json.member("settings")
        else { throw Complaint(.other, "the broker's answer cannot be read") }
        let lines = items.map { item in
            ["name", "pattern", "value", "source"].map { item.member($0)?.text ?? "" }
        }
        try show(lines)
    }

    /// Prints the settings that were read from files and variables.
    static func show(_ rows: [Settings.Row]) throws(Complaint) {
        try show(rows.map { [$0.name, $0.pattern ?? "", $0.value, $0.source] })
    }

    /// Prints three columns: name with pattern, value, source.
    private static func show(_ rows: [[String]]) throws(Complaint) {
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
