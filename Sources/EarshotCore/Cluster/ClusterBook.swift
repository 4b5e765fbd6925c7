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
/// `enterPhase` makes all transitions. A claim is *hosted* while its attempt also serves other nodes. The engine may
/// grant this node a flight that only others want; its claim is hosted from the start.
///
/// A cancelled attempt leaves its claim. The engine counts it until its worker has confirmed the end.
///
/// The book sends nothing: functions return effects for the composing core, and `takeEngineCalls` the calls of a pass.
package struct ClusterBook {
    enum Membership: Equatable {
        /// Not a member since then.
        case away(since: MonotonicTime)
        /// Member since then. An earlier absence ends only after a membership that lasts.
        case member(since: MonotonicTime, awaySince: MonotonicTime)
    }

    let limits: Limits
    /// Slots of this node.
    var slotCount = 0
    /// Whether this node takes flights of other nodes.
    private var isHosting = true
    private(set) var membership: Membership
    package private(set) var isUncoordinated = false
    package private(set) var memberCount: MemberCount
    package private(set) var claims: [LocalFlight: Claim] = [:]
    private(set) var flightsByKey: [ClusterKey: LocalFlight] = [:]
    private(set) var endingAttempts: [AttemptID: CancelledAttempt] = [:]
    /// Present size of the window, for each slot of each member.
    private var claimsPerSlot: Int
    /// Number of claims that wait or are wanted.
    package private(set) var openClaimCount = 0
    /// Ends that the engine did not accept.
    package private(set) var staleCompletionCount = 0
    private var lastClaimSerial: UInt64 = 0
    private var unreportedResults = UnreportedResults()
    /// Work with the engine in the present membership.
    package private(set) var engineTraffic = EngineTraffic()
    /// ID of the present or latest membership, and that of an earlier one whose lease may last.
    private var node: NodeID?
    private var formerNodeID: NodeID?
    /// Latest ID of an earlier process of this node, whose lease may last.
    private(set) var predecessor: NodeID?
    /// Time of the latest claim that was granted or got a result, and that since which there are open claims.
    private var lastProgressTime, claimsOpenSince: MonotonicTime

    /// - Parameter members: number of members in the settings.
    init(limits: Limits = Limits(), members: Int = 1, predecessor: NodeID? = nil, now: MonotonicTime) {
        self.limits = limits
        self.memberCount = MemberCount(configured: members)
        self.predecessor = predecessor
        membership = .away(since: now)
        (lastProgressTime, claimsOpenSince) = (now, now)
        claimsPerSlot = limits.initialClaimsPerSlot
    }

    // MARK: Queries

    package var isMember: Bool { if case .member = membership { true } else { false } }

    /// Whether another claim may wait.
    var hasRoomForClaim: Bool {
        openClaimCount < min(limits.maximumOpenClaims, slotCount * memberCount.presentCount * claimsPerSlot)
    }

    // MARK: Claims

    /// Adds a flight that is about to start.
    ///
    /// - Precondition: the flight has no claim, and no other claim has its key.
    ///
    /// - Parameters:
    ///   - since: time from which a result answers its requests.
    ///   - hasAge: whether that is before their arrival.
    mutating func addClaim(
        _ flight: LocalFlight, _ want: EngineWant, since: MonotonicTime, hasAge: Bool = false, now: MonotonicTime
    ) {
        insertClaim(flight, want, .waiting, since: since, isRecorded: true, isHosted: false, now: now)
        claims[flight]?.hasAge = hasAge
        if isMember { assertClaim(of: flight) }
    }

    /// A request has joined an open claim with an age. Older results than it no longer answer the claim, also if the
    /// engine is sending one: the claim is asserted again under another serial.
    mutating func requestJoined(_ flight: LocalFlight, madeAt time: MonotonicTime) {
        guard let claim = claims[flight], claim.hasAge, claim.isOpen, claim.earliestResultTime < time else { return }
        lastClaimSerial += 1
        claims[flight]?.serial = lastClaimSerial
        claims[flight]?.earliestResultTime = time
        refreshClaim(of: flight)
    }

    /// Adds a flight whose attempt began without the engine: in the mode without it, or under an earlier broker.
    ///
    /// - Parameter token: a random number, so that attempts of two nodes differ.
    mutating func addRunningAttempt(
        _ flight: LocalFlight, _ want: EngineWant, token: FencingToken, now: MonotonicTime
    ) {
        insertClaim(flight, want, .uncoordinated(token), since: now, isRecorded: true, isHosted: false, now: now)
        if isMember { engineTraffic.newClaims.append(flight) }
    }

    /// Adds a flight that the engine granted for other nodes.
    ///
    /// - Parameter maximumBodyBytes: maximum body size for those nodes; nil for none.
    mutating func addHostedClaim(
        _ flight: LocalFlight, _ want: EngineWant, token: FencingToken, maximumBodyBytes: Int?, now: MonotonicTime
    ) {
        insertClaim(flight, want, .running(token), since: now, isRecorded: false, isHosted: true, now: now)
        claims[flight]?.maximumHostedBytes = maximumBodyBytes
        scheduleAssertion(of: flight, now: now)
    }

    /// Raises the class of a claim that waits.
    mutating func promote(_ flight: LocalFlight, to priority: PriorityClass) {
        guard let claim = claims[flight], claim.want.priority < priority else { return }
        claims[flight]?.want.priority = priority
        refreshClaim(of: flight)
    }

    /// Requests the state of a claim again.
    mutating func refreshClaim(of flight: LocalFlight) {
        if claims[flight]?.phase == .wanted { engineTraffic.newClaims.append(flight) }
    }

    /// Withdraws this node's want of a flight that has no request left.
    mutating func withdrawFlight(_ flight: LocalFlight, now: MonotonicTime) -> WithdrawalEffect {
        guard let claim = claims[flight] else { return .endAttempt }
        guard claim.token != nil, claim.want.lane == .shared, claim.isKnownToEngine, isMember else {
            return .endAttempt
        }
        withdrawWant(claim.want.key)
        claims[flight]?.isKnownToEngine = false
        claims[flight]?.isHosted = true
        scheduleAssertion(of: flight, now: now)
        return .continueHosting
    }

    /// Removes the claim of a flight whose attempt is being cancelled. The engine counts the attempt until
    /// `attemptEnded`.
    mutating func attemptCancelled(_ flight: LocalFlight, _ attempt: AttemptID) {
        guard let claim = claims[flight] else { return }
        enterPhase(nil, flight)
        if claim.isKnownToEngine { withdrawWant(claim.want.key) }
        if let token = claim.token, isMember {
            endingAttempts[attempt] = CancelledAttempt(key: claim.want.key, token: token)
        }
    }

    /// Handles the confirmed end of a cancelled attempt. Ignores other attempts.
    mutating func attemptEnded(_ attempt: AttemptID) {
        guard !endingAttempts.isEmpty, let ending = endingAttempts.removeValue(forKey: attempt) else { return }
        reportCompletion(ending.key, ending.token, .released, isAnswered: false)
    }

    /// Removes a claim whose flight ends without an attempt of this node, or whose attempt never ran.
    mutating func removeClaim(of flight: LocalFlight) {
        guard let claim = claims[flight] else { return }
        enterPhase(nil, flight)
        if claim.isKnownToEngine { withdrawWant(claim.want.key) }
        if let token = claim.token { reportCompletion(claim.want.key, token, .released, isAnswered: false) }
    }

    /// Removes the claim of an attempt that lost its flight. Without effect for other claims.
    mutating func removeOvertakenClaim(of flight: LocalFlight) {
        if claims[flight]?.phase == .overtaken { removeClaim(of: flight) }
    }

    /// Ends the attempt of a claim with a result.
    ///
    /// - Parameter isAnswered: whether the origin answered without refusing.
    mutating func endAttempt(of flight: LocalFlight, result: [UInt8], isAnswered: Bool, now: MonotonicTime) {
        guard let claim = claims[flight] else { return }
        enterPhase(nil, flight)
        if !isMember, claim.want.lane == .shared, let token = claim.token {
            unreportedResults.addResult(result, of: claim.want.key, token, now: now)
        } else if let token = claim.token {
            reportCompletion(claim.want.key, token, .result(result), isAnswered: isAnswered)
        } else if claim.isKnownToEngine {
            withdrawWant(claim.want.key)
        }
    }

    private mutating func reportCompletion(
        _ key: ClusterKey, _ token: FencingToken, _ outcome: EngineCompletion.Outcome, isAnswered: Bool
    ) {
        guard isMember else { return }
        engineTraffic.completions.append(
            EngineCompletion(key: key, token: token, outcome: outcome, isAnswered: isAnswered))
        engineTraffic.takeState.isRequestDue = true
    }

    /// Returns a grant for a flight that this node cannot run.
    mutating func releaseGrant(_ key: ClusterKey, _ token: FencingToken) {
        // A want of an ended claim must not bring the flight back at once.
        if flightsByKey[key] == nil { withdrawWant(key) }
        reportCompletion(key, token, .released, isAnswered: false)
    }

    /// Reports that an origin refused a request without credentials.
    mutating func reportOriginRefusal(_ refusal: EngineRefusal) {
        guard isMember else { return }
        // One call for each origin: many attempts may be refused while the engine is busy.
        if let index = engineTraffic.originRefusals.firstIndex(where: { $0.origin.key == refusal.origin.key }) {
            engineTraffic.originRefusals[index].requestedPauseMilliseconds = max(
                engineTraffic.originRefusals[index].requestedPauseMilliseconds, refusal.requestedPauseMilliseconds)
        } else if engineTraffic.originRefusals.count < Self.maximumRefusalsPerPass {
            engineTraffic.originRefusals.append(refusal)
        }
    }

    // MARK: Events

    mutating func engineEventReceived(_ event: EngineEvent, now: MonotonicTime) -> [ClusterEffect] {
        switch event {
        case .joined(let id, let count): return membershipBegan(id, count, now: now)
        case .left:
            membershipEnded(now: now)
            return []
        case .members(let count):
            if isMember { memberCount.memberCountReported(count, now: now) }
            return []
        case .warning, .remedied: return []
        case .wantsAnswered(let answers): return isMember ? answers.flatMap { wantAnswered($0, now: now) } : []
        case .flightsGranted(let grants, let opens):
            guard isMember else { return [] }
            let isFilled = engineTraffic.takeState.takeAnswered(
                grants.count, opens: opens, now: now,
                pause: isHosting ? limits.pollIntervalMilliseconds : Self.unwokenPollMilliseconds)
            let effects = grants.compactMap { grantReceived($0, now: now) }
            engineTraffic.earlyAborts = [:]
            if let isFilled { growWindowIfFull(isFilled: isFilled) }
            return effects
        case .completionsAnswered(let answers):
            staleCompletionCount += answers.count { !$0.isCurrent }
            // The end of an attempt ended a claim of this node, too, and its result was not sent to it.
            let ended = answers.compactMap { $0.isCurrent ? flightsByKey[$0.key] : nil }
            engineTraffic.newClaims += ended.filter { claims[$0]?.phase == .wanted }
            return []
        case .cooled(let notice): return [.coolDown(notice)]
        case .surveyed(let report):
            if isMember { engineTraffic.latestSurvey = report }
            return []
        case .workWaits:
            engineTraffic.takeState.isRequestDue = true
            return []
        case .messagesLost:
            if isMember { assertAllClaims() }
            return []
        case .resultReceived(let key, let result): return isMember ? resultReceived(key, result, now: now) : []
        case .unusableResult(let key):
            if isMember, let flight = flightsByKey[key] { refreshClaim(of: flight) }
            return []
        case .attemptAborted(let key, let token): return attemptAborted(key, token)
        }
    }

    /// Doubles the window if it is full and the engine has too few of its claims to start, because their origins are
    /// full.
    private mutating func growWindowIfFull(isFilled: Bool) {
        if isFilled {
            claimsPerSlot = limits.initialClaimsPerSlot
        } else if !hasRoomForClaim {
            claimsPerSlot = min(2 * claimsPerSlot, limits.maximumClaimsPerSlot)
        }
    }

    /// Begins the mode without the engine after a long absence. Waiting claims return to the local queue.
    mutating func timePassed(now: MonotonicTime) -> [ClusterEffect] {
        guard case .away(let since) = membership, !isUncoordinated,
            since.advanced(byMilliseconds: limits.engineLossToleranceMilliseconds) <= now
        else { return [] }
        isUncoordinated = true
        var effects: [ClusterEffect] = [.coordinationChanged(isCoordinated: false)]
        for flight in flightsInOrder where claims[flight]?.phase == .waiting {
            enterPhase(nil, flight)
            effects.append(.requeueFlight(flight))
        }
        return effects
    }

    private mutating func membershipBegan(_ id: NodeID, _ count: Int, now: MonotonicTime) -> [ClusterEffect] {
        // Under another ID, so that nothing of the earlier membership counts.
        if isMember { membershipEnded(now: now) }
        formerNodeID = node == id ? nil : node
        node = id
        engineTraffic = EngineTraffic()
        let awaySince = if case .away(let since) = membership { since } else { now }
        membership = .member(since: now, awaySince: awaySince)
        memberCount.memberCountReported(count, now: now)
        let wasUncoordinated = isUncoordinated
        isUncoordinated = false
        engineTraffic.completions = unreportedResults.takeFreshCompletions(now: now)
        engineTraffic.nextSurveyTime = now
        lastProgressTime = now
        assertAllClaims()
        return wasUncoordinated ? [.coordinationChanged(isCoordinated: true)] : []
    }

    /// Asserts everything that this node wants and runs, and requests flights.
    private mutating func assertAllClaims() {
        engineTraffic.newClaims = flightsInOrder.filter { claims[$0]?.phase != .overtaken }
        for flight in engineTraffic.newClaims where claims[flight]?.phase == .waiting { enterPhase(.wanted, flight) }
        engineTraffic.takeState.isRequestDue = true
    }

    private mutating func membershipEnded(now: MonotonicTime) {
        guard case .member(let since, let awaySince) = membership else { return }
        engineTraffic = EngineTraffic()
        memberCount.membershipEnded(now: now)
        let isLasting = now.milliseconds(since: since) >= Self.stableMembershipMilliseconds
        // Short memberships do not end an absence. Those with progress are no part of it.
        let absence = isLasting ? 0 : (lastProgressTime > since ? since : now).milliseconds(since: awaySince)
        membership = .away(since: now.advanced(byMilliseconds: -absence))
        for flight in flightsInOrder where claims[flight]?.phase == .wanted { enterPhase(.waiting, flight) }
        // The engine returns these when the lease expires, because they are not asserted again.
        endingAttempts = [:]
    }

    private mutating func wantAnswered(_ answer: WantAnswer, now: MonotonicTime) -> [ClusterEffect] {
        var question = engineTraffic.unansweredWants.popFirst()
        while let other = question, other.key != answer.key { question = engineTraffic.unansweredWants.popFirst() }
        guard let question, let flight = flightsByKey[answer.key], let claim = claims[flight],
            claim.serial == question.claim
        else { return [] }
        switch answer.state {
        case .queued, .running:
            claims[flight]?.isFetchedElsewhere = answer.state == .running
            return []
        case .ended(let result): return resultReceived(answer.key, result, now: now)
        case .held, .stale:
            // Otherwise the answer concerns an earlier attempt.
            guard let token = claim.token, token == question.token else { return [] }
            guard answer.state == .stale else {
                if case .uncoordinated = claim.phase { enterPhase(.running(token), flight) }
                return []
            }
            enterPhase(.overtaken, flight)
            return endHosting(flight)
        }
    }

    private mutating func grantReceived(_ grant: EngineGrant, now: MonotonicTime) -> ClusterEffect? {
        if let flight = flightsByKey[grant.key], let claim = claims[flight] {
            if grant.record != nil, claim.want.lane == .shared { claims[flight]?.isHosted = true }
            lastProgressTime = now
            // An attempt that runs already serves the flight.
            enterPhase(.running(grant.token), flight)
            scheduleAssertion(of: flight, now: now)
            if claim.isOpen { return .startFlight(flight) }
            return claims[flight]?.isHosted == true ? .flightHosted(flight) : nil
        }
        guard let record = grant.record, engineTraffic.earlyAborts[grant.key] != grant.token else {
            // Withdrawn while the answer was on its way.
            releaseGrant(grant.key, grant.token)
            return nil
        }
        return .hostAttempt(grant.key, grant.token, record: record, grant.priority)
    }

    private mutating func resultReceived(_ key: ClusterKey, _ result: [UInt8], now: MonotonicTime) -> [ClusterEffect] {
        guard let flight = flightsByKey[key], let claim = claims[flight], claim.phase == .wanted else { return [] }
        lastProgressTime = now
        enterPhase(nil, flight)
        return [.resultReceived(flight, result)]
    }

    private mutating func attemptAborted(_ key: ClusterKey, _ token: FencingToken) -> [ClusterEffect] {
        guard let flight = flightsByKey[key], claims[flight]?.token == token else {
            // Answers and notifications have connections of their own.
            if engineTraffic.takeState.isRequestPending, engineTraffic.earlyAborts.count < Self.maximumEarlyAborts {
                engineTraffic.earlyAborts[key] = token
            }
            return []
        }
        return endHosting(flight)
    }

    private mutating func endHosting(_ flight: LocalFlight) -> [ClusterEffect] {
        guard claims[flight]?.isHosted == true else { return [] }
        claims[flight]?.isHosted = false
        return [.abortAttempt(flight)]
    }

    // MARK: Calls

    /// Calls of this pass, in order. Empty unless this node is a member.
    ///
    /// - Parameters:
    ///   - freeSlots: slots that can take flights.
    ///   - leavesFlights: whether this node leaves shared flights to others, as far as others take them.
    ///   - hosting: flights of other nodes that it takes.
    mutating func takeEngineCalls(
        freeSlots: Int, leavesFlights: Bool = false, hosting: HostingPermission = .all, now: MonotonicTime
    ) -> [EngineCall] {
        guard isMember else { return [] }
        isHosting = hosting == .all
        var calls: [EngineCall] = []
        // Before the assertions, so that attempts that outlived that process keep their flights.
        if let predecessor { calls.append(.retireMembership(predecessor)) }
        predecessor = nil
        // Before the ends, so that the engine does not queue a released flight for this node again.
        if !engineTraffic.withdrawnWants.isEmpty { calls.append(.withdrawWants(engineTraffic.withdrawnWants)) }
        if !engineTraffic.completions.isEmpty { calls.append(.reportCompletions(engineTraffic.completions)) }
        for refusal in engineTraffic.originRefusals { calls.append(.reportRefusal(refusal)) }
        // The engine wakes a node only for flights that this one leaves.
        let mayLeaveWork = !engineTraffic.newClaims.isEmpty || !engineTraffic.completions.isEmpty
        let wants = takeDueWants(now: now)
        if !wants.isEmpty { calls.append(.wantFlights(wants)) }
        if let formerNodeID {
            calls.append(.retireMembership(formerNodeID))
            self.formerNodeID = nil
        }
        let slots = hosting == .singleTrial ? min(freeSlots, 1) : freeSlots
        if let slots = engineTraffic.takeState.slotsToRequest(freeSlots: slots, wakesOthers: mayLeaveWork, now: now) {
            let isOwnOnly = leavesFlights && otherNodesTakeClaims(now: now)
            let isWantedOnly = hosting == .none && !isOwnOnly
            calls.append(
                isWantedOnly ? .takeWantedFlights(slots: slots) : .takeFlights(slots: slots, isOwnOnly: isOwnOnly))
        }
        if let time = engineTraffic.nextSurveyTime, time <= now {
            calls.append(.survey)
            engineTraffic.nextSurveyTime = now.advanced(byMilliseconds: Self.surveyIntervalMilliseconds)
        }
        engineTraffic.withdrawnWants = []
        engineTraffic.completions = []
        engineTraffic.originRefusals = []
        return calls
    }

    /// Whether another node may take the open claims of this one, and they make progress.
    private func otherNodesTakeClaims(now: MonotonicTime) -> Bool {
        memberCount.presentCount > 1
            && (openClaimCount == 0
                || now.milliseconds(since: max(lastProgressTime, claimsOpenSince)) < Self.handOverTimeoutMilliseconds)
    }

    private mutating func takeDueWants(now: MonotonicTime) -> [EngineWant] {
        var due = engineTraffic.newClaims
        engineTraffic.newClaims = []
        while let first = engineTraffic.takeDueAssertion(now: now) {
            if claims[first.flight]?.nextAssertionTime == first.due { due.append(first.flight) }
        }
        var wants: [EngineWant] = []
        for (index, flight) in due.enumerated() {
            guard wants.count < Self.maximumWantsPerPass else {
                // The next calls follow the answers to these.
                engineTraffic.newClaims = Array(due[index...])
                break
            }
            guard let claim = claims[flight], claim.phase == .wanted || claim.token != nil else { continue }
            scheduleAssertion(of: flight, now: now)
            var want = claim.want
            want.token = claim.token
            want.origin.limit = engineLimit(of: want.origin.limit, now: now)
            want.isHosted = !claim.isKnownToEngine
            want.ageMilliseconds = now.milliseconds(since: claim.earliestResultTime)
            wants.append(want)
            engineTraffic.unansweredWants.append(
                EngineTraffic.SentWant(claim: claim.serial, key: want.key, token: want.token))
        }
        return wants
    }

    /// Sets the time of the next assertion. An attempt that only this node wants is not asserted: its node's lease
    /// covers it, and no other node can withdraw it.
    private mutating func scheduleAssertion(of flight: LocalFlight, now: MonotonicTime) {
        guard let claim = claims[flight], claim.phase == .wanted || claim.want.lane == .shared else { return }
        let isForOthers = !claim.isKnownToEngine
        let interval = isForOthers ? limits.hostedAssertionMilliseconds : limits.assertionIntervalMilliseconds
        let next = now.advanced(byMilliseconds: interval)
        guard claim.nextAssertionTime != next else { return }
        claims[flight]?.nextAssertionTime = next
        engineTraffic.addAssertion((flight, next), isForOthers: isForOthers, claims: claims)
    }

    private mutating func assertClaim(of flight: LocalFlight) {
        enterPhase(.wanted, flight)
        engineTraffic.newClaims.append(flight)
        engineTraffic.takeState.isRequestDue = true
    }

    private mutating func withdrawWant(_ key: ClusterKey) { if isMember { engineTraffic.withdrawnWants.append(key) } }

    // MARK: Transitions

    private mutating func insertClaim(
        _ flight: LocalFlight, _ want: EngineWant, _ phase: Phase, since: MonotonicTime, isRecorded: Bool,
        isHosted: Bool, now: MonotonicTime
    ) {
        precondition(claims[flight] == nil && flightsByKey[want.key] == nil, "\(flight) is claimed twice")
        precondition(Self.isLegal(from: nil, to: phase), "a claim begins as \(phase)")
        lastClaimSerial += 1
        let claim = Claim(
            serial: lastClaimSerial, want: want, phase: phase, earliestResultTime: since, isKnownToEngine: isRecorded,
            isHosted: isHosted, nextAssertionTime: now)
        claims[flight] = claim
        flightsByKey[want.key] = flight
        if claim.isOpen {
            (openClaimCount, claimsOpenSince) = (openClaimCount + 1, openClaimCount == 0 ? now : claimsOpenSince)
        }
    }

    /// Makes a transition of the diagram; nil is the state `absent`. Traps on any other transition.
    private mutating func enterPhase(_ phase: Phase?, _ flight: LocalFlight) {
        guard let claim = claims[flight] else { preconditionFailure("\(flight) has no claim") }
        precondition(
            Self.isLegal(from: claim.phase, to: phase),
            "\(flight) goes from \(claim.phase) to \(String(describing: phase))")
        if claim.isOpen { openClaimCount -= 1 }
        guard let phase else {
            claims[flight] = nil
            flightsByKey[claim.want.key] = nil
            return
        }
        claims[flight]?.phase = phase
        if phase == .waiting || phase == .wanted { openClaimCount += 1 }
    }
}
