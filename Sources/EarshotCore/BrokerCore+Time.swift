internal import EarshotHTTP
internal import EarshotWire
internal import HeapModule

/// Timers, changes of the limits, and draining.
extension BrokerCore {
    /// Handles due timers, at most `CoreLimits.timersPerPass`. The others stay due, as `nextTimer` shows.
    public mutating func timePassed(now: Tick) {
        records.clock = now
        if records.cluster != nil { carryOut(Cluster.timePassed(now: now, in: &records), now: now) }
        if records.queue.impatient.isBehind { Origins.continueWaits(in: &records) }
        var budget = max(records.limits.timersPerPass, 1)
        while budget > 0, let timer = records.outbox.timers.min, timer.at <= now {
            budget -= 1
            records.outbox.timers.removeMin()
            switch timer.subject {
            case .deadline(let interest):
                if records.isLive(timer.subject) { endAlone(interest.record, .deadline, now: now) }
            case .coolDownWait(let interest):
                if records.isLive(timer.subject),
                    let failure = Origins.waitEnded(interest.record, now: now, in: &records)
                {
                    endAlone(interest.record, failure, now: now)
                }
            case .progress(let interest): progressDue(interest, now: now)
            case .grace(let interest): gracePassed(interest)
            case .abandoned(let handler, let absence): handlerAbandoned(handler, absence, now: now)
            case .expired(let interest, _): if records.isLive(timer.subject) { expired(interest, now: now) }
            case .retry(let name): retryTimerFired(name)
            case .opening: openingOverdue(now: now)
            case .slowStart(let origin, _):
                if records.isLive(timer.subject) { Origins.slowStartStep(of: origin, now: now, in: &records) }
            case .spoolRetry: records.outcomes.retrySpool()
            case .cooled(let scope, _): if records.isLive(timer.subject) { Origins.cooled(scope, in: &records) }
            case .paused(let origin, _):
                if records.isLive(timer.subject) { Origins.pauseEnded(at: origin, in: &records) }
            case .greeting(let client): Clients.greetingEnded(client, in: &records)
            case .lease(let client, _): if records.isLive(timer.subject) { endSession(client, now: now) }
            case .stalled(let client, _): if records.isLive(timer.subject) { Delivery.stallEnded(client, in: &records) }
            case .lonely(let pool, _): if records.isLive(timer.subject) { close(pool: pool) }
            case .jars: if records.isLive(timer.subject) { Cookies.expireJars(now: now, in: &records) }
            case .isolation(let id):
                if let worker = Workers.isolationEnded(of: id, now: now, in: &records) { end(silent: worker, now: now) }
            case .suspicion(let name, let deaths): suspicionEnded(name, deaths: deaths)
            case .heartbeat(let id): heartbeat(of: id, now: now)
            case .rates: if records.isLive(timer.subject) { Rates.divide(now: now, in: &records) }
            }
        }
    }

    /// Applies changed limits. State above a lowered limit drains. O(origins and clients).
    public mutating func limitsChanged(_ limits: CoreLimits, now: Tick) {
        let before = self.limits
        self.limits = limits
        records.outcomes.limits = OutcomeStore.Limits(limits)
        records.governor.limits = OriginGovernor.Limits(limits)
        records.workers.limits = WorkerFleet.Limits(limits)
        records.pools.limits = WorkerPools.Limits(limits)
        records.durables.limits = DurableBook.Limits(limits)
        Principals.limitsChanged(in: &records)
        if limits.origins != before.origins { Origins.applyRules(now: now, in: &records) }
        if limits.rate != before.rate || limits.origins != before.origins {
            Rates.limitsChanged(now: now, in: &records)
        }
        if limits.coolDownMilliseconds != before.coolDownMilliseconds { Origins.endRefusals(in: &records) }
        if limits.cookieMilliseconds != before.cookieMilliseconds { Cookies.expireJars(now: now, in: &records) }
        if limits.durableMilliseconds != before.durableMilliseconds { Durable.resetExpiries(in: &records) }
    }

    /// Starts no more transfers. Running ones end, and clients request the others from the next broker.
    public mutating func drain() {
        guard !records.isDraining else { return }
        records.isDraining = true
        for client in records.clients.indices where !records.clients[client].isGone {
            records.send(.goodbye(reason: "draining"), to: client)
        }
        // The supervisor itself ends its child workers, so they get no DRAIN. A node still reads the bodies of results that
        // other nodes have for it.
        for worker in records.workers.drain(except: Cluster.nodePool(in: &records))
        where records.workers[worker].isOwn && records.workers[worker].hearsDrain {
            records.outbox.actions.append(.worker(.send(records.workers[worker].id, .drain)))
        }
    }

    private mutating func gracePassed(_ reference: GenerationalHandle<Interest>) {
        guard records.isLive(.grace(reference)) else { return }
        let interest = reference.record
        if records.isDoomed(interest) {
            removeRequest(interest)
        } else if records.listeners(of: records.requests[interest].handler).isEmpty {
            orphan(interest)
        } else {
            // It waits for room in the window of a listener, which may leave.
            records.setTimer(
                records.clock.advanced(byMilliseconds: records.limits.graceMilliseconds), .grace(reference))
        }
    }

    /// Ends the grace period of a handler without listeners. The handler's own requests from before the last listener
    /// left are orphaned, in slices if there are many.
    private mutating func handlerAbandoned(_ handler: Handle<HandlerEntry>, _ absence: UInt64, now: Tick) {
        let subject = Timer.Subject.abandoned(handler: handler, absence: absence)
        guard records.isLive(subject), records.listeners(of: handler).isEmpty else { return }
        var budget = max(records.limits.departuresPerPass, 1)
        var next = records.handlers[handler].interests.first
        // The chain is in the order of arrival. Only a repeated durable request has a later generation than its place has.
        while let interest = next, records.requests[interest].generation < absence || records.isDurable(interest) {
            next = records.handlers.request(after: interest)
            guard records.requests[interest].owner == nil, records.requests[interest].phase != .delivering,
                !records.isDurable(interest)
            else {
                continue
            }
            guard budget > 0 else {
                // Later than now, so that it fires in a later pass.
                records.setTimer(now.advanced(byNanoseconds: 1), subject)
                return
            }
            budget -= 1
            // Orphaning the last request frees the handler's record.
            orphan(interest)
        }
    }

    /// Queues a flight whose back-off has ended. Ignores the timer of an earlier back-off.
    private mutating func retryTimerFired(_ name: FlightName) {
        guard let flight = liveFlight(name), let end = records.flights.pauses[flight], end <= records.clock else {
            return
        }
        enqueue(flight: flight)
    }
}
