internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Reference model: an independent account of a broker's obligations.
///
/// It receives each event of a core with the resulting actions and ledger, and reports which invariant of
/// ARCHITECTURE.md they violate. It consists of plain dictionaries of observations, and shares no structure with the
/// core. It leaves open all decisions that are free: fairness, choice of workers, time of retries.
final class ReferenceModel {
    struct ModelTimer: Comparable {
        enum Subject {
            case deadline(RequestRecord)
            case graceEnd(RequestRecord)
            case abandonedRemoval(RequestRecord)
            /// Expiry of a lease, if the session is still in the same absence.
            case lease(SessionRecord, until: MonotonicTime)
            /// End of a scheme's waiting time, if it is still in the same absence.
            case schemeLost(Substring, absence: Int)
            /// End of a suspect's waiting time for isolation, if no further worker died of it.
            case isolationWait(FlightRecord, deaths: Int)
            case pingTimeout(WorkerID, pingedAt: MonotonicTime)
            /// Retry of failed writes.
            case spoolRetry
        }

        var dueAt: MonotonicTime
        var subject: Subject

        static func < (left: ModelTimer, right: ModelTimer) -> Bool { left.dueAt < right.dueAt }
        static func == (left: ModelTimer, right: ModelTimer) -> Bool { left.dueAt == right.dueAt }
    }

    /// Removals that the core has not completed: only the numbers of requests, not their identity.
    struct RemovalState {
        var isUnderWay: Bool
        /// Requests that still count as pending.
        var requests: Int
        /// Terminals that these will have, by client.
        var terminals: [ClientID: Int]

        var terminalCount: Int { terminals.values.reduce(0, +) }
    }

    /// What follows a client's removal.
    enum RemovalFollowUp {
        case reply(Reply)
        /// FETCH that replaced.
        case fetch(Fetch)
    }

    /// Stored beginning of a broken transfer's body.
    struct KeptPart {
        var content: FlightContent?
        var bytes: Int
        /// Header fields of its response.
        var responseFields: [UInt8]
        /// Sessions that have read it while it grew.
        var readerSessions: [SessionRecord]
        /// Whether a session of an earlier flight knows it.
        var isKnownToEarlierSession: Bool
    }

    /// Reply that must follow an event at once.
    enum Reply {
        /// Lease in milliseconds; for a resumed session, the number of the last message.
        case welcome(lease: Int, token: SessionToken, lastReceived: UInt64?)
        case removed(HandlerPattern, Int)
        case requestRemoved(HandlerID, RequestID, wasOpen: Bool)
        case answer
        case taken(UInt64, path: String?)
        /// Normalized setting.
        case changed([String])
        case error(String)
        case ok

        var isAnswer: Bool { if case .answer = self { true } else { false } }
    }

    let instance: BrokerInstance
    var limits: CoreLimits
    var now = MonotonicTime(nanoseconds: 0)
    var isDraining = false
    /// Connected sessions by their connection.
    var connections: [ClientID: SessionRecord] = [:]
    /// All sessions by their first connection, which identifies them as owners and subscribers.
    var sessions: [ClientID: SessionRecord] = [:]
    /// Disconnected sessions in the order of disconnection.
    var awaySessions: [SessionRecord] = []
    var pool: [WorkerID: PoolRecord] = [:]
    /// Schemes of users' workers.
    var schemes: [Substring: SchemeRecord] = [:]
    var origins: [Substring: OriginRecord] = [:]
    var scopes: [ScopeName: ScopeRecord] = [:]
    /// Requests that occupy their names.
    var requestsByName: [RequestName: RequestRecord] = [:]
    var requestsByHandler: [HandlerID: [Int: RequestRecord]] = [:]
    /// Subscribers of a handler, and of a subtree.
    var handlerSubscribers: [HandlerID: Set<ClientID>] = [:]
    var subtreeSubscribers: [HandlerID: Set<ClientID>] = [:]
    var handlerPrefixes: [HandlerID: [HandlerID]] = [:]
    var openFlights: [FlightContent: FlightRecord] = [:]
    var flightsByID: [UInt64: FlightRecord] = [:]
    /// Open flights before their first JOB.
    var unnamedFlights: [JobContent: [FlightRecord]] = [:]
    /// Running flights without requests, not cancelled yet because pending messages may rejoin them.
    var flightsWithoutRequests: [FlightRecord] = []
    /// Unwanted attempts whose CANCEL must follow.
    var expectedCancellations: Set<AttemptID> = []
    /// Users' workers whose connections must be closed.
    var expectedClosings: Set<WorkerID> = []
    /// Workers that must receive DRAIN.
    var expectedDrains: Set<WorkerID> = []
    var timers = Heap<ModelTimer>()
    /// Bodies held by the core.
    var bodies: Set<BodyID> = []
    /// Spool files reported to the core and not released.
    var files: Set<String> = []
    /// Sessions that know a file, by its name.
    var audiences: [String: FileAudience] = [:]
    /// Sessions that know the file of a growing body, by its generation.
    var growthReaders: [String: [SessionRecord]] = [:]
    /// Files to which bodies were spilled while their terminals waited.
    var spilledFiles: [BodyID: String] = [:]
    /// Whether a write failed recently, so that no other write may be tried yet.
    var isSpoolFull = false
    /// Partial bodies of broken transfers, by file.
    var keptParts: [String: KeptPart] = [:]
    /// Partial body that the next JOB must resume.
    var assignedPart: (name: String, part: KeptPart)?
    var ledger = Ledger()
    var lastSerial = 0
    /// Time until which users' workers of an earlier broker are awaited.
    var userWorkersAwaitedUntil: MonotonicTime?
    /// Whether an earlier broker has died.
    var hasPredecessor = false
    /// Its workers that are neither ready nor dead, and the time from which they may be killed.
    var awaitedProcesses: Set<Int32> = []
    var earliestProcessKill = MonotonicTime(nanoseconds: .max)
    /// Time at which none was left.
    var transfersAllowedAt: MonotonicTime?
    var haveLimitsChanged = false

    // Expectations of the current event.

    var expectedReplies: [ClientID: Reply] = [:]
    /// RAISE that a running attempt must receive, because a new request permits a larger body.
    var expectedRaise: (AttemptID, maximumBodyBytes: Int?)?
    /// Retried attempts according to the core's ledger.
    var retriedAttemptsBefore = 0
    /// Removals before this event, and their largest numbers before and after it.
    private var removalBefore = RemovalState(isUnderWay: false, requests: 0, terminals: [:])
    var maximumPendingRemovals = 0
    /// Whether removed requests may still have references to files.
    var isRemoving = false
    var hasUndeliveredRemovals = false
    /// Most terminals of removals that the core did not yet owe a client during this event, though the model counts them.
    var outstandingRemovalTerminals: [ClientID: Int] = [:]
    /// Clients whose removals are under way.
    var removalsUnderWay: [ClientID: RemovalFollowUp] = [:]
    /// The core's ledger after this event, and whether the core still considers a request open.
    var coreLedger = Ledger()
    var isOpenInCore: (RequestName) -> Bool = { _ in false }
    var isHeldInCore: (RequestName) -> Bool = { _ in false }
    /// Clients that must be closed, because a waiting body has no room.
    var expectedSessionCloses: Set<ClientID> = []
    /// Handlers whose held results subscribers have claimed.
    var claimedHandlers: Set<HandlerID> = []
    /// Results for which the model cannot predict whether the core had room for the body; nil for a success.
    var uncertainResults: [String?] = []
    /// Flights ended in this pass because no worker serves their schemes, and whether others remain for the next pass.
    var unservedEndedFlights: [Substring: Int] = [:]
    var leavesUnservedFlights = false
    /// Invariant violated by a wrong ledger after this event.
    var ledgerInvariant = 10
    private(set) var violation: Violation?

    init(instance: BrokerInstance, limits: CoreLimits) {
        self.instance = instance
        self.limits = limits
    }

    /// Whether no request, transfer or obligation is left.
    var isEmpty: Bool {
        requestsByName.isEmpty && openFlights.isEmpty && flightsByID.isEmpty
            && sessions.values.allSatisfy { $0.ownedRequests.isEmpty }
            && pool.values.allSatisfy(\.leases.isEmpty) && expectedCancellations.isEmpty
            && bodies.isEmpty && files.isEmpty
            && keptParts.isEmpty
            && origins.values.allSatisfy { $0.runningTransfers == 0 && $0.flights == 0 } && ledger.requests.pending == 0
            && ledger.deliveries.outstanding == 0
    }

    /// Checks one event. Its cost depends only on the affected records.
    /// - Parameters:
    ///   - removal: Removals that the core has not completed.
    ///   - renamed: File that the shell has renamed before a TAKE.
    ///   - isOpen: Whether the core still considers a request open. It may choose the order in which requests end.
    ///   - isRemoving: Whether a removal of a client is under way.
    ///   - isHeld: Whether the core still holds the result of a request. It may choose the order of deliveries.
    func observe(
        _ event: BrokerEvent, at now: MonotonicTime, actions: [Action], ledger reported: Ledger, removal: RemovalState,
        renamed: FileRename?, isOpen: @escaping (RequestName) -> Bool, isRemoving: (ClientID) -> Bool,
        isHeld: @escaping (RequestName) -> Bool
    ) -> Violation? {
        self.now = now
        expectedReplies = [:]
        expectedRaise = nil
        ledgerInvariant = 10
        self.isRemoving = removalBefore.isUnderWay || removal.isUnderWay
        outstandingRemovalTerminals = removalBefore.terminals.merging(removal.terminals, uniquingKeysWith: max)
        hasUndeliveredRemovals = outstandingRemovalTerminals.values.contains { $0 > 0 }
        maximumPendingRemovals = max(removalBefore.requests, removal.requests)
        (coreLedger, isOpenInCore, isHeldInCore) = (reported, isOpen, isHeld)
        unservedEndedFlights = [:]
        leavesUnservedFlights = false
        expectedSessionCloses = []
        defer {
            removalBefore = removal
            // They hold a copy of the core, whose next change would copy all tables.
            (isOpenInCore, isHeldInCore) = ({ _ in false }, { _ in false })
        }
        let hasRetried = reported.flights.retriedAttempts > retriedAttemptsBefore
        retriedAttemptsBefore = reported.flights.retriedAttempts
        let sender = event.client.flatMap { connections[$0] }
        let hadRoom = sender?.hasRoomForResult(limits) == true ? sender?.id : nil
        let dueBefore = ledger.deliveries.started
        let isEndOfPass = if case .dispatch = event { true } else { false }
        // In a pass, FETCHes that have waited for a removal may rejoin flights before these are cancelled.
        if isEndOfPass { completeRemovals(except: isRemoving) }
        recordEvent(event, actions, renamed, hasRetried: hasRetried)
        completeRemovals(except: isRemoving)
        deliverClaimed(hadRoom: hadRoom, dueBefore: dueBefore, isHeld)
        queueReplies()
        if !isEndOfPass { compareLedgers(reported, removal) }
        for action in actions {
            guard violation == nil else { break }
            checkAction(action, after: event)
        }
        if isEndOfPass, violation == nil {
            checkUnservedRequests(isOpen, isRemoving: self.isRemoving)
            compareLedgers(reported, removal)
        }
        if let worker = expectedClosings.first { recordViolation(14, "worker \(worker.rawValue) is not put out") }
        if let worker = expectedDrains.first {
            recordViolation(14, "worker \(worker.rawValue) is not told of the drain")
        }
        if case .clientSent(let id, .hello, _) = event, let client = connections[id], client.expectsRedelivery {
            recordViolation(1, "client \(id.rawValue) is not sent again what it has not acknowledged")
        }
        if let id = event.client { checkReplies(to: id) }
        if let id = expectedSessionCloses.first {
            recordViolation(11, "client \(id.rawValue) is left with a body that has no room")
        }
        if isEndOfPass { checkHeldAndDueResults() }
        if let (client, reply) = expectedReplies.first {
            recordViolation(2, "client \(client.rawValue) is not told \(reply)")
        }
        expect(assignedPart == nil, 12, "a part is given away and no JOB goes on with it")
        if case .partKept = event {
            // The part belongs to its attempt until the event that ends the attempt, which follows.
        } else {
            expect(
                keptParts.count <= openFlights.count, 11,
                "\(keptParts.count) parts are kept for \(openFlights.count) flights")
        }
        if let (attempt, _) = expectedRaise { recordViolation(8, "\(attempt) is not raised for one who allows more") }
        if !removal.isUnderWay, let attempt = expectedCancellations.first {
            recordViolation(4, "\(attempt) runs for nobody and is not cancelled")
        }
        return violation
    }

    /// Records the first violation.
    /// - Parameter kind: Kind of finding, see `Violation`.
    func recordViolation(_ invariant: Int, _ detail: @autoclosure () -> String, kind: @autoclosure () -> String? = nil)
    {
        if violation == nil { violation = Violation(invariant, detail(), kind: kind()) }
    }

    func expect(
        _ holds: Bool, _ invariant: Int, _ detail: @autoclosure () -> String, kind: @autoclosure () -> String? = nil
    ) {
        if !holds { recordViolation(invariant, detail(), kind: kind()) }
    }

    private func recordEvent(_ event: BrokerEvent, _ actions: [Action], _ renamed: FileRename?, hasRetried: Bool) {
        switch event {
        case .clientConnected(let id): if connections[id] == nil { connected(id) }
        case .clientSent(let id, let message, let number): clientSent(message, number, renamed, by: id)
        case .clientSentMalformed(let id, let error):
            if connections[id]?.isOpen == true { connections[id]?.lastReceived += 1 }
            connections[id]?.currentMessageNumber = 0
            if connections[id] != nil { expectedReplies[id] = .error(error.code.rawValue) }
        case .clientLost(let id): clientLost(id)
        case .deliveryRefused(let id, let sequence): deliveryRefused(sequence, by: id)
        case .clientWritable(let id): connections[id]?.isBlocked = false
        case .progressRefused: break
        case .spillFailed(let body): spillFailed(body)
        case .workerConnected(let id, let process): if pool[id] == nil { pool[id] = PoolRecord(id, process: process) }
        case .processEnded(let process): stopAwaitingProcess(process)
        case .workerSent(let id, .ready(let ready), _):
            // The model cannot predict whether there is room for its schemes, because remembering a scheme takes room.
            let isAccepted = actions.contains { if case .worker(.send(id, .limits)) = $0 { true } else { false } }
            guard let worker = pool[id] else { return }
            worker.pingedAt = nil
            if !worker.isReady, isAccepted { workerReady(ready, worker) }
            // A worker of another machine that is not taken in loses its connection.
            if !worker.isReady, !isAccepted, ready.principal != nil { disconnectForViolation(worker) }
        case .workerSent(let id, let message, let body): workerSent(message, body, by: id, hasRetried: hasRetried)
        case .workerSentMalformed(let id, let error): workerSentMalformed(error, by: id, hasRetried: hasRetried)
        case .workerDisconnected(let id, let isAlive): workerDisconnected(id, isProcessAlive: isAlive)
        case .workerLost(let id): workerLost(id)
        case .workerKilled(let id): workerKilled(id)
        case .workerBlocked(let id): if let worker = pool[id] { disconnectForViolation(worker) }
        case .partKept(let id, let attempt, let bytes):
            let lease = pool[id]?.leases[attempt]
            keptParts[SpoolName.keptPart(of: attempt)] = KeptPart(
                content: lease?.content, bytes: bytes, responseFields: lease?.fields ?? [],
                readerSessions: lease?.sessionsKnowingFile ?? [],
                isKnownToEarlierSession: lease?.continuesKnownPart ?? false)
        case .partFound(let id, let attempt, let part, let bytes): partFound(part, bytes, of: attempt, at: id)
        case .timePassed: timePassed()
        case .dispatch(let unread):
            resolveAbandonedFlights(unread: unread)
        case .brokerReplaced: break
        case .limitsChanged(let changed):
            haveLimitsChanged = true
            limitsChanged(changed)
        case .drain: drain()
        }
    }

    // MARK: Ledgers

    /// Invariant 10: the core's ledger agrees with the model's.
    private func compareLedgers(_ reported: Ledger, _ removal: RemovalState) {
        expect(reported.isBalanced, 10, "the ledger does not balance: \(reported)", kind: "balance")
        resolveUncertainResults(reported)
        let requests = reported.requests
        let own = ledger.requests
        expect(
            requests.submitted == own.submitted && requests.answered == own.answered
                && requests.removed + removal.requests == own.removed && requests.orphaned == own.orphaned
                && requests.pending - removal.requests == own.pending && requests.failedCount == own.failedCount,
            ledgerInvariant, "requests are \(requests), by the model \(own)", kind: Self.ledgerDifference(requests, own)
        )
        expect(
            reported.deliveries.started + removal.terminalCount == ledger.deliveries.started, ledgerInvariant,
            "\(reported.deliveries.started) deliveries and \(removal.terminalCount) of removals are due, by the model \(ledger.deliveries.started)"
        )
        expect(
            reported.deliveries.acknowledged == ledger.deliveries.acknowledged, 10,
            "\(reported.deliveries.acknowledged) deliveries are acknowledged, by the model \(ledger.deliveries.acknowledged)"
        )
        expect(
            reported.deliveries.lost == ledger.deliveries.lost, ledgerInvariant,
            "\(reported.deliveries.lost) deliveries are lost, by the model \(ledger.deliveries.lost)")
        expect(
            reported.flights.staleCompletions == ledger.flights.staleCompletions, 6,
            "\(reported.flights.staleCompletions) completions were stale, by the model \(ledger.flights.staleCompletions)"
        )
        expect(
            reported.flights.bytesAfterCancel == ledger.flights.bytesAfterCancel, 12,
            "\(reported.flights.bytesAfterCancel) bytes came unwanted, by the model \(ledger.flights.bytesAfterCancel)")
    }

    /// Describes which counts differ between the ledgers.
    private static func ledgerDifference(_ reported: Ledger.Requests, _ own: Ledger.Requests) -> String {
        let counts = [
            ("submitted", reported.submitted, own.submitted), ("answered", reported.answered, own.answered),
            ("removed", reported.removed, own.removed), ("orphaned", reported.orphaned, own.orphaned),
            ("pending", reported.pending, own.pending), ("failed", reported.failedCount, own.failedCount),
        ]
        let different = counts.compactMap { name, reported, own in
            reported == own ? nil : "\(reported > own ? "more" : "fewer") \(name)"
        }
        return "requests: " + different.joined(separator: ", ")
    }

    /// Compares the ledgers completely, including failures by code, at checkpoints.
    func audit(_ reported: Ledger) -> Violation? {
        expect(
            reported.requests.failed == ledger.requests.failed, 10,
            "failures are \(reported.requests.failed), by the model \(ledger.requests.failed)", kind: "failures by code"
        )
        return violation
    }

    /// Checks that nothing is left after everything was allowed to finish.
    func auditEnd(_ reported: Ledger) -> Violation? {
        if let name = requestsByName.keys.first {
            recordViolation(1, "\(requestsByName.count) requests hang, one is \(name)")
        }
        expect(
            isEmpty, 12, "the model is not empty: \(openFlights.count) flights, \(bodies.count) bodies, \(files)",
            kind: "not empty")
        expect(
            reported.deliveries == ledger.deliveries, 10, "\(reported.deliveries), by the model \(ledger.deliveries)",
            kind: "deliveries at the end")
        return audit(reported)
    }
}
