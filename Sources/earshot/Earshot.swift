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

    /// What runs as a copy of this program. Each is parsed as a command of its own: to look through all of them first
    /// takes two milliseconds.
    private static let serving: [String: any ParsableCommand.Type] = [
        "serve": ServeCommand.self, "broker": BrokerCommand.self, "worker": WorkerCommand.self,
    ]

    /// This program with other arguments, in a process of its own.
    static let copy = ChildProgram.this { arguments in
        if let name = arguments.first, let command = serving[name] {
            command.main(Array(arguments.dropFirst()))
        } else {
            main(arguments)
        }
        Glibc.exit(ExitStatus.done.rawValue)
    }
}
