internal import EarshotCore
internal import EarshotWire

/// Clients, a worker and a disk around cores that are killed at any moment; from one seed.
struct DurableWorld {
    private struct Client {
        var sequence: UInt64 = 0
        var acknowledged: UInt64 = 0
        var heard: [RequestName] = []
    }

    private static let handlers = (0..<6).compactMap { HandlerID("d/h\($0)") }

    private var random: SeededGenerator
    private var core: BrokerCore
    private var disk: SimulatedDisk
    private var promises = DurablePromises()
    private var now = Tick(nanoseconds: 0)
    private var calendar: Int64 = 1_000_000
    private var clients: [ClientID: Client] = [:]
    private var worker = WorkerID(rawValue: 0)
    private var jobs: [Job] = []
    /// What each body that the core holds is of.
    private var contents: [BodyID: String] = [:]
    private var lastNumber: UInt64 = 0
    private var lastName = 0
    private(set) var report = DurableReport()

    init(seed: UInt64, canary: DurableCanary?) {
        random = SeededGenerator(seed: seed)
        disk = SimulatedDisk(canary: canary)
        core = Self.makeCore(1)
        connectWorker()
    }

    private static func makeCore(_ life: UInt64) -> BrokerCore {
        var limits = CoreLimits()
        limits.durableReads = 2
        limits.purgesPerPass = 3
        let workerLimits = WorkerLimits(broker: BrokerInstance(rawValue: life), spool: "/spool")
        var core = BrokerCore(workerLimits: workerLimits, secret: nil, limits: limits, seed: life)
        core.isKeeping = true
        return core
    }

    private mutating func number() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    // MARK: Steps

    mutating func step() throws(Violation) {
        now = now.advanced(byMilliseconds: random.below(20))
        switch random.below(1_000) {
        case ..<240: try ask()
        case ..<420: disk.work(1 + random.below(6))
        case ..<560: try answer(1 + random.below(6))
        case ..<720: finishJob()
        case ..<810: acknowledge()
        case ..<860: listen()
        case ..<890: remove()
        case ..<920: leave()
        case ..<960: connect()
        case ..<975: disk.isFull = random.perMille(300)
        case ..<985: now = now.advanced(byMilliseconds: random.below(20_000))
        default: try restart()
        }
        try pass()
    }

    /// Lets everything run out, kills once more, and claims all that is there.
    mutating func finish() throws(Violation) {
        disk.isFull = false
        for client in clients.keys.sorted(by: { $0.rawValue < $1.rawValue }) { lose(client) }
        try settle()
        try restart()
        try settle()
        let owed = promises.open
        let claimer = connect()
        core.clientSaid(.subscribe(.subtree(Self.root)), by: claimer, now: now)
        try settle()
        let heard = clients[claimer]?.heard ?? []
        guard Set(owed).isSubset(of: heard) else {
            throw Violation(1, "\(Set(owed).subtracting(heard)) were accepted and are not told to who claims them")
        }
        report.claimed += heard.count
        acknowledgeAll(claimer)
        try settle()
        guard disk.rows.isEmpty else { throw Violation(12, "\(disk.rows.count) rows are left") }
        lose(claimer)
        try settle()
        guard core.isIdle, core.ledger.isBalanced else { throw Violation(10, "something is left: \(core.ledger)") }
    }

    private static var root: HandlerID {
        guard let root = HandlerID("d") else { preconditionFailure("d is a handler") }
        return root
    }

    /// Until nothing happens for longer than a failed attempt waits for the next.
    private mutating func settle() throws(Violation) {
        var quiet = 0
        while quiet < 20 {
            disk.work(disk.waitingCount)
            try answer(.max)
            while !jobs.isEmpty { finishJob() }
            now = now.advanced(byMilliseconds: 100)
            try pass()
            quiet = disk.isQuiet && jobs.isEmpty && !core.isPurging ? quiet + 1 : 0
        }
    }

    /// A pass, and what it asks for.
    private mutating func pass() throws(Violation) {
        core.calendarSeconds = calendar + now.nanoseconds / 1_000_000_000
        core.timePassed(now: now)
        core.dispatch(now: now)
        for action in core.takeActions() { try carryOut(action) }
        for (name, id) in disk.forgotten { promises.forgotten(name, id) }
        disk.forgotten = []
        if let fault = core.audit().first { throw Violation(audit: fault) }
    }

    private mutating func carryOut(_ action: Action) throws(Violation) {
        switch action {
        case .send(_, .accepted(let handler, let request)):
            report.accepted += 1
            let name = RequestName(handler: handler, request: request)
            try promises.accepted(name, isOnDisk: disk.hasRow(of: name))
        case .deliver(let id, let terminal, let body):
            guard clients[id] != nil else { throw Violation(2, "a client that is gone is told something") }
            try promises.told(terminal, body.flatMap { contents[$0] }, to: id)
            clients[id]?.sequence = terminal.sequence
            clients[id]?.heard.append(RequestName(handler: terminal.handler, request: terminal.request))
        case .sendWorker(_, .job(let job)):
            let disk = disk
            try promises.started(job.url) { disk.hasRow(of: $0) }
            jobs.append(job)
        case .sendWorker(_, .cancel(let attempt)):
            jobs.removeAll { $0.attempt == attempt }
            core.workerSaid(
                .failed(attempt, code: "cancelled", detail: nil, receivedBytes: 0), body: nil, by: worker, now: now)
        case .releaseBody(let body): contents[body] = nil
        case .storeResult(_, let result): disk.ask(action, content: result.body.flatMap { contents[$0] })
        case .storeDurable(let id, _, let head):
            if case .fetch(let fetch)? = try? ClientMessage(head: head) {
                promises.given(RequestName(handler: fetch.handler, request: fetch.request), id)
            }
            disk.ask(action, content: nil)
        case .readResult, .forgetDurable: disk.ask(action, content: nil)
        default: break
        }
    }

    // MARK: What happens

    private mutating func ask() throws(Violation) {
        guard let client = someClient() else { return }
        let names = promises.names
        var name: RequestName?
        if !names.isEmpty, random.perMille(300) { name = names[random.below(names.count)] }
        if name == nil {
            lastName += 1
            let handler = Self.handlers[random.below(Self.handlers.count)]
            name = RequestID("\(lastName)").map { RequestName(handler: handler, request: $0) }
        }
        guard let name else { return }
        let url = promises.url(of: name) ?? "http://o\(lastName % 4).test/\(lastName)"
        var fetch = Fetch(handler: name.handler, request: name.request, url: url)
        fetch.options.isDurable = true
        fetch.options.retries = 1
        fetch.options.subscribes = random.perMille(500)
        if random.perMille(15) {
            fetch.options.replacesHandler = true
            for other in names where other.handler == name.handler { promises.closed(other) }
        }
        promises.asked(name, url)
        core.clientSaid(.fetch(fetch), by: client, now: now)
    }

    private mutating func answer(_ count: Int) throws(Violation) {
        let taken = disk.answers.prefix(count)
        disk.answers.removeFirst(taken.count)
        for answer in taken {
            switch answer {
            case .stored(let id):
                if let name = disk.rows[id]?.name { promises.stored(name, id) }
                core.durableStored(id, now: now)
            case .refused(let id): core.durableRefused(id, isFull: true, now: now)
            case .recorded(let id, let isStored): core.durableRecorded(id, isStored: isStored, now: now)
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
        guard !random.perMille(150) else {
            core.workerSaid(
                .failed(job.attempt, code: "reset", detail: nil, receivedBytes: 0), body: nil, by: worker, now: now)
            return
        }
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.length = job.url.utf8.count
        completion.sha256 = String(repeating: "0", count: 64)
        let body = BodyID(rawValue: number())
        contents[body] = job.url
        core.workerSaid(.done(completion), body: body, by: worker, now: now)
    }

    private mutating func acknowledge() {
        guard let client = someClient() else { return }
        acknowledgeAll(client)
    }

    private mutating func acknowledgeAll(_ id: ClientID) {
        guard let client = clients[id], client.sequence > client.acknowledged else { return }
        core.clientSaid(.acknowledge(client.sequence), by: id, now: now)
        for name in client.heard.suffix(Int(client.sequence - client.acknowledged)) {
            promises.acknowledged(name, by: id)
        }
        clients[id]?.acknowledged = client.sequence
    }

    private mutating func listen() {
        guard let client = someClient() else { return }
        let pattern = HandlerPattern.handler(Self.handlers[random.below(Self.handlers.count)])
        core.clientSaid(random.perMille(500) ? .subscribe(pattern) : .unsubscribe(pattern), by: client, now: now)
    }

    private mutating func remove() {
        guard let client = someClient() else { return }
        let names = promises.names
        guard !names.isEmpty else { return }
        let name = names[random.below(names.count)]
        if random.perMille(800) {
            core.clientSaid(.cancel(name.handler, name.request), by: client, now: now)
            promises.closed(name)
        } else {
            core.clientSaid(.remove(.handler(name.handler)), by: client, now: now)
            for other in names where other.handler == name.handler { promises.closed(other) }
        }
    }

    private mutating func leave() {
        if let client = someClient() { lose(client) }
    }

    private mutating func lose(_ client: ClientID) {
        clients[client] = nil
        core.clientLost(client, now: now)
    }

    @discardableResult
    private mutating func connect() -> ClientID {
        let id = ClientID(rawValue: number())
        guard clients.count < 6 else { return id }
        clients[id] = Client()
        core.clientConnected(id, isRequestReply: false, token: SessionToken(high: 0, low: id.rawValue))
        core.clientSaid(.hello(Hello(client: nil, window: 4_096)), by: id, now: now)
        return id
    }

    private func someID(_ index: Int) -> ClientID { clients.keys.sorted { $0.rawValue < $1.rawValue }[index] }

    private mutating func someClient() -> ClientID? {
        clients.isEmpty ? nil : someID(random.below(clients.count))
    }

    private mutating func connectWorker() {
        worker = WorkerID(rawValue: number())
        core.workerConnected(worker, now: now)
        core.workerSaid(.ready(Ready(slots: 8)), body: nil, by: worker, now: now)
    }

    /// `kill -9` of the broker: clients and workers are new ones to the next.
    private mutating func restart() throws(Violation) {
        report.restarts += 1
        disk.kill()
        jobs = []
        clients = [:]
        contents = [:]
        calendar += Int64(random.below(100))
        let rows = disk.rows.sorted { $0.key.rawValue < $1.key.rawValue }
        try promises.restarted(kept: Dictionary(rows.map { ($0.value.name, $0.key) }) { first, _ in first })
        core = Self.makeCore(number())
        core.calendarSeconds = calendar
        for (id, row) in rows {
            let entry = DurableEntry(id: id, acceptedAt: row.acceptedAt, head: row.head, hasResult: row.result != nil)
            core.durableRestored(entry, now: now)
        }
        connectWorker()
        for _ in 0..<3 { connect() }
    }
}
