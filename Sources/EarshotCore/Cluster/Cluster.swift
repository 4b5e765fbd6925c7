internal import EarshotHTTP
internal import EarshotWire

/// Several brokers: flights of http and https start when the engine of the cluster permits it.
///
/// A flight whose turn comes enters `claiming`. It starts here when the engine grants it to this node, or gets the
/// result of the node that ran it (`Cluster+SharedResults.swift`). A flight keeps its claim while it is repeated
/// after the death of its worker, and the engine counts a cancelled attempt until its worker has confirmed the end.
///
/// While the engine is unreachable for long, flights start as on a single node, at origins with a part of their limit.
/// Without a cluster all of this costs a comparison with nil.
enum Cluster {
    /// Handles an event of the engine, and returns its effects on flights and origins.
    static func received(_ event: EngineEvent, now: Tick, in records: inout Records) -> [ClusterEffect] {
        switch event {
        case .joined(let node, _):
            records.cluster?.value.node = node
            records.cluster?.value.engineFault = nil
        case .left(let fault):
            if records.cluster?.value.book.isMember == true { records.cluster?.value.counts.losses += 1 }
            records.cluster?.value.engineFault = fault
            records.cluster?.value.warnings = []
        case .warning(let warning):
            if records.cluster?.value.warnings.contains(warning) == false {
                records.cluster?.value.warnings.append(warning)
            }
        case .remedied(let warning): records.cluster?.value.warnings.removeAll { $0 == warning }
        case .surveyed(let survey): records.cluster?.value.health.surveyed(survey.members, now: now)
        default: break
        }
        return records.cluster?.value.book.received(event, now: now) ?? []
    }

    /// Calls to the engine after the events of a pass.
    static func takeCalls(now: Tick, in records: inout Records) -> [EngineCall] {
        guard records.cluster != nil, !awaitsAttempts(in: records) else { return [] }
        let free = freeSlots(in: &records)
        let hosting = records.cluster?.value.health.hosting(now: now) ?? .all
        let leavesFlights =
            !records.limits.isAdmitting || hosting == .none && records.cluster?.value.health.leavesFlights == true
        let calls =
            records.cluster?.value.book.takeCalls(
                freeSlots: free, leavesFlights: leavesFlights, hosting: hosting, now: now) ?? []
        if hosting == .one, calls.contains(where: \.servesOtherNodes) {
            records.cluster?.value.health.triesHosting(now: now)
        }
        return calls
    }

    /// Next time at which the cluster needs a call of `timePassed`; nil for none.
    @inline(__always)
    static func deadline(in records: Records) -> Tick? {
        guard let cluster = records.cluster else { return nil }
        let state = cluster.value
        let isWaiting = state.book.isMember && (state.isEngineBusy || awaitsAttempts(in: records))
        return [isWaiting ? nil : state.book.deadline, state.heldResults.deadline].compactMap(\.self).min()
    }

    /// Whether workers may still run attempts of an earlier process of this node. Its membership, which counts them, ends
    /// after them. All other calls wait with its end.
    @inline(__always)
    private static func awaitsAttempts(in records: Records) -> Bool {
        records.cluster?.value.book.predecessor != nil && records.workers.isAwaiting
    }

    /// Releases bodies that other nodes had time to read, and returns the effects of the time on flights.
    static func timePassed(now: Tick, in records: inout Records) -> [ClusterEffect] {
        for outcome in records.cluster?.value.heldResults.expire(now: now, most: records.limits.timersPerPass) ?? [] {
            records.release(outcome)
        }
        return records.cluster?.value.book.timePassed(now: now) ?? []
    }

    // MARK: Claims

    /// Whether the engine decides about starts in a pool now.
    @inline(__always)
    static func isCoordinated(_ pool: Handle<WorkerPool>, in records: Records) -> Bool {
        guard let cluster = records.cluster, pool == WorkerPool.web else { return false }
        return !cluster.value.book.isUncoordinated
    }

    /// Slots that may take flights of the cluster.
    static func freeSlots(in records: inout Records) -> Int {
        records.isDraining || records.workers.isAwaiting ? 0 : records.workers.slotCount(of: WorkerPool.web).free
    }

    /// Claims a queued flight.
    static func claim(_ flight: Handle<Flight>, now: Tick, in records: inout Records) {
        var principal = PrincipalTable.administrator
        // A result that is older than one of the requests does not answer it.
        let uselessResults = records.cluster?.value.uselessResults[flight]
        let isRepeated = records.flights[flight].attempts > 0 || uselessResults != nil
        var since = uselessResults?.receivedAt ?? (isRepeated ? now : .init(nanoseconds: .min))
        records.cluster?.value.uselessResults[flight]?.receivedAt = nil
        records.forEachInterest(of: flight) { records, interest in
            records.queue.remove(interest)
            principal = records.principal(of: interest)
            since = max(since, records.requests[interest].requestedAt)
        }
        if !records.flights.isAwaited(flight) { since = now }
        let want = want(of: flight, in: &records)
        guard !records.isDraining || want.lane == .shared else { return }
        let origin = records.origin(of: flight)
        records.quotas.transferStarted(by: principal)
        records.governor.claimed(1, at: origin)
        records.cluster?.value.charges[flight] = ClusterState.Charge(principal: principal, origin: origin)
        records.flights.enter(.claiming, flight)
        let local = records.local(flight)
        records.cluster?.value.book.claim(local, want, since: since, now: now)
    }

    /// Pool of the workers that read bodies of other nodes. They go on while this node drains.
    static func nodePool(in records: inout Records) -> Handle<WorkerPool>? {
        records.cluster == nil ? nil : records.pools.handle(of: BodyAddress.scheme, of: PrincipalTable.administrator)
    }

    /// Returns the claim of a queued flight that cannot start here now, since in the queue it could wait for claims at its
    /// origin that wait for this one. True if only other nodes wanted the flight, which then ends.
    static func returnClaim(of flight: Handle<Flight>, in records: inout Records) -> Bool {
        let isHosted = records.flights[flight].isHosted
        records.flights[flight].isHosted = false
        let local = records.local(flight)
        records.cluster?.value.book.drop(local)
        return isHosted && !records.flights.isAwaited(flight)
    }

    /// Whether a flight that is about to run has a claim. An attempt that lost its flight does not pass its claim on.
    static func hasClaim(_ flight: Handle<Flight>, in records: inout Records) -> Bool {
        let local = records.local(flight)
        records.cluster?.value.book.dropOvertaken(local)
        return records.cluster?.value.book.claims[local] != nil
    }

    /// Claims a flight that is about to run outside the order of the queue. False if it has a claim or needs none.
    static func mustClaim(_ flight: Handle<Flight>, now: Tick, in records: inout Records) -> Bool {
        guard records.cluster != nil, isCoordinated(records.pool(of: flight), in: records),
            !hasClaim(flight, in: &records)
        else { return false }
        claim(flight, now: now, in: &records)
        return true
    }

    /// Reports to the other nodes that an origin refused a request without credentials.
    private static func originRefused(_ flight: Handle<Flight>, retryAfter: RetryAfter?, in records: inout Records) {
        let scope = records.governor.scopes[records.flights[flight].scope]
        guard scope.scope.isShared, !records.isPulling(flight) else { return }
        let entry = records.governor.origins[scope.origin]
        let origin = engineOrigin(entry, in: &records)
        let milliseconds = Int(clamping: (retryAfter?.seconds ?? 0).multipliedReportingOverflow(by: 1_000).partialValue)
        records.cluster?.value.book.originRefused(
            EngineRefusal(origin: origin, requestedMilliseconds: max(0, milliseconds)))
    }

    /// Frees the room of an open claim in the quota of its principal and at its origin. Without effect for other flights.
    static func releaseCharge(of flight: Handle<Flight>, in records: inout Records) {
        guard let charge = records.cluster?.value.charges.removeValue(forKey: flight) else { return }
        if records.quotas.transferEnded(by: charge.principal) { records.queue.quotaOpened(charge.principal) }
        records.governor.claimed(-1, at: charge.origin)
        records.queue.originOpened(charge.origin)
    }

    /// Records that the attempt of a flight begins on this node.
    static func started(_ flight: Handle<Flight>, now: Tick, in records: inout Records) {
        releaseCharge(of: flight, in: &records)
        // Without a second reference to the state, whose tables the changes below would copy.
        guard !records.isPulling(flight), records.pool(of: flight) == WorkerPool.web, !hasClaim(flight, in: &records)
        else { return }
        let want = want(of: flight, in: &records)
        let token = FencingToken(
            FencingToken.uncoordinated.lowerBound + records.generator.next() % FencingToken.uncoordinated.upperBound)
        if records.cluster?.value.book.isMember == false { records.cluster?.value.counts.uncoordinated += 1 }
        let local = records.local(flight)
        records.cluster?.value.book.addRunningAttempt(local, want, token: token, now: now)
    }

    /// The want of a flight: shared if any node may fetch it.
    private static func want(of flight: Handle<Flight>, in records: inout Records) -> EngineWant {
        let scope = records.governor.scopes[records.flights[flight].scope]
        let entry = records.governor.origins[scope.origin]
        let origin = engineOrigin(entry, in: &records)
        let priority = records.priority(of: flight)
        if let shared = sharedRequest(of: flight, in: &records),
            let key = records.cluster?.value.services.flightKey(
                contentBytes(of: flight, in: &records) + shared.policyLine),
            records.cluster?.value.book.flight(of: key) == nil
        {
            return EngineWant(key: key, origin: origin, lane: .shared, priority: priority, record: shared.record)
        }
        let key = ClusterKey(broker: records.cluster?.value.services.broker ?? 0, flight: records.flights[flight].id)
        return EngineWant(
            key: key, origin: origin, lane: scope.scope.isShared ? .pinned : .credentialed, priority: priority)
    }

    /// Bytes of the flight's key and of all fields sent to the server, which nodes compare.
    private static func contentBytes(of flight: Handle<Flight>, in records: inout Records) -> [UInt8] {
        var bytes: [UInt8] = []
        for text in [
            records.flights[flight].mode.rawValue, records.flights[flight].url.description,
            records.flights[flight].variant,
        ] {
            // A text follows its length, so that different lists of texts never have the same bytes.
            bytes += "\(text.utf8.count) ".utf8
            bytes += text.utf8
        }
        return bytes + records.jobFields(of: flight).bytes
    }

    /// An origin and its terms by the rules of this node, as the engine gets them.
    private static func engineOrigin(_ entry: OriginEntry, in records: inout Records) -> EngineOrigin {
        EngineOrigin(
            key: key(of: entry, in: &records), limit: max(1, records.limits.origins.terms(for: entry).limit),
            spacingMilliseconds: Int(entry.spacingMilliseconds))
    }

    private static func key(of entry: OriginEntry, in records: inout Records) -> ClusterKey {
        guard let services = records.cluster?.value.services else { preconditionFailure("no cluster") }
        let key = services.originKey(entry.name)
        if records.cluster?.value.originNames[key] == nil {
            if records.cluster?.value.originNames.count ?? 0 >= ClusterState.mostOriginNames {
                records.cluster?.value.originNames.removeAll()
            }
            records.cluster?.value.originNames[key] = entry.name
        }
        return key
    }

    /// The request that other nodes may fetch for a flight; nil if the flight stays on this node.
    private static func sharedRequest(of flight: Handle<Flight>, in records: inout Records) -> SharedRequest? {
        let record = records.flights[flight]
        guard !record.isAlone, !record.isRevalidation, record.partition == nil, record.body == nil,
            records.flights[extras: flight].workerDeaths == 0, records.cachePlans[flight]?.storedVariant == nil,
            records.cluster?.value.uselessResults[flight]?.count ?? 0 < ClusterState.mostUselessResults
        else { return nil }
        return SharedRequest(
            record.request, timeoutMilliseconds: Int(record.timeoutMilliseconds),
            maxBytes: records.sizeLimit(of: flight), redirect: record.redirect, mode: record.mode,
            policy: records.workerLimits.addressPolicy,
            avoided: records.cluster?.value.uselessResults[flight]?.avoidedAddresses ?? [])
    }

    /// Raises the class of a claim for its newest request.
    static func promote(_ flight: Handle<Flight>, to priority: PriorityClass, in records: inout Records) {
        let local = records.local(flight)
        records.cluster?.value.book.promote(local, to: priority)
    }

    /// Asks the engine about the flight of a request whose reason was asked for, so that the next answer is right: whether
    /// another node fetches it.
    static func refresh(_ request: RequestID, _ key: HandlerKey, in records: inout Records) {
        guard records.cluster != nil, let handler = records.handlers.handle(of: key),
            let interest = records.listedInterest(request, of: handler), records.requests[interest].phase == .open
        else { return }
        let local = records.local(records.leaf(ofOpen: interest))
        records.cluster?.value.book.refresh(local)
    }

    /// Whether a flight without requests goes on for other nodes.
    static func goesOn(_ flight: Handle<Flight>, in records: inout Records) -> Bool {
        guard records.cluster != nil else { return false }
        let local = records.local(flight)
        guard records.cluster?.value.book.withdraw(local, now: records.clock) == .host else { return false }
        // Otherwise the outcome would be kept for a local request, and the other nodes would not get it.
        _ = records.flights.endDeferral(of: flight)
        records.flights[flight].isHosted = true
        return true
    }

    /// Withdraws this node's want of a flight that only other nodes still want. Otherwise the engine would not end it with
    /// their wants.
    static func leaveToOtherNodes(_ flight: Handle<Flight>, in records: inout Records) {
        guard !records.flights.isAwaited(flight), !records.flights[flight].isRevalidation else { return }
        let local = records.local(flight)
        _ = records.cluster?.value.book.withdraw(local, now: records.clock)
    }

    /// Records that an attempt is being cancelled.
    private static func cancelled(_ flight: Handle<Flight>, _ attempt: AttemptID, in records: inout Records) {
        records.flights[flight].isHosted = false
        let local = records.local(flight)
        records.cluster?.value.book.cancelled(local, attempt)
    }

    /// Ends everything that the cluster has for a flight that is forgotten.
    private static func flightEnded(_ flight: Handle<Flight>, in records: inout Records) {
        releaseCharge(of: flight, in: &records)
        records.flights[flight].isHosted = false
        let local = records.local(flight)
        records.cluster?.value.book.drop(local)
        records.cluster?.value.uselessResults[flight] = nil
        records.cluster?.value.foreignPolicies[flight] = nil
        records.cluster?.value.pulls[flight] = nil
    }

    // MARK: Flights of other nodes

    /// The request of an attempt for other nodes; nil if it cannot start here.
    static func hostedRequest(
        _ key: ClusterKey, _ token: FencingToken, _ record: [UInt8], now: Tick, in records: inout Records
    ) -> SharedRequest? {
        // A second grant of a key is nonsense, and so is one for others of a flight that stays here. Neither may trap.
        guard let shared = SharedRequest(record: record), freeSlots(in: &records) > 0,
            records.cluster?.value.book.flight(of: key) == nil,
            records.cluster.map({ !key.stays(on: $0.value.services.broker) }) == true
        else {
            records.cluster?.value.book.release(key, token)
            return nil
        }
        guard !shared.avoidedAddresses.contains(records.cluster?.value.services.address ?? "") else {
            records.cluster?.value.book.release(key, token)
            records.cluster?.value.health.isAvoided(now: now)
            return nil
        }
        records.cluster?.value.counts.granted += 1
        records.cluster?.value.counts.hosted += 1
        return shared
    }

    /// Takes the claim of an attempt for other nodes, which starts next.
    static func host(
        _ flight: Handle<Flight>, _ shared: SharedRequest, _ key: ClusterKey, _ token: FencingToken, _ record: [UInt8],
        _ priority: PriorityClass, now: Tick, in records: inout Records
    ) {
        records.flights[flight].isHosted = true
        records.flights[flight].timeoutMilliseconds = max(
            records.flights[flight].timeoutMilliseconds, UInt32(clamping: shared.timeoutMilliseconds))
        let entry = records.governor.origins[records.origin(of: flight)]
        let origin = engineOrigin(entry, in: &records)
        let want = EngineWant(key: key, origin: origin, lane: .shared, priority: priority, record: record)
        let local = records.local(flight)
        records.cluster?.value.book.host(local, want, token: token, maxBytes: shared.maxBytes, now: now)
    }

    /// The scope of an origin whose cool-down another node, or this one, has reported, and the rest of the cool-down; nil
    /// if the origin is not known.
    static func coolDown(
        _ notice: CoolDownNotice, in records: inout Records
    ) -> (scope: Handle<OriginScope>, rest: RetryAfter)? {
        guard notice.remainingMilliseconds > 0, let name = records.cluster?.value.originNames[notice.origin],
            let url = try? FetchURL("\(name)/"),
            let origin = records.governor.origin(
                of: url, in: WorkerPool.web, hash: UInt32(truncatingIfNeeded: url.originHash)),
            let scope = records.governor.origins[origin].sharedScope
        else { return nil }
        let rest = min(notice.remainingMilliseconds, EngineLimits.intervalMilliseconds.upperBound)
        return (scope, RetryAfter(seconds: Int64((rest + 999) / 1_000)))
    }

    /// Drops an open claim that cannot start for now, since it would fill the window.
    static func dropClaim(of flight: Handle<Flight>, in records: inout Records) {
        let local = records.local(flight)
        records.cluster?.value.book.drop(local)
        releaseCharge(of: flight, in: &records)
    }

    // MARK: Events of flights

    /// Observes an event of a flight.
    @inline(never)
    static func observe(_ event: FlightEvent, in records: inout Records) {
        switch event {
        case .refused(let flight, let retryAfter): originRefused(flight, retryAfter: retryAfter, in: &records)
        case .redirected(let flight, let response): publish(flight, withoutBody: response, in: &records)
        case .concluded(let flight, let outcome, let allowed):
            publish(flight, outcome, allowed: allowed, in: &records)
        case .withheld(let flight): withhold(flight, in: &records)
        case .cancelled(let flight, let attempt): cancelled(flight, attempt, in: &records)
        case .attemptEnded(let attempt): records.cluster?.value.book.attemptEnded(attempt)
        case .left(let flight): flightEnded(flight, in: &records)
        }
    }
}

/// Checks of a node of a cluster, for tests and simulations.
extension Cluster {
    /// Returns a sentence for each violated invariant. Linear in flights, claims and held bodies.
    static func checkInvariants(in records: Records) -> [String] {
        guard let state = records.cluster?.value else { return [] }
        var faults = state.book.checkInvariants() + state.heldResults.checkInvariants()
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for flight in records.flights.indices {
            let record = records.flights[flight]
            let claim = records.claim(of: flight)
            check(
                (record.phase == .claiming) == (claim?.isOpen == true),
                "3: flight \(record.id) is \(record.phase), and its claim is \(String(describing: claim?.phase))")
            check(
                (record.phase == .claiming) == (state.charges[flight] != nil),
                "11: flight \(record.id) is \(record.phase) and has a wrong charge")
            check(
                !record.isHosted || claim?.isHosted == true, "4: flight \(record.id) serves other nodes without a claim"
            )
            switch record.phase {
            case .backingOff, .following, .ended:
                check(claim == nil, "9: flight \(record.id) is \(record.phase) and has a claim")
            case .asking, .queued, .claiming, .running: break
            }
        }
        for (local, claim) in state.book.claims {
            let flight = records.flights.handle(of: local.name)
            check(flight != nil, "12: \(local) has ended, and its claim is \(claim.phase)")
        }
        for (flight, pull) in state.pulls {
            check(records.flights.contains(flight), "12: the body \(pull.place) is read for no flight")
            guard records.flights.contains(flight) else { continue }
            check(
                records.pools[records.pool(of: flight)].scheme == BodyAddress.scheme,
                "14: flight \(records.flights[flight].id) reads from another node in a wrong pool")
        }
        check(
            state.uselessResults.keys.allSatisfy { records.flights.contains($0) }, "12: a useless result has no flight")
        check(
            state.foreignPolicies.keys.allSatisfy { records.flights.contains($0) }, "12: a foreign policy has no flight"
        )
        check(
            state.heldResults.outcomes.allSatisfy { records.outcomes.contains($0) }, "12: a held outcome does not exist"
        )
        for origin in records.governor.origins.indices {
            let claims = state.charges.values.count { $0.origin == origin }
            check(
                Int(records.governor.origins[origin].claims) == claims, "11: an origin counts a wrong number of claims")
        }
        return faults
    }
}
