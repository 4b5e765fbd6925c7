internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import Glibc

/// Settings and rules as options of `serve` and `broker`.
struct SettingOptions: ParsableArguments {
    @OptionGroup var source: ConfigurationOptions
    @OptionGroup var values: SettingValues

    @Option(
        help: ArgumentHelp(
            "Other users of the bus: user names, @GROUP or user IDs, separated by commas. (default: none)",
            valueName: "names"))
    var users: String?

    @Option(
        help: ArgumentHelp(
            "Addresses for clients on other machines, tcp://ADDRESS:PORT, separated by commas. (default: none)",
            valueName: "addresses"))
    var listen: String?

    @Option(
        help: ArgumentHelp(
            "Addresses of the HTTP door, PORT, ADDRESS:PORT or unix:PATH, separated by commas. (default: none)",
            valueName: "addresses"))
    var http: String?

    @Option(
        help: ArgumentHelp(
            "Other users of the HTTP door: user names or user IDs, separated by commas. (default: none)",
            valueName: "names"))
    var httpUsers: String?

    @Option(
        help: ArgumentHelp(
            "Addresses of the HTTP API, PORT, ADDRESS:PORT or unix:PATH, separated by commas. (default: none)",
            valueName: "addresses"))
    var httpApi: String?

    @Option(
        help: ArgumentHelp(
            "Origins of pages that may use the HTTP API, such as https://HOST, separated by commas. (default: none)",
            valueName: "origins"))
    var httpOrigins: String?

    @Option(
        help: ArgumentHelp(
            "Files with tokens for HTTP clients beyond loopback, separated by commas. (default: none)",
            valueName: "files"))
    var httpTokens: String?

    @Option(
        help: ArgumentHelp(
            """
            Hosts whose package indexes keep their URLs below the prefix of the HTTP door, separated by commas. \
            (default: none)
            """,
            valueName: "hosts"))
    var httpRewrite: String?

    @Option(
        help: ArgumentHelp(
            "Rule for an origin, HOST or *.HOST, such as 'example.org limit=2 spacing=0.5'; may be repeated.",
            valueName: "rule"))
    var origin: [String] = []

    @Option(
        help: ArgumentHelp(
            "Allow connections to a network, address, HOST or *.HOST; may be repeated.", valueName: "address"))
    var allow: [String] = []

    @Option(
        help: ArgumentHelp(
            "Forbid connections to a network, address, HOST or *.HOST; may be repeated.", valueName: "address"))
    var deny: [String] = []

    func validate() throws { _ = try settingChanges() }

    /// Returns the changes that the options describe.
    func settingChanges() throws -> [SettingChange] {
        try values.givenSettings.map { try Self.parseChange(words: [$0.rawValue, $1]) }
            + listSettings.compactMap { name, words in
                try words.map { try Self.parseChange(words: [name.rawValue, $0]) }
            }
            + origin.map {
                try Self.parseChange(
                    words: [SettingName.originRuleKeyword] + $0.split(separator: " ").map { String($0) })
            }
            + allow.map { try Self.addressRuleChange(subject: $0, value: "allow") }
            + deny.map { try Self.addressRuleChange(subject: $0, value: "deny") }
    }

    private var listSettings: [(ListSettingName, String?)] {
        [
            (.allowedUsers, users), (.clientListenAddresses, listen), (.httpDoorAddresses, http),
            (.httpDoorAllowedUsers, httpUsers), (.httpAPIAddresses, httpApi), (.httpAPIAllowedOrigins, httpOrigins),
            (.httpTokenFiles, httpTokens), (.httpRewrittenIndexHosts, httpRewrite),
        ]
    }

    /// Parses a value of --allow or --deny.
    private static func addressRuleChange(subject: String, value word: String) throws -> SettingChange {
        do throws(SettingError) {
            return try SettingChange(words: [SettingName.addressRuleKeyword, subject, word])
        } catch {
            throw ValidationError("--\(word): \(error.description)")
        }
    }

    /// Parses the words of one option.
    private static func parseChange(words: [String]) throws -> SettingChange {
        do throws(SettingError) {
            return try SettingChange(words: words)
        } catch {
            let sentence = error.description
            throw ValidationError("--" + (sentence.hasPrefix(words[0]) ? sentence : "\(words[0]): \(sentence)"))
        }
    }
}

/// Option for the configuration file.
struct ConfigurationOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Only configuration file to read, instead of those of machine and user. (default: EARSHOT_CONFIG)",
            valueName: "file"),
        completion: .file())
    var config: String?

    /// Absolute path, since a process may change its directory.
    var file: String? { config.map(Folder.absolutePath) ?? Self.pathFromEnvironment }

    func validate() throws { try PathCheck.check([("--config", config)]) }

    /// Absolute path in EARSHOT_CONFIG; nil without one.
    static var pathFromEnvironment: String? { Environment.value("EARSHOT_CONFIG").map(Folder.absolutePath) }

    /// Default pool of workers.
    static var pool: Configuration.Pool {
        Configuration.Pool(workerCount: max(2, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))), slotsPerWorker: 64)
    }
}

/// Command-line options derived from the table of settings.
///
/// The argument parser finds options as the children of a mirror and decodes each by its label. So a list of options
/// can replace properties.
struct SettingValues: ParsableArguments, CustomReflectable {
    private let options: [(name: SettingName, option: Option<String?>)]

    init() {
        let defaults = Settings()
        options = SettingName.allCases.map { name in
            let standard = defaults[name].map { " (default: \(name.valueText($0)))" } ?? ""
            let words = name.takesWord ? ", \(name.possibleValuesDescription)" : ""
            let help = name.helpPhrase.prefix(1).uppercased() + name.helpPhrase.dropFirst() + words + "." + standard
            let option: Option<String?> = Option(
                name: .customLong(name.rawValue), help: ArgumentHelp(help, valueName: name.valuePlaceholder),
                completion: name.possibleWords.isEmpty ? nil : .list(name.possibleWords))
            return (name, option)
        }
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: OptionKey.self)
        options = try SettingName.allCases.map { name in
            (name, try container.decode(Option<String?>.self, forKey: OptionKey(name.rawValue)))
        }
    }

    var customMirror: Mirror { Mirror(self, children: options.map { (label: $0.name.rawValue, value: $0.option) }) }

    /// Settings with a value on the command line.
    var givenSettings: [(SettingName, String)] {
        options.compactMap { name, option in option.wrappedValue.map { (name, $0) } }
    }
}

/// Coding key of a derived option.
struct OptionKey: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }

    init(_ name: String) { stringValue = name }
    init(stringValue: String) { self.init(stringValue) }
    init?(intValue: Int) { nil }
}
