internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// A broker and all its peers in one process: fake time, one random generator, no threads.
struct World {
    /// Time after which a lowered limit must be effective at an origin, in nanoseconds: longer than a JOB's transit.
    private static let limitGraceNanoseconds: Int64 = 100_000_000

    var setting: Setting
    let catalogue: Catalogue
    var random: SeededGenerator
    /// Generator for the disk only, so that its faults change nothing else of a world.
    private var diskRandom: SeededGenerator
    /// Generator for split passes, for the same reason.
    private var splitPassRandom: SeededGenerator
    /// Transfers for the previous broker, and the draws of requests for the same URLs.
    /// Generator of draws around the death of a broker alone, so that they change no other draw of a world.
    var deathRandom: SeededGenerator
    private(set) var trial: Trial
    /// Ledgers of earlier brokers.
    private(set) var earlierLedgers: [Ledger] = []
    var now: Int64 = 1_000_000_000
    private var plannedEvents = Heap<PlannedEntry>()
    private var plannedCount: UInt64 = 0
    private var needsDispatch = false
    /// Events caused by executing actions.
    private var causedEvents: [BrokerEvent] = []
    /// Whether peers start nothing new.
    private(set) var isEnding = false
    /// Whether no client reconnects.
    private(set) var isOver = false
    /// All events passed to the core, if recorded.
    private(set) var history: [HistoryEntry]?

    var clients: [SimulatedClient] = []
    var workers: [SimulatedWorker] = []
    var origins: [SimulatedOrigin]
    var links: [UInt64: Link] = [:]
    /// Number of requests without a shared flight.
    var lastUnsharedRequest = 0
    var lastLink: UInt64 = 0
    var lastBody: UInt64 = 0
    /// Partial bodies by name.
    var spool: [String: SimulatedFile] = [:]
    /// Descriptions of partial bodies by name, as the shell stores them.
    var recordedParts: [String: (PartKeys, PartDescription)] = [:]
    /// Parts that outlived their flights, by key.
    var storedParts: [String: StoredPart] = [:]
    /// Files whose ownership clients received, by client.
    var takenFiles: [String: Int] = [:]
    /// Names of waiting bodies in the spool.
    private var waitingBodies: Set<String> = []
    /// Whether the disk rejects writes.
    private(set) var isDiskFull = false
    /// Number of changes of a URL's content.
    var contentVersions: [Int: Int] = [:]
    /// Earlier limits of origins that may still be effective, oldest first.
    private var formerLimits: [(until: Int64, limits: [Int])] = []

    init(_ options: SimulationOptions, keepsHistory: Bool) {
        random = SeededGenerator(seed: options.seed)
        diskRandom = SeededGenerator(seed: ~options.seed)
        splitPassRandom = SeededGenerator(seed: options.seed &+ 1)
        deathRandom = SeededGenerator(seed: options.seed &+ 7)
        setting = Setting(options, &random)
        catalogue = Catalogue(setting)
        trial = Trial(limits: setting.limits, canary: options.canary)
        origins = Array(repeating: SimulatedOrigin(), count: setting.originCount)
        history = keepsHistory ? [] : nil
        workers = Array(repeating: SimulatedWorker(), count: setting.workerCount + setting.userWorkerCount)
        for _ in 0..<setting.clientCount { clients.append(makeClient()) }
        for client in clients.indices {
            planEvent(random.nanoseconds(around: setting.meanPauseNanoseconds), .clientConnects(client))
        }
        for worker in workers.indices {
            planEvent(random.nanoseconds(around: setting.meanPauseNanoseconds), .workerStarts(worker))
        }
        planEvent(random.nanoseconds(around: 1_000_000_000), .limitsChange)
        planEvent(random.nanoseconds(around: setting.meanBrokerLifeNanoseconds), .prepareBrokerDeath)
        if deathRandom.boolean(perMille: 400) {
            planEvent(deathRandom.nanoseconds(around: 1_000_000_000), .prepareBrokerDeath)
        }
        if setting.isEnabled(.diskFaults) { planEvent(diskRandom.nanoseconds(around: 1_000_000_000), .diskChanges) }
    }

    // MARK: Running

    /// Runs until the core has received `steps` events, then lets all work finish.
    mutating func run(steps: Int) throws(Violation) {
        while trial.steps < steps { try executeNextEvent() }
        isEnding = true
        if setting.endsWithDrain {
            try handle(.drain)
            let end = now + 5_000_000_000
            while now < end, !plannedEvents.isEmpty { try executeNextEvent() }
            try trial.audit()
        } else {
            try runUntilFinished(steps)
        }
    }

    /// Executes the next event.
    private mutating func executeNextEvent() throws(Violation) {
        let planned = plannedEvents.min?.at
        let timer = trial.broker.core.nextTimer?.nanoseconds
        let next = min(planned ?? .max, timer ?? .max)
        if needsDispatch, next > now || random.boolean(perMille: 250) {
            try handle(.dispatch(unread: drawUnreadClients()))
            return
        }
        // A core with pending work requests the next pass at once; input that arrived meanwhile is included.
        let isCrossed = trial.broker.core.hasPendingRemovals && planned != nil && random.boolean(perMille: 600)
        if let timer, timer <= planned ?? .max, !isCrossed {
            now = max(now, timer)
            try handle(.timePassed)
        } else if let plan = plannedEvents.popMin() {
            now = max(now, plan.at)
            try handlePlanned(plan.plannedEvent)
        }
    }

    /// Draws the clients whose input is not completely read in a pass.
    private mutating func drawUnreadClients() -> [ClientID] {
        guard setting.isEnabled(.splitPasses) else { return [] }
        return trial.broker.core.clientsThatMayRejoin.filter { _ in splitPassRandom.boolean(perMille: 700) }
    }

    private mutating func runUntilFinished(_ steps: Int) throws(Violation) {
        // Otherwise a client that exceeds its limit, and is closed because of too many refusals, would repeat its
        // requests forever.
        setting.limits.maximumDueTerminalsPerClient = CoreLimits().maximumDueTerminalsPerClient
        try handle(.limitsChanged(setting.limits))
        let bound = trial.steps + 100_000 + steps / 10
        let end = now + 3_600_000_000_000
        func isDone() -> Bool {
            let ledger = trial.broker.core.ledger
            return ledger.requests.pending == 0 && ledger.deliveries.outstanding == 0
        }
        while !isDone(), trial.steps < bound, now < end, hasPlannedEvents { try executeNextEvent() }
        guard isDone() else {
            try trial.auditEnd()
            throw Violation(
                1, "something is pending after everything ran out: \(trial.broker.core.ledger)",
                kind: "pending at the end")
        }
        isOver = true
        for link in clients.compactMap(\.link) {
            links[link] = nil
            try handle(.clientLost(ClientID(rawValue: link)))
        }
        while !trial.broker.core.isIdle, trial.steps < bound + 10_000, now < 2 * end, hasPlannedEvents {
            try executeNextEvent()
        }
        try trial.auditEnd()
    }

    private var hasPlannedEvents: Bool { !plannedEvents.isEmpty || trial.broker.core.nextTimer != nil }

    /// Passes an event to the broker, executes its actions, and passes on the resulting events.
    mutating func handle(_ event: BrokerEvent) throws(Violation) {
        try handleSingleEvent(event)
        var index = 0
        while index < causedEvents.count {
            try handleSingleEvent(causedEvents[index])
            index += 1
        }
        if index > 0 { causedEvents.removeAll(keepingCapacity: true) }
    }

    private mutating func handleSingleEvent(_ event: BrokerEvent) throws(Violation) {
        let tick = MonotonicTime(nanoseconds: now)
        history?.append(HistoryEntry(now: tick, event: event))
        needsDispatch = if case .dispatch(let unread) = event { !unread.isEmpty } else { true }
        var refused: Set<ClientID> = []
        for action in try trial.handleEvent(event, now: tick) {
            if let consequence = try carryOut(action, &refused) { causedEvents.append(consequence) }
        }
    }

    // MARK: Planning

    mutating func planEvent(_ delay: Int64, _ plannedEvent: PlannedEvent) {
        plannedCount += 1
        plannedEvents.insert(PlannedEntry(at: now + delay, insertionOrder: plannedCount, plannedEvent: plannedEvent))
    }

    /// Plans the arrival of a message from a client or worker.
    mutating func planArrival(atBrokerOver link: UInt64, _ plannedEvent: PlannedEvent) {
        guard let last = links[link]?.lastArrivalAtBroker else { return }
        let arrival = max(last, now + random.nanoseconds(around: setting.meanTransitNanoseconds))
        links[link]?.lastArrivalAtBroker = arrival
        planEvent(arrival - now, plannedEvent)
    }

    /// Plans the arrival of a message from the broker.
    mutating func planArrival(atPeerOver link: UInt64, _ plannedEvent: PlannedEvent) {
        guard let known = links[link], !known.isBroken else { return }
        let arrival = max(known.lastArrivalAtPeer, now + random.nanoseconds(around: setting.meanTransitNanoseconds))
        links[link]?.lastArrivalAtPeer = arrival
        planEvent(arrival - now, plannedEvent)
    }

    private mutating func handlePlanned(_ plannedEvent: PlannedEvent) throws(Violation) {
        switch plannedEvent {
        case .clientActs(let client): clientActs(client)
        case .clientConnects(let client): try clientConnects(client)
        case .clientAcknowledges(let client, let link): clientAcknowledges(client, link)
        case .messageFromClient(let link, let sentMessage): try clientMessageArrived(sentMessage, link)
        case .messageToClient(let link, let message): try clientReceives(message, link)
        case .clientGone(let link):
            guard links.removeValue(forKey: link) != nil else { return }
            try awaitRemoval(by: ClientID(rawValue: link))
            try handle(.clientLost(ClientID(rawValue: link)))
        case .clientWritable(let link):
            guard links[link] != nil else { return }
            try handle(.clientWritable(ClientID(rawValue: link)))
        case .workerStarts(let worker): try workerStarts(worker)
        case .workerActs(let worker): workerActs(worker)
        case .messageFromWorker(let link, let sentMessage): try workerMessageArrived(sentMessage, link)
        case .messageToWorker(let link, let message): try workerReceives(message, link)
        case .workerConnectionLost(let link): try reportWorkerDisconnection(link)
        case .workerGone(let link):
            guard links[link] != nil else { return }
            try keepParts(of: link)
            links[link] = nil
            // A third of them, without a number from the generator, which would change all later ones.
            let worker = WorkerID(rawValue: link)
            try handle(link % 3 == 0 ? .workerKilled(worker) : .workerLost(worker))
        case .processEnds(let process): try handle(.processEnded(process))
        case .transferEnds(let worker, let attempt): transferEnds(attempt, worker)
        case .limitsChange: try changeLimits()
        case .prepareBrokerDeath: prepareBrokerDeath()
        case .brokerDies: try brokerDies()
        case .diskChanges:
            isDiskFull = !isDiskFull && !isEnding
            if !isEnding { planEvent(diskRandom.nanoseconds(around: 1_000_000_000), .diskChanges) }
        }
    }

    /// Ends a client's removal before the client's next event, as the shell does.
    mutating func awaitRemoval(by id: ClientID) throws(Violation) {
        while trial.broker.core.hasPendingRemoval(by: id) { try handle(.dispatch(unread: drawUnreadClients())) }
    }

    private mutating func sendFromBroker(_ message: BrokerMessage, to number: UInt64? = nil, down link: UInt64) {
        planArrival(atPeerOver: link, .messageToClient(link: link, NumberedAnswer(message, answeredNumber: number)))
    }

    /// Executes an action of the core.
    /// - Returns: The resulting event.
    private mutating func carryOut(_ action: Action, _ refused: inout Set<ClientID>) throws(Violation) -> BrokerEvent? {
        switch action {
        case .client(.send(let id, .progress(let progress))) where isSocketFull():
            planEvent(random.nanoseconds(around: 200_000_000), .clientWritable(link: id.rawValue))
            return .progressRefused(id, progress.handler, progress.request)
        case .client(.send(let id, let message)): sendFromBroker(message, down: id.rawValue)
        case .client(.replyToNumberedMessage(let id, let message, _, let number)):
            sendFromBroker(message, to: number, down: id.rawValue)
        case .client(.answerQuery(let id, let query, _)): sendFromBroker(.queryAnswer(query), down: id.rawValue)
        case .client(.deliverTerminal(let id, let terminal, _)): return deliver(terminal, to: id, &refused)
        case .client(.close(let id, _)): connectionClosed(id.rawValue)
        case .worker(.send(let id, _)) where isWorkerSocketFull(): return .workerBlocked(id)
        case .worker(.sendJob(let id, _, _)) where isWorkerSocketFull(): return .workerBlocked(id)
        case .worker(.send(let id, let message)):
            planArrival(atPeerOver: id.rawValue, .messageToWorker(link: id.rawValue, message))
        case .worker(.sendJob(let id, let job, _)):
            planArrival(atPeerOver: id.rawValue, .messageToWorker(link: id.rawValue, .job(job)))
        case .worker(.kill(let id)):
            if let worker = links[id.rawValue]?.peerNumber, workers[worker].openConnections.contains(id.rawValue) {
                workerDies(worker)
            }
        case .worker(.close(let id)): workerConnectionClosed(id.rawValue)
        // No simulated client pulls bodies.
        case .client(.sendBodyPiece): break
        case .spool(.spillBody(let body, let file)):
            // An existing file of that name is not written again.
            guard !isDiskFull || waitingBodies.contains(file) else { return .spillFailed(body) }
            waitingBodies.insert(file)
        case .spool(.writeBody): break
        case .spool(.releaseFile(let file)):
            waitingBodies.remove(file)
            takenFiles[file] = nil
        case .supervisor(.killWorker(let process)): workerDies(Int(process) - 1)
        case .spool(.releaseBody), .supervisor(.settingChanged), .supervisor(.requestEnded): break
        case .spool(.removeStaleAttemptFiles): sweepSpool()
        case .worker(.resumeJob(let id, _, _)) where isWorkerSocketFull(): return .workerBlocked(id)
        case .worker(.resumeJob(let id, let job, let keys)): return sendResumingJob(job, keys, at: id)
        case .spool(.assignPart(let file, let other)): renameSpoolFile(file, to: other)
        case .spool(.removePart(let file)): spool[file] = nil
        case .spool(.recordPart(let file, let keys, let part)): recordedParts[file] = (keys, part)
        case .spool(.storePart(let file)): storePart(file)
        // This world has no cache and no disk for durable requests; the model reports their use.
        case .cache, .durable: break
        // Its log has no attempts.
        case .log: break
        }
        return nil
    }

    private mutating func deliver(
        _ terminal: Terminal, to id: ClientID, _ refused: inout Set<ClientID>
    ) -> BrokerEvent? {
        // No terminal overtakes a refused one.
        guard !refused.contains(id) else { return nil }
        if isSocketFull() {
            refused.insert(id)
            planEvent(random.nanoseconds(around: 200_000_000), .clientWritable(link: id.rawValue))
            return .deliveryRefused(id, terminal.sequence)
        }
        let isInline = terminal.response?.isInline ?? false
        let sent = isInline ? terminal.withoutFile() : terminal
        sendFromBroker(.terminal(sent), down: id.rawValue)
        return nil
    }

    /// Returns whether a socket is full now.
    private mutating func isSocketFull() -> Bool {
        setting.isEnabled(.fullSockets) && !isEnding && random.boolean(perMille: 10)
    }

    /// Returns whether a worker's socket is full now, because it reads more slowly than the broker sends.
    private mutating func isWorkerSocketFull() -> Bool {
        setting.isEnabled(.fullSockets) && !isEnding && random.number(below: 3_000) == 0
    }

    // MARK: Brokers

    /// Makes clients send requests, and plans the broker's death while workers are likely to serve them.
    private mutating func prepareBrokerDeath() {
        guard !isEnding else { return }
        planEvent(random.nanoseconds(around: setting.meanBrokerLifeNanoseconds), .prepareBrokerDeath)
        guard setting.isEnabled(.brokerDeaths) else { return }
        for client in clients.indices { clientSubmitsBeforeDeath(client) }
        planEvent(
            2 * setting.meanTransitNanoseconds + deathRandom.nanoseconds(around: setting.meanTransferNanoseconds),
            .brokerDies)
    }

    /// Kills the broker with all its connections; its peers' processes continue.
    private mutating func brokerDies() throws(Violation) {
        guard !isEnding else { return }
        earlierLedgers.append(trial.broker.core.ledger)
        links = [:]
        for client in clients.indices {
            clients[client].link = nil
            planEvent(random.nanoseconds(around: 200_000_000), .clientConnects(client))
            if deathRandom.boolean(perMille: 500) {
                planEvent(deathRandom.nanoseconds(around: 30_000_000), .clientConnects(client))
            }
        }
        for worker in workers.indices {
            workers[worker].openConnections = []
            workers[worker].link = nil
            workers[worker].hasBeenWelcomed = false
            // No broker is left to detect that a user's worker hangs. The next one kills others.
            if workers[worker].isHung, worker >= setting.workerCount { workerDies(worker) }
            if !workers[worker].isHung { planEvent(random.nanoseconds(around: 50_000_000), .workerStarts(worker)) }
        }
        for name in spool.keys where SpoolName.isKeptPart(name) { spool[name] = nil }
        takenFiles = [:]
        waitingBodies = []
        let until = MonotonicTime(nanoseconds: now).advanced(byMilliseconds: 1_000)
        let living = (0..<setting.workerCount).filter { workers[$0].isAlive }.map { process(of: $0) }
        try handle(.brokerReplaced(setting.limits, awaiting: Set(living), until: until))
    }

    // MARK: Limits

    private mutating func changeLimits() throws(Violation) {
        guard !isEnding else { return }
        planEvent(random.nanoseconds(around: 3_000_000_000), .limitsChange)
        guard setting.isEnabled(.limitChanges) else { return }
        formerLimits.removeAll { $0.until + Self.limitGraceNanoseconds < now }
        formerLimits.append((now, origins.indices.map(originLimit)))
        setting.drawOriginRules(&random)
        setting.limits.maximumOpenRequestsPerClient = [20, 80, 1_000][random.number(below: 3)]
        setting.limits.maximumOpenRequestsPerHandler = Setting.drawRequestsPerHandler(&random)
        setting.limits.maximumOpenRequests = [200, 1_000, 10_000][random.number(below: 3)]
        setting.limits.maximumDueTerminalsPerClient = [60, 300, 2_000][random.number(below: 3)]
        try handle(.limitsChanged(setting.limits))
    }

    /// Returns the current limit of an origin; 0 if it was never used.
    private func originLimit(of origin: Int) -> Int { trial.model.origins["http://o\(origin).test"]?.limit ?? 0 }

    /// Counts the start of a transfer at its origin: invariant 9, independently of the model.
    /// - Parameter origin: Nil for a URL served by users' workers.
    mutating func transferBegins(at origin: Int?) throws(Violation) {
        guard let origin else { return }
        origins[origin].runningTransfers += 1
        let most = formerLimits.reduce(originLimit(of: origin)) {
            max($0, $1.until + Self.limitGraceNanoseconds < now ? 0 : $1.limits[origin])
        }
        guard origins[origin].runningTransfers <= most else {
            throw Violation(
                9, "origin \(origin) counts \(origins[origin].runningTransfers) transfers, the limit is \(most)")
        }
    }
}
