internal import EarshotHTTP
internal import EarshotWire

/// Assignment: who is next, and which worker gets it.
extension BrokerCore {
    /// Gives what may start to workers with free slots. Called once a pass, after its events.
    ///
    /// - Parameter unread: those of `clientsHandingOver` that have sent more than the pass has read.
    public mutating func dispatch(now: Tick, unread: [ClientID] = []) {
        clock = now
        settleCancellations(unread: unread, now: now)
        continuePurges(now: now)
        useOrphanedResponses(now: now)
        // What was left to this pass is not left to another by a broker that starts nothing any more.
        isBehind = false
        guard !isDraining, isOpen() else { return }
        for pool in 0..<Int32(pools.bound) where pools.contains(pool) {
            if !pools[pool].suspects.isEmpty || pools[pool].quarantine != nil {
                serveSuspects(of: pool, now: now)
                guard pools.contains(pool) else { continue }
            }
            startReturned(in: pool, now: now)
            guard queue.count(in: pool) > 0 else { continue }
            if pools[pool].isClosed { failQueued(in: pool, now: now) } else { startQueued(in: pool, now: now) }
        }
        startRevalidations(now: now)
    }

    private mutating func startQueued(in pool: Int32, now: Tick) {
        var refusals = 0
        while true {
            let slots = slotCount(of: pool)
            guard slots.free > 0, let interest = nextInterest(in: pool, isForHigh: slots.areForHigh) else { return }
            guard !isPurged(interest) else {
                finishPurge(of: interest)
                purgeBudget -= 1
                guard purgeBudget <= 0 else { continue }
                isBehind = true
                return
            }
            let flight = leaf(of: interests[interest].flight)
            guard let until = governor.refusal(in: flights[flight].scope) else {
                start(flight, now: now)
                continue
            }
            failCooling(flight, until: until, now: now)
            refusals += 1
            guard refusals == limits.refusalsPerPass else { continue }
            isBehind = true
            return
        }
    }

    /// Assigns nothing until so many workers have said what they hold of an earlier broker's work, nor while one has
    /// not told of all of it or is to end it, so that nothing is fetched twice at once; but no longer than until
    /// `limit`, for a worker may be gone with that broker.
    public mutating func awaitWorkers(_ count: Int, until limit: Tick) {
        awaitedWorkers = count
        setTimer(limit, .opening)
    }

    /// Whether nothing is assigned yet for their sake.
    var isAwaitingWorkers: Bool {
        guard let awaitedWorkers else { return false }
        return awaitedWorkers > 0 || workers.indices.contains { !isOwn($0) && !workers[$0].foreign.isEmpty }
    }

    private mutating func isOpen() -> Bool {
        guard let awaited = awaitedWorkers else { return true }
        let known = workers.indices.filter { workers[$0].phase != .joining && !isOwn($0) }
        guard known.count >= awaited else { return false }
        // Who dies from now on is not waited for again.
        awaitedWorkers = 0
        return known.allSatisfy { workers[$0].foreign.isEmpty }
    }

    /// Starts what was lost with a worker, as far as slots and origins have room; the rest takes its turn in the queue.
    private mutating func startReturned(in pool: Int32, now: Tick) {
        while let name = pools[pool].returned.last, slotCount(of: pool).free > 0 {
            pools[pool].returned.removeLast()
            if let flight = flight(name) { settlePurges(of: flight) }
            guard let flight = flight(name), flights[flight].phase == .queued, !flights[flight].isSuspect else {
                continue
            }
            guard governor.admits(flights[flight].scope, .high) else { continue }
            start(flight, now: now)
        }
    }

    private mutating func nextInterest(in pool: Int32, isForHigh: Bool) -> Int32? {
        // Copies to look at while the queue turns; their storage is shared.
        let clients = clients
        let governor = governor.snapshot
        let dueDeliveries = limits.dueDeliveries
        return queue.next(in: pool, isForHigh: isForHigh) { client, scope, priority in
            if client >= 0, clients[client].deliveries.isClosed(dueDeliveries: dueDeliveries) { return .client }
            return switch governor.obstacle(in: scope, to: priority) {
            case .coolDown: .scope
            case .origin: .origin
            case nil: .none
            }
        }
    }

    /// The slots of a pool's workers that take work. O(workers).
    @inline(__always)
    func slotCount(of pool: Int32) -> SlotCount {
        var count = SlotCount()
        for worker in 0..<Int32(workers.bound) where serves(worker, pool) { count.add(workers[worker]) }
        return count
    }

    @inline(__always)
    private func serves(_ worker: Int32, _ pool: Int32) -> Bool {
        workers.contains(worker) && workers[worker].pools.contains(pool)
    }

    /// The worker of its pool with the most free slots; of several the one that an origin's last transfer went to,
    /// whose connection may still be open. O(workers).
    @inline(__always)
    private func freestWorker(for origin: Int32) -> Int32? {
        let last = governor.origins[origin].lastWorker
        let pool = governor.origins[origin].pool
        var best: Int32?
        var most = 0
        for worker in 0..<Int32(workers.bound) where serves(worker, pool) {
            let free = workers[worker].freeSlots
            guard free > 0, free > most || free == most && workers[worker].id == last else { continue }
            best = worker
            most = free
        }
        return best
    }

    /// Gives a flight to a worker.
    ///
    /// - Parameter chosen: the worker; nil for the freest one.
    mutating func start(_ flight: Int32, at chosen: Int32? = nil, now: Tick) {
        settlePurges(of: flight)
        let origin = origin(of: flight)
        guard let worker = chosen ?? freestWorker(for: origin) else { preconditionFailure("no worker has a slot") }
        let priority = priority(of: flight)
        let isHigh = priority == .high
        forEachInterest(of: flight) { core, interest in core.queue.remove(interest) }
        let pause = governor.startTransfer(at: origin, by: workers[worker].id, isHigh: isHigh, now: now)
        setTimer(pause, of: origin)
        if !isHigh { workers[worker].lower += 1 }
        governor.probeStarted(flights[flight].scope, flights[flight].id)
        enter(.running(worker: worker), flight)
        flights[flight].attempts += 1
        let maxBytes = sizeLimit(of: flight)
        let record = flights[flight]
        let attempt = attempt(of: flight)
        let lent = lendPart(of: flight, as: attempt, to: worker, maxBytes: maxBytes)
        var lease = WorkerSession.Lease(
            origin: origin, isHigh: isHigh, flight: flight, startedAt: now, maxBytes: maxBytes)
        lease.part = lent?.part
        lease.isResuming = lent != nil
        lease.growingBytes = lent?.resume.bytes ?? 0
        spoolUse.growingBytes &+= lease.growingBytes
        workers[worker].leases.insert(lease, of: attempt)
        watch(worker, now: now)
        ledger.flights.assigned += 1
        var job = Job(attempt: attempt, url: record.url.description)
        job.method = record.method.description
        job.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        job.connectMilliseconds = limits.connectMilliseconds
        job.maxBytes = maxBytes
        job.progressMilliseconds = limits.progressMilliseconds
        forEachInterest(of: flight) { core, interest in
            let extras = core.interests[interest].extras
            guard extras >= 0, core.extras[extras].streams else { return }
            job.streams = true
            job.progressMilliseconds = core.limits.streamMilliseconds
        }
        job.redirect = record.redirect
        job.inlineBytes = inlineBytes(of: flight)
        job.resume = lent?.resume
        // A later broker would not know the fields of the response that it goes on with.
        if lent == nil { job.flight = identity(of: flight) }
        job.route = record.route
        if isOwn(worker) {
            job.priority = priority
        } else {
            job.allowsHTTP2 = governor.origins[origin].allowsHTTP2 && !record.avoidsHTTP2
        }
        job.httpFields = jobFields(of: flight).bytes
        let id = workers[worker].id
        if let body = record.body {
            actions.append(.sendJob(id, job, body))
        } else {
            actions.append(.sendWorker(id, .job(job)))
        }
    }

    /// The highest class of those who can be served.
    private mutating func priority(of flight: Int32) -> PriorityClass {
        var highest = PriorityClass.background
        forEachInterest(of: flight) { core, interest in
            let owner = core.interests[interest].owner
            let isServed = owner < 0 || !core.isClosed(owner)
            if isServed { highest = max(highest, core.interests[interest].priority) }
        }
        return highest
    }

    /// The largest size its interests allow; nil if one of them sets none.
    mutating func sizeLimit(of flight: Int32) -> Int? {
        guard !flights[flight].isRevalidation else { return nil }
        var largest: Int? = 0
        forEachInterest(of: flight) { core, interest in
            let extras = core.interests[interest].extras
            guard let known = largest, extras >= 0, let limit = core.extras[extras].maxBytes else {
                largest = nil
                return
            }
            largest = max(known, limit)
        }
        return largest
    }

    // MARK: Workers' silence

    /// Begins to expect signs of life of a worker that has work.
    mutating func watch(_ worker: Int32, now: Tick) {
        guard !workers[worker].isWatched else { return }
        workers[worker].isWatched = true
        workers[worker].lastHeard = now
        setTimer(now.advanced(byMilliseconds: limits.heartbeatMilliseconds), .heartbeat(workers[worker].id))
    }

    /// Asks a silent worker for a sign of life, and has it killed if it owed one for too long. A worker without work is
    /// left alone, so that an idle bus does not wake.
    mutating func heartbeat(of id: WorkerID, now: Tick) {
        guard let worker = workerNumbers[id] else { return }
        guard workers[worker].isBusy else {
            workers[worker].isWatched = false
            return
        }
        var next = workers[worker].lastHeard.advanced(byMilliseconds: limits.heartbeatMilliseconds)
        if let asked = workers[worker].askedAt {
            next = asked.advanced(byMilliseconds: limits.silenceMilliseconds)
            if next <= now {
                end(silent: worker, now: now)
                guard workerNumbers[id] != nil else { return }
                next = now.advanced(byMilliseconds: limits.silenceMilliseconds)
            }
        } else if next <= now {
            workers[worker].askedAt = now
            actions.append(.sendWorker(id, .ping))
            // By then it has answered, most likely, and may have been silent since.
            next = now.advanced(byMilliseconds: min(limits.heartbeatMilliseconds, limits.silenceMilliseconds))
        }
        setTimer(next, .heartbeat(id))
    }

    /// Disconnects a user's own worker that did not answer a PING in time, or has a child process killed.
    mutating func end(silent worker: Int32, now: Tick) {
        guard isOwn(worker) else {
            actions.append(.killWorker(workers[worker].id))
            return
        }
        putOut(worker, "silent", "a PING was not answered in time", now: now)
    }
}
