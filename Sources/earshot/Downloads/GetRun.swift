internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One run of `earshot get`: keeps a bounded number of pending requests, and handles their events.
final class GetRun {
    /// Maximum number of pending requests. It is also the delivery window, so none waits for an acknowledgement.
    static let maximumPendingRequests = 1024
    /// Maximum time for the answer to a removal after an interrupt.
    private static let removalAnswerTimeout = Duration.seconds(2)

    /// Progress of the removal after a signal.
    private enum Removal: Equatable {
        case none
        /// The broker has not answered this number of messages.
        case awaitingAnswers(Int)
    }

    private var downloadList: DownloadList
    private var requestTemplate: RequestTemplate
    private var output: DownloadOutput
    private let report: DownloadReport
    /// Limit of pending requests to one origin; nil for none.
    private let jobLimit: JobLimit?
    /// Cookies from and for a file; nil for none.
    private let cookies: CookieExchange?
    /// Program for each result; nil for none.
    private let hook: HookProgram?
    private var hooks: HookRuns?
    /// Source of further URLs; nil if all are known.
    private var listInput: ListInput?
    private var session: BusSession?
    private var pendingItems: [RequestID: OutputItem] = [:]
    private var removal = Removal.none
    /// Whether the first requests were sent.
    private var hasBegun = false

    init(
        _ list: DownloadList, _ requests: RequestTemplate, _ output: DownloadOutput, _ report: DownloadReport,
        limit: JobLimit?, cookies: CookieExchange?, hook: HookProgram?
    ) {
        self.downloadList = list
        self.requestTemplate = requests
        self.output = output
        self.report = report
        self.jobLimit = limit
        self.cookies = cookies
        self.hook = hook
    }

    private var isInterrupted: Bool { removal != .none }

    private var isDone: Bool {
        if isInterrupted { return removal == .awaitingAnswers(0) }
        return downloadList.isExhausted && pendingItems.isEmpty && hooks?.count ?? 0 == 0
    }

    /// Fetches all URLs, unless an error or a signal ends the run.
    func run(over session: BusSession) throws -> ExitStatus {
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
            listInput = nil
            output.discardStream()
            self.session = nil
        }
        do {
            try session.run {
                guard isDone else { return false }
                cookies?.queryJar(session.connection)
                return cookies?.isComplete ?? true
            }
        } catch {
            keepPartialBodies()
            try? saveFailures()
            throw error
        }
        keepPartialBodies()
        try saveFailures()
        try cookies?.save()
        if !isInterrupted, downloadList.count == 0 {
            throw CommandError(.noInput, "the list is empty; give at least one URL")
        }
        report.summarize(downloadList, output, now: session.loop.now, isInterrupted: isInterrupted)
        return isInterrupted ? .interrupted : report.tally.status
    }

    private func begin(_ session: BusSession) {
        self.session = session
        session.connection.bodyFolder = output.destination.bodyFolder
        session.onSignal = { [unowned self] in handleInterrupt() }
        session.beforeMessage = { [report] in report.clear() }
        report.begin(
            session.loop, isReserved: output.destination.isTerminal, interrupt: session.signalDescriptor,
            ProgressView.Source(
                snapshot: { [unowned self] in
                    RunSnapshot(urlCount: downloadList.count, isReadingURLs: downloadList.isOpen, tally: report.tally)
                },
                oldestRequest: { [unowned self] in pendingItems.min { $0.value.index < $1.value.index }?.key },
                requestWaitReason: { [unowned self] in
                    session.connection.query(.explainRequest(requestTemplate.handler, $0))
                }))
        hooks = hook.map { program in HookRuns(program, session.loop) { [report] in report.write($0) } }
    }

    /// Writes the JSON lines of a pass.
    private func writeLines() {
        if let error = report.flush() { session?.end(with: error) }
    }

    // MARK: Events

    func handle(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): terminalArrived(delivery, body)
        case .progress(let progress): progressed(progress)
        case .messageRefused(let reply): requestRefused(reply)
        case .removed: if isInterrupted { removal = .awaitingAnswers(0) }
        case .state(.connected): handleConnected()
        case .cancelled:
            if requestTemplate.isShared, case .awaitingAnswers(let count) = removal {
                removal = .awaitingAnswers(max(0, count - 1))
            }
        case .queryAnswer(let query, let json):
            guard let session, cookies?.handleAnswer(query, json, session) != true else { return }
            if case .settings = query { compareJobLimit(json) } else { report.showWaitReason(json) }
        case .accepted, .settingChanged, .state: break
        }
    }

    /// Sends the first requests, once the location of the spool is known.
    private func handleConnected() {
        guard let session, !hasBegun, !isInterrupted else { return }
        hasBegun = true
        session.connection.takesFiles = output.canMoveFiles(from: session.connection.spool)
        cookies?.sendFileCookies(session.connection)
        if jobLimit != nil { session.connection.query(.settings) }
        if downloadList.readsInput { listInput = ListInput(session.loop) { [unowned self] in entriesArrived($0) } }
        submit()
    }

    private func compareJobLimit(_ settings: [UInt8]) {
        switch jobLimit?.adjustment(for: settings) {
        case .raiseOriginLimit(let setting): session?.connection.changeSetting(setting)
        case .warning(let text): report.write(text)
        case nil: break
        }
    }

    /// Adds URLs from standard input, or handles its end.
    private func entriesArrived(_ new: [ListEntry]) {
        downloadList.add(new)
        guard let listInput, listInput.hasEnded else { return submit() }
        self.listInput = nil
        downloadList.close()
        if let fault = listInput.fault { session?.end(with: fault) }
        submit()
    }

    private func progressed(_ progress: Progress) {
        guard let item = pendingItems[progress.request], !isInterrupted, !output.isUnwantedErrorPage(progress) else {
            return
        }
        report.progressed(progress, of: item)
        if output.destination.isTerminal { report.clear() }
        do throws(OutputFailure) {
            try output.progressed(progress)
        } catch {
            switch error {
            case .readerClosed: session?.end(with: CommandError(.cannotWrite))
            // The event of a signal follows. A missing file is found at the end, too.
            case .interrupted, .sourceLost: return
            case .cannotWrite(let sentence):
                session?.connection.cancel(RequestKey(progress.handler, progress.request))
                endItem(
                    progress.request, item,
                    FetchOutcome(url: item.entry.url, code: FetchOutcome.writeFailedCode, detail: sentence))
            }
        }
    }

    private func terminalArrived(_ delivery: DeliveredTerminal, _ body: [UInt8]) {
        guard let session, !isInterrupted else { return }
        let request = delivery.key.request
        guard let item = pendingItems[request] else { return acknowledgeForeign(delivery, session) }
        let outcome = FetchOutcome(url: item.entry.url, delivery.terminal)
        if output.hasHeaderOutput || output.destination.isTerminal { report.clear() }
        do throws(CommandError) { try output.writeHead(outcome) } catch {
            // The event of the signal follows.
            if error.status != .interrupted { session.end(with: error) }
            return
        }
        let body = OutputBody(of: delivery, body)
        switch output.write(body, of: item, outcome, storeFailure: delivery.storeFailure) {
        case .bodyMissing(let failure):
            if session.connection.resubmitRequest(of: delivery) { return }
            session.connection.finishDelivery(delivery)
            endItem(request, item, failure)
        case .finished(let outcome):
            session.connection.finishDelivery(delivery)
            endItem(request, item, outcome)
        case .keptExisting(let reason, let path):
            session.connection.finishDelivery(delivery)
            skip(request, item, reason, path: path)
        case .outputClosed: return session.end(with: CommandError(.cannotWrite))
        // The event of the signal follows.
        case .interrupted: return
        }
        submit()
    }

    /// Acknowledges a terminal of another program's request under the same handler, unless that would delete a durable
    /// result.
    private func acknowledgeForeign(_ delivery: DeliveredTerminal, _ session: BusSession) {
        guard delivery.terminal.isDurable else { return session.connection.finishDelivery(delivery) }
        let sentence =
            "the handler \(requestTemplate.handler) has durable results of other requests; receive them first with "
            + "`earshot watch -d DIR \(requestTemplate.handler)`, or give another --handler"
        session.end(with: CommandError(.usageError, sentence))
    }

    private func requestRefused(_ reply: RefusedMessage) {
        // The settings of another user's bus.
        if reply.subject == .query { return }
        let detail = reply.detail ?? "rejected by the broker"
        guard let request = reply.key?.request, let item = pendingItems[request] else {
            session?.end(with: CommandError(.generalError, "\(detail) (\(reply.code))"))
            return
        }
        endItem(request, item, FetchOutcome(url: item.entry.url, code: reply.code, detail: detail))
        submit()
    }

    // MARK: Requests

    private func submit() {
        while !isInterrupted, pendingItems.count + (hooks?.count ?? 0) < GetRun.maximumPendingRequests,
            let item = downloadList.takeNext(name: { output.reserveName(of: $0) })
        {
            submit(item)
        }
        guard let listInput else { return }
        if !isInterrupted, downloadList.needsMore() { listInput.resume() } else { listInput.pause() }
    }

    private func submit(_ item: OutputItem) {
        guard let session, let request = requestTemplate.requestID(of: item) else { return }
        let existing = output.existingFile(item)
        if output.files.noClobber, let existing { return skip(nil, item, "exists", path: existing.path) }
        if let refusal = RequestTemplate.rejectionOutcome(of: item.entry) { return endItem(request, item, refusal) }
        var item = item
        let fetch = requestTemplate.makeFetch(
            request, &item, existing: existing, path: output.destination.expectedPath(item),
            streams: output.isStreaming, progressMilliseconds: report.progressMilliseconds)
        pendingItems[request] = item
        do throws(ClientError) {
            try session.connection.fetch(fetch)
        } catch {
            endItem(request, item, FetchOutcome(url: item.entry.url, code: "bad-header", detail: error.description))
        }
    }

    /// Keeps the existing file of an item.
    ///
    /// - Parameter request: the item's request; nil without one.
    private func skip(_ request: RequestID?, _ item: OutputItem, _ reason: String, path: String?) {
        if let request {
            pendingItems[request] = nil
            output.forgetBody(of: request)
        }
        downloadList.itemEnded(item)
        report.skipped(request, item, reason, path: path)
    }

    private func endItem(_ request: RequestID, _ item: OutputItem, _ outcome: FetchOutcome) {
        pendingItems[request] = nil
        output.requestEnded(request, item, outcome)
        downloadList.itemEnded(item)
        report.ended(request, item, outcome)
        // The next request may have waited for the end of a program.
        hooks?.enqueue(outcome, RequestKey(requestTemplate.handler, request)) { [unowned self] in submit() }
    }

    // MARK: End

    /// Removes the pending requests at the first signal and awaits the answer. A second signal ends the run at once.
    private func handleInterrupt() {
        guard let session else { return }
        guard !isInterrupted else { return session.end(with: CommandError(.interrupted)) }
        if requestTemplate.isShared {
            // Requests of other programs under the handler stay, and may be durable.
            removal = .awaitingAnswers(pendingItems.count)
            for request in pendingItems.keys { session.connection.cancel(RequestKey(requestTemplate.handler, request)) }
        } else {
            removal = .awaitingAnswers(1)
            session.connection.remove(.handler(requestTemplate.handler))
        }
        session.loop.setTimer(after: GetRun.removalAnswerTimeout) { session.end(with: CommandError(.interrupted)) }
    }

    /// Keeps the bytes of the bodies that have not ended.
    private func keepPartialBodies() {
        output.keepPartialBodies(of: pendingItems, isPulling: session?.connection.isPulling ?? false)
    }

    /// Writes the list of failures. It includes the URLs without a result, after an early end.
    private func saveFailures() throws(CommandError) {
        guard report.hasFailureList else { return }
        for item in pendingItems.values.sorted(by: { $0.index < $1.index }) {
            report.addUnfinished(item, cause: "the run ended before the result")
        }
        for item in downloadList.takeAllUnstarted(name: { output.reserveName(of: $0) })
        where !output.files.noClobber || output.existingFile(item) == nil {
            report.addUnfinished(item, cause: "the run ended before the request")
        }
        try report.finishFailures()
    }
}
