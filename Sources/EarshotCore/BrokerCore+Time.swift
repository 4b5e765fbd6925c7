internal import EarshotHTTP
internal import EarshotWire
internal import HeapModule

/// Timers, changes of the limits, and draining.
extension BrokerCore {
    /// Handles due timers, at most `CoreLimits.timersPerPass`. The others stay due, as `nextTimer` shows.
    public mutating func timePassed(now: Tick) {
        clock = now
        if cluster != nil { clusterTimePassed(now: now) }
        var budget = max(limits.timersPerPass, 1)
        while budget > 0, let timer = timers.min, timer.at <= now {
            budget -= 1
            timers.removeMin()
            switch timer.subject {
            case .deadline(let interest): deadlinePassed(interest, now: now)
            case .coolDownWait(let interest): if isLive(timer.subject) { coolDownWaitEnded(interest.record, now: now) }
            case .progress(let interest): progressDue(interest, now: now)
            case .grace(let interest): gracePassed(interest)
            case .abandoned(let handler, let absence): handlerAbandoned(handler, absence, now: now)
            case .expired(let interest, _): if isLive(timer.subject) { expired(interest, now: now) }
            case .retry(let name): retryTimerFired(name)
            case .opening: openingOverdue(now: now)
            case .slowStart(let origin, _): if isLive(timer.subject) { slowStartStep(of: origin, now: now) }
            case .spoolRetry: outcomes.retrySpool()
            case .cooled(let scope, _): if isLive(timer.subject) { cooled(scope) }
            case .paused(let origin, _): if isLive(timer.subject) { pauseEnded(at: origin) }
            case .greeting(let client): greetingEnded(client)
            case .lease(let client, let absence): leaseEnded(client, absence, now: now)
            case .stalled(let client, _): if isLive(timer.subject) { stallEnded(client) }
            case .lonely(let pool, _): if isLive(timer.subject) { close(pool: pool) }
            case .jars: if isLive(timer.subject) { expireJars(now: now) }
            case .isolation(let id): isolationEnded(of: id, now: now)
            case .suspicion(let name, let deaths): suspicionEnded(name, deaths: deaths)
            case .heartbeat(let id): heartbeat(of: id, now: now)
            case .rates: if isLive(timer.subject) { divideRates(now: now) }
            }
        }
    }

    /// Applies changed limits. State above a lowered limit drains. O(origins and clients).
    public mutating func limitsChanged(_ limits: CoreLimits, now: Tick) {
        let before = self.limits
        self.limits = limits
        outcomes.limits = OutcomeStore.Limits(limits)
        parts.limit = limits.keptParts
        governor.limits = OriginGovernor.Limits(limits)
        workers.limits = WorkerFleet.Limits(limits)
        pools.limits = WorkerPools.Limits(limits)
        durables.limits = DurableBook.Limits(limits)
        quotasChanged()
        if limits.origins != before.origins { applyOriginRules(now: now) }
        if limits.rate != before.rate || limits.origins != before.origins { ratesChanged(now: now) }
        if limits.coolDownMilliseconds != before.coolDownMilliseconds { endRefusals() }
        if limits.cookieMilliseconds != before.cookieMilliseconds { expireJars(now: now) }
        if limits.durableMilliseconds != before.durableMilliseconds { resetExpiries() }
    }

    /// Starts no more transfers. Running ones end, and clients request the others from the next broker.
    public mutating func drain() {
        guard !isDraining else { return }
        isDraining = true
        for client in clients.indices where !clients[client].isGone { say(.goodbye(reason: "draining"), to: client) }
        // The supervisor itself ends its child workers, so they get no DRAIN. A node still reads the bodies of results that
        // other nodes have for it.
        for worker in workers.drain(except: nodePool) where workers[worker].isOwn && workers[worker].hearsDrain {
            actions.append(.worker(.send(workers[worker].id, .drain)))
        }
    }

    /// Sets a timer. Stale timers are removed when timers outnumber their possible subjects by far, so the heap stays
    /// bounded.
    mutating func setTimer(_ at: Tick, _ subject: Timer.Subject) {
        timers.insert(Timer(at: at, subject: subject))
        let subjects =
            interests.count + handlers.count + flights.count + workers.count + governor.origins.count
            + governor.scopes.count + clients.count + pools.count
        guard timers.count > 1_024 + 4 * subjects else { return }
        timers = Heap(timers.unordered.filter { isLive($0.subject) })
    }

    /// Whether a timer is not stale. Timers without a serial or subject count as live.
    func isLive(_ subject: Timer.Subject) -> Bool {
        switch subject {
        case .deadline(let interest), .coolDownWait(let interest), .progress(let interest):
            interests.resolve(interest).map { interests[$0].phase == .open } ?? false
        case .grace(let interest): interests.resolve(interest).map { interests[$0].phase == .held } ?? false
        case .expired(let interest, let timer): durables.isExpiryTimer(timer, of: interest)
        case .abandoned(let handler, let absence):
            handlers.contains(handler) && handlers[handler].absence == absence && handlers[handler].isNamed
        case .retry(let name): flights.number(of: name) != nil
        case .cooled(let scope, let serial): governor.isCooling(scope, serial: serial)
        case .paused(let origin, let pause): governor.isPaused(origin, serial: pause)
        case .greeting(let client): clients.number(of: client).map { clients[$0].phase == .joining } ?? false
        case .lease(let client, let absence): clients.contains(client) && clients[client].absence == absence
        case .stalled(let client, let stall):
            clients.contains(client) && clients[client].deliveries.watch?.serial == stall
        case .lonely(let pool, let absence): pools.isAwaited(pool, serial: absence)
        case .opening, .spoolRetry: true
        case .slowStart(let origin, let serial): governor.isInSlowStart(origin, serial: serial)
        case .jars(let serial): cookieJars.isAwaited(serial)
        case .isolation(let id): workers.number(of: id).map { workers[$0].isolation != nil } ?? false
        case .heartbeat(let id): workers.number(of: id) != nil
        case .rates(let due): rates.due == due
        case .suspicion(let name, let deaths):
            flights.number(of: name).map { flights[$0].isSuspect && flights[$0].workerDeaths == deaths } ?? false
        }
    }

    private mutating func deadlinePassed(_ interest: GenerationalHandle<Interest>, now: Tick) {
        guard isLive(.deadline(interest)) else { return }
        endAlone(interest.record, .deadline, now: now)
    }

    private mutating func gracePassed(_ reference: GenerationalHandle<Interest>) {
        guard isLive(.grace(reference)) else { return }
        let interest = reference.record
        if isDoomed(interest) {
            removeRequest(interest)
        } else if listeners(of: interests[interest].handler).isEmpty {
            orphan(interest)
        } else {
            // It waits for room in the window of a listener, which may leave.
            setTimer(clock.advanced(byMilliseconds: limits.graceMilliseconds), .grace(reference))
        }
    }

    /// Ends the grace period of a handler without listeners. The handler's own requests from before the last listener
    /// left are orphaned, in slices if there are many.
    private mutating func handlerAbandoned(_ handler: Handle<HandlerEntry>, _ absence: UInt64, now: Tick) {
        let subject = Timer.Subject.abandoned(handler: handler, absence: absence)
        guard isLive(subject), listeners(of: handler).isEmpty else { return }
        var budget = max(limits.departuresPerPass, 1)
        var next = handlers[handler].interests.first
        // The chain is in the order of arrival. Only a repeated durable request has a later generation than its place has.
        while let interest = next, interests[interest].generation < absence || isDurable(interest) {
            next = handlers.request(after: interest)
            guard interests[interest].owner == nil, interests[interest].phase != .delivering, !isDurable(interest)
            else {
                continue
            }
            guard budget > 0 else {
                // Later than now, so that it fires in a later pass.
                setTimer(now.advanced(byNanoseconds: 1), subject)
                return
            }
            budget -= 1
            // Orphaning the last request frees the handler's record.
            orphan(interest)
        }
    }

    /// Queues a flight whose back-off has ended. Ignores the timer of an earlier back-off.
    private mutating func retryTimerFired(_ name: FlightName) {
        guard let flight = liveFlight(name), let end = flights.pauses[flight], end <= clock else { return }
        enqueue(flight: flight)
    }
}
