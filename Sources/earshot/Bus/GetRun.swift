internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// One run of `earshot get`: keeps a bounded number of requests asked for, writes what comes, and counts.
final class GetRun {
    /// Requests asked for and not ended; also the window, so that none of them waits for an acknowledgement.
    static let outstanding = 1024
    /// How long the broker may take to answer a removal when the program is interrupted.
    private static let farewell = Duration.seconds(2)

    /// A URL that was asked for, and its place in the list, from 0.
    private struct Item {
        let index: Int
        let url: String
    }

    /// URLs known and not asked for are those from `next` on.
    private var urls: [String]
    private var next = 0
    /// URLs before the first one of `urls`.
    private var settled = 0
    /// Where more URLs come from while it runs; nil if all are known.
    private var input: ListInput?
    private let readsInput: Bool
    /// Whether URLs may still come.
    private var isListing: Bool
    private let handler: HandlerID
    /// Begins the IDs of its requests; empty where no other program knows the handler.
    private let mark: String
    private var isShared: Bool { !mark.isEmpty }
    private let options: RequestOptions
    /// What each request sends.
    private let body: [UInt8]?
    private let tellsJSON: Bool
    /// What is told, written when a pass ends.
    private var lines: LineOutput?
    /// Whether URLs of failures are told whole.
    private let isVerbose: Bool
    private var destination: Destination
    /// The first request. Later ones differ in ID and URL.
    private var firstFetch: Fetch?
    private var underWay: [RequestID: Item] = [:]
    private var received: [RequestID: Int] = [:]
    /// The one body that is written while it arrives.
    private var stream: StreamedBody?
    private var tally = Tally()
    private var bar: ProgressBar?
    private var session: BusSession?
    private var isRemoved = false
    /// Cancellations of an interrupted run to whose answers it waits.
    private var unansweredCancels = 0
    private var isInterrupted = false
    /// Whether files of the broker's spool can become outputs; nil before it has told where that is.
    private var takesFiles: Bool?

    /// - Parameters:
    ///   - mark: begins the IDs of its requests, as others may ask for something under the same handler.
    ///   - readsInput: whether more URLs come from standard input.
    init(
        _ urls: [String], readsInput: Bool, _ handler: HandlerID, mark: String, _ options: RequestOptions,
        body: [UInt8]?,
        to destination: Destination, json: Bool, verbose: Bool
    ) {
        self.urls = urls
        self.readsInput = readsInput
        isListing = readsInput
        self.handler = handler
        self.mark = mark
        self.options = options
        self.body = body
        self.destination = destination
        tellsJSON = json
        isVerbose = verbose
        stream = urls.count == 1 && !readsInput ? destination.stream() : nil
    }

    /// Fetches all, or as many as it takes until something ends it.
    func carryOut(over session: BusSession) throws -> ExitStatus {
        self.session = session
        session.onSignal = { [unowned self] in interrupted() }
        bar = ProgressBar(session.loop) { [unowned self] in
            (known, tally, received.values.reduce(0, +))
        }
        if tellsJSON { lines = LineOutput(interrupt: session.signalDescriptor) }
        // After the connection's hook, which tells.
        let hook = session.loop.addHook { [unowned self] in
            flush()
            return .untilEvent
        }
        defer {
            session.loop.removeHook(hook)
            flush()
            bar?.end()
            bar = nil
            input = nil
            // With what is not finished of a file.
            stream = nil
            self.session = nil
        }
        try session.run { isInterrupted ? isRemoved : !isListing && next == urls.count && underWay.isEmpty }
        if !isInterrupted, known == 0 { throw Complaint(.noInput, "the list is empty") }
        summarize()
        return isInterrupted ? .interrupted : tally.status
    }

    /// URLs of which it knows.
    private var known: Int { settled + urls.count }

    /// Says which files were replaced and, on a terminal or with -v, how many of several bodies the cache had.
    private func summarize() {
        if destination.replaced > 0 {
            bar?.clear()
            let files = destination.replaced == 1 ? "1 file" : "\(destination.replaced) files"
            Complaint.say("replaced \(files) of the same name in the folder")
        }
        guard known > 1, tally.cached > 0, bar != nil || isVerbose else { return }
        bar?.clear()
        Complaint.say("\(tally.cached) of \(known) bodies came from the cache")
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
        case .accepted, .answer, .changed, .state: break
        }
    }

    /// Asks for the first URLs, once it is known how their bodies are to come.
    private func begin() {
        guard let session, takesFiles == nil, !isInterrupted else { return }
        takesFiles = destination.takesFiles(of: session.connection.spool)
        if readsInput { input = ListInput(session.loop) { [unowned self] in listed($0) } }
        submit()
    }

    /// URLs have come from standard input, or it has ended.
    private func listed(_ new: [String]) {
        urls += new
        guard let input, input.hasEnded else { return submit() }
        self.input = nil
        isListing = false
        if let fault = input.fault { session?.end(fault) }
        submit()
    }

    private func progressed(_ progress: Progress) {
        guard let item = underWay[progress.request], !isInterrupted else { return }
        received[progress.request] = progress.received
        do throws(Destination.Failure) {
            try stream?.progressed(progress)
        } catch {
            switch error {
            case .broken: session?.end(Complaint(.cannotWrite))
            // The signal's own event follows.
            case .interrupted: return
            case .lostSource: return
            case .cannotWrite(let sentence):
                session?.connection.cancel(RequestKey(progress.handler, progress.request))
                let outcome = FetchOutcome(url: item.url, code: FetchOutcome.writeFailed, detail: sentence)
                settle(progress.request, item, outcome)
            }
        }
    }

    private func ended(_ delivery: Delivery, _ body: [UInt8]) {
        guard let session, !isInterrupted else { return }
        guard let item = underWay[delivery.key.request] else { return ignored(delivery, session) }
        var outcome = FetchOutcome(url: item.url, delivery.terminal)
        if outcome.code == nil {
            do throws(Destination.Failure) {
                if let stream, let response = outcome.response, try stream.ended(response) {
                    outcome.path = destination.onlyFile
                } else {
                    outcome.path = try destination.write(self.body(of: outcome, body), of: item.url)
                }
            } catch {
                switch error {
                case .lostSource:
                    if session.connection.askAgain(delivery) { return }
                    outcome.detail = "its file in the spool is gone"
                case .broken: return session.end(Complaint(.cannotWrite))
                // The signal's own event follows.
                case .interrupted: return
                case .cannotWrite(let sentence): outcome.detail = sentence
                }
                outcome.code = FetchOutcome.writeFailed
            }
        }
        session.connection.finish(delivery)
        settle(delivery.key.request, item, outcome)
        submit()
    }

    /// Acknowledges the terminal of a request that another program made under the same handler, unless that would
    /// remove a result from the broker's disk.
    private func ignored(_ delivery: Delivery, _ session: BusSession) {
        guard delivery.terminal.isDurable else { return session.connection.finish(delivery) }
        let sentence =
            "the handler \(handler) has results of durable requests, which are not for this command: take them first "
            + "with `earshot watch -d DIR \(handler)`, or use another handler"
        session.end(Complaint(.usage, sentence))
    }

    private func body(of outcome: FetchOutcome, _ bytes: [UInt8]) -> Destination.Body {
        guard let response = outcome.response, let file = response.file else { return .bytes(bytes) }
        return .file(file, length: response.length, isOwn: response.isYours)
    }

    private func refused(_ reply: ErrorReply) {
        let detail = reply.detail ?? "the broker refused it"
        guard let request = reply.request, let item = underWay[request] else {
            session?.end(Complaint(.other, "\(detail) (\(reply.code))"))
            return
        }
        settle(request, item, FetchOutcome(url: item.url, code: reply.code, detail: detail))
        submit()
    }

    /// The first signal removes what was asked for and awaits the answer; the second one does not wait.
    private func interrupted() {
        guard let session else { return }
        guard !isInterrupted else { return session.end(Complaint(.interrupted)) }
        isInterrupted = true
        if isShared {
            // What other programs asked for under the handler is theirs, and may be durable.
            unansweredCancels = underWay.count
            isRemoved = underWay.isEmpty
            for request in underWay.keys { session.connection.cancel(RequestKey(handler, request)) }
        } else {
            session.connection.remove(.handler(handler))
        }
        session.loop.setTimer(after: GetRun.farewell) { session.end(Complaint(.interrupted)) }
    }

    // MARK: Requests

    private func submit() {
        guard let session else { return }
        while next < urls.count, underWay.count < GetRun.outstanding, !isInterrupted {
            let item = Item(index: settled + next, url: urls[next])
            next += 1
            guard let request = RequestID("\(mark)\(item.index + 1)") else { continue }
            underWay[request] = item
            let fetch = fetch(request, URLText.wire(item.url) ?? "")
            do throws(ClientError) {
                guard !fetch.url.isEmpty else {
                    let detail = "this is not a URL: it holds spaces or is too long"
                    settle(request, item, FetchOutcome(url: item.url, code: "malformed-url", detail: detail))
                    continue
                }
                try session.connection.fetch(fetch)
            } catch {
                settle(request, item, FetchOutcome(url: item.url, code: "bad-header", detail: error.description))
            }
        }
        readOn()
    }

    /// Reads more of the list once all of it that is known was asked for.
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

    /// A request for a URL.
    private func fetch(_ request: RequestID, _ url: String) -> Fetch {
        var fetch = firstFetch ?? options.fetch(handler, request, url, body: body)
        if firstFetch == nil { firstFetch = fetch }
        fetch.request = request
        fetch.url = url
        fetch.options.streams = stream != nil
        fetch.options.takes = takesFiles == true
        if bar != nil { fetch.options.progressMilliseconds = 200 }
        return fetch
    }

    private func settle(_ request: RequestID, _ item: Item, _ outcome: FetchOutcome) {
        underWay[request] = nil
        if !received.isEmpty { received[request] = nil }
        tally.count(outcome)
        if outcome.code != nil {
            bar?.clear()
            Complaint.say(outcome.sentence(verbosely: isVerbose))
        } else if isVerbose, let sentence = outcome.cacheSentence {
            bar?.clear()
            Complaint.say(sentence)
        }
        if lines != nil { tell(item.index, outcome) }
    }

    private func tell(_ index: Int, _ outcome: FetchOutcome) {
        var line = JSONLine()
        line.member("index", index + 1)
        outcome.write(to: &line)
        lines?.add(line.finished())
    }

    /// Writes what was told.
    private func flush() {
        guard lines != nil else { return }
        bar?.clear()
        lines?.flush()
        // The event of the signal follows by itself.
        if let obstacle = lines?.obstacle, obstacle.status != .interrupted { session?.end(obstacle) }
    }
}
