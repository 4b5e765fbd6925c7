internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Option for the location of a broker of this machine.
struct RuntimeOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Runtime directory of the broker.", valueName: "dir"), completion: .directory)
    var runtime: String?

    @Option(help: ArgumentHelp("Bus on a network, which these commands reject.", visibility: .hidden))
    var bus: String?

    /// Returns the runtime directory in which a process serves.
    func runtimeFolder() throws(ClientError) -> RuntimeFolder { try RuntimeFolder(named: runtime) }

    /// Returns the runtime directory for a command that works on the machine of the bus only.
    ///
    /// - Throws: `CommandError` if the commands of clients use a bus on a network.
    func localRuntimeFolder(forCommand command: String) throws -> RuntimeFolder {
        guard try runtime != nil || BusOptions.defaults.networkBuses() == nil else {
            throw CommandError(
                .usageError,
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
    @Flag(name: .shortAndLong, help: "Show complete URLs, with user information and query, which may be secret.")
    var verbose = false
}

/// Option for the severity of the log, for processes without settings.
struct LogOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Minimum severity of log messages.", valueName: "level"))
    var logLevel: Logger.Level = .notice
}

/// Option for the form of the log of long-running processes.
struct LogFormatOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Form of log lines.", valueName: "format"))
    var logFormat: LogFormat = .text
}

/// Values that a child process inherits from the supervisor.
struct ChildProcessOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Descriptor for reading the secret.", visibility: .hidden))
    var secretFd: Int32?

    @Option(help: ArgumentHelp("Parent process; this process ends with it.", visibility: .hidden))
    var parentPid: Int32?

    /// Reads the secret to its end; nil if none was inherited.
    func readSecret() throws -> String? { try secretFd.map { try InheritedPipe.readAll($0) } }
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

/// Option for the cluster of a bus.
struct ClusterFileOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "File of the cluster that this bus joins, see `earshot cluster new`. A change needs a restart. (default: the key cluster of the configuration file)",
            valueName: "file"),
        completion: .file())
    var cluster: String?

    func validate() throws { try PathCheck.check([("--cluster", cluster)]) }

    /// Returns, by precedence, the absolute path of the option or of the configuration file; nil without a cluster.
    func clusterPath(_ configuration: Configuration) throws(CommandError) -> String? {
        if let absolutePath { return absolutePath }
        return try configuration.cluster()?.file
    }

    /// Absolute path of the option.
    var absolutePath: String? { cluster.map(Folder.absolutePath) }
}

/// Option for the time that a command waits for an end: of the bus, or of requests.
struct WaitTimeoutOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Maximum time to wait, in seconds. (default: none)", valueName: "seconds"))
    var timeout: Double?

    /// Maximum of `timeout`: 31 years.
    private static let maximumTimeoutSeconds = 1_000_000_000

    var timeoutDuration: Duration? { timeout.map { .milliseconds(Int($0 * 1_000)) } }

    func validate() throws {
        if let timeout, !(timeout > 0 && timeout <= Double(Self.maximumTimeoutSeconds)) {
            throw ValidationError("--timeout: give a number of seconds above 0, at most \(Self.maximumTimeoutSeconds)")
        }
    }
}

/// The option that selects requests of another user.
struct UserOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Handler of this user, as list shows it; only for the administrator of the bus: a user name or number, or "
                + "key:NAME.",
            valueName: "user"),
        completion: ShellCompletion.noCompletion)
    var user: HandlerOwner?
}

/// User of a bus: a local user, or the holder of a key.
struct HandlerOwner: ExpressibleByArgument {
    /// Principal of the user's handlers.
    let principal: PrincipalName

    init?(argument: String) {
        // As in chown(1), an existing name of digits takes precedence over the number.
        let id = Accounts.user(named: argument).map { "\($0)" } ?? (UInt32(argument) == nil ? nil : argument)
        guard let principal = PrincipalName(id.map { "uid:\($0)" } ?? argument) else { return nil }
        self.principal = principal
    }
}
