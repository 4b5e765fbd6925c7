internal import EarshotCore
internal import EarshotWire

/// Core and reference model, which receive the same events.
struct Trial {
    static let instance = BrokerInstance(rawValue: 0x5eed)
    /// Secret with which workers of principals come through the gateway.
    static let gatewayProof: GatewayProof = {
        guard let proof = GatewayProof(String(repeating: "5eed", count: 16)) else {
            preconditionFailure("a valid proof")
        }
        return proof
    }()
    /// Number of events between two audits of all tables.
    static let auditPeriod = 1_000

    /// Milliseconds during which a broker with a predecessor accepts requests for schemes without a worker.
    static let userWorkerWaitMilliseconds = 100

    /// Whether a client has made another link to the file of a terminal before its TAKE.
    static func isFileLinkedElsewhere(_ sequence: UInt64) -> Bool { sequence.isMultiple(of: 5) }

    /// Returns the session token of a connection.
    static func token(of client: ClientID) -> SessionToken { SessionToken(highBits: 0x5eed, lowBits: client.rawValue) }

    private(set) var broker: BrokerUnderTest
    private(set) var model: ReferenceModel
    /// Number of events so far, without `dispatch`.
    private(set) var steps = 0
    private var dispatches = 0
    private let canary: Canary?
    /// Number of dispatches between two checks for starvation.
    private let progressPeriod: Int

    init(limits: CoreLimits, canary: Canary?, progressPeriod: Int = 64) {
        self.progressPeriod = progressPeriod
        self.canary = canary
        broker = BrokerUnderTest(instance: Self.instance, limits: limits, canary: canary)
        model = ReferenceModel(instance: Self.instance, limits: limits)
    }

    /// Passes an event to both, and checks the actions.
    mutating func handleEvent(_ event: BrokerEvent, now: MonotonicTime) throws(Violation) -> [Action] {
        if case .brokerReplaced(let limits, let processes, let until) = event {
            steps += 1
            replaceBroker(limits, awaiting: processes, until: until, now: now)
            return []
        }
        let actions = broker.passToCore(event, now: now)
        let removal = ReferenceModel.RemovalState(
            isUnderWay: broker.core.hasPendingRemovals, requests: broker.core.doomedRequestCount,
            terminals: broker.core.doomedTerminalCounts)
        let judgement = model.observe(
            event, at: now, actions: actions, ledger: broker.core.ledger, removal: removal, renamed: broker.renamedFile,
            isOpen: { [core = broker.core] name in
                let (principal, handler) = ReferenceModel.principalAndHandler(of: name.handler)
                return core.isRequestOpen(name.request, of: handler, principal)
            },
            isRemoving: { [core = broker.core] in core.hasPendingRemoval(by: $0) },
            isHeld: { [core = broker.core] name in
                let (principal, handler) = ReferenceModel.principalAndHandler(of: name.handler)
                return core.isResultHeld(name.request, of: handler, principal)
            })
        if let judgement { throw judgement }
        if case .dispatch = event {
            dispatches += 1
            let isTimeDue = broker.core.nextTimer.map { $0 <= now } ?? false
            if model.leavesUnservedFlights, !isTimeDue {
                throw Violation(1, "work left to the next pass does not ask for it")
            }
            // Work that waits for a removal or an overdue timer starts in a later pass.
            if dispatches % progressPeriod == 0, !removal.isUnderWay, !isTimeDue,
                let violation = model.auditProgress()
            {
                throw violation
            }
        } else {
            steps += 1
            if steps % Self.auditPeriod == 0 { try audit() }
        }
        return actions
    }

    /// Starts the next broker, which knows only the worker processes of its predecessor.
    private mutating func replaceBroker(
        _ limits: CoreLimits, awaiting processes: Set<Int32>, until: MonotonicTime, now: MonotonicTime
    ) {
        let instance = BrokerInstance(rawValue: broker.core.brokerInstance.rawValue + 1)
        broker = BrokerUnderTest(instance: instance, limits: limits, canary: canary)
        broker.begin(awaiting: processes, until: until, now: now)
        model = ReferenceModel(instance: instance, limits: limits)
        model.brokerBegins(awaiting: processes, until: until, now: now)
    }

    /// Audits all tables of the core.
    mutating func audit() throws(Violation) {
        if let fault = broker.core.audit().first { throw Violation(audit: fault) }
        if let violation = model.audit(broker.core.ledger) { throw violation }
    }

    /// Checks that nothing is left after all peers have gone.
    mutating func auditEnd() throws(Violation) {
        try audit()
        if let violation = model.auditEnd(broker.core.ledger) { throw violation }
        guard broker.core.isIdle else {
            throw Violation(12, "the core is not idle: \(broker.core.ledger)", kind: "not idle at the end")
        }
    }
}
