internal import EarshotHTTP
internal import EarshotWire

/// Pools of workers: requests that change their pool or fail in a closed one. The failures of users' own workers.
extension BrokerCore {
    /// Accepts requests for schemes without workers until `limit`.
    public mutating func awaitOwnWorkers(until limit: Tick) { records.pools.awaitOwnWorkers(until: limit) }

    /// Moves requests of a principal that wait for the first worker of a scheme since the start of the broker to the
    /// pool of its own worker. None has started, so all are in the queue. O(flights), once for each worker.
    mutating func claim(_ scheme: String, for pool: Handle<WorkerPool>, of principal: Handle<Principal>) {
        guard let undecided = records.pools.undecided(scheme) else { return }
        for flight in records.flights.indices
        where records.pool(of: flight) == undecided && records.flights[flight].phase == .queued {
            let interests = records.flights.interests(of: flight).filter { records.queue.contains($0) }
            guard let first = interests.first, records.principal(of: first) == principal else { continue }
            for interest in interests { records.queue.remove(interest) }
            let scope = Origins.scope(of: records.flights[flight].request, for: pool, in: &records)
            Origins.move(flight, to: scope, in: &records)
            for interest in interests { enqueue(interest, for: flight) }
        }
    }

    /// Closes a pool that was without workers for too long. Queues its flights that back off or wait for a cool-down or
    /// a quota, so that they fail too. O(scopes and principals).
    mutating func close(pool: Handle<WorkerPool>) {
        records.pools.close(pool)
        for flight in records.flights.pauses.keys.sorted() where records.pool(of: flight) == pool {
            enqueue(flight: flight)
        }
        for scope in records.governor.closedScopes(of: pool) { records.queue.scopeOpened(scope) }
        // A failure needs no room in the quota of transfers.
        for principal in records.quotas.principals.sorted() { records.queue.quotaOpened(principal) }
    }

    /// Fails queued requests of a closed pool, at most `refusalsPerPass` in one pass. Requests of clients with a full
    /// window wait until it opens.
    mutating func failQueued(in pool: Handle<WorkerPool>, now: Tick) {
        for _ in 0..<records.limits.refusalsPerPass {
            guard let interest = Workers.nextFailure(of: pool, in: &records) else { return }
            if records.isDoomed(interest) {
                removeRequest(interest)
            } else if records.isPulling(records.leaf(ofOpen: interest)) {
                missedPull(records.leaf(ofOpen: interest), "no-puller")
            } else {
                fail(records.leaf(ofOpen: interest), .unsupportedScheme, now: now)
            }
        }
        isBehind = true
    }

    // MARK: Own workers

    /// Disconnects a user's own worker after an ERROR with the reason. The flights of the worker are queued again. The
    /// broker does not kill a user's process; child processes are killed instead, see `end(silent:)`.
    mutating func disconnectForViolation(_ worker: Handle<WorkerSession>, _ code: String, _ detail: String, now: Tick) {
        sendError(code, detail, to: worker)
        disconnect(worker, now: now)
    }

    private mutating func disconnect(_ worker: Handle<WorkerSession>, now: Tick) {
        let id = records.workers[worker].id
        records.outbox.append(.worker(.close(id)))
        workerLost(id, now: now)
    }

    /// Handles a full socket: the worker does not read its messages. A child process is killed, a user's own worker
    /// disconnected.
    public mutating func workerBlocked(_ id: WorkerID, now: Tick) {
        guard let worker = records.workers.handle(of: id) else { return }
        if records.workers[worker].isOwn {
            disconnect(worker, now: now)
        } else {
            records.outbox.append(.worker(.kill(id)))
        }
    }
}
