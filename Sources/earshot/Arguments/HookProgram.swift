internal import ArgumentParser
internal import EarshotClient

/// Program that a command runs for each result, with its arguments.
struct HookProgram: Equatable, ExpressibleByArgument {
    /// Argument that stands for the path of the body.
    static let placeholder = "{}"
    static var defaultCompletionKind: CompletionKind { .file() }

    /// Value of the option.
    let text: String
    /// Program and arguments.
    let words: [String]
    /// Path of the program; nil before its search.
    private(set) var path: String?

    /// Divides the text at its spaces. No shell reads it. Nil without a program.
    init?(argument: String) {
        text = argument
        words = argument.split(separator: " ").map { String($0) }
        guard let program = words.first, program != Self.placeholder else { return nil }
    }

    /// Takes the words of a configuration file. Nil without a program.
    init?(words: [String]) {
        guard let program = words.first, !program.isEmpty else { return nil }
        text = words.joined(separator: " ")
        self.words = words
    }

    /// Returns the program with its path.
    ///
    /// - Parameters:
    ///   - source: option or key that names it.
    ///   - status: exit status if it cannot be executed.
    func found(_ source: String = "--exec", _ status: ExitStatus = .noInput) throws(CommandError) -> HookProgram {
        guard let name = words.first, let path = ProgramPath.find(name) else {
            throw CommandError(
                status,
                "\(source): cannot execute \(words.first ?? ""): not in PATH, or not executable; give its path")
        }
        var found = self
        found.path = path
        return found
    }

    /// Argument vector for a body.
    ///
    /// - Parameter file: path of the body; nil without one.
    func arguments(file: String?) -> [String] { words.map { $0 == Self.placeholder ? file ?? "" : $0 } }
}

/// Option for a program that runs for each result.
struct HookOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Run a program for each result, without a shell; {} is its file.", valueName: "program"))
    var exec: HookProgram?

    /// The program, which was found; nil without the option.
    func program() throws(CommandError) -> HookProgram? {
        guard let exec else { return nil }
        return try exec.found()
    }
}
