internal import EarshotHTTP
internal import EarshotWire

/// Workers: choice for a transfer, limits, reports and liveness.
enum Workers {
    /// The worker for the next transfer of an origin. It is the one of the last transfer, whose connections are open, if
    /// the others have few free slots more. Transfers of large bodies are spread evenly, as are jobs of users' own workers.
    @inline(__always)
    static func nextWorker(for origin: Handle<OriginEntry>, in records: inout Records) -> Handle<WorkerSession>? {
        let pool = records.governor.origins[origin].pool
        let isGathered = records.governor.origins[origin].hasSmallBodies && pool == WorkerPool.web
        return records.workers.nextWorker(
            of: pool, preferring: records.governor.origins[origin].lastWorker,
            lead: isGathered ? records.limits.workerLead : 0)
    }

    /// Adds the lease of an attempt that begins, and starts the heartbeat timer of its worker, unless it runs.
    static func attemptStarted(
        _ attempt: AttemptID, _ lease: WorkerLease, at worker: Handle<WorkerSession>, now: Tick,
        in records: inout Records
    ) {
        records.workers.start(attempt, lease, at: worker)
        if let end = records.workers.watch(worker, now: now) {
            records.setTimer(end, .heartbeat(records.workers[worker].id))
        }
        records.ledger.flights.assigned += 1
    }

    /// Raises the size limit of a running attempt to that of its newest request.
    static func raise(
        _ flight: Handle<Flight>, at worker: Handle<WorkerSession>, to maxBytes: Int?, in records: inout Records
    ) {
        let attempt = records.attempt(of: flight)
        guard records.workers.raise(attempt, to: maxBytes, at: worker) else { return }
        records.outbox.actions.append(.worker(.send(records.workers[worker].id, .raise(attempt, maxBytes: maxBytes))))
    }

    /// Logs the assignment of an attempt. Not inlined, because few brokers log attempts.
    @inline(never)
    static func log(_ job: Job, of flight: Handle<Flight>, to worker: WorkerID, in records: inout Records) {
        let first = records.flights.firstInterest(of: flight)
        let assigned = AssignedAttempt(
            attempt: job.attempt, worker: worker, url: job.url,
            handler: first.map { records.handlers[records.requests[$0].handler].id },
            request: first.map { records.requests[$0].request })
        records.outbox.actions.append(.log(.assigned(assigned)))
    }

    // MARK: Limits

    /// Sentence about the bound that another worker of a principal would exceed; nil if there is room.
    static func remoteBound(of principal: Handle<Principal>, in records: inout Records) -> String? {
        guard principal != PrincipalTable.administrator else { return nil }
        let (own, all) = records.workers.remoteWorkers(of: principal)
        let most = records.limits.remoteWorkers / records.limits.remoteShare
        if own >= most { return "\(most) workers of one client may be connected" }
        return all < records.limits.remoteWorkers
            ? nil : "\(records.limits.remoteWorkers) workers of other machines may be connected"
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
        if records.workers[worker].isOwn {
            limits.slots = nil
            // It may open any file for its work, unless it reads bodies of other nodes.
            let puller = records.pools.open(for: BodyAddress.scheme, of: PrincipalTable.administrator)
            if puller.map({ !records.workers[worker].pools.contains($0) }) ?? true { limits.sandbox = 1 }
        }
        if records.workers[worker].isRemote { limits = limits.withoutFiles }
        records.workers.announced(slots: limits.slots, to: worker)
        records.outbox.actions.append(.worker(.send(records.workers[worker].id, .limits(limits))))
    }

    // MARK: Reports

    /// Counts bytes that a worker received after the CANCEL of an attempt. A wrapping sum, because the worker may
    /// report any number.
    static func countUnwanted(
        _ bytes: Int, of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) {
        guard records.workers[worker].leases.use(of: attempt) == .cancelling else { return }
        records.ledger.flights.unwantedBytes =
            records.ledger.flights.unwantedBytes.addingReportingOverflow(bytes).partialValue
    }

    /// Drops the body of a response to HEAD, which a user's own worker may send.
    static func dropBody(of response: inout Outcome.Response, in records: inout Records) {
        records.drop(response)
        (response.body, response.sha256) = (nil, nil)
        response.length = 0
    }

    /// Chooses the HTTP version of the next attempt after a failed one. An attempt over HTTP/1.1 without a response shows
    /// that the server may speak HTTP/2 only, and is no reason to give up.
    ///
    /// - Returns: the code by which the attempt is judged.
    static func chooseVersion(
        for flight: Handle<Flight>, after code: FailureCode, _ received: Int, at origin: Handle<OriginEntry>,
        in records: inout Records
    ) -> FailureCode {
        let isOverHTTP1 =
            records.flights[flight].avoidsHTTP2 && records.flights[flight].url.scheme == "https"
            && records.governor.origins[origin].allowsHTTP2
        guard isOverHTTP1, received == 0, code.mayComeFromHTTP2 || code == .tls || code == .protocolError else {
            if code.mayComeFromHTTP2 { records.flights[flight].avoidsHTTP2 = true }
            return code
        }
        records.flights[flight].avoidsHTTP2 = false
        return code.mayComeFromHTTP2 ? code : .reset
    }

    /// The failure of an attempt that a worker has reported by a word, which it may have invented.
    static func code(
        _ word: String, of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) -> FailureCode {
        let code = FailureCode(rawValue: word)
        guard records.workers[worker].isOwn else { return code ?? .internalError }
        // Reads from another node are made by a process of this bus.
        let isPull = records.workers[worker].leases.flight(of: attempt).map { records.isPulling($0) } ?? false
        return code.flatMap { isPull || ownCodes.contains($0) ? $0 : nil } ?? .workerFailed
    }

    /// Codes that a user's own worker may report. Any other becomes `worker-failed`, with the worker's detail.
    private static let ownCodes: Set<FailureCode> = [
        .connectRefused, .connectFailed, .unknownHost, .dnsFailed, .timeout, .connectTimeout, .tooLarge, .tls,
        .truncated,
        .reset, .malformedURL, .badHeader, .unsupportedMethod, .protocolError, .encodingError, .spoolFull, .spoolFailed,
        .workerLost,
    ]

    // MARK: Liveness

    /// Handles the heartbeat timer of a worker: sends a PING to a silent one.
    ///
    /// - Returns: the worker if it did not answer one in time, and the time of the next timer. It must end.
    static func heartbeat(
        of id: WorkerID, now: Tick, in records: inout Records
    ) -> (silent: Handle<WorkerSession>, next: Tick)? {
        guard let worker = records.workers.handle(of: id) else { return nil }
        switch records.workers.heartbeat(of: worker, now: now) {
        case .idle: return nil
        case .waiting(let end):
            records.setTimer(end, .heartbeat(id))
            return nil
        case .pinging(let end):
            records.outbox.actions.append(.worker(.send(id, .ping)))
            records.setTimer(end, .heartbeat(id))
            return nil
        case .silent(let end): return (worker, end)
        }
    }
}

/// Pools of workers: their schemes, and the times for which requests wait for a worker.
extension Workers {
    /// Whether requests of a principal for URLs of a scheme are accepted, even if no worker is connected yet.
    static func accepts(_ scheme: String, of principal: Handle<Principal>, in records: inout Records) -> Bool {
        guard records.pools.open(for: scheme, of: principal) == nil else { return true }
        guard let absence = records.pools.openAwaited(scheme, now: records.clock) else { return false }
        setTimer(absence, in: &records)
        return true
    }

    /// The pool for requests of a principal.
    ///
    /// - Precondition: `accepts` is true for the URL's scheme, or the URL is of http or https.
    @inline(__always)
    static func pool(
        for url: FetchURL, of interest: Handle<Interest>, in records: inout Records
    ) -> Handle<WorkerPool> {
        url.isHTTP ? WorkerPool.web : ownPool(for: url, of: records.principal(of: interest), in: &records)
    }

    @inline(never)
    private static func ownPool(
        for url: FetchURL, of principal: Handle<Principal>, in records: inout Records
    ) -> Handle<WorkerPool> {
        guard let pool = records.pools.open(for: String(url.scheme), of: principal) else {
            preconditionFailure("\(url.scheme) has no pool")
        }
        return pool
    }

    /// Removes a worker that is gone from its pools.
    static func leavePools(_ pools: [Handle<WorkerPool>], now: Tick, in records: inout Records) {
        for pool in pools { setTimer(records.pools.removeWorker(pool, now: now), in: &records) }
    }

    private static func setTimer(_ absence: WorkerPools.Absence?, in records: inout Records) {
        if let absence { records.setTimer(absence.end, .poolEmpty(pool: absence.pool, absence: absence.serial)) }
    }

    /// The next queued interest of a closed pool whose client's window is open; nil if there is none.
    static func nextFailure(of pool: Handle<WorkerPool>, in records: inout Records) -> Handle<Interest>? {
        // A copy for the closure, which runs while the queue is mutated. It ends before the failure changes a client, so
        // the shared storage is not duplicated.
        let clients = records.clients
        return records.queue.next(in: pool, isForHigh: false) { _, client, _, _ in
            if let client, clients[client].deliveries.isClosed { .client } else { .none }
        }
    }
}
