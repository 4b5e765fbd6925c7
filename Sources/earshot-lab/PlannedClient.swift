internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Client that executes a plan, and records its requests and their results in a journal.
final class PlannedClient {
    /// Header field by which the origin identifies the version of a body.
    private static let generationField = "x-generation"

    private let loop: EventLoop
    private let journal: JournalFile
    private let onIdle: () -> Void
    private var connection: ClientConnection?
    /// Open requests, with the delay before their files are read.
    private var openRequestDelays: [RequestKey: Duration] = [:]
    private var handlers: [RequestID: HandlerID] = [:]
    private var remainingSteps: Int
    /// Number of removals and cancellations without a reply, and of unread files.
    private var unfinishedOperations = 0
    private var brokerName = "-"
    private var hasReportedIdle = false

    /// - Parameter onIdle: Called once, after the plan is executed and all requests have ended.
    init(
        folder: RuntimeFolder, window: Int, lease: Duration, steps: [PlanStep], journal: JournalFile,
        loop: EventLoop, onIdle: @escaping () -> Void
    ) throws {
        self.loop = loop
        self.journal = journal
        self.onIdle = onIdle
        remainingSteps = steps.count
        connection = try ClientConnection(
            endpoint: folder.busEndpoint, window: window, lease: lease, loop: loop
        ) { [unowned self] in handle($0) }
        for step in steps {
            loop.setTimer(after: step.delay) { [unowned self] in executeAction(step.action) }
        }
    }

    /// Error that ended the connection permanently.
    var failure: (any Error)? { connection?.failure }

    /// Disconnects from the bus.
    func close() {
        connection?.close()
        journal.appendEvent("bye")
    }

    // MARK: Plan

    private func executeAction(_ action: PlanStep.Action) {
        remainingSteps -= 1
        switch action {
        case .submit(let fetch, let hold): submit(fetch, hold)
        case .cancel(let request): cancel(request)
        case .remove(let pattern):
            journal.appendEvent("remove", pattern.description)
            dropOpenRequests { pattern.matches($0.handler) }
            unfinishedOperations += 1
            connection?.remove(pattern)
        case .watch(let pattern):
            journal.appendEvent("watch", pattern.description)
            connection?.subscribe(pattern)
        case .unwatch(let pattern):
            journal.appendEvent("unwatch", pattern.description)
            connection?.unsubscribe(pattern)
        }
        reportIfIdle()
    }

    private func submit(_ fetch: Fetch, _ hold: Duration) {
        let key = RequestKey(fetch.handler, fetch.request)
        if fetch.options.replacesHandler { dropOpenRequests { $0.handler == fetch.handler } }
        journal.appendEvent("request", fetch.request.description, fetch.handler.description, fetch.url)
        openRequestDelays[key] = hold
        handlers[fetch.request] = fetch.handler
        do {
            try connection?.fetch(fetch)
        } catch {
            openRequestDelays[key] = nil
            journal.appendEvent("refused", fetch.request.description, "not-said")
        }
    }

    private func cancel(_ request: RequestID) {
        guard let handler = handlers[request] else { return }
        let key = RequestKey(handler, request)
        guard openRequestDelays.removeValue(forKey: key) != nil else { return }
        journal.appendEvent("drop", request.description)
        unfinishedOperations += 1
        connection?.cancel(key)
    }

    private func dropOpenRequests(_ isMeant: (RequestKey) -> Bool) {
        for key in openRequestDelays.keys.filter(isMeant) {
            openRequestDelays[key] = nil
            journal.appendEvent("drop", key.request.description)
        }
    }

    // MARK: Events

    private func handle(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body):
            requestEnded(delivery, body)
        case .cancelled(let key, _):
            journal.appendEvent("cancelled", key.request.description)
            unfinishedOperations -= 1
        case .removed(let pattern, let count):
            journal.appendEvent("removed", pattern.description, String(count))
            unfinishedOperations -= 1
        case .messageRefused(let reply):
            journal.appendEvent("refused", reply.key?.request.description ?? "-", reply.code)
            if let key = reply.key { openRequestDelays[key] = nil }
        case .state(.connected(let instance)):
            brokerName = instance.description
            journal.appendEvent("state", brokerName)
        case .state(let state):
            journal.appendEvent("state", "\(state)")
        case .accepted, .progress, .queryAnswer, .settingChanged: break
        }
        reportIfIdle()
    }

    private func requestEnded(_ delivery: DeliveredTerminal, _ body: [UInt8]) {
        let terminal = delivery.terminal
        let name = terminal.request.description
        // The Python package adds `~` and a number to the ID of a request that it repeats.
        let fault = String(name.prefix { $0 != "~" })
        journal.appendEvent(
            "received", terminal.handler.description, name, fault, Self.outcomeWord(terminal), brokerName)
        guard let hold = openRequestDelays[delivery.key], delivery.fetch != nil else {
            connection?.finishDelivery(delivery)
            return
        }
        guard delivery.isFile else {
            openRequestDelays[delivery.key] = nil
            return journalTerminal(terminal, SHA256.digest(of: body.span).hex)
        }
        unfinishedOperations += 1
        loop.setTimer(after: hold) { [unowned self] in
            unfinishedOperations -= 1
            readBodyFile(delivery)
            reportIfIdle()
        }
    }

    /// Reads the body from its file, unless the request was dropped meanwhile.
    private func readBodyFile(_ delivery: DeliveredTerminal) {
        guard openRequestDelays[delivery.key] != nil, let connection else {
            connection?.finishDelivery(delivery)
            return
        }
        if let digest = Self.digest(of: delivery.terminal.response?.bodyFilePath ?? "") {
            openRequestDelays[delivery.key] = nil
            journalTerminal(delivery.terminal, digest)
            return connection.finishDelivery(delivery)
        }
        journal.appendEvent("lost", delivery.key.request.description)
        if !connection.resubmitRequest(of: delivery) {
            openRequestDelays[delivery.key] = nil
            journal.appendEvent(
                "end", delivery.key.request.description, brokerName, "internal", "-", "0", "-", "-", "-")
        }
    }

    private func journalTerminal(_ terminal: Terminal, _ digest: String) {
        let response = terminal.response
        let code: String
        let status: Int?
        switch terminal.outcome {
        case .result(let number, _): (code, status) = ("-", number)
        case .failed(let failure): (code, status) = (failure.code, failure.status)
        }
        journal.appendEvent(
            "end", terminal.request.description, brokerName, code, status.map(String.init) ?? "-",
            String(response?.bodyByteCount ?? 0), response?.sha256 ?? "-", response == nil ? "-" : digest,
            Self.generationText(response?.httpFields ?? []))
    }

    private func reportIfIdle() {
        guard remainingSteps == 0, openRequestDelays.isEmpty, unfinishedOperations == 0, !hasReportedIdle else {
            return
        }
        hasReportedIdle = true
        journal.appendEvent("idle")
        onIdle()
    }

    // MARK: Terminals

    private static func outcomeWord(_ terminal: Terminal) -> String {
        switch terminal.outcome {
        case .result(let status, _): String(status)
        case .failed(let failure): failure.code
        }
    }

    private static func generationText(_ fields: [UInt8]) -> String {
        for line in String(decoding: fields, as: UTF8.self).split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 1)
            if parts.count == 2, parts[0].lowercased() == generationField {
                return String(parts[1].drop { $0 == " " })
            }
        }
        return "-"
    }

    /// Returns the SHA-256 of a file; nil if it does not exist.
    private static func digest(of path: String) -> String? {
        let file = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard file >= 0 else { return nil }
        defer { Glibc.close(file) }
        var hash = SHA256()
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe Glibc.read(file, &buffer, buffer.count)
            guard count > 0 else { break }
            hash.update(buffer.span.extracting(0..<count))
        }
        return hash.finalize().hex
    }
}

/// Journal of a client: one line per event, written by a single call before anything follows from it. After a kill, at
/// most the last line is incomplete.
///
/// A line consists of the time on the monotonic clock in milliseconds, a verb, and words separated by one space.
final class JournalFile {
    private let descriptor: Int32
    private let output: Output

    /// Creates a new file.
    ///
    /// - Throws: `SystemError` if it cannot be written.
    init(_ path: String) throws(SystemError) {
        descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw SystemError("open a journal", number: errno) }
        output = Output(descriptor)
    }

    deinit { close(descriptor) }

    /// Appends an event. Ends the process if the journal cannot be written, because the run is useless then.
    func appendEvent(_ verb: String, _ words: String...) {
        let time = LoopTime.readClock().nanoseconds / 1_000_000
        let line = ([String(time), verb] + words).joined(separator: " ") + "\n"
        guard output.write(Array(line.utf8)) == .allWritten else { exit(EXIT_FAILURE) }
    }
}
