internal import EarshotHTTP
public import EarshotWire

/// Workers: connection, assignment, reports, and loss.
extension BrokerCore {
    /// Handles a new connection on `work`.
    ///
    /// - Parameters:
    ///   - process: the process at the other end; nil if unknown.
    ///   - isGateway: whether that is a gateway.
    public mutating func workerConnected(
        _ id: WorkerID, process: Int32? = nil, isGateway: Bool = false, now: Tick
    ) {
        workers.connected(id, process: process, isGateway: isGateway, now: now)
    }

    /// Handles the end of a worker's connection. A child process may still run its transfers, so it is killed first.
    /// Its flights are queued again in `workerLost`, after its death.
    public mutating func workerDisconnected(_ id: WorkerID, isProcessAlive: Bool, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        guard isProcessAlive, !workers[worker].isEmpty, !workers[worker].isOwn else {
            workerLost(id, now: now)
            return
        }
        workers.drain(worker)
        actions.append(.worker(.kill(id)))
    }

    /// Handles the loss of a worker's connection or process: queues its flights again.
    ///
    /// - Parameter end: the end of its process; nil if unknown. A worker that was killed from outside makes no flight a
    ///   suspect.
    public mutating func workerLost(_ id: WorkerID, end: WorkerEnd? = nil, now: Tick) {
        workerGone(id, isDeath: end?.isBlameless != true, now: now)
    }

    /// Whether the core needs the end of a worker's process before `workerLost`. Until then the worker gets no jobs.
    public mutating func awaitsEnd(of id: WorkerID) -> Bool {
        guard facilities.isSupervised, let worker = workers.number(of: id), !workers[worker].isOwn,
            !workers[worker].isEmpty
        else { return false }
        workers.drain(worker)
        return true
    }

    private mutating func workerGone(_ id: WorkerID, isDeath: Bool, now: Tick) {
        guard let gone = workers.remove(id) else { return }
        clock = now
        for (attempt, lease) in gone.leases {
            releaseUse(of: lease)
            endTransfer(at: lease.origin, isHigh: lease.isHigh)
            keepPart(of: lease, attempt)
            if cluster != nil { cluster?.value.book.attemptEnded(attempt) }
            guard let flight = lease.flight else { continue }
            ledger.flights.lost += 1
            probeEnded(flight, isAnswered: false)
            if isPulling(flight) {
                missedPull(flight, "worker-lost")
            } else if isDeath, countDeath(against: flight, attempt, in: gone) {
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

    /// Handles a message of a worker. The core owns the inline body from here on.
    public mutating func workerSaid(_ message: WorkerMessage, body: BodyID?, by id: WorkerID, now: Tick) {
        guard let worker = workers.number(of: id) else {
            if let body { actions.append(.spool(.releaseBody(body))) }
            return
        }
        clock = now
        workers.heard(worker, now: now)
        if workers[worker].phase == .joining {
            if let body { actions.append(.spool(.releaseBody(body))) }
            if case .ready(let ready) = message {
                workerReady(ready, worker, now: now)
            } else {
                actions.append(.worker(.send(id, .error(code: "bad-message", detail: "say READY EARW/1 first"))))
            }
            return
        }
        if case .done(let completion) = message {
            attemptDone(completion, body: body, by: worker, now: now)
            return
        }
        if let body { actions.append(.spool(.releaseBody(body))) }
        switch message {
        case .done: break
        case .pong: if let flight = workers.ponged(worker) { flights[flight].isSuspect = false }
        case .ready:
            actions.append(.worker(.send(id, .error(code: "bad-message", detail: "READY was said before"))))
        case .failed(
            let attempt, let code, let detail, let received, let unwanted, let part, let repeats, let retryAfter):
            partTold(part, of: attempt, at: worker)
            countUnwanted(unwanted, of: attempt, at: worker)
            let code = FailureCode(rawValue: code)
            if workers[worker].isOwn {
                ownAttemptFailed(attempt, code, detail, received, by: worker, now: now)
            } else {
                let words = detail == code?.sentence ? nil : detail.map(Self.words)
                attemptFailed(
                    attempt, code ?? .internalError, received, repeats: repeats, detail: words,
                    retryAfter: retryAfter.map { RetryAfter(seconds: Int64($0)) }, by: worker, now: now)
            }
        case .progress(let attempt, let received, let total, let part, let checkpoint):
            partTold(part, of: attempt, at: worker)
            attemptProgressed(attempt, received, total, checkpoint, by: worker, now: now)
        case .slots(let slots): workers.offered(slots, by: worker)
        case .sandbox(let parts): workers.sandboxed(parts, worker)
        case .bye: workerGone(id, isDeath: false, now: now)
        }
    }

    /// Number of workers of http and https that accept jobs. O(workers).
    public var workersTakenIn: Int { workers.indices.count { workers[$0].phase == .ready && !workers[$0].isOwn } }

    /// Handles a message that could not be decoded.
    public mutating func workerSaidNonsense(_ error: WireError, by id: WorkerID, now: Tick) {
        clock = now
        guard let worker = workers.number(of: id) else { return }
        if let attempt = error.attempt {
            let code = workers[worker].isOwn ? FailureCode.workerFailed : .internalError
            attemptFailed(attempt, code, 0, by: worker, now: now)
        }
        guard workers[worker].phase != .joining, workers[worker].isOwn else {
            actions.append(.worker(.send(id, .error(code: error.code.rawValue, detail: error.detail))))
            return
        }
        putOut(worker, error.code.rawValue, error.detail, now: now)
    }

    /// Whether a worker has a lease for this attempt, so that its completion and its file are accepted.
    func holds(_ attempt: AttemptID, _ id: WorkerID) -> Bool { workers.holds(attempt, id) }

    /// Whether any worker runs this attempt. O(workers).
    public func isHeld(_ attempt: AttemptID) -> Bool { workers.isHeld(attempt) }

    private mutating func workerReady(_ ready: Ready, _ worker: Handle<WorkerSession>, now: Tick) {
        let id = workers[worker].id
        let web: Set = ["http", "https"]
        let schemes = Set(ready.schemes)
        guard let principal = principal(of: ready, from: worker) else {
            let detail =
                workers[worker].isGateway
                ? "a connection of the gateway names the principal of a key, and proves it"
                : "only the gateway may name the principal of a worker"
            refuse(worker, "not-authorized", detail, isRemote: true)
            return
        }
        let isRemote = principal != PrincipalTable.administrator
        let isTrusted = !isRemote && (secret.map { secret in ready.secret.map { isSame($0, secret) } ?? false } ?? true)
        guard schemes.isDisjoint(with: web.union([BodyPlace.scheme])) || isTrusted else {
            let reserved = "http, https and \(BodyPlace.scheme) are for the supervisor's children"
            refuse(worker, "not-a-child", reserved, isRemote: isRemote)
            return
        }
        if let bound = remoteBound(of: principal) { return refuse(worker, "limit", bound, isRemote: true) }
        // Workers of http and https serve no other scheme, so that pools share no slots with the web pool.
        let isWeb = schemes.isSuperset(of: web)
        let own = schemes.subtracting(web).sorted()
        guard let served = isWeb ? [WorkerPool.web] : pools.register(own, of: principal) else {
            let most = isRemote ? pools.limits.pools(of: principal) : limits.pools - 1
            let detail = "\(most) schemes may be registered: there is no room for others"
            refuse(worker, "limit", detail, isRemote: isRemote)
            return
        }
        if isRemote { for (scheme, pool) in zip(own, served) { claim(scheme, for: pool, of: principal) } }
        let isDraining = isDraining && !(nodePool.map { served.contains($0) } ?? false)
        workers.joined(
            worker, pools: served, of: principal, slots: ready.slots, pid: ready.pid, hearsDrain: ready.hearsDrain,
            speaksHTTP2: ready.speaksHTTP2, isDraining: isDraining)
        sayLimits(to: worker)
        // A user's own worker may serve the next broker, so it gets DRAIN only on request.
        if isDraining, !workers[worker].isOwn || ready.hearsDrain { actions.append(.worker(.send(id, .drain))) }
        if let process = workers[worker].process { stopAwaiting(process, now: now) }
    }

    /// Refuses a READY. A worker of this machine may send another one; the connection of one that the gateway relays is
    /// closed, since there are few of them.
    private mutating func refuse(_ worker: Handle<WorkerSession>, _ code: String, _ detail: String, isRemote: Bool) {
        let id = workers[worker].id
        actions.append(.worker(.send(id, .error(code: code, detail: detail))))
        guard isRemote else { return }
        actions.append(.worker(.close(id)))
        workerLost(id, now: clock)
    }

    /// Sentence about the bound that another worker of a principal would exceed; nil if there is room.
    private func remoteBound(of principal: Handle<Principal>) -> String? {
        guard principal != PrincipalTable.administrator else { return nil }
        let (own, all) = workers.remoteWorkers(of: principal)
        let most = limits.remoteWorkers / CoreLimits.remoteShare
        if own >= most { return "\(most) workers of one client may be connected" }
        return all < limits.remoteWorkers ? nil : "\(limits.remoteWorkers) workers of other machines may be connected"
    }

    /// Compares two secrets in constant time, so that the duration does not reveal the first difference.
    private func isSame(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count && zip(left.utf8, right.utf8).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
    }

    // MARK: Attempts

    private mutating func attemptDone(
        _ completion: Completion, body: BodyID?, by worker: Handle<WorkerSession>, now: Tick
    ) {
        precondition(body == nil || completion.file == nil, "the body of \(completion.attempt) has two forms")
        if let file = completion.file { outcomes.hold(file: file, bytes: completion.length) }
        guard let lease = endLease(completion.attempt, bodyBytes: completion.length, at: worker) else {
            if let body { actions.append(.spool(.releaseBody(body))) }
            if let file = completion.file { releaseFile(file) }
            return
        }
        var response = Outcome.Response(
            status: completion.status, url: "", length: completion.length, sha256: completion.sha256,
            file: completion.file, body: body, fields: completion.httpFields, startedAt: lease.startedAt, endedAt: now)
        response.isCut = completion.isCut
        if let file = completion.file { outcomes.showFile(file, to: lease.part?.audience ?? .noSession) }
        // The resumed part belongs to this body only if the worker reports `resumed`. The worker may have started
        // another file without reporting it.
        if let told = lease.part?.generation, completion.isResumed || told == completion.attempt {
            response.generation = told
        }
        guard let flight = lease.flight else { return }
        flights[flight].attempts += UInt32(completion.repeats)
        response.url = flights[flight].url.description
        if flights[flight].method == .head { dropBody(of: &response) }
        if completion.isResumed, lease.resumedBytes > 0, let first = lease.part?.fields {
            let latest = completion.httpFields.isEmpty ? nil : HeaderFields(lines: completion.httpFields)
            response.fields = ResumeRule().fields(of: first, completedBy: latest, length: completion.length).bytes
            response.resumedBytes = lease.resumedBytes
        }
        guard response.file == nil || hasRoomInSpool() else {
            drop(response)
            fail(flight, .spoolFull, now: now)
            return
        }
        if isPulling(flight) { pulled(flight, response, now: now) } else { conclude(flight, response, now: now) }
    }

    /// Drops the body of a response to HEAD, which a user's own worker may send.
    private mutating func dropBody(of response: inout Outcome.Response) {
        drop(response)
        (response.body, response.file, response.sha256) = (nil, nil, nil)
        response.length = 0
    }

    /// - Parameters:
    ///   - detail: sentence that replaces the standard sentence of the code; nil for the standard one.
    ///   - retryAfter: pause that a proxy requested; nil for none.
    mutating func attemptFailed(
        _ attempt: AttemptID, _ code: FailureCode, _ received: Int, repeats: Int = 0, detail: String? = nil,
        retryAfter: RetryAfter? = nil, by worker: Handle<WorkerSession>, now: Tick
    ) {
        let isSuspect = workers[worker].leases.flight(of: attempt).map { flights[$0].isSuspect } ?? false
        guard let lease = endLease(attempt, at: worker), let flight = lease.flight else { return }
        guard !isPulling(flight) || code == .tooLarge else {
            pullFailed(flight, code, detail)
            return
        }
        flights[flight].attempts += UInt32(repeats)
        probeEnded(flight, isAnswered: false)
        switch code {
        case .tooLarge:
            if cluster != nil {
                publish(flight, code, nil, allowed: lease.allowedBytes)
                guard !endIfHostedOnly(flight) else { return }
            }
            requeueOrFailTooLarge(flight, allowed: lease.allowedBytes, now: now)
        case .workerLost:
            // The worker is leaving and did not start the job, so the attempt never ran.
            workers.drain(worker)
            flights[flight].isSuspect = isSuspect
            enqueue(flight: flight, first: true)
        case .spoolFull where releaseHeldBodies():
            // Bodies for other nodes have filled the disk below the spool's limit.
            enqueue(flight: flight, first: true)
        default:
            if received > flights[flight].mostReceivedBytes {
                flights[flight].mostReceivedBytes = received
                flights[flight].fruitless = 0
            }
            let judged = chooseVersion(for: flight, after: code, received, at: lease.origin)
            if let retryAfter { cool(flights[flight].scope, asked: retryAfter, now: now) }
            retryOrFail(
                flight, judged, nil, detail: judged == code ? detail : nil, isAskedToWait: retryAfter != nil, now: now)
        }
    }

    /// Chooses the HTTP version of the next attempt after a failed one. An attempt over HTTP/1.1 without a response shows
    /// that the server may speak HTTP/2 only, and is no reason to give up.
    ///
    /// - Returns: the code by which the attempt is judged.
    private mutating func chooseVersion(
        for flight: Handle<Flight>, after code: FailureCode, _ received: Int, at origin: Handle<OriginEntry>
    ) -> FailureCode {
        let isOverHTTP1 =
            flights[flight].avoidsHTTP2 && flights[flight].url.scheme == "https" && governor.origins[origin].allowsHTTP2
        guard isOverHTTP1, received == 0, code.mayComeFromHTTP2 || code == .tls || code == .protocolError else {
            if code.mayComeFromHTTP2 { flights[flight].avoidsHTTP2 = true }
            return code
        }
        flights[flight].avoidsHTTP2 = false
        return code.mayComeFromHTTP2 ? code : .reset
    }

    private mutating func attemptProgressed(
        _ attempt: AttemptID, _ received: Int, _ total: Int?, _ checkpoint: Checkpoint?,
        by worker: Handle<WorkerSession>, now: Tick
    ) {
        guard let lease = workers[worker].leases[attempt], !lease.isCancelling else { return }
        workers.progressed(attempt, received: received, total: total, at: worker)
        let hasRoom = countGrowth(of: attempt, at: worker) || hasRoomInSpool()
        let isWithinQuota = !exceedsQuota(lease)
        guard let flight = lease.flight else { return }
        guard hasRoom, isWithinQuota else {
            cancelAttempt(of: flight, at: worker, isPartKept: false)
            fail(flight, hasRoom ? .quota : .spoolFull, detail: hasRoom ? Self.spoolQuotaDetail : nil, now: now)
            return
        }
        recordPart(of: attempt, flight, checkpoint, at: worker)
        guard let present = workers[worker].leases[attempt] else { return }
        forEachInterest(of: flight) { core, interest in
            guard !core.isDoomed(interest) else { return }
            core.tellProgress(of: interest, present, now: now)
            if !core.pulls.isEmpty { core.pulls.grew(interest) }
        }
    }

    /// Sends the progress of an attempt to the subscribers of a request, at most once per requested interval. A timer
    /// sends what comes within the interval, because no more bytes may come.
    mutating func tellProgress(of interest: Handle<Interest>, _ lease: WorkerLease, now: Tick) {
        let record = interests[interest]
        guard let number = record.extras, let pause = extras[number].progressMilliseconds else { return }
        if let due = extras[number].lastProgress?.advanced(byMilliseconds: pause), now < due {
            guard extras[number].progressTimer != due else { return }
            extras[number].progressTimer = due
            setTimer(due, .progress(interests.reference(to: interest)))
            return
        }
        extras[number].lastProgress = now
        extras[number].progressTimer = nil
        let progress = progress(of: interest, lease)
        for client in listeners(of: record.handler) {
            if progress.file != nil { noteReader(client, ofGrowing: interest) }
            say(.progress(pulls.isEmpty ? progress : pulled(progress, to: client)), to: client)
            clients[client].missedProgress.drop(interest)
        }
    }

    /// Sends the progress that came within the interval of the last one.
    mutating func progressDue(_ reference: GenerationalHandle<Interest>, now: Tick) {
        let interest = reference.record
        guard isLive(.progress(reference)), let number = interests[interest].extras,
            extras[number].progressTimer.map({ $0 <= now }) ?? false, let lease = runningLease(of: interest)
        else { return }
        tellProgress(of: interest, lease, now: now)
    }

    /// Returns the lease of a request's running transfer; nil without one, and for a request that is being removed.
    private func runningLease(of interest: Handle<Interest>) -> WorkerLease? {
        guard interests[interest].phase == .open, !isDoomed(interest),
            case .running(let worker) = flights[leaf(ofOpen: interest)].phase
        else { return nil }
        return workers[worker].leases[attempt(of: leaf(ofOpen: interest))]
    }

    /// Returns the progress of an attempt for the subscribers of a request.
    private func progress(of interest: Handle<Interest>, _ lease: WorkerLease) -> Progress {
        let record = interests[interest]
        var progress = Progress(
            handler: handlers[record.handler].id, request: record.request, received: lease.receivedBytes,
            total: lease.totalBytes, tag: record.extras.flatMap { extras[$0].tag })
        if let number = record.extras, extras[number].streams, let part = lease.part,
            mayRead(part.fields, interest)
        {
            progress.file = workerLimits.spool + "/" + SpoolName.path(part.file)
            progress.generation = Generation(part.generation)
            if !part.fields.isEmpty {
                progress.status = part.status ?? 200
                progress.httpFields = part.fields.bytes
            }
        }
        progress.isResumable = lease.part?.isRecorded ?? false
        return progress
    }

    /// Records a PROGRESS that the socket refused. `tellMissedProgress` sends the state at the time when the socket is
    /// writable.
    public mutating func progressRefused(_ handler: HandlerID, _ request: RequestID, by id: ClientID) {
        guard let client = clients.number(of: id), let handler = handlers.number(of: key(handler, of: client)),
            let interest = listedInterest(request, of: handler),
            clients[client].missedProgress.count < limits.missedProgress
        else { return }
        clients[client].missedProgress[interest] = interests[interest].generation
    }

    /// Sends a client the current progress of transfers whose PROGRESS its socket refused.
    mutating func tellMissedProgress(to client: Handle<ClientSession>) {
        let missed = clients[client].missedProgress.sorted { $0.key < $1.key }
        clients[client].missedProgress = [:]
        for (interest, generation) in missed {
            guard interests.contains(interest), interests[interest].generation == generation,
                listeners(of: interests[interest].handler).contains(client), let lease = runningLease(of: interest)
            else { continue }
            let progress = progress(of: interest, lease)
            if progress.file != nil { noteReader(client, ofGrowing: interest) }
            say(.progress(pulled(progress, to: client)), to: client)
        }
    }

    /// Counts bytes that a worker received after the CANCEL of an attempt. A wrapping sum, because the worker may
    /// report any number.
    private mutating func countUnwanted(_ bytes: Int, of attempt: AttemptID, at worker: Handle<WorkerSession>) {
        guard workers[worker].leases.use(of: attempt) == .cancelling else { return }
        ledger.flights.unwantedBytes = ledger.flights.unwantedBytes.addingReportingOverflow(bytes).partialValue
    }

    /// Ends the lease of a completed attempt.
    ///
    /// - Parameter bodyBytes: length of the body; nil without a response.
    /// - Returns: the lease of a flight's current attempt; nil if the completion is stale or the attempt was cancelled.
    private mutating func endLease(
        _ attempt: AttemptID, bodyBytes: Int? = nil, at worker: Handle<WorkerSession>
    ) -> WorkerLease? {
        // A flight with doomed requests alone cancels the attempt, and nothing repeats it for them.
        if isRemoving, let flight = workers[worker].leases.flight(of: attempt) { removeDoomed(from: flight) }
        let wasIsolated = workers[worker].isolation?.attempt == attempt
        guard let lease = workers.end(attempt, at: worker) else {
            ledger.flights.stale += 1
            return nil
        }
        releaseUse(of: lease)
        if let flight = lease.flight, wasIsolated { flights[flight].isSuspect = false }
        endTransfer(at: lease.origin, isHigh: lease.isHigh, bodyBytes: bodyBytes)
        if !rates.isEmpty { rateEnded(attempt, now: clock) }
        keepPart(of: lease, attempt)
        if cluster != nil { cluster?.value.book.attemptEnded(attempt) }
        return lease.isCancelling ? nil : lease
    }

    /// Cancels the attempt of a flight. Its slot and its origin's place stay taken until the worker confirms.
    ///
    /// - Parameter isPartKept: whether a later flight may resume its part.
    mutating func cancelAttempt(of flight: Handle<Flight>, at worker: Handle<WorkerSession>, isPartKept: Bool = true) {
        let attempt = attempt(of: flight)
        if cluster != nil { clusterCancels(flight, attempt) }
        // Only GET is resumed.
        let isResumable = isPartKept && flights[flight].method == .get && !isPulling(flight)
        let principal = workers[worker].leases[attempt]?.principal ?? PrincipalTable.administrator
        let abandoned =
            isResumable
            ? AbandonedFlight(
                key: flights[flight].key, request: flights[flight].request,
                partKeys: partKeys(of: flight, chargedTo: principal)) : nil
        workers.cancel(attempt, abandoned: abandoned, at: worker)
        ledger.flights.cancelled += 1
        actions.append(.worker(.send(workers[worker].id, .cancel(attempt))))
    }

    /// The current attempt of a running flight.
    @inline(__always)
    func attempt(of flight: Handle<Flight>) -> AttemptID {
        AttemptID(broker: instance, flight: flights[flight].id, attempt: flights[flight].attempts)
    }
}
