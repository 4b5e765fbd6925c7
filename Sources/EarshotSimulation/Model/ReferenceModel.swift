internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// A second opinion on what a broker owes to whom.
///
/// It is told each event a core is told, with the actions that followed and the ledger after them, and says which
/// invariant of ARCHITECTURE.md they break. Plain dictionaries of what was observed: it shares no structure with
/// the core, and decides nothing the core is free to decide (whose turn it is, which worker, when to try again).
final class ReferenceModel {
    struct Moment: Comparable {
        enum Subject {
            case deadline(RequestRecord)
            case grace(RequestRecord)
            case abandoned(RequestRecord)
            /// The end of a time away, if it is still that one.
            case lease(SessionRecord, until: Tick)
            /// The end of a time without workers, if it is still that one.
            case deserted(Substring, absence: Int)
            /// A flight has waited for a worker of its own long enough, if no other died of it since.
            case suspicion(FlightRecord, deaths: Int)
            case silence(WorkerID, askedAt: Tick)
            /// What could not be written is tried again.
            case spoolRetry
        }

        var at: Tick
        var subject: Subject

        static func < (left: Moment, right: Moment) -> Bool { left.at < right.at }
        static func == (left: Moment, right: Moment) -> Bool { left.at == right.at }
    }

    /// What was removed and is not purged yet, as the core tells it: only how much that is, not what.
    struct PurgeState {
        var isUnderWay: Bool
        /// Terminals it will still begin.
        var notices: Int
    }

    /// What is left of a transfer that broke.
    struct KeptRecord {
        var content: FlightContent?
        var bytes: Int
        /// Of the response whose body it is.
        var fields: [UInt8]
    }

    /// The answer an event must get at once.
    enum Reply {
        /// Milliseconds of lease; of a session that is resumed how much of it was heard, and its replies.
        case welcome(lease: Int, token: SessionToken, heard: UInt64?, replies: UInt64?)
        case cancelled(HandlerID, RequestID)
        case removed(HandlerPattern, Int)
        case answer
        /// A setting in normal form.
        case changed([String])
        case error(String)
    }

    /// What was fetched for an earlier broker and nobody has asked for yet.
    enum OrphanRecord {
        case running(WorkerID, AttemptID)
        case answered(Completion, BodyID?, at: Tick)
    }

    let instance: BrokerInstance
    var limits: CoreLimits
    var now = Tick(nanoseconds: 0)
    var isDraining = false
    /// Sessions that have a connection, by that.
    var connections: [ClientID: SessionRecord] = [:]
    /// All sessions, by their first connection: so they are named as owners and listeners.
    var sessions: [ClientID: SessionRecord] = [:]
    /// Sessions without a connection, in the order in which they lost it.
    var away: [SessionRecord] = []
    var pool: [WorkerID: PoolRecord] = [:]
    /// Of users' own workers.
    var schemes: [Substring: SchemeRecord] = [:]
    var origins: [Substring: OriginRecord] = [:]
    var scopes: [ScopeName: ScopeRecord] = [:]
    /// Requests whose names are taken.
    var listed: [RequestName: RequestRecord] = [:]
    var listedByHandler: [HandlerID: [Int: RequestRecord]] = [:]
    /// Who hears a handler, and who hears all below a name.
    var handlerListeners: [HandlerID: Set<ClientID>] = [:]
    var subtreeListeners: [HandlerID: Set<ClientID>] = [:]
    var prefixes: [HandlerID: [HandlerID]] = [:]
    var openFlights: [FlightContent: FlightRecord] = [:]
    var flightsByID: [UInt64: FlightRecord] = [:]
    /// Open flights no JOB has named yet.
    var unnamedFlights: [JobContent: [FlightRecord]] = [:]
    /// Running flights without requests that are not cancelled yet, since messages to come may rejoin them.
    var left: [FlightRecord] = []
    /// Attempts nobody wants any more, whose CANCEL has to come.
    var owedCancellations: Set<AttemptID> = []
    /// Users' own workers that were put out, whose connections have to be closed.
    var owedClosings: Set<WorkerID> = []
    /// Workers that are to be told of a drain.
    var owedDrains: Set<WorkerID> = []
    var moments = Heap<Moment>()
    /// Bodies the core holds.
    var bodies: Set<BodyID> = []
    /// Spool files the core was told of and has not given up.
    var files: Set<String> = []
    /// Those of them that were given away, with the session that may move or change each.
    var given: [String: ClientID] = [:]
    /// Files that bodies were moved to while their terminals waited.
    var spilled: [BodyID: String] = [:]
    /// Terminals that the shell keeps, with the bodies that they were given.
    var waiting: [WaitingID: (terminal: Terminal, body: BodyID?)] = [:]
    /// Whether something could not be written a short while ago: nothing is to be written before that is over.
    var isSpoolFull = false
    /// What was taken back of transfers that broke, by its file.
    var keptParts: [String: KeptRecord] = [:]
    /// Of them what the JOB that follows has to go on with.
    var lent: (name: String, part: KeptRecord)?
    var ledger = Ledger()
    var serial = 0
    /// What attempts of earlier lives were for; of those alone that others may share and that began at their beginning.
    let inherited: [AttemptID: FlightContent]
    /// When what workers hold is taken over no longer.
    var adoptionEnd: Tick?
    var orphans: [FlightContent: OrphanRecord] = [:]
    /// Flights whose answer was there before them, oldest first.
    var answeredBefore: [FlightRecord] = []
    /// When users' own workers of the life before are awaited no longer.
    var ownWorkersAwaitedUntil: Tick?
    /// Workers that have to be heard before anything starts, and until when.
    var awaited: (count: Int, until: Tick)?

    // What the present event calls for.

    var reply: (ClientID, Reply)?
    /// The raise a running attempt must get: somebody joined who allows more.
    var owedRaise: (AttemptID, maxBytes: Int?)?
    /// Attempts tried again, as the core's ledger counts.
    var retriedBefore = 0
    /// What removals will tell and the core had not begun before this event, and whether it has now.
    private var noticesBefore = 0
    private var wasPurging = false
    var hasNotices = false
    /// Clients that have to be closed since what waits for them has no place, or is lost.
    var owedEnds: Set<ClientID> = []
    /// How requests ended of which it is not foreseen whether the core had a place for the body: nil for a result.
    var doubts: [String?] = []
    /// Flights that ended in this pass since nobody serves their schemes, and whether others are left to the next.
    var refusals: [Substring: Int] = [:]
    var leavesRefusals = false
    /// The invariant a wrong ledger breaks after this event.
    var blame = 10
    private(set) var violation: Violation?

    /// - Parameter predecessor: the model of the life before.
    init(instance: BrokerInstance, limits: CoreLimits, after predecessor: ReferenceModel? = nil) {
        self.instance = instance
        self.limits = limits
        var inherited = predecessor?.inherited ?? [:]
        for worker in predecessor?.pool.values.map(\.self) ?? [] {
            for (attempt, lease) in worker.leases where lease.content.alone == nil && !lease.isResuming {
                inherited[attempt] = lease.content
            }
        }
        self.inherited = inherited
    }

    /// Whether nothing is wanted, running or owed.
    var isEmpty: Bool {
        listed.isEmpty && openFlights.isEmpty && flightsByID.isEmpty
            && sessions.values.allSatisfy { $0.owned.isEmpty }
            && pool.values.allSatisfy(\.leases.isEmpty) && orphans.isEmpty && owedCancellations.isEmpty
            && bodies.isEmpty && files.isEmpty && waiting.isEmpty
            && keptParts.isEmpty
            && origins.values.allSatisfy { $0.running == 0 && $0.flights == 0 } && ledger.requests.pending == 0
            && ledger.deliveries.outstanding == 0
    }

    /// Judges one event. O(what it concerns).
    /// - Parameters:
    ///   - purge: what the core says it has not come to yet of what was removed.
    ///   - isOpen: whether a request waits, as the core says: with which of them it ends is its own to choose, now and
    ///     then.
    func observe(
        _ event: BrokerEvent, at now: Tick, actions: [Action], ledger told: Ledger, purge: PurgeState,
        isOpen: (RequestName) -> Bool
    ) -> Violation? {
        self.now = now
        reply = nil
        owedRaise = nil
        blame = 10
        hasNotices = max(noticesBefore, purge.notices) > 0
        refusals = [:]
        leavesRefusals = false
        owedEnds = []
        defer { (noticesBefore, wasPurging) = (purge.notices, purge.isUnderWay) }
        let hasRetried = told.flights.retried > retriedBefore
        retriedBefore = told.flights.retried
        take(event, actions, hasRetried: hasRetried)
        queueReply()
        let isPass = if case .dispatch = event { true } else { false }
        if !isPass { compare(told, purge) }
        for action in actions {
            guard violation == nil else { break }
            take(action, after: event)
        }
        if isPass, violation == nil {
            strandAll(isOpen, isPurging: wasPurging || purge.isUnderWay)
            compare(told, purge)
        }
        if let worker = owedClosings.first { object(14, "worker \(worker.rawValue) is not put out") }
        if let worker = owedDrains.first { object(14, "worker \(worker.rawValue) is not told of the drain") }
        if case .clientSaid(let id, .hello) = event, let client = connections[id], client.owesAgain {
            object(1, "client \(id.rawValue) is not sent again what it has not acknowledged")
        }
        if let id = event.client { judgeReplies(to: id) }
        if let id = owedEnds.first { object(11, "client \(id.rawValue) is left with what has no place or is lost") }
        if let (client, reply) = reply { object(2, "client \(client.rawValue) is not told \(reply)") }
        expect(lent == nil, 12, "a part is given away and no JOB goes on with it")
        expect(
            keptParts.count <= limits.partsAside + openFlights.count, 11,
            "\(keptParts.count) parts are kept for \(openFlights.count) flights")
        if let (attempt, _) = owedRaise { object(8, "\(attempt) is not raised for one who allows more") }
        if !purge.isUnderWay, let attempt = owedCancellations.first {
            object(4, "\(attempt) runs for nobody and is not cancelled")
        }
        return violation
    }

    /// Notes the first fault.
    /// - Parameter kind: of what was found, see `Violation`.
    func object(_ invariant: Int, _ detail: @autoclosure () -> String, kind: @autoclosure () -> String? = nil) {
        if violation == nil { violation = Violation(invariant, detail(), kind: kind()) }
    }

    func expect(
        _ holds: Bool, _ invariant: Int, _ detail: @autoclosure () -> String, kind: @autoclosure () -> String? = nil
    ) {
        if !holds { object(invariant, detail(), kind: kind()) }
    }

    private func take(_ event: BrokerEvent, _ actions: [Action], hasRetried: Bool) {
        switch event {
        case .clientConnected(let id, let isRequestReply):
            if connections[id] == nil { connected(id, isRequestReply: isRequestReply) }
        case .clientSaid(let id, let message): clientSaid(message, by: id)
        case .clientSaidNonsense(let id, let error):
            if connections[id]?.isOpen == true { connections[id]?.heard += 1 }
            if connections[id] != nil { reply = (id, .error(error.code.rawValue)) }
        case .clientLost(let id): clientLost(id)
        case .deliveryTaken(let id, let sequence):
            guard let client = connections[id], client.window == nil, sequence <= client.lastSequence else { return }
            acknowledged(sequence, by: client)
        case .deliveryRefused(let id, let sequence): deliveryRefused(sequence, by: id)
        case .clientWritable(let id): connections[id]?.isBlocked = false
        case .progressRefused: break
        case .waitingFailed: spoolFilled()
        case .waitingLost(let id): waitingLost(by: id)
        case .spillFailed(let body): spillFailed(body)
        case .workerConnected(let id): if pool[id] == nil { pool[id] = PoolRecord(id) }
        case .workerSaid(let id, .ready(let ready), _):
            // Whether there is room for its schemes is not foreseen: what has to be remembered of one takes room.
            let isTakenIn = actions.contains { if case .sendWorker(id, .limits) = $0 { true } else { false } }
            guard let worker = pool[id] else { return }
            worker.askedAt = nil
            if !worker.isReady, isTakenIn { workerReady(ready, worker) }
        case .workerSaid(let id, let message, let body): workerSaid(message, body, by: id, hasRetried: hasRetried)
        case .workerSaidNonsense(let id, let error): workerSaidNonsense(error, by: id, hasRetried: hasRetried)
        case .workerDisconnected(let id, let isAlive): workerDisconnected(id, isProcessAlive: isAlive)
        case .workerLost(let id): workerLost(id)
        case .workerBlocked(let id): if let worker = pool[id] { putOut(worker) }
        case .partKept(let id, let attempt, let bytes):
            let lease = pool[id]?.leases[attempt]
            keptParts[BrokerCore.keptName(of: attempt)] = KeptRecord(
                content: lease?.content, bytes: bytes, fields: lease?.fields ?? [])
        case .timePassed: timePassed()
        case .dispatch(let unread):
            settleLeft(unread: unread)
            countWorkers()
            useAnswers()
        case .brokerReplaced: break
        case .limitsChanged(let changed): limitsChanged(changed)
        case .drain: drain()
        }
    }

    // MARK: Ledgers

    /// Invariant 10: both ledgers say what the model counted.
    private func compare(_ told: Ledger, _ purge: PurgeState) {
        expect(told.isBalanced, 10, "the ledger does not balance: \(told)", kind: "balance")
        settleDoubts(told)
        let requests = told.requests
        let own = ledger.requests
        expect(
            requests.submitted == own.submitted && requests.answered == own.answered
                && requests.removed == own.removed && requests.orphaned == own.orphaned
                && requests.pending == own.pending && requests.failures == own.failures,
            blame, "requests are \(requests), by the model \(own)", kind: Self.difference(requests, own))
        expect(
            told.deliveries.due + purge.notices == ledger.deliveries.due, blame,
            "\(told.deliveries.due) deliveries and \(purge.notices) of removals are due, by the model \(ledger.deliveries.due)"
        )
        expect(
            told.deliveries.acknowledged == ledger.deliveries.acknowledged, 10,
            "\(told.deliveries.acknowledged) deliveries are acknowledged, by the model \(ledger.deliveries.acknowledged)"
        )
        expect(
            told.deliveries.lost == ledger.deliveries.lost, blame,
            "\(told.deliveries.lost) deliveries are lost, by the model \(ledger.deliveries.lost)")
        expect(
            told.flights.stale == ledger.flights.stale, 6,
            "\(told.flights.stale) completions were stale, by the model \(ledger.flights.stale)")
        expect(
            told.flights.unwantedBytes == ledger.flights.unwantedBytes, 12,
            "\(told.flights.unwantedBytes) bytes came unwanted, by the model \(ledger.flights.unwantedBytes)")
    }

    /// Which requests one ledger has more of than the other.
    private static func difference(_ told: Ledger.Requests, _ own: Ledger.Requests) -> String {
        let counts = [
            ("submitted", told.submitted, own.submitted), ("answered", told.answered, own.answered),
            ("removed", told.removed, own.removed), ("orphaned", told.orphaned, own.orphaned),
            ("pending", told.pending, own.pending), ("failed", told.failures, own.failures),
        ]
        let different = counts.compactMap { name, told, own in
            told == own ? nil : "\(told > own ? "more" : "fewer") \(name)"
        }
        return "requests: " + different.joined(separator: ", ")
    }

    /// The ledgers again, failures by code and lost deliveries included, and whether work was left lying.
    func audit(_ told: Ledger) -> Violation? {
        expect(
            told.requests.failed == ledger.requests.failed, 10,
            "failures are \(told.requests.failed), by the model \(ledger.requests.failed)", kind: "failures by code")
        return violation
    }

    /// What is not over although everything was let run out.
    func auditEnd(_ told: Ledger) -> Violation? {
        if let name = listed.keys.first { object(1, "\(listed.count) requests hang, one is \(name)") }
        expect(
            isEmpty, 12, "the model is not empty: \(openFlights.count) flights, \(bodies.count) bodies, \(files)",
            kind: "not empty")
        expect(
            told.deliveries == ledger.deliveries, 10, "\(told.deliveries), by the model \(ledger.deliveries)",
            kind: "deliveries at the end")
        return audit(told)
    }
}
