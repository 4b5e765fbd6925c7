import Testing

@testable import EarshotCore

/// The table of pools in isolation: each event in each phase of a pool, the limits, and the lists.
struct WorkerPoolsTests {
    private static let owner = PrincipalTable.administrator
    private static let now = MonotonicTime(nanoseconds: 1_000_000_000)
    private static let ownWorkersEnd = now.advanced(byMilliseconds: 500)

    /// Phase of the pool of the scheme "s" before an event.
    enum Phase: CaseIterable {
        case absent, served, awaited, closed

        init(_ phase: WorkerPool.Phase?) {
            self =
                switch phase {
                case nil: .absent
                case .served: .served
                case .awaited: .awaited
                case .closed: .closed
                }
        }

        var phase: WorkerPool.Phase? {
            switch self {
            case .absent: nil
            case .served: .served
            case .awaited: .awaited(serial: 1)
            case .closed: .closed
            }
        }
    }

    enum Event: CaseIterable {
        case register, leave, openAwaited, close
    }

    /// A table in which the pool of the scheme "s" is in the given phase.
    private static func pools(_ phase: Phase = .absent, limit: Int = 10) -> WorkerPools {
        var pools = WorkerPools(limits: WorkerPools.Limits(maximumPools: limit, workerAbsenceMilliseconds: 100))
        pools.awaitOwnWorkers(until: ownWorkersEnd)
        guard phase != .absent else { return pools }
        let served = pools.addWorker(servingSchemes: ["s"], of: Self.owner)?.first ?? -1
        // Its origins keep a closed pool in the table.
        pools.incrementOriginCount(of: served)
        if phase == .awaited || phase == .closed { _ = pools.removeWorker(served, now: now) }
        if phase == .closed { pools.closePool(served) }
        return pools
    }

    /// Expected phase; nil for an event that cannot occur in a phase.
    private static func expected(_ event: Event, _ phase: Phase) -> Phase? {
        switch (event, phase) {
        case (.register, _): .served
        case (.leave, .served): .awaited
        case (.openAwaited, .absent), (.openAwaited, .closed): .awaited
        case (.close, .awaited): .closed
        case (.leave, _), (.openAwaited, _), (.close, _): nil
        }
    }

    private func phase(of scheme: String, in pools: WorkerPools) -> Phase {
        Phase(pools.handle(of: scheme, of: Self.owner).map { pools[$0].phase })
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leads where the diagram says`(event: Event, phase: Phase) throws {
        guard let expected = Self.expected(event, phase) else { return }
        var pools = Self.pools(phase)
        #expect(self.phase(of: "s", in: pools) == phase)
        #expect((pools.openPool(for: "s", of: Self.owner) != nil) == (phase == .served || phase == .awaited))
        let number = pools.handle(of: "s", of: Self.owner)
        switch event {
        case .register: #expect(pools.addWorker(servingSchemes: ["s"], of: Self.owner)?.count == 1)
        case .leave:
            let timer = try pools.removeWorker(#require(number), now: Self.now)
            let absence = try #require(timer)
            #expect(absence.endsAt == Self.now.advanced(byMilliseconds: 100))
            #expect(pools.isCurrentAbsenceTimer(absence.pool, serial: absence.timerSerial))
        case .openAwaited:
            let timer = pools.openPoolAwaitingWorker("s", now: Self.now)
            let absence = try #require(timer)
            #expect(absence.endsAt == Self.ownWorkersEnd)
            #expect(pools.isCurrentAbsenceTimer(absence.pool, serial: absence.timerSerial))
        case .close: try pools.closePool(#require(number))
        }
        #expect(self.phase(of: "s", in: pools) == expected)
        #expect(pools.handle(of: "s", of: Self.owner) == number || phase == .absent)
        #expect(pools.checkInvariants() == [])
    }

    @Test func `the diagram has these transitions and no others`() {
        let phases = Phase.allCases.filter { $0 != .absent }
        let legal = phases.map { from in
            phases.filter { to in
                guard let from = from.phase, let to = to.phase else { return false }
                return WorkerPool.isLegal(from: from, to: to)
            }
        }
        #expect(legal == [[.awaited], [.served, .closed], [.served, .awaited]])
    }

    @Test func `a pool is awaited when its last worker leaves, and a worker that comes makes its timer stale`() throws {
        var pools = Self.pools(.served)
        _ = pools.addWorker(servingSchemes: ["s"], of: Self.owner)
        let number = try #require(pools.handle(of: "s", of: Self.owner))
        #expect(pools[number].ownWorkerCount == 2)
        #expect(pools.removeWorker(number, now: Self.now) == nil)
        let first = pools.removeWorker(number, now: Self.now)
        let earlier = try #require(first).timerSerial
        _ = pools.addWorker(servingSchemes: ["s"], of: Self.owner)
        #expect(!pools.isCurrentAbsenceTimer(number, serial: earlier))
        let second = pools.removeWorker(number, now: Self.now)
        #expect(try #require(second).timerSerial != earlier && !pools.isCurrentAbsenceTimer(number, serial: earlier))
        #expect(pools.checkInvariants() == [])
    }

    @Test func `the pool of http and https is there without workers, and is never awaited`() {
        var pools = Self.pools()
        #expect(pools[WorkerPool.webPoolHandle].phase == .served && pools.openPool(for: "s", of: Self.owner) == nil)
        #expect(pools.removeWorker(WorkerPool.webPoolHandle, now: Self.now) == nil)
        pools.incrementOriginCount(of: WorkerPool.webPoolHandle)
        pools.decrementOriginCount(of: WorkerPool.webPoolHandle)
        #expect(pools.count == 1 && pools[WorkerPool.webPoolHandle].phase == .served)
        #expect(pools.checkInvariants() == [])
    }

    @Test func `a closed pool goes with its last origin, one without origins at once`() throws {
        var pools = Self.pools(.awaited)
        let number = try #require(pools.handle(of: "s", of: Self.owner))
        pools.incrementOriginCount(of: number)
        pools.addFlightWithLostWorker(FlightName(reference: GenerationalHandle(record: 1, generation: 1)), to: number)
        pools.closePool(number)
        #expect(pools[number].flightsWithLostWorker.isEmpty)
        pools.decrementOriginCount(of: number)
        #expect(pools.count == 2)
        pools.decrementOriginCount(of: number)
        #expect(pools.count == 1 && pools.handle(of: "s", of: Self.owner) == nil)
        let timer = pools.openPoolAwaitingWorker("t", now: Self.now)
        let absence = try #require(timer)
        pools.incrementOriginCount(of: absence.pool)
        pools.decrementOriginCount(of: absence.pool)
        #expect(pools.handle(of: "t", of: Self.owner) == absence.pool)
        pools.closePool(absence.pool)
        #expect(pools.count == 1 && pools.handle(of: "t", of: Self.owner) == nil)
        #expect(pools.checkInvariants() == [])
    }

    @Test func `a worker serves all of its schemes, or none if there are too many`() {
        var pools = Self.pools(.served, limit: 3)
        #expect(pools.addWorker(servingSchemes: ["s", "t", "u"], of: Self.owner) == nil)
        #expect(
            pools.handle(of: "t", of: Self.owner) == nil
                && pools.handle(of: "s", of: Self.owner).map { pools[$0].ownWorkerCount } == 1)
        let served = pools.addWorker(servingSchemes: ["s", "t"], of: Self.owner) ?? []
        #expect(served.map { pools[$0].scheme } == ["s", "t"])
        #expect(served.map { pools[$0].ownWorkerCount } == [2, 1])
        #expect(pools.addWorker(servingSchemes: [], of: Self.owner) == [])
        #expect(pools.openPoolAwaitingWorker("u", now: Self.now) == nil)
        #expect(pools.count == 3 && pools.checkInvariants() == [])
        pools.limits.maximumPools = 2
        #expect(pools.checkInvariants() == ["11: 3 pools"])
    }

    @Test(arguments: [(-1, true), (0, false), (1, false)])
    func `own workers of an earlier broker are awaited for a time`(offset: Int, isOpened: Bool) {
        var pools = Self.pools()
        let now = Self.ownWorkersEnd.advanced(byMilliseconds: offset)
        #expect((pools.openPoolAwaitingWorker("s", now: now) != nil) == isOpened)
        #expect((pools.openPool(for: "s", of: Self.owner) != nil) == isOpened)
    }

    @Test func `without an earlier broker no own worker is awaited`() {
        var pools = WorkerPools(limits: WorkerPools.Limits(maximumPools: 10, workerAbsenceMilliseconds: 100))
        #expect(pools.openPoolAwaitingWorker("s", now: Self.now) == nil && pools.count == 1)
    }

    @Test func `the flight that returned last starts first, suspects start in order, accused ones before others`() {
        var pools = Self.pools()
        let names = (1...4).map {
            FlightName(reference: GenerationalHandle(record: Handle(slabIndex: $0), generation: UInt64($0)))
        }
        for name in names { pools.addFlightWithLostWorker(name, to: WorkerPool.webPoolHandle) }
        #expect(pools.popFlightWithLostWorker(of: WorkerPool.webPoolHandle) == names[3])
        #expect(pools[WorkerPool.webPoolHandle].flightsWithLostWorker == Array(names[..<3]))
        for name in names { pools.addSuspect(name, atFront: name == names[2], to: WorkerPool.webPoolHandle) }
        #expect(pools.popNextSuspect(of: WorkerPool.webPoolHandle) == names[2])
        #expect(Array(pools.removeAllSuspects(of: WorkerPool.webPoolHandle)) == [names[0], names[1], names[3]])
        #expect(pools.popNextSuspect(of: WorkerPool.webPoolHandle) == nil)
        pools.setQuarantineWorker(WorkerID(rawValue: 7), of: WorkerPool.webPoolHandle)
        #expect(pools[WorkerPool.webPoolHandle].quarantineWorker == WorkerID(rawValue: 7))
    }
}
