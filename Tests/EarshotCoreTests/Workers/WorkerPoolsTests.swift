import Testing

@testable import EarshotCore

/// The table of pools in isolation: each event in each phase of a pool, the limits, and the lists.
struct WorkerPoolsTests {
    private static let owner = PrincipalTable.administrator
    private static let now = Tick(nanoseconds: 1_000_000_000)
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
        var pools = WorkerPools(limits: WorkerPools.Limits(pools: limit, absenceMilliseconds: 100))
        pools.awaitOwnWorkers(until: ownWorkersEnd)
        guard phase != .absent else { return pools }
        let served = pools.register(["s"], of: Self.owner)?.first ?? -1
        // Its origins keep a closed pool in the table.
        pools.originAdded(to: served)
        if phase == .awaited || phase == .closed { _ = pools.removeWorker(served, now: now) }
        if phase == .closed { pools.close(served) }
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
        #expect((pools.open(for: "s", of: Self.owner) != nil) == (phase == .served || phase == .awaited))
        let number = pools.handle(of: "s", of: Self.owner)
        switch event {
        case .register: #expect(pools.register(["s"], of: Self.owner)?.count == 1)
        case .leave:
            let timer = try pools.removeWorker(#require(number), now: Self.now)
            let absence = try #require(timer)
            #expect(absence.end == Self.now.advanced(byMilliseconds: 100))
            #expect(pools.isAwaited(absence.pool, serial: absence.serial))
        case .openAwaited:
            let timer = pools.openAwaited("s", now: Self.now)
            let absence = try #require(timer)
            #expect(absence.end == Self.ownWorkersEnd)
            #expect(pools.isAwaited(absence.pool, serial: absence.serial))
        case .close: try pools.close(#require(number))
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
        _ = pools.register(["s"], of: Self.owner)
        let number = try #require(pools.handle(of: "s", of: Self.owner))
        #expect(pools[number].workers == 2)
        #expect(pools.removeWorker(number, now: Self.now) == nil)
        let first = pools.removeWorker(number, now: Self.now)
        let earlier = try #require(first).serial
        _ = pools.register(["s"], of: Self.owner)
        #expect(!pools.isAwaited(number, serial: earlier))
        let second = pools.removeWorker(number, now: Self.now)
        #expect(try #require(second).serial != earlier && !pools.isAwaited(number, serial: earlier))
        #expect(pools.checkInvariants() == [])
    }

    @Test func `the pool of http and https is there without workers, and is never awaited`() {
        var pools = Self.pools()
        #expect(pools[WorkerPool.web].phase == .served && pools.open(for: "s", of: Self.owner) == nil)
        #expect(pools.removeWorker(WorkerPool.web, now: Self.now) == nil)
        pools.originAdded(to: WorkerPool.web)
        pools.originForgotten(by: WorkerPool.web)
        #expect(pools.count == 1 && pools[WorkerPool.web].phase == .served)
        #expect(pools.checkInvariants() == [])
    }

    @Test func `a closed pool goes with its last origin, one without origins at once`() throws {
        var pools = Self.pools(.awaited)
        let number = try #require(pools.handle(of: "s", of: Self.owner))
        pools.originAdded(to: number)
        pools.flightReturned(FlightName(reference: GenerationalHandle(record: 1, generation: 1)), to: number)
        pools.close(number)
        #expect(pools[number].returnedFlights.isEmpty)
        pools.originForgotten(by: number)
        #expect(pools.count == 2)
        pools.originForgotten(by: number)
        #expect(pools.count == 1 && pools.handle(of: "s", of: Self.owner) == nil)
        let timer = pools.openAwaited("t", now: Self.now)
        let absence = try #require(timer)
        pools.originAdded(to: absence.pool)
        pools.originForgotten(by: absence.pool)
        #expect(pools.handle(of: "t", of: Self.owner) == absence.pool)
        pools.close(absence.pool)
        #expect(pools.count == 1 && pools.handle(of: "t", of: Self.owner) == nil)
        #expect(pools.checkInvariants() == [])
    }

    @Test func `a worker serves all of its schemes, or none if there are too many`() {
        var pools = Self.pools(.served, limit: 3)
        #expect(pools.register(["s", "t", "u"], of: Self.owner) == nil)
        #expect(
            pools.handle(of: "t", of: Self.owner) == nil
                && pools.handle(of: "s", of: Self.owner).map { pools[$0].workers } == 1)
        let served = pools.register(["s", "t"], of: Self.owner) ?? []
        #expect(served.map { pools[$0].scheme } == ["s", "t"])
        #expect(served.map { pools[$0].workers } == [2, 1])
        #expect(pools.register([], of: Self.owner) == [])
        #expect(pools.openAwaited("u", now: Self.now) == nil)
        #expect(pools.count == 3 && pools.checkInvariants() == [])
        pools.limits.pools = 2
        #expect(pools.checkInvariants() == ["11: 3 pools"])
    }

    @Test(arguments: [(-1, true), (0, false), (1, false)])
    func `own workers of an earlier broker are awaited for a time`(offset: Int, isOpened: Bool) {
        var pools = Self.pools()
        let now = Self.ownWorkersEnd.advanced(byMilliseconds: offset)
        #expect((pools.openAwaited("s", now: now) != nil) == isOpened)
        #expect((pools.open(for: "s", of: Self.owner) != nil) == isOpened)
    }

    @Test func `without an earlier broker no own worker is awaited`() {
        var pools = WorkerPools(limits: WorkerPools.Limits(pools: 10, absenceMilliseconds: 100))
        #expect(pools.openAwaited("s", now: Self.now) == nil && pools.count == 1)
    }

    @Test func `the flight that returned last starts first, suspects start in order, accused ones before others`() {
        var pools = Self.pools()
        let names = (1...4).map {
            FlightName(reference: GenerationalHandle(record: Handle(index: $0), generation: UInt64($0)))
        }
        for name in names { pools.flightReturned(name, to: WorkerPool.web) }
        #expect(pools.takeReturned(of: WorkerPool.web) == names[3])
        #expect(pools[WorkerPool.web].returnedFlights == Array(names[..<3]))
        for name in names { pools.add(suspect: name, first: name == names[2], to: WorkerPool.web) }
        #expect(pools.nextSuspect(of: WorkerPool.web) == names[2])
        #expect(Array(pools.takeSuspects(of: WorkerPool.web)) == [names[0], names[1], names[3]])
        #expect(pools.nextSuspect(of: WorkerPool.web) == nil)
        pools.setQuarantine(WorkerID(rawValue: 7), of: WorkerPool.web)
        #expect(pools[WorkerPool.web].quarantine == WorkerID(rawValue: 7))
    }
}
