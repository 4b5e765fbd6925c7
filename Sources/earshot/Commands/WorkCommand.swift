internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import EarshotWorker

/// `earshot work`: serves URL schemes with a program.
struct WorkCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "work",
        abstract: "Serve URL schemes with a program that runs once for each URL.",
        usage: "earshot work --scheme SCHEME [OPTION ...] -- PROGRAM [ARGUMENT ...]",
        discussion: """
            Each fetch starts PROGRAM, without a shell and with the URL as its last argument. Its standard output is the \
            body, and its standard input is the body of the request. Requests for the same URL share one run. If all of \
            them are cancelled, the program and its children receive SIGTERM, and SIGKILL after 2 seconds.

            An exit code other than 0 ends the request with worker-failed and the last line of standard error. These \
            codes of curl have their own failure: 3 malformed-url, 6 unknown-host, 7 connect-failed, 18 truncated, 28 \
            timeout, 56 reset, 60 tls, 63 too-large. The bus retries after 7, 18, 28 and 56.

            Environment of PROGRAM: EARSHOT_URL, EARSHOT_METHOD, EARSHOT_PRIORITY (as for `earshot get --priority`), \
            EARSHOT_HEADERS (header fields of the request, one per line), EARSHOT_MAX_BYTES (empty for no limit) and \
            EARSHOT_RUNTIME.

            Over a network, with a key of role worker, bodies are at most 4 MiB, and EARSHOT_RUNTIME is that of this \
            command's environment.

            A message on standard error confirms the start. The command runs until Ctrl-C, and reconnects to a new broker.

              earshot work --scheme sum -- sh -c 'echo "$1" | sha256sum' sum
            """)

    @Argument(parsing: .postTerminator, help: "Program and its arguments.")
    var program: [String] = []

    @OptionGroup(title: "Worker") var service: SchemeOptions
    @OptionGroup(title: "Bus") var bus: BusOptions
    @OptionGroup(title: "Output") var log: LogOptions
    @OptionGroup(title: "Output") var form: LogFormatOptions

    func validate() throws {
        guard !program.isEmpty else {
            throw ValidationError("missing program; end the command with -- PROGRAM [ARGUMENT ...]")
        }
    }

    func run() throws {
        try runAndExit {
            let place = try bus.busLocation()
            guard try place.isServed() else {
                throw CommandError(.noBroker, "no broker runs \(place.locationPhrase); start one with `earshot serve`")
            }
            guard let name = program.first, let path = ProgramPath.executablePath(of: name) else {
                throw CommandError(
                    .noInput, "cannot execute \(program.first ?? ""): not in PATH, or not executable; give its path")
            }
            var options = ProgramOptions(
                workPath: "", schemes: service.scheme, slots: service.slots, program: path, arguments: program)
            options.contentType = service.contentType
            switch place {
            case .local(let folder):
                options.workPath = folder.workSocketPath
                // Requests of the program itself go to the same bus.
                options.environmentVariables["EARSHOT_RUNTIME"] = folder.path
                options.environmentVariables["EARSHOT_BUS"] = ""
            case .network(let endpoints, _):
                // The key of a worker requests nothing, so requests of the program use the bus of its environment.
                options.makeTunnel = { loop, onFailure in
                    WorkerTunnel(endpoints, loop: loop, onFailure: onFailure)
                }
            }
            let names = service.scheme.map { $0 + ":" }.joined(separator: " ")
            do {
                try WorkerProcess.run(options, logger: LineLog.logger("work", log.logLevel, form.logFormat)) {
                    CommandError.writeMessage("serving \(names)")
                }
                return .success
            } catch let error as WorkerRefused {
                throw CommandError(.cannotServe, error.description)
            }
        }
    }
}

extension WorkerTunnel: BrokerTunnel {}

/// Options for the service of URL schemes.
struct SchemeOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Scheme to serve, such as thumb for thumb:…; may be repeated.", valueName: "scheme"))
    var scheme: [String] = []

    @Option(help: ArgumentHelp("Concurrent programs, at most \(ProgramOptions.maximumSlots).", valueName: "n"))
    var slots = 4

    @Option(help: ArgumentHelp("Content-Type of the responses.", valueName: "type"))
    var contentType: String?

    func validate() throws {
        guard !scheme.isEmpty else { throw ValidationError("missing --scheme; give the URL scheme to serve") }
        guard scheme.count <= Ready.maximumSchemes else {
            throw ValidationError("--scheme: give at most \(Ready.maximumSchemes) schemes")
        }
        for name in scheme {
            guard Ready.isScheme(name) else {
                throw ValidationError(
                    "--scheme \(name): invalid scheme; give a lower-case letter, then letters, digits, plus, minus or dot"
                )
            }
            guard name != "http", name != "https" else {
                throw ValidationError("--scheme \(name): reserved for the bus; give another scheme")
            }
        }
        guard (1...ProgramOptions.maximumSlots).contains(slots) else {
            throw ValidationError("--slots must be 1 to \(ProgramOptions.maximumSlots)")
        }
        if let contentType, contentType.isEmpty || !contentType.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) {
            throw ValidationError("--content-type: the text must be printable ASCII")
        }
    }
}
