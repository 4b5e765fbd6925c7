internal import EarshotCore
internal import EarshotWire

/// Core and reference model, which receive the same events.
struct Trial {
    static let instance = BrokerInstance(rawValue: 0x5eed)
    /// Secret with which workers of principals come through the gateway.
    static let proof: GatewayProof = {
        guard let proof = GatewayProof(String(repeating: "5eed", count: 16)) else {
            preconditionFailure("a valid proof")
        }
        return proof
    }()
    /// Number of events between two audits of all tables.
    static let auditPeriod = 1_000

    /// Milliseconds during which a broker with a predecessor accepts requests for schemes without a worker.
    static let ownWorkersMilliseconds = 100

    /// Whether a client has made another link to the file of a terminal before its TAKE.
    static func isLinked(_ sequence: UInt64) -> Bool { sequence.isMultiple(of: 5) }

    /// Returns the session token of a connection.
    static func token(of client: ClientID) -> SessionToken { SessionToken(high: 0x5eed, low: client.rawValue) }

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
    mutating func apply(_ event: BrokerEvent, now: Tick) throws(Violation) -> [Action] {
        if case .brokerReplaced(let limits, let processes, let until) = event {
            steps += 1
            replaceBroker(limits, awaiting: processes, until: until, now: now)
            return []
        }
        let actions = broker.apply(event, now: now)
        let removal = ReferenceModel.RemovalState(
            isUnderWay: broker.core.isRemoving, requests: broker.core.doomedRequests,
            terminals: broker.core.doomedTerminals)
        let judgement = model.observe(
            event, at: now, actions: actions, ledger: broker.core.ledger, removal: removal, renamed: broker.renamed,
            isOpen: { [core = broker.core] name in
                let (principal, handler) = ReferenceModel.owner(of: name.handler)
                return core.isOpen(name.request, of: handler, principal)
            },
            isRemoving: { [core = broker.core] in core.isRemoving($0) },
            isHeld: { [core = broker.core] name in
                let (principal, handler) = ReferenceModel.owner(of: name.handler)
                return core.isHeld(name.request, of: handler, principal)
            })
        if let judgement { throw judgement }
        if case .dispatch = event {
            dispatches += 1
            let isTimeDue = broker.core.nextTimer.map { $0 <= now } ?? false
            if model.leavesRefusals, !isTimeDue {
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
    private mutating func replaceBroker(_ limits: CoreLimits, awaiting processes: Set<Int32>, until: Tick, now: Tick) {
        let instance = BrokerInstance(rawValue: broker.core.instance.rawValue + 1)
        broker = BrokerUnderTest(instance: instance, limits: limits, canary: canary)
        broker.begin(awaiting: processes, until: until, now: now)
        model = ReferenceModel(instance: instance, limits: limits)
        model.begins(awaiting: processes, until: until, now: now)
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
