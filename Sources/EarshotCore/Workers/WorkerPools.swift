internal import DequeModule

/// Pools of workers by principal and scheme, and the flights in each pool that start before the queue.
///
/// `WorkerPool` documents the phases of a pool; only this type changes them. It knows workers, origins and flights by
/// name or handle alone. A pool exists while a worker serves it or is awaited, or while it has origins.
package struct WorkerPools {
    /// Bounds of the table.
    struct Limits: Equatable {
        /// Part of the pools that one principal other than the administrator may have.
        private static let principalShareDivisor = 4

        /// Maximum number of pools.
        var maximumPools: Int
        /// Time for which requests wait for a worker of a scheme after its last one left.
        var workerAbsenceMilliseconds: Int

        init(maximumPools: Int, workerAbsenceMilliseconds: Int) {
            self.maximumPools = maximumPools
            self.workerAbsenceMilliseconds = workerAbsenceMilliseconds
        }

        init(_ limits: CoreLimits) {
            self.init(
                maximumPools: limits.maximumWorkerPools, workerAbsenceMilliseconds: limits.emptyPoolGraceMilliseconds)
        }

        /// Maximum number of pools of one principal.
        func maximumPools(of principal: Handle<Principal>) -> Int {
            principal == PrincipalTable.administrator ? maximumPools : maximumPools / Self.principalShareDivisor
        }
    }

    /// Timer that closes a pool without workers.
    struct WorkerAbsence: Equatable {
        let pool: Handle<WorkerPool>
        let endsAt: MonotonicTime
        let timerSerial: UInt64
    }

    var limits: Limits
    private var pools = Slab<WorkerPool>()
    /// Pools of own workers.
    private var handlesByKey: [WorkerPool.Key: Handle<WorkerPool>] = [:]
    /// End of the wait for users' own workers of an earlier broker; nil if there is no such wait.
    private var ownWorkersAwaitedUntil: MonotonicTime?
    private var lastTimerSerial: UInt64 = 0

    init(limits: Limits) {
        self.limits = limits
        let web = pools.insert(WorkerPool())
        precondition(web == WorkerPool.webPoolHandle, "the pool of http and https is number \(web)")
    }

    // MARK: Queries

    package subscript(pool: Handle<WorkerPool>) -> WorkerPool {
        _read { yield pools[pool] }
    }

    var count: Int { pools.count }

    /// One more than the last place.
    var indexBound: Int { pools.bound }

    /// Handles of all pools. O(pools).
    var indices: [Handle<WorkerPool>] { pools.indices }

    /// Returns the pool at a place; nil if there is none.
    func handle(atIndex place: Int) -> Handle<WorkerPool>? { pools.handle(atIndex: place) }

    func contains(_ pool: Handle<WorkerPool>) -> Bool { pools.contains(pool) }

    /// Returns the pool of a principal's scheme, even a closed one.
    func handle(of scheme: String, of principal: Handle<Principal>) -> Handle<WorkerPool>? {
        handlesByKey[WorkerPool.Key(scheme: scheme, principal: principal)]
    }

    /// Returns the open pool for requests of a principal: its own, or else the administrator's.
    func openPool(for scheme: String, of principal: Handle<Principal>) -> Handle<WorkerPool>? {
        if let own = handle(of: scheme, of: principal), !pools[own].isClosed { return own }
        guard principal != PrincipalTable.administrator else { return nil }
        return openPool(for: scheme, of: PrincipalTable.administrator)
    }

    /// Principals that have pools.
    var principalsWithPools: Set<Handle<Principal>> { Set(handlesByKey.keys.map(\.principal)) }

    /// Whether the timer with this serial is current, so that it closes the pool.
    func isCurrentAbsenceTimer(_ pool: Handle<WorkerPool>, serial: UInt64) -> Bool {
        pools.contains(pool) && pools[pool].phase == .awaited(serial: serial)
    }

    // MARK: Workers

    /// Adds an own worker of a principal to the pools of its schemes: to all of them, or to none if a limit is reached.
    ///
    /// - Returns: the pools; nil if a limit is reached.
    mutating func addWorker(
        servingSchemes schemes: [String], of principal: Handle<Principal>
    ) -> [Handle<WorkerPool>]? {
        let keys = schemes.map { WorkerPool.Key(scheme: $0, principal: principal) }
        guard hasRoomForPools(keys.count { handlesByKey[$0] == nil }, of: principal) else { return nil }
        return keys.map { key in
            let pool = handlesByKey[key] ?? addPool(key)
            if pools[pool].phase != .served { pools[pool].enter(.served) }
            pools[pool].hasEverHadWorker = true
            pools[pool].ownWorkerCount += 1
            return pool
        }
    }

    /// The pool of the administrator in which requests of other principals for a scheme wait since the start of the
    /// broker, when the principal of the next worker was unknown; nil if there is none.
    func poolAwaitingAnyPrincipal(_ scheme: String) -> Handle<WorkerPool>? {
        handle(of: scheme, of: PrincipalTable.administrator).flatMap { pools[$0].hasEverHadWorker ? nil : $0 }
    }

    private func hasRoomForPools(_ count: Int, of principal: Handle<Principal>) -> Bool {
        guard pools.count + count <= limits.maximumPools else { return false }
        guard principal != PrincipalTable.administrator else { return true }
        let own = handlesByKey.keys.count { $0.principal == principal }
        return count == 0 || own + count <= limits.maximumPools(of: principal)
    }

    /// Removes a user's own worker from a pool. A pool without workers awaits one.
    mutating func removeWorker(_ pool: Handle<WorkerPool>, now: MonotonicTime) -> WorkerAbsence? {
        guard pool != WorkerPool.webPoolHandle else { return nil }
        pools[pool].ownWorkerCount -= 1
        guard pools[pool].ownWorkerCount == 0 else { return nil }
        return awaitWorker(of: pool, until: now.advanced(byMilliseconds: limits.workerAbsenceMilliseconds))
    }

    /// Accepts requests for schemes without a pool until `limit`: clients may repeat their requests before users' own
    /// workers of an earlier broker have returned.
    mutating func awaitOwnWorkers(until limit: MonotonicTime) { ownWorkersAwaitedUntil = limit }

    /// Opens the administrator's pool of a scheme without an open one. Requests of other principals wait there, too.
    ///
    /// - Returns: nil if no worker is awaited or the limit is reached.
    mutating func openPoolAwaitingWorker(_ scheme: String, now: MonotonicTime) -> WorkerAbsence? {
        let key = WorkerPool.Key(scheme: scheme, principal: PrincipalTable.administrator)
        guard let end = ownWorkersAwaitedUntil, now < end, handlesByKey[key] != nil || pools.count < limits.maximumPools
        else {
            return nil
        }
        return awaitWorker(of: handlesByKey[key] ?? addPool(key), until: end)
    }

    private mutating func awaitWorker(of pool: Handle<WorkerPool>, until end: MonotonicTime) -> WorkerAbsence {
        lastTimerSerial += 1
        pools[pool].enter(.awaited(serial: lastTimerSerial))
        return WorkerAbsence(pool: pool, endsAt: end, timerSerial: lastTimerSerial)
    }

    /// Closes a pool without workers, so that its requests fail.
    mutating func closePool(_ pool: Handle<WorkerPool>) {
        pools[pool].enter(.closed)
        pools[pool].flightsWithLostWorker = []
        freeIfIdle(pool)
    }

    // MARK: Origins

    /// Counts a new origin of a pool.
    mutating func incrementOriginCount(of pool: Handle<WorkerPool>) { pools[pool].originCount += 1 }

    /// Counts a removed origin of a pool.
    mutating func decrementOriginCount(of pool: Handle<WorkerPool>) {
        pools[pool].originCount -= 1
        freeIfIdle(pool)
    }

    private mutating func addPool(_ key: WorkerPool.Key) -> Handle<WorkerPool> {
        let pool = pools.insert(WorkerPool(key))
        handlesByKey[key] = pool
        return pool
    }

    private mutating func freeIfIdle(_ pool: Handle<WorkerPool>) {
        guard pools[pool].isClosed, pools[pool].originCount == 0 else { return }
        if let key = pools[pool].key { handlesByKey[key] = nil }
        pools.destroy(pool)
    }

    // MARK: Flights that start before the queue

    /// Adds a flight that lost its worker.
    mutating func addFlightWithLostWorker(_ flight: FlightName, to pool: Handle<WorkerPool>) {
        pools[pool].flightsWithLostWorker.append(flight)
    }

    /// Removes and returns the flight that was added last. There must be one.
    mutating func popFlightWithLostWorker(of pool: Handle<WorkerPool>) -> FlightName {
        pools[pool].flightsWithLostWorker.removeLast()
    }

    /// Adds a suspect at the end of the list, or at its head.
    mutating func addSuspect(_ flight: FlightName, atFront: Bool, to pool: Handle<WorkerPool>) {
        if atFront { pools[pool].suspectFlights.prepend(flight) } else { pools[pool].suspectFlights.append(flight) }
    }

    /// Removes and returns the first suspect; nil if there is none.
    mutating func popNextSuspect(of pool: Handle<WorkerPool>) -> FlightName? { pools[pool].suspectFlights.popFirst() }

    /// Removes and returns all suspects.
    mutating func removeAllSuspects(of pool: Handle<WorkerPool>) -> Deque<FlightName> {
        let suspects = pools[pool].suspectFlights
        pools[pool].suspectFlights = []
        return suspects
    }

    /// Sets the worker that runs the suspects of a pool; nil for none.
    mutating func setQuarantineWorker(_ worker: WorkerID?, of pool: Handle<WorkerPool>) {
        pools[pool].quarantineWorker = worker
    }

    // MARK: Checks

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        check(pools.count <= limits.maximumPools, "11: \(pools.count) pools")
        check(handlesByKey.count == pools.count - 1, "14: \(pools.count) pools have \(handlesByKey.count) names")
        for number in pools.indices {
            let pool = pools[number]
            guard let key = pool.key else {
                check(number == WorkerPool.webPoolHandle && pool.phase == .served, "14: pool \(number) has no scheme")
                continue
            }
            let scheme = key.scheme
            check(handlesByKey[key] == number, "14: \(scheme) of principal \(key.principal) is another pool")
            check(
                (pool.ownWorkerCount > 0) == (pool.phase == .served),
                "14: \(scheme) is \(pool.phase) by \(pool.ownWorkerCount)")
            check(!pool.isClosed || pool.originCount > 0, "12: the closed pool of \(scheme) has no origins")
        }
        for principal in principalsWithPools where principal != PrincipalTable.administrator {
            let count = handlesByKey.keys.count { $0.principal == principal }
            check(count <= limits.maximumPools(of: principal), "11: principal \(principal) has \(count) pools")
        }
        return faults
    }
}
