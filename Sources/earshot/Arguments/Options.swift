internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Logging

/// Where the broker is.
struct PlaceOptions: ParsableArguments {
    @Option(help: "The broker's runtime folder.", completion: .directory)
    var runtime: String?

    func folder() throws(ClientError) -> RuntimeFolder { try RuntimeFolder(named: runtime) }
}

/// How much is said of a failure, and of a body's source.
struct FailureOptions: ParsableArguments {
    @Flag(
        name: .shortAndLong,
        help: """
            Show failed URLs with user information and query, which may be secret; get also tells which bodies came from \
            the cache.
            """)
    var verbose = false
}

/// How processes that serve talk.
struct LogOptions: ParsableArguments {
    @Option(help: "What is logged: trace, debug, info, notice, warning, error or critical.")
    var logLevel: Logger.Level = .notice
}

/// What a process that serves inherits from the supervisor.
struct FamilyOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Descriptor from which the secret is read.", visibility: .hidden))
    var secretFd: Int32?

    @Option(help: ArgumentHelp("Process whose end is this one's too.", visibility: .hidden))
    var parentPid: Int32?

    /// The secret, read to its end; nil if none was inherited.
    func secret() throws -> String? { try secretFd.map { try InheritedPipe.readAll($0) } }
}
