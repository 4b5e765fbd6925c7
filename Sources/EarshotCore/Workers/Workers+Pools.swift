internal import EarshotHTTP

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
    static func leave(_ pools: [Handle<WorkerPool>], now: Tick, in records: inout Records) {
        for pool in pools { setTimer(records.pools.leave(pool, now: now), in: &records) }
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
