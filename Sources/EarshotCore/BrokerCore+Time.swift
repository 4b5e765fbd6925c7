internal import EarshotHTTP
internal import EarshotWire
internal import HeapModule

/// Timers, and draining. The shell calls `timePassed` in each pass, and `beginDraining` once the broker is to end.
extension BrokerCore {
    /// Handles due timers, at most `CoreLimits.maximumTimersPerPass`. The others stay due, as `nextTimer` shows.
    public mutating func timePassed(now: MonotonicTime) {
        records.latestEventTime = now
        if records.clusterState != nil { executeEffects(Cluster.timePassed(now: now, in: &records), now: now) }
        if records.queue.coolDownWaits.hasPendingChecks { Origins.checkNextSliceOfWaits(in: &records) }
        var budget = max(records.limits.maximumTimersPerPass, 1)
        while budget > 0, let timer = records.outbox.timers.min, timer.dueAt <= now {
            budget -= 1
            records.outbox.timers.removeMin()
            switch timer.timerEvent {
            case .requestDeadline(let interest):
                if records.isTimerCurrent(timer.timerEvent) {
                    endSingleRequest(interest.record, .deadlineExceeded, now: now)
                }
            case .coolDownWaitEnd(let interest):
                if records.isTimerCurrent(timer.timerEvent),
                    let failure = Origins.coolDownWaitEnded(interest.record, now: now, in: &records)
                {
                    endSingleRequest(interest.record, failure, now: now)
                }
            case .nextProgressMessage(let interest): progressTimerFired(interest, now: now)
            case .heldOutcomeGraceEnd(let interest): outcomeHoldExpired(interest)
            case .subscriberAbsenceEnd(let handler, let absence): handlerGraceExpired(handler, absence, now: now)
            case .durableRequestExpiry(let interest, _):
                if records.isTimerCurrent(timer.timerEvent) { requestRetentionExpired(interest, now: now) }
            case .backOffEnd(let name): retryTimerFired(name)
            case .earlierWorkersWaitEnd: processWaitTimedOut(now: now)
            case .slowStartStep(let origin, _):
                if records.isTimerCurrent(timer.timerEvent) {
                    Origins.slowStartStep(of: origin, now: now, in: &records)
                }
            case .spoolRetry: records.outcomes.allowSpoolRetry()
            case .coolDownEnd(let scope, _):
                if records.isTimerCurrent(timer.timerEvent) { Origins.coolDownPauseEnded(scope, in: &records) }
            case .originSpacingEnd(let origin, _):
                if records.isTimerCurrent(timer.timerEvent) { Origins.pauseEnded(at: origin, in: &records) }
            case .helloTimeout(let client): Clients.helloTimedOut(client, in: &records)
            case .sessionLeaseEnd(let client, _):
                if records.isTimerCurrent(timer.timerEvent) { endSession(client, now: now) }
            case .stallWatchEnd(let client, _):
                if records.isTimerCurrent(timer.timerEvent) { Delivery.stallWatchEnded(client, in: &records) }
            case .emptyPoolGraceEnd(let pool, _): if records.isTimerCurrent(timer.timerEvent) { close(pool: pool) }
            case .cookieJarExpiry:
                if records.isTimerCurrent(timer.timerEvent) { Cookies.expireJars(now: now, in: &records) }
            case .isolationEnd(let id):
                if let worker = Workers.isolationTimerFired(of: id, now: now, in: &records) {
                    endUnresponsiveWorker(worker, now: now)
                }
            case .suspectWaitEnd(let name, let deaths): suspectTimedOut(name, deaths: deaths)
            case .heartbeatCheck(let id): heartbeatTimerFired(of: id, now: now)
            case .rateDivision:
                if records.isTimerCurrent(timer.timerEvent) { Rates.divideRates(now: now, in: &records) }
            }
        }
    }

    /// Starts no more transfers. Running ones end, and clients request the others from the next broker.
    public mutating func beginDraining() {
        guard !records.isDraining else { return }
        records.isDraining = true
        for client in records.clients.handles where !records.clients[client].hasEnded {
            records.sendMessage(.goodbye(reason: "draining"), to: client)
        }
        // The supervisor itself ends its child workers, so they get no DRAIN. A node still reads the bodies of results
        // that other nodes have for it.
        for worker in records.workers.drainAll(except: Cluster.nodePool(in: &records))
        where records.workers[worker].isUserProvided && records.workers[worker].acceptsDrain {
            records.outbox.actions.append(.worker(.send(records.workers[worker].id, .drain)))
        }
    }

    /// Queues a flight whose back-off has ended. Ignores the timer of an earlier back-off.
    private mutating func retryTimerFired(_ name: FlightName) {
        guard let flight = liveFlight(name), let end = records.flights.backOffEnds[flight],
            end <= records.latestEventTime
        else {
            return
        }
        enqueueFlight(flight)
    }
}
