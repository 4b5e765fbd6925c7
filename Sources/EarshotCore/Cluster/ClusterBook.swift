internal import DequeModule
internal import EarshotWire

/// Claims: flights of this node that the engine of the cluster coordinates.
///
/// ```
///             claim             asserted            granted
///  (absent) ────────→ waiting ⇄──────────→ wanted ───────────→ running
///     ↑ │              │   (engine lost)    │                 ↑  │  ↑
///     │ │              │ returned           │ result,    held │  │  │ granted
///     │ │              ↓                    ↓ withdrawn       │  ↓  │ again
///     │ │          (absent)             (absent)              │ overtaken
///     │ │  began without the engine                           │  ↑
///     │ ├───────────────────────────────────→ uncoordinated ──┴──┘
///     │ └── hosted ──────────────────────────────────────────→ running
///     └─────────────────────────────────── attempt ended: running, uncoordinated, overtaken
/// ```
///
/// `enter` makes all transitions. A claim is *hosted* while its attempt also serves other nodes. The engine may grant this
/// node a flight that only others want; its claim is hosted from the start.
///
/// A cancelled attempt leaves its claim. The engine counts it until its worker has confirmed the end.
///
/// The book sends nothing: functions return effects for the composing core, and `takeCalls` the calls of a pass.
package struct ClusterBook {
    enum Membership: Equatable {
        /// Not a member since then.
        case away(since: Tick)
        /// Member since then. An earlier absence ends only after a membership that lasts.
        case member(since: Tick, awaySince: Tick)
    }

    let limits: Limits
    /// Slots of this node.
    var slots = 0
    /// Whether this node takes flights of other nodes.
    private var isHosting = true
    private(set) var membership: Membership
    package private(set) var isUncoordinated = false
    package private(set) var members: MemberCount
    package private(set) var claims: [LocalFlight: Claim] = [:]
    private(set) var flights: [ClusterKey: LocalFlight] = [:]
    private(set) var endingAttempts: [AttemptID: Ending] = [:]
    /// Present size of the window, for each slot of each member.
    private var claimsPerSlot: Int
    /// Number of claims that wait or are wanted.
    package private(set) var openClaims = 0
    /// Ends that the engine did not accept.
    package private(set) var staleEnds = 0
    private var lastClaim: UInt64 = 0
    private var unreported = UnreportedResults()
    /// Work with the engine in the present membership.
    package private(set) var traffic = EngineTraffic()
    /// ID of the present or latest membership, and that of an earlier one whose lease may last.
    private var node: NodeID?
    private var formerNode: NodeID?
    /// Latest ID of an earlier process of this node, whose lease may last.
    private(set) var predecessor: NodeID?
    /// Time of the latest claim that was granted or got a result, and that since which there are open claims.
    private var lastProgress, openSince: Tick

    /// - Parameter members: number of members in the settings.
    init(limits: Limits = Limits(), members: Int = 1, predecessor: NodeID? = nil, now: Tick) {
        self.limits = limits
        self.members = MemberCount(configured: members)
        self.predecessor = predecessor
        membership = .away(since: now)
        (lastProgress, openSince) = (now, now)
        claimsPerSlot = limits.claimsPerSlot
    }

    // MARK: Queries

    package var isMember: Bool { if case .member = membership { true } else { false } }

    /// Whether another claim may wait.
    var hasRoom: Bool { openClaims < min(limits.mostClaims, slots * members.presentCount * claimsPerSlot) }

    // MARK: Claims

    /// Adds a flight that is about to start.
    ///
    /// - Precondition: the flight has no claim, and no other claim has its key.
    mutating func claim(_ flight: LocalFlight, _ want: EngineWant, since: Tick, now: Tick) {
        add(flight, want, .waiting, since: since, isRecorded: true, isHosted: false, now: now)
        if isMember { assert(flight) }
    }

    /// Adds a flight whose attempt began without the engine: in the mode without it, or under an earlier broker.
    ///
    /// - Parameter token: a random number, so that attempts of two nodes differ.
    mutating func addRunningAttempt(_ flight: LocalFlight, _ want: EngineWant, token: FencingToken, now: Tick) {
        add(flight, want, .uncoordinated(token), since: now, isRecorded: true, isHosted: false, now: now)
        if isMember { traffic.newClaims.append(flight) }
    }

    /// Adds a flight that the engine granted for other nodes.
    ///
    /// - Parameter maxBytes: maximum body size for those nodes; nil for none.
    mutating func host(_ flight: LocalFlight, _ want: EngineWant, token: FencingToken, maxBytes: Int?, now: Tick) {
        add(flight, want, .running(token), since: now, isRecorded: false, isHosted: true, now: now)
        claims[flight]?.hostedBytes = maxBytes
        schedule(flight, now: now)
    }

    /// Raises the class of a claim that waits.
    mutating func promote(_ flight: LocalFlight, to priority: PriorityClass) {
        guard let claim = claims[flight], claim.want.priority < priority else { return }
        claims[flight]?.want.priority = priority
        refresh(flight)
    }

    /// Asks for the state of a claim again.
    mutating func refresh(_ flight: LocalFlight) {
        if claims[flight]?.phase == .wanted { traffic.newClaims.append(flight) }
    }

    /// Withdraws this node's want of a flight that has no request left.
    mutating func withdraw(_ flight: LocalFlight, now: Tick) -> Withdrawal {
        guard let claim = claims[flight] else { return .end }
        guard claim.token != nil, claim.want.lane == .shared, claim.isRecorded, isMember else { return .end }
        withdrawWant(claim.want.key)
        claims[flight]?.isRecorded = false
        claims[flight]?.isHosted = true
        schedule(flight, now: now)
        return .host
    }

    /// Removes the claim of a flight whose attempt is being cancelled. The engine counts the attempt until
    /// `attemptEnded`.
    mutating func cancelled(_ flight: LocalFlight, _ attempt: AttemptID) {
        guard let claim = claims[flight] else { return }
        enter(nil, flight)
        if claim.isRecorded { withdrawWant(claim.want.key) }
        if let token = claim.token, isMember { endingAttempts[attempt] = Ending(key: claim.want.key, token: token) }
    }

    /// Handles the confirmed end of a cancelled attempt. Ignores other attempts.
    mutating func attemptEnded(_ attempt: AttemptID) {
        guard !endingAttempts.isEmpty, let ending = endingAttempts.removeValue(forKey: attempt) else { return }
        complete(ending.key, ending.token, .released, isAnswered: false)
    }

    /// Removes a claim whose flight ends without an attempt of this node, or whose attempt never ran.
    mutating func drop(_ flight: LocalFlight) {
        guard let claim = claims[flight] else { return }
        enter(nil, flight)
        if claim.isRecorded { withdrawWant(claim.want.key) }
        if let token = claim.token { complete(claim.want.key, token, .released, isAnswered: false) }
    }

    /// Removes the claim of an attempt that lost its flight. Without effect for other claims.
    mutating func dropOvertaken(_ flight: LocalFlight) {
        if claims[flight]?.phase == .overtaken { drop(flight) }
    }

    /// Ends the attempt of a claim with a result.
    ///
    /// - Parameter isAnswered: whether the origin answered without refusing.
    mutating func ended(_ flight: LocalFlight, _ result: [UInt8], isAnswered: Bool, now: Tick) {
        guard let claim = claims[flight] else { return }
        enter(nil, flight)
        if !isMember, claim.want.lane == .shared, let token = claim.token {
            unreported.add(result, of: claim.want.key, token, now: now)
        } else if let token = claim.token {
            complete(claim.want.key, token, .result(result), isAnswered: isAnswered)
        } else if claim.isRecorded {
            withdrawWant(claim.want.key)
        }
    }

    private mutating func complete(
        _ key: ClusterKey, _ token: FencingToken, _ outcome: EngineCompletion.Outcome, isAnswered: Bool
    ) {
        guard isMember else { return }
        traffic.completions.append(EngineCompletion(key: key, token: token, outcome: outcome, isAnswered: isAnswered))
        traffic.taking.isDue = true
    }

    /// Returns a grant for a flight that this node cannot run.
    mutating func release(_ key: ClusterKey, _ token: FencingToken) {
        // A want of an ended claim must not bring the flight back at once.
        if flights[key] == nil { withdrawWant(key) }
        complete(key, token, .released, isAnswered: false)
    }

    /// Reports that an origin refused a request without credentials.
    mutating func originRefused(_ refusal: EngineRefusal) {
        guard isMember else { return }
        // One call for each origin: many attempts may be refused while the engine is busy.
        if let index = traffic.refusals.firstIndex(where: { $0.origin.key == refusal.origin.key }) {
            traffic.refusals[index].requestedMilliseconds = max(
                traffic.refusals[index].requestedMilliseconds, refusal.requestedMilliseconds)
        } else if traffic.refusals.count < Self.mostRefusals {
            traffic.refusals.append(refusal)
        }
    }

    // MARK: Events

    mutating func received(_ event: EngineEvent, now: Tick) -> [ClusterEffect] {
        switch event {
        case .joined(let id, let count): return membershipBegan(id, count, now: now)
        case .left:
            membershipEnded(now: now)
            return []
        case .members(let count):
            if isMember { members.reported(count, now: now) }
            return []
        case .warning, .remedied: return []
        case .wanted(let answers): return isMember ? answers.flatMap { wantAnswered($0, now: now) } : []
        case .granted(let grants, let opens):
            guard isMember else { return [] }
            let isFilled = traffic.taking.answered(
                grants.count, opens: opens, now: now,
                pause: isHosting ? limits.questionMilliseconds : Self.unwokenMilliseconds)
            let effects = grants.compactMap { granted($0, now: now) }
            traffic.earlyAborts = [:]
            if let isFilled { fitWindow(isFilled: isFilled) }
            return effects
        case .ended(let answers):
            staleEnds += answers.count { !$0.isCurrent }
            // The end of an attempt ended a claim of this node, too, and its result was not sent to it.
            let ended = answers.compactMap { $0.isCurrent ? flights[$0.key] : nil }
            traffic.newClaims += ended.filter { claims[$0]?.phase == .wanted }
            return []
        case .cooled(let notice): return [.coolDown(notice)]
        case .surveyed(let report):
            if isMember { traffic.survey = report }
            return []
        case .workWaits:
            traffic.taking.isDue = true
            return []
        case .messagesLost:
            if isMember { assertAll() }
            return []
        case .result(let key, let result): return isMember ? resulted(key, result, now: now) : []
        case .unusable(let key):
            if isMember, let flight = flights[key] { refresh(flight) }
            return []
        case .aborted(let key, let token): return aborted(key, token)
        }
    }

    /// Doubles the window if it is full and the engine has too few of its claims to start, because their origins are full.
    private mutating func fitWindow(isFilled: Bool) {
        if isFilled {
            claimsPerSlot = limits.claimsPerSlot
        } else if !hasRoom {
            claimsPerSlot = min(2 * claimsPerSlot, limits.mostClaimsPerSlot)
        }
    }

    /// Begins the mode without the engine after a long absence. Waiting claims return to the local queue.
    mutating func timePassed(now: Tick) -> [ClusterEffect] {
        guard case .away(let since) = membership, !isUncoordinated,
            since.advanced(byMilliseconds: limits.patienceMilliseconds) <= now
        else { return [] }
        isUncoordinated = true
        var effects: [ClusterEffect] = [.mode(isCoordinated: false)]
        for flight in inOrder where claims[flight]?.phase == .waiting {
            enter(nil, flight)
            effects.append(.requeue(flight))
        }
        return effects
    }

    private mutating func membershipBegan(_ id: NodeID, _ count: Int, now: Tick) -> [ClusterEffect] {
        // Under another ID, so that nothing of the earlier membership counts.
        if isMember { membershipEnded(now: now) }
        formerNode = node == id ? nil : node
        node = id
        traffic = EngineTraffic()
        let awaySince = if case .away(let since) = membership { since } else { now }
        membership = .member(since: now, awaySince: awaySince)
        members.reported(count, now: now)
        let wasUncoordinated = isUncoordinated
        isUncoordinated = false
        traffic.completions = unreported.take(now: now)
        traffic.nextSurvey = now
        lastProgress = now
        assertAll()
        return wasUncoordinated ? [.mode(isCoordinated: true)] : []
    }

    /// Asserts everything that this node wants and runs, and asks for flights.
    private mutating func assertAll() {
        traffic.newClaims = inOrder.filter { claims[$0]?.phase != .overtaken }
        for flight in traffic.newClaims where claims[flight]?.phase == .waiting { enter(.wanted, flight) }
        traffic.taking.isDue = true
    }

    private mutating func membershipEnded(now: Tick) {
        guard case .member(let since, let awaySince) = membership else { return }
        traffic = EngineTraffic()
        members.membershipEnded(now: now)
        let isLasting = now.milliseconds(since: since) >= Self.lastingMilliseconds
        // Short memberships do not end an absence. Those with progress are no part of it.
        let absence = isLasting ? 0 : (lastProgress > since ? since : now).milliseconds(since: awaySince)
        membership = .away(since: now.advanced(byMilliseconds: -absence))
        for flight in inOrder where claims[flight]?.phase == .wanted { enter(.waiting, flight) }
        // The engine returns these when the lease expires, because they are not asserted again.
        endingAttempts = [:]
    }

    private mutating func wantAnswered(_ answer: WantAnswer, now: Tick) -> [ClusterEffect] {
        var question = traffic.questions.popFirst()
        while let other = question, other.key != answer.key { question = traffic.questions.popFirst() }
        guard let question, let flight = flights[answer.key], let claim = claims[flight], claim.serial == question.claim
        else { return [] }
        switch answer.state {
        case .queued, .running:
            claims[flight]?.isFetchedElsewhere = answer.state == .running
            return []
        case .ended(let result): return resulted(answer.key, result, now: now)
        case .held, .stale:
            // Otherwise the answer concerns an earlier attempt.
            guard let token = claim.token, token == question.token else { return [] }
            guard answer.state == .stale else {
                if case .uncoordinated = claim.phase { enter(.running(token), flight) }
                return []
            }
            enter(.overtaken, flight)
            return endHosting(flight)
        }
    }

    private mutating func granted(_ grant: EngineGrant, now: Tick) -> ClusterEffect? {
        if let flight = flights[grant.key], let claim = claims[flight] {
            if grant.record != nil, claim.want.lane == .shared { claims[flight]?.isHosted = true }
            lastProgress = now
            // An attempt that runs already serves the flight.
            enter(.running(grant.token), flight)
            schedule(flight, now: now)
            if claim.isOpen { return .start(flight) }
            return claims[flight]?.isHosted == true ? .hosting(flight) : nil
        }
        guard let record = grant.record, traffic.earlyAborts[grant.key] != grant.token else {
            // Withdrawn while the answer was on its way.
            release(grant.key, grant.token)
            return nil
        }
        return .host(grant.key, grant.token, record: record, grant.priority)
    }

    private mutating func resulted(_ key: ClusterKey, _ result: [UInt8], now: Tick) -> [ClusterEffect] {
        guard let flight = flights[key], let claim = claims[flight], claim.phase == .wanted else { return [] }
        lastProgress = now
        enter(nil, flight)
        return [.result(flight, result)]
    }

    private mutating func aborted(_ key: ClusterKey, _ token: FencingToken) -> [ClusterEffect] {
        guard let flight = flights[key], claims[flight]?.token == token else {
            // Answers and notifications have connections of their own.
            if traffic.taking.isQuerying, traffic.earlyAborts.count < Self.mostEarlyAborts {
                traffic.earlyAborts[key] = token
            }
            return []
        }
        return endHosting(flight)
    }

    private mutating func endHosting(_ flight: LocalFlight) -> [ClusterEffect] {
        guard claims[flight]?.isHosted == true else { return [] }
        claims[flight]?.isHosted = false
        return [.abort(flight)]
    }

    // MARK: Calls

    /// Calls of this pass, in order. Empty unless this node is a member.
    ///
    /// - Parameters:
    ///   - freeSlots: slots that can take flights.
    ///   - leavesFlights: whether this node leaves shared flights to others, as far as others take them.
    ///   - hosting: flights of other nodes that it takes.
    mutating func takeCalls(
        freeSlots: Int, leavesFlights: Bool = false, hosting: Hosting = .all, now: Tick
    ) -> [EngineCall] {
        guard isMember else { return [] }
        isHosting = hosting == .all
        var calls: [EngineCall] = []
        // Before the assertions, so that attempts that outlived that process keep their flights.
        if let predecessor { calls.append(.retire(predecessor)) }
        predecessor = nil
        // Before the ends, so that the engine does not queue a released flight for this node again.
        if !traffic.unwants.isEmpty { calls.append(.unwant(traffic.unwants)) }
        if !traffic.completions.isEmpty { calls.append(.done(traffic.completions)) }
        for refusal in traffic.refusals { calls.append(.cool(refusal)) }
        // The engine wakes a node only for flights that this one leaves.
        let mayLeaveWork = !traffic.newClaims.isEmpty || !traffic.completions.isEmpty
        let wants = dueWants(now: now)
        if !wants.isEmpty { calls.append(.want(wants)) }
        if let formerNode {
            calls.append(.retire(formerNode))
            self.formerNode = nil
        }
        let slots = hosting == .one ? min(freeSlots, 1) : freeSlots
        if let slots = traffic.taking.next(freeSlots: slots, wakesOthers: mayLeaveWork, now: now) {
            let isOwnOnly = leavesFlights && othersTake(now: now)
            let isWantedOnly = hosting == .none && !isOwnOnly
            calls.append(isWantedOnly ? .takeWanted(slots: slots) : .take(slots: slots, isOwnOnly: isOwnOnly))
        }
        if let time = traffic.nextSurvey, time <= now {
            calls.append(.survey)
            traffic.nextSurvey = now.advanced(byMilliseconds: Self.surveyMilliseconds)
        }
        traffic.unwants = []
        traffic.completions = []
        traffic.refusals = []
        return calls
    }

    /// Whether another node may take the open claims of this one, and they make progress.
    private func othersTake(now: Tick) -> Bool {
        members.presentCount > 1
            && (openClaims == 0 || now.milliseconds(since: max(lastProgress, openSince)) < Self.closingMilliseconds)
    }

    private mutating func dueWants(now: Tick) -> [EngineWant] {
        var due = traffic.newClaims
        traffic.newClaims = []
        while let first = traffic.takeAssertion(now: now) {
            if claims[first.flight]?.nextAssertion == first.due { due.append(first.flight) }
        }
        var wants: [EngineWant] = []
        for (index, flight) in due.enumerated() {
            guard wants.count < Self.mostWants else {
                // The next calls follow the answers to these.
                traffic.newClaims = Array(due[index...])
                break
            }
            guard let claim = claims[flight], claim.phase == .wanted || claim.token != nil else { continue }
            schedule(flight, now: now)
            var want = claim.want
            want.token = claim.token
            want.origin.limit = engineLimit(of: want.origin.limit, now: now)
            want.isHosted = !claim.isRecorded
            want.ageMilliseconds = now.milliseconds(since: claim.since)
            wants.append(want)
            traffic.questions.append(
                EngineTraffic.SentWant(claim: claim.serial, key: want.key, token: want.token))
        }
        return wants
    }

    /// Sets the time of the next assertion. An attempt that only this node wants is not asserted: its node's lease covers
    /// it, and no other node can withdraw it.
    private mutating func schedule(_ flight: LocalFlight, now: Tick) {
        guard let claim = claims[flight], claim.phase == .wanted || claim.want.lane == .shared else { return }
        let isForOthers = !claim.isRecorded
        let interval = isForOthers ? limits.hostingMilliseconds : limits.assertionMilliseconds
        let next = now.advanced(byMilliseconds: interval)
        guard claim.nextAssertion != next else { return }
        claims[flight]?.nextAssertion = next
        traffic.add((flight, next), isForOthers: isForOthers, claims: claims)
    }

    private mutating func assert(_ flight: LocalFlight) {
        enter(.wanted, flight)
        traffic.newClaims.append(flight)
        traffic.taking.isDue = true
    }

    private mutating func withdrawWant(_ key: ClusterKey) { if isMember { traffic.unwants.append(key) } }

    // MARK: Transitions

    private mutating func add(
        _ flight: LocalFlight, _ want: EngineWant, _ phase: Phase, since: Tick, isRecorded: Bool, isHosted: Bool,
        now: Tick
    ) {
        precondition(claims[flight] == nil && flights[want.key] == nil, "\(flight) is claimed twice")
        precondition(Self.isLegal(from: nil, to: phase), "a claim begins as \(phase)")
        lastClaim += 1
        let claim = Claim(
            serial: lastClaim, want: want, phase: phase, since: since, isRecorded: isRecorded, isHosted: isHosted,
            nextAssertion: now)
        claims[flight] = claim
        flights[want.key] = flight
        if claim.isOpen { (openClaims, openSince) = (openClaims + 1, openClaims == 0 ? now : openSince) }
    }

    /// Makes a transition of the diagram; nil is the state `absent`. Traps on any other transition.
    private mutating func enter(_ phase: Phase?, _ flight: LocalFlight) {
        guard let claim = claims[flight] else { preconditionFailure("\(flight) has no claim") }
        precondition(
            Self.isLegal(from: claim.phase, to: phase),
            "\(flight) goes from \(claim.phase) to \(String(describing: phase))")
        if claim.isOpen { openClaims -= 1 }
        guard let phase else {
            claims[flight] = nil
            flights[claim.want.key] = nil
            return
        }
        claims[flight]?.phase = phase
        if phase == .waiting || phase == .wanted { openClaims += 1 }
    }
}
