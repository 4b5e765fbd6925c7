internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot submit`: sends requests without waiting for the results.
struct SubmitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "submit",
        abstract: "Submit requests under a handler, without waiting for the results.",
        discussion: """
            Prints handler and ID of each accepted request. `earshot watch` receives the results; without a subscriber, \
            a result expires after 10 seconds. Ctrl-C removes nothing: use `earshot drop` or `earshot cancel`.

            With --durable a request is on disk before its line is printed. It survives the end of this command, of the \
            broker and of the machine, until its result is acknowledged or the setting durable-time has passed.

            With -d the requests are durable, and a process in the background writes the bodies: `earshot watch -d DIR \
            --until-done --keep-failures HANDLER`. If it ends early, as at a restart of the machine or for a full disk, \
            the results stay on disk, and the same command continues. Requests that fail stay on disk as well: \
            `earshot retry HANDLER` repeats them and writes their bodies to the same directory, `earshot drop HANDLER` \
            removes them.

              earshot submit --handler gallery/1 https://example.org/
              earshot submit --durable --handler night/backup https://example.org/
              earshot submit -i list.txt -d out --log out.log
            """)

    @Argument(help: "URLs to fetch.", completion: ShellCompletion.noCompletion)
    var urls: [String] = []

    @OptionGroup(title: "Request") var naming: HandlerOptions
    @OptionGroup(title: "Request") var submission: SubmissionOptions
    @OptionGroup var request: RequestOptions
    @OptionGroup(title: "Input") var source: SubmissionInput
    @OptionGroup(title: "Output") var target: BackgroundOptions
    @OptionGroup(title: "Output") var hook: HookOptions
    @OptionGroup(title: "Output") var failure: FailureOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    private var id: RequestID? { submission.id }

    func validate() throws {
        guard !urls.isEmpty || source.input != nil else {
            throw ValidationError("missing URL; give URLs, or a list with -i FILE")
        }
        guard id == nil || urls.count == 1 && source.input == nil else {
            throw ValidationError("--id names a single request; give one URL")
        }
        guard request.handling.checksum == nil || urls.count == 1 && source.input == nil else {
            throw ValidationError("--checksum describes one body; give one URL")
        }
        guard source.input != "-" || request.exchange.data != "@-" else {
            throw ValidationError("-i - and --data @- cannot both read standard input; use a file for one of them")
        }
        guard target.directory != nil || target.log == nil && hook.exec == nil else {
            throw ValidationError("--log and --exec are for the results of -d; give -d DIR")
        }
        guard target.directory == nil || !submission.warm else {
            throw ValidationError("--warm and --directory exclude each other; give one of them")
        }
    }

    /// Returns the URLs of the command line and of the list.
    private func entries() throws(CommandError) -> [ListEntry] {
        var entries = urls.map { ListEntry(url: URLText.percentEncoded($0)) }
        if let input = source.input { entries += try URLList.read(input) }
        guard !entries.isEmpty else { throw CommandError(.noInput, "the list is empty; give at least one URL") }
        if let entry = entries.first(where: { $0.fault != nil }), let fault = entry.fault {
            throw CommandError(.usageError, "\(URLText.redacted(entry.url)): \(fault)")
        }
        guard !entries.contains(where: \.hasOutputPath) else {
            throw CommandError(.usageError, "the list names files with out= or dir=; `earshot get` writes such files")
        }
        return entries
    }

    func run() throws {
        try runAndExit {
            let mark = String(UInt32.random(in: 0 ... .max), radix: 16)
            guard let handler = naming.handler ?? HandlerID("submit/\(getpid())-\(mark)") else {
                throw CommandError(.generalError, "cannot generate a handler name; give --handler NAME")
            }
            let entries = try entries()
            let backgroundWatch = try target.directory.map {
                try BackgroundWatch(
                    handler: .handler(handler), directory: $0, log: target.log, hook: hook.program(),
                    location: place.busLocation())
            }
            let isDurable = submission.durable || backgroundWatch != nil
            if request.network.proxy == nil, let line = ProxyNotice().unusedProxyMessage(for: entries.lazy.map(\.url)) {
                CommandError.writeMessage(line)
            }
            let body = try self.request.readBody()
            let netrc = try self.request.readNetrc()
            var tally = Tally()
            var refused: Set<RequestID> = []
            var accepted: Set<RequestID> = []
            var isReceived = false
            var isRefusing = false
            let session = try BusSession.connect(to: place.busLocation()) { session, event in
                switch event {
                case .queryAnswer(_, let json):
                    isReceived = true
                    // The broker does not answer a refused request without `durable`.
                    if !isDurable, isRefusing || Self.isAdmissionClosed(json) {
                        session.end(
                            with: CommandError(
                                .noBroker,
                                "the bus accepts no new requests and may have refused these; repeat the command after `earshot set admission open`, or after its next start"
                            ))
                    }
                case .state(.draining): isRefusing = true
                // The next broker receives the refused requests again. An answer to a later message proves it.
                case .state(.connected) where isRefusing:
                    (isRefusing, isReceived) = (false, false)
                    session.connection.query(.settings)
                case .accepted(let key) where key.handler == handler: accepted.insert(key.request)
                case .terminal(let delivery, _) where delivery.key.handler == handler:
                    // Without a subscription a terminal arrives only for a rejected request.
                    let outcome = FetchOutcome(url: delivery.key.request.description, delivery.terminal)
                    CommandError.writeMessage(outcome.sentence(verbosely: true))
                    if refused.insert(delivery.key.request).inserted { tally.countOutcome(outcome) }
                    session.connection.finishDelivery(delivery)
                // Only the administrator may query settings. Answers are in order, so a refusal proves the same.
                case .messageRefused(let reply) where reply.subject == .query: isReceived = true
                case .messageRefused(let reply):
                    let refusal = CommandError.refused(reply)
                    guard let request = reply.key?.request else { return session.end(with: refusal) }
                    CommandError.writeMessage("\(handler) \(request): \(refusal)")
                    let outcome = FetchOutcome(url: request.description, code: reply.code, detail: "\(refusal)")
                    if refused.insert(request).inserted { tally.countOutcome(outcome) }
                case .accepted, .terminal, .progress, .cancelled, .removed, .settingChanged, .state: break
                }
            }
            var requested: [RequestID] = []
            for (index, entry) in entries.enumerated() {
                let url = entry.url
                guard let name = id ?? RequestID("\(mark)-\(index + 1)") else { continue }
                guard let text = URLText.wireForm(url) else {
                    let outcome = FetchOutcome(malformedURL: url)
                    CommandError.writeMessage(outcome.sentence(verbosely: failure.verbose))
                    tally.countOutcome(outcome)
                    continue
                }
                var fetch = self.request.makeFetch(handler: handler, request: name, url: text, body: body)
                let decodes = self.request.decodesBody(ofURL: text, file: entry.outputPath(defaultName: ""))
                if !decodes { fetch.options.route.decodesBody = false }
                fetch.options.subscribes = false
                fetch.options.isCacheWarming = submission.warm
                fetch.options.isDurable = isDurable
                entry.apply(to: &fetch)
                fetch.addFormContentType()
                netrc?.authorize(&fetch)
                try session.connection.fetch(fetch)
                requested.append(name)
            }
            session.connection.query(.settings)
            try session.run {
                isReceived && !session.connection.areRequestsHeld
                    && (!isDurable || requested.allSatisfy { accepted.contains($0) || refused.contains($0) })
            }
            let submitted = requested.filter { !refused.contains($0) }
            if !submitted.isEmpty { try backgroundWatch?.start() }
            tally.countSuccesses(submitted.count)
            var lines = LineOutput()
            for name in submitted { lines.add(Array("\(handler) \(name)\n".utf8)) }
            lines.flush()
            if let outputError = lines.writeError { throw Self.commandError(outputError, handler, submitted.count) }
            return tally.status
        }
    }

    /// Returns whether settings of the broker include a closed admission.
    private static func isAdmissionClosed(_ json: [UInt8]) -> Bool {
        JSONValue(json)?.items(ofMember: "settings").contains {
            $0.member("name")?.scalarText == "admission" && $0.member("value")?.scalarText == "closed"
        } ?? false
    }

    /// Returns the error for a failed output after the broker has accepted the requests.
    private static func commandError(_ outputError: CommandError, _ handler: HandlerID, _ count: Int) -> CommandError {
        guard let sentence = outputError.sentence else { return outputError }
        let state = "\(count) requests were submitted under \(handler); `earshot drop \(handler)` removes them"
        return CommandError(outputError.status, "\(sentence); \(state)")
    }
}

/// Options of a request that outlives the command.
struct SubmissionOptions: ParsableArguments {
    @Option(help: ArgumentHelp("ID of a single request. (default: a new one)", valueName: "id"))
    var id: RequestID?

    @Flag(help: "Fetch into the cache, and deliver no body.")
    var warm = false

    @Flag(help: "Store the request on disk until its result is acknowledged. Only for GET and HEAD.")
    var durable = false
}

/// Option for a list of URLs.
struct SubmissionInput: ParsableArguments {
    @Option(
        name: .shortAndLong,
        help: ArgumentHelp("Read URLs from a file, one per line. - reads standard input.", valueName: "file"),
        completion: .file())
    var input: String?
}

/// Options for the bodies of requests that outlive the command.
struct BackgroundOptions: ParsableArguments {
    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "Write each body to a file in this directory, in the background; implies --durable.", valueName: "dir"),
        completion: .directory)
    var directory: String?

    @Option(
        help: ArgumentHelp("Append a line of JSON for each result of -d to this file.", valueName: "file"),
        completion: .file())
    var log: String?
}
