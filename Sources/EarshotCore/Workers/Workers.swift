internal import EarshotHTTP
internal import EarshotWire

/// Workers: choice for a transfer, limits, reports and liveness.
enum Workers {
    /// The worker for the next transfer of an origin. It is the worker of the last transfer, whose connections are
    /// open, unless another has many more free slots. Transfers of large bodies are spread evenly, as are jobs of
    /// users' own workers.
    @inline(__always)
    static func nextWorker(for origin: Handle<OriginEntry>, in records: inout Records) -> Handle<WorkerSession>? {
        let pool = records.originGovernor.origins[origin].workerPool
        let isGathered = records.originGovernor.origins[origin].hadSmallLatestBody && pool == WorkerPool.webPoolHandle
        return records.workers.nextWorker(
            of: pool, preferring: records.originGovernor.origins[origin].latestWorker,
            freeSlotLead: isGathered ? records.limits.freeSlotLeadToSwitchWorker : 0)
    }

    /// Adds the lease of an attempt that begins, and starts the heartbeat timer of its worker, unless it runs.
    static func addLease(
        _ attempt: AttemptID, _ lease: WorkerLease, at worker: Handle<WorkerSession>, now: MonotonicTime,
        in records: inout Records
    ) {
        records.workers.addLease(of: attempt, lease, at: worker)
        if let end = records.workers.startHeartbeat(of: worker, now: now) {
            records.setTimer(at: end, for: .heartbeatCheck(records.workers[worker].id))
        }
        records.ledger.flights.assignedAttempts += 1
    }

    /// Raises the size limit of a running attempt to that of its newest request.
    static func raiseSizeLimit(
        _ flight: Handle<Flight>, at worker: Handle<WorkerSession>, to maximumBodyBytes: Int?, in records: inout Records
    ) {
        let attempt = records.currentAttempt(of: flight)
        guard records.workers.raiseSizeLimit(of: attempt, to: maximumBodyBytes, at: worker) else { return }
        records.outbox.actions.append(
            .worker(.send(records.workers[worker].id, .raiseBodyLimit(attempt, maximumBodyBytes: maximumBodyBytes))))
    }

    /// Logs the assignment of an attempt. Not inlined, because few brokers log attempts.
    @inline(never)
    static func logAssignment(of job: Job, for flight: Handle<Flight>, to worker: WorkerID, in records: inout Records) {
        let first = records.flights.firstInterest(of: flight)
        let assigned = AttemptAssignment(
            attempt: job.attempt, worker: worker, url: job.url,
            handler: first.map { records.handlers[records.requests[$0].handler].id },
            request: first.map { records.requests[$0].request })
        records.outbox.actions.append(.log(.attemptAssigned(assigned)))
    }

    // MARK: Limits

    /// Sentence about the bound that another worker of a principal would exceed; nil if there is room.
    static func remoteWorkerLimitText(of principal: Handle<Principal>, in records: inout Records) -> String? {
        guard principal != PrincipalTable.administrator else { return nil }
        let (own, all) = records.workers.remoteWorkerCounts(of: principal)
        let most = records.limits.maximumRemoteWorkers / records.limits.remoteWorkerShareDivisor
        if own >= most { return "\(most) workers of one client may be connected" }
        return all < records.limits.maximumRemoteWorkers
            ? nil : "\(records.limits.maximumRemoteWorkers) workers of other machines may be connected"
    }

    /// Sends all workers their limits.
    static func sendLimits(in records: inout Records) {
        for worker in records.workers.indices where records.workers[worker].phase != .joining {
            sendLimits(to: worker, in: &records)
        }
    }

    /// Sends a worker its limits. A user's own worker decides its number of slots itself.
    static func sendLimits(to worker: Handle<WorkerSession>, in records: inout Records) {
        var limits = records.workerLimits
        if records.workers[worker].isUserProvided {
            limits.slots = nil
            // It may open any file for its work, unless it reads bodies of other nodes.
            let puller = records.workerPools.openPool(for: BodyAddress.scheme, of: PrincipalTable.administrator)
            if puller.map({ !records.workers[worker].pools.contains($0) }) ?? true { limits.sandboxSetting = 1 }
        }
        if records.workers[worker].isRemote { limits = limits.forRemoteWorker }
        records.workers.limitsAnnounced(slots: limits.slots, to: worker)
        records.outbox.actions.append(.worker(.send(records.workers[worker].id, .limits(limits))))
    }

    // MARK: Reports

    /// Counts bytes that a worker received after the CANCEL of an attempt. A wrapping sum, because the worker may
    /// report any number.
    static func countBytesAfterCancel(
        _ bytes: Int, of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) {
        guard records.workers[worker].leases.leaseUse(of: attempt) == .cancelling else { return }
        records.ledger.flights.bytesAfterCancel =
            records.ledger.flights.bytesAfterCancel.addingReportingOverflow(bytes).partialValue
    }

    /// Drops the body of a response to HEAD, which a user's own worker may send.
    static func discardHeadResponseBody(of response: inout Outcome.Response, in records: inout Records) {
        records.releaseResponse(response)
        (response.body, response.sha256) = (nil, nil)
        response.bodyLength = 0
    }

    /// Chooses the HTTP version of the next attempt after a failed one. An attempt over HTTP/1.1 without a response
    /// shows that the server may speak HTTP/2 only, and is no reason to give up.
    ///
    /// - Returns: the code by which the attempt is judged.
    static func chooseHTTPVersion(
        for flight: Handle<Flight>, after code: FailureCode, _ received: Int, at origin: Handle<OriginEntry>,
        in records: inout Records
    ) -> FailureCode {
        let isOverHTTP1 =
            records.flights[flight].avoidsHTTP2 && records.flights[flight].url.scheme == "https"
            && records.originGovernor.origins[origin].allowsHTTP2
        guard isOverHTTP1, received == 0, code.mayBeCausedByHTTP2 || code == .tls || code == .protocolError else {
            if code.mayBeCausedByHTTP2 { records.flights[flight].avoidsHTTP2 = true }
            return code
        }
        records.flights[flight].avoidsHTTP2 = false
        return code.mayBeCausedByHTTP2 ? code : .connectionReset
    }

    /// The failure of an attempt that a worker has reported by a word, which it may have invented.
    static func failureCode(
        _ word: String, of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) -> FailureCode {
        let code = FailureCode(rawValue: word)
        guard records.workers[worker].isUserProvided else { return code ?? .internalError }
        // Reads from another node are made by a process of this bus.
        let isPull =
            records.workers[worker].leases.flight(of: attempt).map { records.isReadingBodyFromNode($0) } ?? false
        return code.flatMap { isPull || codesOfUserWorkers.contains($0) ? $0 : nil } ?? .workerFailed
    }

    /// Codes that a user's own worker may report. Any other becomes `worker-failed`, with the worker's detail.
    private static let codesOfUserWorkers: Set<FailureCode> = [
        .connectRefused, .connectFailed, .unknownHost, .dnsFailed, .timeout, .connectTimeout, .tooLarge, .tls,
        .truncated, .connectionReset, .malformedURL, .badHeader, .unsupportedMethod, .protocolError, .encodingError,
        .spoolFull, .spoolFailed, .workerLost,
    ]

    // MARK: Liveness

    /// Handles the heartbeat timer of a worker: sends a PING to a silent one.
    ///
    /// - Returns: the worker if it did not answer one in time, and the time of the next timer. It must end.
    static func heartbeatTimerFired(
        of id: WorkerID, now: MonotonicTime, in records: inout Records
    ) -> (silent: Handle<WorkerSession>, next: MonotonicTime)? {
        guard let worker = records.workers.handle(of: id) else { return nil }
        switch records.workers.heartbeatTimerFired(of: worker, now: now) {
        case .noTransfers: return nil
        case .checkAgain(let end):
            records.setTimer(at: end, for: .heartbeatCheck(id))
            return nil
        case .sendPing(let end):
            records.outbox.actions.append(.worker(.send(id, .ping)))
            records.setTimer(at: end, for: .heartbeatCheck(id))
            return nil
        case .unresponsive(let end): return (worker, end)
        }
    }
}

/// Pools of workers: their schemes, and the times for which requests wait for a worker.
extension Workers {
    /// Whether requests of a principal for URLs of a scheme are accepted, even if no worker is connected yet.
    static func acceptsScheme(_ scheme: String, of principal: Handle<Principal>, in records: inout Records) -> Bool {
        guard records.workerPools.openPool(for: scheme, of: principal) == nil else { return true }
        guard let absence = records.workerPools.openPoolAwaitingWorker(scheme, now: records.latestEventTime) else {
            return false
        }
        setAbsenceTimer(absence, in: &records)
        return true
    }

    /// The pool for requests of a principal.
    ///
    /// - Precondition: `acceptsScheme` is true for the URL's scheme, or the URL is of http or https.
    @inline(__always)
    static func pool(
        for url: FetchURL, of interest: Handle<Interest>, in records: inout Records
    ) -> Handle<WorkerPool> {
        url.isHTTP
            ? WorkerPool.webPoolHandle : openSchemePool(for: url, of: records.principal(of: interest), in: &records)
    }

    @inline(never)
    private static func openSchemePool(
        for url: FetchURL, of principal: Handle<Principal>, in records: inout Records
    ) -> Handle<WorkerPool> {
        guard let pool = records.workerPools.openPool(for: String(url.scheme), of: principal) else {
            preconditionFailure("\(url.scheme) has no pool")
        }
        return pool
    }

    /// Removes a worker that is gone from its pools.
    static func removeWorkerFromPools(_ pools: [Handle<WorkerPool>], now: MonotonicTime, in records: inout Records) {
        for pool in pools { setAbsenceTimer(records.workerPools.removeWorker(pool, now: now), in: &records) }
    }

    private static func setAbsenceTimer(_ absence: WorkerPools.WorkerAbsence?, in records: inout Records) {
        if let absence {
            records.setTimer(
                at: absence.endsAt, for: .emptyPoolGraceEnd(pool: absence.pool, absence: absence.timerSerial))
        }
    }

    /// The next queued interest of a closed pool whose client's window is open; nil if there is none.
    static func nextInterestToFail(of pool: Handle<WorkerPool>, in records: inout Records) -> Handle<Interest>? {
        // A copy for the closure, which runs while the queue is mutated. It ends before the failure changes a client,
        // so the shared storage is not duplicated.
        let clients = records.clients
        return records.queue.nextStartable(in: pool, onlyHighPriority: false) { _, client, _, _ in
            if let client, clients[client].deliveries.isClosed { .fullClientWindow } else { .none }
        }
    }
}
