internal import EarshotCore
internal import EarshotQueries
internal import EarshotWire

/// Clients, a worker and a disk around cores that are killed at random times, determined by a seed.
struct DurableWorld {
    private struct Client {
        let window: Int
        /// Principal; nil for the administrator.
        let principal: PrincipalName?
        var lastSequence: UInt64 = 0
        var lastAcknowledged: UInt64 = 0
        var receivedNames: [RequestName] = []

        var isWindowFull: Bool { lastSequence - lastAcknowledged >= UInt64(window) }
    }

    /// Expected effect of a message that waits for rows on the disk, or of a FETCH behind the removal that it asks for.
    private enum WaitingMessage {
        case request(RequestName, url: String)
        case removal(Removal)
    }

    private enum Removal {
        case request(RequestName)
        /// All requests that the handler has when the removal is carried out.
        case handler(HandlerID)
    }

    /// Principals of clients. Their handlers have the same names, so each name exists in several namespaces.
    private static let principals = [nil, PrincipalName("key:1001"), PrincipalName("key:1002")]
    private static let handlers = (0..<6).compactMap { HandlerID("d/h\($0)") }

    private var random: SeededGenerator
    private var limits = CoreLimits()
    private var core: BrokerCore
    private var disk: SimulatedDisk
    private var promises = DurablePromises()
    private var now = MonotonicTime(nanoseconds: 0)
    private var calendarOffsetSeconds: Int64 = 1_000_000
    private var clients: [ClientID: Client] = [:]
    private var worker = WorkerID(rawValue: 0)
    private var jobs: [Job] = []
    /// Contents of the bodies held by the core.
    private var bodyContents: [BodyID: String] = [:]
    private var spool = SimulatedBodySpool()
    /// Clients whose connections the core has closed.
    private var closedClients: Set<ClientID> = []
    /// Messages that the core has not carried out.
    private var waitingMessages: [ClientID: WaitingMessage] = [:]
    private var lastNumber: UInt64 = 0
    private var lastNameNumber = 0
    private var lastURLNumber = 0
    private var isEnding = false
    private(set) var report = DurableReport()

    init(seed: UInt64, canary: DurableCanary?) {
        random = SeededGenerator(seed: seed)
        disk = SimulatedDisk(canary: canary)
        // Results wait on disk with few or many terminals before them. Waiting bodies are in the spool entirely, partly or
        // not at all.
        limits.maximumWaitingTerminals = [1, 3, 1_000][random.number(below: 3)]
        limits.maximumWaitingBodyBytes = [0, 60, 1 << 20][random.number(below: 3)]
        limits.spoolRetryMilliseconds = [20, 1_000][random.number(below: 2)]
        core = Self.makeCore(1, limits)
        connectWorker()
    }

    private static func makeCore(_ life: UInt64, _ limits: CoreLimits) -> BrokerCore {
        var limits = limits
        limits.maximumConcurrentDurableReads = 2
        limits.maximumRequestRemovalsPerPass = 3
        limits.maximumResumedMessagesPerPass = 1
        let workerLimits = WorkerLimits(broker: BrokerInstance(rawValue: life), spoolPath: "/spool")
        var features = ShellFeatures()
        features.isStoringDurableRequests = true
        return BrokerCore(
            workerLimits: workerLimits, secret: nil, limits: limits, features: features,
            answering: Queries.answer, seed: life)
    }

    private mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    // MARK: Steps

    mutating func performRandomStep() throws(Violation) {
        now = now.advanced(byMilliseconds: random.number(below: 20))
        switch random.number(below: 1_000) {
        case ..<240: try submitRequest()
        case ..<420: disk.executeActions(1 + random.number(below: 6))
        case ..<560: try handleDiskAnswers(1 + random.number(below: 6))
        case ..<710: finishJob()
        case ..<790: acknowledgeTerminals()
        case ..<835: changeSubscription()
        case ..<865: sendRemoval()
        case ..<895: disconnectRandomClient()
        case ..<935: connectRandomClient()
        case ..<960: retryFailures()
        case ..<975: disk.isFull = random.boolean(perMille: 300)
        case ..<980: spool.isFull = random.boolean(perMille: 300)
        case ..<988: now = now.advanced(byMilliseconds: random.number(below: 20_000))
        default: try restartBroker()
        }
        try runPass()
    }

    /// Lets all work finish, kills the broker once more, and claims all results.
    mutating func finish() throws(Violation) {
        disk.isFull = false
        spool.isFull = false
        isEnding = true
        try runUntilIdle()
        for client in clients.keys.sorted(by: { $0.rawValue < $1.rawValue }) { disconnectClient(client) }
        try runUntilIdle()
        try restartBroker()
        try runUntilIdle()
        let promised = promises.openNames
        let claimers = Self.principals.map { connectClient(window: 4_096, of: $0) }
        for claimer in claimers {
            core.clientMessageReceived(.subscribe(.subtree(Self.rootHandler)), from: claimer, now: now)
        }
        try runUntilIdle()
        let received = claimers.flatMap { clients[$0]?.receivedNames ?? [] }
        guard Set(promised).isSubset(of: received) else {
            throw Violation(
                1, "\(Set(promised).subtracting(received)) were accepted and are not told to who claims them")
        }
        report.claimedResults += received.count
        for claimer in claimers { acknowledgeAll(claimer) }
        try runUntilIdle()
        guard disk.rows.isEmpty else { throw Violation(12, "\(disk.rows.count) rows are left") }
        for claimer in claimers { disconnectClient(claimer) }
        try runUntilIdle()
        guard core.isIdle, core.ledger.isBalanced else { throw Violation(10, "something is left: \(core.ledger)") }
        guard spool.bodies.isEmpty, bodyContents.isEmpty else {
            throw Violation(12, "\(spool.bodies.count + bodyContents.count) bodies are left")
        }
    }

    private static var rootHandler: HandlerID {
        guard let root = HandlerID("d") else { preconditionFailure("d is a handler") }
        return root
    }

    /// Runs until nothing happens for longer than the delay of a retry.
    private mutating func runUntilIdle() throws(Violation) {
        var quiet = 0
        while quiet < 20 {
            disk.executeActions(disk.queuedActionCount)
            try handleDiskAnswers(.max)
            while !jobs.isEmpty { finishJob() }
            now = now.advanced(byMilliseconds: 100)
            try runPass()
            quiet = disk.isIdle && jobs.isEmpty && !core.hasPendingRemovals && waitingMessages.isEmpty ? quiet + 1 : 0
        }
    }

    /// Runs a pass and executes its actions.
    private mutating func runPass() throws(Violation) {
        core.unixTimeSeconds = calendarOffsetSeconds + now.nanoseconds / 1_000_000_000
        core.timePassed(now: now)
        // What the core has sent so far precedes the effect of a message that has waited.
        if !waitingMessages.isEmpty { for action in core.takeActions() { try carryOut(action) } }
        core.dispatch(now: now)
        let actions = core.takeActions()
        for (client, message) in waitingMessages where !core.awaitsDurableRows(client) {
            switch message {
            case .request(let name, let url):
                guard !core.hasPendingRemoval(by: client) else { continue }
                if !isRefused(client, in: actions) { promises.recordRequest(name, url, by: client) }
            case .removal(let removal): recordRemoval(removal, by: client)
            }
            waitingMessages[client] = nil
        }
        // The removals of files are the second part.
        for action in actions + core.takeActions() { try carryOut(action) }
        for client in closedClients.sorted(by: { $0.rawValue < $1.rawValue }) where !isMessageHeld(client) {
            closedClients.remove(client)
            disconnectClient(client)
        }
        for (name, id) in disk.deletedRequests { promises.recordDeletion(name, id) }
        disk.deletedRequests = []
        if let fault = core.audit().first { throw Violation(audit: fault) }
    }

    private mutating func carryOut(_ action: Action) throws(Violation) {
        switch action {
        case .client(.send(let id, .fetchAccepted(let handler, let request))):
            report.acceptedRequests += 1
            let name = RequestName(
                handler: ReferenceModel.principalQualified(handler, of: clients[id]?.principal), request: request)
            try promises.recordAcceptance(name, isOnDisk: disk.hasRow(of: name))
        case .client(.deliverTerminal(let id, let terminal, let body)):
            try recordDelivery(terminal, bodyContent(of: terminal, body), to: id)
        case .spool(.spillBody(let body, let file)):
            if spool.keepContent(bodyContents[body], as: file) {
                bodyContents[body] = nil
            } else {
                core.bodySpillFailed(body, now: now)
            }
        case .spool(.releaseFile(let file)): spool.releaseBody(file)
        case .client(.close(let id, _)): closedClients.insert(id)
        case .worker(.send(_, .job(let job))):
            let disk = disk
            try promises.checkTransferStart(job.url) { disk.hasRow(of: $0) }
            jobs.append(job)
        case .worker(.send(_, .cancelAttempt(let attempt))):
            jobs.removeAll { $0.attempt == attempt }
            core.workerMessageReceived(
                .failed(attempt, code: "cancelled", detail: nil, receivedBytes: 0), body: nil, from: worker, now: now)
        case .spool(.releaseBody(let body)): bodyContents[body] = nil
        case .durable(let requested): submitToDisk(requested)
        default: break
        }
    }

    private mutating func submitToDisk(_ requested: Action.Durable) {
        switch requested {
        case .storeResult(_, let result):
            disk.submit(
                requested, content: result.body.flatMap { bodyContents[$0] } ?? result.file.flatMap { spool.bodies[$0] }
            )
        case .storeRequest(let id, let principal, _, let head):
            if case .fetch(let fetch)? = try? ClientMessage(head: head) {
                let handler = ReferenceModel.principalQualified(fetch.handler, of: principal)
                promises.recordSubmission(RequestName(handler: handler, request: fetch.request), id)
            }
            disk.submit(requested, content: nil)
        case .readRows, .readResult, .reopenRequest, .deleteRequest: disk.submit(requested, content: nil)
        case .setMaximumSize: break
        }
    }

    /// Returns the content of a terminal's body, in memory or in the spool.
    private func bodyContent(of terminal: Terminal, _ body: BodyID?) -> String? {
        if let body { return bodyContents[body] }
        guard let file = terminal.response?.bodyFilePath, SpoolName.isSpilledBody(file) else { return nil }
        return file.split(separator: "/").last.flatMap { spool.bodies[String($0)] }
    }

    private mutating func recordDelivery(_ terminal: Terminal, _ content: String?, to id: ClientID) throws(Violation) {
        guard let client = clients[id] else { throw Violation(2, "a client that is gone is told something") }
        guard terminal.sequence == client.lastSequence + 1 else {
            throw Violation(1, "terminal \(terminal.sequence) follows terminal \(client.lastSequence)")
        }
        var terminal = terminal
        terminal.handler = ReferenceModel.principalQualified(terminal.handler, of: client.principal)
        try promises.recordDelivery(terminal, content, to: id)
        clients[id]?.lastSequence = terminal.sequence
        clients[id]?.receivedNames.append(RequestName(handler: terminal.handler, request: terminal.request))
    }

    // MARK: Events

    /// Whether a removal waits. A request that followed it would be another one than the promise has.
    private var isRemovalWaiting: Bool {
        waitingMessages.values.contains { if case .removal = $0 { true } else { false } }
    }

    private mutating func submitRequest() throws(Violation) {
        guard !isRemovalWaiting, let client = randomReadyClient() else { return }
        let names = promises.reusableNames
        var name: RequestName?
        if !names.isEmpty, random.boolean(perMille: 300) {
            name = qualifiedName(names[random.number(below: names.count)], client)
        }
        if name == nil {
            let handler = Self.handlers[random.number(below: Self.handlers.count)]
            name = RequestID("\(lastNameNumber + 1)").map {
                qualifiedName(RequestName(handler: handler, request: $0), client)
            }
        }
        guard let name else { return }
        if !names.contains(name) { lastNameNumber += 1 }
        var options = Fetch.Options()
        options.isDurable = true
        options.retries = 1
        options.subscribes = random.boolean(perMille: 500)
        if random.boolean(perMille: 15), !core.hasDurableRows {
            options.replacesHandler = true
            for other in names where other.handler == name.handler { recordRequestRemoval(other, by: client) }
        }
        // A new request of a known name has a new URL, by which its terminals are recognised.
        lastURLNumber += 1
        let url = promises.url(of: name) ?? "http://o\(lastURLNumber % 4).test/\(lastURLNumber)"
        var fetch = Fetch(handler: Self.wireHandler(name), request: name.request, url: url)
        fetch.options = options
        core.clientMessageReceived(.fetch(fetch), from: client, now: now)
        if isMessageHeld(client) {
            waitingMessages[client] = .request(name, url: url)
            return
        }
        let actions = core.takeActions()
        // An earlier request of the name may still have the ID.
        if !isRefused(client, in: actions) { promises.recordRequest(name, url, by: client) }
        for action in actions { try carryOut(action) }
    }

    /// Returns whether the ID of a client's FETCH belongs to another request.
    private func isRefused(_ client: ClientID, in actions: [Action]) -> Bool {
        actions.contains { action in
            if case .client(.send(client, .error(let reply))) = action { reply.code == "id-in-use" } else { false }
        }
    }

    private mutating func handleDiskAnswers(_ count: Int) throws(Violation) {
        let taken = disk.answers.prefix(count)
        disk.answers.removeFirst(taken.count)
        for answer in taken {
            switch answer {
            case .rows(let entries): core.durableRowsRead(entries, now: now)
            case .requestStored(let id):
                if let name = disk.rows[id]?.name { promises.recordStored(name, id) }
                core.durableRequestStored(id, now: now)
            case .storeRefused(let id): core.durableRequestStoreFailed(id, isFull: true, now: now)
            case .resultRecorded(let id, let isStored): core.durableOutcomeWritten(id, isStored: isStored, now: now)
            case .requestReopened(let id, let head):
                if head != nil, let name = disk.rows[id]?.name {
                    promises.recordReopening(name, id)
                    report.retriedFailures += 1
                }
                core.durableRequestReopened(id, head, now: now)
            case .resultRead(let id, let found):
                core.durableResultRead(id, found.map { durableContent($0.0, $0.content) }, now: now)
            }
        }
    }

    private mutating func durableContent(_ result: DurableResult, _ text: String?) -> DurableOutcome {
        guard let text else { return DurableOutcome(head: result.terminalHead, body: .missing) }
        let body = BodyID(rawValue: nextNumber())
        bodyContents[body] = text
        return DurableOutcome(head: result.terminalHead, body: .inline(body))
    }

    private mutating func finishJob() {
        guard !jobs.isEmpty else { return }
        let job = jobs.remove(at: random.number(below: jobs.count))
        guard !random.boolean(perMille: 250) else {
            let code = random.boolean(perMille: 500) ? "reset" : "protocol-error"
            core.workerMessageReceived(
                .failed(job.attempt, code: code, detail: nil, receivedBytes: 0), body: nil, from: worker, now: now)
            return
        }
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.bodyByteCount = job.url.utf8.count
        // A distinct digest for each content.
        let digits = job.url.utf8.reduce(into: "") { $0 += String($1, radix: 16) }.suffix(64)
        completion.sha256 = String(repeating: "0", count: 64 - digits.count) + digits
        let body = BodyID(rawValue: nextNumber())
        bodyContents[body] = job.url
        core.workerMessageReceived(.completed(completion), body: body, from: worker, now: now)
    }

    private mutating func acknowledgeTerminals() {
        guard let client = randomReadyClient() else { return }
        acknowledgeAll(client)
    }

    private mutating func acknowledgeAll(_ id: ClientID) {
        guard let client = clients[id], client.lastSequence > client.lastAcknowledged else { return }
        core.clientMessageReceived(.acknowledge(client.lastSequence), from: id, now: now)
        for name in client.receivedNames.suffix(Int(client.lastSequence - client.lastAcknowledged)) {
            promises.recordAcknowledgement(name, by: id, waiting: fullClients(except: id))
        }
        clients[id]?.lastAcknowledged = client.lastSequence
    }

    private mutating func changeSubscription() {
        guard let client = randomReadyClient() else { return }
        let pattern = HandlerPattern.handler(Self.handlers[random.number(below: Self.handlers.count)])
        core.clientMessageReceived(
            random.boolean(perMille: 500) ? .subscribe(pattern) : .unsubscribe(pattern), from: client, now: now)
    }

    /// Repeats requests of all handlers. The broker refuses those without a failure that waits.
    private mutating func retryFailures() {
        guard let client = randomReadyClient() else { return }
        for name in promises.reusableNames where random.boolean(perMille: 700) && !core.awaitsDurableRows(client) {
            core.clientMessageReceived(.retry(Self.wireHandler(name), name.request), from: client, now: now)
        }
    }

    private mutating func sendRemoval() {
        guard let client = randomReadyClient() else { return }
        let names = promises.reusableNames
        guard !names.isEmpty else { return }
        let name = qualifiedName(names[random.number(below: names.count)], client)
        var removal = Removal.request(name)
        if random.boolean(perMille: 800) {
            core.clientMessageReceived(.removeRequest(Self.wireHandler(name), name.request), from: client, now: now)
        } else {
            core.clientMessageReceived(.removeHandlers(.handler(Self.wireHandler(name))), from: client, now: now)
            removal = .handler(name.handler)
        }
        guard !core.awaitsDurableRows(client) else {
            waitingMessages[client] = .removal(removal)
            return
        }
        recordRemoval(removal, by: client)
    }

    private mutating func recordRemoval(_ removal: Removal, by client: ClientID) {
        switch removal {
        case .request(let name): recordRequestRemoval(name, by: client)
        case .handler(let handler):
            for name in promises.reusableNames where name.handler == handler { recordRequestRemoval(name, by: client) }
        }
    }

    /// Records the removal of a request.
    private mutating func recordRequestRemoval(_ name: RequestName, by client: ClientID) {
        promises.recordClosing(name, waiting: fullClients(except: client))
        promises.recordWithdrawal(name, by: client)
    }

    private func fullClients(except client: ClientID) -> Set<ClientID> {
        Set(clients.filter { $0.key != client && $0.value.isWindowFull }.keys)
    }

    /// The request of a client's principal with the same handler and ID.
    private func qualifiedName(_ name: RequestName, _ client: ClientID) -> RequestName {
        let handler = ReferenceModel.principalQualified(Self.wireHandler(name), of: clients[client]?.principal)
        return RequestName(handler: handler, request: name.request)
    }

    /// Handler of a request on the wire.
    private static func wireHandler(_ name: RequestName) -> HandlerID {
        ReferenceModel.principalAndHandler(of: name.handler).handler
    }

    private mutating func disconnectRandomClient() {
        if let client = randomReadyClient() { disconnectClient(client) }
    }

    private mutating func disconnectClient(_ client: ClientID) {
        clients[client] = nil
        waitingMessages[client] = nil
        core.clientLost(client, now: now)
    }

    @discardableResult
    private mutating func connectRandomClient() -> ClientID {
        let window = random.boolean(perMille: 400) ? 1 + random.number(below: 3) : 4_096
        return connectClient(window: window, of: Self.principals[random.number(below: Self.principals.count)])
    }

    private mutating func connectClient(window: Int, of principal: PrincipalName?) -> ClientID {
        let id = ClientID(rawValue: nextNumber())
        guard clients.count < 9 else { return id }
        clients[id] = Client(window: window, principal: principal)
        core.clientConnected(
            id, token: SessionToken(highBits: 0, lowBits: id.rawValue), user: principal)
        core.clientMessageReceived(.hello(Hello(window: window)), from: id, now: now)
        return id
    }

    private func someID(_ index: Int) -> ClientID { clients.keys.sorted { $0.rawValue < $1.rawValue }[index] }

    /// A client whose last message was carried out.
    private mutating func randomReadyClient() -> ClientID? {
        guard !clients.isEmpty else { return nil }
        let id = someID(random.number(below: clients.count))
        return isMessageHeld(id) ? nil : id
    }

    /// Whether the last message of a client is still to be carried out. The shell reports a loss after that.
    private func isMessageHeld(_ id: ClientID) -> Bool { core.hasPendingRemoval(by: id) || core.awaitsDurableRows(id) }

    private mutating func connectWorker() {
        worker = WorkerID(rawValue: nextNumber())
        core.workerConnected(worker, now: now)
        core.workerMessageReceived(.ready(Ready(slots: 8)), body: nil, from: worker, now: now)
    }

    /// Simulates `kill -9` of the broker: all connections are new to the next one.
    private mutating func restartBroker() throws(Violation) {
        report.restarts += 1
        // A removal that waits may have deleted rows.
        for case (let client, .removal(let removal)) in waitingMessages { recordRemoval(removal, by: client) }
        waitingMessages = [:]
        disk.discardPendingWork()
        jobs = []
        clients = [:]
        bodyContents = [:]
        spool.discardBodies()
        closedClients = []
        calendarOffsetSeconds += Int64(random.number(below: 100))
        let rows = disk.rows.sorted { $0.key.rawValue < $1.key.rawValue }
        let rowsByName = rows.map { ($0.value.name, (id: $0.key, url: $0.value.url, urls: Set([$0.value.url]))) }
        try promises.recordRestart(kept: Dictionary(rowsByName) { ($0.id, $0.url, $0.urls.union($1.urls)) })
        // A lower quota than before leaves rows on the disk.
        limits.maximumDurableBytesPerUser = isEnding ? 0 : [0, 0, 2_500][random.number(below: 3)]
        core = Self.makeCore(nextNumber(), limits)
        core.unixTimeSeconds = calendarOffsetSeconds
        core.beginDurableLoad()
        connectWorker()
        for _ in 0..<5 { connectRandomClient() }
        guard random.boolean(perMille: 500) else { return }
        while core.isLoadingDurables {
            try runPass()
            disk.executeActions(disk.queuedActionCount)
            try handleDiskAnswers(.max)
        }
    }
}
