internal import ArgumentParser
internal import EarshotClient

/// Subcommands and options of a command, read from the description that the argument parser prints.
struct CommandShape {
    /// Options of the argument parser that are missing in its description.
    private static let undescribed: Set = ["--generate-completion-script", "--experimental-dump-help", "--help-hidden"]

    /// Whether each option takes a value, by its name with dashes.
    let options: [String: Bool]
    /// Options that take one value in all: an equal number for each name of one option.
    private let singleValueOptions: [String: Int]
    let subcommands: [(name: String, shape: CommandShape)]

    /// Shape of the whole program.
    static let program = JSONValue(Array(Earshot._dumpHelp().utf8))?.member("command").map { CommandShape($0) }

    private init(_ command: JSONValue) {
        var options: [String: Bool] = [:]
        var singles: [String: Int] = [:]
        for (index, argument) in command.items("arguments").enumerated() {
            let isOption = argument.member("kind")?.text == "option"
            for name in argument.items("names") {
                guard let text = name.member("name")?.text else { continue }
                let name = (text.count == 1 ? "-" : "--") + text
                options[name] = isOption
                if isOption, argument.member("isRepeating")?.text != "true" { singles[name] = index }
            }
        }
        self.options = options
        self.singleValueOptions = singles
        subcommands = command.items("subcommands").compactMap { command in
            command.member("commandName")?.text.map { ($0, CommandShape(command)) }
        }
    }

    /// Returns the first argument that names no command or option of the program; nil if all are known.
    func firstUnknown(in arguments: ArraySlice<String>) -> UnknownWord? {
        firstUnknown(in: arguments, of: [])
    }

    private func firstUnknown(in arguments: ArraySlice<String>, of path: [String]) -> UnknownWord? {
        guard let first = arguments.first else { return nil }
        guard !subcommands.isEmpty, !first.hasPrefix("-") else { return firstUnknownOption(in: arguments, of: path) }
        let names = subcommands.map(\.name)
        guard let inner = subcommands.first(where: { $0.name == first }) else {
            return UnknownWord(.command, first, among: names, path)
        }
        if first == "help" { return firstUnknownTopic(in: arguments.dropFirst(), of: path) }
        return inner.shape.firstUnknown(in: arguments.dropFirst(), of: path + [first])
    }

    /// Returns the first option with a single value that the arguments repeat.
    func firstRepeated(in arguments: ArraySlice<String>, of path: [String] = []) -> RepeatedOption? {
        if let first = arguments.first, let inner = subcommands.first(where: { $0.name == first }) {
            return inner.shape.firstRepeated(in: arguments.dropFirst(), of: path + [first])
        }
        var given: Set<Int> = []
        var rest = arguments
        while let word = rest.popFirst(), word != "--" {
            let name = String(word.prefix { $0 != "=" })
            guard let option = singleValueOptions[name], !RepeatedOption.replaceable.contains(name) else { continue }
            guard given.insert(option).inserted else { return RepeatedOption(name: name, path: path) }
            if name == word { _ = rest.popFirst() }
        }
        return nil
    }

    /// Returns the first word after `help` that names no command or topic.
    private func firstUnknownTopic(in words: ArraySlice<String>, of path: [String]) -> UnknownWord? {
        guard let first = words.first, !first.hasPrefix("-") else { return nil }
        guard let inner = subcommands.first(where: { $0.name == first }) else {
            let topics = path.isEmpty ? HelpTopic.all.map(\.name) : []
            return UnknownWord(.command, first, among: subcommands.map(\.name) + topics, path)
        }
        return inner.shape.firstUnknownTopic(in: words.dropFirst(), of: path + [first])
    }

    private func firstUnknownOption(in arguments: ArraySlice<String>, of path: [String]) -> UnknownWord? {
        var rest = arguments
        while let word = rest.popFirst(), word != "--" {
            guard word.hasPrefix("-"), word != "-" else { continue }
            let name = String(word.prefix { $0 != "=" })
            if let takesValue = options[name] {
                guard takesValue, name == word, let next = rest.popFirst() else { continue }
                // The parser reports the missing value.
                if next.hasPrefix("-"), next != "-" { return nil }
            } else if Self.undescribed.contains(name) {
                return nil
            } else if name.hasPrefix("--") {
                return UnknownWord(.option, name, among: Array(options.keys), path)
            } else if let unknown = word.dropFirst().first(where: { options["-\($0)"] == nil }) {
                return UnknownWord(.option, "-\(unknown)", among: [], path)
            }
        }
        return nil
    }
}
