internal import ArgumentParser
internal import EarshotLoop
internal import Glibc

/// The command: its subcommands, and what all of them answer with.
@main
struct Earshot: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "earshot",
        abstract:
            "A download bus: one broker fetches for every program of yours, and only as long as somebody listens.",
        discussion: """
            Exit codes (curl's numbers where it has one):
            \(ExitStatus.table)

            Programs find the broker in the runtime folder: --runtime, else EARSHOT_RUNTIME, else earshot in \
            XDG_RUNTIME_DIR, else earshot-UID in the folder for temporary files.
            """,
        version: "0.1.0",
        subcommands: [
            GetCommand.self, ServeCommand.self, SubmitCommand.self, WatchCommand.self, DropCommand.self,
            CancelCommand.self, StatusCommand.self, WhyCommand.self, SetCommand.self, ConfigCommand.self,
            CacheCommand.self,
            WorkCommand.self, BrokerCommand.self, WorkerCommand.self,
        ])

    /// Commands that have to start soon. Each is read as a command of its own first: to look through all commands takes
    /// longer than all the rest of reading.
    private static let quick: [String: any ParsableCommand.Type] = [
        "get": GetCommand.self, "serve": ServeCommand.self, "broker": BrokerCommand.self, "worker": WorkerCommand.self,
    ]

    static func main() {
        // Before anything is opened, and for all roles: a process that is started by another one comes through here.
        StandardStreams.occupy()
        SignalSource.ignoreBrokenPipes()
        let arguments = CommandLine.words[...]
        let status = ExitStatus.concluding {
            do {
                var command = try read(arguments)
                try command.run()
            } catch let error as ExitCode {
                return ExitStatus(rawValue: error.rawValue) ?? .other
            } catch let error as UnknownWord {
                Complaint.say(lines: error.message)
                return .usage
            } catch {
                return try answer(error)
            }
            return .done
        }
        Glibc.exit(status.rawValue)
    }

    /// The command that `arguments` name, with its arguments.
    private static func read(_ arguments: ArraySlice<String>) throws -> any ParsableCommand {
        // Help, and errors, are the whole program's.
        if let name = arguments.first, let command = try? quick[name]?.parse(Array(arguments.dropFirst())) {
            return command
        }
        let command: any ParsableCommand
        do {
            command = try parseAsRoot(Array(arguments))
        } catch {
            // The parser checks values before names.
            let isUsage = exitCode(for: error) == .validationFailure
            if isUsage, let unknown = CommandShape.program?.firstUnknown(in: arguments) { throw unknown }
            throw error
        }
        // Asked for the help of an unknown command, the parser returns that of the program.
        let words = arguments.prefix { !$0.hasPrefix("-") }
        if type(of: command)._commandName == "help", let unknown = CommandShape.program?.firstUnknown(in: words) {
            throw unknown
        }
        return command
    }

    /// Prints what the argument parser has to say: help to standard output, an error to standard error.
    private static func answer(_ error: any Error) throws(Complaint) -> ExitStatus {
        let text = fullMessage(for: error)
        guard exitCode(for: error) == .success else {
            Complaint.say(lines: text)
            return exitCode(for: error) == .validationFailure ? .usage : .other
        }
        try StandardOutput().write(line: text)
        return .done
    }
}
