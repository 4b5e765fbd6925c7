internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Logging

/// Option for the location of a broker of this machine.
struct RuntimeOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Runtime directory of the broker.", valueName: "dir"), completion: .directory)
    var runtime: String?

    @Option(help: ArgumentHelp("Bus on a network, which these commands reject.", visibility: .hidden))
    var bus: String?

    /// Returns the runtime directory in which a process serves.
    func folder() throws(ClientError) -> RuntimeFolder { try RuntimeFolder(named: runtime) }

    /// Returns the runtime directory for a command that works on the machine of the bus only.
    ///
    /// - Throws: `CommandError` if the commands of clients use a bus on a network.
    func ownFolder(of command: String) throws -> RuntimeFolder {
        guard try runtime != nil || BusOptions.usual.network() == nil else {
            throw CommandError(
                .usage,
                "`earshot \(command)` works on the machine of its bus only, and your bus is on a network; run it there, "
                    + "or give --runtime DIR")
        }
        return try RuntimeFolder.ofBus(named: runtime)
    }

    func validate() throws {
        try PathCheck.check([("--runtime", runtime)])
        guard bus == nil else {
            throw ValidationError("--bus: this command works on the machine of its bus only; run it there")
        }
    }
}

/// Option for the detail of URLs in messages and results.
struct FailureOptions: ParsableArguments {
    @Flag(
        name: .shortAndLong,
        help: "Show complete URLs, with user information and query, which may be secret.")
    var verbose = false
}

/// Option for the severity of the log, for processes without settings.
struct LogOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Minimum severity of log messages.", valueName: "level"))
    var logLevel: Logger.Level = .notice
}

/// Option for the form of the log of long-running processes.
struct LogFormatOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Form of log lines.", valueName: "format"))
    var logFormat: LogFormat = .text
}

/// Values that a child process inherits from the supervisor.
struct FamilyOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Descriptor for reading the secret.", visibility: .hidden))
    var secretFd: Int32?

    @Option(help: ArgumentHelp("Parent process; this process ends with it.", visibility: .hidden))
    var parentPid: Int32?

    /// Reads the secret to its end; nil if none was inherited.
    func secret() throws -> String? { try secretFd.map { try InheritedPipe.readAll($0) } }
}

/// Option for the notification of readiness.
struct ReadinessOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Descriptor to which `ready` is written once clients can connect.", valueName: "n"))
    var readyFd: Int32?
}

/// Option for the form of an answer.
struct FormatOptions: ParsableArguments {
    @Flag(help: "Print JSON, one object per line.")
    var json = false
}
