internal import EarshotCore
internal import EarshotWire

/// Takeover from an earlier broker: attempts that workers still run, and the requests that adopt them.
extension ReferenceModel {
    /// Starts the adoption period of a new broker.
    func begins(expectedWorkers: Int, until: Tick, now: Tick) {
        adoptionEnd = now.advanced(byMilliseconds: limits.adoptionMilliseconds)
        awaited = (expectedWorkers, until)
        ownWorkersAwaitedUntil = now.advanced(byMilliseconds: Trial.ownWorkersMilliseconds)
    }

    /// Whether transfers may start: all workers have reported all attempts they hold, or the waiting time has expired.
    var isOpen: Bool {
        guard let awaited else { return true }
        return awaited.count == 0 && pool.values.allSatisfy { !$0.isReady || $0.isOwn || $0.foreign.isEmpty }
    }

    /// Whether workers are still to come before anything starts.
    var awaitsWorkers: Bool { awaited.map { $0.count > 0 } ?? false }

    /// Called at the end of a pass. Once all expected workers have connected, workers that die later are not awaited
    /// again.
    func countWorkers() {
        let known = pool.values.count { $0.isReady && !$0.isOwn }
        guard let awaited, !isDraining, known >= awaited.count else { return }
        self.awaited?.count = 0
    }

    /// Handles a worker's report of an earlier broker's attempt.
    func told(_ held: HeldAttempt, by worker: PoolRecord) {
        worker.untold.remove(held.attempt)
        guard worker.foreign.contains(held.attempt), !isDraining, !worker.isOwn, adoptionEnd != nil, held.flight != nil,
            let content = inherited[held.attempt], orphans[content] == nil
        else { return }
        let flight = openFlights[content]
        if case .running? = flight?.phase { return }
        worker.foreign.remove(held.attempt)
        let start = now.advanced(byMilliseconds: -held.elapsedMilliseconds)
        let origin = content.job.origin
        origins[origin, default: OriginRecord(origin, limits.origins)].started(isHigh: false, now: start)
        var lease = PoolRecord.Lease(
            origin: origin, isHigh: false, maxBytes: held.maxBytes, content: content, isResuming: false)
        lease.isOrphan = true
        lease.held = (start, now)
        worker.leases[held.attempt] = lease
        orphans[content] = .running(worker.id, held.attempt)
        partTold(held.part, of: held.attempt, at: worker)
        if let flight, [.waiting, .pausing].contains(flight.phase) {
            adopt(flight)
            raise(flight, to: largestSize(of: flight))
        }
    }

    /// Lets a new flight adopt a running attempt for the same content.
    func adopt(_ flight: FlightRecord) {
        switch orphans[flight.content] {
        case .running(let id, let attempt):
            orphans[flight.content] = nil
            pool[id]?.leases[attempt]?.isOrphan = false
            pool[id]?.leases[attempt]?.flight = flight
            flight.phase = .running(id)
            flight.attempts += 1
            flight.attempt = attempt
            flight.isReturned = false
            flight.maxBytes = pool[id]?.leases[attempt]?.maxBytes
            scopes[ScopeName(flight.content.job)]?.adopt(now: now)
        case .answered: answeredBefore.append(flight)
        case nil: break
        }
    }

    /// Delivers responses that arrived before the requests for them.
    func useAnswers() {
        while let flight = answeredBefore.popLast() {
            guard flight.phase == .waiting, case .answered(let completion, let body, let end)? = orphans[flight.content]
            else { continue }
            orphans[flight.content] = nil
            guard wasWanted(flight, at: end) else {
                blame = 1
                continue
            }
            flight.attempts += 1
            var answer = completion
            // This broker gave it no partial body to resume.
            answer.isResumed = false
            answered(flight, answer, body, hasRetried: false)
        }
    }

    /// Returns whether all requests of a flight existed when the response to an earlier broker was complete: invariant
    /// 1.
    private func wasWanted(_ flight: FlightRecord, at end: Tick) -> Bool {
        var isOlder = flight.isWanted
        flight.forEachRequest { if $0.askedAt > end { isOlder = false } }
        return isOlder
    }

    /// Returns when a response was complete, according to its worker.
    private func end(of completion: Completion, startedAt start: Tick) -> Tick {
        min(now, start.advanced(byMilliseconds: completion.elapsedMilliseconds))
    }

    /// Returns whether a response was complete before its worker reported the attempt, and before requests of its
    /// flight existed.
    func isTooOld(_ completion: Completion, of lease: PoolRecord.Lease, for flight: FlightRecord) -> Bool {
        guard let (start, heldAt) = lease.held else { return false }
        let end = end(of: completion, startedAt: start)
        return end <= heldAt && !wasWanted(flight, at: end)
    }

    /// Handles the end of an attempt without a request. A usable response is kept.
    func orphanEnded(_ lease: PoolRecord.Lease, _ answer: (Completion, BodyID?)?) {
        orphans[lease.content] = nil
        guard let (completion, body) = answer, completion.status < 400, let (start, _) = lease.held else { return }
        orphans[lease.content] = .answered(completion, body, at: end(of: completion, startedAt: start))
    }

    /// Ends the adoption period: unclaimed attempts are cancelled.
    func adoptionEnded() {
        adoptionEnd = nil
        for orphan in orphans.values {
            guard case .running(let id, let attempt) = orphan else { continue }
            pool[id]?.leases[attempt]?.isOrphan = false
            owedCancellations.insert(attempt)
        }
        orphans = [:]
        answeredBefore = []
        for worker in pool.values { worker.untold = [] }
    }

    /// Returns the largest body size that the flight's requests permit; nil for no limit.
    func largestSize(of flight: FlightRecord) -> Int? {
        var largest: Int? = 0
        flight.forEachRequest { request in
            let limit = request.fetch.options.maxBytes
            largest = if let limit, let known = largest { max(known, limit) } else { nil }
        }
        return largest
    }
}
