internal import EarshotHTTP
internal import EarshotWire
internal import HeapModule

/// Timers, and draining. The shell calls `timePassed` in each pass, and `drain` once the broker is to end.
extension BrokerCore {
    /// Handles due timers, at most `CoreLimits.timersPerPass`. The others stay due, as `nextTimer` shows.
    public mutating func timePassed(now: Tick) {
        records.clock = now
        if records.cluster != nil { carryOut(Cluster.timePassed(now: now, in: &records), now: now) }
        if records.queue.coolDownWaits.isBehind { Origins.continueWaits(in: &records) }
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
            case .poolEmpty(let pool, _): if records.isLive(timer.subject) { close(pool: pool) }
            case .jars: if records.isLive(timer.subject) { Cookies.expireJars(now: now, in: &records) }
            case .isolation(let id):
                if let worker = Workers.isolationEnded(of: id, now: now, in: &records) { end(silent: worker, now: now) }
            case .suspicion(let name, let deaths): suspicionEnded(name, deaths: deaths)
            case .heartbeat(let id): heartbeat(of: id, now: now)
            case .rates: if records.isLive(timer.subject) { Rates.divide(now: now, in: &records) }
            }
        }
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
        where records.workers[worker].isOwn && records.workers[worker].acceptsDrain {
            records.outbox.actions.append(.worker(.send(records.workers[worker].id, .drain)))
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
