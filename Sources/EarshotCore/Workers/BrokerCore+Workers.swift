internal import EarshotHTTP
public import EarshotWire

/// Workers: how they come, what they are given, what they report, how they go.
extension BrokerCore {
    /// A connection on `work` was seen for the first time.
    public mutating func workerConnected(_ id: WorkerID, now: Tick) { workers.connected(id, now: now) }

    /// A worker's connection is gone. A child with transfers that is alive may still run them: it is killed first, and
    /// its flights run elsewhere only after `workerLost`.
    public mutating func workerDisconnected(_ id: WorkerID, isProcessAlive: Bool, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        guard isProcessAlive, !workers[worker].isEmpty, !workers[worker].isOwn else {
            workerLost(id, now: now)
            return
        }
        workers.drain(worker)
        actions.append(.killWorker(id))
    }

    /// A worker's connection or process is gone: its flights are queued again.
    public mutating func workerLost(_ id: WorkerID, now: Tick) {
        workerGone(id, isDeath: true, now: now)
    }

    private mutating func workerGone(_ id: WorkerID, isDeath: Bool, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        clock = now
        for (_, lease) in workers[worker].leasesInOrder {
            if let flight = lease.flight { settlePurges(of: flight) }
        }
        guard let gone = workers.remove(id) else { return }
        // Before anything that follows looks for them.
        for case let identity? in gone.leases.map(\.value.orphan) { _ = adoption.ended(identity) }
        for (attempt, lease) in gone.leases {
            outcomes.filesGrew(by: -lease.growingBytes)
            endTransfer(at: lease.origin, isHigh: lease.isHigh)
            keepPart(of: lease, attempt)
            guard let flight = lease.flight else { continue }
            adoption.attemptEnded(of: flight)
            ledger.flights.lost += 1
            probeEnded(flight, isAnswered: false)
            if isDeath, countDeath(against: flight, attempt, in: gone) {
                fail(flight, .poisonous, now: now)
            } else if !flights[flight].method.isIdempotent {
                // The server may have processed the request, so it is not sent again.
                fail(flight, .workerLost, now: now)
            } else {
                requeue(flight, isDeath: isDeath, now: now)
            }
        }
        for pool in gone.pools { setTimer(pools.leave(pool, now: now)) }
    }

    /// A message of a worker arrived, with its inline body, which the core holds from now on.
    public mutating func workerSaid(_ message: WorkerMessage, body: BodyID?, by id: WorkerID, now: Tick) {
        guard let worker = workers.number(of: id) else {
            if let body { actions.append(.releaseBody(body)) }
            return
        }
        clock = now
        workers.heard(worker, now: now)
        if workers[worker].phase == .joining {
            if let body { actions.append(.releaseBody(body)) }
            if case .ready(let ready) = message {
                workerReady(ready, worker, now: now)
            } else {
                actions.append(.sendWorker(id, .error(code: "bad-message", detail: "say READY EARW/1 first")))
            }
            return
        }
        if case .done(let completion) = message {
            attemptDone(completion, body: body, by: worker, now: now)
            return
        }
        if let body { actions.append(.releaseBody(body)) }
        switch message {
        case .done: break
        case .pong: if let flight = workers.ponged(worker) { flights[flight].isSuspect = false }
        case .ready:
            actions.append(.sendWorker(id, .error(code: "bad-message", detail: "READY was said before")))
        case .holds(let held): attemptHeld(held, by: worker, now: now)
        case .failed(let attempt, let code, let detail, let received, let unwanted, let part):
            partTold(part, of: attempt, at: worker)
            countUnwanted(unwanted, of: attempt, at: worker)
            let code = FailureCode(rawValue: code)
            if workers[worker].isOwn {
                ownAttemptFailed(attempt, code, detail, received, by: worker, now: now)
            } else {
                let words = detail == code?.sentence ? nil : detail.map(Self.words)
                attemptFailed(attempt, code ?? .internalError, received, detail: words, by: worker, now: now)
            }
        case .progress(let attempt, let received, let total, let part):
            partTold(part, of: attempt, at: worker)
            attemptProgressed(attempt, received, total, by: worker, now: now)
        case .slots(let slots): workers.offered(slots, by: worker)
        case .bye: workerGone(id, isDeath: false, now: now)
        }
    }

    /// Workers that may be given work. O(workers).
    public var workersTakenIn: Int { workers.indices.count { workers[$0].phase == .ready } }

    /// A worker's message could not be read.
    public mutating func workerSaidNonsense(_ error: WireError, by id: WorkerID, now: Tick) {
        clock = now
        guard let worker = workers.number(of: id) else { return }
        if let attempt = error.attempt {
            let code = workers[worker].isOwn ? FailureCode.workerFailed : .internalError
            attemptFailed(attempt, code, 0, by: worker, now: now)
        }
        guard workers[worker].phase != .joining, workers[worker].isOwn else {
            actions.append(.sendWorker(id, .error(code: error.code.rawValue, detail: error.detail)))
            return
        }
        putOut(worker, error.code.rawValue, error.detail, now: now)
    }

    /// Whether a worker has a lease for this attempt, so that its completion and file are used.
    public func holds(_ attempt: AttemptID, _ id: WorkerID) -> Bool { workers.holds(attempt, id) }

    /// Whether any worker runs this attempt.
    public func isHeld(_ attempt: AttemptID) -> Bool { workers.isHeld(attempt) }

    private mutating func workerReady(_ ready: Ready, _ worker: Int32, now: Tick) {
        let id = workers[worker].id
        let web: Set = ["http", "https"]
        let schemes = Set(ready.schemes)
        let isTrusted = secret.map { secret in ready.secret.map { isSame($0, secret) } ?? false } ?? true
        guard schemes.isDisjoint(with: web) || isTrusted else {
            let detail = "http and https are for the supervisor's children"
            actions.append(.sendWorker(id, .error(code: "not-a-child", detail: detail)))
            return
        }
        // A worker of http and https serves no other schemes, so that the slots of a pool are its own.
        let isWeb = schemes.isSuperset(of: web)
        guard let served = isWeb ? [WorkerPool.web] : pools.register(schemes.subtracting(web).sorted()) else {
            let detail = "\(limits.pools - 1) schemes may be registered: there is no room for others"
            actions.append(.sendWorker(id, .error(code: "limit", detail: detail)))
            return
        }
        workers.joined(
            worker, pools: served, slots: ready.slots, pid: ready.pid, hearsDrain: ready.hearsDrain,
            speaksHTTP2: ready.speaksHTTP2, isDraining: isDraining)
        sayLimits(to: worker)
        for attempt in ready.holds where attempt.broker != instance {
            let isTold = adoption.isOpen && ready.tellsHolds
            workers.holdsForeign(attempt, isTold: isTold, at: worker)
            if !isTold { actions.append(.sendWorker(id, .cancel(attempt))) }
        }
        if !workers[worker].isEmpty { watch(worker, now: now) }
        // A user's own worker may serve the next broker, so it gets DRAIN only if it asked for it.
        if isDraining, !workers[worker].isOwn || ready.hearsDrain { actions.append(.sendWorker(id, .drain)) }
    }

    /// Compares without telling by its duration where the difference is.
    private func isSame(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count && zip(left.utf8, right.utf8).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
    }

    // MARK: Attempts

    private mutating func attemptDone(_ completion: Completion, body: BodyID?, by worker: Int32, now: Tick) {
        if let file = completion.file { outcomes.hold(file: file, bytes: completion.length) }
        settlePurges(of: completion.attempt, at: worker)
        guard let lease = endLease(completion.attempt, at: worker) else {
            if let body { actions.append(.releaseBody(body)) }
            if let file = completion.file { releaseFile(file) }
            return
        }
        var response = Outcome.Response(
            status: completion.status, url: "", length: completion.length, sha256: completion.sha256,
            file: body == nil ? completion.file : nil, body: body, copy: body == nil ? nil : completion.file,
            fields: completion.httpFields, startedAt: lease.startedAt, endedAt: now)
        response.isCut = completion.isCut
        if lease.heldAt != nil {
            response.endedAt = min(now, lease.startedAt.advanced(byMilliseconds: completion.elapsedMilliseconds))
        }
        // What was given to go on with is of this body only if the worker says so; of another file it may not have told.
        if let told = lease.part?.generation, completion.isResumed || told == completion.attempt {
            response.generation = told
        }
        guard let flight = lease.flight else {
            if let identity = lease.orphan { orphanEnded(identity, response) }
            return
        }
        response.url = flights[flight].url.description
        if flights[flight].method == .head { dropBody(of: &response) }
        if isTooOld(response, of: lease, for: flight) {
            probeEnded(flight, isAnswered: false)
            useAsStored(response, for: flight)
            return
        }
        if completion.isResumed, lease.isResuming, let first = lease.part?.fields {
            let latest = completion.httpFields.isEmpty ? nil : HeaderFields(lines: completion.httpFields)
            response.fields = ResumeRule().fields(of: first, completedBy: latest, length: completion.length).bytes
            response.isResumed = true
        }
        if let copy = response.copy, !hasRoomInSpool() {
            releaseFile(copy)
            response.copy = nil
        }
        guard response.file == nil || hasRoomInSpool() else {
            drop(response)
            fail(flight, .spoolFull, now: now)
            return
        }
        conclude(flight, response, now: now)
    }

    /// The answer to HEAD has no body, whatever a worker sends.
    private mutating func dropBody(of response: inout Outcome.Response) {
        drop(response)
        (response.body, response.file, response.copy, response.sha256) = (nil, nil, nil, nil)
        response.length = 0
    }

    /// - Parameter detail: a sentence that tells more than the code's own; nil for that one.
    mutating func attemptFailed(
        _ attempt: AttemptID, _ code: FailureCode, _ received: Int, detail: String? = nil, by worker: Int32, now: Tick
    ) {
        settlePurges(of: attempt, at: worker)
        let isSuspect = workers[worker].leases.flight(of: attempt).map { flights[$0].isSuspect } ?? false
        guard let lease = endLease(attempt, at: worker) else { return }
        guard let flight = lease.flight else {
            // The next request for an orphan starts a new attempt.
            if let identity = lease.orphan { _ = adoption.ended(identity) }
            return
        }
        probeEnded(flight, isAnswered: false)
        switch code {
        case .tooLarge: requeueOrFailTooLarge(flight, allowed: lease.allowedBytes, now: now)
        case .workerLost:
            // It leaves and took nothing: the attempt never ran.
            workers.drain(worker)
            flights[flight].isSuspect = isSuspect
            enqueue(flight: flight, first: true)
        default:
            if received > flights[flight].mostReceivedBytes {
                flights[flight].mostReceivedBytes = received
                flights[flight].fruitless = 0
            }
            if code.mayComeFromHTTP2 { flights[flight].avoidsHTTP2 = true }
            retryOrFail(flight, code, nil, detail: detail, now: now)
        }
    }

    private mutating func attemptProgressed(
        _ attempt: AttemptID, _ received: Int, _ total: Int?, by worker: Int32, now: Tick
    ) {
        guard let lease = workers[worker].leases[attempt], !lease.isCancelling else { return }
        workers.progressed(attempt, received: received, total: total, at: worker)
        let hasRoom = countGrowth(of: attempt, at: worker) || hasRoomInSpool()
        guard let flight = lease.flight else {
            if let identity = lease.orphan, !hasRoom, let orphan = adoption.giveUp(identity) { end(orphan) }
            return
        }
        guard hasRoom else {
            settlePurges(of: flight)
            guard workers[worker].leases.flight(of: attempt) == flight else { return }
            cancelAttempt(of: flight, at: worker, isPartKept: false)
            fail(flight, .spoolFull, now: now)
            return
        }
        guard let present = workers[worker].leases[attempt] else { return }
        forEachInterest(of: flight) { core, interest in
            guard !core.isPurged(interest) else { return }
            core.tellProgress(of: interest, present, now: now)
        }
    }

    /// Tells those who listen for a request how far its attempt is.
    mutating func tellProgress(of interest: Int32, _ lease: WorkerLease, now: Tick) {
        let record = interests[interest]
        guard record.extras >= 0, let pause = extras[record.extras].progressMilliseconds else { return }
        if let last = extras[record.extras].lastProgress, now.milliseconds(since: last) < pause { return }
        extras[record.extras].lastProgress = now
        let progress = progress(of: interest, lease)
        for client in listeners(of: record.handler) where !clients[client].isRequestReply {
            say(.progress(progress), to: client)
            clients[client].missedProgress.drop(interest)
        }
    }

    /// How far an attempt is, for one who asked to be told.
    private func progress(of interest: Int32, _ lease: WorkerLease) -> Progress {
        let record = interests[interest]
        var progress = Progress(
            handler: handlers[record.handler].id, request: record.request, received: lease.receivedBytes,
            total: lease.totalBytes, tag: extras[record.extras].tag)
        if extras[record.extras].streams, let part = lease.part, !isToBeGiven(to: interest, lease.totalBytes) {
            progress.file = workerLimits.spool + "/" + part.file
            progress.generation = Generation(part.generation)
        }
        return progress
    }

    /// The socket did not take a PROGRESS: what is true when it takes messages again is said then.
    public mutating func progressRefused(_ handler: HandlerID, _ request: RequestID, by id: ClientID) {
        guard let client = clientNumbers[id], let handler = handlerNumbers[handler],
            let interest = listedInterest(request, of: handler),
            clients[client].missedProgress.count < limits.missedProgress
        else { return }
        clients[client].missedProgress[interest] = interests[interest].serial
    }

    /// Tells a client how far the transfers are whose progress it missed.
    mutating func tellMissedProgress(to client: Int32) {
        let missed = clients[client].missedProgress.sorted { $0.key < $1.key }
        clients[client].missedProgress = [:]
        for (interest, serial) in missed {
            guard interests.contains(interest), interests[interest].serial == serial,
                interests[interest].phase == .open, !isPurged(interest),
                listeners(of: interests[interest].handler).contains(client),
                case .running(let worker) = flights[leaf(of: interests[interest].flight)].phase,
                let lease = workers[worker].leases[attempt(of: leaf(of: interests[interest].flight))]
            else { continue }
            say(.progress(progress(of: interest, lease)), to: client)
        }
    }

    /// What nobody wants any more has no outcome: its attempt is cancelled, if late, before it ends.
    private mutating func settlePurges(of attempt: AttemptID, at worker: Int32) {
        guard !purging.isEmpty, let flight = workers[worker].leases.flight(of: attempt) else { return }
        settlePurges(of: flight)
    }

    /// Counts bytes that a worker reports of an attempt being cancelled. It may report any number.
    private mutating func countUnwanted(_ bytes: Int, of attempt: AttemptID, at worker: Int32) {
        guard workers[worker].leases.use(of: attempt) == .cancelling else { return }
        ledger.flights.unwantedBytes = ledger.flights.unwantedBytes.addingReportingOverflow(bytes).partialValue
    }

    /// Ends a worker's lease of an attempt.
    ///
    /// - Returns: the lease of a flight's current attempt or of an orphan; nil if the completion is stale.
    private mutating func endLease(_ attempt: AttemptID, at worker: Int32) -> WorkerLease? {
        let wasIsolated = workers[worker].isolation?.attempt == attempt
        guard let lease = workers.end(attempt, at: worker) else {
            if !workers.endForeign(attempt, at: worker) { ledger.flights.stale += 1 }
            return nil
        }
        outcomes.filesGrew(by: -lease.growingBytes)
        if let flight = lease.flight {
            if wasIsolated { flights[flight].isSuspect = false }
            adoption.attemptEnded(of: flight)
        }
        endTransfer(at: lease.origin, isHigh: lease.isHigh)
        keepPart(of: lease, attempt)
        return lease.isCancelling ? nil : lease
    }

    /// Cancels the attempt of a flight. Slot and origin stay taken until the worker confirms.
    ///
    /// - Parameter isPartKept: whether a later flight may resume its part.
    mutating func cancelAttempt(of flight: Int32, at worker: Int32, isPartKept: Bool = true) {
        let attempt = attempt(of: flight)
        adoption.attemptEnded(of: flight)
        // Only GET is resumed.
        let isResumable = isPartKept && flights[flight].method == .get
        let abandoned = isResumable ? AbandonedFlight(key: flights[flight].key, request: flights[flight].request) : nil
        workers.cancel(attempt, abandoned: abandoned, at: worker)
        ledger.flights.cancelled += 1
        actions.append(.sendWorker(workers[worker].id, .cancel(attempt)))
    }

    /// The attempt of a flight that runs.
    @inline(__always)
    func attempt(of flight: Int32) -> AttemptID {
        adoption.attempt(of: flight)
            ?? AttemptID(broker: instance, flight: flights[flight].id, attempt: flights[flight].attempts)
    }
}
