internal import EarshotHTTP
internal import EarshotWire

/// Assignment: the choice of the next interest and of its worker.
extension BrokerCore {
    /// Assigns flights to workers with free slots. The shell calls it once per pass, after the events.
    ///
    /// - Parameter hasUnread: Whether a client has sent more than the pass has read. Called only for clients that may
    ///   rejoin a flight which they have left.
    public mutating func dispatch(now: Tick, hasUnread: (ClientID) -> Bool = { _ in false }) {
        records.clock = now
        // Last, since assigning an attempt renames the part that it resumes.
        defer { if records.pulls.isBehind { Delivery.answerReads(in: &records) } }
        continueRemovals(now: now)
        continueDurableLoad(now: now)
        resolveCancellations(hasUnread: hasUnread, now: now)
        continueEnds(now: now)
        continueStoredResults()
        // A draining broker starts nothing, so it must not ask for another pass.
        isBehind = false
        guard !records.isDraining, !records.workers.isAwaiting else {
            if records.isDraining { handOver(now: now) }
            return
        }
        // All suspects first: the end of a quarantine frees slots in each pool that its worker serves.
        for place in 0..<records.pools.bound {
            guard let pool = records.pools.handle(at: place) else { continue }
            guard !records.pools[pool].suspects.isEmpty || records.pools[pool].quarantine != nil else { continue }
            serveSuspects(of: pool, now: now)
        }
        for place in 0..<records.pools.bound {
            guard let pool = records.pools.handle(at: place) else { continue }
            startReturned(in: pool, now: now)
            guard records.queue.count(in: pool) > 0 else { continue }
            if records.pools[pool].isClosed {
                failQueued(in: pool, now: now)
            } else if Cluster.isCoordinated(pool, in: records) {
                claimQueued(now: now)
            } else {
                startQueued(in: pool, now: now)
            }
        }
        startRevalidations(now: now)
    }

    /// Starts queued interests while the pool has free slots. Doomed requests and requests to refusing origins, which
    /// need no slot, are bounded per pass.
    mutating func startQueued(in pool: Handle<WorkerPool>, now: Tick) {
        var refusals = 0
        while true {
            let slots = records.workers.slotCount(of: pool)
            guard slots.free > 0,
                let flight = nextToStart(
                    in: pool, isForHigh: slots.areForHigh, isClaiming: false, &refusals, now: now)
            else { return }
            start(flight, now: now)
        }
    }

    /// The flight of the next interest, or nil if there is none for now. Removes doomed requests and fails those of
    /// refusing origins on the way; at their bound per pass the core is behind.
    ///
    /// - Parameters:
    ///   - isClaiming: whether the engine of the cluster applies the limits of origins.
    ///   - refusals: number of failed flights and of removed requests in this pass.
    @inline(__always)
    mutating func nextToStart(
        in pool: Handle<WorkerPool>, isForHigh: Bool, isClaiming: Bool, _ refusals: inout Int, now: Tick
    ) -> Handle<Flight>? {
        while let interest = nextInterest(in: pool, isForHigh: isForHigh, isClaiming: isClaiming) {
            if records.isDoomed(interest) {
                removeRequest(interest)
            } else {
                let flight = records.leaf(ofOpen: interest)
                removeDoomed(from: flight)
                guard let until = records.governor.refusal(in: records.flights[flight].scope) else { return flight }
                failCooling(flight, until: until, now: now)
            }
            refusals += 1
            guard refusals == records.limits.refusalsPerPass else { continue }
            isBehind = true
            return nil
        }
        return nil
    }

    /// Starts flights that lost their worker or have a claim, before the queue. Those without a slot at their origin
    /// wait in the queue, without the claim. One whose cancellation is deferred starts only if a request rejoins it,
    /// which the queue then holds.
    private mutating func startReturned(in pool: Handle<WorkerPool>, now: Tick) {
        while !records.pools[pool].returnedFlights.isEmpty, records.workers.slotCount(of: pool).free > 0 {
            let name = records.pools.takeReturned(of: pool)
            guard let flight = liveFlight(name), records.flights[flight].phase == .queued,
                !records.flights[flight].isSuspect
            else {
                continue
            }
            guard records.flights.isWanted(flight), records.governor.admits(records.flights[flight].scope, .high) else {
                if Cluster.returnClaim(of: flight, in: &records) { forget(flight) }
                continue
            }
            if !Cluster.mustClaim(flight, now: now, in: &records) { start(flight, now: now) }
        }
    }

    /// Fails a flight whose origin requested a pause above the limit.
    mutating func failCooling(_ flight: Handle<Flight>, until: Tick, now: Tick) {
        let failure = Origins.failure(of: flight, until: until, now: now, in: &records)
        apply(.conclude(records.outcomes.insertRetained(failure)), to: flight, now: now)
    }

    /// The next interest by the order of the queue whose client and origin admit it; nil if there is none.
    private mutating func nextInterest(
        in pool: Handle<WorkerPool>, isForHigh: Bool, isClaiming: Bool
    ) -> Handle<Interest>? {
        // Copies for the closure, which runs while the queue is mutated. Their storage is shared.
        let clients = records.clients.snapshot
        let governor = records.governor.snapshot
        let quotas = records.quotas.snapshot
        return records.queue.next(in: pool, isForHigh: isForHigh) { principal, client, scope, priority in
            if let client, clients[client].deliveries.isClosed { return .client }
            if let quotas, quotas.isFull(principal) { return .quota }
            return switch governor.obstacle(in: scope, to: priority, isClaiming: isClaiming) {
            case .coolDown: .scope
            case .origin: .origin
            case nil: .none
            }
        }
    }

    /// Assigns a queued flight to a worker.
    ///
    /// - Parameter chosen: the worker; nil for `Workers.nextWorker`. One must have a free slot.
    mutating func start(_ flight: Handle<Flight>, at chosen: Handle<WorkerSession>? = nil, now: Tick) {
        if records.cluster != nil { Cluster.started(flight, now: now, in: &records) }
        let origin = records.origin(of: flight)
        guard let worker = chosen ?? Workers.nextWorker(for: origin, in: &records) else {
            preconditionFailure("no worker has a slot")
        }
        let priority = records.priority(of: flight)
        let isHigh = priority == .high
        // A flight of several principals is charged to one of them.
        var principal = PrincipalTable.administrator
        records.forEachInterest(of: flight) { records, interest in
            records.queue.remove(interest)
            principal = records.principal(of: interest)
        }
        Origins.transferStarted(
            of: flight, at: origin, by: records.workers[worker].id, isHigh: isHigh, now: now, in: &records)
        records.flights.enter(.running(worker: worker), flight)
        records.flights[flight].attempts += 1
        let maxBytes = records.sizeLimit(of: flight)
        let attempt = records.attempt(of: flight)
        let assigned =
            records.isPulling(flight)
            ? nil : Parts.assign(partOf: flight, as: attempt, to: worker, maxBytes: maxBytes, in: &records)
        var lease = WorkerLease(
            origin: origin, isHigh: isHigh, use: .flight(flight), startedAt: now, maxBytes: maxBytes)
        lease.part = assigned?.part
        lease.resumedBytes = assigned?.resume.bytes ?? 0
        lease.growingBytes = lease.resumedBytes
        lease.principal = principal
        Principals.transferStarted(lease, in: &records)
        Workers.attemptStarted(attempt, lease, at: worker, now: now, in: &records)
        var job = Job(attempt: attempt, url: records.flights[flight].url.description)
        job.maxBytes = maxBytes
        job.resume = assigned?.resume
        if records.workers[worker].isOwn { job.priority = priority }
        complete(&job, for: flight, at: worker, origin, now: now)
        send(job, of: flight, to: worker, chargedTo: principal)
    }

    /// Completes the JOB of an attempt, which has a size limit and a part to resume, if there are any.
    private mutating func complete(
        _ job: inout Job, for flight: Handle<Flight>, at worker: Handle<WorkerSession>,
        _ origin: Handle<OriginEntry>, now: Tick
    ) {
        let record = records.flights[flight]
        job.method = record.method.description
        job.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        job.connectMilliseconds = records.limits.connectMilliseconds
        job.progressMilliseconds = records.limits.progressMilliseconds
        var hasLimit = records.limits.rate > 0 || records.governor.origins[origin].rate > 0
        records.forEachInterest(of: flight) { records, interest in
            guard let extras = records.requests[interest].extras else { return }
            if records.requests[extras].limitRate != nil { hasLimit = true }
            records.requests[extras].waitStart = nil
            guard records.requests[extras].streams else { return }
            job.streams = true
            job.progressMilliseconds = records.limits.streamMilliseconds
        }
        job.redirect = record.redirect
        job.route = record.route
        if !records.workers[worker].isOwn {
            job.allowsHTTP2 = records.governor.origins[origin].allowsHTTP2 && !record.avoidsHTTP2
            if hasLimit { job.rate = Rates.attemptStarted(job.attempt, of: flight, at: origin, now: now, in: &records) }
        }
        if let pull = records.cluster?.value.pulls[flight] {
            job.url = pull.place.url
            job.method = HTTPMethod.get.description
            job.redirect = .manual
        } else {
            Flights.planConditions(
                of: flight, isResuming: job.resume.map { $0.bytes > 0 } ?? false, in: &records)
            job.httpFields = records.jobFields(of: flight).bytes
            if record.isHosted { job.addressPolicy = records.cluster?.value.foreignPolicies[flight] ?? "" }
        }
    }

    /// Sends the JOB of an attempt, with the body of its request, or with the keys of a stored part that it may resume.
    private mutating func send(
        _ job: consuming Job, of flight: Handle<Flight>, to worker: Handle<WorkerSession>,
        chargedTo principal: Handle<Principal>
    ) {
        let id = records.workers[worker].id
        if records.features.isLoggingAttempts { Workers.log(job, of: flight, to: id, in: &records) }
        if let body = records.flights[flight].body {
            records.outbox.append(.worker(.sendJob(id, job, body)))
        } else if records.parts.mayHaveStored, job.resume == nil, !records.isPulling(flight),
            !records.workers[worker].isRemote,
            !records.workers[worker].isOwn,
            !(records.cachePlans[flight] ?? CachePlan()).request(of: records.flights[flight].request)
                .choosesItsAnswer,
            let keys = Parts.keys(of: flight, chargedTo: principal, in: &records)
        {
            records.outbox.append(.worker(.resumeJob(id, job, keys)))
        } else {
            records.outbox.append(.worker(.send(id, .job(job))))
        }
    }
}
