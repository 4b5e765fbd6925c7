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
        abstract: "Fetch URLs and write their bodies.",
        discussion: """
            A single body goes to standard output, or to -o FILE. Several URLs, or a list, need -d DIR: each body becomes \
            a file named after the last part of its URL's path. name-2.ext resolves a collision, and an older file is \
            replaced. With --json alone the bodies are discarded.

            It uses the running bus, or starts a private one for this command. Ctrl-C removes the pending requests. The \
            bus keeps partial bodies of at least 1 MiB, and the same command continues them.

              earshot get -o page.html https://example.org/
              earshot get -i list.txt -d out
            """)

    @Argument(help: "URLs to fetch.", completion: ShellCompletion.noCompletion)
    var urls: [String] = []

    @OptionGroup(title: "Input") var source: InputOptions
    @OptionGroup(title: "Output") var target: OutputOptions
    @OptionGroup(title: "Output") var files: FileOptions
    @OptionGroup(title: "Output") var heads: HeaderOptions
    @OptionGroup(title: "Output") var hook: HookOptions
    @OptionGroup(title: "Output") var messages: MessageOptions
    @OptionGroup(title: "Request") var naming: HandlerOptions
    @OptionGroup(title: "Request") var course: RunOptions
    @OptionGroup var request: RequestOptions
    @OptionGroup(title: "HTTP") var cookieFiles: CookieOptions
    @OptionGroup(title: "Bus") var bus: PrivateBusOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    private var input: String? { source.input }
    private var output: String? { target.output }
    private var directory: String? { target.directory }
    private var json: Bool { target.json }
    private var handler: HandlerID? { naming.handler }

    func validate() throws {
        guard !urls.isEmpty || input != nil else {
            throw ValidationError("missing URL; give URLs, or a list with -i FILE")
        }
        guard input != "-" || request.exchange.data != "@-" else {
            throw ValidationError("-i - and --data @- cannot both read standard input; use a file for one of them")
        }
        guard output == nil || directory == nil else {
            throw ValidationError("-o and -d exclude each other; give one of them")
        }
        if directory == nil, files.outTemplate != nil || files.remoteNameHeader {
            throw ValidationError("--out-template and --remote-name-header name files of a directory; give -d DIR")
        }
        let writesFiles = directory != nil || output ?? "-" != "-"
        if !writesFiles, files.dependsOnExistingFiles || files.setsModificationTime {
            throw ValidationError(
                "--no-clobber, --timestamping, --continue and --remote-time need files; give -d DIR or -o FILE")
        }
        guard !files.resumes || request.exchange.method ?? "GET" == "GET" && request.exchange.data == nil else {
            throw ValidationError("--continue is for GET; omit --method and --data")
        }
        guard !json || output != "-" else {
            throw ValidationError("--json and -o - cannot both write standard output; give -o FILE")
        }
        try validateHeads()
        try validatePaths()
        guard request.handling.checksum == nil || urls.count == 1 && input == nil else {
            throw ValidationError("--checksum describes one body; give one URL")
        }
        if output == nil, directory == nil, !discardsBodies, urls.count > 1 { throw severalFilesError }
        if output != nil, urls.count > 1 { throw severalFilesError }
    }

    private func validateHeads() throws {
        guard !heads.include || output ?? "-" == "-" && directory == nil && !json else {
            throw ValidationError(
                "--include is for a body on standard output; give --dump-header FILE, or --json alone")
        }
        guard !json || heads.dumpHeader != "-" else {
            throw ValidationError("--json and --dump-header - cannot both write standard output; --json has the fields")
        }
        guard !request.exchange.head || output == nil && directory == nil else {
            throw ValidationError("-I has no body to write; omit -o and -d, or give --dump-header FILE")
        }
    }

    private func validatePaths() throws {
        try PathCheck.check([
            ("--input", input), ("--output", output), ("--directory", directory), ("--failed", files.failed),
            ("--dump-header", heads.dumpHeader),
        ])
        let bodyToOutput = !discardsBodies && directory == nil && output ?? "-" == "-"
        guard files.failed != "-" || !json && headerOutputPath != "-" && !bodyToOutput else {
            throw ValidationError(
                "--failed - cannot share standard output with bodies, header fields or --json; give --failed FILE")
        }
    }

    /// Whether no body is written.
    private var discardsBodies: Bool { json || request.exchange.head }

    /// Path of the output for header fields, `-` for standard output; nil for none.
    private var headerOutputPath: String? {
        heads.dumpHeader ?? (heads.include || request.exchange.head && !json ? "-" : nil)
    }

    private var severalFilesError: ValidationError {
        ValidationError("several URLs need a directory; give -d DIR, or -d . for the current one")
    }

    func run() throws { try run(nil) }

    /// - Parameter preforked: supervisor of a private bus, started before the arguments were parsed; nil for none.
    func run(_ preforked: PreforkedBus?) throws {
        try runAndExit {
            var wanted = urls.map { ListEntry(url: URLText.percentEncoded($0)) }
            // A body with its own destination need not wait for the end of the list.
            let hasDestination = directory != nil || discardsBodies && output == nil
            let readsInput = input == "-" && hasDestination && !course.dryRun
            if let input, !readsInput { wanted += try URLList.read(input) }
            guard !wanted.isEmpty || readsInput else {
                throw CommandError(.noInput, "the list is empty; give at least one URL")
            }
            if directory == nil, wanted.contains(where: \.hasOutputPath) {
                throw CommandError(.usageError, "the list names files with out= or dir=; give -d DIR")
            }
            if wanted.count > 1, !hasDestination { throw CommandError(.usageError, severalFilesError.message) }
            let body = try request.readBody()
            if course.dryRun {
                let names = OutputNames(template: try files.parsedTemplate(), readsResponse: files.remoteNameHeader)
                return try DryRun(
                    method: request.httpMethod(forBody: body), file: output, directory: directory, outputNames: names,
                    printsJSON: json
                ).print(wanted, verbosely: messages.verbose)
            }
            // Read while signals still end the program, since a file may be a pipe.
            let netrc = try request.readNetrc()
            let cookies = try cookieFiles.read()
            let signals = try SignalSource([SIGINT, SIGTERM, SIGHUP], skipsIgnoredSignals: true)
            let loop = try EventLoop()
            let place = try place.busLocation()
            let bus = try privateBus(place, loop, signals, preforked, count: readsInput ? .max : wanted.count)
            defer { bus?.end() }
            if !messages.quiet { reportProxies(wanted, isPrivate: bus != nil) }
            return try fetch(
                wanted, readsInput: readsInput, body, netrc, cookies, bus.map { .local($0.folder) } ?? place, bus, loop,
                signals)
        }
    }

    private func fetch(
        _ wanted: [ListEntry], readsInput: Bool, _ body: [UInt8]?, _ netrc: Netrc?, _ cookies: [FileCookie],
        _ place: BusLocation, _ bus: PrivateBus?, _ loop: EventLoop, _ signals: SignalSource
    ) throws -> ExitStatus {
        let destination = try destination(interrupt: signals.descriptor)
        let random = String(UInt32.random(in: 0 ... .max), radix: 16)
        // The first part of the name selects the cookie jar. The jar of a cookie file is for this run only.
        let first = cookieFiles.usesCookieFiles ? "get-" : "get/"
        guard let handler = handler ?? HandlerID("\(first)\(getpid())-\(random)") else {
            throw CommandError(.generalError, "cannot generate a handler name; give --handler NAME")
        }
        let cookies = cookieFiles.makeCookieExchange(cookies, requestHandler: handler)
        // A generated handler has no other users, so its request IDs need no prefix.
        let prefix = naming.handler == nil ? "" : "\(random)-"
        let isChecked = request.handling.checksum != nil || wanted.contains(where: \.hasChecksum)
        let interrupt = signals.descriptor
        let program = try hook.program()
        let heads = try headerOutputPath.map { path throws(CommandError) in
            try HeaderOutput(path, interrupt: interrupt)
        }
        let failures = try files.failed.map { path throws(CommandError) in try FailureList(path, interrupt: interrupt) }
        let run = GetRun(
            DownloadList(wanted, readsInput: readsInput, jobs: course.jobs),
            RequestTemplate(
                request, of: handler, prefix: prefix, body: body, netrc: netrc, usesCookies: cookies != nil, files),
            DownloadOutput(
                to: destination, files, heads: heads,
                // The result of a check is known only at the end.
                isStreamable: wanted.count == 1 && !readsInput && !isChecked, start: Int64(time(nil))),
            DownloadReport(messages, json: json, failures),
            limit: course.jobs.map { JobLimit(jobs: $0, isBusPrivate: bus != nil) }, cookies: cookies,
            hook: program)
        let session = try BusSession(
            place, loop, signals, window: GetRun.maximumPendingRequests, consumerFinishesDeliveries: true
        ) { _, event in run.handle(event) }
        session.isQuiet = messages.quiet
        defer { session.connection.close() }
        bus?.onDeath {
            session.end(
                with: CommandError(.noBroker, "the private broker died; retry, or start a bus with `earshot serve`"))
        }
        return try run.run(over: session)
    }

    /// Reports once how the environment's proxies are used. A private bus has the environment of this command.
    private func reportProxies(_ wanted: [ListEntry], isPrivate: Bool) {
        guard request.network.proxy == nil else { return }
        let notice = ProxyNotice()
        let unused = isPrivate ? nil : notice.unusedProxyMessage(for: wanted.lazy.map(\.url))
        for line in isPrivate ? notice.noProxyWarnings : [unused].compactMap(\.self) { CommandError.writeMessage(line) }
    }

    /// Starts a private bus; returns nil if a broker runs.
    private func privateBus(
        _ place: BusLocation, _ loop: EventLoop, _ signals: SignalSource, _ preforked: PreforkedBus?, count: Int
    ) throws -> PrivateBus? {
        guard try !place.isServed() else {
            preforked?.cancel()
            return nil
        }
        guard !bus.noSpawn else {
            throw CommandError(
                .noBroker, "no broker runs \(place.locationPhrase); start one with `earshot serve`, or omit --no-spawn")
        }
        // One worker starts faster than many, so the number depends on the number of URLs.
        let cores = max(2, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))))
        return try PrivateBus.start(
            loop, signals, preforked, workers: min(cores, 1 + count / 64),
            cache: bus.noCache ? nil : Self.defaultCacheFolder(), isQuiet: messages.quiet)
    }

    /// Returns the user's cache. For a directory that others can change it prints a warning and returns nil.
    private static func defaultCacheFolder() -> String? {
        guard let path = try? RuntimeFolder.userCachePath() else { return nil }
        do throws(StoreError) {
            _ = try CacheFolder(path).checkExistingFolders()
            return path
        } catch {
            CommandError.writeMessage("continuing without a cache: \(error)")
            return nil
        }
    }

    private func destination(interrupt: Int32) throws(CommandError) -> Destination {
        if let directory {
            // The template was checked with the arguments.
            let names = OutputNames(template: try? files.parsedTemplate(), readsResponse: files.remoteNameHeader)
            return try .folder(directory, names: names, interrupt: interrupt)
        }
        switch output {
        case "-": return .standardOutput(interrupt: interrupt)
        case let file?: return .file(file, interrupt: interrupt)
        case nil:
            return discardsBodies ? .nowhere() : .standardOutput(interrupt: interrupt, permitsBinary: false)
        }
    }
}
