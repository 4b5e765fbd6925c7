internal import EarshotHTTP
internal import EarshotWire

/// Pools of workers: requests that change their pool or fail in a closed one, and failures of users' own workers.
extension BrokerCore {
    /// Accepts requests for schemes without workers until `limit`.
    public mutating func awaitOwnWorkers(until limit: MonotonicTime) {
        records.workerPools.awaitOwnWorkers(until: limit)
    }

    /// Moves requests of a principal that wait for the first worker of a scheme since the start of the broker to the
    /// pool of its own worker. None has started, so all are in the queue. O(flights), once for each worker.
    mutating func moveQueuedRequests(
        ofScheme scheme: String, to pool: Handle<WorkerPool>, of principal: Handle<Principal>
    ) {
        guard let undecided = records.workerPools.poolAwaitingAnyPrincipal(scheme) else { return }
        for flight in records.flights.indices
        where records.pool(of: flight) == undecided && records.flights[flight].phase == .queued {
            let interests = records.flights.interests(of: flight).filter { records.queue.contains($0) }
            guard let first = interests.first, records.principal(of: first) == principal else { continue }
            for interest in interests { records.queue.remove(interest) }
            let scope = Origins.originScope(of: records.flights[flight].request, for: pool, in: &records)
            Origins.moveFlight(flight, to: scope, in: &records)
            for interest in interests { enqueueInterest(interest, for: flight) }
        }
    }

    /// Closes a pool that was without workers for too long. Queues its flights that back off or wait for a cool-down or
    /// a quota, so that they fail too. O(scopes and principals).
    mutating func close(pool: Handle<WorkerPool>) {
        records.workerPools.closePool(pool)
        for flight in records.flights.backOffEnds.keys.sorted() where records.pool(of: flight) == pool {
            enqueueFlight(flight)
        }
        for scope in records.originGovernor.blockedScopes(of: pool) { records.queue.unparkLanes(ofScope: scope) }
        // A failure needs no room in the quota of transfers.
        for principal in records.quotaUse.principals.sorted() { records.queue.unparkLanes(ofPrincipal: principal) }
    }

    /// Fails queued requests of a closed pool, at most `maximumCoolDownRefusalsPerPass` in one pass. Requests of
    /// clients with a full window wait until it opens.
    mutating func failQueuedRequests(in pool: Handle<WorkerPool>, now: MonotonicTime) {
        for _ in 0..<records.limits.maximumCoolDownRefusalsPerPass {
            guard let interest = Workers.nextInterestToFail(of: pool, in: &records) else { return }
            if records.isAwaitingRemoval(interest) {
                removeRequest(interest)
            } else if records.isReadingBodyFromNode(records.lastRedirectedFlight(ofOpen: interest)) {
                nodeBodyReadFailed(for: records.lastRedirectedFlight(ofOpen: interest), reason: "no-puller")
            } else {
                failFlight(records.lastRedirectedFlight(ofOpen: interest), .unsupportedScheme, now: now)
            }
        }
        hasWorkForNextPass = true
    }

    // MARK: Own workers

    /// Disconnects a user's own worker after an ERROR with the reason. The flights of the worker are queued again. The
    /// broker does not kill a user's process. A child process is killed instead, see `endUnresponsiveWorker`.
    mutating func disconnectForViolation(
        _ worker: Handle<WorkerSession>, _ code: String, _ detail: String, now: MonotonicTime
    ) {
        sendError(code, detail, to: worker)
        disconnect(worker, now: now)
    }

    private mutating func disconnect(_ worker: Handle<WorkerSession>, now: MonotonicTime) {
        let id = records.workers[worker].id
        records.outbox.appendAction(.worker(.close(id)))
        workerLost(id, now: now)
    }

    /// Handles a full socket: the worker does not read its messages. A child process is killed, a user's own worker
    /// disconnected.
    public mutating func workerSocketFull(_ id: WorkerID, now: MonotonicTime) {
        guard let worker = records.workers.handle(of: id) else { return }
        if records.workers[worker].isUserProvided {
            disconnect(worker, now: now)
        } else {
            records.outbox.appendAction(.worker(.kill(id)))
        }
    }
}
