internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// One run of `earshot get`: keeps a bounded number of pending requests, writes the bodies and counts the outcomes.
final class GetRun {
    /// Maximum number of pending requests. It is also the delivery window, so none waits for an acknowledgement.
    static let outstanding = 1024
    /// Cause of the failure of a URL without a request.
    static let unrequested = "the run ended before the request"
    /// Maximum time for the answer to a removal after an interrupt.
    static let farewell = Duration.seconds(2)

    /// Known URLs. Those from `next` on have no request yet.
    var urls: [ListEntry]
    var next = 0
    /// Number of URLs already removed from the front of `urls`.
    private var settled = 0
    /// Source of further URLs; nil if all are known.
    private var input: ListInput?
    let readsInput: Bool
    /// Whether further URLs may arrive.
    var isListing: Bool
    let handler: HandlerID
    /// Prefix of the request IDs; empty for a handler that no other program knows.
    private let mark: String
    var isShared: Bool { !mark.isEmpty }
    private let options: RequestOptions
    /// Body of each request.
    private let body: [UInt8]?
    let tellsJSON: Bool
    /// JSON lines, written at the end of each pass.
    private var lines: LineOutput?
    /// Output of header fields; nil for none.
    private let heads: HeaderOutput?
    /// Credentials of hosts; nil for none.
    private let netrc: Netrc?
    /// Cookies from and for a file; nil for none.
    private let cookies: CookieExchange?
    /// Maximum number of pending requests to one origin; nil for no limit.
    private let jobs: Int?
    /// Whether the bus is for this run only.
    private let isBusPrivate: Bool
    /// Items that wait for another request to their origin; nil without such a limit.
    var lanes: OriginLanes<OutputItem>?
    /// Whether messages contain complete URLs.
    let isVerbose: Bool
    var destination: Destination
    /// Previous request, the template of the next one.
    private var firstFetch: Fetch?
    var underWay: [RequestID: OutputItem] = [:]
    let files: FileOptions
    /// Failed URLs for a file; nil for none.
    let failures: FailureList?
    /// Writer of a single body that is streamed; nil if its file is moved.
    private var stream: StreamedBody?
    /// Bodies whose bytes an interruption keeps.
    var arriving: ArrivingBodies
    var tally = Tally()
    /// Progress on standard error; nil for none.
    var view: ProgressView?
    let isQuiet: Bool
    /// Program for each result; nil for none.
    private let hook: HookProgram?
    private var hooks: HookRuns?
    var session: BusSession?
    var isRemoved = false
    /// Cancellations without an answer after an interrupt.
    var unansweredCancels = 0
    var isInterrupted = false
    /// Whether the first requests were sent.
    private var hasBegun = false

    /// - Parameters:
    ///   - mark: prefix of the request IDs, for a handler that other programs may share.
    ///   - readsInput: whether further URLs come from standard input.
    ///   - heads: output of header fields.
    ///   - jobs: maximum number of pending requests to one origin; nil for no limit.
    ///   - isBusPrivate: whether the bus is for this run only.
    ///   - hook: program for each result; nil for none.
    init(
        _ urls: [ListEntry], readsInput: Bool, _ handler: HandlerID, mark: String, _ options: RequestOptions,
        body: [UInt8]?, netrc: Netrc?, cookies: CookieExchange?, heads: HeaderOutput?, jobs: Int?, isBusPrivate: Bool,
        hook: HookProgram?,
        to destination: Destination, _ files: FileOptions, _ failures: FailureList?, json: Bool,
        messages: MessageOptions
    ) {
        self.files = files
        self.failures = failures
        arriving = ArrivingBodies(start: files.resumes ? Int64(time(nil)) : nil)
        self.urls = urls
        self.readsInput = readsInput
        isListing = readsInput
        self.handler = handler
        self.mark = mark
        self.options = options
        self.body = body
        self.netrc = netrc
        self.cookies = cookies
        self.heads = heads
        self.jobs = jobs
        self.isBusPrivate = isBusPrivate
        lanes = jobs.map { OriginLanes(limit: $0) }
        self.hook = hook
        self.destination = destination
        tellsJSON = json
        isVerbose = messages.verbose
        isQuiet = messages.quiet
        // The head of a response, and the result of its check, are known only at its end.
        let isChecked = options.handling.checksum != nil || urls.contains(where: \.hasChecksum)
        let isStreamable = heads == nil && !isChecked && !files.resumes
        stream = urls.count == 1 && !readsInput && isStreamable ? destination.stream() : nil
    }

    /// Fetches all URLs, unless an error or a signal ends the run.
    func carryOut(over session: BusSession) throws -> ExitStatus {
        self.session = session
        session.connection.bodyFolder = destination.bodyFolder
        session.onSignal = { [unowned self] in interrupted() }
        session.beforeMessage = { [unowned self] in view?.clear() }
        let started = session.loop.now
        if !isQuiet { view = progressView(session) }
        if tellsJSON { lines = LineOutput(interrupt: session.signalDescriptor) }
        hooks = hook.map { program in
            HookRuns(program, session.loop) { [unowned self] in
                view?.clear()
                Complaint.say($0)
            }
        }
        // Added after the hook of the connection, which emits events.
        let hook = session.loop.addHook { [unowned self] in
            flush()
            return .untilEvent
        }
        defer {
            session.loop.removeHook(hook)
            flush()
            hooks?.stop()
            view?.end()
            view = nil
            input = nil
            // Discards an incomplete file.
            stream = nil
            self.session = nil
        }
        do {
            try session.run {
                let isDone =
                    isInterrupted
                    ? isRemoved
                    : !isListing && next == urls.count && lanes?.isEmpty ?? true && underWay.isEmpty
                        && hooks?.count ?? 0 == 0
                if isDone { cookies?.finish(session.connection) }
                return isDone && cookies?.isComplete ?? true
            }
        } catch {
            keepParts()
            try? saveFailures()
            throw error
        }
        keepParts()
        try saveFailures()
        try cookies?.save()
        if !isInterrupted, known == 0 { throw Complaint(.noInput, "the list is empty; give at least one URL") }
        if !isQuiet { summarize(seconds: session.loop.now.since(started) / .seconds(1)) }
        return isInterrupted ? .interrupted : tally.status
    }

    /// Number of URLs known so far.
    var known: Int { settled + urls.count }

    private func progressView(_ session: BusSession) -> ProgressView {
        ProgressView(
            session.loop, isReserved: destination.isTerminal,
            ProgressView.Source(
                state: { [unowned self] in RunSnapshot(known: known, isListing: isListing, tally: tally) },
                oldest: { [unowned self] in underWay.min { $0.value.index < $1.value.index }?.key },
                ask: { [unowned self] in session.connection.query(.why(handler, $0)) }))
    }

    // MARK: Events

    func happened(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .progress(let progress): progressed(progress)
        case .refused(let reply): refused(reply)
        case .removed: isRemoved = true
        case .state(.connected): begin()
        case .cancelled:
            unansweredCancels -= 1
            if isInterrupted, unansweredCancels == 0 { isRemoved = true }
        case .answer(let query, let json):
            guard let session, cookies?.answered(query, json, session.connection) != true else { return }
            if case .settings = query { compareLimit(json) } else { view?.answered(json) }
        case .accepted, .changed, .state: break
        }
    }

    /// Sends the first requests, once the location of the spool is known.
    private func begin() {
        guard let session, !hasBegun, !isInterrupted else { return }
        hasBegun = true
        session.connection.takesFiles = destination.takesFiles(of: session.connection.spool)
        if session.connection.takesFiles { stream = nil }
        cookies?.begin(session.connection)
        if jobs != nil { session.connection.query(.settings) }
        if readsInput { input = ListInput(session.loop) { [unowned self] in listed($0) } }
        submit()
    }

    /// Raises the limit of a private bus to that of -j, or says that the limit of a shared bus is lower.
    private func compareLimit(_ json: [UInt8]) {
        guard let session, let jobs, let limit = JSONValue(json)?.originLimit, limit <= jobs else { return }
        // One place of an origin is reserved for class high.
        if isBusPrivate, let setting = SettingWords(["origin-limit", "\(jobs + 1)"]) {
            return session.connection.set(setting)
        }
        guard limit < jobs else { return }
        view?.clear()
        Complaint.say(
            "-j \(jobs): the bus has at most \(limit) transfers to one origin at a time; raise that with "
                + "`earshot set origin-limit \(jobs)`")
    }

    /// Adds URLs from standard input, or handles its end.
    private func listed(_ new: [ListEntry]) {
        urls += new
        guard let input, input.hasEnded else { return submit() }
        self.input = nil
        isListing = false
        if let fault = input.fault { session?.end(fault) }
        submit()
    }

    private func progressed(_ progress: Progress) {
        guard let item = underWay[progress.request], !isInterrupted else { return }
        // An error page, which is no body.
        if let status = progress.status, status >= 400, !files.failBody { return }
        view?.progressed(progress, index: item.index, url: item.entry.url)
        arriving.progressed(progress)
        do throws(Destination.Failure) {
            if destination.isTerminal { view?.clear() }
            try stream?.progressed(progress)
        } catch {
            switch error {
            case .broken: session?.end(Complaint(.cannotWrite))
            // The event of the signal follows.
            case .interrupted: return
            case .lostSource: return
            case .cannotWrite(let sentence):
                session?.connection.cancel(RequestKey(progress.handler, progress.request))
                let outcome = FetchOutcome(url: item.entry.url, code: FetchOutcome.writeFailed, detail: sentence)
                settle(progress.request, item, outcome)
            }
        }
    }

    private func ended(_ delivery: Delivery, _ body: [UInt8]) {
        guard let session, !isInterrupted else { return }
        guard let item = underWay[delivery.key.request] else { return ignored(delivery, session) }
        var outcome = FetchOutcome(url: item.entry.url, delivery.terminal)
        if heads != nil { view?.clear() }
        do throws(Complaint) { try heads?.write(outcome) } catch {
            // The event of the signal follows.
            if error.status != .interrupted { session.end(error) }
            return
        }
        if outcome.status == 304, files.timestamping {
            return keepExisting(delivery, item, "unchanged", destination.existing(item.name)?.path)
        }
        let fields = outcome.response.map { HeaderFields(lines: $0.httpFields) } ?? HeaderFields()
        if outcome.code == nil, files.timestamping, let existing = destination.existing(item.name), existing.isRegular,
            FileTime.of(fields).map({ $0 <= existing.modified }) == true
        {
            stream = nil
            return keepExisting(delivery, item, "unchanged", existing.path)
        }
        let rest = item.partial.flatMap {
            $0.rest(of: outcome.status, fields, received: outcome.response?.length)
        }
        if let partial = item.partial, rest == ExistingFile.Rest.none {
            return keepExisting(delivery, item, "complete", partial.path)
        }
        if let number = delivery.storeFailure {
            outcome.storeFailed(number)
        } else if case .unusable(let reason) = rest {
            (outcome.code, outcome.detail) = (FetchOutcome.writeFailed, reason)
        } else if let partial = item.partial, outcome.code == nil, rest == .whole, !partial.expects(outcome.response) {
            outcome.code = FetchOutcome.digestMismatch
        } else if outcome.code == nil || files.failBody && item.partial == nil && outcome.isPage {
            do throws(Destination.Failure) {
                if destination.isTerminal { view?.clear() }
                let modified = files.setsTime ? outcome.response.flatMap { FileTime.of($0) } : nil
                if let partial = item.partial, rest == .body {
                    outcome.path = try destination.append(
                        self.body(of: delivery, body), to: partial, of: item, modified: modified)
                    if outcome.path == nil { outcome.code = FetchOutcome.digestMismatch }
                } else if let stream, let response = outcome.response,
                    try stream.ended(response, modified: modified)
                {
                    outcome.path = destination.onlyFile
                    self.stream = nil
                } else {
                    outcome.path = try destination.write(
                        self.body(of: delivery, body), of: item, outcome.response, modified: modified)
                }
                if files.resumes, outcome.code == nil, let path = outcome.path, let response = outcome.response {
                    let start = rest == .body ? item.partial?.length ?? 0 : 0
                    BodyRecord.keep(of: fields, length: start + response.length, at: Destination.replaced(path) ?? path)
                }
            } catch {
                switch error {
                case .lostSource:
                    if session.connection.askAgain(delivery) { return }
                    outcome.detail = "its spool file is missing"
                case .broken: return session.end(Complaint(.cannotWrite))
                // The event of the signal follows.
                case .interrupted: return
                case .cannotWrite(let sentence): outcome.detail = sentence
                }
                outcome.code = FetchOutcome.writeFailed
            }
        }
        session.connection.finish(delivery)
        // The part that arrived belongs to an error page.
        if outcome.code == "http-status" { stream = nil }
        if let code = outcome.code { arriving.failed(delivery.key.request, item, code, in: &destination) }
        settle(delivery.key.request, item, outcome)
        submit()
    }

    /// Ends a request whose file stays.
    private func keepExisting(_ delivery: Delivery, _ item: OutputItem, _ reason: String, _ path: String?) {
        session?.connection.finish(delivery)
        underWay[delivery.key.request] = nil
        arriving.ended(delivery.key.request)
        view?.settled(delivery.key.request)
        skip(item, reason, path)
        submit()
    }

    /// Acknowledges a terminal of another program's request under the same handler, unless that would delete a durable
    /// result.
    private func ignored(_ delivery: Delivery, _ session: BusSession) {
        guard delivery.terminal.isDurable else { return session.connection.finish(delivery) }
        let sentence =
            "the handler \(handler) has durable results of other requests; receive them first with "
            + "`earshot watch -d DIR \(handler)`, or give another --handler"
        session.end(Complaint(.usage, sentence))
    }

    private func body(of delivery: Delivery, _ bytes: [UInt8]) -> Destination.Body {
        guard let response = delivery.terminal.response, let file = response.file else { return .bytes(bytes) }
        return .file(file, length: response.length, isOwn: delivery.isOwn)
    }

    private func refused(_ reply: ErrorReply) {
        // The settings of another user's bus.
        if reply.verb == "QUERY" { return }
        let detail = reply.detail ?? "rejected by the broker"
        guard let request = reply.request, let item = underWay[request] else {
            session?.end(Complaint(.other, "\(detail) (\(reply.code))"))
            return
        }
        settle(request, item, FetchOutcome(url: item.entry.url, code: reply.code, detail: detail))
        submit()
    }

    // MARK: Requests

    private func submit() {
        guard let session else { return }
        while !isInterrupted, underWay.count + (hooks?.count ?? 0) < GetRun.outstanding, var item = nextItem() {
            guard let request = RequestID("\(mark)\(item.index)") else { continue }
            let existing = files.regardsExisting ? destination.existing(item.name) : nil
            if files.noClobber, let existing {
                skip(item, "exists", existing.path)
                continue
            }
            if files.resumes, let existing, existing.isResumable { item.partial = existing }
            let url = item.entry.url
            var fetch = fetch(request, URLText.wire(url) ?? "", item)
            item.entry.apply(to: &fetch)
            fetch.addFormType()
            netrc?.authorize(&fetch)
            if files.timestamping, let existing, existing.isRegular {
                fetch.add(field: "if-modified-since: \(FileTime.text(existing.modified))")
            }
            item.partial?.requestRest(&fetch)
            underWay[request] = item
            do throws(ClientError) {
                if let fault = item.entry.fault {
                    settle(request, item, FetchOutcome(url: url, code: FetchOutcome.badOption, detail: fault))
                    continue
                }
                guard !fetch.url.isEmpty else {
                    settle(request, item, FetchOutcome(malformed: url))
                    continue
                }
                try session.connection.fetch(fetch)
            } catch {
                settle(request, item, FetchOutcome(url: item.entry.url, code: "bad-header", detail: error.description))
            }
        }
        readOn()
    }

    /// The next item that may start; nil without one.
    func nextItem() -> OutputItem? {
        if let item = lanes?.next() { return item }
        while next < urls.count, lanes?.hasRoom ?? true {
            let item = listItem()
            if lanes?.admits(item, of: item.entry.url) ?? true { return item }
        }
        return nil
    }

    /// Takes the next URL of the list, with the name of its file if that is needed before the request.
    func listItem() -> OutputItem {
        var item = OutputItem(entry: urls[next], index: settled + next + 1)
        next += 1
        if files.namesFirst { item.name = destination.reserve(item) }
        return item
    }

    /// Keeps the existing file of a URL.
    private func skip(_ item: OutputItem, _ reason: String, _ path: String?) {
        lanes?.ended(item.entry.url)
        tally.countSkip()
        guard lines != nil else { return }
        tell(item.index, FetchOutcome(url: item.entry.url, path: path, skipped: reason))
    }

    /// Reads more of the list once all known URLs have a request.
    private func readOn() {
        guard let input, !isInterrupted, next == urls.count else {
            input?.pause()
            return
        }
        settled += next
        next = 0
        urls.removeAll(keepingCapacity: true)
        input.resume()
    }

    /// Creates the request for a URL.
    private func fetch(_ request: RequestID, _ url: String, _ item: OutputItem) -> Fetch {
        var fetch = firstFetch ?? options.fetch(handler, request, url, body: body)
        if firstFetch == nil { firstFetch = fetch }
        fetch.request = request
        fetch.url = url
        // The bytes of a coding could not be continued.
        let decodes = !files.resumes && options.decodes(url, file: destination.expectedPath(item))
        if fetch.options.route.decodes != decodes { fetch.options.route.decodes = decodes }
        if cookies != nil { fetch.options.usesCookies = true }
        fetch.options.streams = stream != nil || files.resumes
        // A streamed body is written at each report, so its reports keep the broker's interval.
        if let view, !fetch.options.streams { fetch.options.progressMilliseconds = view.progressMilliseconds }
        return fetch
    }

    private func settle(_ request: RequestID, _ item: OutputItem, _ outcome: FetchOutcome) {
        underWay[request] = nil
        arriving.ended(request)
        view?.settled(request)
        lanes?.ended(item.entry.url)
        tally.count(outcome)
        if outcome.code != nil {
            failures?.add(item.entry, name: item.name, cause: outcome.cause)
            view?.clear()
            Complaint.say(outcome.sentence(verbosely: isVerbose))
        } else if isVerbose, let sentence = outcome.sourceSentence {
            view?.clear()
            Complaint.say(sentence)
        }
        if lines != nil { tell(item.index, outcome) }
        // The next request may have waited for the end of a program.
        hooks?.add(outcome, RequestKey(handler, request)) { [unowned self] in submit() }
    }

    private func tell(_ index: Int, _ outcome: FetchOutcome) {
        var line = JSONLine()
        line.member("index", index)
        outcome.write(to: &line)
        lines?.add(line.finished())
    }

    /// Writes the JSON lines.
    private func flush() {
        guard lines?.isEmpty == false else { return }
        view?.clear()
        lines?.flush()
        // The event of the signal follows.
        if let obstacle = lines?.obstacle, obstacle.status != .interrupted { session?.end(obstacle) }
    }
}
