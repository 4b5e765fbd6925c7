internal import ArgumentParser
internal import EarshotClient

/// Program that a command runs for each result, with its arguments.
struct HookProgram: Equatable, ExpressibleByArgument {
    /// Argument that stands for the path of the body.
    static let placeholder = "{}"
    static var defaultCompletionKind: CompletionKind { .file() }

    /// Value of the option.
    let optionText: String
    /// Program and arguments.
    let commandWords: [String]
    /// Path of the program; nil before its search.
    private(set) var path: String?

    /// Divides the text at its spaces. No shell reads it. Nil without a program.
    init?(argument: String) {
        optionText = argument
        commandWords = argument.split(separator: " ").map { String($0) }
        guard let program = commandWords.first, program != Self.placeholder else { return nil }
    }

    /// Takes the words of a configuration file. Nil without a program.
    init?(commandWords: [String]) {
        guard let program = commandWords.first, !program.isEmpty else { return nil }
        optionText = commandWords.joined(separator: " ")
        self.commandWords = commandWords
    }

    /// Returns the program with its path.
    ///
    /// - Parameters:
    ///   - source: option or key that names it.
    ///   - status: exit status if it cannot be executed.
    func resolvingPath(
        source: String = "--exec", failureStatus status: ExitStatus = .noInput
    ) throws(CommandError) -> HookProgram {
        guard let name = commandWords.first, let path = ProgramPath.executablePath(of: name) else {
            throw CommandError(
                status,
                "\(source): cannot execute \(commandWords.first ?? ""): not in PATH, or not executable; give its path")
        }
        var found = self
        found.path = path
        return found
    }

    /// Returns the argument vector for a body.
    ///
    /// - Parameter file: path of the body; nil without one.
    func arguments(file: String?) -> [String] { commandWords.map { $0 == Self.placeholder ? file ?? "" : $0 } }
}

/// Option for a program that runs for each result.
struct HookOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Run a program for each result, without a shell; {} is its file.", valueName: "program"))
    var exec: HookProgram?

    /// Returns the program with its path; nil without the option.
    func program() throws(CommandError) -> HookProgram? {
        guard let exec else { return nil }
        return try exec.resolvingPath()
    }
}
