internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One run of `earshot get`: keeps a bounded number of pending requests, and passes on what happens to them.
final class GetRun {
    /// Maximum number of pending requests. It is also the delivery window, so none waits for an acknowledgement.
    static let outstanding = 1024
    /// Maximum time for the answer to a removal after an interrupt.
    private static let farewell = Duration.seconds(2)

    /// Progress of the removal after a signal.
    private enum Removal: Equatable {
        case none
        /// The broker has not answered this number of messages.
        case requested(Int)
    }

    private var list: DownloadList
    private var requests: RequestTemplate
    private var output: DownloadOutput
    private let report: DownloadReport
    /// Limit of pending requests to one origin; nil for none.
    private let limit: JobLimit?
    /// Cookies from and for a file; nil for none.
    private let cookies: CookieExchange?
    /// Program for each result; nil for none.
    private let hook: HookProgram?
    private var hooks: HookRuns?
    /// Source of further URLs; nil if all are known.
    private var input: ListInput?
    private var session: BusSession?
    private var pendingItems: [RequestID: OutputItem] = [:]
    private var removal = Removal.none
    /// Whether the first requests were sent.
    private var hasBegun = false

    init(
        _ list: DownloadList, _ requests: RequestTemplate, _ output: DownloadOutput, _ report: DownloadReport,
        limit: JobLimit?, cookies: CookieExchange?, hook: HookProgram?
    ) {
        self.list = list
        self.requests = requests
        self.output = output
        self.report = report
        self.limit = limit
        self.cookies = cookies
        self.hook = hook
    }

    private var isInterrupted: Bool { removal != .none }

    private var isDone: Bool {
        if isInterrupted { return removal == .requested(0) }
        return list.isExhausted && pendingItems.isEmpty && hooks?.count ?? 0 == 0
    }

    /// Fetches all URLs, unless an error or a signal ends the run.
    func carryOut(over session: BusSession) throws -> ExitStatus {
        begin(session)
        // Added after the hook of the connection, which emits events.
        let passEnd = session.loop.addHook { [unowned self] in
            writeLines()
            return .untilEvent
        }
        defer {
            session.loop.removeHook(passEnd)
            writeLines()
            hooks?.stop()
            report.end()
            input = nil
            output.discardStream()
            self.session = nil
        }
        do {
            try session.run {
                guard isDone else { return false }
                cookies?.finish(session.connection)
                return cookies?.isComplete ?? true
            }
        } catch {
            keepParts()
            try? saveFailures()
            throw error
        }
        keepParts()
        try saveFailures()
        try cookies?.save()
        if !isInterrupted, list.count == 0 { throw CommandError(.noInput, "the list is empty; give at least one URL") }
        report.summarize(list, output, now: session.loop.now, isInterrupted: isInterrupted)
        return isInterrupted ? .interrupted : report.tally.status
    }

    private func begin(_ session: BusSession) {
        self.session = session
        session.connection.bodyFolder = output.destination.bodyFolder
        session.onSignal = { [unowned self] in interrupted() }
        session.beforeMessage = { [report] in report.clear() }
        report.begin(
            session.loop, isReserved: output.destination.isTerminal, interrupt: session.signalDescriptor,
            ProgressView.Source(
                state: { [unowned self] in
                    RunSnapshot(urlCount: list.count, isListing: list.isOpen, tally: report.tally)
                },
                oldestRequest: { [unowned self] in pendingItems.min { $0.value.index < $1.value.index }?.key },
                requestReason: { [unowned self] in session.connection.query(.why(requests.handler, $0)) }))
        hooks = hook.map { program in HookRuns(program, session.loop) { [report] in report.write($0) } }
    }

    /// Writes the JSON lines of a pass.
    private func writeLines() {
        if let obstacle = report.flush() { session?.end(obstacle) }
    }

    // MARK: Events

    func handle(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .progress(let progress): progressed(progress)
        case .refused(let reply): requestRefused(reply)
        case .removed: if isInterrupted { removal = .requested(0) }
        case .state(.connected): connected()
        case .cancelled:
            if requests.isShared, case .requested(let count) = removal { removal = .requested(max(0, count - 1)) }
        case .answer(let query, let json):
            guard let session, cookies?.answered(query, json, session.connection) != true else { return }
            if case .settings = query { compareLimit(json) } else { report.answered(json) }
        case .accepted, .changed, .state: break
        }
    }

    /// Sends the first requests, once the location of the spool is known.
    private func connected() {
        guard let session, !hasBegun, !isInterrupted else { return }
        hasBegun = true
        session.connection.takesFiles = output.takesFiles(of: session.connection.spool)
        cookies?.begin(session.connection)
        if limit != nil { session.connection.query(.settings) }
        if list.readsInput { input = ListInput(session.loop) { [unowned self] in listed($0) } }
        submit()
    }

    private func compareLimit(_ settings: [UInt8]) {
        switch limit?.step(after: settings) {
        case .raise(let setting): session?.connection.set(setting)
        case .warning(let text): report.write(text)
        case nil: break
        }
    }

    /// Adds URLs from standard input, or handles its end.
    private func listed(_ new: [ListEntry]) {
        list.add(new)
        guard let input, input.hasEnded else { return submit() }
        self.input = nil
        list.close()
        if let fault = input.fault { session?.end(fault) }
        submit()
    }

    private func progressed(_ progress: Progress) {
        guard let item = pendingItems[progress.request], !isInterrupted, !output.isUnwantedPage(progress) else {
            return
        }
        report.progressed(progress, of: item)
        if output.destination.isTerminal { report.clear() }
        do throws(OutputFailure) {
            try output.progressed(progress)
        } catch {
            switch error {
            case .broken: session?.end(CommandError(.cannotWrite))
            // The event of a signal follows. A missing file is found at the end, too.
            case .interrupted, .lostSource: return
            case .cannotWrite(let sentence):
                session?.connection.cancel(RequestKey(progress.handler, progress.request))
                end(
                    progress.request, item,
                    FetchOutcome(url: item.entry.url, code: FetchOutcome.writeFailed, detail: sentence))
            }
        }
    }

    private func ended(_ delivery: DeliveredTerminal, _ body: [UInt8]) {
        guard let session, !isInterrupted else { return }
        let request = delivery.key.request
        guard let item = pendingItems[request] else { return acknowledge(foreign: delivery, session) }
        let outcome = FetchOutcome(url: item.entry.url, delivery.terminal)
        if output.hasHeads || output.destination.isTerminal { report.clear() }
        do throws(CommandError) { try output.writeHead(outcome) } catch {
            // The event of the signal follows.
            if error.status != .interrupted { session.end(error) }
            return
        }
        let body = OutputBody(of: delivery, body)
        switch output.write(body, of: item, outcome, storeFailure: delivery.storeFailure) {
        case .missing(let failure):
            if session.connection.resubmit(delivery) { return }
            session.connection.finish(delivery)
            end(request, item, failure)
        case .ended(let outcome):
            session.connection.finish(delivery)
            end(request, item, outcome)
        case .kept(let reason, let path):
            session.connection.finish(delivery)
            skip(request, item, reason, path: path)
        case .closed: return session.end(CommandError(.cannotWrite))
        // The event of the signal follows.
        case .interrupted: return
        }
        submit()
    }

    /// Acknowledges a terminal of another program's request under the same handler, unless that would delete a durable
    /// result.
    private func acknowledge(foreign delivery: DeliveredTerminal, _ session: BusSession) {
        guard delivery.terminal.isDurable else { return session.connection.finish(delivery) }
        let sentence =
            "the handler \(requests.handler) has durable results of other requests; receive them first with "
            + "`earshot watch -d DIR \(requests.handler)`, or give another --handler"
        session.end(CommandError(.usage, sentence))
    }

    private func requestRefused(_ reply: RefusedMessage) {
        // The settings of another user's bus.
        if reply.subject == .query { return }
        let detail = reply.detail ?? "rejected by the broker"
        guard let request = reply.key?.request, let item = pendingItems[request] else {
            session?.end(CommandError(.other, "\(detail) (\(reply.code))"))
            return
        }
        end(request, item, FetchOutcome(url: item.entry.url, code: reply.code, detail: detail))
        submit()
    }

    // MARK: Requests

    private func submit() {
        while !isInterrupted, pendingItems.count + (hooks?.count ?? 0) < GetRun.outstanding,
            let item = list.takeNext(name: { output.reserveName(of: $0) })
        {
            submit(item)
        }
        guard let input else { return }
        if !isInterrupted, list.needsMore() { input.resume() } else { input.pause() }
    }

    private func submit(_ item: OutputItem) {
        guard let session, let request = requests.request(of: item) else { return }
        let existing = output.existingFile(item)
        if output.files.noClobber, let existing { return skip(nil, item, "exists", path: existing.path) }
        if let refusal = RequestTemplate.refusal(of: item) { return end(request, item, refusal) }
        var item = item
        let fetch = requests.fetch(
            request, &item, existing: existing, path: output.destination.expectedPath(item),
            streams: output.isStreaming, progressMilliseconds: report.progressMilliseconds)
        pendingItems[request] = item
        do throws(ClientError) {
            try session.connection.fetch(fetch)
        } catch {
            end(request, item, FetchOutcome(url: item.entry.url, code: "bad-header", detail: error.description))
        }
    }

    /// Keeps the existing file of an item.
    ///
    /// - Parameter request: the item's request; nil without one.
    private func skip(_ request: RequestID?, _ item: OutputItem, _ reason: String, path: String?) {
        if let request {
            pendingItems[request] = nil
            output.forget(request)
        }
        list.ended(item)
        report.skipped(request, item, reason, path: path)
    }

    private func end(_ request: RequestID, _ item: OutputItem, _ outcome: FetchOutcome) {
        pendingItems[request] = nil
        output.ended(request, item, outcome)
        list.ended(item)
        report.ended(request, item, outcome)
        // The next request may have waited for the end of a program.
        hooks?.add(outcome, RequestKey(requests.handler, request)) { [unowned self] in submit() }
    }

    // MARK: End

    /// Removes the pending requests at the first signal and awaits the answer. A second signal ends the run at once.
    private func interrupted() {
        guard let session else { return }
        guard !isInterrupted else { return session.end(CommandError(.interrupted)) }
        if requests.isShared {
            // Requests of other programs under the handler stay, and may be durable.
            removal = .requested(pendingItems.count)
            for request in pendingItems.keys { session.connection.cancel(RequestKey(requests.handler, request)) }
        } else {
            removal = .requested(1)
            session.connection.remove(.handler(requests.handler))
        }
        session.loop.setTimer(after: GetRun.farewell) { session.end(CommandError(.interrupted)) }
    }

    /// Keeps the bytes of the bodies that have not ended.
    private func keepParts() { output.keepParts(of: pendingItems, isPulling: session?.connection.isPulling ?? false) }

    /// Writes the list of failures. It includes the URLs without a result, after an early end.
    private func saveFailures() throws(CommandError) {
        guard report.hasFailureList else { return }
        for item in pendingItems.values.sorted(by: { $0.index < $1.index }) {
            report.addUnfinished(item, cause: "the run ended before the result")
        }
        for item in list.takeRest(name: { output.reserveName(of: $0) })
        where !output.files.noClobber || output.existingFile(item) == nil {
            report.addUnfinished(item, cause: "the run ended before the request")
        }
        try report.finishFailures()
    }
}
