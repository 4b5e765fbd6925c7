internal import EarshotHTTP
internal import EarshotWire

/// Pools: passes events to `WorkerPools`, and fails the requests of schemes that have no workers.
extension BrokerCore {
    /// Accepts requests until then for schemes that no worker serves yet.
    public mutating func awaitOwnWorkers(until limit: Tick) { pools.awaitOwnWorkers(until: limit) }

    /// Whether requests for URLs of a scheme are accepted, even if they wait for a worker.
    mutating func takes(_ scheme: String) -> Bool {
        guard !pools.isOpen(scheme) else { return true }
        guard let absence = pools.openAwaited(scheme, now: clock) else { return false }
        setTimer(absence)
        return true
    }

    @inline(__always)
    func pool(of flight: Int32) -> Int32 { governor.origins[origin(of: flight)].pool }

    /// Terms of an origin. Origins of users' own workers are limited by their slots alone.
    func terms(for entry: OriginEntry, in pool: Int32) -> (limit: Int, spacingMilliseconds: Int, allowsHTTP2: Bool) {
        pool == WorkerPool.web ? limits.origins.terms(for: entry.origin) : (.max, 0, true)
    }

    mutating func setTimer(_ absence: WorkerPools.Absence?) {
        if let absence { setTimer(absence.end, .lonely(pool: absence.pool, absence: absence.serial)) }
    }

    /// The time of a pool without workers is over. Its flights that back off or wait for a cool-down are queued, to fail
    /// there. O(scopes).
    mutating func close(pool: Int32) {
        pools.close(pool)
        for flight in pauses.keys.sorted() where self.pool(of: flight) == pool {
            pauseEnded(FlightName(number: flight, id: flights[flight].id))
        }
        for scope in governor.closedScopes(of: pool) { queue.scopeOpened(scope) }
    }

    /// Fails what waits for a pool that nobody serves any more, of very much a part in each pass. Requests of clients
    /// whose window is full wait for that first, as ever.
    mutating func failQueued(in pool: Int32, now: Tick) {
        let clients = clients
        let dueDeliveries = limits.dueDeliveries
        for _ in 0..<limits.refusalsPerPass {
            let next = queue.next(in: pool, isForHigh: false) { client, _, _ in
                client >= 0 && clients[client].deliveries.isClosed(dueDeliveries: dueDeliveries) ? .client : .none
            }
            guard let interest = next else { return }
            if isPurged(interest) {
                finishPurge(of: interest)
            } else {
                fail(leaf(of: interests[interest].flight), .unsupportedScheme, now: now)
            }
        }
        isBehind = true
    }

    // MARK: Own workers

    /// What a user's own worker may say of an attempt; anything else is `worker-failed`, with its words.
    private static let ownCodes: Set<FailureCode> = [
        .connectRefused, .connectFailed, .unknownHost, .dnsFailed, .timeout, .connectTimeout, .tooLarge, .tls,
        .truncated,
        .reset, .malformedURL, .badHeader, .unsupportedMethod, .protocolError, .encodingError, .spoolFull, .spoolFailed,
        .workerLost,
    ]
    /// Bytes of such words that are passed on.
    private static let detailBytes = 200

    mutating func ownAttemptFailed(
        _ attempt: AttemptID, _ code: FailureCode?, _ detail: String?, _ received: Int, by worker: Int32, now: Tick
    ) {
        let known = code.flatMap { Self.ownCodes.contains($0) ? $0 : nil }
        let words = detail.map(Self.words)
        attemptFailed(attempt, known ?? .workerFailed, received, detail: words, by: worker, now: now)
    }

    /// The part of a worker's sentence that clients get.
    static func words(_ detail: String) -> String {
        String(decoding: detail.utf8.prefix(detailBytes), as: UTF8.self)
    }

    /// Ends a connection to a worker that does not keep to the protocol, and tells it why. One that the supervisor
    /// keeps is killed instead, and its death awaited; a user's program is not ours to kill.
    mutating func putOut(_ worker: Int32, _ code: String, _ detail: String, now: Tick) {
        let id = workers[worker].id
        actions.append(.sendWorker(id, .error(code: code, detail: detail)))
        actions.append(.closeWorker(id))
        workerLost(id, now: now)
    }

    /// A worker does not take what is sent to it.
    public mutating func workerBlocked(_ id: WorkerID, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        guard workers[worker].isOwn else {
            actions.append(.killWorker(id))
            return
        }
        actions.append(.closeWorker(id))
        workerLost(id, now: now)
    }
}
