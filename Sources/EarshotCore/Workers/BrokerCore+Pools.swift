internal import EarshotHTTP
internal import EarshotWire

/// Pools: passes events to `WorkerPools`, and fails the requests of closed pools.
extension BrokerCore {
    /// Accepts requests for schemes without workers until `limit`.
    public mutating func awaitOwnWorkers(until limit: Tick) { pools.awaitOwnWorkers(until: limit) }

    /// Whether requests of a principal for URLs of a scheme are accepted, even if no worker is connected yet.
    mutating func takes(_ scheme: String, of principal: Handle<Principal>) -> Bool {
        guard pools.open(for: scheme, of: principal) == nil else { return true }
        guard let absence = pools.openAwaited(scheme, now: clock) else { return false }
        setTimer(absence)
        return true
    }

    /// Moves requests of a principal that wait for the first worker of a scheme since the start of the broker to the
    /// pool of its own worker. None has started, so all are in the queue. O(flights), once for each worker.
    mutating func claim(_ scheme: String, for pool: Handle<WorkerPool>, of principal: Handle<Principal>) {
        guard let undecided = pools.undecided(scheme) else { return }
        for flight in flights.indices where self.pool(of: flight) == undecided && flights[flight].phase == .queued {
            let interests = flights.interests(of: flight).filter { queue.contains($0) }
            guard let first = interests.first, self.principal(of: first) == principal else { continue }
            for interest in interests { queue.remove(interest) }
            let former = flights[flight].scope
            let scope = scopeNumber(of: flights[flight].request, in: pool)
            governor.flightJoined(scope)
            flights[flight].scope = scope
            leave(governor.flightLeft(former))
            for interest in interests { enqueue(interest, for: flight) }
        }
    }

    /// The pool for requests of a principal.
    ///
    /// - Precondition: `takes` is true for the URL's scheme, or the URL is of http or https.
    @inline(__always)
    func pool(for url: FetchURL, of interest: Handle<Interest>) -> Handle<WorkerPool> {
        url.isHTTP ? WorkerPool.web : ownPool(for: url, of: principal(of: interest))
    }

    @inline(never)
    private func ownPool(for url: FetchURL, of principal: Handle<Principal>) -> Handle<WorkerPool> {
        guard let pool = pools.open(for: String(url.scheme), of: principal) else {
            preconditionFailure("\(url.scheme) has no pool")
        }
        return pool
    }

    @inline(__always)
    func pool(of flight: Handle<Flight>) -> Handle<WorkerPool> { governor.origins[origin(of: flight)].pool }

    mutating func setTimer(_ absence: WorkerPools.Absence?) {
        if let absence { setTimer(absence.end, .lonely(pool: absence.pool, absence: absence.serial)) }
    }

    /// Closes a pool that was without workers for too long. Queues its flights that back off or wait for a cool-down or
    /// a quota, so that they fail too. O(scopes and principals).
    mutating func close(pool: Handle<WorkerPool>) {
        pools.close(pool)
        for flight in flights.pauses.keys.sorted() where self.pool(of: flight) == pool {
            enqueue(flight: flight)
        }
        for scope in governor.closedScopes(of: pool) { queue.scopeOpened(scope) }
        // A failure needs no room in the quota of transfers.
        for principal in quotas.principals.sorted() { queue.quotaOpened(principal) }
    }

    /// Fails queued requests of a closed pool, at most `refusalsPerPass` in one pass. Requests of clients with a full
    /// window wait until it opens.
    mutating func failQueued(in pool: Handle<WorkerPool>, now: Tick) {
        for _ in 0..<limits.refusalsPerPass {
            guard let interest = nextFailure(in: pool) else { return }
            if isDoomed(interest) {
                removeRequest(interest)
            } else if isPulling(leaf(ofOpen: interest)) {
                missedPull(leaf(ofOpen: interest), "no-puller")
            } else {
                fail(leaf(ofOpen: interest), .unsupportedScheme, now: now)
            }
        }
        isBehind = true
    }

    /// The next queued interest of a closed pool whose client's window is open; nil if there is none.
    private mutating func nextFailure(in pool: Handle<WorkerPool>) -> Handle<Interest>? {
        // A copy for the closure, which runs while the queue is mutated. It ends before the failure changes a client, so
        // the shared storage is not duplicated.
        let clients = clients
        return queue.next(in: pool, isForHigh: false) { _, client, _, _ in
            if let client, clients[client].deliveries.isClosed { .client } else { .none }
        }
    }

    // MARK: Own workers

    /// Codes that a user's own worker may report. Any other becomes `worker-failed`, with the worker's detail.
    private static let ownCodes: Set<FailureCode> = [
        .connectRefused, .connectFailed, .unknownHost, .dnsFailed, .timeout, .connectTimeout, .tooLarge, .tls,
        .truncated,
        .reset, .malformedURL, .badHeader, .unsupportedMethod, .protocolError, .encodingError, .spoolFull, .spoolFailed,
        .workerLost,
    ]
    /// Maximum bytes of the detail that clients receive.
    private static let detailBytes = 200

    mutating func ownAttemptFailed(
        _ attempt: AttemptID, _ code: FailureCode?, _ detail: String?, _ received: Int,
        by worker: Handle<WorkerSession>, now: Tick
    ) {
        // Reads from another node are made by a process of this bus.
        let isPull = workers[worker].leases.flight(of: attempt).map { isPulling($0) } ?? false
        let known = code.flatMap { isPull || Self.ownCodes.contains($0) ? $0 : nil }
        let words = detail.map(Self.words)
        attemptFailed(attempt, known ?? .workerFailed, received, detail: words, by: worker, now: now)
    }

    /// Returns the part of a worker's detail that clients receive.
    static func words(_ detail: String) -> String {
        String(decoding: detail.utf8.prefix(detailBytes), as: UTF8.self)
    }

    /// Disconnects a user's own worker after an ERROR with the reason. The flights of the worker are queued again. The
    /// broker does not kill a user's process; child processes are killed instead, see `end(silent:)`.
    mutating func putOut(_ worker: Handle<WorkerSession>, _ code: String, _ detail: String, now: Tick) {
        let id = workers[worker].id
        actions.append(.worker(.send(id, .error(code: code, detail: detail))))
        actions.append(.worker(.close(id)))
        workerLost(id, now: now)
    }

    /// Handles a full socket: the worker does not read its messages. A child process is killed, a user's own worker
    /// disconnected.
    public mutating func workerBlocked(_ id: WorkerID, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        guard workers[worker].isOwn else {
            actions.append(.worker(.kill(id)))
            return
        }
        actions.append(.worker(.close(id)))
        workerLost(id, now: now)
    }
}
