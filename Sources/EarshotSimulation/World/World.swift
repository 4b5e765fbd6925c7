internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// One broker and everybody around it, in one process: fake time, one generator, no threads.
struct World {
    /// How long a limit that was lowered may still be felt by an origin: more than a JOB's way to it.
    private static let limitMemory: Int64 = 100_000_000

    var setting: Setting
    let catalogue: Catalogue
    var random: SeededGenerator
    /// For the disk alone, so that its faults change nothing else of a world.
    private var diskRandom: SeededGenerator
    /// For passes that are split, for the same reason.
    private var partRandom: SeededGenerator
    /// Transfers for the broker before, and the draws of requests for the same URLs.
    var inheritance: Inheritance
    private(set) var trial: Trial
    /// Those of brokers that have died.
    private(set) var earlierLedgers: [Ledger] = []
    var now: Int64 = 1_000_000_000
    private var plans = Heap<Plan>()
    private var planned: UInt64 = 0
    private var needsDispatch = false
    /// Events that follow from carrying actions out.
    private var consequences: [BrokerEvent] = []
    /// Whether peers begin nothing any more.
    private(set) var isEnding = false
    /// Whether no client comes back.
    private(set) var isOver = false
    /// All the core was told, if it is kept.
    private(set) var history: [HistoryEntry]?

    var clients: [SimulatedClient] = []
    var workers: [SimulatedWorker] = []
    var origins: [SimulatedOrigin]
    var links: [UInt64: Link] = [:]
    /// Counts requests that share no flight.
    var lastAlone = 0
    var lastLink: UInt64 = 0
    var lastBody: UInt64 = 0
    /// Parts of bodies, by name.
    var spool: [String: SimulatedFile] = [:]
    /// Files that clients were given and took, by the client.
    var taken: [String: Int] = [:]
    /// Counts fetches: each third takes a file. Not drawn, so that the worlds of the seeds that tests name stay what
    /// they are.
    var fetches = 0
    /// Terminals that wait in the shell's file, or in its memory when they could not be written.
    private var waiting: [WaitingID: Terminal] = [:]
    /// Bodies that wait in the spool, by their names.
    private var waitingBodies: Set<String> = []
    /// Whether the disk takes nothing.
    private(set) var isDiskFull = false
    /// How often what is under a URL has changed.
    var versions: [Int: Int] = [:]
    /// Origins' limits that were in force and may still be felt, oldest first.
    private var formerLimits: [(until: Int64, limits: [Int])] = []

    init(_ options: SimulationOptions, keepsHistory: Bool) {
        random = SeededGenerator(seed: options.seed)
        diskRandom = SeededGenerator(seed: ~options.seed)
        partRandom = SeededGenerator(seed: options.seed &+ 1)
        inheritance = Inheritance(seed: options.seed &+ 7)
        setting = Setting(options, &random)
        catalogue = Catalogue(setting)
        trial = Trial(limits: setting.limits, canary: options.canary)
        origins = Array(repeating: SimulatedOrigin(), count: setting.origins)
        history = keepsHistory ? [] : nil
        workers = Array(repeating: SimulatedWorker(), count: setting.workers + setting.ownWorkers)
        for _ in 0..<setting.clients { clients.append(makeClient()) }
        for client in clients.indices { plan(random.around(setting.pause), .clientConnects(client)) }
        for worker in workers.indices { plan(random.around(setting.pause), .workerStarts(worker)) }
        plan(random.around(1_000_000_000), .limitsChange)
        plan(random.around(setting.brokerLife), .brokerEnds)
        if let life = inheritance.drawShortLife() { plan(life, .brokerEnds) }
        if setting.has(.diskFaults) { plan(diskRandom.around(1_000_000_000), .diskChanges) }
    }

    // MARK: Running

    /// Runs until the core was told so many events, then lets everything run out.
    mutating func run(steps: Int) throws(Violation) {
        while trial.steps < steps { try turn() }
        isEnding = true
        if setting.drains {
            try tell(.drain)
            let end = now + 5_000_000_000
            while now < end, !plans.isEmpty { try turn() }
            try trial.audit()
        } else {
            try runOut(steps)
        }
    }

    /// The next thing that happens.
    private mutating func turn() throws(Violation) {
        let planned = plans.min?.at
        let timer = trial.broker.core.nextTimer?.nanoseconds
        let next = min(planned ?? .max, timer ?? .max)
        if needsDispatch, next > now || random.perMille(250) {
            try tell(.dispatch(unread: drawUnread()))
            return
        }
        // A core that is behind asks for the next pass at once; what peers sent meanwhile comes in with it.
        let isCrossed = trial.broker.core.isPurging && planned != nil && random.perMille(600)
        if let timer, timer <= planned ?? .max, !isCrossed {
            now = max(now, timer)
            try tell(.timePassed)
        } else if let plan = plans.popMin() {
            now = max(now, plan.at)
            try happen(plan.happening)
        }
    }

    /// Clients that have sent more than the pass has read.
    private mutating func drawUnread() -> [ClientID] {
        guard setting.has(.splitPasses) else { return [] }
        return trial.broker.core.clientsHandingOver.filter { _ in partRandom.perMille(700) }
    }

    private mutating func runOut(_ steps: Int) throws(Violation) {
        // Who asks for more than a client may, is refused more than may be due to it, is closed for that and asks again
        // would come to no end.
        setting.limits.dueDeliveries = CoreLimits().dueDeliveries
        try tell(.limitsChanged(setting.limits))
        let bound = trial.steps + 100_000 + steps / 10
        let end = now + 3_600_000_000_000
        func isDone() -> Bool {
            let ledger = trial.broker.core.ledger
            return ledger.requests.pending == 0 && ledger.deliveries.outstanding == 0
        }
        while !isDone(), trial.steps < bound, now < end, hasFuture { try turn() }
        guard isDone() else {
            try trial.auditEnd()
            throw Violation(
                1, "something is pending after everything ran out: \(trial.broker.core.ledger)",
                kind: "pending at the end")
        }
        isOver = true
        for link in clients.compactMap(\.link) {
            links[link] = nil
            try tell(.clientLost(ClientID(rawValue: link)))
        }
        while !trial.broker.core.isIdle, trial.steps < bound + 10_000, now < 2 * end, hasFuture { try turn() }
        try trial.auditEnd()
    }

    private var hasFuture: Bool { !plans.isEmpty || trial.broker.core.nextTimer != nil }

    /// Tells the broker, does what it asks for, and tells it what came of that.
    mutating func tell(_ event: BrokerEvent) throws(Violation) {
        try tellOnce(event)
        var index = 0
        while index < consequences.count {
            try tellOnce(consequences[index])
            index += 1
        }
        if index > 0 { consequences.removeAll(keepingCapacity: true) }
    }

    private mutating func tellOnce(_ event: BrokerEvent) throws(Violation) {
        let tick = Tick(nanoseconds: now)
        history?.append(HistoryEntry(now: tick, event: event))
        needsDispatch = if case .dispatch(let unread) = event { !unread.isEmpty } else { true }
        var refused: Set<ClientID> = []
        for action in try trial.apply(event, now: tick) {
            if let consequence = try carryOut(action, &refused) { consequences.append(consequence) }
        }
    }

    // MARK: The future

    mutating func plan(_ delay: Int64, _ happening: Happening) {
        planned += 1
        plans.insert(Plan(at: now + delay, order: planned, happening: happening))
    }

    /// Plans the arrival of something a client or worker says.
    mutating func send(up link: UInt64, _ happening: Happening) {
        guard let last = links[link]?.lastUp else { return }
        let arrival = max(last, now + random.around(setting.delay))
        links[link]?.lastUp = arrival
        plan(arrival - now, happening)
    }

    /// Plans the arrival of something the broker says.
    mutating func send(down link: UInt64, _ happening: Happening) {
        guard let known = links[link], !known.isCut else { return }
        let arrival = max(known.lastDown, now + random.around(setting.delay))
        links[link]?.lastDown = arrival
        plan(arrival - now, happening)
    }

    private mutating func happen(_ happening: Happening) throws(Violation) {
        switch happening {
        case .clientActs(let client): clientActs(client)
        case .clientConnects(let client): try clientConnects(client)
        case .clientAsksAfterDeath(let client): clientAsksAfterDeath(client)
        case .clientAcknowledges(let client, let link): clientAcknowledges(client, link)
        case .fromClient(let link, let said): try arrived(said, link)
        case .toClient(let link, let message): try clientHears(message, link)
        case .clientGone(let link):
            guard links.removeValue(forKey: link) != nil else { return }
            try tell(.clientLost(ClientID(rawValue: link)))
        case .clientWritable(let link):
            guard links[link] != nil else { return }
            try tell(.clientWritable(ClientID(rawValue: link)))
        case .workerStarts(let worker): try workerStarts(worker)
        case .workerActs(let worker): workerActs(worker)
        case .fromWorker(let link, let said): try arrived(said, link)
        case .toWorker(let link, let message): try workerHears(message, link)
        case .workerCut(let link): try workerCut(link)
        case .workerGone(let link):
            guard links[link] != nil else { return }
            try keepParts(of: link)
            links[link] = nil
            try tell(.workerLost(WorkerID(rawValue: link)))
        case .transferEnds(let worker, let attempt): transferEnds(attempt, worker)
        case .limitsChange: try limitsChange()
        case .brokerEnds: brokerEnds()
        case .brokerDies: try brokerDies()
        case .diskChanges:
            isDiskFull = !isDiskFull && !isEnding
            if !isEnding { plan(diskRandom.around(1_000_000_000), .diskChanges) }
        }
    }

    /// Does one thing the core asked for.
    /// - Returns: what the core is to be told of it.
    private mutating func carryOut(_ action: Action, _ refused: inout Set<ClientID>) throws(Violation) -> BrokerEvent? {
        switch action {
        case .send(let id, .progress(let progress)) where isFull():
            plan(random.around(200_000_000), .clientWritable(link: id.rawValue))
            return .progressRefused(id, progress.handler, progress.request)
        case .send(let id, let message): send(down: id.rawValue, .toClient(link: id.rawValue, message))
        case .answer(let id, let query, _): send(down: id.rawValue, .toClient(link: id.rawValue, .answer(query)))
        case .deliver(let id, let terminal, _): return deliver(terminal, to: id, &refused)
        case .close(let id, _): closed(id.rawValue)
        case .sendWorker(let id, _) where isWorkerFull(): return .workerBlocked(id)
        case .sendJob(let id, _, _) where isWorkerFull(): return .workerBlocked(id)
        case .sendWorker(let id, let message): send(down: id.rawValue, .toWorker(link: id.rawValue, message))
        case .sendJob(let id, let job, _): send(down: id.rawValue, .toWorker(link: id.rawValue, .job(job)))
        case .killWorker(let id):
            if let worker = links[id.rawValue]?.peer, workers[worker].known.contains(id.rawValue) {
                workerDies(worker)
            }
        case .closeWorker(let id): closedWorker(id.rawValue)
        case .keepWaiting(let id, let terminal, _):
            waiting[id] = terminal
            return isDiskFull ? .waitingFailed : nil
        case .deliverWaiting(let id, let sequence, let number):
            // What is not there the model has objected to.
            guard var terminal = waiting[number] else { return nil }
            // Nothing is read for one that takes nothing.
            if !refused.contains(id), isUnreadable() { return .waitingLost(id) }
            terminal.sequence = sequence
            return deliver(terminal, to: id, &refused)
        case .forgetWaiting(let id): waiting[id] = nil
        case .spill(let body, let file):
            // What is there under that name is not written again.
            guard !isDiskFull || waitingBodies.contains(file) else { return .spillFailed(body) }
            waitingBodies.insert(file)
        case .releaseFile(let file):
            waitingBodies.remove(file)
            taken[file] = nil
        case .releaseBody, .settingChanged: break
        case .sweepSpool: sweepSpool()
        case .lendPart(let file, let other): rename(file, to: other)
        case .removePart(let file): spool[file] = nil
        // There is no cache in this world, and no disk for durable requests; the model objects to one that is asked.
        case .lookUp, .readCached, .store, .refresh, .discard, .invalidate, .limitCache, .storeDurable, .storeResult,
            .readResult, .forgetDurable, .limitDurable:
            break
        }
        return nil
    }

    private mutating func deliver(
        _ terminal: Terminal, to id: ClientID, _ refused: inout Set<ClientID>
    ) -> BrokerEvent? {
        // Nothing overtakes a terminal that was refused.
        guard !refused.contains(id) else { return nil }
        if isFull() {
            refused.insert(id)
            plan(random.around(200_000_000), .clientWritable(link: id.rawValue))
            return .deliveryRefused(id, terminal.sequence)
        }
        send(down: id.rawValue, .toClient(link: id.rawValue, .terminal(terminal)))
        return .deliveryTaken(id, terminal.sequence)
    }

    /// Whether a socket takes no more now.
    private mutating func isFull() -> Bool { setting.has(.fullSockets) && !isEnding && random.perMille(10) }

    /// Whether a worker's socket takes no more now: it reads slower than the broker gives out.
    private mutating func isWorkerFull() -> Bool {
        setting.has(.fullSockets) && !isEnding && random.below(3_000) == 0
    }

    /// Whether what is on the disk cannot be read now.
    mutating func isUnreadable() -> Bool { setting.has(.diskFaults) && !isEnding && diskRandom.perMille(20) }

    // MARK: Brokers

    /// Has clients make requests, and plans the broker's death while workers are likely to serve them.
    private mutating func brokerEnds() {
        guard !isEnding else { return }
        plan(random.around(setting.brokerLife), .brokerEnds)
        guard setting.has(.brokerDeaths) else { return }
        for client in clients.indices { clientAsksBeforeDeath(client) }
        plan(2 * setting.delay + inheritance.around(setting.latency), .brokerDies)
    }

    /// Ends the broker with all of its connections; the processes at their other ends live on.
    private mutating func brokerDies() throws(Violation) {
        guard !isEnding else { return }
        earlierLedgers.append(trial.broker.core.ledger)
        links = [:]
        for client in clients.indices {
            clients[client].link = nil
            plan(random.around(200_000_000), .clientConnects(client))
            if let delay = inheritance.drawReturn() { plan(delay, .clientConnects(client)) }
        }
        for worker in workers.indices {
            workers[worker].known = []
            workers[worker].link = nil
            workers[worker].isWelcome = false
            // Nobody is left to find that it hangs.
            if workers[worker].isHung { workerDies(worker) }
            plan(random.around(50_000_000), .workerStarts(worker))
        }
        inherit()
        for name in spool.keys where name.hasSuffix(".kept") { spool[name] = nil }
        taken = [:]
        waiting = [:]
        waitingBodies = []
        // Long enough for all of them.
        let until = Tick(nanoseconds: now).advanced(byMilliseconds: 60_000)
        try tell(.brokerReplaced(setting.limits, expectedWorkers: setting.workers, until: until))
    }

    // MARK: Limits

    private mutating func limitsChange() throws(Violation) {
        guard !isEnding else { return }
        plan(random.around(3_000_000_000), .limitsChange)
        guard setting.has(.limitChanges) else { return }
        formerLimits.removeAll { $0.until + Self.limitMemory < now }
        formerLimits.append((now, origins.indices.map(limit)))
        setting.drawRules(&random)
        setting.limits.requestsPerClient = [20, 80, 1_000][random.below(3)]
        setting.limits.requestsPerHandler = Setting.requestsPerHandler(&random)
        setting.limits.requests = [200, 1_000, 10_000][random.below(3)]
        setting.limits.dueDeliveries = [60, 300, 2_000][random.below(3)]
        try tell(.limitsChanged(setting.limits))
    }

    /// What an origin may have now; 0 if nobody ever wanted anything there.
    private func limit(of origin: Int) -> Int { trial.model.origins["http://o\(origin).test"]?.limit ?? 0 }

    /// A transfer begins, as the origin sees it: invariant 9, by its own count.
    /// - Parameter origin: nil for what only users' own workers fetch.
    mutating func transferBegins(at origin: Int?) throws(Violation) {
        guard let origin else { return }
        origins[origin].running += 1
        let most = formerLimits.reduce(limit(of: origin)) {
            max($0, $1.until + Self.limitMemory < now ? 0 : $1.limits[origin])
        }
        guard origins[origin].running <= most else {
            throw Violation(9, "origin \(origin) counts \(origins[origin].running) transfers, the limit is \(most)")
        }
    }
}
