internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Logging

/// Option for the location of the broker.
struct PlaceOptions: ParsableArguments {
    @Option(help: "The broker's runtime folder.", completion: .directory)
    var runtime: String?

    func folder() throws(ClientError) -> RuntimeFolder { try RuntimeFolder(named: runtime) }
}

/// Option for the detail of messages about failures and cached bodies.
struct FailureOptions: ParsableArguments {
    @Flag(
        name: .shortAndLong,
        help: """
            Show failed URLs with user information and query, which may be secret; get also tells which bodies came from \
            the cache.
            """)
    var verbose = false
}

/// Option for the log of long-running processes.
struct LogOptions: ParsableArguments {
    @Option(help: "What is logged: trace, debug, info, notice, warning, error or critical.")
    var logLevel: Logger.Level = .notice
}

/// Values that a child process inherits from the supervisor.
struct FamilyOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Descriptor from which the secret is read.", visibility: .hidden))
    var secretFd: Int32?

    @Option(help: ArgumentHelp("Process whose end is this one's too.", visibility: .hidden))
    var parentPid: Int32?

    /// Reads the secret to its end; nil if none was inherited.
    func secret() throws -> String? { try secretFd.map { try InheritedPipe.readAll($0) } }
}
