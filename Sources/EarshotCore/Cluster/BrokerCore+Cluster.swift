internal import EarshotHTTP
internal import EarshotWire

/// Several brokers: flights of http and https start when the engine of the cluster permits it.
///
/// A flight whose turn comes enters `claiming`. It starts here when the engine grants it to this node, or gets the
/// result of the node that ran it (`BrokerCore+SharedResults.swift`). A flight keeps its claim while it is repeated
/// after the death of its worker, and the engine counts a cancelled attempt until its worker has confirmed the end.
///
/// While the engine is unreachable for long, flights start as on a single node, at origins with a part of their limit.
/// Without a cluster all of this costs a comparison with nil.
extension BrokerCore {
    // MARK: Events

    /// Handles an event of the engine.
    public mutating func engineSaid(_ event: EngineEvent, now: Tick) {
        guard records.cluster != nil else { return }
        records.clock = now
        switch event {
        case .joined(let node, _):
            records.cluster?.value.node = node
            records.cluster?.value.fault = nil
        case .left(let fault):
            if records.cluster?.value.book.isMember == true { records.cluster?.value.counts.losses += 1 }
            records.cluster?.value.fault = fault
            records.cluster?.value.warnings = []
        case .warning(let warning):
            if records.cluster?.value.warnings.contains(warning) == false {
                records.cluster?.value.warnings.append(warning)
            }
        case .remedied(let warning): records.cluster?.value.warnings.removeAll { $0 == warning }
        case .surveyed(let survey): records.cluster?.value.health.surveyed(survey.members, now: now)
        default: break
        }
        for effect in records.cluster?.value.book.received(event, now: now) ?? [] { carryOut(effect, now: now) }
    }

    /// Calls to the engine after the events of a pass.
    public mutating func takeEngineCalls(now: Tick) -> [EngineCall] {
        guard records.cluster != nil, !awaitsAttempts else { return [] }
        let free = freeClusterSlots()
        let hosting = records.cluster?.value.health.hosting(now: now) ?? .all
        let leavesFlights =
            !records.limits.isAdmitting || hosting == .none && records.cluster?.value.health.leavesFlights == true
        let calls =
            records.cluster?.value.book.takeCalls(
                freeSlots: free, leavesFlights: leavesFlights, hosting: hosting, now: now) ?? []
        if hosting == .one, calls.contains(where: \.asksForOthers) {
            records.cluster?.value.health.triesHosting(now: now)
        }
        return calls
    }

    /// Returns the number of members among which limits are divided, once after the mode without the engine began.
    public mutating func takeUncoordinatedStart() -> Int? {
        guard records.cluster?.value.hasUncoordinatedStart == true else { return nil }
        records.cluster?.value.hasUncoordinatedStart = false
        return records.cluster?.value.book.members.divisor
    }

    /// Notes whether the shell awaits answers of the engine. It asks for calls after the last one.
    public mutating func engineIsBusy(_ isBusy: Bool) {
        if records.cluster != nil, records.cluster?.value.isEngineBusy != isBusy {
            records.cluster?.value.isEngineBusy = isBusy
        }
    }

    /// Next time at which the cluster needs a call of `timePassed`; nil for none.
    var clusterDeadline: Tick? {
        guard let cluster = records.cluster else { return nil }
        let state = cluster.value
        let calls = state.book.isMember && (state.isEngineBusy || awaitsAttempts) ? nil : state.book.deadline
        return [calls, state.held.deadline].compactMap(\.self).min()
    }

    /// Whether workers may still run attempts of an earlier process of this node. Its membership, which counts them, ends
    /// after them. All other calls wait with its end.
    private var awaitsAttempts: Bool { records.cluster?.value.book.predecessor != nil && records.workers.isAwaiting }

    mutating func clusterTimePassed(now: Tick) {
        for effect in records.cluster?.value.book.timePassed(now: now) ?? [] { carryOut(effect, now: now) }
        for outcome in records.cluster?.value.held.expire(now: now, most: records.limits.timersPerPass) ?? [] {
            records.release(outcome)
        }
    }

    // MARK: Claims

    /// Whether the engine decides about starts in a pool now.
    func isCoordinated(_ pool: Handle<WorkerPool>) -> Bool {
        guard let cluster = records.cluster, pool == WorkerPool.web else { return false }
        return !cluster.value.book.isUncoordinated
    }

    /// Slots that may take flights of the cluster.
    private mutating func freeClusterSlots() -> Int {
        isDraining || records.workers.isAwaiting ? 0 : records.workers.slotCount(of: WorkerPool.web).free
    }

    /// Claims queued flights in the order of the queue, as far as the window permits.
    mutating func claimQueued(now: Tick) {
        let slots = records.workers.slotCount(of: WorkerPool.web)
        if slots.total > 0 { records.cluster?.value.book.slots = slots.total }
        var refusals = 0
        while records.cluster?.value.book.hasRoom == true,
            let flight = nextToStart(in: WorkerPool.web, isForHigh: false, isClaiming: true, &refusals, now: now)
        {
            guard !hasClaim(flight) else {
                // It starts when a slot is free, before other flights.
                guard freeClusterSlots() > 0 else {
                    forEachInterest(of: flight) { core, interest in
                        core.records.queue.remove(interest)
                        core.enqueue(interest, for: flight, first: true)
                    }
                    return
                }
                start(flight, now: now)
                continue
            }
            claim(flight, now: now)
        }
    }

    /// Claims a queued flight.
    private mutating func claim(_ flight: Handle<Flight>, now: Tick) {
        var principal = PrincipalTable.administrator
        // A result that is older than one of the requests does not answer it.
        let setbacks = records.cluster?.value.setbacks[flight]
        let isRepeated = records.flights[flight].attempts > 0 || setbacks != nil
        var since = setbacks?.receivedAt ?? (isRepeated ? now : .init(nanoseconds: .min))
        records.cluster?.value.setbacks[flight]?.receivedAt = nil
        forEachInterest(of: flight) { core, interest in
            core.records.queue.remove(interest)
            principal = core.records.principal(of: interest)
            since = max(since, core.records.requests[interest].askedAt)
        }
        if !records.flights.isAwaited(flight) { since = now }
        let want = want(of: flight)
        guard !isDraining || want.lane == .shared else { return }
        let origin = origin(of: flight)
        records.quotas.transferStarted(by: principal)
        records.governor.claimed(1, at: origin)
        records.cluster?.value.charges[flight] = ClusterState.Charge(principal: principal, origin: origin)
        records.flights.enter(.claiming, flight)
        let local = local(flight)
        records.cluster?.value.book.claim(local, want, since: since, now: now)
    }

    /// Claims queued flights that other nodes can fetch, while this node drains, and reads the bodies of their results.
    /// Its own flights leave the queue, and its successor gets their requests.
    mutating func handOver(now: Tick) {
        guard records.cluster != nil else { return }
        while !records.pools[WorkerPool.web].returned.isEmpty {
            let name = records.pools.takeReturned(of: WorkerPool.web)
            guard let flight = liveFlight(name), records.flights[flight].phase == .queued else { continue }
            returnClaim(of: flight)
        }
        if isCoordinated(WorkerPool.web) { claimQueued(now: now) }
        guard let pool = nodePool else { return }
        if records.pools[pool].isClosed { failQueued(in: pool, now: now) } else { startQueued(in: pool, now: now) }
    }

    /// Pool of the workers that read bodies of other nodes. They go on while this node drains.
    var nodePool: Handle<WorkerPool>? {
        records.cluster == nil ? nil : records.pools.number(of: BodyPlace.scheme, of: PrincipalTable.administrator)
    }

    /// Returns the claim of a queued flight that cannot start here now. In the queue it could wait for claims at its
    /// origin that wait for this one. A flight that only other nodes want ends.
    mutating func returnClaim(of flight: Handle<Flight>) {
        let isHosted = records.flights[flight].isHosted
        records.flights[flight].isHosted = false
        let local = local(flight)
        records.cluster?.value.book.drop(local)
        if isHosted, !records.flights.isAwaited(flight) { forget(flight) }
    }

    /// Address policy of the node for which a hosted flight runs, if it differs from that of this node.
    mutating func foreignPolicy(of flight: Handle<Flight>) -> String {
        records.cluster?.value.foreignPolicies[flight] ?? ""
    }

    /// Whether a flight has a claim, even one that another node has overtaken.
    mutating func holdsClaim(_ flight: Handle<Flight>) -> Bool {
        records.cluster.map { $0.value.book.claims[local(flight)] != nil } ?? false
    }

    /// Class and size limit that other nodes have asked for.
    func hostedPriority(of flight: Handle<Flight>) -> PriorityClass {
        records.cluster?.value.book.claims[local(flight)]?.want.priority ?? .background
    }

    func hostedLimit(of flight: Handle<Flight>) -> Int? {
        records.cluster?.value.book.claims[local(flight)]?.hostedBytes
    }

    /// Whether a flight that is about to run has a claim. An attempt that lost its flight does not pass its claim on.
    private mutating func hasClaim(_ flight: Handle<Flight>) -> Bool {
        let local = local(flight)
        records.cluster?.value.book.dropOvertaken(local)
        return records.cluster?.value.book.claims[local] != nil
    }

    /// Claims a flight that is about to run outside the order of the queue, unless it has a claim or needs none.
    ///
    /// - Returns: whether it has to wait for the engine.
    mutating func mustClaim(_ flight: Handle<Flight>, now: Tick) -> Bool {
        guard records.cluster != nil, isCoordinated(pool(of: flight)), !hasClaim(flight) else { return false }
        claim(flight, now: now)
        return true
    }

    /// Reports to the other nodes that an origin refused a request without credentials.
    mutating func reportRefusal(to flight: Handle<Flight>, asked: RetryAfter?) {
        let scope = records.governor.scopes[records.flights[flight].scope]
        guard scope.scope.isShared, !isPulling(flight) else { return }
        let entry = records.governor.origins[scope.origin]
        let origin = engineOrigin(entry)
        let milliseconds = Int(clamping: (asked?.seconds ?? 0).multipliedReportingOverflow(by: 1_000).partialValue)
        records.cluster?.value.book.refused(EngineRefusal(origin: origin, askedMilliseconds: max(0, milliseconds)))
    }

    /// Frees the room of an open claim in the quota of its principal and at its origin. Without effect for other flights.
    private mutating func release(chargeOf flight: Handle<Flight>) {
        guard let charge = records.cluster?.value.charges.removeValue(forKey: flight) else { return }
        if records.quotas.transferEnded(by: charge.principal) { records.queue.quotaOpened(charge.principal) }
        records.governor.claimed(-1, at: charge.origin)
        records.queue.originOpened(charge.origin)
    }

    /// Records that the attempt of a flight begins on this node.
    mutating func clusterStarts(_ flight: Handle<Flight>, now: Tick) {
        release(chargeOf: flight)
        // Without a second reference to the state, whose tables the changes below would copy.
        guard records.cluster != nil, !isPulling(flight), pool(of: flight) == WorkerPool.web, !hasClaim(flight) else {
            return
        }
        let want = want(of: flight)
        let token = FencingToken(
            FencingToken.uncoordinated.lowerBound + records.generator.next() % FencingToken.uncoordinated.upperBound)
        if records.cluster?.value.book.isMember == false { records.cluster?.value.counts.uncoordinated += 1 }
        let local = local(flight)
        records.cluster?.value.book.began(local, want, token: token, now: now)
    }

    func local(_ flight: Handle<Flight>) -> LocalFlight { LocalFlight(records.flights.name(of: flight).reference) }

    private func resolve(_ flight: LocalFlight) -> Handle<Flight>? {
        records.flights.number(of: FlightName(reference: flight.reference))
    }

    /// The want of a flight: shared if any node may fetch it.
    private mutating func want(of flight: Handle<Flight>) -> EngineWant {
        let scope = records.governor.scopes[records.flights[flight].scope]
        let entry = records.governor.origins[scope.origin]
        let origin = engineOrigin(entry)
        let priority = priority(of: flight)
        if let shared = sharedRequest(of: flight),
            let key = records.cluster?.value.facility.flightKey(contentBytes(of: flight) + shared.policyLine),
            records.cluster?.value.book.flight(of: key) == nil
        {
            return EngineWant(key: key, origin: origin, lane: .shared, priority: priority, record: shared.record)
        }
        let key = ClusterKey(broker: records.cluster?.value.facility.broker ?? 0, flight: records.flights[flight].id)
        return EngineWant(
            key: key, origin: origin, lane: scope.scope.isShared ? .pinned : .credentialed, priority: priority)
    }

    /// Bytes of the flight's key and of all fields sent to the server, which nodes compare.
    private mutating func contentBytes(of flight: Handle<Flight>) -> [UInt8] {
        var bytes: [UInt8] = []
        for text in [
            records.flights[flight].mode.rawValue, records.flights[flight].url.description,
            records.flights[flight].variant,
        ] {
            // A text follows its length, so that different lists of texts never have the same bytes.
            bytes += "\(text.utf8.count) ".utf8
            bytes += text.utf8
        }
        return bytes + jobFields(of: flight).bytes
    }

    /// An origin and its terms by the rules of this node, as the engine gets them.
    private mutating func engineOrigin(_ entry: OriginEntry) -> EngineOrigin {
        EngineOrigin(
            key: key(of: entry), limit: max(1, records.limits.origins.terms(for: entry).limit),
            spacingMilliseconds: Int(entry.spacingMilliseconds))
    }

    private mutating func key(of entry: OriginEntry) -> ClusterKey {
        guard let facility = records.cluster?.value.facility else { preconditionFailure("no cluster") }
        let key = facility.originKey(entry.name)
        if records.cluster?.value.originNames[key] == nil {
            if records.cluster?.value.originNames.count ?? 0 >= ClusterState.mostOriginNames {
                records.cluster?.value.originNames.removeAll()
            }
            records.cluster?.value.originNames[key] = entry.name
        }
        return key
    }

    /// The request that other nodes may fetch for a flight; nil if the flight stays on this node.
    private mutating func sharedRequest(of flight: Handle<Flight>) -> SharedRequest? {
        let record = records.flights[flight]
        guard !record.isAlone, !record.isRevalidation, record.partition == nil, record.body == nil,
            records.flights[extras: flight].workerDeaths == 0, records.cachePlans[flight]?.stored == nil,
            records.cluster?.value.setbacks[flight]?.count ?? 0 < ClusterState.mostSetbacks
        else { return nil }
        return SharedRequest(
            record.request, timeoutMilliseconds: Int(record.timeoutMilliseconds), maxBytes: sizeLimit(of: flight),
            redirect: record.redirect, mode: record.mode, policy: records.workerLimits.addressPolicy,
            avoided: records.cluster?.value.setbacks[flight]?.avoided ?? [])
    }

    /// Raises the class of a claim for its newest request.
    mutating func promoteClaim(of flight: Handle<Flight>, to priority: PriorityClass) {
        let local = local(flight)
        records.cluster?.value.book.promote(local, to: priority)
    }

    /// Asks the engine about the flight of a request whose reason was asked for, so that the next answer is right: whether
    /// another node fetches it.
    mutating func refreshClaim(of request: RequestID, _ key: HandlerKey) {
        guard records.cluster != nil, let handler = records.handlers.number(of: key),
            let interest = records.listedInterest(request, of: handler), records.requests[interest].phase == .open
        else { return }
        let local = local(records.leaf(ofOpen: interest))
        records.cluster?.value.book.refresh(local)
    }

    /// Whether a flight without requests goes on for other nodes.
    mutating func goesOnForCluster(_ flight: Handle<Flight>) -> Bool {
        guard records.cluster != nil else { return false }
        let local = local(flight)
        guard records.cluster?.value.book.withdraw(local, now: records.clock) == .host else { return false }
        // Otherwise the outcome would be kept for a local request, and the other nodes would not get it.
        _ = records.flights.endDeferral(of: flight)
        records.flights[flight].isHosted = true
        return true
    }

    /// Withdraws this node's want of a flight that only other nodes still want. Otherwise the engine would not end it with
    /// their wants.
    mutating func leaveToOtherNodes(_ flight: Handle<Flight>) {
        guard !records.flights.isAwaited(flight), !records.flights[flight].isRevalidation else { return }
        let local = local(flight)
        _ = records.cluster?.value.book.withdraw(local, now: records.clock)
    }

    /// Records that an attempt is being cancelled.
    mutating func clusterCancels(_ flight: Handle<Flight>, _ attempt: AttemptID) {
        records.flights[flight].isHosted = false
        let local = local(flight)
        records.cluster?.value.book.cancelled(local, attempt)
    }

    /// Ends everything that the cluster has for a flight that is forgotten.
    mutating func leaveCluster(_ flight: Handle<Flight>) {
        release(chargeOf: flight)
        records.flights[flight].isHosted = false
        let local = local(flight)
        records.cluster?.value.book.drop(local)
        records.cluster?.value.setbacks[flight] = nil
        records.cluster?.value.foreignPolicies[flight] = nil
        records.cluster?.value.pulls[flight] = nil
    }

    // MARK: Effects

    private mutating func carryOut(_ effect: ClusterEffect, now: Tick) {
        switch effect {
        case .start(let flight): granted(flight, now: now)
        case .hosting(let local):
            guard let flight = resolve(local) else { return }
            records.flights[flight].isHosted = records.cluster?.value.book.claims[local]?.isHosted ?? false
        case .host(let key, let token, let record, let priority):
            host(key, token, record: record, priority, now: now)
        case .result(let flight, let result):
            if let flight = settled(flight), records.flights[flight].phase == .claiming {
                take(result, for: flight, now: now)
            }
        case .abort(let flight):
            guard let flight = resolve(flight) else { return }
            records.flights[flight].isHosted = false
            dropIfUnwanted(flight)
        case .requeue(let flight):
            guard let flight = settled(flight), records.flights[flight].phase == .claiming else { return }
            enqueue(flight: flight, first: true)
        case .coolDown(let notice): coolDown(notice, now: now)
        case .mode(let isCoordinated):
            records.cluster?.value.hasUncoordinatedStart = !isCoordinated
            applyOriginRules(now: now)
        }
    }

    /// The flight without its doomed requests, and without the room of its claim; nil if it has ended.
    private mutating func settled(_ flight: LocalFlight) -> Handle<Flight>? {
        guard let flight = liveFlight(FlightName(reference: flight.reference)) else { return nil }
        release(chargeOf: flight)
        return flight
    }

    private mutating func granted(_ local: LocalFlight, now: Tick) {
        records.cluster?.value.counts.granted += 1
        guard let flight = settled(local), records.flights[flight].phase == .claiming else { return }
        records.flights[flight].isHosted = records.cluster?.value.book.claims[local]?.isHosted ?? false
        guard freeClusterSlots() > 0, !records.flights[flight].isSuspect else {
            // Its worker died meanwhile, or it runs alone. The flight keeps its grant.
            enqueue(flight: flight, first: true)
            return
        }
        start(flight, now: now)
    }

    /// Starts an attempt for other nodes.
    private mutating func host(
        _ key: ClusterKey, _ token: FencingToken, record: [UInt8], _ priority: PriorityClass, now: Tick
    ) {
        // A second grant of a key is nonsense, and so is one for others of a flight that stays here. Neither may trap.
        guard let shared = SharedRequest(record: record), freeClusterSlots() > 0,
            records.cluster?.value.book.flight(of: key) == nil,
            records.cluster.map({ !key.stays(on: $0.value.facility.broker) }) == true
        else {
            records.cluster?.value.book.release(key, token)
            return
        }
        guard !shared.avoided.contains(records.cluster?.value.facility.address ?? "") else {
            records.cluster?.value.book.release(key, token)
            records.cluster?.value.health.isAvoided(now: now)
            return
        }
        records.cluster?.value.counts.granted += 1
        records.cluster?.value.counts.hosted += 1
        let flight = flightToHost(shared)
        forEachInterest(of: flight) { core, interest in core.records.queue.remove(interest) }
        records.flights[flight].isHosted = true
        records.flights[flight].timeoutMilliseconds = max(
            records.flights[flight].timeoutMilliseconds, UInt32(clamping: shared.timeoutMilliseconds))
        let entry = records.governor.origins[origin(of: flight)]
        let origin = engineOrigin(entry)
        let want = EngineWant(key: key, origin: origin, lane: .shared, priority: priority, record: record)
        let local = local(flight)
        records.cluster?.value.book.host(local, want, token: token, maxBytes: shared.maxBytes, now: now)
        if records.flights[flight].phase == .queued { start(flight, now: now) }
    }

    /// The queued flight of local requests for the same content, or else a new one.
    private mutating func flightToHost(_ shared: SharedRequest) -> Handle<Flight> {
        let request = shared.request
        let key = FlightKey(request, redirect: shared.redirect, partition: nil, alone: nil, mode: shared.mode)
        // Neither local requests nor the cache of this node may share a flight with another address policy.
        let isForeign = shared.policy != records.workerLimits.addressPolicy
        if !isForeign, let name = records.flights.number(of: key).map({ records.flights.name(of: $0) }),
            let flight = liveFlight(name),
            records.flights[flight].phase == .queued, !records.flights[flight].isSuspect,
            records.flights[flight].fields == request.fields,
            records.cluster?.value.book.claims[local(flight)] == nil, records.cluster?.value.pulls[flight] == nil
        {
            return flight
        }
        let isAlone = isForeign || records.flights.number(of: key) != nil
        let own =
            isAlone
            ? FlightKey(
                request, redirect: shared.redirect, partition: nil, alone: records.flights.nextID, mode: shared.mode)
            : key
        let flight = beginFlight(
            request, redirect: shared.redirect, partition: nil, own, isAlone: isAlone, body: nil)
        holdHead(
            of: request, for: .flight(flight), of: RequestHeads.nobody, by: PrincipalTable.administrator)
        askCache(for: flight, request)
        if isForeign { records.cluster?.value.foreignPolicies[flight] = shared.policy }
        return flight
    }

    /// Applies the cool-down of an origin that another node, or this one, has reported.
    private mutating func coolDown(_ notice: CoolDownNotice, now: Tick) {
        guard notice.remainingMilliseconds > 0, let name = records.cluster?.value.originNames[notice.origin],
            let url = try? FetchURL("\(name)/"),
            let origin = records.governor.origin(
                of: url, in: WorkerPool.web, hash: UInt32(truncatingIfNeeded: url.originHash)),
            let scope = records.governor.origins[origin].sharedScope
        else { return }
        let rest = min(notice.remainingMilliseconds, EngineLimits.intervalMilliseconds.upperBound)
        cool(scope, asked: RetryAfter(seconds: Int64((rest + 999) / 1_000)), now: now)
        // Claims that cannot start would fill the window.
        for flight in records.cluster?.value.charges.keys.sorted() ?? [] where records.flights[flight].scope == scope {
            let local = local(flight)
            records.cluster?.value.book.drop(local)
            release(chargeOf: flight)
            enqueue(flight: flight, first: true)
        }
    }
}
