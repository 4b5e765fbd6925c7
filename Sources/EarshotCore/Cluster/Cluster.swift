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
    static func engineEventReceived(
        _ event: EngineEvent, now: MonotonicTime, in records: inout Records
    ) -> [ClusterEffect] {
        switch event {
        case .joined(let node, _):
            records.clusterState?.value.node = node
            records.clusterState?.value.engineFault = nil
        case .left(let fault):
            if records.clusterState?.value.book.isMember == true {
                records.clusterState?.value.counts.membershipLosses += 1
            }
            records.clusterState?.value.engineFault = fault
            records.clusterState?.value.warnings = []
        case .warning(let warning):
            if records.clusterState?.value.warnings.contains(warning) == false {
                records.clusterState?.value.warnings.append(warning)
            }
        case .remedied(let warning): records.clusterState?.value.warnings.removeAll { $0 == warning }
        case .surveyed(let survey): records.clusterState?.value.health.surveyReceived(survey.members, now: now)
        default: break
        }
        return records.clusterState?.value.book.engineEventReceived(event, now: now) ?? []
    }

    /// Calls to the engine after the events of a pass.
    static func takeEngineCalls(now: MonotonicTime, in records: inout Records) -> [EngineCall] {
        guard records.clusterState != nil, !awaitsFormerAttempts(in: records) else { return [] }
        let free = freeSlots(in: &records)
        let hosting = records.clusterState?.value.health.permittedHosting(now: now) ?? .all
        let leavesFlights =
            !records.limits.acceptsNewRequests
            || hosting == .none && records.clusterState?.value.health.leavesFlightsToOtherNodes == true
        let calls =
            records.clusterState?.value.book.takeEngineCalls(
                freeSlots: free, leavesFlights: leavesFlights, hosting: hosting, now: now) ?? []
        if hosting == .singleTrial, calls.contains(where: \.servesOtherNodes) {
            records.clusterState?.value.health.hostingTrialBegan(now: now)
        }
        return calls
    }

    /// Next time at which the cluster needs a call of `timePassed`; nil for none.
    @inline(__always)
    static func nextDeadline(in records: Records) -> MonotonicTime? {
        guard let cluster = records.clusterState else { return nil }
        let state = cluster.value
        let isWaiting = state.book.isMember && (state.isEngineBusy || awaitsFormerAttempts(in: records))
        return [isWaiting ? nil : state.book.deadline, state.heldResults.deadline].compactMap(\.self).min()
    }

    /// Whether workers may still run attempts of an earlier process of this node. Its membership, which counts them,
    /// ends after them. All other calls wait with its end.
    @inline(__always)
    private static func awaitsFormerAttempts(in records: Records) -> Bool {
        records.clusterState?.value.book.predecessor != nil && records.workers.isAwaitingEarlierProcesses
    }

    /// Releases bodies that other nodes had time to read, and returns the effects of the time on flights.
    static func timePassed(now: MonotonicTime, in records: inout Records) -> [ClusterEffect] {
        for outcome in records.clusterState?.value.heldResults.expire(
            now: now, most: records.limits.maximumTimersPerPass) ?? []
        {
            records.releaseOutcome(outcome)
        }
        return records.clusterState?.value.book.timePassed(now: now) ?? []
    }

    // MARK: Claims

    /// Whether the engine decides about starts in a pool now.
    @inline(__always)
    static func isCoordinated(_ pool: Handle<WorkerPool>, in records: Records) -> Bool {
        guard let cluster = records.clusterState, pool == WorkerPool.webPoolHandle else { return false }
        return !cluster.value.book.isUncoordinated
    }

    /// Slots that may take flights of the cluster.
    static func freeSlots(in records: inout Records) -> Int {
        records.isDraining || records.workers.isAwaitingEarlierProcesses
            ? 0 : records.workers.slotCount(of: WorkerPool.webPoolHandle).freeSlots
    }

    /// Claims a queued flight.
    static func claimFlight(_ flight: Handle<Flight>, now: MonotonicTime, in records: inout Records) {
        var principal = PrincipalTable.administrator
        // A result that is older than one of the requests does not answer it.
        let uselessResults = records.clusterState?.value.uselessResults[flight]
        let isRepeated = records.flights[flight].assignedAttemptCount > 0 || uselessResults != nil
        var since = uselessResults?.receivedAt ?? (isRepeated ? now : .init(nanoseconds: .min))
        records.clusterState?.value.uselessResults[flight]?.receivedAt = nil
        var hasAge = false
        records.forEachInterest(of: flight) { records, interest in
            records.queue.remove(interest)
            principal = records.principal(of: interest)
            let created = creationTime(of: interest, in: records)
            since = max(since, created)
            hasAge = hasAge || created < records.requests[interest].requestedAt
        }
        if !records.flights.isAwaitedByRequest(flight) { since = now }
        let want = want(of: flight, in: &records)
        guard !records.isDraining || want.lane == .shared else { return }
        let origin = records.origin(of: flight)
        records.quotaUse.transferStarted(by: principal)
        records.originGovernor.countOpenClaims(1, at: origin)
        records.clusterState?.value.quotaCharges[flight] = ClusterState.Charge(principal: principal, origin: origin)
        records.flights.enterPhase(.claiming, flight)
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.addClaim(local, want, since: since, hasAge: hasAge, now: now)
    }

    /// Time at which the program made a request, by the age that its client has stated.
    private static func creationTime(of interest: Handle<Interest>, in records: borrowing Records) -> MonotonicTime {
        let request = records.requests[interest]
        guard let number = request.rareOptions else { return request.requestedAt }
        return request.requestedAt.advanced(byMilliseconds: -records.requests[number].ageMilliseconds)
    }

    /// A request has joined a claiming flight. What ended before the program made it does not answer it.
    static func requestJoined(_ flight: Handle<Flight>, _ interest: Handle<Interest>, in records: inout Records) {
        let local = records.localFlightName(flight)
        let time = creationTime(of: interest, in: records)
        records.clusterState?.value.book.requestJoined(local, madeAt: time)
        promote(flight, to: records.requests[interest].priority, in: &records)
    }

    /// Pool of the workers that read bodies of other nodes. They go on while this node drains.
    static func nodePool(in records: inout Records) -> Handle<WorkerPool>? {
        records.clusterState == nil
            ? nil : records.workerPools.handle(of: BodyAddress.scheme, of: PrincipalTable.administrator)
    }

    /// Returns the claim of a queued flight that cannot start here now, since in the queue it could wait for claims at
    /// its origin that wait for this one. True if only other nodes wanted the flight, which then ends.
    static func returnClaim(of flight: Handle<Flight>, in records: inout Records) -> Bool {
        let isHosted = records.flights[flight].isAwaitedByOtherNodes
        records.flights[flight].isAwaitedByOtherNodes = false
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.removeClaim(of: local)
        return isHosted && !records.flights.isAwaitedByRequest(flight)
    }

    /// Whether a flight that is about to run has a claim. An attempt that lost its flight does not pass its claim on.
    static func hasClaim(_ flight: Handle<Flight>, in records: inout Records) -> Bool {
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.removeOvertakenClaim(of: local)
        return records.clusterState?.value.book.claims[local] != nil
    }

    /// Claims a flight that is about to run outside the order of the queue. False if it has a claim or needs none.
    static func mustClaim(_ flight: Handle<Flight>, now: MonotonicTime, in records: inout Records) -> Bool {
        guard records.clusterState != nil, isCoordinated(records.pool(of: flight), in: records),
            !hasClaim(flight, in: &records)
        else { return false }
        claimFlight(flight, now: now, in: &records)
        return true
    }

    /// Reports to the other nodes that an origin refused a request without credentials.
    private static func originRefused(_ flight: Handle<Flight>, retryAfter: RetryAfter?, in records: inout Records) {
        let scope = records.originGovernor.scopes[records.flights[flight].originScope]
        guard scope.trustScope.isCredentialFree, !records.isReadingBodyFromNode(flight) else { return }
        let entry = records.originGovernor.origins[scope.origin]
        let origin = engineOrigin(entry, in: &records)
        let milliseconds = Int(clamping: (retryAfter?.seconds ?? 0).multipliedReportingOverflow(by: 1_000).partialValue)
        records.clusterState?.value.book.reportOriginRefusal(
            EngineRefusal(origin: origin, requestedMilliseconds: max(0, milliseconds)))
    }

    /// Frees the room of an open claim in the quota of its principal and at its origin. Without effect for other
    /// flights.
    static func releaseCharge(of flight: Handle<Flight>, in records: inout Records) {
        guard let charge = records.clusterState?.value.quotaCharges.removeValue(forKey: flight) else { return }
        if records.quotaUse.transferEnded(by: charge.principal) {
            records.queue.unparkLanes(ofPrincipal: charge.principal)
        }
        records.originGovernor.countOpenClaims(-1, at: charge.origin)
        records.queue.unparkLanes(ofOrigin: charge.origin)
    }

    /// Records that the attempt of a flight begins on this node.
    static func attemptStarted(_ flight: Handle<Flight>, now: MonotonicTime, in records: inout Records) {
        releaseCharge(of: flight, in: &records)
        // Without a second reference to the state, whose tables the changes below would copy.
        guard !records.isReadingBodyFromNode(flight), records.pool(of: flight) == WorkerPool.webPoolHandle,
            !hasClaim(flight, in: &records)
        else { return }
        let want = want(of: flight, in: &records)
        let random = records.randomGenerator.next() % FencingToken.uncoordinated.upperBound
        let token = FencingToken(FencingToken.uncoordinated.lowerBound + random)
        if records.clusterState?.value.book.isMember == false {
            records.clusterState?.value.counts.uncoordinatedAttempts += 1
        }
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.addRunningAttempt(local, want, token: token, now: now)
    }

    /// The want of a flight: shared if any node may fetch it.
    private static func want(of flight: Handle<Flight>, in records: inout Records) -> EngineWant {
        let scope = records.originGovernor.scopes[records.flights[flight].originScope]
        let entry = records.originGovernor.origins[scope.origin]
        let origin = engineOrigin(entry, in: &records)
        let priority = records.highestPriority(of: flight)
        if let shared = sharedRequest(of: flight, in: &records),
            let key = records.clusterState?.value.services.flightKey(
                sharedKeyBytes(of: flight, in: &records) + shared.addressPolicyLine),
            records.clusterState?.value.book.flight(of: key) == nil
        {
            return EngineWant(key: key, origin: origin, lane: .shared, priority: priority, record: shared.encodedRecord)
        }
        let key = ClusterKey(
            broker: records.clusterState?.value.services.brokerNonce ?? 0, flight: records.flights[flight].id)
        return EngineWant(
            key: key, origin: origin, lane: scope.trustScope.isCredentialFree ? .pinned : .credentialed,
            priority: priority)
    }

    /// Bytes of the flight's key and of all fields sent to the server, which nodes compare.
    private static func sharedKeyBytes(of flight: Handle<Flight>, in records: inout Records) -> [UInt8] {
        var bytes: [UInt8] = []
        for text in [
            records.flights[flight].cacheMode.rawValue, records.flights[flight].url.description,
            records.flights[flight].variant,
        ] {
            // A text follows its length, so that different lists of texts never have the same bytes.
            bytes += "\(text.utf8.count) ".utf8
            bytes += text.utf8
        }
        return bytes + records.jobHeaderFields(of: flight).bytes
    }

    /// An origin and its terms by the rules of this node, as the engine gets them.
    private static func engineOrigin(_ entry: OriginEntry, in records: inout Records) -> EngineOrigin {
        EngineOrigin(
            key: clusterKey(of: entry, in: &records), limit: max(1, records.limits.originRules.terms(for: entry).limit),
            spacingMilliseconds: Int(entry.spacingMilliseconds))
    }

    private static func clusterKey(of entry: OriginEntry, in records: inout Records) -> ClusterKey {
        guard let services = records.clusterState?.value.services else { preconditionFailure("no cluster") }
        let key = services.originKey(entry.name)
        if records.clusterState?.value.originNames[key] == nil {
            if records.clusterState?.value.originNames.count ?? 0 >= ClusterState.maximumOriginNames {
                records.clusterState?.value.originNames.removeAll()
            }
            records.clusterState?.value.originNames[key] = entry.name
        }
        return key
    }

    /// The request that other nodes may fetch for a flight; nil if the flight stays on this node.
    private static func sharedRequest(of flight: Handle<Flight>, in records: inout Records) -> SharedRequest? {
        let record = records.flights[flight]
        guard !record.servesSingleRequest, !record.isRevalidation, record.partition == nil, record.body == nil,
            records.flights[redirectsAndFailuresOf: flight].workerDeaths == 0,
            records.cachePlans[flight]?.storedVariant == nil,
            records.clusterState?.value.uselessResults[flight]?.count ?? 0 < ClusterState.maximumUselessResults
        else { return nil }
        return SharedRequest(
            record.request, timeoutMilliseconds: Int(record.timeoutMilliseconds),
            maximumBodyBytes: records.largestAllowedBodyBytes(of: flight), redirect: record.redirect,
            mode: record.cacheMode,
            policy: records.workerLimits.addressPolicy,
            avoided: records.clusterState?.value.uselessResults[flight]?.avoidedAddresses ?? [])
    }

    /// Raises the class of a claim for its newest request.
    static func promote(_ flight: Handle<Flight>, to priority: PriorityClass, in records: inout Records) {
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.promote(local, to: priority)
    }

    /// Requests the state of a flight from the engine after a query for the reason of its request. The next answer then
    /// shows whether another node fetches it.
    static func refreshClaim(of request: RequestID, _ key: HandlerKey, in records: inout Records) {
        guard records.clusterState != nil, let handler = records.handlers.handle(of: key),
            let interest = records.interestHoldingID(request, of: handler), records.requests[interest].phase == .open
        else { return }
        let local = records.localFlightName(records.lastRedirectedFlight(ofOpen: interest))
        records.clusterState?.value.book.refreshClaim(of: local)
    }

    /// Whether a flight without requests goes on for other nodes.
    static func continuesForOtherNodes(_ flight: Handle<Flight>, in records: inout Records) -> Bool {
        guard records.clusterState != nil else { return false }
        let local = records.localFlightName(flight)
        guard records.clusterState?.value.book.withdrawFlight(local, now: records.latestEventTime) == .continueHosting
        else { return false }
        // Otherwise the outcome would be kept for a local request, and the other nodes would not get it.
        _ = records.flights.endDeferral(of: flight)
        records.flights[flight].isAwaitedByOtherNodes = true
        return true
    }

    /// Withdraws this node's want of a flight that only other nodes still want. Otherwise the engine would not end it
    /// with their wants.
    static func leaveToOtherNodes(_ flight: Handle<Flight>, in records: inout Records) {
        guard !records.flights.isAwaitedByRequest(flight), !records.flights[flight].isRevalidation else { return }
        let local = records.localFlightName(flight)
        _ = records.clusterState?.value.book.withdrawFlight(local, now: records.latestEventTime)
    }

    /// Records that an attempt is being cancelled.
    private static func attemptCancelled(_ flight: Handle<Flight>, _ attempt: AttemptID, in records: inout Records) {
        records.flights[flight].isAwaitedByOtherNodes = false
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.attemptCancelled(local, attempt)
    }

    /// Ends everything that the cluster has for a flight that is forgotten.
    private static func flightEnded(_ flight: Handle<Flight>, in records: inout Records) {
        releaseCharge(of: flight, in: &records)
        records.flights[flight].isAwaitedByOtherNodes = false
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.removeClaim(of: local)
        records.clusterState?.value.uselessResults[flight] = nil
        records.clusterState?.value.hostedAddressPolicies[flight] = nil
        records.clusterState?.value.pulls[flight] = nil
    }

    // MARK: Flights of other nodes

    /// The request of an attempt for other nodes; nil if it cannot start here.
    static func hostedRequest(
        _ key: ClusterKey, _ token: FencingToken, _ record: [UInt8], now: MonotonicTime, in records: inout Records
    ) -> SharedRequest? {
        // A second grant of a key is nonsense, and so is one for others of a flight that stays here. Neither may trap.
        guard let shared = SharedRequest(record: record), freeSlots(in: &records) > 0,
            records.clusterState?.value.book.flight(of: key) == nil,
            records.clusterState.map({ !key.isPinned(to: $0.value.services.brokerNonce) }) == true
        else {
            records.clusterState?.value.book.releaseGrant(key, token)
            return nil
        }
        guard !shared.avoidedAddresses.contains(records.clusterState?.value.services.address ?? "") else {
            records.clusterState?.value.book.releaseGrant(key, token)
            records.clusterState?.value.health.peerRefusesOwnBodies(now: now)
            return nil
        }
        records.clusterState?.value.counts.grantedFlights += 1
        records.clusterState?.value.counts.hostedFlights += 1
        return shared
    }

    /// Takes the claim of an attempt for other nodes, which starts next.
    static func claimHostedAttempt(
        _ flight: Handle<Flight>, _ shared: SharedRequest, _ key: ClusterKey, _ token: FencingToken, _ record: [UInt8],
        _ priority: PriorityClass, now: MonotonicTime, in records: inout Records
    ) {
        records.flights[flight].isAwaitedByOtherNodes = true
        records.flights[flight].timeoutMilliseconds = max(
            records.flights[flight].timeoutMilliseconds, UInt32(clamping: shared.timeoutMilliseconds))
        let entry = records.originGovernor.origins[records.origin(of: flight)]
        let origin = engineOrigin(entry, in: &records)
        let want = EngineWant(key: key, origin: origin, lane: .shared, priority: priority, record: record)
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.addHostedClaim(
            local, want, token: token, maximumBodyBytes: shared.maximumBodyBytes, now: now)
    }

    /// The scope of an origin whose cool-down another node, or this one, has reported, and the rest of the cool-down;
    /// nil if the origin is not known.
    static func reportedCoolDown(
        _ notice: CoolDownNotice, in records: inout Records
    ) -> (scope: Handle<OriginScope>, rest: RetryAfter)? {
        guard notice.remainingMilliseconds > 0, let name = records.clusterState?.value.originNames[notice.origin],
            let url = try? FetchURL("\(name)/"),
            let origin = records.originGovernor.origin(
                of: url, in: WorkerPool.webPoolHandle, hash: UInt32(truncatingIfNeeded: url.originHash)),
            let scope = records.originGovernor.origins[origin].sharedScope
        else { return nil }
        let rest = min(notice.remainingMilliseconds, EngineLimits.intervalRangeMilliseconds.upperBound)
        return (scope, RetryAfter(seconds: Int64((rest + 999) / 1_000)))
    }

    /// Drops an open claim that cannot start for now, since it would fill the window.
    static func removeClaim(of flight: Handle<Flight>, in records: inout Records) {
        let local = records.localFlightName(flight)
        records.clusterState?.value.book.removeClaim(of: local)
        releaseCharge(of: flight, in: &records)
    }

    // MARK: Events of flights

    /// Observes an event of a flight.
    @inline(never)
    static func observeFlightEvent(_ event: FlightEvent, in records: inout Records) {
        switch event {
        case .originRefused(let flight, let retryAfter): originRefused(flight, retryAfter: retryAfter, in: &records)
        case .redirected(let flight, let response): publishResult(of: flight, withoutBody: response, in: &records)
        case .attemptConcluded(let flight, let outcome, let allowed):
            publishResult(of: flight, outcome, allowed: allowed, in: &records)
        case .responseWithheld(let flight): withholdResult(of: flight, in: &records)
        case .attemptCancelled(let flight, let attempt): attemptCancelled(flight, attempt, in: &records)
        case .attemptEnded(let attempt): records.clusterState?.value.book.attemptEnded(attempt)
        case .flightUnneeded(let flight): flightEnded(flight, in: &records)
        }
    }
}

/// Checks of a node of a cluster, for tests and simulations.
extension Cluster {
    /// Returns a sentence for each violated invariant. Linear in flights, claims and held bodies.
    static func checkInvariants(in records: Records) -> [String] {
        guard let state = records.clusterState?.value else { return [] }
        var faults = state.book.checkInvariants() + state.heldResults.checkInvariants()
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for flight in records.flights.indices {
            let record = records.flights[flight]
            let claim = records.clusterClaim(of: flight)
            check(
                (record.phase == .claiming) == (claim?.isOpen == true),
                "3: flight \(record.id) is \(record.phase), and its claim is \(String(describing: claim?.phase))")
            check(
                (record.phase == .claiming) == (state.quotaCharges[flight] != nil),
                "11: flight \(record.id) is \(record.phase) and has a wrong charge")
            check(
                !record.isAwaitedByOtherNodes || claim?.isHosted == true,
                "4: flight \(record.id) serves other nodes without a claim")
            switch record.phase {
            case .backingOff, .following, .ended:
                check(claim == nil, "9: flight \(record.id) is \(record.phase) and has a claim")
            case .lookingUp, .queued, .claiming, .running: break
            }
        }
        for (local, claim) in state.book.claims {
            let flight = records.flights.handle(of: local.name)
            check(flight != nil, "12: \(local) has ended, and its claim is \(claim.phase)")
        }
        for (flight, pull) in state.pulls {
            check(records.flights.contains(flight), "12: the body \(pull.bodyAddress) is read for no flight")
            guard records.flights.contains(flight) else { continue }
            check(
                records.workerPools[records.pool(of: flight)].scheme == BodyAddress.scheme,
                "14: flight \(records.flights[flight].id) reads from another node in a wrong pool")
        }
        check(
            state.uselessResults.keys.allSatisfy { records.flights.contains($0) }, "12: a useless result has no flight")
        check(
            state.hostedAddressPolicies.keys.allSatisfy { records.flights.contains($0) },
            "12: a foreign policy has no flight")
        check(
            state.heldResults.outcomes.allSatisfy { records.outcomes.contains($0) },
            "12: a held outcome does not exist")
        for origin in records.originGovernor.origins.indices {
            let claims = state.quotaCharges.values.count { $0.origin == origin }
            check(
                Int(records.originGovernor.origins[origin].openClaimCount) == claims,
                "11: an origin counts a wrong number of claims")
        }
        return faults
    }
}
