internal import ArgumentParser
internal import EarshotWire

/// Option for the source of URLs.
struct InputOptions: ParsableArguments {
    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "Read URLs from a file, one per line. - reads standard input, with -d or --json as the lines arrive.",
            valueName: "file"),
        completion: .file())
    var input: String?
}

/// Options for the destination of bodies.
struct OutputOptions: ParsableArguments {
    @Option(
        name: .shortAndLong,
        help: ArgumentHelp("Write the body to a file; - is standard output.", valueName: "file"), completion: .file())
    var output: String?

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp("Write each body to a file in this directory; created if missing.", valueName: "dir"),
        completion: .directory)
    var directory: String?

    @Flag(help: "Print the outcome of each request as a line of JSON.")
    var json = false
}

/// Option for the handler of new requests.
struct HandlerOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Handler of the requests. (default: a new one)", valueName: "name"))
    var handler: HandlerID?
}

/// Options for a private bus.
struct PrivateBusOptions: ParsableArguments {
    @Flag(help: "Fail if no broker runs, instead of starting a private bus.")
    var noSpawn = false

    @Flag(help: "Run a private bus without a cache.")
    var noCache = false
}
