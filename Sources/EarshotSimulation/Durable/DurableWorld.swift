internal import EarshotCore
internal import EarshotQueries
internal import EarshotWire

/// Clients, a worker and a disk around cores that are killed at random times, determined by a seed.
struct DurableWorld {
    private struct Client {
        let window: Int
        /// Principal; nil for the administrator.
        let principal: PrincipalName?
        var sequence: UInt64 = 0
        var acknowledged: UInt64 = 0
        var received: [RequestName] = []

        var isFull: Bool { sequence - acknowledged >= UInt64(window) }
    }

    /// Expected effect of a message that waits for rows on the disk, or of a FETCH behind the removal that it asks for.
    private enum Waiting {
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
    private var now = Tick(nanoseconds: 0)
    private var calendar: Int64 = 1_000_000
    private var clients: [ClientID: Client] = [:]
    private var worker = WorkerID(rawValue: 0)
    private var jobs: [Job] = []
    /// Contents of the bodies held by the core.
    private var contents: [BodyID: String] = [:]
    private var spool = SimulatedWaiting()
    /// Clients whose connections the core has closed.
    private var closed: Set<ClientID> = []
    /// Messages that the core has not carried out.
    private var waiting: [ClientID: Waiting] = [:]
    private var lastNumber: UInt64 = 0
    private var lastName = 0
    private var lastURL = 0
    private var isEnding = false
    private(set) var report = DurableReport()

    init(seed: UInt64, canary: DurableCanary?) {
        random = SeededGenerator(seed: seed)
        disk = SimulatedDisk(canary: canary)
        // Results wait on disk with few or many terminals before them. Waiting bodies are in the spool entirely, partly or
        // not at all.
        limits.waitingTerminals = [1, 3, 1_000][random.below(3)]
        limits.waitingBytes = [0, 60, 1 << 20][random.below(3)]
        limits.spoolRetryMilliseconds = [20, 1_000][random.below(2)]
        core = Self.makeCore(1, limits)
        connectWorker()
    }

    private static func makeCore(_ life: UInt64, _ limits: CoreLimits) -> BrokerCore {
        var limits = limits
        limits.durableReads = 2
        limits.removalsPerPass = 3
        limits.waitingMessagesPerPass = 1
        let workerLimits = WorkerLimits(broker: BrokerInstance(rawValue: life), spool: "/spool")
        var features = ShellFeatures()
        features.isKeeping = true
        return BrokerCore(
            workerLimits: workerLimits, secret: nil, limits: limits, features: features,
            answering: Queries.answer, seed: life)
    }

    private mutating func number() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    // MARK: Steps

    mutating func step() throws(Violation) {
        now = now.advanced(byMilliseconds: random.below(20))
        switch random.below(1_000) {
        case ..<240: try submit()
        case ..<420: disk.work(1 + random.below(6))
        case ..<560: try answer(1 + random.below(6))
        case ..<710: finishJob()
        case ..<790: acknowledge()
        case ..<835: listen()
        case ..<865: remove()
        case ..<895: clientLeaves()
        case ..<935: connect()
        case ..<960: retry()
        case ..<975: disk.isFull = random.perMille(300)
        case ..<980: spool.isFull = random.perMille(300)
        case ..<988: now = now.advanced(byMilliseconds: random.below(20_000))
        default: try restart()
        }
        try pass()
    }

    /// Lets all work finish, kills the broker once more, and claims all results.
    mutating func finish() throws(Violation) {
        disk.isFull = false
        spool.isFull = false
        isEnding = true
        try runUntilIdle()
        for client in clients.keys.sorted(by: { $0.rawValue < $1.rawValue }) { lose(client) }
        try runUntilIdle()
        try restart()
        try runUntilIdle()
        let promised = promises.open
        let claimers = Self.principals.map { connect(window: 4_096, of: $0) }
        for claimer in claimers { core.received(.subscribe(.subtree(Self.root)), from: claimer, now: now) }
        try runUntilIdle()
        let received = claimers.flatMap { clients[$0]?.received ?? [] }
        guard Set(promised).isSubset(of: received) else {
            throw Violation(
                1, "\(Set(promised).subtracting(received)) were accepted and are not told to who claims them")
        }
        report.claimed += received.count
        for claimer in claimers { acknowledgeAll(claimer) }
        try runUntilIdle()
        guard disk.rows.isEmpty else { throw Violation(12, "\(disk.rows.count) rows are left") }
        for claimer in claimers { lose(claimer) }
        try runUntilIdle()
        guard core.isIdle, core.ledger.isBalanced else { throw Violation(10, "something is left: \(core.ledger)") }
        guard spool.bodies.isEmpty, contents.isEmpty else {
            throw Violation(12, "\(spool.bodies.count + contents.count) bodies are left")
        }
    }

    private static var root: HandlerID {
        guard let root = HandlerID("d") else { preconditionFailure("d is a handler") }
        return root
    }

    /// Runs until nothing happens for longer than the delay of a retry.
    private mutating func runUntilIdle() throws(Violation) {
        var quiet = 0
        while quiet < 20 {
            disk.work(disk.waitingCount)
            try answer(.max)
            while !jobs.isEmpty { finishJob() }
            now = now.advanced(byMilliseconds: 100)
            try pass()
            quiet = disk.isQuiet && jobs.isEmpty && !core.isRemoving && waiting.isEmpty ? quiet + 1 : 0
        }
    }

    /// Runs a pass and executes its actions.
    private mutating func pass() throws(Violation) {
        core.calendarSeconds = calendar + now.nanoseconds / 1_000_000_000
        core.timePassed(now: now)
        // What the core has sent so far precedes the effect of a message that has waited.
        if !waiting.isEmpty { for action in core.takeActions() { try carryOut(action) } }
        core.dispatch(now: now)
        let actions = core.takeActions()
        for (client, message) in waiting where !core.awaitsDurableRows(client) {
            switch message {
            case .request(let name, let url):
                guard !core.isRemoving(client) else { continue }
                if !isRefused(client, in: actions) { promises.requested(name, url, by: client) }
            case .removal(let removal): requestsRemoved(removal, by: client)
            }
            waiting[client] = nil
        }
        // The removals of files are the second part.
        for action in actions + core.takeActions() { try carryOut(action) }
        for client in closed.sorted(by: { $0.rawValue < $1.rawValue }) where !isHeld(client) {
            closed.remove(client)
            lose(client)
        }
        for (name, id) in disk.deletedRequests { promises.requestForgotten(name, id) }
        disk.deletedRequests = []
        if let fault = core.audit().first { throw Violation(audit: fault) }
    }

    private mutating func carryOut(_ action: Action) throws(Violation) {
        switch action {
        case .client(.send(let id, .accepted(let handler, let request))):
            report.accepted += 1
            let name = RequestName(
                handler: ReferenceModel.qualified(handler, of: clients[id]?.principal), request: request)
            try promises.accepted(name, isOnDisk: disk.hasRow(of: name))
        case .client(.deliver(let id, let terminal, let body)):
            try delivered(terminal, content(of: terminal, body), to: id)
        case .spool(.spill(let body, let file)):
            if spool.keepContent(contents[body], as: file) {
                contents[body] = nil
            } else {
                core.spillFailed(body, now: now)
            }
        case .spool(.releaseFile(let file)): spool.release(file)
        case .client(.close(let id, _)): closed.insert(id)
        case .worker(.send(_, .job(let job))):
            let disk = disk
            try promises.started(job.url) { disk.hasRow(of: $0) }
            jobs.append(job)
        case .worker(.send(_, .cancel(let attempt))):
            jobs.removeAll { $0.attempt == attempt }
            core.received(
                .failed(attempt, code: "cancelled", detail: nil, receivedBytes: 0), body: nil, from: worker, now: now)
        case .spool(.releaseBody(let body)): contents[body] = nil
        case .durable(let requested): submit(requested)
        default: break
        }
    }

    private mutating func submit(_ requested: Action.Durable) {
        switch requested {
        case .storeResult(_, let result):
            disk.submit(
                requested, content: result.body.flatMap { contents[$0] } ?? result.file.flatMap { spool.bodies[$0] })
        case .store(let id, let principal, _, let head):
            if case .fetch(let fetch)? = try? ClientMessage(head: head) {
                let handler = ReferenceModel.qualified(fetch.handler, of: principal)
                promises.submitted(RequestName(handler: handler, request: fetch.request), id)
            }
            disk.submit(requested, content: nil)
        case .readRows, .readResult, .reopen, .forget: disk.submit(requested, content: nil)
        case .limit: break
        }
    }

    /// Returns the content of a terminal's body, in memory or in the spool.
    private func content(of terminal: Terminal, _ body: BodyID?) -> String? {
        if let body { return contents[body] }
        guard let file = terminal.response?.file, SpoolName.isWaiting(file) else { return nil }
        return file.split(separator: "/").last.flatMap { spool.bodies[String($0)] }
    }

    private mutating func delivered(_ terminal: Terminal, _ content: String?, to id: ClientID) throws(Violation) {
        guard let client = clients[id] else { throw Violation(2, "a client that is gone is told something") }
        guard terminal.sequence == client.sequence + 1 else {
            throw Violation(1, "terminal \(terminal.sequence) follows terminal \(client.sequence)")
        }
        var terminal = terminal
        terminal.handler = ReferenceModel.qualified(terminal.handler, of: client.principal)
        try promises.delivered(terminal, content, to: id)
        clients[id]?.sequence = terminal.sequence
        clients[id]?.received.append(RequestName(handler: terminal.handler, request: terminal.request))
    }

    // MARK: Events

    /// Whether a removal waits. A request that followed it would be another one than the promise has.
    private var isRemovalWaiting: Bool {
        waiting.values.contains { if case .removal = $0 { true } else { false } }
    }

    private mutating func submit() throws(Violation) {
        guard !isRemovalWaiting, let client = someClient() else { return }
        let names = promises.names
        var name: RequestName?
        if !names.isEmpty, random.perMille(300) { name = own(names[random.below(names.count)], client) }
        if name == nil {
            let handler = Self.handlers[random.below(Self.handlers.count)]
            name = RequestID("\(lastName + 1)").map { own(RequestName(handler: handler, request: $0), client) }
        }
        guard let name else { return }
        if !names.contains(name) { lastName += 1 }
        var options = Fetch.Options()
        options.isDurable = true
        options.retries = 1
        options.subscribes = random.perMille(500)
        if random.perMille(15), !core.hasDurableRows {
            options.replacesHandler = true
            for other in names where other.handler == name.handler { closed(other, by: client) }
        }
        // A new request of a known name has a new URL, by which its terminals are recognised.
        lastURL += 1
        let url = promises.url(of: name) ?? "http://o\(lastURL % 4).test/\(lastURL)"
        var fetch = Fetch(handler: Self.plain(name), request: name.request, url: url)
        fetch.options = options
        core.received(.fetch(fetch), from: client, now: now)
        if isHeld(client) {
            waiting[client] = .request(name, url: url)
            return
        }
        let actions = core.takeActions()
        // An earlier request of the name may still have the ID.
        if !isRefused(client, in: actions) { promises.requested(name, url, by: client) }
        for action in actions { try carryOut(action) }
    }

    /// Returns whether the ID of a client's FETCH belongs to another request.
    private func isRefused(_ client: ClientID, in actions: [Action]) -> Bool {
        actions.contains { action in
            if case .client(.send(client, .error(let reply))) = action { reply.code == "id-in-use" } else { false }
        }
    }

    private mutating func answer(_ count: Int) throws(Violation) {
        let taken = disk.answers.prefix(count)
        disk.answers.removeFirst(taken.count)
        for answer in taken {
            switch answer {
            case .rows(let entries): core.durableRowsRead(entries, now: now)
            case .stored(let id):
                if let name = disk.rows[id]?.name { promises.requestStored(name, id) }
                core.durableStored(id, now: now)
            case .refused(let id): core.durableRefused(id, isFull: true, now: now)
            case .recorded(let id, let isStored): core.durableRecorded(id, isStored: isStored, now: now)
            case .reopened(let id, let head):
                if head != nil, let name = disk.rows[id]?.name {
                    promises.reopened(name, id)
                    report.repeated += 1
                }
                core.durableReopened(id, head, now: now)
            case .read(let id, let found): core.durableRead(id, found.map { content($0.0, $0.content) }, now: now)
            }
        }
    }

    private mutating func content(_ result: DurableResult, _ text: String?) -> DurableContent {
        guard let text else { return DurableContent(head: result.head, body: .missing) }
        let body = BodyID(rawValue: number())
        contents[body] = text
        return DurableContent(head: result.head, body: .inline(body))
    }

    private mutating func finishJob() {
        guard !jobs.isEmpty else { return }
        let job = jobs.remove(at: random.below(jobs.count))
        guard !random.perMille(250) else {
            let code = random.perMille(500) ? "reset" : "protocol-error"
            core.received(
                .failed(job.attempt, code: code, detail: nil, receivedBytes: 0), body: nil, from: worker, now: now)
            return
        }
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.length = job.url.utf8.count
        // A distinct digest for each content.
        let digits = job.url.utf8.reduce(into: "") { $0 += String($1, radix: 16) }.suffix(64)
        completion.sha256 = String(repeating: "0", count: 64 - digits.count) + digits
        let body = BodyID(rawValue: number())
        contents[body] = job.url
        core.received(.done(completion), body: body, from: worker, now: now)
    }

    private mutating func acknowledge() {
        guard let client = someClient() else { return }
        acknowledgeAll(client)
    }

    private mutating func acknowledgeAll(_ id: ClientID) {
        guard let client = clients[id], client.sequence > client.acknowledged else { return }
        core.received(.acknowledge(client.sequence), from: id, now: now)
        for name in client.received.suffix(Int(client.sequence - client.acknowledged)) {
            promises.acknowledged(name, by: id, waiting: fullClients(but: id))
        }
        clients[id]?.acknowledged = client.sequence
    }

    private mutating func listen() {
        guard let client = someClient() else { return }
        let pattern = HandlerPattern.handler(Self.handlers[random.below(Self.handlers.count)])
        core.received(random.perMille(500) ? .subscribe(pattern) : .unsubscribe(pattern), from: client, now: now)
    }

    /// Repeats requests of all handlers. The broker refuses those without a failure that waits.
    private mutating func retry() {
        guard let client = someClient() else { return }
        for name in promises.names where random.perMille(700) && !core.awaitsDurableRows(client) {
            core.received(.retry(Self.plain(name), name.request), from: client, now: now)
        }
    }

    private mutating func remove() {
        guard let client = someClient() else { return }
        let names = promises.names
        guard !names.isEmpty else { return }
        let name = own(names[random.below(names.count)], client)
        var removal = Removal.request(name)
        if random.perMille(800) {
            core.received(.removeRequest(Self.plain(name), name.request), from: client, now: now)
        } else {
            core.received(.remove(.handler(Self.plain(name))), from: client, now: now)
            removal = .handler(name.handler)
        }
        guard !core.awaitsDurableRows(client) else {
            waiting[client] = .removal(removal)
            return
        }
        requestsRemoved(removal, by: client)
    }

    private mutating func requestsRemoved(_ removal: Removal, by client: ClientID) {
        switch removal {
        case .request(let name): closed(name, by: client)
        case .handler(let handler):
            for name in promises.names where name.handler == handler { closed(name, by: client) }
        }
    }

    /// Records the removal of a request.
    private mutating func closed(_ name: RequestName, by client: ClientID) {
        promises.closed(name, waiting: fullClients(but: client))
        promises.withdrawn(name, by: client)
    }

    private func fullClients(but client: ClientID) -> Set<ClientID> {
        Set(clients.filter { $0.key != client && $0.value.isFull }.keys)
    }

    /// The request of a client's principal with the same handler and ID.
    private func own(_ name: RequestName, _ client: ClientID) -> RequestName {
        let handler = ReferenceModel.qualified(Self.plain(name), of: clients[client]?.principal)
        return RequestName(handler: handler, request: name.request)
    }

    /// Handler of a request on the wire.
    private static func plain(_ name: RequestName) -> HandlerID { ReferenceModel.owner(of: name.handler).handler }

    private mutating func clientLeaves() {
        if let client = someClient() { lose(client) }
    }

    private mutating func lose(_ client: ClientID) {
        clients[client] = nil
        waiting[client] = nil
        core.clientLost(client, now: now)
    }

    @discardableResult
    private mutating func connect() -> ClientID {
        let window = random.perMille(400) ? 1 + random.below(3) : 4_096
        return connect(window: window, of: Self.principals[random.below(Self.principals.count)])
    }

    private mutating func connect(window: Int, of principal: PrincipalName?) -> ClientID {
        let id = ClientID(rawValue: number())
        guard clients.count < 9 else { return id }
        clients[id] = Client(window: window, principal: principal)
        core.clientConnected(
            id, token: SessionToken(high: 0, low: id.rawValue), user: principal)
        core.received(.hello(Hello(window: window)), from: id, now: now)
        return id
    }

    private func someID(_ index: Int) -> ClientID { clients.keys.sorted { $0.rawValue < $1.rawValue }[index] }

    /// A client whose last message was carried out.
    private mutating func someClient() -> ClientID? {
        guard !clients.isEmpty else { return nil }
        let id = someID(random.below(clients.count))
        return isHeld(id) ? nil : id
    }

    /// Whether the last message of a client is still to be carried out. The shell reports a loss after that.
    private func isHeld(_ id: ClientID) -> Bool { core.isRemoving(id) || core.awaitsDurableRows(id) }

    private mutating func connectWorker() {
        worker = WorkerID(rawValue: number())
        core.workerConnected(worker, now: now)
        core.received(.ready(Ready(slots: 8)), body: nil, from: worker, now: now)
    }

    /// Simulates `kill -9` of the broker: all connections are new to the next one.
    private mutating func restart() throws(Violation) {
        report.restarts += 1
        // A removal that waits may have deleted rows.
        for case (let client, .removal(let removal)) in waiting { requestsRemoved(removal, by: client) }
        waiting = [:]
        disk.kill()
        jobs = []
        clients = [:]
        contents = [:]
        spool.kill()
        closed = []
        calendar += Int64(random.below(100))
        let rows = disk.rows.sorted { $0.key.rawValue < $1.key.rawValue }
        let rowsByName = rows.map { ($0.value.name, (id: $0.key, url: $0.value.url, urls: Set([$0.value.url]))) }
        try promises.restarted(kept: Dictionary(rowsByName) { ($0.id, $0.url, $0.urls.union($1.urls)) })
        // A lower quota than before leaves rows on the disk.
        limits.durableBytesPerUser = isEnding ? 0 : [0, 0, 2_500][random.below(3)]
        core = Self.makeCore(number(), limits)
        core.calendarSeconds = calendar
        core.beginDurableLoad()
        connectWorker()
        for _ in 0..<5 { connect() }
        guard random.perMille(500) else { return }
        while core.isLoadingDurables {
            try pass()
            disk.work(disk.waitingCount)
            try answer(.max)
        }
    }
}
