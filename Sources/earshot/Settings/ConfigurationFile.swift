internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import TOML

/// TOML file of settings: `slots = 32`, `cool-down = 30.5`, `[origin."https://example.org"]` with `limit` and
/// `spacing`, `http2 = "off"`, `address-policy = "public-only"`, `users = ["www-data"]`, `[address]` with
/// `"10.0.0.0/8" = "allow"`.
enum ConfigurationFile {
    /// Key of the program for requests that end: `on-complete = ["PROGRAM", "ARGUMENT"]`. It is no setting, so that no client
    /// can make the bus run a program.
    static let onComplete = "on-complete"
    /// Maximum number of words of that program, and of bytes of each.
    private static let mostWords = (count: 64, bytes: 4_096)
    /// Keys in the table of a rule.
    private static let ruleKeys = SettingChange.ruleTerms.map(\.key)

    /// Returns the settings of the file; nil if it does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func read(_ path: String) throws(CommandError) -> [SettingChange]? {
        guard let table = try TOMLFile.table(path) else { return nil }
        var changes: [SettingChange] = []
        for key in table.keys {
            guard let value = table[key] else { continue }
            switch key {
            case SettingName.rule: changes += try rules(value, path)
            case SettingName.address: changes += try addresses(value, path)
            case onComplete: _ = try words(value, path)
            case bus, busKey, serverKey: _ = try network(table, path)
            case cluster: _ = try located(value, path)
            default:
                if let name = ListSettingName(rawValue: key) {
                    changes.append(.list(name, try list(name, value, path)))
                    continue
                }
                changes.append(try change([key, text(value)], path, key))
            }
        }
        return changes
    }

    /// Returns the program for requests that end, with its arguments; nil if the file names none, or does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func program(_ path: String) throws(CommandError) -> [String]? {
        guard let value = try TOMLFile.table(path)?[onComplete] else { return nil }
        return try words(value, path)
    }

    private static func words(
        _ value: TOMLValue, _ path: String
    ) throws(CommandError) -> [String] {
        let words = value.array.map { array in array.map { $0.string } }
        guard let words, words.count <= mostWords.count,
            words.allSatisfy({ $0.map { $0.utf8.count <= mostWords.bytes && !$0.utf8.contains(0) } == true })
        else {
            throw commandError(
                path,
                "\(onComplete) must be an array of at most \(mostWords.count) strings: a program and its arguments, such "
                    + "as [\"/usr/bin/logger\", \"-t\", \"earshot\"]")
        }
        return words.compactMap(\.self)
    }

    private static func list(
        _ name: ListSettingName, _ value: TOMLValue, _ path: String
    ) throws(CommandError) -> [String] {
        let example = name.example.map { "\"\($0)\"" }.joined(separator: ", ")
        guard let items = value.array else {
            throw commandError(path, "\(name.rawValue) must be a list, such as \(name.rawValue) = [\(example)]")
        }
        do throws(SettingError) {
            return try name.checkedWords(items.map { text($0) })
        } catch {
            throw commandError(path, "\(name.rawValue): \(error.description)")
        }
    }

    private static func rules(
        _ value: TOMLValue, _ path: String
    ) throws(CommandError) -> [SettingChange] {
        guard let rules = value.table else {
            throw commandError(
                path, "origin must be a table for each pattern, such as [origin.\"https://example.org\"]")
        }
        var changes: [SettingChange] = []
        for pattern in rules.keys {
            let key = "origin.\"\(pattern)\""
            guard let rule = rules[pattern]?.table else {
                throw commandError(path, "\(key) must be a table, such as limit = 2 below [\(key)]")
            }
            for term in rule.keys where !ruleKeys.contains(term) {
                let nearest = SettingName.nearest(to: term, among: ruleKeys)
                let hint = nearest.map { "did you mean \($0)?" } ?? "use \(ruleKeys.joined(separator: ", "))"
                throw commandError(path, "\(key): \(term): unknown key: \(hint)")
            }
            let words = rule.keys.map { "\($0)=\(rule[$0].map { text($0) } ?? "")" }
            changes.append(try change(["origin", pattern] + words, path, key))
        }
        return changes
    }

    private static func addresses(
        _ value: TOMLValue, _ path: String
    ) throws(CommandError) -> [SettingChange] {
        guard let rules = value.table else {
            throw commandError(path, "address must be a table with lines such as \"10.0.0.0/8\" = \"allow\"")
        }
        var changes: [SettingChange] = []
        for subject in rules.keys {
            let word = rules[subject]?.string ?? ""
            changes.append(try change([SettingName.address, subject, word], path, "address.\"\(subject)\""))
        }
        return changes
    }

    private static func change(_ words: [String], _ path: String, _ key: String) throws(CommandError) -> SettingChange {
        do throws(SettingError) {
            return try SettingChange(words)
        } catch {
            let sentence = error.description
            throw commandError(path, sentence.hasPrefix("\(key) ") ? sentence : "\(key): \(sentence)")
        }
    }

    /// Returns a string or a number in the form of SET, and an invalid value for any other type.
    private static func text(_ value: TOMLValue) -> String {
        if let text = value.string { return text }
        if let number = value.int { return String(number) }
        let mostMilliseconds = Double(WireLimits.seconds) * 1_000
        if let seconds = value.double, (0...mostMilliseconds).contains(seconds * 1_000) {
            return Seconds.text(Int((seconds * 1_000).rounded()))
        }
        return ""
    }

    static func commandError(_ path: String, _ sentence: String) -> CommandError {
        TOMLFile.commandError(path, sentence)
    }
}

/// Keys of a configuration file for the commands of clients: `bus = "tcp://example.org:5765"`, `bus-key = "client.key"` and
/// `server-key = "…"`. A path is relative to the folder of the file.
extension ConfigurationFile {
    static let bus = "bus"
    static let busKey = "bus-key"
    static let serverKey = "server-key"
    /// Maximum number of buses to fail over between, and of bytes of each value.
    private static let most = (buses: 64, bytes: 4_096)

    /// Returns the buses on a network that the file names; nil if the file does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func network(_ path: String) throws(CommandError) -> NetworkChoice? {
        guard let table = try TOMLFile.table(path) else { return nil }
        return try network(table, path)
    }

    static func network(_ table: TOMLTable, _ path: String) throws(CommandError) -> NetworkChoice {
        let folder = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        var choice = NetworkChoice()
        choice.buses = try texts(table[bus], bus, "tcp://example.org:5765", path)
        choice.serverKeys = try texts(table[serverKey], serverKey, "server.pub", path)?.map {
            NetworkChoice.located($0, in: folder)
        }
        if let value = table[busKey] {
            guard let file = value.string, !file.isEmpty, file.utf8.count <= most.bytes else {
                throw commandError(path, "\(busKey) must be the path of a key file, such as \(busKey) = \"client.key\"")
            }
            choice.keyFile = file.hasPrefix("/") ? file : "\(folder)/\(file)"
        }
        return choice
    }

    /// Returns the texts of a string or of an array of strings; nil without a value.
    private static func texts(
        _ value: TOMLValue?, _ key: String, _ example: String, _ path: String
    ) throws(CommandError) -> [String]? {
        guard let value else { return nil }
        let texts = value.string.map { [$0] } ?? value.array.map { array in array.map { $0.string ?? "" } } ?? []
        guard (1...most.buses).contains(texts.count),
            texts.allSatisfy({ (1...most.bytes).contains($0.utf8.count) && !$0.contains(",") })
        else {
            throw commandError(path, "\(key) must be a string or a list of strings, such as \(key) = \"\(example)\"")
        }
        return texts
    }
}

/// Key of a configuration file for the cluster of the bus: `cluster = "cluster.toml"`. A path is relative to the folder of
/// the file. It is no setting, so that no client can connect a bus to a cluster.
extension ConfigurationFile {
    static let cluster = "cluster"
    /// Maximum length of the path in bytes.
    private static let mostBytes = 4_096

    /// Returns the path of the cluster's file; nil if the file names none, or does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func cluster(_ path: String) throws(CommandError) -> String? {
        guard let value = try TOMLFile.table(path)?[cluster] else { return nil }
        return try located(value, path)
    }

    /// Returns the path in a value of the key.
    static func located(_ value: TOMLValue, _ path: String) throws(CommandError) -> String {
        guard let file = value.string, (1...mostBytes).contains(file.utf8.count), !file.utf8.contains(0) else {
            throw commandError(
                path,
                "\(cluster) must be the path of a file, such as \(cluster) = \"cluster.toml\"; see `earshot cluster new`"
            )
        }
        return file.hasPrefix("/") ? file : "\(KeyFile.folder(of: path))/\(file)"
    }
}
