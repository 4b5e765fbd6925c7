internal import DequeModule
internal import EarshotWire

/// Flights of this node that the engine coordinates, and attempts that this node runs for others.
///
/// A claim is one local flight that is about to start:
///
/// ```
///             claim             asserted             granted
///  (absent) ────────→ waiting ⇄──────────→ wanted ────────────→ running
///     ↑                │   (engine lost)    │                  ↑      │ another attempt has the flight
///     │                │ no engine          │             held │      ↓
///     │                ↓                    │                  │   overtaken
///     │           uncoordinated ────────────┼──────────────────┴──────↑
///     │                │                    │                         │
///     └────────────────┴────────────────────┴─────────────────────────┘
///        attempt ended, result from another node, or withdrawn
/// ```
///
/// All transitions go through `enter`. An attempt that runs for other nodes is *hosted*. So is one whose local flight was
/// withdrawn while others may want it.
///
/// The book sends nothing: functions return effects for the composing core, and `takeCalls` the calls of a pass.
struct ClusterBook {
    /// Bounds and times of the book.
    struct Limits: Equatable {
        /// Claims that may wait, for each slot of this node. The local queue keeps the others, and their order.
        var claimsPerSlot = 4
        var assertionMilliseconds = EngineLimits.assertionMilliseconds
        var patienceMilliseconds = EngineLimits.patienceMilliseconds
    }

    /// Phase of a claim.
    enum Phase: Equatable {
        /// The engine does not know it, because this node is not a member.
        case waiting
        /// The engine knows it, and asserts of this node repeat it.
        case wanted
        /// This node runs it, and has the flight.
        case running(FencingToken)
        /// This node runs it without the engine.
        case uncoordinated
        /// This node runs it for its own clients. Another attempt has the flight.
        case overtaken
    }

    struct Claim {
        var want: EngineWant
        fileprivate(set) var phase: Phase
        let since: Tick
        /// Time of the next assertion while it is wanted.
        fileprivate(set) var nextAssertion: Tick
    }

    /// Attempt for other nodes.
    struct HostedAttempt: Equatable {
        let token: FencingToken
        let priority: PriorityClass
        let record: [UInt8]
        /// Origin, once the core has found it. An attempt without one is not asserted after a loss.
        var origin: EngineOrigin?
        /// Whether it is being cancelled, so that its end has no result.
        var isAborting = false
        /// Whether another attempt has the flight.
        var isOvertaken = false
    }

    private enum Membership: Equatable {
        /// Not a member since then.
        case away(since: Tick)
        case member
    }

    /// Token of attempts that began without the engine, below all tokens of the engine.
    static let uncoordinatedToken = FencingToken(1)

    let limits: Limits
    /// Slots of this node.
    var slots = 0
    private var membership: Membership
    private(set) var isUncoordinated = false
    /// Number of members, or the last known one.
    private(set) var members = 1
    private(set) var claims: [LocalFlight: Claim] = [:]
    private var flights: [ClusterKey: LocalFlight] = [:]
    private(set) var hosted: [ClusterKey: HostedAttempt] = [:]
    /// Number of claims that wait or are wanted.
    private(set) var openClaims = 0
    /// Ends that the engine did not accept.
    private(set) var staleEnds = 0
    private var assertions = Deque<(flight: LocalFlight, due: Tick)>()
    private var fresh: [LocalFlight] = []
    private var held: [EngineWant] = []
    private var unwants: [ClusterKey] = []
    private var refusals: [EngineRefusal] = []
    private var completions: [EngineCompletion] = []
    private var taking = TakeState()

    init(limits: Limits = Limits(), now: Tick) {
        self.limits = limits
        membership = .away(since: now)
    }

    // MARK: Queries

    var isMember: Bool { membership == .member }

    /// Whether another claim may wait. Without the engine claims do not wait.
    var hasRoom: Bool { isUncoordinated || openClaims < slots * limits.claimsPerSlot }

    /// Limit of an origin that this node applies itself: nil while the engine applies the limit of the cluster.
    func localLimit(of limit: Int) -> Int? { isMember ? nil : max(1, limit / members) }

    /// Earliest time at which `timePassed` or `takeCalls` has work; nil for none.
    var deadline: Tick? {
        switch membership {
        case .away(let since):
            isUncoordinated ? nil : since.advanced(byMilliseconds: limits.patienceMilliseconds)
        case .member: [assertions.first?.due, taking.deadline].compactMap(\.self).min()
        }
    }

    // MARK: Claims

    /// Adds a flight that is about to start.
    ///
    /// - Precondition: `hasRoom`; the flight has no claim, and no other claim has its key.
    mutating func claim(_ flight: LocalFlight, _ want: EngineWant, now: Tick) -> [ClusterEffect] {
        precondition(claims[flight] == nil && flights[want.key] == nil, "\(flight) is claimed twice")
        enter(.waiting, flight, Claim(want: want, phase: .waiting, since: now, nextAssertion: now))
        if isMember {
            assert(flight)
            return []
        }
        return isUncoordinated ? start(flight) : []
    }

    /// Raises the class of a claim that waits.
    mutating func promote(_ flight: LocalFlight, to priority: PriorityClass) {
        guard let claim = claims[flight], claim.want.priority < priority else { return }
        claims[flight]?.want.priority = priority
        if claim.phase == .wanted, isMember { fresh.append(flight) }
    }

    /// What becomes of the attempt of a flight that was withdrawn.
    enum Withdrawal: Equatable {
        /// No attempt runs here.
        case nothing
        /// The core cancels the attempt, and reports its end with `hostedEnded`.
        case cancel(FencingToken?)
        /// The attempt goes on for other nodes as a hosted one, unless the engine reports that none wants it.
        case host(FencingToken)
    }

    /// Removes a claim whose flight has no interest left.
    mutating func withdraw(_ flight: LocalFlight) -> Withdrawal {
        guard let claim = claims[flight] else { return .nothing }
        enter(nil, flight, claim)
        withdrawWant(claim.want.key)
        switch claim.phase {
        case .waiting, .wanted: return .nothing
        case .overtaken: return .cancel(nil)
        // The engine may hold the flight for this attempt, if its assertion has no answer yet.
        case .uncoordinated: return host(claim, Self.uncoordinatedToken, isAborting: true)
        case .running(let token): return host(claim, token, isAborting: claim.want.lane != .shared)
        }
    }

    private mutating func host(_ claim: Claim, _ token: FencingToken, isAborting: Bool) -> Withdrawal {
        // Without a membership nothing is known of other nodes, and the engine returns the attempt by itself.
        guard isMember else { return .cancel(nil) }
        hosted[claim.want.key] = HostedAttempt(
            token: token, priority: claim.want.priority, record: claim.want.record, origin: claim.want.origin,
            isAborting: isAborting)
        return isAborting ? .cancel(token) : .host(token)
    }

    /// Ends the attempt of a claim.
    mutating func ended(_ flight: LocalFlight, _ outcome: EngineCompletion.Outcome, isAnswered: Bool) {
        guard let claim = claims[flight] else { return }
        enter(nil, flight, claim)
        let key = claim.want.key
        switch claim.phase {
        case .running(let token): complete(key, token, outcome, isAnswered, isWanting: true)
        // The assertion may have no answer yet, so that the attempt may have the flight.
        case .uncoordinated: complete(key, Self.uncoordinatedToken, outcome, isAnswered, isWanting: true)
        case .overtaken: withdrawWant(key)
        case .waiting, .wanted: preconditionFailure("\(flight) ended before it started, \(claim.phase)")
        }
    }

    // MARK: Attempts for other nodes

    /// Sets the origin of a hosted attempt, which the core has found in its record.
    mutating func setOrigin(_ origin: EngineOrigin, of key: ClusterKey) { hosted[key]?.origin = origin }

    /// Ends a hosted attempt. One that was cancelled, or could not start, is released.
    mutating func hostedEnded(
        _ key: ClusterKey, _ token: FencingToken, _ outcome: EngineCompletion.Outcome, isAnswered: Bool
    ) {
        guard let attempt = hosted[key], attempt.token == token else { return }
        hosted[key] = nil
        guard !attempt.isOvertaken else { return }
        complete(key, attempt.token, attempt.isAborting ? .released : outcome, isAnswered, isWanting: false)
    }

    private mutating func complete(
        _ key: ClusterKey, _ token: FencingToken, _ outcome: EngineCompletion.Outcome, _ isAnswered: Bool,
        isWanting: Bool
    ) {
        guard isMember else { return }
        // Before the end, so that the engine does not queue the flight for this node again.
        if isWanting, outcome == .released { withdrawWant(key) }
        completions.append(EngineCompletion(key: key, token: token, outcome: outcome, isAnswered: isAnswered))
        taking.isDue = true
    }

    /// Reports that an origin refused a request without credentials.
    mutating func refused(_ refusal: EngineRefusal) {
        if isMember { refusals.append(refusal) }
    }

    // MARK: Events

    mutating func received(_ event: EngineEvent, now: Tick) -> [ClusterEffect] {
        switch event {
        case .joined(_, let count): return joined(count, now: now)
        case .left: return left(now: now)
        case .members(let count):
            members = max(1, count)
            return []
        case .warning: return []
        case .wanted(let answers): return isMember ? answers.flatMap { answered($0) } : []
        case .granted(let grants, let opens):
            guard isMember else { return [] }
            taking.answered(grants.count, opens: opens, now: now, pause: limits.assertionMilliseconds)
            return grants.flatMap { granted($0) }
        case .ended(let answers):
            staleEnds += answers.count { !$0.isCurrent }
            return []
        case .cooled(let notice): return [.coolDown(notice)]
        case .workWaits:
            taking.isDue = true
            return []
        case .result(let key, let result): return isMember ? resulted(key, result) : []
        case .aborted(let key, let token):
            guard let attempt = hosted[key], attempt.token == token, !attempt.isAborting else { return [] }
            hosted[key]?.isAborting = true
            return [.abort(key, token)]
        }
    }

    mutating func timePassed(now: Tick) -> [ClusterEffect] {
        guard case .away(let since) = membership, !isUncoordinated,
            since.advanced(byMilliseconds: limits.patienceMilliseconds) <= now
        else { return [] }
        isUncoordinated = true
        let waiting = claims.keys.filter { claims[$0]?.phase == .waiting }.sorted { $0.id < $1.id }
        return [.mode(isCoordinated: false, members: members)] + waiting.flatMap { start($0) }
    }

    private mutating func joined(_ count: Int, now: Tick) -> [ClusterEffect] {
        clearCalls()
        membership = .member
        members = max(1, count)
        let wasUncoordinated = isUncoordinated
        isUncoordinated = false
        taking.isDue = true
        // In the order of their IDs, so that each run is the same.
        for flight in claims.keys.sorted(by: { $0.id < $1.id }) {
            guard let claim = claims[flight] else { continue }
            switch claim.phase {
            case .waiting: assert(flight)
            case .wanted: preconditionFailure("\(flight) was wanted without a membership")
            case .running(let token): hold(claim.want, token, since: claim.since, now: now)
            case .uncoordinated: hold(claim.want, Self.uncoordinatedToken, since: claim.since, now: now)
            case .overtaken: break
            }
        }
        for (key, attempt) in hosted.sorted(by: { $0.key.description < $1.key.description }) {
            guard let origin = attempt.origin, !attempt.isAborting, !attempt.isOvertaken else { continue }
            let want = EngineWant(
                key: key, origin: origin, lane: .shared, priority: attempt.priority, token: attempt.token,
                isHosted: true, record: attempt.record)
            held.append(want)
        }
        return wasUncoordinated ? [.mode(isCoordinated: true, members: members)] : []
    }

    private mutating func left(now: Tick) -> [ClusterEffect] {
        guard isMember else { return [] }
        clearCalls()
        membership = .away(since: now)
        for flight in claims.keys.sorted(by: { $0.id < $1.id }) where claims[flight]?.phase == .wanted {
            enter(.waiting, flight)
        }
        // The engine returns these when the lease expires, because they are not asserted again.
        hosted = hosted.filter { !$0.value.isAborting }
        return []
    }

    private mutating func clearCalls() {
        assertions.removeAll()
        fresh = []
        held = []
        unwants = []
        refusals = []
        completions = []
        taking = TakeState()
    }

    private mutating func answered(_ answer: WantAnswer) -> [ClusterEffect] {
        let flight = flights[answer.key]
        switch answer.state {
        case .queued, .running: return []
        case .ended(let result): return resulted(answer.key, result)
        case .held:
            if let flight, claims[flight]?.phase == .uncoordinated { enter(.running(Self.uncoordinatedToken), flight) }
            return []
        case .stale:
            if let flight, let phase = claims[flight]?.phase, phase.isStarted { enter(.overtaken, flight) }
            hosted[answer.key]?.isOvertaken = true
            return []
        }
    }

    private mutating func granted(_ grant: EngineGrant) -> [ClusterEffect] {
        if let flight = flights[grant.key], claims[flight]?.phase == .wanted {
            enter(.running(grant.token), flight)
            return [.start(flight)]
        }
        guard let record = grant.record, flights[grant.key] == nil, hosted[grant.key] == nil else {
            // Withdrawn while the answer was on its way.
            completions.append(
                EngineCompletion(key: grant.key, token: grant.token, outcome: .released, isAnswered: false))
            return []
        }
        hosted[grant.key] = HostedAttempt(
            token: grant.token, priority: grant.priority, record: record, origin: nil)
        return [.host(grant.key, grant.token, record: record, grant.priority)]
    }

    private mutating func resulted(_ key: ClusterKey, _ result: [UInt8]) -> [ClusterEffect] {
        guard let flight = flights[key], let claim = claims[flight], claim.phase == .wanted else { return [] }
        enter(nil, flight, claim)
        return [.result(flight, result)]
    }

    private mutating func start(_ flight: LocalFlight) -> [ClusterEffect] {
        enter(.uncoordinated, flight)
        return [.start(flight)]
    }

    // MARK: Calls

    /// Calls of this pass, in order. Empty unless this node is a member.
    ///
    /// - Parameter freeSlots: slots that can take flights.
    mutating func takeCalls(freeSlots: Int, now: Tick) -> [EngineCall] {
        guard isMember else { return [] }
        var calls: [EngineCall] = []
        if !unwants.isEmpty { calls.append(.unwant(unwants)) }
        if !completions.isEmpty { calls.append(.done(completions)) }
        for refusal in refusals { calls.append(.cool(refusal)) }
        // The engine wakes a node only for flights that this one leaves.
        let mayLeaveWork = !fresh.isEmpty || !completions.isEmpty
        let wants = held + dueWants(now: now)
        if !wants.isEmpty { calls.append(.want(wants)) }
        if let slots = taking.next(freeSlots: freeSlots, wakesOthers: mayLeaveWork, now: now) {
            calls.append(.take(slots: slots))
        }
        unwants = []
        completions = []
        refusals = []
        held = []
        return calls
    }

    private mutating func dueWants(now: Tick) -> [EngineWant] {
        var due = fresh
        fresh = []
        while let first = assertions.first, first.due <= now {
            assertions.removeFirst()
            if claims[first.flight]?.nextAssertion == first.due { due.append(first.flight) }
        }
        var wants: [EngineWant] = []
        let next = now.advanced(byMilliseconds: limits.assertionMilliseconds)
        for flight in due {
            guard var claim = claims[flight], claim.phase == .wanted else { continue }
            claim.nextAssertion = next
            claims[flight] = claim
            assertions.append((flight, next))
            var want = claim.want
            want.ageMilliseconds = now.milliseconds(since: claim.since)
            wants.append(want)
        }
        return wants
    }

    private mutating func assert(_ flight: LocalFlight) {
        enter(.wanted, flight)
        fresh.append(flight)
        taking.isDue = true
    }

    private mutating func hold(_ want: EngineWant, _ token: FencingToken, since: Tick, now: Tick) {
        var want = want
        want.token = token
        want.ageMilliseconds = now.milliseconds(since: since)
        held.append(want)
    }

    private mutating func withdrawWant(_ key: ClusterKey) {
        if isMember { unwants.append(key) }
    }

    // MARK: Transitions

    /// Makes a transition of the diagram; nil is the state `absent`. Traps on any other transition.
    private mutating func enter(_ phase: Phase?, _ flight: LocalFlight, _ claim: Claim? = nil) {
        let earlier = claims[flight]?.phase
        precondition(
            Self.isLegal(from: earlier, to: phase),
            "\(flight) goes from \(String(describing: earlier)) to \(String(describing: phase))")
        openClaims += (phase?.isOpen ?? false ? 1 : 0) - (earlier?.isOpen ?? false ? 1 : 0)
        if let phase {
            if let claim, earlier == nil {
                claims[flight] = claim
                flights[claim.want.key] = flight
            }
            claims[flight]?.phase = phase
        } else if let claim = claims.removeValue(forKey: flight) {
            flights[claim.want.key] = nil
        }
    }

    /// Whether the diagram has this transition.
    static func isLegal(from: Phase?, to: Phase?) -> Bool {
        switch (from, to) {
        case (nil, .waiting), (.waiting, .wanted), (.wanted, .waiting), (.wanted, .running), (.waiting, .uncoordinated),
            (.uncoordinated, .running), (.uncoordinated, .overtaken), (.running, .overtaken):
            true
        case (.some, nil): true
        case (nil, _), (.waiting, _), (.wanted, _), (.uncoordinated, _), (.running, _), (.overtaken, _): false
        }
    }

    // MARK: Checks

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let open = claims.values.count { $0.phase.isOpen }
        if open != openClaims { faults.append("11: \(open) claims are open, not \(openClaims)") }
        if flights.count != claims.count { faults.append("3: \(flights.count) keys have \(claims.count) claims") }
        for (flight, claim) in claims {
            if flights[claim.want.key] != flight { faults.append("3: two flights have the key \(claim.want.key)") }
            switch claim.phase {
            case .waiting: if isMember || isUncoordinated { faults.append("1: \(flight) waits for no event") }
            case .wanted: if !isMember { faults.append("1: \(flight) is wanted without a membership") }
            case .running: if hosted[claim.want.key] != nil { faults.append("3: \(flight) runs twice") }
            case .uncoordinated, .overtaken: break
            }
        }
        if !isMember, !unwants.isEmpty || !completions.isEmpty || !held.isEmpty || !fresh.isEmpty {
            faults.append("11: calls wait without a membership")
        }
        if isMember, isUncoordinated { faults.append("9: a member fetches without coordination") }
        return faults
    }
}

extension ClusterBook.Phase {
    /// Whether a claim in this phase is part of the window.
    fileprivate var isOpen: Bool { self == .waiting || self == .wanted }

    /// Whether its attempt may have the flight.
    fileprivate var isStarted: Bool {
        switch self {
        case .running, .uncoordinated: true
        case .waiting, .wanted, .overtaken: false
        }
    }
}
