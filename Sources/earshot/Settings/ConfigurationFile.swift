internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import TOML

/// TOML file of settings: `slots = 32`, `cool-down = 30.5`, `[origin."https://example.org"]` with `limit` and
/// `spacing`, `http2 = "off"`, `address-policy = "public-only"`, `users = ["www-data"]`, `[address]` with
/// `"10.0.0.0/8" = "allow"`.
enum ConfigurationFile {
    /// Key of the program for requests that end: `on-complete = ["PROGRAM", "ARGUMENT"]`. It is no setting, so that no
    /// client can make the bus run a program.
    static let onCompleteKey = "on-complete"
    /// Maximum number of words of that program, and of bytes of each.
    private static let programLimits = (count: 64, bytes: 4_096)
    /// Keys in the table of a rule.
    private static let ruleKeys = SettingChange.settingsByRuleTerm.map(\.key)

    /// Returns the settings of the file; nil if it does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func read(_ path: String) throws(CommandError) -> [SettingChange]? {
        guard let table = try TOMLFile.table(path) else { return nil }
        var changes: [SettingChange] = []
        for key in table.keys {
            guard let value = table[key] else { continue }
            switch key {
            case SettingName.originRuleKeyword: changes += try ruleChanges(value, path)
            case SettingName.addressRuleKeyword: changes += try addressChanges(value, path)
            case onCompleteKey: _ = try programWords(value, path)
            case busSettingKey, busKeySettingKey, serverKeySettingKey: _ = try networkBuses(table, path)
            case clusterSettingKey: _ = try absoluteClusterPath(value, path)
            default:
                if let name = ListSettingName(rawValue: key) {
                    changes.append(.setList(name, try listItems(name, value, path)))
                    continue
                }
                changes.append(try parseChange([key, settingText(value)], path, key))
            }
        }
        return changes
    }

    /// Returns the program for requests that end, with its arguments; nil if the file names none, or does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func onCompleteProgram(_ path: String) throws(CommandError) -> [String]? {
        guard let value = try TOMLFile.table(path)?[onCompleteKey] else { return nil }
        return try programWords(value, path)
    }

    private static func programWords(_ value: TOMLValue, _ path: String) throws(CommandError) -> [String] {
        let words = value.array.map { array in array.map { $0.string } }
        guard let words, words.count <= programLimits.count,
            words.allSatisfy({ $0.map { $0.utf8.count <= programLimits.bytes && !$0.utf8.contains(0) } == true })
        else {
            throw commandError(
                path,
                "\(onCompleteKey) must be an array of at most \(programLimits.count) strings: a program and its arguments, such "
                    + "as [\"/usr/bin/logger\", \"-t\", \"earshot\"]")
        }
        return words.compactMap(\.self)
    }

    private static func listItems(
        _ name: ListSettingName, _ value: TOMLValue, _ path: String
    ) throws(CommandError) -> [String] {
        let example = name.exampleWords.map { "\"\($0)\"" }.joined(separator: ", ")
        guard let items = value.array else {
            throw commandError(path, "\(name.rawValue) must be a list, such as \(name.rawValue) = [\(example)]")
        }
        do throws(SettingError) {
            return try name.checkedWords(items.map { settingText($0) })
        } catch {
            throw commandError(path, "\(name.rawValue): \(error.description)")
        }
    }

    private static func ruleChanges(_ value: TOMLValue, _ path: String) throws(CommandError) -> [SettingChange] {
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
                let nearest = SettingName.mostSimilarName(to: term, among: ruleKeys)
                let hint = nearest.map { "did you mean \($0)?" } ?? "use \(ruleKeys.joined(separator: ", "))"
                throw commandError(path, "\(key): \(term): unknown key: \(hint)")
            }
            let words = rule.keys.map { "\($0)=\(rule[$0].map { settingText($0) } ?? "")" }
            changes.append(try parseChange(["origin", pattern] + words, path, key))
        }
        return changes
    }

    private static func addressChanges(_ value: TOMLValue, _ path: String) throws(CommandError) -> [SettingChange] {
        guard let rules = value.table else {
            throw commandError(path, "address must be a table with lines such as \"10.0.0.0/8\" = \"allow\"")
        }
        var changes: [SettingChange] = []
        for subject in rules.keys {
            let words = [SettingName.addressRuleKeyword, subject, rules[subject]?.string ?? ""]
            changes.append(try parseChange(words, path, "address.\"\(subject)\""))
        }
        return changes
    }

    private static func parseChange(
        _ words: [String], _ path: String, _ key: String
    ) throws(CommandError) -> SettingChange {
        do throws(SettingError) {
            return try SettingChange(words: words)
        } catch {
            let sentence = error.description
            throw commandError(path, sentence.hasPrefix("\(key) ") ? sentence : "\(key): \(sentence)")
        }
    }

    /// Returns a string or a number in the form of SET, and an invalid value for any other type.
    private static func settingText(_ value: TOMLValue) -> String {
        if let text = value.string { return text }
        if let number = value.int { return String(number) }
        let maximumMilliseconds = Double(WireLimits.durationSeconds) * 1_000
        if let seconds = value.double, (0...maximumMilliseconds).contains(seconds * 1_000) {
            return Seconds.text(milliseconds: Int((seconds * 1_000).rounded()))
        }
        return ""
    }

    static func commandError(_ path: String, _ sentence: String) -> CommandError {
        TOMLFile.commandError(path, sentence)
    }
}

/// Keys of a configuration file for the commands of clients: `bus = "tcp://example.org:5765"`, `bus-key = "client.key"`
/// and `server-key = "…"`. A path is relative to the folder of the file.
extension ConfigurationFile {
    static let busSettingKey = "bus"
    static let busKeySettingKey = "bus-key"
    static let serverKeySettingKey = "server-key"
    /// Maximum number of buses to fail over between, and of bytes of each value.
    private static let networkLimits = (buses: 64, bytes: 4_096)

    /// Returns the buses on a network that the file names; nil if the file does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func networkBuses(_ path: String) throws(CommandError) -> NetworkChoice? {
        guard let table = try TOMLFile.table(path) else { return nil }
        return try networkBuses(table, path)
    }

    static func networkBuses(_ table: TOMLTable, _ path: String) throws(CommandError) -> NetworkChoice {
        let folder = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        var choice = NetworkChoice()
        choice.buses = try texts(table[busSettingKey], busSettingKey, "tcp://example.org:5765", path)
        choice.serverKeys = try texts(table[serverKeySettingKey], serverKeySettingKey, "server.pub", path)?.map {
            NetworkChoice.absoluteServerKey($0, in: folder)
        }
        if let value = table[busKeySettingKey] {
            guard let file = value.string, !file.isEmpty, file.utf8.count <= networkLimits.bytes else {
                throw commandError(
                    path,
                    "\(busKeySettingKey) must be the path of a key file, such as \(busKeySettingKey) = \"client.key\"")
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
        guard (1...networkLimits.buses).contains(texts.count),
            texts.allSatisfy({ (1...networkLimits.bytes).contains($0.utf8.count) && !$0.contains(",") })
        else {
            throw commandError(path, "\(key) must be a string or a list of strings, such as \(key) = \"\(example)\"")
        }
        return texts
    }
}

/// Key of a configuration file for the cluster of the bus: `cluster = "cluster.toml"`. A path is relative to the folder
/// of the file. It is no setting, so that no client can connect a bus to a cluster.
extension ConfigurationFile {
    static let clusterSettingKey = "cluster"
    /// Maximum length of the path in bytes.
    private static let maximumClusterPathBytes = 4_096

    /// Returns the path of the cluster's file; nil if the file names none, or does not exist.
    ///
    /// - Throws: `CommandError` that names the file and the key.
    static func clusterPath(_ path: String) throws(CommandError) -> String? {
        guard let value = try TOMLFile.table(path)?[clusterSettingKey] else { return nil }
        return try absoluteClusterPath(value, path)
    }

    /// Returns the absolute path in a value of the key.
    static func absoluteClusterPath(_ value: TOMLValue, _ path: String) throws(CommandError) -> String {
        guard let file = value.string, (1...maximumClusterPathBytes).contains(file.utf8.count), !file.utf8.contains(0)
        else {
            throw commandError(
                path,
                "\(clusterSettingKey) must be the path of a file, such as \(clusterSettingKey) = \"cluster.toml\"; see `earshot cluster new`"
            )
        }
        return file.hasPrefix("/") ? file : "\(KeyFile.folder(of: path))/\(file)"
    }
}
