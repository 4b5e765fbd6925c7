import ArgumentParser

@testable import earshot
@testable import earshot_web

/// A command line of a document: one of `earshot` or `earshot-web`.
struct DocumentCommand {
    let program: String
    let arguments: [String]
    /// Whether further arguments belong to it: it is in a sentence, or has an ellipsis.
    let isOpen: Bool

    /// Commands whose arguments may contain the program's name, for another purpose than to run it.
    private static let others: Set = [
        "apt", "apt-get", "chown", "command", "echo", "export", "grep", "install", "journalctl", "ls", "man", "mkdir",
        "pgrep",
        "printf", "rm", "systemctl", "useradd", "which",
    ]

    /// Values of the placeholders that have a form. All other capital words are valid names, IDs or files.
    private static let values = [
        "PUBLIC-KEY": "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "KEY": "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
        "NUMBER": "5", "N": "5", "COUNT": "5", "SECONDS": "5", "PRIORITY": "high", "VALUE": "5", "SETTING": "slots",
        "tcp://HOST:PORT": "tcp://10.0.0.1:5765", "HOST:PORT": "10.0.0.1:5767", "TIME": "2027-01-31",
        "SUBJECT": "exit-codes",
    ]

    /// Returns the command lines of a piece of a document.
    static func all(in piece: DocumentText.Piece) -> [DocumentCommand] {
        ShellText(piece.text).commands.compactMap { words in
            // A user may have the name of the program: `runuser -u earshot -- earshot status`.
            guard
                let index = words.indices.first(where: { isProgram(words[$0]) && ($0 == 0 || words[$0 - 1] != "-u") }),
                !others.contains(words[0]), piece.form == .shell || index == 0
            else { return nil }
            let arguments = words[(index + 1)...]
            return DocumentCommand(
                program: words[index].hasSuffix("web") ? "earshot-web" : "earshot",
                arguments: arguments.flatMap(filled),
                isOpen: piece.form == .span || arguments.contains { $0.hasSuffix("…") || $0.hasSuffix("...") })
        }
    }

    private static func isProgram(_ word: String) -> Bool {
        word.wholeMatch(of: /(.*(bin|release)\/)?earshot(-web)?/) != nil
    }

    /// Returns the word with a value in place of a placeholder, and nothing for an ellipsis. Brackets of an option that may be
    /// absent are removed.
    private static func filled(_ word: String) -> [String] {
        let isOptional = word.hasPrefix("[") || word.hasSuffix("]") && !word.contains("[")
        let bare = isOptional ? word.filter { !"[]".contains($0) } : word
        let text = bare.replacing("...", with: "").replacing("…", with: "")
        return text.isEmpty && !word.isEmpty ? [] : [values[text] ?? text]
    }

    /// The parser's complaint about the command line; nil for a valid one. Nothing is executed.
    var fault: String? {
        var words = CommandLine.separatingPublicKey(CommandLine.separatingEmptyValues(arguments))[...]
        guard program == "earshot" else { return fault(of: EarshotWebCommand.self, words) }
        if words == ["-V"] || HelpTopic.requested(by: words) != nil { return nil }
        if words.first == "help" { words = words.dropFirst() + ["--help"] }
        // The parser with all commands takes much longer than that of one.
        var command: any ParsableCommand.Type = Earshot.self
        while let next = command.configuration.subcommands.first(where: { $0._commandName == words.first }) {
            command = next
            words = words.dropFirst()
        }
        // The name alone, in a sentence.
        if isOpen, words.isEmpty { return nil }
        return fault(of: command.configuration.defaultSubcommand ?? command, words)
    }

    private func fault(of command: any ParsableCommand.Type, _ words: ArraySlice<String>) -> String? {
        do {
            _ = try command.parse(Array(words))
            return nil
        } catch {
            guard command.exitCode(for: error) != .success else { return nil }
            let message = command.message(for: error)
            return isOpen && Self.isIncomplete(message) ? nil : message
        }
    }

    /// Whether arguments are missing, which a sentence about a command may leave out.
    private static func isIncomplete(_ message: String) -> Bool {
        ["Missing expected", "Missing value", "missing", "give ", " needs "].contains { message.contains($0) }
    }
}
