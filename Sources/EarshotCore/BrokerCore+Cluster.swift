internal import EarshotHTTP
internal import EarshotWire

/// Events of the engine of a cluster and their effects on flights, and events of flights for the cluster. `Cluster`
/// decides. A broker on its own makes a comparison with nil.
extension BrokerCore {
    // MARK: Events of the engine

    /// Handles an event of the engine.
    public mutating func received(_ event: EngineEvent, now: Tick) {
        guard records.cluster != nil else { return }
        records.clock = now
        carryOut(Cluster.received(event, now: now, in: &records), now: now)
    }

    /// Calls to the engine after the events of a pass.
    public mutating func takeEngineCalls(now: Tick) -> [EngineCall] { Cluster.takeCalls(now: now, in: &records) }

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

    /// Removes and returns the lines for the log.
    public mutating func takeClusterNotices() -> [ClusterNotice] { records.cluster?.value.health.takeNotices() ?? [] }

    /// Addresses of other nodes whose bodies cannot be read at present, which the shell reports to all.
    public var unreadableNodes: Set<String> { records.cluster?.value.health.unreadable ?? [] }

    /// Removes and returns addresses of other nodes that the shell must try to connect to.
    public mutating func takeClusterProbes() -> [String] { records.cluster?.value.health.takeProbes() ?? [] }

    /// Handles the end of an attempt to connect to the address of another node.
    ///
    /// - Parameter failure: reason without a connection; nil with one.
    public mutating func clusterProbed(_ address: String, failure: String?, now: Tick) {
        records.cluster?.value.health.probed(address, failure: failure, now: now)
    }

    /// Sets the digests of this node's settings, with which those of the others are compared.
    public mutating func clusterSettingsChanged(_ text: String) {
        records.cluster?.value.health.changed(settings: text)
    }

    // MARK: Effects

    mutating func carryOut(_ effects: [ClusterEffect], now: Tick) {
        for effect in effects { carryOut(effect, now: now) }
    }

    private mutating func carryOut(_ effect: ClusterEffect, now: Tick) {
        switch effect {
        case .start(let local):
            records.cluster?.value.counts.granted += 1
            guard let flight = claiming(local) else { return }
            records.flights[flight].isHosted = records.claim(of: flight)?.isHosted ?? false
            if Cluster.freeSlots(in: &records) > 0, !records.flights[flight].isSuspect {
                start(flight, now: now)
            } else {
                // Its worker died meanwhile, or it runs alone. The flight keeps its grant.
                enqueue(flight: flight, first: true)
            }
        case .hosting(let local):
            guard let flight = records.flights.handle(of: local.name) else { return }
            records.flights[flight].isHosted = records.claim(of: flight)?.isHosted ?? false
        case .host(let key, let token, let record, let priority): host(key, token, record, priority, now: now)
        case .result(let local, let result):
            if let flight = claiming(local) { take(result, for: flight, now: now) }
        case .abort(let local):
            guard let flight = records.flights.handle(of: local.name) else { return }
            records.flights[flight].isHosted = false
            dropIfUnwanted(flight)
        case .requeue(let local): if let flight = claiming(local) { enqueue(flight: flight, first: true) }
        case .coolDown(let notice):
            guard let (scope, rest) = Cluster.coolDown(notice, in: &records) else { return }
            Origins.cool(scope, retryAfter: rest, now: now, in: &records)
            for flight in records.cluster?.value.charges.keys.sorted() ?? []
            where records.flights[flight].scope == scope {
                Cluster.dropClaim(of: flight, in: &records)
                enqueue(flight: flight, first: true)
            }
        case .mode(let isCoordinated):
            records.cluster?.value.hasUncoordinatedStart = !isCoordinated
            Origins.applyRules(now: now, in: &records)
        }
    }

    /// The flight of an open claim, which ends, without its doomed requests; nil if it has ended or waits no longer.
    private mutating func claiming(_ local: LocalFlight) -> Handle<Flight>? {
        guard let flight = liveFlight(local.name) else { return nil }
        Cluster.releaseCharge(of: flight, in: &records)
        return records.flights[flight].phase == .claiming ? flight : nil
    }

    /// Starts an attempt for other nodes.
    private mutating func host(
        _ key: ClusterKey, _ token: FencingToken, _ record: [UInt8], _ priority: PriorityClass, now: Tick
    ) {
        guard let shared = Cluster.hostedRequest(key, token, record, now: now, in: &records) else { return }
        let flight = flightToHost(shared)
        records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
        Cluster.host(flight, shared, key, token, record, priority, now: now, in: &records)
        if records.flights[flight].phase == .queued { start(flight, now: now) }
    }

    /// The queued flight of local requests for the same content, or else a new one.
    private mutating func flightToHost(_ shared: SharedRequest) -> Handle<Flight> {
        let request = shared.request
        let key = FlightKey(request, redirect: shared.redirect, partition: nil, alone: nil, mode: shared.mode)
        // Neither local requests nor the cache of this node may share a flight with another address policy.
        let isForeign = shared.policy != records.workerLimits.addressPolicy
        if !isForeign, let name = records.flights.handle(of: key).map({ records.flights.name(of: $0) }),
            let flight = liveFlight(name),
            records.flights[flight].phase == .queued, !records.flights[flight].isSuspect,
            records.flights[flight].fields == request.fields, records.claim(of: flight) == nil,
            !records.isPulling(flight)
        {
            return flight
        }
        let isAlone = isForeign || records.flights.handle(of: key) != nil
        let own =
            isAlone
            ? FlightKey(
                request, redirect: shared.redirect, partition: nil, alone: records.flights.nextID, mode: shared.mode)
            : key
        let flight = Flights.begin(
            request, redirect: shared.redirect, partition: nil, own,
            scope: Origins.scope(of: request, for: WorkerPool.web, in: &records), isAlone: isAlone, body: nil,
            in: &records)
        records.holdHead(
            of: request, for: .flight(flight), of: RequestHeads.noClient, by: PrincipalTable.administrator)
        Cache.flightBegan(flight, request, in: &records)
        if isForeign { records.cluster?.value.foreignPolicies[flight] = shared.policy }
        return flight
    }

    // MARK: Starts

    /// Claims queued flights in the order of the queue, as far as the window permits.
    mutating func claimQueued(now: Tick) {
        let slots = records.workers.slotCount(of: WorkerPool.web)
        if slots.total > 0 { records.cluster?.value.book.slots = slots.total }
        var refusals = 0
        while records.cluster?.value.book.hasRoom == true,
            let flight = nextToStart(in: WorkerPool.web, isForHigh: false, isClaiming: true, &refusals, now: now)
        {
            guard Cluster.hasClaim(flight, in: &records) else {
                Cluster.claim(flight, now: now, in: &records)
                continue
            }
            // It starts when a slot is free, before other flights.
            guard Cluster.freeSlots(in: &records) > 0 else {
                requeueInterests(of: flight)
                return
            }
            start(flight, now: now)
        }
    }

    /// Claims queued flights that other nodes can fetch, while this node drains, and reads the bodies of their results.
    /// Its own flights leave the queue, and its successor gets their requests.
    mutating func handOver(now: Tick) {
        guard records.cluster != nil else { return }
        while !records.pools[WorkerPool.web].returnedFlights.isEmpty {
            let name = records.pools.takeReturned(of: WorkerPool.web)
            guard let flight = liveFlight(name), records.flights[flight].phase == .queued else { continue }
            if Cluster.returnClaim(of: flight, in: &records) { forget(flight) }
        }
        if Cluster.isCoordinated(WorkerPool.web, in: records) { claimQueued(now: now) }
        guard let pool = Cluster.nodePool(in: &records) else { return }
        if records.pools[pool].isClosed { failQueued(in: pool, now: now) } else { startQueued(in: pool, now: now) }
    }

    /// Puts the interests of a queued flight first in their lanes.
    private mutating func requeueInterests(of flight: Handle<Flight>) {
        forEachInterest(of: flight) { core, interest in
            core.records.queue.remove(interest)
            core.enqueue(interest, for: flight, first: true)
        }
    }

    // MARK: Results of other nodes

    /// Carries out the use of another node's result for a flight.
    private mutating func take(_ result: [UInt8], for flight: Handle<Flight>, now: Tick) {
        switch Cluster.use(of: result, for: flight, now: now, in: &records) {
        case .respond(let response): evaluate(response, HeaderFields(lines: response.fields), for: flight, now: now)
        case .pull(let request, let pool):
            Origins.move(flight, to: Origins.scope(of: request, for: pool, in: &records), in: &records)
            records.flights.enter(.queued, flight)
            requeueInterests(of: flight)
        case .claimAgain: claimAgain(flight)
        case .fail(.tooLarge, let allowed, _):
            apply(Flights.sizeExceeded(flight, allowed: allowed, in: &records), to: flight, now: now)
        case .fail(let code, _, let detail):
            apply(Flights.failed(flight, code, detail: detail, now: now, in: &records), to: flight, now: now)
        }
    }

    /// Answers a flight with the body that was read from another node.
    mutating func pulled(_ flight: Handle<Flight>, _ body: Outcome.Response, now: Tick) {
        guard let response = Cluster.pulled(flight, body, in: &records) else { return claimAgain(flight) }
        endPull(of: flight)
        evaluate(response, HeaderFields(lines: response.fields), for: flight, now: now)
    }

    /// Claims a flight again whose body was not read from another node.
    mutating func missedPull(_ flight: Handle<Flight>, _ reason: String) {
        Cluster.bodyMissed(flight, reason, in: &records)
        claimAgain(flight)
    }

    /// Claims a flight again after a useless result of another node.
    mutating func claimAgain(_ flight: Handle<Flight>) {
        records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
        endPull(of: flight)
        if records.flights[flight].phase == .queued {
            requeueInterests(of: flight)
        } else {
            enqueue(flight: flight, first: true)
        }
    }

    /// Returns a flight to its own origin after its body was read from another node, or was not.
    private mutating func endPull(of flight: Handle<Flight>) {
        guard records.cluster?.value.pulls.removeValue(forKey: flight) != nil else { return }
        let scope = Origins.scope(of: records.flights[flight].request, for: WorkerPool.web, in: &records)
        Origins.move(flight, to: scope, in: &records)
    }

    // MARK: Events of flights

    /// Reports an event of a flight. A broker without a cluster only makes this test.
    ///
    /// The cluster observes the event at once. In a list of the pass it would be too late: the same event may queue the
    /// flight again, and asks then whether it has a claim.
    @inline(__always)
    mutating func report(_ event: @autoclosure () -> FlightEvent) {
        if records.cluster != nil { Cluster.observe(event(), in: &records) }
    }

    /// Reports the outcome of an attempt that ends no request, and releases it.
    mutating func reportFailure(of flight: Handle<Flight>, _ outcome: Handle<Outcome>, allowed: Int? = nil) {
        report(.concluded(flight, outcome, allowed: allowed))
        records.release(outcome)
    }

    /// Ends a flight without local requests, which served other nodes only. False if the flight goes on.
    mutating func endIfHostedOnly(_ flight: Handle<Flight>) -> Bool {
        guard records.cluster != nil, !records.flights.isWanted(flight), records.flights.deferrals[flight] == nil else {
            return false
        }
        forget(flight)
        return true
    }
}
