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

/// Options for files of cookies.
struct CookieOptions: ParsableArguments {
    @Option(
        name: [.customShort("b"), .customLong("cookie-file")],
        help: ArgumentHelp(
            "Send the cookies of a file in the Netscape format, and those that servers set. Implies --cookies.",
            valueName: "file"),
        completion: .file())
    var input: String?

    @Option(
        name: [.customShort("c"), .customLong("cookie-jar")],
        help: ArgumentHelp(
            "Write all cookies to a file at the end, in the Netscape format. Implies --cookies.", valueName: "file"),
        completion: .file())
    var output: String?

    /// Whether the requests use cookies of a file.
    var usesCookieFiles: Bool { input != nil || output != nil }

    func validate() throws {
        guard input != "-", output != "-" else {
            throw ValidationError("--cookie-file and --cookie-jar need files; - is not supported")
        }
    }

    /// Reads the cookies of the file. Waits for the writer of a named pipe.
    func read() throws(CommandError) -> [FileCookie] {
        guard let input else { return [] }
        // The first run of a command that updates its file has none.
        return try CookieFile.read(input, mayBeMissing: input == output)
    }

    /// Returns the exchange of cookies for the requests of a handler; nil without one.
    ///
    /// The exchange has another handler of the same root, so the jar stays when an interrupt removes the requests.
    ///
    /// - Parameter cookies: those of the file.
    func makeCookieExchange(_ cookies: [FileCookie], requestHandler handler: HandlerID) -> CookieExchange? {
        guard usesCookieFiles else { return nil }
        let root = handler.description.prefix { $0 != "/" }
        let own = HandlerID("\(root)/cookies-\(String(UInt32.random(in: 0 ... .max), radix: 16))")
        return CookieExchange(cookies, output: output, of: own ?? handler)
    }
}

/// Options for the output of response header fields.
struct HeaderOptions: ParsableArguments {
    @Flag(help: "Print status and header fields before the body on standard output.")
    var include = false

    @Option(
        name: [.customShort("D"), .long],
        help: ArgumentHelp(
            "Write status and header fields of each response to a file; - is standard output.", valueName: "file"),
        completion: .file())
    var dumpHeader: String?
}

/// Options for the course of a run.
struct RunOptions: ParsableArguments {
    /// Range of `jobs`. Its upper bound is the number of pending requests of a run.
    private static let jobsRange = 1...GetRun.maximumPendingRequests

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "Maximum number of pending requests to one origin. The bus has a limit as well, origin-limit.",
            valueName: "n"))
    var jobs: Int?

    @Flag(help: "Print method, URL and output file of each request, and send nothing.")
    var dryRun = false

    func validate() throws {
        guard jobs.map(Self.jobsRange.contains) ?? true else {
            throw ValidationError("--jobs: give \(Self.jobsRange.lowerBound) to \(Self.jobsRange.upperBound)")
        }
    }
}

/// Options for the messages of `earshot get` on standard error.
struct MessageOptions: ParsableArguments {
    @Flag(
        name: .shortAndLong,
        help: """
            Show complete URLs, with user information and query, which may be secret, and bodies from the cache.
            """)
    var verbose = false

    @Flag(name: .shortAndLong, help: "Show errors only: no progress, and no summary at the end.")
    var quiet = false

    func validate() throws {
        guard !quiet || !verbose else { throw ValidationError("-q and -v exclude each other; give one of them") }
    }
}
