internal import ArgumentParser
internal import EarshotCache
internal import EarshotClient
internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot get`: fetches URLs and writes the bodies.
struct GetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "get",
        abstract: "Fetch URLs and write what comes.",
        discussion: """
            One URL goes to standard output, or to -o FILE. Several, or a list, need -d DIR: a file for each, named \
            by the last part of the URL's path (name-2.ext if two would have one name); a file of an earlier run is \
            replaced. With --json and neither of them, bodies are fetched and not kept.

            It uses the broker that runs, else a private one for as long as it takes.
            """)

    @Argument(help: "What to fetch.", completion: ShellCompletion.none)
    var urls: [String] = []

    @Option(
        name: .shortAndLong,
        help: "A list of URLs, one a line; - is standard input, read while it comes with -d or --json.",
        completion: .file())
    var input: String?

    @Option(name: .shortAndLong, help: "The file to write; - is standard output.", completion: .file())
    var output: String?

    @Option(name: .shortAndLong, help: "The folder to write to, made if it is not there.", completion: .directory)
    var directory: String?

    @Option(help: "The handler it is asked under; one of its own if not given.")
    var handler: HandlerID?

    @Flag(help: "Tell what became of each as a line of JSON on standard output.")
    var json = false

    @Flag(help: "Do not start a private broker where none runs.")
    var noSpawn = false

    @Flag(help: "A private broker keeps nothing for later, and uses nothing that was kept.")
    var noCache = false

    @OptionGroup var request: RequestOptions
    @OptionGroup var failure: FailureOptions
    @OptionGroup var place: PlaceOptions

    func validate() throws {
        guard !urls.isEmpty || input != nil else { throw ValidationError("give a URL, or a list of them with -i") }
        guard input != "-" || request.data != "@-" else {
            throw ValidationError("-i - and --data @- both read standard input")
        }
        guard output == nil || directory == nil else { throw ValidationError("give -o or -d, not both") }
        guard !json || output != "-" else { throw ValidationError("--json and -o - both write standard output") }
        if output == nil, directory == nil, !json, urls.count > 1 { throw severalNeedAFolder }
        if output != nil, urls.count > 1 { throw severalNeedAFolder }
    }

    private var severalNeedAFolder: ValidationError {
        ValidationError("several URLs need a folder: -d DIR, or -d . for this one")
    }

    func run() throws {
        try conclude {
            var wanted = urls.map(URLText.percentEncoded)
            // A body with its own place need not wait for the end of the list.
            let readsInput = input == "-" && (directory != nil || json && output == nil)
            if let input, !readsInput { wanted += try URLList.read(input) }
            guard !wanted.isEmpty || readsInput else { throw Complaint(.noInput, "the list is empty") }
            if wanted.count > 1, directory == nil, output != nil || !json {
                throw Complaint(.usage, severalNeedAFolder.message)
            }
            let body = try request.body()
            let signals = try SignalSource([SIGINT, SIGTERM, SIGHUP])
            let loop = try EventLoop()
            let bus = try privateBus(loop, signals, count: readsInput ? .max : wanted.count)
            defer { bus?.end() }
            return try fetch(
                wanted, readsInput: readsInput, body, try bus?.folder ?? place.folder(), bus, loop, signals)
        }
    }

    private func fetch(
        _ wanted: [String], readsInput: Bool, _ body: [UInt8]?, _ folder: RuntimeFolder, _ bus: PrivateBus?,
        _ loop: EventLoop,
        _ signals: SignalSource
    ) throws -> ExitStatus {
        let destination = try destination(interrupt: signals.descriptor)
        let random = String(UInt32.random(in: 0 ... .max), radix: 16)
        guard let handler = handler ?? HandlerID("get/\(getpid())-\(random)") else {
            throw Complaint(.other, "no handler")
        }
        // A generated handler has no other users, so its request IDs need no prefix.
        let run = GetRun(
            wanted, readsInput: readsInput, handler, mark: self.handler == nil ? "" : "\(random)-", request, body: body,
            to: destination,
            json: json, verbose: failure.verbose)
        let session = try BusSession(
            folder, loop, signals, client: "get", window: GetRun.outstanding, finishesNone: true
        ) { _, event in run.happened(event) }
        defer { session.connection.close() }
        bus?.onDeath { session.end(Complaint(.noBroker, "the private broker died")) }
        return try run.carryOut(over: session)
    }

    /// Starts a private bus; returns nil if a broker runs.
    private func privateBus(_ loop: EventLoop, _ signals: SignalSource, count: Int) throws -> PrivateBus? {
        let folder = try place.folder()
        if try BusSession.isServed(folder) { return nil }
        guard !noSpawn else {
            throw Complaint(.noBroker, "no broker runs in \(folder.path): start one with `earshot serve`")
        }
        // One worker starts faster than many, so the number depends on the number of URLs.
        let cores = max(2, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))))
        return try PrivateBus.start(
            loop, signals, workers: min(cores, 1 + count / 64),
            cache: noCache ? nil : Self.usualCache())
    }

    /// Returns the user's cache. For a directory that others can change it prints a warning and returns nil.
    private static func usualCache() -> String? {
        guard let path = try? RuntimeFolder.usualCache() else { return nil }
        do throws(StoreError) {
            _ = try CacheFolder(path).check()
            return path
        } catch {
            Complaint.say("going on without a cache: \(error)")
            return nil
        }
    }

    private func destination(interrupt: Int32) throws(Complaint) -> Destination {
        if let directory { return try .folder(directory, interrupt: interrupt) }
        switch output {
        case "-": return .standardOutput(interrupt: interrupt)
        case let file?: return .file(file, interrupt: interrupt)
        case nil: return json ? .nowhere() : .standardOutput(interrupt: interrupt)
        }
    }
}
