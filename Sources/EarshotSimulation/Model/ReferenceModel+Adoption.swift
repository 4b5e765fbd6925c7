internal import EarshotCore
internal import EarshotWire

/// A broker's life after another's: what workers still fetch, and who goes on with it.
extension ReferenceModel {
    /// A new life begins.
    func begins(expectedWorkers: Int, until: Tick, now: Tick) {
        adoptionEnd = now.advanced(byMilliseconds: limits.adoptionMilliseconds)
        awaited = (expectedWorkers, until)
        ownWorkersAwaitedUntil = now.advanced(byMilliseconds: Trial.ownWorkersMilliseconds)
    }

    /// Whether something may start: all workers were heard, and have told of all they hold, or were awaited long
    /// enough.
    var isOpen: Bool {
        guard let awaited else { return true }
        return awaited.count == 0 && pool.values.allSatisfy { !$0.isReady || $0.isOwn || $0.foreign.isEmpty }
    }

    /// A pass ends: once all workers were heard, those that die later are not awaited again.
    func countWorkers() {
        let known = pool.values.count { $0.isReady && !$0.isOwn }
        guard let awaited, !isDraining, known >= awaited.count else { return }
        self.awaited?.count = 0
    }

    /// A worker tells of an attempt of an earlier life.
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

    /// A flight wants a worker: one may be at it already.
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

    /// What came before anybody asked goes to those who asked since.
    func useAnswers() {
        while let flight = answeredBefore.popLast() {
            guard flight.phase == .waiting, case .answered(let completion, let body, let end)? = orphans[flight.content]
            else { continue }
            orphans[flight.content] = nil
            guard isAsWished(completion, body, for: flight) else { continue }
            guard wasWanted(flight, at: end) else {
                blame = 1
                continue
            }
            flight.attempts += 1
            var answer = completion
            // Nobody gave it anything to go on with.
            answer.isResumed = false
            answered(flight, answer, body, hasRetried: false)
        }
    }

    /// Whether all who wait want the body in the form in which it came before they asked.
    func isAsWished(_ completion: Completion, _ body: BodyID?, for flight: FlightRecord) -> Bool {
        var isFit = true
        flight.forEachRequest { request in
            let options = request.fetch.options
            guard !options.isWarm else { return }
            if options.delivery == .file, body != nil { isFit = false }
            if options.delivery == .inline, options.maxBytes != 0, completion.file != nil { isFit = false }
        }
        return isFit
    }

    /// Whether all requests of a flight had been made when an answer to an earlier broker was whole: invariant 1.
    private func wasWanted(_ flight: FlightRecord, at end: Tick) -> Bool {
        var isOlder = flight.isWanted
        flight.forEachRequest { if $0.askedAt > end { isOlder = false } }
        return isOlder
    }

    /// When an answer was whole, by what its worker says.
    private func end(of completion: Completion, startedAt start: Tick) -> Tick {
        min(now, start.advanced(byMilliseconds: completion.elapsedMilliseconds))
    }

    /// Whether an answer was whole before its worker told of it, and before requests of its flight were made.
    func isTooOld(_ completion: Completion, of lease: PoolRecord.Lease, for flight: FlightRecord) -> Bool {
        guard let (start, heldAt) = lease.held else { return false }
        let end = end(of: completion, startedAt: start)
        return end <= heldAt && !wasWanted(flight, at: end)
    }

    /// An attempt that nobody asked for came to its end: what may be an answer to somebody is kept.
    func orphanEnded(_ lease: PoolRecord.Lease, _ answer: (Completion, BodyID?)?) {
        orphans[lease.content] = nil
        guard let (completion, body) = answer, completion.status < 400, let (start, _) = lease.held else { return }
        orphans[lease.content] = .answered(completion, body, at: end(of: completion, startedAt: start))
    }

    /// Nobody asked in time.
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

    /// The largest body that its requests allow; nil for any.
    func largestSize(of flight: FlightRecord) -> Int? {
        var largest: Int? = 0
        flight.forEachRequest { request in
            let limit = request.fetch.options.maxBytes
            largest = if let limit, let known = largest { max(known, limit) } else { nil }
        }
        return largest
    }
}
