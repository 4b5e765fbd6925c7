internal import ArgumentParser

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

    /// What has to start soon. Each is read as a command of its own first: to look through all of them takes longer
    /// than all the rest of reading.
    private static let quick: [String: any ParsableCommand.Type] = [
        "get": GetCommand.self, "serve": ServeCommand.self, "broker": BrokerCommand.self, "worker": WorkerCommand.self,
    ]

    static func main() {
        let arguments = CommandLine.arguments.dropFirst()
        // What cannot be read so, help and mistakes among it, is answered for by the whole.
        if let name = arguments.first, var command = try? quick[name]?.parse(Array(arguments.dropFirst())) {
            do { try command.run() } catch { exit(withError: error) }
        } else {
            main(nil)
        }
    }
}
