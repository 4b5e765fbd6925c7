/// Help on a subject of several commands: `earshot help TOPIC`.
///
/// Man pages derive from ``text``, so its layout is stable. A title, then paragraphs and entries, separated by blank
/// lines. An entry begins with two spaces and its term. Its description follows in the same line behind two spaces or
/// more, or in the next lines behind at least eight spaces. No line is longer than 79 columns.
struct HelpTopic {
    /// The term of an entry and its description.
    typealias Entry = (term: String, meaning: String)

    /// The word behind `earshot help`.
    let name: String
    /// Title, and the line of the topic in the list of topics.
    let title: String
    let paragraphs: [String]
    let entries: [Entry]

    static let all = [exitCodes, environment, files]

    /// Returns the topic that the arguments of the program request; nil if they request something else.
    static func requested(by arguments: ArraySlice<String>) -> HelpTopic? {
        guard arguments.first == "help", let name = arguments.dropFirst().first else { return nil }
        return all.first { $0.name == name }
    }

    /// Names and titles of all topics, for the help of the program.
    static var topicListText: String {
        let width = all.map(\.name.count).max() ?? 0
        return all.map { "  \(padded($0.name, to: width + 2))\($0.title)" }.joined(separator: "\n")
    }

    static let exitCodes = HelpTopic(
        name: "exit-codes", title: "Exit codes of earshot",
        paragraphs: [
            """
            If all requests of a command fail for the same reason, the exit code is that of the reason. The numbers are \
            those of curl where curl has one, and those of sysexits.h otherwise.
            """
        ],
        entries: ExitStatus.allCases.map { (String($0.rawValue), $0.meaning) })

    static let environment = HelpTopic(
        name: "environment", title: "Environment variables of earshot",
        paragraphs: ["Options override variables, and variables override configuration files."],
        entries: [
            ("EARSHOT_RUNTIME", "Runtime directory of the broker, as --runtime."),
            ("EARSHOT_BUS", "Bus on a network, as --bus. It overrides EARSHOT_RUNTIME."),
            ("EARSHOT_BUS_KEY, EARSHOT_SERVER_KEY", "Keys for a bus on a network, as --bus-key and --server-key."),
            ("EARSHOT_CONFIG", "Only configuration file to read, as --config."),
            (
                "EARSHOT_NAME",
                """
                Value of the setting NAME in capitals, with underscores for dashes: EARSHOT_ORIGIN_LIMIT=4. \
                `earshot config` lists all settings.
                """
            ),
            ("XDG_RUNTIME_DIR", "Base of the default runtime directory."),
            ("XDG_CONFIG_HOME", "Base of the user's configuration file; default: ~/.config."),
            ("XDG_CACHE_HOME", "Base of the default spool, cache and partial bodies; default: ~/.cache."),
            ("XDG_STATE_HOME", "Base of the default directory of durable requests; default: ~/.local/state."),
            ("NETRC", "File of credentials for --netrc; default: ~/.netrc."),
            ("TMPDIR", "Place of the runtime directory of a private broker; default: /tmp."),
            (
                "http_proxy, https_proxy, all_proxy, no_proxy",
                """
                Proxies, as for curl. They are read by the workers, so set them for `earshot serve`; a command says \
                that a running bus does not use its own. --proxy of a request overrides them.
                """
            ),
            ("NO_COLOR", "If set, the progress of `earshot get` has no colors."),
            (
                "RUNTIME_DIRECTORY, CACHE_DIRECTORY, STATE_DIRECTORY",
                "Directories of a systemd service, for `earshot serve`."
            ),
        ])

    static let files = HelpTopic(
        name: "files", title: "Files and directories of earshot",
        paragraphs: [
            """
            All directories are private to their user. With --runtime DIR the spool, the cache, partial bodies and \
            durable requests are in DIR as well, unless their own options name another place.
            """
        ],
        entries: [
            ("/etc/earshot/config.toml", "Settings of the machine."),
            ("~/.config/earshot/config.toml", "Settings of the user. They override those of the machine."),
            (
                "$XDG_RUNTIME_DIR/earshot",
                """
                Runtime directory: sockets and locks. Without XDG_RUNTIME_DIR: earshot-UID in /tmp, or for clients \
                /run/earshot if it has a bus for several users.
                """
            ),
            ("~/.cache/earshot/spool", "Spool: large bodies until they are acknowledged."),
            ("~/.cache/earshot/cache", "Cache: stored responses."),
            ("~/.cache/earshot/parts", "Partial bodies that outlive the bus, beside the cache."),
            ("~/.cache/earshot/private-RANDOM", "Spool of a private bus, removed at its end."),
            ("~/.local/state/earshot/durable", "Durable requests and their results."),
        ])

    // MARK: Layout

    private static let columns = 79
    /// Longest term that shares its line with the description.
    private static let maximumTermWidth = 18

    /// The topic as `earshot help` prints it, with a line break at its end.
    var text: String {
        let width = entries.map(\.term.count).filter { $0 <= Self.maximumTermWidth }.max() ?? 0
        let indent = max(8, width + 4)
        var lines = [title]
        for paragraph in paragraphs { lines += [""] + Self.wrapped(paragraph, to: Self.columns) }
        if !entries.isEmpty { lines.append("") }
        for (term, meaning) in entries {
            var rows = Self.wrapped(meaning, to: Self.columns - indent)
            let label = "  " + term
            if label.count + 2 <= indent, !rows.isEmpty {
                lines.append(Self.padded(label, to: indent) + rows.removeFirst())
            } else {
                lines.append(label)
            }
            lines += rows.map { Self.padded("", to: indent) + $0 }
        }
        return lines.joined(separator: "\n") + "\n"
    }

    private static func padded(_ text: String, to width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    /// Breaks text at spaces into lines of at most `width` columns.
    private static func wrapped(_ text: String, to width: Int) -> [String] {
        var lines: [String] = []
        for word in text.split(separator: " ") {
            if let last = lines.last, last.count + 1 + word.count <= width {
                lines[lines.count - 1] = last + " " + word
            } else {
                lines.append(String(word))
            }
        }
        return lines
    }
}
