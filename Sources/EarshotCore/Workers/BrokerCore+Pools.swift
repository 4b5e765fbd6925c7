internal import EarshotHTTP
internal import EarshotWire

/// Pools: workers that users bring register schemes, whose URLs are theirs to fetch.
extension BrokerCore {
    /// The pool whose workers fetch URLs of a scheme; nil if there is none that takes any.
    func openPool(for scheme: String) -> Int32? {
        guard let pool = poolNumbers[scheme], !pools[pool].isClosed else { return nil }
        return pool
    }

    /// Takes requests for schemes that nobody serves yet, until then: users' own workers that served an earlier broker
    /// come back, and its clients ask again before them.
    public mutating func awaitOwnWorkers(until limit: Tick) { ownWorkersAwaitedUntil = limit }

    /// Whether requests for URLs of a scheme are taken, be it to wait for a worker.
    mutating func takes(_ scheme: String) -> Bool {
        guard openPool(for: scheme) == nil else { return true }
        guard let limit = ownWorkersAwaitedUntil, clock < limit,
            poolNumbers[scheme] != nil || pools.count < limits.pools
        else { return false }
        let pool = poolNumbers[scheme] ?? beginPool(scheme)
        pools[pool].isClosed = false
        awaitWorker(of: pool, until: limit)
        return true
    }

    @inline(__always)
    func pool(of flight: Int32) -> Int32 { governor.origins[origin(of: flight)].pool }

    /// Whether a worker is somebody's own: it fetches neither http nor https, and nobody vouches for it.
    @inline(__always)
    func isOwn(_ worker: Int32) -> Bool { !workers[worker].pools.contains(WorkerPool.web) }

    /// How much an origin is given. For schemes of users' own workers their slots are the only limit.
    func terms(for entry: OriginEntry, in pool: Int32) -> (limit: Int, spacingMilliseconds: Int, allowsHTTP2: Bool) {
        pool == WorkerPool.web ? limits.origins.terms(for: entry.origin) : (.max, 0, true)
    }

    /// Lets a worker serve schemes of its own: all of them, or none if there is no room for those that nobody serves
    /// yet.
    /// - Returns: whether there is.
    mutating func register(_ worker: Int32, for schemes: [String]) -> Bool {
        guard pools.count + schemes.count(where: { poolNumbers[$0] == nil }) <= limits.pools else { return false }
        for scheme in schemes {
            let pool = poolNumbers[scheme] ?? beginPool(scheme)
            pools[pool].workers += 1
            pools[pool].absence = 0
            pools[pool].isClosed = false
            workers[worker].pools.append(pool)
        }
        return true
    }

    private mutating func beginPool(_ scheme: String) -> Int32 {
        let pool = pools.insert(WorkerPool(scheme: scheme))
        poolNumbers[scheme] = pool
        return pool
    }

    /// A worker serves its pools no longer. When it was the last one of a scheme, another is waited for by whoever
    /// wants something of it, be it asked for before or meanwhile.
    mutating func leavePools(_ served: [Int32], now: Tick) {
        for pool in served where pool != WorkerPool.web {
            pools[pool].workers -= 1
            guard pools[pool].workers == 0 else { continue }
            awaitWorker(of: pool, until: now.advanced(byMilliseconds: limits.poolAbsenceMilliseconds))
        }
    }

    private mutating func awaitWorker(of pool: Int32, until limit: Tick) {
        pools[pool].absence = nextSerial()
        setTimer(limit, .lonely(pool: pool, absence: pools[pool].absence))
    }

    /// Nobody came back to a pool. Nobody makes the next try either that some of its flights pause for, or that others
    /// wait for until a cool-down is over. O(scopes).
    mutating func close(pool: Int32) {
        pools[pool].isClosed = true
        pools[pool].returned = []
        for flight in pauses.keys.sorted() where self.pool(of: flight) == pool {
            pauseEnded(FlightName(number: flight, id: flights[flight].id))
        }
        for scope in governor.closedScopes(of: pool) { queue.scopeOpened(scope) }
        dropPoolIfIdle(pool)
    }

    mutating func dropPoolIfIdle(_ pool: Int32) {
        guard pools[pool].isClosed, pools[pool].origins == 0 else { return }
        if let scheme = pools[pool].scheme { poolNumbers[scheme] = nil }
        pools.remove(pool)
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
        guard let worker = workerNumbers[id] else { return }
        guard isOwn(worker) else {
            actions.append(.killWorker(id))
            return
        }
        actions.append(.closeWorker(id))
        workerLost(id, now: now)
    }
}
