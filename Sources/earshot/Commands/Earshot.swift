internal import ArgumentParser
internal import EarshotLoop
internal import Glibc

/// The program: its subcommands, and the conversion of their errors into an exit status.
@main
struct Earshot: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "earshot",
        abstract: "Fetch URLs through a bus that all programs of a user share.",
        discussion: """
            The broker of the bus coalesces equal requests, queues them by priority, and cancels a transfer when its last \
            subscriber is gone. `earshot get` starts a private bus if none is running.

              earshot serve                       # run the bus, until Ctrl-C
              earshot get https://example.org/    # fetch a URL to standard output
              earshot -V                          # versions of program and libraries

            Help topics, for `earshot help TOPIC`:
            \(HelpTopic.topicListText)
            """,
        version: VersionReport.firstLine,
        groupedSubcommands: [
            CommandGroup(
                name: "Request",
                subcommands: [
                    GetCommand.self, SubmitCommand.self, WatchCommand.self, WaitCommand.self, ListCommand.self,
                    WhyCommand.self, RetryCommand.self, CancelCommand.self, DropCommand.self,
                ]),
            CommandGroup(
                name: "Bus",
                subcommands: [
                    ServeCommand.self, StopCommand.self, DrainCommand.self, StatusCommand.self, TopCommand.self,
                    HTTPEnvCommand.self, SetCommand.self, ConfigCommand.self, CacheCommand.self, KeyCommand.self,
                    ClusterCommand.self,
                ]),
            CommandGroup(
                name: "Worker",
                subcommands: [
                    WorkCommand.self, BrokerCommand.self, WorkerCommand.self, GatewayCommand.self, PullerCommand.self,
                ]),
        ])

    /// Commands that must start fast, by name. `parseCommand(_:)` tries each alone first, because parsing with all
    /// subcommands takes longer than the rest of the start.
    private static let fastStartCommands: [String: any ParsableCommand.Type] = [
        "get": GetCommand.self, "serve": ServeCommand.self, "broker": BrokerCommand.self, "worker": WorkerCommand.self,
        "gateway": GatewayCommand.self, "puller": PullerCommand.self,
    ]

    static func main() {
        // Comes before any file is opened, in every role: child processes also start here.
        StandardStreams.openMissingDescriptors()
        SignalSource.ignoreWriteSignals()
        let words = CommandLine.separatingPublicKey(
            CommandLine.separatingEmptyValues(CommandLine.argumentsWithoutProgram))
        // The parser knows only the long name.
        let arguments = words == ["-V"] ? ["--version"] : words[...]
        let status = ExitStatus.reportingErrors {
            if let topic = HelpTopic.requested(by: arguments) {
                try StandardOutput().write(Array(topic.text.utf8))
                return .success
            }
            let preforked = PreforkedBus.start(for: arguments)
            do {
                var command = try parseCommand(arguments)
                if let get = command as? GetCommand { try get.run(preforked) } else { try command.run() }
            } catch let error as ExitCode {
                return ExitStatus(rawValue: error.rawValue) ?? .generalError
            } catch let error as UnknownArgument {
                CommandError.writeMessage(lines: error.message)
                return .usageError
            } catch let error as RepeatedOption {
                CommandError.writeMessage(lines: error.message)
                return .usageError
            } catch {
                return try printParserMessage(error)
            }
            return .success
        }
        Glibc.exit(status.rawValue)
    }

    /// Parses the command that `arguments` name.
    private static func parseCommand(_ arguments: ArraySlice<String>) throws -> any ParsableCommand {
        if RepeatedOption.mayOccur(in: arguments), let repeated = CommandShape.program?.firstRepeated(in: arguments) {
            throw repeated
        }
        // Help and errors need the whole program.
        if let name = arguments.first, let command = try? fastStartCommands[name]?.parse(Array(arguments.dropFirst())) {
            return command
        }
        let command: any ParsableCommand
        do {
            command = try parseAsRoot(Array(arguments))
        } catch {
            // The parser checks values before names, so it may have reported another error.
            let isUsage = exitCode(for: error) == .validationFailure
            if isUsage, let unknown = CommandShape.program?.firstUnknown(in: arguments) { throw unknown }
            throw error
        }
        // For the help of an unknown command the parser returns the help of the program.
        let words = arguments.prefix { !$0.hasPrefix("-") }
        if type(of: command)._commandName == "help", let unknown = CommandShape.program?.firstUnknown(in: words) {
            throw unknown
        }
        return command
    }

    /// Prints the message of the argument parser: help to standard output, an error to standard error.
    private static func printParserMessage(_ error: any Error) throws(CommandError) -> ExitStatus {
        let text = fullMessage(for: error)
        guard exitCode(for: error) == .success else {
            CommandError.writeMessage(lines: ValueFormatHint.messageAddingFormat(text))
            return exitCode(for: error) == .validationFailure ? .usageError : .generalError
        }
        // The report loads libraries, so it is made only for this request.
        let isVersion = text == VersionReport.firstLine
        try StandardOutput().write(isVersion ? Array(VersionReport.text.utf8) : Array((text + "\n").utf8))
        return .success
    }
}
