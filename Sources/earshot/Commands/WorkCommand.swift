internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import EarshotWorker

/// `earshot work`: serves URL schemes with a program.
struct WorkCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "work",
        abstract: "Serve URLs of your own schemes: run a program for each.",
        usage: "earshot work --scheme SCHEME [OPTION ...] -- PROGRAM [ARGUMENT ...]",
        discussion: """
            PROGRAM is started for each URL that somebody asks for, with the URL as its last argument. No shell is \
            between. What it writes to standard output is the answer, once it ends with 0. Requests for the same URL \
            share one run; when nobody wants it any more the program and all it has started get SIGTERM, and SIGKILL \
            2 s later.

            If it ends with another number, who asked gets worker-failed with the last line of its standard error. \
            curl's numbers mean what they do there: 3 malformed-url, 6 unknown-host, 7 connect-failed, 18 truncated, \
            28 timeout, 56 reset, 60 tls, 63 too-large. After 7, 18, 28 and 56 the bus tries again.

            Its environment has EARSHOT_URL, EARSHOT_METHOD, EARSHOT_PRIORITY (what `earshot get --priority` takes), \
            EARSHOT_HEADERS (the request's header fields, a line each), EARSHOT_MAX_BYTES (empty for any number), and \
            EARSHOT_RUNTIME. A request's body is its standard input.

            Says on standard error when it serves. It goes on until it is interrupted, also over a broker's end.
            """)

    @Option(help: ArgumentHelp("A scheme to serve, such as thumb for thumb:…; may be repeated.", valueName: "scheme"))
    var scheme: [String] = []

    @Option(help: "Programs at once, at most \(ProgramOptions.mostSlots).")
    var slots = 4

    @Option(help: "The content-type of each answer.")
    var contentType: String?

    @Argument(parsing: .postTerminator, help: "The program and its arguments.")
    var program: [String] = []

    @OptionGroup var place: PlaceOptions
    @OptionGroup var log: LogOptions

    func validate() throws {
        guard !scheme.isEmpty else { throw ValidationError("--scheme is needed: what to serve") }
        guard scheme.count <= Ready.mostSchemes else {
            throw ValidationError("--scheme can be given \(Ready.mostSchemes) times")
        }
        for name in scheme {
            guard Ready.isScheme(name) else {
                throw ValidationError(
                    "\(name) is no scheme: a lower-case letter, then letters, digits, plus, minus and dot")
            }
            guard name != "http", name != "https" else { throw ValidationError("\(name) is the bus's own") }
        }
        guard (1...ProgramOptions.mostSlots).contains(slots) else {
            throw ValidationError("--slots is 1 to \(ProgramOptions.mostSlots)")
        }
        if let contentType, contentType.isEmpty || !contentType.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) {
            throw ValidationError("--content-type is printable ASCII")
        }
        guard !program.isEmpty else { throw ValidationError("the program is missing: … -- PROGRAM [ARGUMENT ...]") }
    }

    func run() throws {
        try conclude {
            let folder = try place.folder()
            guard try BusSession.isServed(folder) else {
                throw Complaint(.noBroker, "no broker runs in \(folder.path): start one with `earshot serve`")
            }
            guard let name = program.first, let path = ProgramPath.find(name) else {
                throw Complaint(.noInput, "no program \(program.first ?? "") can be executed")
            }
            var options = ProgramOptions(
                workPath: folder.workPath, schemes: scheme, slots: slots, program: path, arguments: program)
            options.contentType = contentType
            // Requests of the program itself go to the same bus.
            options.variables["EARSHOT_RUNTIME"] = folder.path
            let names = scheme.map { $0 + ":" }.joined(separator: " ")
            let worker = ProgramWorkerProcess(options: options, logger: LineLog.logger("work", log.logLevel)) {
                Complaint.say("serving \(names)")
            }
            do {
                return try worker.run() == 0 ? .done : .other
            } catch let error as ProgramWorkerRefused {
                throw Complaint(.cannotServe, error.description)
            }
        }
    }
}
