internal import EarshotHTTP
internal import EarshotWire

/// Assignment: the choice of the next interest and of its worker.
extension BrokerCore {
    /// Assigns flights to workers with free slots. The shell calls it once per pass, after the events.
    ///
    /// - Parameter hasUnread: Whether a client has sent more than the pass has read. Called only for clients that may
    ///   rejoin a flight which they have left.
    public mutating func dispatch(now: Tick, hasUnread: (ClientID) -> Bool = { _ in false }) {
        clock = now
        // Last, since assigning an attempt renames the part that it resumes.
        defer { if pulls.isBehind { answerReads() } }
        continueRemovals(now: now)
        continueDurableLoad(now: now)
        settleCancellations(hasUnread: hasUnread, now: now)
        continueStoredResults()
        // A draining broker starts nothing, so it must not ask for another pass.
        isBehind = false
        guard !isDraining, !workers.isAwaiting else {
            if isDraining, cluster != nil { handOver(now: now) }
            return
        }
        // All suspects first: the end of a quarantine frees slots in each pool that its worker serves.
        for place in 0..<pools.bound {
            guard let pool = pools.handle(at: place) else { continue }
            guard !pools[pool].suspects.isEmpty || pools[pool].quarantine != nil else { continue }
            serveSuspects(of: pool, now: now)
        }
        for place in 0..<pools.bound {
            guard let pool = pools.handle(at: place) else { continue }
            startReturned(in: pool, now: now)
            guard queue.count(in: pool) > 0 else { continue }
            if pools[pool].isClosed {
                failQueued(in: pool, now: now)
            } else if isCoordinated(pool) {
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
            let slots = workers.slotCount(of: pool)
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
            if isDoomed(interest) {
                removeRequest(interest)
            } else {
                let flight = leaf(ofOpen: interest)
                removeDoomed(from: flight)
                guard let until = governor.refusal(in: flights[flight].scope) else { return flight }
                failCooling(flight, until: until, now: now)
            }
            refusals += 1
            guard refusals == limits.refusalsPerPass else { continue }
            isBehind = true
            return nil
        }
        return nil
    }

    /// Starts flights that lost their worker or have a claim, before the queue. Those without a slot at their origin
    /// wait in the queue, without the claim. One whose cancellation is deferred starts only if a request rejoins it,
    /// which the queue then holds.
    private mutating func startReturned(in pool: Handle<WorkerPool>, now: Tick) {
        while !pools[pool].returned.isEmpty, workers.slotCount(of: pool).free > 0 {
            let name = pools.takeReturned(of: pool)
            guard let flight = liveFlight(name), flights[flight].phase == .queued, !flights[flight].isSuspect else {
                continue
            }
            guard flights[flight].isWanted, governor.admits(flights[flight].scope, .high) else {
                if cluster != nil { returnClaim(of: flight) }
                continue
            }
            if !mustClaim(flight, now: now) { start(flight, now: now) }
        }
    }

    /// The next interest by the order of the queue whose client and origin admit it; nil if there is none.
    private mutating func nextInterest(
        in pool: Handle<WorkerPool>, isForHigh: Bool, isClaiming: Bool
    ) -> Handle<Interest>? {
        // Copies for the closure, which runs while the queue is mutated. Their storage is shared.
        let clients = clients.snapshot
        let governor = governor.snapshot
        let quotas = quotas.snapshot
        return queue.next(in: pool, isForHigh: isForHigh) { principal, client, scope, priority in
            if let client, clients[client].deliveries.isClosed { return .client }
            if let quotas, quotas.isFull(principal) { return .quota }
            return switch governor.obstacle(in: scope, to: priority, isClaiming: isClaiming) {
            case .coolDown: .scope
            case .origin: .origin
            case nil: .none
            }
        }
    }

    /// The worker for the next transfer of an origin. It is the one of the last transfer, whose connections are open, if
    /// the others have few free slots more. Transfers of large bodies are spread evenly, as are jobs of users' own workers.
    @inline(__always)
    private func nextWorker(for origin: Handle<OriginEntry>) -> Handle<WorkerSession>? {
        let pool = governor.origins[origin].pool
        let isGathered = governor.origins[origin].hasSmallBodies && pool == WorkerPool.web
        return workers.nextWorker(
            of: pool, preferring: governor.origins[origin].lastWorker, lead: isGathered ? CoreLimits.workerLead : 0)
    }

    /// Assigns a queued flight to a worker.
    ///
    /// - Parameter chosen: the worker; nil for `nextWorker`. One must have a free slot.
    mutating func start(_ flight: Handle<Flight>, at chosen: Handle<WorkerSession>? = nil, now: Tick) {
        if cluster != nil { clusterStarts(flight, now: now) }
        let origin = origin(of: flight)
        guard let worker = chosen ?? nextWorker(for: origin) else { preconditionFailure("no worker has a slot") }
        let priority = priority(of: flight)
        let isHigh = priority == .high
        // A flight of several principals is charged to one of them.
        var principal = PrincipalTable.administrator
        forEachInterest(of: flight) { core, interest in
            core.queue.remove(interest)
            principal = core.principal(of: interest)
        }
        let pause = governor.startTransfer(at: origin, by: workers[worker].id, isHigh: isHigh, now: now)
        setTimer(pause, of: origin)
        let scope = flights[flight].scope
        if governor.probeStarted(scope, flights[flight].id) { waitForCoolDown(of: scope) }
        flights.enter(.running(worker: worker), flight)
        flights[flight].attempts += 1
        let maxBytes = sizeLimit(of: flight)
        let record = flights[flight]
        let attempt = attempt(of: flight)
        let isPulling = isPulling(flight)
        let lent = isPulling ? nil : lendPart(of: flight, as: attempt, to: worker, maxBytes: maxBytes)
        var lease = WorkerLease(
            origin: origin, isHigh: isHigh, use: .flight(flight), startedAt: now, maxBytes: maxBytes)
        lease.part = lent?.part
        let resumedBytes = lent?.resume.bytes ?? 0
        lease.resumedBytes = resumedBytes
        lease.growingBytes = lease.resumedBytes
        lease.principal = principal
        outcomes.filesGrew(by: lease.growingBytes)
        if principal != PrincipalTable.administrator {
            quotas.transferStarted(by: principal)
            quotas.spoolBytes(lease.growingBytes, of: principal)
        }
        workers.start(attempt, lease, at: worker)
        watch(worker, now: now)
        ledger.flights.assigned += 1
        var job = Job(attempt: attempt, url: record.url.description)
        job.method = record.method.description
        job.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        job.connectMilliseconds = limits.connectMilliseconds
        job.maxBytes = maxBytes
        job.progressMilliseconds = limits.progressMilliseconds
        var hasLimit = limits.rate > 0 || governor.origins[origin].rate > 0
        forEachInterest(of: flight) { core, interest in
            guard let extras = core.interests[interest].extras else { return }
            if core.extras[extras].limitRate != nil { hasLimit = true }
            core.extras[extras].waitEnd = nil
            guard core.extras[extras].streams else { return }
            job.streams = true
            job.progressMilliseconds = core.limits.streamMilliseconds
        }
        job.redirect = record.redirect
        job.resume = lent?.resume
        job.route = record.route
        if workers[worker].isOwn {
            job.priority = priority
        } else {
            job.allowsHTTP2 = governor.origins[origin].allowsHTTP2 && !record.avoidsHTTP2
            if hasLimit { job.rate = firstRate(of: flight, attempt, at: origin, now: now) }
        }
        if isPulling {
            job.url = pullURL(of: flight) ?? job.url
            job.method = HTTPMethod.get.description
            job.redirect = .manual
        } else {
            planConditions(of: flight, isResuming: resumedBytes > 0)
            job.httpFields = jobFields(of: flight).bytes
            if let cluster { job.addressPolicy = cluster.value.foreignPolicies[flight] ?? "" }
        }
        let id = workers[worker].id
        if facilities.isLoggingAttempts { logAssignment(job, of: flight, to: id) }
        if let body = record.body {
            actions.append(.worker(.sendJob(id, job, body)))
        } else if hasStoredParts, lent == nil, !isPulling, !workers[worker].isRemote, !workers[worker].isOwn,
            !(cachePlans[flight] ?? CachePlan()).request(of: record.request).choosesItsAnswer,
            let keys = partKeys(of: flight, chargedTo: principal)
        {
            actions.append(.worker(.resumeJob(id, job, keys)))
        } else {
            actions.append(.worker(.send(id, .job(job))))
        }
    }

    /// Highest class of the interests whose owners have room in their windows, and of other nodes.
    mutating func priority(of flight: Handle<Flight>) -> PriorityClass {
        var highest = flights[flight].isHosted ? hostedPriority(of: flight) : .background
        forEachInterest(of: flight) { core, interest in
            let isServed = if let owner = core.interests[interest].owner { !core.isClosed(owner) } else { true }
            if isServed { highest = max(highest, core.interests[interest].priority) }
        }
        return highest
    }

    /// Largest size that one of its interests allows; nil if one of them has no limit.
    mutating func sizeLimit(of flight: Handle<Flight>) -> Int? {
        guard !flights[flight].isRevalidation else { return nil }
        var largest: Int? = 0
        if flights[flight].isHosted {
            largest = hostedLimit(of: flight)
            guard largest != nil else { return nil }
        }
        forEachInterest(of: flight) { core, interest in
            guard let known = largest, let extras = core.interests[interest].extras,
                let limit = core.extras[extras].maxBytes
            else {
                largest = nil
                return
            }
            largest = max(known, limit)
        }
        return largest
    }

    // MARK: Liveness of workers

    /// Starts the heartbeat timer of a worker with transfers, unless it runs.
    mutating func watch(_ worker: Handle<WorkerSession>, now: Tick) {
        if let end = workers.watch(worker, now: now) { setTimer(end, .heartbeat(workers[worker].id)) }
    }

    /// Sends a PING to a silent worker, or ends a worker that did not answer one.
    mutating func heartbeat(of id: WorkerID, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        let next: Tick
        switch workers.heartbeat(of: worker, now: now) {
        case .idle: return
        case .waiting(let end): next = end
        case .asking(let end):
            actions.append(.worker(.send(id, .ping)))
            next = end
        case .silent(let end):
            self.end(silent: worker, now: now)
            guard workers.number(of: id) != nil else { return }
            next = end
        }
        setTimer(next, .heartbeat(id))
    }

    /// Disconnects a user's own worker that did not answer a PING in time, or has the shell kill a child process.
    mutating func end(silent worker: Handle<WorkerSession>, now: Tick) {
        guard workers[worker].isOwn else {
            actions.append(.worker(.kill(workers[worker].id)))
            return
        }
        putOut(worker, "silent", "a PING was not answered in time", now: now)
    }
}
