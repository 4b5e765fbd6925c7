internal import ArgumentParser
internal import EarshotClient

/// Subcommands and options of a command, read from the description that the argument parser prints.
struct CommandShape {
    /// Options of the argument parser that are missing in its description.
    private static let undescribedOptions: Set = [
        "--generate-completion-script", "--experimental-dump-help", "--help-hidden",
    ]

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
        for (index, argument) in command.items(ofMember: "arguments").enumerated() {
            let isOption = argument.member("kind")?.scalarText == "option"
            for name in argument.items(ofMember: "names") {
                guard let text = name.member("name")?.scalarText else { continue }
                let name = (text.count == 1 ? "-" : "--") + text
                options[name] = isOption
                if isOption, argument.member("isRepeating")?.scalarText != "true" { singles[name] = index }
            }
        }
        self.options = options
        self.singleValueOptions = singles
        subcommands = command.items(ofMember: "subcommands").compactMap { command in
            command.member("commandName")?.scalarText.map { ($0, CommandShape(command)) }
        }
    }

    /// Returns the first argument that names no command or option of the program; nil if all are known.
    func firstUnknown(in arguments: ArraySlice<String>) -> UnknownArgument? {
        firstUnknown(in: arguments, of: [])
    }

    private func firstUnknown(in arguments: ArraySlice<String>, of path: [String]) -> UnknownArgument? {
        guard let first = arguments.first else { return nil }
        guard !subcommands.isEmpty, !first.hasPrefix("-") else { return firstUnknownOption(in: arguments, of: path) }
        let names = subcommands.map(\.name)
        guard let inner = subcommands.first(where: { $0.name == first }) else {
            return UnknownArgument(.command, first, knownNames: names, commandPath: path)
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
            guard let option = singleValueOptions[name], !RepeatedOption.repeatableBusOptions.contains(name) else {
                continue
            }
            guard given.insert(option).inserted else { return RepeatedOption(name: name, commandPath: path) }
            if name == word { _ = rest.popFirst() }
        }
        return nil
    }

    /// Returns the first word after `help` that names no command or topic.
    private func firstUnknownTopic(in words: ArraySlice<String>, of path: [String]) -> UnknownArgument? {
        guard let first = words.first, !first.hasPrefix("-") else { return nil }
        guard let inner = subcommands.first(where: { $0.name == first }) else {
            let topics = path.isEmpty ? HelpTopic.all.map(\.name) : []
            return UnknownArgument(.command, first, knownNames: subcommands.map(\.name) + topics, commandPath: path)
        }
        return inner.shape.firstUnknownTopic(in: words.dropFirst(), of: path + [first])
    }

    private func firstUnknownOption(in arguments: ArraySlice<String>, of path: [String]) -> UnknownArgument? {
        var rest = arguments
        while let word = rest.popFirst(), word != "--" {
            guard word.hasPrefix("-"), word != "-" else { continue }
            let name = String(word.prefix { $0 != "=" })
            if let takesValue = options[name] {
                guard takesValue, name == word, let next = rest.popFirst() else { continue }
                // The parser reports the missing value.
                if next.hasPrefix("-"), next != "-" { return nil }
            } else if Self.undescribedOptions.contains(name) {
                return nil
            } else if name.hasPrefix("--") {
                return UnknownArgument(.option, name, knownNames: Array(options.keys), commandPath: path)
            } else if let unknown = word.dropFirst().first(where: { options["-\($0)"] == nil }) {
                return UnknownArgument(.option, "-\(unknown)", knownNames: [], commandPath: path)
            }
        }
        return nil
    }
}
