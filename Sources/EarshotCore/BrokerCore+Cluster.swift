internal import EarshotHTTP
internal import EarshotWire

/// Events of the engine of a cluster and their effects on flights, and events of flights for the cluster. `Cluster`
/// decides. A broker without a cluster only makes a comparison with nil.
extension BrokerCore {
    // MARK: Events of the engine

    /// Handles an event of the engine.
    public mutating func engineEventReceived(_ event: EngineEvent, now: MonotonicTime) {
        guard records.clusterState != nil else { return }
        records.latestEventTime = now
        executeEffects(Cluster.engineEventReceived(event, now: now, in: &records), now: now)
    }

    /// Removes and returns the calls to the engine after the events of a pass.
    public mutating func takeEngineCalls(now: MonotonicTime) -> [EngineCall] {
        Cluster.takeEngineCalls(now: now, in: &records)
    }

    /// Returns the number of members among which limits are divided, once after each start of the mode without the
    /// engine; otherwise nil.
    public mutating func takeUncoordinatedMemberCount() -> Int? {
        guard records.clusterState?.value.isUncoordinatedStartUnreported == true else { return nil }
        records.clusterState?.value.isUncoordinatedStartUnreported = false
        return records.clusterState?.value.book.memberCount.limitDivisor
    }

    /// Records whether the shell awaits answers of the engine. The shell takes new calls after the last answer.
    public mutating func setEngineBusy(_ isBusy: Bool) {
        if records.clusterState != nil, records.clusterState?.value.isEngineBusy != isBusy {
            records.clusterState?.value.isEngineBusy = isBusy
        }
    }

    /// Removes and returns the lines for the log.
    public mutating func takeClusterNotices() -> [ClusterNotice] {
        records.clusterState?.value.health.takeNotices() ?? []
    }

    /// Addresses of other nodes whose bodies cannot be read at present. The shell reports them to all nodes.
    public var unreadableNodes: Set<String> { records.clusterState?.value.health.unreadableAddresses ?? [] }

    /// Removes and returns addresses of other nodes that the shell must try to connect to.
    public mutating func takeClusterProbes() -> [String] { records.clusterState?.value.health.takeDueProbes() ?? [] }

    /// Handles the end of an attempt to connect to the address of another node.
    ///
    /// - Parameter failure: reason of the failure; nil if the connection succeeded.
    public mutating func clusterProbeEnded(_ address: String, failure: String?, now: MonotonicTime) {
        records.clusterState?.value.health.probeEnded(address, failure: failure, now: now)
    }

    /// Sets the digests of this node's settings, with which those of the others are compared.
    public mutating func clusterSettingsChanged(_ text: String) {
        records.clusterState?.value.health.settingsChanged(to: text)
    }

    // MARK: Effects

    mutating func executeEffects(_ effects: [ClusterEffect], now: MonotonicTime) {
        for effect in effects { executeEffect(effect, now: now) }
    }

    private mutating func executeEffect(_ effect: ClusterEffect, now: MonotonicTime) {
        switch effect {
        case .startFlight(let local):
            records.clusterState?.value.counts.grantedFlights += 1
            guard let flight = claimingFlight(local) else { return }
            records.flights[flight].isAwaitedByOtherNodes = records.clusterClaim(of: flight)?.isHosted ?? false
            if Cluster.freeSlots(in: &records) > 0, !records.flights[flight].isSuspectedOfWorkerDeath {
                startFlight(flight, now: now)
            } else {
                // Its worker died meanwhile, or it runs alone. The flight keeps its grant.
                enqueueFlight(flight, first: true)
            }
        case .flightHosted(let local):
            guard let flight = records.flights.handle(of: local.name) else { return }
            records.flights[flight].isAwaitedByOtherNodes = records.clusterClaim(of: flight)?.isHosted ?? false
        case .hostAttempt(let key, let token, let record, let priority):
            startHostedAttempt(key, token, record, priority, now: now)
        case .resultReceived(let local, let result):
            if let flight = claimingFlight(local) { useNodeResult(result, for: flight, now: now) }
        case .abortAttempt(let local):
            guard let flight = records.flights.handle(of: local.name) else { return }
            records.flights[flight].isAwaitedByOtherNodes = false
            endFlightIfUnwanted(flight)
        case .requeueFlight(let local):
            if let flight = claimingFlight(local) { enqueueFlight(flight, first: true) }
        case .coolDown(let notice):
            guard let (scope, rest) = Cluster.reportedCoolDown(notice, in: &records) else { return }
            Origins.beginCoolDown(scope, retryAfter: rest, now: now, in: &records)
            for flight in records.clusterState?.value.quotaCharges.keys.sorted() ?? []
            where records.flights[flight].originScope == scope {
                Cluster.removeClaim(of: flight, in: &records)
                enqueueFlight(flight, first: true)
            }
        case .coordinationChanged(let isCoordinated):
            records.clusterState?.value.isUncoordinatedStartUnreported = !isCoordinated
            Origins.applyRules(now: now, in: &records)
        }
    }

    /// Releases the charge of a claim and returns its flight, without its doomed requests; nil if the flight has ended
    /// or no longer claims.
    private mutating func claimingFlight(_ local: LocalFlight) -> Handle<Flight>? {
        guard let flight = liveFlight(local.name) else { return nil }
        Cluster.releaseCharge(of: flight, in: &records)
        return records.flights[flight].phase == .claiming ? flight : nil
    }

    /// Starts an attempt for other nodes.
    private mutating func startHostedAttempt(
        _ key: ClusterKey, _ token: FencingToken, _ record: [UInt8], _ priority: PriorityClass, now: MonotonicTime
    ) {
        guard let shared = Cluster.hostedRequest(key, token, record, now: now, in: &records) else { return }
        let flight = flightToHost(for: shared)
        records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
        Cluster.claimHostedAttempt(flight, shared, key, token, record, priority, now: now, in: &records)
        if records.flights[flight].phase == .queued { startFlight(flight, now: now) }
    }

    /// Returns the queued flight of local requests for the same content, or else a new one.
    private mutating func flightToHost(for shared: SharedRequest) -> Handle<Flight> {
        let request = shared.httpRequest
        let key = FlightKey(request, redirect: shared.redirectMode, partition: nil, alone: nil, mode: shared.cacheMode)
        // Neither local requests nor the cache of this node may share a flight with another address policy.
        let isForeign = shared.addressPolicy != records.workerLimits.addressPolicy
        if !isForeign, let name = records.flights.handle(of: key).map({ records.flights.name(of: $0) }),
            let flight = liveFlight(name), records.flights[flight].phase == .queued,
            !records.flights[flight].isSuspectedOfWorkerDeath,
            records.flights[flight].headerFields == request.fields, records.clusterClaim(of: flight) == nil,
            !records.isReadingBodyFromNode(flight)
        {
            return flight
        }
        let servesSingleRequest = isForeign || records.flights.handle(of: key) != nil
        let ownKey =
            servesSingleRequest
            ? FlightKey(
                request, redirect: shared.redirectMode, partition: nil, alone: records.flights.nextID,
                mode: shared.cacheMode)
            : key
        let scope = Origins.originScope(of: request, for: WorkerPool.webPoolHandle, in: &records)
        let flight = Flights.beginFlight(
            request, redirect: shared.redirectMode, partition: nil, ownKey, scope: scope,
            servesSingleRequest: servesSingleRequest, body: nil,
            in: &records)
        records.countRequestHead(
            of: request, for: .flight(flight), of: RequestHeads.noClientID, by: PrincipalTable.administrator)
        Cache.lookUpNewFlight(flight, request, in: &records)
        if isForeign { records.clusterState?.value.hostedAddressPolicies[flight] = shared.addressPolicy }
        return flight
    }

    // MARK: Starts

    /// Claims queued flights in the order of the queue, as far as the window permits.
    mutating func claimQueuedFlights(now: MonotonicTime) {
        let slots = records.workers.slotCount(of: WorkerPool.webPoolHandle)
        if slots.totalSlots > 0 { records.clusterState?.value.book.slotCount = slots.totalSlots }
        var refusals = 0
        while records.clusterState?.value.book.hasRoomForClaim == true,
            let flight = nextFlightToStart(
                in: WorkerPool.webPoolHandle, isForHigh: false, isClaiming: true, &refusals, now: now)
        {
            guard Cluster.hasClaim(flight, in: &records) else {
                Cluster.claimFlight(flight, now: now, in: &records)
                continue
            }
            // It starts when a slot is free, before other flights.
            guard Cluster.freeSlots(in: &records) > 0 else {
                requeueInterests(of: flight)
                return
            }
            startFlight(flight, now: now)
        }
    }

    /// While this node drains, claims queued flights that other nodes can fetch, and reads the bodies of their results.
    /// Its own flights leave the queue, and its successor gets their requests.
    mutating func handOverFlights(now: MonotonicTime) {
        guard records.clusterState != nil else { return }
        while !records.workerPools[WorkerPool.webPoolHandle].flightsWithLostWorker.isEmpty {
            let name = records.workerPools.popFlightWithLostWorker(of: WorkerPool.webPoolHandle)
            guard let flight = liveFlight(name), records.flights[flight].phase == .queued else { continue }
            if Cluster.returnClaim(of: flight, in: &records) { freeFlight(flight) }
        }
        if Cluster.isCoordinated(WorkerPool.webPoolHandle, in: records) { claimQueuedFlights(now: now) }
        guard let pool = Cluster.nodePool(in: &records) else { return }
        if records.workerPools[pool].isClosed {
            failQueuedRequests(in: pool, now: now)
        } else {
            startQueuedFlights(in: pool, now: now)
        }
    }

    /// Puts the interests of a queued flight first in their lanes.
    private mutating func requeueInterests(of flight: Handle<Flight>) {
        forEachInterest(of: flight) { core, interest in
            core.records.queue.remove(interest)
            core.enqueueInterest(interest, for: flight, first: true)
        }
    }

    // MARK: Results of other nodes

    /// Carries out the use of another node's result for a flight.
    private mutating func useNodeResult(_ result: [UInt8], for flight: Handle<Flight>, now: MonotonicTime) {
        switch Cluster.useResult(result, for: flight, now: now, in: &records) {
        case .respond(let response):
            evaluateResponse(response, HeaderFields(lines: response.headerFields), for: flight, now: now)
        case .pull(let request, let pool):
            Origins.moveFlight(flight, to: Origins.originScope(of: request, for: pool, in: &records), in: &records)
            records.flights.enterPhase(.queued, flight)
            requeueInterests(of: flight)
        case .claimAgain: reclaimFlight(flight)
        case .fail(.tooLarge, let allowed, _):
            performStep(Flights.bodyExceededLimit(flight, allowed: allowed, in: &records), of: flight, now: now)
        case .fail(let code, _, let detail):
            performStep(
                Flights.attemptFailed(flight, code, detail: detail, now: now, in: &records), of: flight, now: now)
        }
    }

    /// Answers a flight with the body that was read from another node.
    mutating func nodeBodyReceived(for flight: Handle<Flight>, _ body: Outcome.Response, now: MonotonicTime) {
        guard let response = Cluster.pulledResponse(flight, body, in: &records) else { return reclaimFlight(flight) }
        endNodeBodyRead(of: flight)
        evaluateResponse(response, HeaderFields(lines: response.headerFields), for: flight, now: now)
    }

    /// Claims a flight again whose body was not read from another node.
    mutating func nodeBodyReadFailed(for flight: Handle<Flight>, reason: String) {
        Cluster.nodeBodyReadFailed(flight, reason, in: &records)
        reclaimFlight(flight)
    }

    /// Claims a flight again after a useless result of another node.
    mutating func reclaimFlight(_ flight: Handle<Flight>) {
        records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
        endNodeBodyRead(of: flight)
        if records.flights[flight].phase == .queued {
            requeueInterests(of: flight)
        } else {
            enqueueFlight(flight, first: true)
        }
    }

    /// Returns a flight to its own origin after its body was read from another node, or was not.
    private mutating func endNodeBodyRead(of flight: Handle<Flight>) {
        guard records.clusterState?.value.pulls.removeValue(forKey: flight) != nil else { return }
        let scope = Origins.originScope(
            of: records.flights[flight].request, for: WorkerPool.webPoolHandle, in: &records)
        Origins.moveFlight(flight, to: scope, in: &records)
    }

    // MARK: Events of flights

    /// Reports an event of a flight. A broker without a cluster only makes this test.
    ///
    /// The cluster observes the event at once. At the end of the pass it would be too late: the same event may queue
    /// the flight again, which then checks whether the flight has a claim.
    @inline(__always)
    mutating func reportFlightEvent(_ event: @autoclosure () -> FlightEvent) {
        if records.clusterState != nil { Cluster.observeFlightEvent(event(), in: &records) }
    }

    /// Reports the outcome of an attempt that ends no request, and releases it.
    mutating func reportAttemptFailure(of flight: Handle<Flight>, _ outcome: Handle<Outcome>, allowed: Int? = nil) {
        reportFlightEvent(.attemptConcluded(flight, outcome, allowed: allowed))
        records.releaseOutcome(outcome)
    }

    /// Ends a flight without local requests, which served other nodes only. Returns false if the flight continues.
    mutating func endFlightIfHostedOnly(_ flight: Handle<Flight>) -> Bool {
        guard records.clusterState != nil, !records.flights.isResultNeeded(flight),
            records.flights.deferredCancellations[flight] == nil
        else {
            return false
        }
        freeFlight(flight)
        return true
    }
}
