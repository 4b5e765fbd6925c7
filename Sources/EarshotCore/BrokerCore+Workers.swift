internal import EarshotHTTP
public import EarshotWire

/// Events of workers and of their files: connection, reports, loss, and the ends of attempts. `Workers` has the rules.
extension BrokerCore {
    /// Handles a new connection on the socket `work`.
    ///
    /// - Parameters:
    ///   - process: the process at the other end; nil if unknown.
    ///   - isGateway: whether that is a gateway.
    public mutating func workerConnected(
        _ id: WorkerID, process: Int32? = nil, isGateway: Bool = false, now: MonotonicTime
    ) {
        records.workers.addConnectedWorker(id, process: process, isGateway: isGateway, now: now)
    }

    /// Handles the end of a worker's connection. A child process may still run its transfers, so it is killed first.
    /// Its flights are queued again in `workerLost`, after its death.
    public mutating func workerDisconnected(_ id: WorkerID, isProcessAlive: Bool, now: MonotonicTime) {
        guard let worker = records.workers.handle(of: id) else { return }
        guard isProcessAlive, !records.workers[worker].hasNoTransfers, !records.workers[worker].isUserProvided else {
            workerLost(id, now: now)
            return
        }
        records.workers.drain(worker)
        records.outbox.actions.append(.worker(.kill(id)))
    }

    /// Handles the loss of a worker's connection or process: queues its flights again.
    ///
    /// - Parameter end: the end of its process; nil if unknown. A worker that was killed from outside makes no flight a
    ///   suspect.
    public mutating func workerLost(_ id: WorkerID, end: WorkerExit? = nil, now: MonotonicTime) {
        removeWorker(id, isDeath: end?.wasKilledFromOutside != true, now: now)
    }

    /// Whether the core needs the end of a worker's process before `workerLost`. Until then the worker gets no jobs.
    public mutating func awaitsProcessEnd(of id: WorkerID) -> Bool {
        guard records.shellFeatures.isSupervised, let worker = records.workers.handle(of: id),
            !records.workers[worker].isUserProvided, !records.workers[worker].hasNoTransfers
        else { return false }
        records.workers.drain(worker)
        return true
    }

    private mutating func removeWorker(_ id: WorkerID, isDeath: Bool, now: MonotonicTime) {
        guard let gone = records.workers.remove(id) else { return }
        records.latestEventTime = now
        for (attempt, lease) in gone.leases {
            Principals.transferEnded(lease, in: &records)
            Origins.transferEnded(at: lease.origin, isHigh: lease.isHighPriority, in: &records)
            Parts.attemptEnded(attempt, lease, in: &records)
            reportFlightEvent(.attemptEnded(attempt))
            guard let flight = lease.flight else { continue }
            records.ledger.flights.lostAttempts += 1
            Origins.probeEnded(flight, isAnswered: false, in: &records)
            if records.isReadingBodyFromNode(flight) {
                nodeBodyReadFailed(for: flight, reason: "worker-lost")
            } else if isDeath, Workers.countWorkerDeath(against: flight, attempt, from: gone, in: &records) {
                failFlight(flight, .poisonRequest, now: now)
            } else if !records.flights[flight].method.isIdempotent {
                // The server may have processed the request, so it is not sent again.
                failFlight(flight, .workerLost, now: now)
            } else {
                requeueFlight(flight, isDeath: isDeath, now: now)
            }
        }
        Workers.removeWorkerFromPools(gone.servedPools, now: now, in: &records)
    }

    /// Handles a message of a worker. The core owns the inline body from here on.
    public mutating func workerMessageReceived(
        _ message: WorkerMessage, body: BodyID?, from id: WorkerID, now: MonotonicTime
    ) {
        guard let worker = records.workers.handle(of: id) else { return releaseBody(body) }
        records.latestEventTime = now
        records.workers.messageReceived(from: worker, now: now)
        let isJoining = records.workers[worker].phase == .joining
        if !isJoining, case .completed(let completion) = message {
            attemptDone(completion, body: body, by: worker, now: now)
            return
        }
        releaseBody(body)
        switch message {
        case .ready(let ready) where isJoining: workerReady(ready, worker, now: now)
        case _ where isJoining: sendError("bad-message", "send READY EARW/1 first", to: worker)
        case .completed: break
        case .pong:
            if let flight = records.workers.pongReceived(from: worker) {
                records.flights[flight].isSuspectedOfWorkerDeath = false
            }
        case .ready: sendError("bad-message", "READY was already sent", to: worker)
        case .failed(
            let attempt, let word, let detail, let received, let unwanted, let part, let repeats, let retryAfter):
            Parts.bodyPartReported(part, of: attempt, at: worker, in: &records)
            Workers.countBytesAfterCancel(unwanted, of: attempt, at: worker, in: &records)
            let isOwn = records.workers[worker].isUserProvided
            let code = Workers.failureCode(word, of: attempt, at: worker, in: &records)
            let isStandard = !isOwn && detail == FailureCode(rawValue: word)?.userMessage
            attemptFailed(
                attempt, code, received, repeats: isOwn ? 0 : repeats,
                detail: isStandard ? nil : detail.map(Outcome.truncatedPeerDetail),
                retryAfter: isOwn ? nil : retryAfter.map { RetryAfter(seconds: Int64($0)) }, by: worker, now: now)
        case .progress(let attempt, let received, let total, let part, let checkpoint):
            Parts.bodyPartReported(part, of: attempt, at: worker, in: &records)
            attemptProgressed(attempt, received, total, checkpoint, by: worker, now: now)
        case .slots(let slots): records.workers.slotsOffered(slots, by: worker)
        case .sandbox(let parts): records.workers.setSandbox(parts, of: worker)
        case .bye: removeWorker(id, isDeath: false, now: now)
        }
    }

    private mutating func releaseBody(_ body: BodyID?) {
        if let body { records.outbox.appendAction(.spool(.releaseBody(body))) }
    }

    mutating func sendError(_ code: String, _ detail: String, to worker: Handle<WorkerSession>) {
        records.outbox.appendAction(.worker(.send(records.workers[worker].id, .error(code: code, detail: detail))))
    }

    /// Number of workers of http and https that accept jobs. O(workers).
    public var acceptingWorkerCount: Int {
        records.workers.indices.count { records.workers[$0].phase == .ready && !records.workers[$0].isUserProvided }
    }

    /// Handles a message that could not be decoded.
    public mutating func malformedWorkerMessageReceived(_ error: WireError, from id: WorkerID, now: MonotonicTime) {
        records.latestEventTime = now
        guard let worker = records.workers.handle(of: id) else { return }
        if let attempt = error.attempt {
            let code = Workers.failureCode("", of: attempt, at: worker, in: &records)
            attemptFailed(attempt, code, 0, by: worker, now: now)
        }
        guard records.workers[worker].phase != .joining, records.workers[worker].isUserProvided else {
            return sendError(error.code.rawValue, error.detail, to: worker)
        }
        disconnectForViolation(worker, error.code.rawValue, error.detail, now: now)
    }

    /// Whether any worker runs this attempt. O(workers).
    public func isAttemptRunning(_ attempt: AttemptID) -> Bool { records.workers.hasLeaseAtAnyWorker(attempt) }

    private mutating func workerReady(_ ready: Ready, _ worker: Handle<WorkerSession>, now: MonotonicTime) {
        let id = records.workers[worker].id
        let web: Set = ["http", "https"]
        let schemes = Set(ready.schemes)
        guard let principal = Principals.principal(of: ready, from: worker, in: &records) else {
            let detail =
                records.workers[worker].isGateway
                ? "a connection of the gateway names the principal of a key, and proves it"
                : "only the gateway may name the principal of a worker"
            refuseReady(of: worker, "not-authorized", detail, isRemote: true)
            return
        }
        let isRemote = principal != PrincipalTable.administrator
        func hasSupervisorSecret() -> Bool {
            guard let workerSecret else { return true }
            return ready.supervisorSecret.map { ConstantTime.isEqual($0.utf8, workerSecret.utf8) } ?? false
        }
        let isTrusted = !isRemote && hasSupervisorSecret()
        guard schemes.isDisjoint(with: web.union([BodyAddress.scheme])) || isTrusted else {
            let reserved = "http, https and \(BodyAddress.scheme) are for the supervisor's children"
            refuseReady(of: worker, "not-a-child", reserved, isRemote: isRemote)
            return
        }
        if let bound = Workers.remoteWorkerLimitText(of: principal, in: &records) {
            return refuseReady(of: worker, "limit", bound, isRemote: true)
        }
        // Workers of http and https serve no other scheme, so that pools share no slots with the web pool.
        let isWeb = schemes.isSuperset(of: web)
        let own = schemes.subtracting(web).sorted()
        guard
            let served = isWeb
                ? [WorkerPool.webPoolHandle] : records.workerPools.addWorker(servingSchemes: own, of: principal)
        else {
            let most =
                isRemote
                ? records.workerPools.limits.maximumPools(of: principal) : records.limits.maximumWorkerPools - 1
            let detail = "\(most) schemes may be registered: there is no room for others"
            refuseReady(of: worker, "limit", detail, isRemote: isRemote)
            return
        }
        if isRemote {
            for (scheme, pool) in zip(own, served) { moveQueuedRequests(ofScheme: scheme, to: pool, of: principal) }
        }
        let isDraining = records.isDraining && !(Cluster.nodePool(in: &records).map { served.contains($0) } ?? false)
        records.workers.workerJoined(
            worker, pools: served, of: principal, slots: ready.slots, pid: ready.pid, acceptsDrain: ready.acceptsDrain,
            speaksHTTP2: ready.speaksHTTP2, isDraining: isDraining)
        Workers.sendLimits(to: worker, in: &records)
        // A user's own worker may serve the next broker, so it gets DRAIN only on request.
        if isDraining, !records.workers[worker].isUserProvided || ready.acceptsDrain {
            records.outbox.actions.append(.worker(.send(id, .drain)))
        }
        if let process = records.workers[worker].peerProcess { stopAwaitingProcess(process, now: now) }
    }

    /// Refuses a READY. A worker of this machine may send another one. The core closes the connection of a worker that
    /// the gateway relays, because there are few such connections.
    private mutating func refuseReady(
        of worker: Handle<WorkerSession>, _ code: String, _ detail: String, isRemote: Bool
    ) {
        guard !isRemote else { return disconnectForViolation(worker, code, detail, now: records.latestEventTime) }
        sendError(code, detail, to: worker)
    }

    // MARK: Attempts

    private mutating func attemptDone(
        _ completion: Completion, body: BodyID?, by worker: Handle<WorkerSession>, now: MonotonicTime
    ) {
        precondition(body == nil || completion.fileName == nil, "the body of \(completion.attempt) has two forms")
        if let file = completion.fileName { records.outcomes.retainFile(file, bytes: completion.bodyByteCount) }
        guard let lease = endLease(completion.attempt, bodyBytes: completion.bodyByteCount, at: worker) else {
            releaseBody(body)
            if let file = completion.fileName { records.releaseSpoolFile(file) }
            return
        }
        var response = Outcome.Response(
            status: completion.status, url: "", bodyLength: completion.bodyByteCount, sha256: completion.sha256,
            body: body.map { .inline($0) } ?? completion.fileName.map { .file($0) },
            headerFields: completion.httpFields, startedAt: lease.startedAt, endedAt: now)
        response.isBodyOmitted = completion.isBodyOmitted
        if let file = completion.fileName {
            records.outcomes.extendFileAudience(file, to: lease.partFile?.fileAudience ?? .knownToNoSession)
        }
        // The resumed part belongs to this body only if the worker reports `resumed`. The worker may have started
        // another file without reporting it.
        if let known = lease.partFile?.generation, completion.isResumed || known == completion.attempt {
            response.bodyGeneration = known
        }
        guard let flight = lease.flight else { return }
        records.flights[flight].assignedAttemptCount += UInt32(completion.repeatCount)
        response.url = records.flights[flight].url.description
        if records.flights[flight].method == .head { Workers.discardHeadResponseBody(of: &response, in: &records) }
        if completion.isResumed, lease.resumedBytes > 0, let first = lease.partFile?.responseFields {
            let latest = completion.httpFields.isEmpty ? nil : HeaderFields(lines: completion.httpFields)
            response.headerFields =
                ResumeRule().mergedFields(of: first, completedBy: latest, length: completion.bodyByteCount).bytes
            response.resumedBytes = lease.resumedBytes
        }
        guard response.bodyFile == nil || makeRoomInSpool() else {
            records.releaseResponse(response)
            failFlight(flight, .spoolFull, now: now)
            return
        }
        if records.isReadingBodyFromNode(flight) {
            nodeBodyReceived(for: flight, response, now: now)
        } else {
            responseReceived(for: flight, response, now: now)
        }
    }

    /// Handles the failure of an attempt.
    ///
    /// - Parameters:
    ///   - detail: sentence that replaces the standard sentence of the code; nil for the standard one.
    ///   - retryAfter: pause that a proxy requested; nil for none.
    mutating func attemptFailed(
        _ attempt: AttemptID, _ code: FailureCode, _ received: Int, repeats: Int = 0, detail: String? = nil,
        retryAfter: RetryAfter? = nil, by worker: Handle<WorkerSession>, now: MonotonicTime
    ) {
        let isSuspect =
            records.workers[worker].leases.flight(of: attempt).map { records.flights[$0].isSuspectedOfWorkerDeath }
            ?? false
        guard let lease = endLease(attempt, at: worker), let flight = lease.flight else { return }
        guard !records.isReadingBodyFromNode(flight) || code == .tooLarge else {
            Cluster.pullFailed(flight, code, detail, in: &records)
            reclaimFlight(flight)
            return
        }
        records.flights[flight].assignedAttemptCount += UInt32(repeats)
        Origins.probeEnded(flight, isAnswered: false, in: &records)
        switch code {
        case .tooLarge:
            let outcome = Outcome.failure(code, of: flight, in: &records)
            reportAttemptFailure(
                of: flight, records.outcomes.insertWithOneReference(outcome), allowed: lease.jobMaximumBytes)
            guard !endFlightIfHostedOnly(flight) else { return }
            performStep(
                Flights.bodyExceededLimit(flight, allowed: lease.jobMaximumBytes, in: &records), of: flight, now: now)
        case .workerLost:
            // The worker is leaving and did not start the job, so the attempt never ran.
            records.workers.drain(worker)
            records.flights[flight].isSuspectedOfWorkerDeath = isSuspect
            enqueueFlight(flight, first: true)
        case .spoolFull where Cluster.releaseHeldBodies(in: &records):
            // Bodies for other nodes have filled the disk below the spool's limit.
            enqueueFlight(flight, first: true)
        default:
            Flights.attemptReceived(received, of: flight, in: &records)
            let judged = Workers.chooseHTTPVersion(for: flight, after: code, received, at: lease.origin, in: &records)
            if let retryAfter {
                Origins.beginCoolDown(
                    records.flights[flight].originScope, retryAfter: retryAfter, now: now, in: &records)
            }
            let step = Flights.attemptFailed(
                flight, judged, detail: judged == code ? detail : nil, isPauseRequested: retryAfter != nil, now: now,
                in: &records)
            performStep(step, of: flight, now: now)
        }
    }

    private mutating func attemptProgressed(
        _ attempt: AttemptID, _ received: Int, _ total: Int?, _ checkpoint: Checkpoint?,
        by worker: Handle<WorkerSession>, now: MonotonicTime
    ) {
        guard let lease = records.workers[worker].leases[attempt], !lease.isCancelling else { return }
        records.workers.recordProgress(of: attempt, received: received, total: total, at: worker)
        let hasRoom = Spool.countFileGrowth(of: attempt, at: worker, in: &records) || makeRoomInSpool()
        let isWithinQuota = !Principals.exceedsSpoolByteQuota(lease, in: &records)
        guard let flight = lease.flight else { return }
        guard hasRoom, isWithinQuota else {
            cancelAttempt(of: flight, at: worker, isPartKept: false)
            failFlight(
                flight, hasRoom ? .quotaExceeded : .spoolFull, detail: hasRoom ? QuotaRefusalText.spoolFull : nil,
                now: now)
            return
        }
        Parts.bodyProgressed(attempt, of: flight, checkpoint, at: worker, in: &records)
        guard let present = records.workers[worker].leases[attempt] else { return }
        forEachInterest(of: flight) { core, interest in
            guard !core.records.isAwaitingRemoval(interest) else { return }
            core.sendProgress(of: interest, present, now: now)
            if !core.records.bodyPulls.isEmpty { core.records.bodyPulls.bodyGrew(interest) }
        }
    }

    /// Ends the lease of a completed attempt.
    ///
    /// - Parameter bodyBytes: length of the body; nil without a response.
    /// - Returns: the lease of a flight's current attempt; nil if the completion is stale or the attempt was cancelled.
    private mutating func endLease(
        _ attempt: AttemptID, bodyBytes: Int? = nil, at worker: Handle<WorkerSession>
    ) -> WorkerLease? {
        // The removal of the last request cancels the attempt, so that it is not repeated for doomed requests.
        if hasPendingRemovals, let flight = records.workers[worker].leases.flight(of: attempt) {
            removeDoomedRequests(from: flight)
        }
        let wasIsolated = records.workers[worker].suspectIsolation?.attempt == attempt
        guard let lease = records.workers.endLease(of: attempt, at: worker) else {
            records.ledger.flights.staleCompletions += 1
            return nil
        }
        Principals.transferEnded(lease, in: &records)
        if let flight = lease.flight, wasIsolated { records.flights[flight].isSuspectedOfWorkerDeath = false }
        Origins.transferEnded(at: lease.origin, isHigh: lease.isHighPriority, bodyBytes: bodyBytes, in: &records)
        if !records.rateShares.isEmpty { Rates.attemptEnded(attempt, now: records.latestEventTime, in: &records) }
        Parts.attemptEnded(attempt, lease, in: &records)
        reportFlightEvent(.attemptEnded(attempt))
        return lease.isCancelling ? nil : lease
    }

    /// Cancels the attempt of a flight. Its slots at the worker and at the origin stay taken until the worker confirms.
    ///
    /// - Parameter isPartKept: whether a later flight may resume its part.
    mutating func cancelAttempt(of flight: Handle<Flight>, at worker: Handle<WorkerSession>, isPartKept: Bool = true) {
        let attempt = records.currentAttempt(of: flight)
        reportFlightEvent(.attemptCancelled(flight, attempt))
        // Only GET is resumed.
        let isResumable = isPartKept && records.flights[flight].method == .get && !records.isReadingBodyFromNode(flight)
        let principal = records.workers[worker].leases[attempt]?.principal ?? PrincipalTable.administrator
        let abandoned =
            isResumable
            ? CancelledAttemptFlight(
                key: records.flights[flight].key, request: records.flights[flight].request,
                partKeys: Parts.partKeys(of: flight, chargedTo: principal, in: &records))
            : nil
        records.workers.cancelAttempt(attempt, abandoned: abandoned, at: worker)
        records.ledger.flights.cancelled += 1
        records.outbox.actions.append(.worker(.send(records.workers[worker].id, .cancelAttempt(attempt))))
    }

    // MARK: Log

    /// Starts or stops the log of attempts.
    public mutating func setLogsAttempts(_ isLogging: Bool) { records.shellFeatures.isLoggingAttempts = isLogging }

    // MARK: Liveness

    /// Handles the heartbeat timer of a worker. Ends a worker that did not answer.
    mutating func heartbeatTimerFired(of id: WorkerID, now: MonotonicTime) {
        guard let (worker, next) = Workers.heartbeatTimerFired(of: id, now: now, in: &records) else { return }
        endUnresponsiveWorker(worker, now: now)
        if records.workers.handle(of: id) != nil { records.setTimer(at: next, for: .heartbeatCheck(id)) }
    }

    /// Disconnects a user's own worker that did not answer a PING in time, or has the shell kill a child process.
    mutating func endUnresponsiveWorker(_ worker: Handle<WorkerSession>, now: MonotonicTime) {
        guard records.workers[worker].isUserProvided else {
            records.outbox.actions.append(.worker(.kill(records.workers[worker].id)))
            return
        }
        disconnectForViolation(worker, "silent", "a PING was not answered in time", now: now)
    }
}

/// Events of files: the work that precedes a message or the loss of a worker, and parts that the shell has moved.
extension BrokerCore {
    /// Begins a message of a worker with the work on files that precedes `workerMessageReceived`. O(1), but for a BYE.
    public mutating func fileWork(before message: WorkerMessage, by worker: WorkerID) -> WorkerFileOperations {
        Spool.fileOperations(before: message, by: worker, in: &records)
    }

    /// Begins the loss of a worker whose process has ended, with the work on files that precedes it.
    public mutating func fileWork(beforeLossOf worker: WorkerID) -> WorkerFileOperations {
        Spool.fileOperations(beforeLossOf: worker, in: &records)
    }

    /// Handles the rename of a file of a worker that ends the attempt or has died.
    ///
    /// - Parameter bytes: length of the file.
    public mutating func partFileKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) {
        Parts.partFileRenamed(attempt, bytes: bytes, by: id, in: &records)
    }

    /// Handles the move of a part from the folder of parts to the file of an attempt whose JOB follows.
    ///
    /// - Parameter isVerified: whether all bytes count. Otherwise the worker compares their hash before it uses them.
    public mutating func storedPartFound(
        _ part: PartDescription, bytes: Int, isVerified: Bool = true, for attempt: AttemptID, by id: WorkerID
    ) {
        Parts.storedPartMovedToAttempt(part, bytes: bytes, isVerified: isVerified, for: attempt, by: id, in: &records)
    }

    /// Releases bodies for other nodes until the spool is within its limit. Returns whether it is.
    mutating func makeRoomInSpool() -> Bool {
        while !Spool.isWithinLimit(in: &records), Cluster.releaseHeldBody(in: &records) {}
        return Spool.isWithinLimit(in: &records)
    }
}
