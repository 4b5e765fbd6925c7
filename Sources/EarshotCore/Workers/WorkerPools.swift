internal import DequeModule

/// Pools of workers by scheme, and the flights in each pool that start before the queue.
///
/// `WorkerPool` shows the phases of a pool; only this type changes them. It knows workers, origins and flights by name
/// or number alone. A pool exists while a worker serves it or is awaited, or it has origins.
struct WorkerPools {
    /// Bounds of the table.
    struct Limits: Equatable {
        /// Maximum number of pools.
        var pools: Int
        /// How long requests wait for a worker of a scheme after the last one left.
        var absenceMilliseconds: Int

        init(pools: Int, absenceMilliseconds: Int) {
            self.pools = pools
            self.absenceMilliseconds = absenceMilliseconds
        }

        init(_ limits: CoreLimits) {
            self.init(pools: limits.pools, absenceMilliseconds: limits.poolAbsenceMilliseconds)
        }
    }

    /// Timer that closes a pool without workers.
    struct Absence: Equatable {
        let pool: Int32
        let end: Tick
        let serial: UInt64
    }

    var limits: Limits
    private var pools = Slab<WorkerPool>()
    /// Pools by scheme.
    private var numbers: [String: Int32]
    /// Until when users' own workers that served an earlier broker may return; nil if there was none.
    private var ownWorkersAwaitedUntil: Tick?
    private var lastSerial: UInt64 = 0

    init(limits: Limits) {
        self.limits = limits
        let web = pools.insert(WorkerPool(scheme: nil))
        precondition(web == WorkerPool.web, "the pool of http and https is number \(web)")
        numbers = ["http": web, "https": web]
    }

    // MARK: Queries

    subscript(pool: Int32) -> WorkerPool {
        @inline(__always) _read { yield pools[pool] }
    }

    var count: Int { pools.count }

    /// One more than the largest number.
    var bound: Int { pools.bound }

    /// Numbers in use. O(pools).
    var indices: [Int32] { pools.indices }

    @inline(__always)
    func contains(_ pool: Int32) -> Bool { pools.contains(pool) }

    /// Pool of a scheme, also a closed one; nil if there is none.
    @inline(__always)
    func number(of scheme: String) -> Int32? { numbers[scheme] }

    /// Whether requests for URLs of a scheme have a pool that accepts them.
    @inline(__always)
    func isOpen(_ scheme: String) -> Bool { numbers[scheme].map { !pools[$0].isClosed } ?? false }

    /// Whether the timer with this serial closes a pool.
    func isAwaited(_ pool: Int32, serial: UInt64) -> Bool {
        pools.contains(pool) && pools[pool].phase == .awaited(serial: serial)
    }

    // MARK: Workers

    /// A user's own worker serves all of these schemes, or none if there is no room for their pools.
    ///
    /// - Returns: their pools; nil if there is no room.
    mutating func register(_ schemes: [String]) -> [Int32]? {
        guard pools.count + schemes.count(where: { numbers[$0] == nil }) <= limits.pools else { return nil }
        return schemes.map { scheme in
            let pool = numbers[scheme] ?? add(scheme)
            if pools[pool].phase != .served { pools[pool].enter(.served) }
            pools[pool].workers += 1
            return pool
        }
    }

    /// A worker that served a pool is gone. A scheme without workers awaits one.
    mutating func leave(_ pool: Int32, now: Tick) -> Absence? {
        guard pool != WorkerPool.web else { return nil }
        pools[pool].workers -= 1
        guard pools[pool].workers == 0 else { return nil }
        return awaitWorker(of: pool, until: now.advanced(byMilliseconds: limits.absenceMilliseconds))
    }

    /// Accepts requests until then for schemes without a pool: users' own workers that served an earlier broker return,
    /// and its clients may ask again before them.
    mutating func awaitOwnWorkers(until limit: Tick) { ownWorkersAwaitedUntil = limit }

    /// Opens a pool for a scheme that has none open.
    ///
    /// - Returns: nil if no worker is awaited, or there are too many pools.
    mutating func openAwaited(_ scheme: String, now: Tick) -> Absence? {
        guard let end = ownWorkersAwaitedUntil, now < end, numbers[scheme] != nil || pools.count < limits.pools else {
            return nil
        }
        return awaitWorker(of: numbers[scheme] ?? add(scheme), until: end)
    }

    private mutating func awaitWorker(of pool: Int32, until end: Tick) -> Absence {
        lastSerial += 1
        pools[pool].enter(.awaited(serial: lastSerial))
        return Absence(pool: pool, end: end, serial: lastSerial)
    }

    /// The time of a pool without workers is over: its requests fail from now on.
    mutating func close(_ pool: Int32) {
        pools[pool].enter(.closed)
        pools[pool].returned = []
        dropIfIdle(pool)
    }

    // MARK: Origins

    /// A pool has one origin more.
    @inline(__always)
    mutating func originAdded(to pool: Int32) { pools[pool].origins += 1 }

    /// A pool has one origin less.
    mutating func originForgotten(by pool: Int32) {
        pools[pool].origins -= 1
        dropIfIdle(pool)
    }

    private mutating func add(_ scheme: String) -> Int32 {
        let pool = pools.insert(WorkerPool(scheme: scheme))
        numbers[scheme] = pool
        return pool
    }

    private mutating func dropIfIdle(_ pool: Int32) {
        guard pools[pool].isClosed, pools[pool].origins == 0 else { return }
        if let scheme = pools[pool].scheme { numbers[scheme] = nil }
        pools.remove(pool)
    }

    // MARK: Flights that start before the queue

    /// A flight lost its worker.
    mutating func returned(_ flight: FlightName, to pool: Int32) { pools[pool].returned.append(flight) }

    /// Removes the flight that returned last. The caller has found one.
    mutating func takeReturned(of pool: Int32) -> FlightName { pools[pool].returned.removeLast() }

    /// Adds a suspect, at the end of the list or before all others.
    mutating func add(suspect flight: FlightName, first: Bool, to pool: Int32) {
        if first { pools[pool].suspects.prepend(flight) } else { pools[pool].suspects.append(flight) }
    }

    /// Removes the first suspect; nil if there is none.
    mutating func nextSuspect(of pool: Int32) -> FlightName? { pools[pool].suspects.popFirst() }

    /// Removes all suspects.
    mutating func takeSuspects(of pool: Int32) -> Deque<FlightName> {
        let suspects = pools[pool].suspects
        pools[pool].suspects = []
        return suspects
    }

    /// Names the worker that runs the suspects of a pool alone; nil for none.
    mutating func setQuarantine(_ worker: WorkerID?, of pool: Int32) { pools[pool].quarantine = worker }

    // MARK: Checks

    /// - Returns: a sentence for each invariant that does not hold; empty if all do.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        check(pools.count <= limits.pools, "11: \(pools.count) pools")
        check(numbers.count == pools.count + 1, "14: \(pools.count) pools have \(numbers.count) schemes")
        for number in pools.indices {
            let pool = pools[number]
            guard let scheme = pool.scheme else {
                check(number == WorkerPool.web && pool.phase == .served, "14: pool \(number) has no scheme")
                continue
            }
            check(numbers[scheme] == number, "14: \(scheme) is another pool")
            check((pool.workers > 0) == (pool.phase == .served), "14: \(scheme) is \(pool.phase) by \(pool.workers)")
            check(!pool.isClosed || pool.origins > 0, "12: the pool of \(scheme) is kept for nothing")
        }
        return faults
    }
}
