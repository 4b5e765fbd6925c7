internal import EarshotCore
internal import EarshotWire

/// A core and the model that watches it, told the same events.
struct Trial {
    static let instance = BrokerInstance(rawValue: 0x5eed)
    /// How often all tables are looked through, in events.
    static let auditPeriod = 1_000

    /// How long a broker takes requests for schemes that nobody serves yet, if there was one before it.
    static let ownWorkersMilliseconds = 100

    /// What a connection's session is taken over with.
    static func token(of client: ClientID) -> SessionToken { SessionToken(high: 0x5eed, low: client.rawValue) }

    private(set) var broker: BrokerUnderTest
    private(set) var model: ReferenceModel
    /// Events so far, `dispatch` not counted.
    private(set) var steps = 0
    private var dispatches = 0
    private let canary: Canary?
    /// How often it is asked whether somebody was forgotten, in dispatches.
    private let progressPeriod: Int

    init(limits: CoreLimits, canary: Canary?, progressPeriod: Int = 64) {
        self.progressPeriod = progressPeriod
        self.canary = canary
        broker = BrokerUnderTest(instance: Self.instance, limits: limits, canary: canary)
        model = ReferenceModel(instance: Self.instance, limits: limits)
    }

    /// Tells both, and asks the model.
    mutating func apply(_ event: BrokerEvent, now: Tick) throws(Violation) -> [Action] {
        if case .brokerReplaced(let limits, let expectedWorkers, let until) = event {
            steps += 1
            replaceBroker(limits, expectedWorkers: expectedWorkers, until: until, now: now)
            return []
        }
        let actions = broker.apply(event, now: now)
        let purge = ReferenceModel.PurgeState(
            isUnderWay: broker.core.isPurging, notices: broker.core.purgeNotices)
        let judgement = model.observe(
            event, at: now, actions: actions, ledger: broker.core.ledger, purge: purge,
            isOpen: { [core = broker.core] in core.isOpen($0.request, of: $0.handler) })
        if let judgement { throw judgement }
        if case .dispatch = event {
            dispatches += 1
            let isTimeDue = broker.core.nextTimer.map { $0 <= now } ?? false
            if model.leavesRefusals, !isTimeDue {
                throw Violation(1, "work left to the next pass does not ask for it")
            }
            // Work that waits for a purge or for an overdue timer starts in a later pass.
            if dispatches % progressPeriod == 0, !purge.isUnderWay, !isTimeDue,
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

    /// The next life: of the one before nothing is known but by what workers say.
    private mutating func replaceBroker(_ limits: CoreLimits, expectedWorkers: Int, until: Tick, now: Tick) {
        let instance = BrokerInstance(rawValue: broker.core.instance.rawValue + 1)
        broker = BrokerUnderTest(instance: instance, limits: limits, canary: canary)
        broker.begin(expectedWorkers: expectedWorkers, until: until, now: now)
        model = ReferenceModel(instance: instance, limits: limits, after: model)
        model.begins(expectedWorkers: expectedWorkers, until: until, now: now)
    }

    /// Looks through all tables of the core.
    mutating func audit() throws(Violation) {
        if let fault = broker.core.audit().first { throw Violation(audit: fault) }
        if let violation = model.audit(broker.core.ledger) { throw violation }
    }

    /// Nothing may be left once everybody is gone.
    mutating func auditEnd() throws(Violation) {
        try audit()
        if let violation = model.auditEnd(broker.core.ledger) { throw violation }
        guard broker.core.isIdle else {
            throw Violation(12, "the core is not idle: \(broker.core.ledger)", kind: "not idle at the end")
        }
    }
}
