import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The fleet in isolation: phases of workers and leases, slots, liveness, and workers of an earlier broker.
struct WorkerFleetTests {
    fileprivate static let now = Tick(nanoseconds: 1_000_000_000)
    fileprivate static let web = [WorkerPool.web]

    fileprivate static func attempt(_ flight: UInt64, broker: UInt64 = 1) -> AttemptID {
        AttemptID(broker: BrokerInstance(rawValue: broker), flight: flight, attempt: 1)
    }

    fileprivate static func lease(
        _ use: WorkerLease.Use, isHigh: Bool = false, maxBytes: Int? = nil
    ) -> WorkerLease {
        WorkerLease(origin: 0, isHigh: isHigh, use: use, startedAt: now, maxBytes: maxBytes)
    }

    fileprivate static func later(_ milliseconds: Int) -> Tick { now.advanced(byMilliseconds: milliseconds) }

    /// A fleet without workers.
    fileprivate static func fleet() -> WorkerFleet {
        WorkerFleet(limits: WorkerFleet.Limits(heartbeatMilliseconds: 100, silenceMilliseconds: 1_000))
    }

    // MARK: Workers

    @Test func `the diagram of a worker has these transitions and no others`() {
        let phases = WorkerSession.Phase.allCases
        let legal = phases.map { from in phases.filter { WorkerSession.isLegal(from: from, to: $0) } }
        #expect(legal == [[.ready, .draining], [.draining], []])
    }

    @Test func `a worker joins, drains and goes, and is found by its name meanwhile`() {
        var fleet = Self.fleet()
        let id = WorkerID(rawValue: 4)
        fleet.connected(id, now: Self.now)
        fleet.connected(id, now: Self.now)
        #expect(fleet.count == 1 && fleet.indices.map { fleet[$0].phase } == [.joining])
        fleet.workerJoined(
            0, pools: [2], of: PrincipalTable.administrator, slots: 3, pid: 77, acceptsDrain: true, speaksHTTP2: false,
            isDraining: false)
        #expect(fleet[0].phase == .ready && fleet[0].pid == 77 && fleet[0].acceptsDrain && !fleet[0].speaksHTTP2)
        #expect(fleet[0].isOwn && fleet.freeSlots(of: 0) == 3)
        fleet.drain(0)
        fleet.drain(0)
        #expect(fleet[0].phase == .draining && fleet.freeSlots(of: 0) == 0)
        #expect(fleet.handle(of: id) == 0 && fleet.checkInvariants() == [])
        #expect(fleet.remove(id)?.pools == [2])
        #expect(fleet.handle(of: id) == nil && fleet.remove(id) == nil && fleet.count == 0)
    }

    @Test func `a drain reaches the workers that are ready, and one that joins later gets no work`() {
        var fleet = Self.fleet()
        fleet.add(1)
        let draining = fleet.add(2)
        fleet.drain(draining)
        fleet.connected(WorkerID(rawValue: 3), now: Self.now)
        #expect(fleet.drain() == [0])
        #expect(fleet.indices.map { fleet[$0].phase } == [.draining, .draining, .joining])
        fleet.join(2, isDraining: true)
        #expect(fleet[2].phase == .draining && fleet.freeSlots(of: 2) == 0 && fleet.drain() == [])
    }

    @Test func `a worker that goes leaves its leases in the order of flights, then of attempts`() throws {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        for flight in [2, 1, 3] as [Handle<Flight>] {
            fleet.start(Self.attempt(UInt64(10 - flight.index)), Self.lease(.flight(flight)), at: worker)
        }
        fleet.cancel(Self.attempt(8), at: worker)
        let departure = fleet.remove(WorkerID(rawValue: 1))
        let gone = try #require(departure)
        #expect(gone.leases.map(\.key.flight) == [8, 9, 7])
        #expect(gone.isolated == nil && !gone.wasAlone && gone.pools == Self.web)
    }

    @Test(arguments: [(0, false), (1, true), (2, false)])
    func `an attempt was alone if its worker had no other`(leases: Int, wasAlone: Bool) {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        for flight in 0..<leases { fleet.start(Self.attempt(UInt64(flight)), Self.lease(.flight(1)), at: worker) }
        #expect(fleet.remove(WorkerID(rawValue: 1))?.wasAlone == wasAlone)
    }

    // MARK: Leases

    enum Use: CaseIterable {
        case flight, cancelling

        var use: WorkerLease.Use {
            switch self {
            case .flight: .flight(5)
            case .cancelling: .cancelling
            }
        }
    }

    @Test func `the diagram of a lease has these transitions and no others`() {
        let legal = Use.allCases.map { from in
            Use.allCases.filter { WorkerLease.isLegal(from: from.use, to: $0.use) }
        }
        #expect(legal == [[.cancelling], []])
    }

    @Test(arguments: Use.allCases, [true, false])
    func `a lease is counted until it ends`(use: Use, isHigh: Bool) {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        let attempt = Self.attempt(1)
        fleet.start(attempt, Self.lease(.flight(5), isHigh: isHigh), at: worker)
        if use == .cancelling { fleet.cancel(attempt, at: worker) }
        #expect(fleet[worker].leases.use(of: attempt) == use.use)
        #expect(fleet[worker].leasesBelowHigh == (isHigh ? 0 : 1) && fleet.freeSlots(of: worker) == 7)
        #expect(fleet[worker].cancelling == (use == .cancelling ? 1 : 0))
        #expect(fleet.runningAttempts == 1)
        #expect(fleet.flight(of: attempt, by: WorkerID(rawValue: 1)) == (use == .flight ? 5 : nil))
        #expect(fleet.holds(attempt, WorkerID(rawValue: 1)) && !fleet.holds(attempt, WorkerID(rawValue: 2)))
        #expect(fleet.isHeld(attempt) && !fleet.isHeld(Self.attempt(2)))
        #expect(fleet.checkInvariants() == [])
        let ended = fleet.end(attempt, at: worker)
        #expect(ended?.use == use.use && ended?.isCancelling == (use == .cancelling))
        let again = fleet.end(attempt, at: worker)
        #expect(again == nil)
        #expect(fleet[worker].leasesBelowHigh == 0 && fleet[worker].cancelling == 0 && fleet[worker].isEmpty)
        #expect(fleet.checkInvariants() == [])
    }

    @Test func `a cancelled attempt keeps the request that may resume its part`() throws {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        let attempt = Self.attempt(1)
        fleet.start(attempt, Self.lease(.flight(3)), at: worker)
        #expect(fleet[worker].leases[attempt]?.flight == 3)
        let url = try FetchURL("http://a.example/")
        let request = HTTPRequest(method: .get, url: url, fields: HeaderFields())
        let key = FlightKey(request, redirect: .follow, partition: nil, alone: nil)
        fleet.cancel(attempt, abandoned: AbandonedFlight(key: key, request: request, partKeys: nil), at: worker)
        #expect(fleet[worker].leases[attempt]?.abandoned?.key == key)
        #expect(fleet[worker].leases[attempt]?.flight == nil && fleet[worker].cancelling == 1)
        #expect(fleet.checkInvariants() == [])
    }

    @Test(arguments: [
        (100, 101, true), (100, 100, false), (100, 99, false), (100, nil, true), (nil, 100, false), (nil, nil, false),
    ])
    func `a limit of bytes is raised and never lowered`(present: Int?, limit: Int?, isRaised: Bool) {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        fleet.start(Self.attempt(1), Self.lease(.flight(1), maxBytes: present), at: worker)
        #expect(fleet.raise(Self.attempt(1), to: limit, at: worker) == isRaised)
        let lease = fleet.lease(Self.attempt(1), by: WorkerID(rawValue: 1))
        #expect(lease?.maxBytes == (isRaised ? limit : present) && lease?.allowedBytes == present)
        #expect(fleet.raise(Self.attempt(2), to: nil, at: worker) == false)
    }

    @Test func `reports of a transfer change its lease alone, and those of an unknown one nothing`() {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        let id = WorkerID(rawValue: 1)
        let part = GrowingPart(file: "f", fields: HeaderFields(), generation: Self.attempt(1))
        for flight in [1, 2] as [UInt64] { fleet.start(Self.attempt(flight), Self.lease(.flight(1)), at: worker) }
        for flight in [1, 3] as [UInt64] {
            fleet.progressed(Self.attempt(flight), received: 10, total: 20, at: worker)
            fleet.partReported(part, of: Self.attempt(flight), at: worker)
            fleet.partGrew(Self.attempt(flight), to: 7, at: worker)
            #expect(fleet.partKept(of: Self.attempt(flight), bytes: 6, by: id) == (flight == 1))
        }
        #expect(fleet.partKept(of: Self.attempt(1), bytes: 8, by: WorkerID(rawValue: 2)) == false)
        let lease = fleet.lease(Self.attempt(1), by: id)
        #expect(lease?.receivedBytes == 10 && lease?.totalBytes == 20 && lease?.part?.file == "f")
        #expect(lease?.growingBytes == 7 && lease?.keptBytes == 6)
        let other = fleet.lease(Self.attempt(2), by: id)
        #expect(other?.receivedBytes == 0 && other?.part == nil && other?.keptBytes == nil)
        #expect(fleet.lease(Self.attempt(3), by: id) == nil && fleet[worker].leases.count == 2)
    }

    // MARK: Slots

    @Test(arguments: [
        (8, nil, 0, 8, 8), (8, 3, 0, 3, 3), (3, 8, 0, 3, 3), (8, nil, 5, 8, 3), (8, 3, 5, 3, 0), (0, nil, 0, 0, 0),
    ])
    func `slots are the smaller of what the worker offers and was told, less its transfers`(
        offered: Int, reported: Int?, leases: Int, slots: Int, free: Int
    ) {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        for flight in 0..<leases { fleet.start(Self.attempt(UInt64(flight)), Self.lease(.flight(1)), at: worker) }
        fleet.slotsOffered(offered, by: worker)
        fleet.announced(slots: reported, to: worker)
        #expect(fleet[worker].slots == slots && fleet.freeSlots(of: worker) == free)
        let count = fleet.slotCount(of: WorkerPool.web)
        #expect(count.total == slots && count.free == free && count.slotsBelowHigh == leases)
        // Leases above the lowered slots drain.
        #expect(fleet[worker].ceiling == max(slots, leases))
        #expect(fleet.checkInvariants() == [])
        guard leases > 0 else { return }
        _ = fleet.end(Self.attempt(0), at: worker)
        #expect(fleet[worker].ceiling == max(slots, leases - 1))
    }

    @Test func `a worker without pools has no slots`() {
        var fleet = Self.fleet()
        let worker = fleet.add(1, pools: [])
        fleet.slotsOffered(9, by: worker)
        #expect(fleet[worker].slots == 0 && fleet.slotCount(of: WorkerPool.web).total == 0)
    }

    @Test(
        arguments: [
            ([1, 1, 1], 0, 0, 0), ([1, 1, 1], 2, 0, 1), ([1, 2, 2], 3, 0, 2), ([1, 2, 2], 1, 0, 1),
            ([2, 1, 0], 3, 0, 0), ([0, 0, 0], 1, 0, nil), ([1, 4, 4], 1, 3, 0), ([4, 4, 1], 3, 3, 2),
            ([1, 4, 5], 1, 3, 2), ([5, 4, 1], 3, 3, 0), ([1, 0, 2], 2, 3, 2), ([1, 2, 2], 0, 3, 1),
        ] as [([Int], UInt64, Int, Handle<WorkerSession>?)])
    func `the preferred worker gets the next transfer up to the lead of others, else the freest, else the first`(
        free: [Int], preferred: UInt64, lead: Int, expected: Handle<WorkerSession>?
    ) {
        var fleet = Self.fleet()
        for (number, slots) in free.enumerated() { fleet.add(UInt64(number + 1), slots: slots) }
        fleet.add(9, slots: 5, pools: [1])
        let found = fleet.nextWorker(of: WorkerPool.web, preferring: WorkerID(rawValue: preferred), lead: lead)
        #expect(found == expected)
        #expect(fleet.nextWorker(of: 1, preferring: nil, lead: lead) == 3)
        #expect(fleet.slotCount(of: WorkerPool.web).free == free.reduce(0, +))
    }

    // MARK: Workers of an earlier broker

    @Test func `starts are delayed until each awaited process has reported`() {
        var fleet = Self.fleet()
        #expect(!fleet.isAwaiting)
        fleet.awaitProcesses([5, 6])
        #expect(fleet.isAwaiting)
        let (other, first, again) = (fleet.stopAwaiting(7), fleet.stopAwaiting(5), fleet.stopAwaiting(5))
        #expect(!other && !first && !again && fleet.isAwaiting)
        let last = fleet.stopAwaiting(6)
        let later = fleet.stopAwaiting(6)
        #expect(last && !later && !fleet.isAwaiting)
    }

    @Test func `the checks see work before READY, too many transfers and the isolation of none`() {
        var fleet = Self.fleet()
        fleet.connected(WorkerID(rawValue: 1), now: Self.now)
        fleet.start(Self.attempt(1), Self.lease(.flight(1)), at: 0)
        #expect(fleet.checkInvariants().contains("14: worker 0 has work before its READY"))
        let full = fleet.add(2, slots: 0)
        fleet.start(Self.attempt(2), Self.lease(.flight(1)), at: full)
        #expect(fleet.checkInvariants().last == "11: worker 1 is overfull")
        fleet.isolate(Self.attempt(3), until: Self.now, at: full)
        #expect(fleet.checkInvariants().last == "12: worker 1 isolates an attempt that has ended")
    }
}

/// Heartbeats and isolations: each timer in each state of a worker.
struct WorkerLivenessTests {
    private typealias Fleet = WorkerFleetTests

    /// Times are in milliseconds since the worker joined. The heartbeat is due after 100, and the reply to PING after
    /// 1,000.
    @Test(
        arguments: [
            (nil, 99, .waiting(until: Fleet.later(100))), (nil, 100, .pinging(until: Fleet.later(200))),
            (50, 100, .waiting(until: Fleet.later(150))), (50, 150, .pinging(until: Fleet.later(250))),
        ] as [(Int?, Int, WorkerFleet.Heartbeat)])
    func `a silent worker with transfers is asked for a sign of life`(
        lastReceived: Int?, now: Int, expected: WorkerFleet.Heartbeat
    ) {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        #expect(fleet.watch(worker, now: Fleet.now) == Fleet.later(100))
        #expect(fleet.watch(worker, now: Fleet.later(1)) == nil)
        fleet.start(Fleet.attempt(1), Fleet.lease(.flight(1)), at: worker)
        if let lastReceived { fleet.received(from: worker, now: Fleet.later(lastReceived)) }
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(now)) == expected)
    }

    @Test(
        arguments: [
            (nil, 1_099, .waiting(until: Fleet.later(1_100))), (nil, 1_100, .silent(until: Fleet.later(2_100))),
            (500, 1_100, .pinging(until: Fleet.later(1_200))),
        ] as [(Int?, Int, WorkerFleet.Heartbeat)])
    func `a worker that was asked has its time to answer`(lastReceived: Int?, now: Int, expected: WorkerFleet.Heartbeat)
    {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        _ = fleet.watch(worker, now: Fleet.now)
        fleet.start(Fleet.attempt(1), Fleet.lease(.flight(1)), at: worker)
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(100)) == .pinging(until: Fleet.later(200)))
        if let lastReceived { fleet.received(from: worker, now: Fleet.later(lastReceived)) }
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(now)) == expected)
    }

    @Test(arguments: [(100, 1_000, 200), (100, 50, 150)])
    func `a worker that was asked is looked at after the shorter of both times`(
        heartbeat: Int, silence: Int, expected: Int
    ) {
        var fleet = Fleet.fleet()
        fleet.limits = WorkerFleet.Limits(heartbeatMilliseconds: heartbeat, silenceMilliseconds: silence)
        let worker = fleet.add(1)
        fleet.start(Fleet.attempt(1), Fleet.lease(.flight(1)), at: worker)
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(100)) == .pinging(until: Fleet.later(expected)))
    }

    @Test func `a worker without transfers is left alone until it has some`() {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        _ = fleet.watch(worker, now: Fleet.now)
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(100)) == .idle)
        #expect(fleet.watch(worker, now: Fleet.later(300)) == Fleet.later(400))
        fleet.start(Fleet.attempt(1), Fleet.lease(.flight(1)), at: worker)
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(400)) == .pinging(until: Fleet.later(500)))
    }

    /// A fleet with a worker that isolates flight 5 until 100 ms after it joined.
    private func isolating() -> (fleet: WorkerFleet, worker: Handle<WorkerSession>) {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        fleet.start(Fleet.attempt(1), Fleet.lease(.flight(5)), at: worker)
        fleet.isolate(Fleet.attempt(1), until: Fleet.later(100), at: worker)
        return (fleet, worker)
    }

    @Test(
        arguments: [
            (nil, 1_099, .stale), (nil, 1_100, .silent), (100, 1_100, .silent), (101, 1_099, .stale),
            (101, 1_100, .cleared(flight: 5)),
        ] as [(Int?, Int, WorkerFleet.IsolationEnd)])
    func `after an isolation the worker is asked, and the suspect cleared if it was heard since`(
        lastReceived: Int?, now: Int, expected: WorkerFleet.IsolationEnd
    ) {
        var (fleet, worker) = isolating()
        #expect(fleet.isolationEnded(at: worker, now: Fleet.later(99)) == .stale)
        #expect(
            fleet.isolationEnded(at: worker, now: Fleet.later(100))
                == .awaiting(until: Fleet.later(1_100), pings: true))
        if let lastReceived { fleet.received(from: worker, now: Fleet.later(lastReceived)) }
        #expect(fleet.isolationEnded(at: worker, now: Fleet.later(now)) == expected)
        #expect((fleet[worker].isolation == nil) == (expected == .cleared(flight: 5)))
    }

    @Test func `a worker that owes an answer is not asked twice`() {
        var (fleet, worker) = isolating()
        _ = fleet.watch(worker, now: Fleet.now)
        #expect(fleet.heartbeat(of: worker, now: Fleet.later(100)) == .pinging(until: Fleet.later(200)))
        #expect(
            fleet.isolationEnded(at: worker, now: Fleet.later(100))
                == .awaiting(until: Fleet.later(1_100), pings: false))
    }

    @Test func `a PONG clears a suspect after its isolation, not before`() {
        var (fleet, worker) = isolating()
        #expect(fleet.ponged(worker) == nil && fleet[worker].isolation != nil)
        _ = fleet.isolationEnded(at: worker, now: Fleet.later(100))
        #expect(fleet.ponged(worker) == 5 && fleet[worker].isolation == nil)
        #expect(fleet.ponged(worker) == nil)
        #expect(fleet.isolationEnded(at: worker, now: Fleet.later(200)) == .stale)
    }

    @Test func `a suspect that is cancelled is no longer cleared, one that ends is isolated no longer`() {
        var (fleet, worker) = isolating()
        var cancelled = fleet
        cancelled.cancel(Fleet.attempt(1), at: worker)
        _ = cancelled.isolationEnded(at: worker, now: Fleet.later(100))
        #expect(cancelled.ponged(worker) == nil && cancelled[worker].isolation == nil)
        fleet.start(Fleet.attempt(2), Fleet.lease(.flight(6)), at: worker)
        _ = fleet.end(Fleet.attempt(2), at: worker)
        #expect(fleet[worker].isolation?.attempt == Fleet.attempt(1))
        _ = fleet.end(Fleet.attempt(1), at: worker)
        #expect(fleet[worker].isolation == nil && fleet.checkInvariants() == [])
    }

    @Test func `a worker that dies names the attempt that it isolated`() {
        var (fleet, worker) = isolating()
        fleet.start(Fleet.attempt(2), Fleet.lease(.flight(6)), at: worker)
        let gone = fleet.remove(WorkerID(rawValue: 1))
        #expect(gone?.isolated == Fleet.attempt(1) && gone?.wasAlone == false)
    }

    @Test func `a suspect runs in the quarantine or in an empty worker, and nothing else in the quarantine`() {
        var fleet = Fleet.fleet()
        let (busy, empty) = (fleet.add(1, slots: 2), fleet.add(2))
        fleet.start(Fleet.attempt(1), Fleet.lease(.flight(1)), at: busy)
        func place(_ quarantine: Handle<WorkerSession>?) -> [String] {
            fleet.workerForSuspect(of: WorkerPool.web, quarantine: quarantine).map {
                ["\($0.worker)", "\($0.isEmpty)"]
            }
                ?? []
        }
        #expect(place(nil) == ["1", "true"])
        #expect(fleet.workerForSuspect(of: 1, quarantine: nil) == nil)
        // The quarantine of another pool is not available, even if empty.
        fleet.setQuarantine(empty, true)
        #expect(place(nil) == [])
        fleet.setQuarantine(empty, false)
        // Preference: an empty worker, then a quarantine with transfers.
        fleet.setQuarantine(busy, true)
        #expect(fleet.freeSlots(of: busy) == 0 && fleet.unusedSlots(of: busy) == 1)
        #expect(place(busy) == ["1", "true"])
        fleet.drain(empty)
        #expect(place(busy) == ["0", "false"])
        fleet.isolate(Fleet.attempt(1), until: Fleet.later(100), at: busy)
        #expect(place(busy) == [])
        _ = fleet.end(Fleet.attempt(1), at: busy)
        #expect(place(busy) == ["0", "true"])
        fleet.setQuarantine(busy, false)
        #expect(fleet.freeSlots(of: busy) == 2)
        fleet.slotsOffered(0, by: busy)
        #expect(place(busy) == [])
        fleet.slotsOffered(2, by: busy)
        #expect(place(busy) == ["0", "true"])
        fleet.drain(busy)
        #expect(place(busy) == [])
    }
}

extension WorkerFleet {
    /// Adds a worker that has joined.
    @discardableResult
    fileprivate mutating func add(_ id: UInt64, slots: Int = 8, pools: [Handle<WorkerPool>] = WorkerFleetTests.web)
        -> Handle<WorkerSession>
    {
        connected(WorkerID(rawValue: id), now: WorkerFleetTests.now)
        guard let worker = handle(of: WorkerID(rawValue: id)) else { preconditionFailure("a worker that connects") }
        join(worker, slots: slots, pools: pools)
        return worker
    }

    fileprivate mutating func join(
        _ worker: Handle<WorkerSession>, slots: Int = 8, pools: [Handle<WorkerPool>] = WorkerFleetTests.web,
        isDraining: Bool = false
    ) {
        workerJoined(
            worker, pools: pools, of: PrincipalTable.administrator, slots: slots, pid: 1, acceptsDrain: false,
            speaksHTTP2: true, isDraining: isDraining)
    }
}
