import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The fleet in isolation: phases of workers and leases, slots, liveness, and workers of an earlier broker.
struct WorkerFleetTests {
    fileprivate static let now = MonotonicTime(nanoseconds: 1_000_000_000)
    fileprivate static let web = [WorkerPool.webPoolHandle]

    fileprivate static func attempt(_ flight: UInt64, broker: UInt64 = 1) -> AttemptID {
        AttemptID(broker: BrokerInstance(rawValue: broker), flight: flight, attempt: 1)
    }

    fileprivate static func lease(
        _ use: WorkerLease.LeaseUse, isHigh: Bool = false, maximumBodyBytes: Int? = nil
    ) -> WorkerLease {
        WorkerLease(origin: 0, isHigh: isHigh, use: use, startedAt: now, maximumBodyBytes: maximumBodyBytes)
    }

    fileprivate static func later(_ milliseconds: Int) -> MonotonicTime { now.advanced(byMilliseconds: milliseconds) }

    /// A fleet without workers.
    fileprivate static func fleet() -> WorkerFleet {
        WorkerFleet(
            heartbeatLimits: WorkerFleet.HeartbeatLimits(
                silenceBeforePingMilliseconds: 100, pingTimeoutMilliseconds: 1_000))
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
        fleet.addConnectedWorker(id, now: Self.now)
        fleet.addConnectedWorker(id, now: Self.now)
        #expect(fleet.count == 1 && fleet.indices.map { fleet[$0].phase } == [.joining])
        fleet.workerJoined(
            0, pools: [2], of: PrincipalTable.administrator, slots: 3, pid: 77, acceptsDrain: true, speaksHTTP2: false,
            isDraining: false)
        #expect(
            fleet[0].phase == .ready && fleet[0].workerProcessID == 77 && fleet[0].acceptsDrain && !fleet[0].speaksHTTP2
        )
        #expect(fleet[0].isUserProvided && fleet.freeSlots(of: 0) == 3)
        fleet.drain(0)
        fleet.drain(0)
        #expect(fleet[0].phase == .draining && fleet.freeSlots(of: 0) == 0)
        #expect(fleet.handle(of: id) == 0 && fleet.checkInvariants() == [])
        #expect(fleet.remove(id)?.servedPools == [2])
        #expect(fleet.handle(of: id) == nil && fleet.remove(id) == nil && fleet.count == 0)
    }

    @Test func `a drain reaches the workers that are ready, and one that joins later gets no work`() {
        var fleet = Self.fleet()
        fleet.add(1)
        let draining = fleet.add(2)
        fleet.drain(draining)
        fleet.addConnectedWorker(WorkerID(rawValue: 3), now: Self.now)
        #expect(fleet.drainAll() == [0])
        #expect(fleet.indices.map { fleet[$0].phase } == [.draining, .draining, .joining])
        fleet.join(2, isDraining: true)
        #expect(fleet[2].phase == .draining && fleet.freeSlots(of: 2) == 0 && fleet.drainAll() == [])
    }

    @Test func `a worker that goes leaves its leases in the order of flights, then of attempts`() throws {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        for flight in [2, 1, 3] as [Handle<Flight>] {
            fleet.addLease(
                of: Self.attempt(UInt64(10 - flight.slabIndex)), Self.lease(.servingFlight(flight)), at: worker)
        }
        fleet.cancelAttempt(Self.attempt(8), at: worker)
        let departure = fleet.remove(WorkerID(rawValue: 1))
        let gone = try #require(departure)
        #expect(gone.leases.map(\.key.flight) == [8, 9, 7])
        #expect(gone.isolatedAttempt == nil && !gone.hadSingleTransfer && gone.servedPools == Self.web)
    }

    @Test(arguments: [(0, false), (1, true), (2, false)])
    func `an attempt was alone if its worker had no other`(leases: Int, wasAlone: Bool) {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        for flight in 0..<leases {
            fleet.addLease(of: Self.attempt(UInt64(flight)), Self.lease(.servingFlight(1)), at: worker)
        }
        #expect(fleet.remove(WorkerID(rawValue: 1))?.hadSingleTransfer == wasAlone)
    }

    // MARK: Leases

    enum Use: CaseIterable {
        case flight, cancelling

        var use: WorkerLease.LeaseUse {
            switch self {
            case .flight: .servingFlight(5)
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
        fleet.addLease(of: attempt, Self.lease(.servingFlight(5), isHigh: isHigh), at: worker)
        if use == .cancelling { fleet.cancelAttempt(attempt, at: worker) }
        #expect(fleet[worker].leases.leaseUse(of: attempt) == use.use)
        #expect(fleet[worker].belowHighLeaseCount == (isHigh ? 0 : 1) && fleet.freeSlots(of: worker) == 7)
        #expect(fleet[worker].cancellingLeaseCount == (use == .cancelling ? 1 : 0))
        #expect(fleet.leaseCount == 1)
        #expect(fleet.flight(of: attempt, by: WorkerID(rawValue: 1)) == (use == .flight ? 5 : nil))
        #expect(
            fleet.holdsLease(of: attempt, by: WorkerID(rawValue: 1))
                && !fleet.holdsLease(of: attempt, by: WorkerID(rawValue: 2)))
        #expect(fleet.hasLeaseAtAnyWorker(attempt) && !fleet.hasLeaseAtAnyWorker(Self.attempt(2)))
        #expect(fleet.checkInvariants() == [])
        let ended = fleet.endLease(of: attempt, at: worker)
        #expect(ended?.leaseUse == use.use && ended?.isCancelling == (use == .cancelling))
        let again = fleet.endLease(of: attempt, at: worker)
        #expect(again == nil)
        #expect(
            fleet[worker].belowHighLeaseCount == 0 && fleet[worker].cancellingLeaseCount == 0
                && fleet[worker].hasNoTransfers)
        #expect(fleet.checkInvariants() == [])
    }

    @Test func `a cancelled attempt keeps the request that may resume its part`() throws {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        let attempt = Self.attempt(1)
        fleet.addLease(of: attempt, Self.lease(.servingFlight(3)), at: worker)
        #expect(fleet[worker].leases[attempt]?.flight == 3)
        let url = try FetchURL("http://a.example/")
        let request = HTTPRequest(method: .get, url: url, fields: HeaderFields())
        let key = FlightKey(request, redirect: .follow, partition: nil, alone: nil)
        fleet.cancelAttempt(
            attempt, abandoned: CancelledAttemptFlight(key: key, request: request, partKeys: nil), at: worker)
        #expect(fleet[worker].leases[attempt]?.cancelledFlight?.key == key)
        #expect(fleet[worker].leases[attempt]?.flight == nil && fleet[worker].cancellingLeaseCount == 1)
        #expect(fleet.checkInvariants() == [])
    }

    @Test(arguments: [
        (100, 101, true), (100, 100, false), (100, 99, false), (100, nil, true), (nil, 100, false), (nil, nil, false),
    ])
    func `a limit of bytes is raised and never lowered`(present: Int?, limit: Int?, isRaised: Bool) {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        fleet.addLease(of: Self.attempt(1), Self.lease(.servingFlight(1), maximumBodyBytes: present), at: worker)
        #expect(fleet.raiseSizeLimit(of: Self.attempt(1), to: limit, at: worker) == isRaised)
        let lease = fleet.lease(Self.attempt(1), by: WorkerID(rawValue: 1))
        #expect(lease?.currentMaximumBytes == (isRaised ? limit : present) && lease?.jobMaximumBytes == present)
        #expect(fleet.raiseSizeLimit(of: Self.attempt(2), to: nil, at: worker) == false)
    }

    @Test func `reports of a transfer change its lease alone, and those of an unknown one nothing`() {
        var fleet = Self.fleet()
        let worker = fleet.add(1)
        let id = WorkerID(rawValue: 1)
        let part = GrowingPart(file: "f", responseFields: HeaderFields(), generation: Self.attempt(1))
        for flight in [1, 2] as [UInt64] {
            fleet.addLease(of: Self.attempt(flight), Self.lease(.servingFlight(1)), at: worker)
        }
        for flight in [1, 3] as [UInt64] {
            fleet.recordProgress(of: Self.attempt(flight), received: 10, total: 20, at: worker)
            fleet.recordPartFile(part, of: Self.attempt(flight), at: worker)
            fleet.recordPartFileSize(of: Self.attempt(flight), to: 7, at: worker)
            #expect(fleet.recordKeptPart(of: Self.attempt(flight), bytes: 6, by: id) == (flight == 1))
        }
        #expect(fleet.recordKeptPart(of: Self.attempt(1), bytes: 8, by: WorkerID(rawValue: 2)) == false)
        let lease = fleet.lease(Self.attempt(1), by: id)
        #expect(lease?.receivedBytes == 10 && lease?.wholeBodyBytes == 20 && lease?.partFile?.file == "f")
        #expect(lease?.countedPartFileBytes == 7 && lease?.renamedFileBytes == 6)
        let other = fleet.lease(Self.attempt(2), by: id)
        #expect(other?.receivedBytes == 0 && other?.partFile == nil && other?.renamedFileBytes == nil)
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
        for flight in 0..<leases {
            fleet.addLease(of: Self.attempt(UInt64(flight)), Self.lease(.servingFlight(1)), at: worker)
        }
        fleet.slotsOffered(offered, by: worker)
        fleet.limitsAnnounced(slots: reported, to: worker)
        #expect(fleet[worker].usableSlots == slots && fleet.freeSlots(of: worker) == free)
        let count = fleet.slotCount(of: WorkerPool.webPoolHandle)
        #expect(count.totalSlots == slots && count.freeSlots == free && count.slotsTakenBelowHigh == leases)
        // Leases above the lowered slots drain.
        #expect(fleet[worker].maximumLeases == max(slots, leases))
        #expect(fleet.checkInvariants() == [])
        guard leases > 0 else { return }
        _ = fleet.endLease(of: Self.attempt(0), at: worker)
        #expect(fleet[worker].maximumLeases == max(slots, leases - 1))
    }

    @Test func `a worker without pools has no slots`() {
        var fleet = Self.fleet()
        let worker = fleet.add(1, pools: [])
        fleet.slotsOffered(9, by: worker)
        #expect(fleet[worker].usableSlots == 0 && fleet.slotCount(of: WorkerPool.webPoolHandle).totalSlots == 0)
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
        let found = fleet.nextWorker(
            of: WorkerPool.webPoolHandle, preferring: WorkerID(rawValue: preferred), freeSlotLead: lead)
        #expect(found == expected)
        #expect(fleet.nextWorker(of: 1, preferring: nil, freeSlotLead: lead) == 3)
        #expect(fleet.slotCount(of: WorkerPool.webPoolHandle).freeSlots == free.reduce(0, +))
    }

    // MARK: Workers of an earlier broker

    @Test func `starts are delayed until each awaited process has reported`() {
        var fleet = Self.fleet()
        #expect(!fleet.isAwaitingEarlierProcesses)
        fleet.awaitEarlierProcesses([5, 6])
        #expect(fleet.isAwaitingEarlierProcesses)
        let (other, first, again) = (
            fleet.stopAwaitingProcess(7), fleet.stopAwaitingProcess(5), fleet.stopAwaitingProcess(5)
        )
        #expect(!other && !first && !again && fleet.isAwaitingEarlierProcesses)
        let last = fleet.stopAwaitingProcess(6)
        let later = fleet.stopAwaitingProcess(6)
        #expect(last && !later && !fleet.isAwaitingEarlierProcesses)
    }

    @Test func `the checks see work before READY, too many transfers and the isolation of none`() {
        var fleet = Self.fleet()
        fleet.addConnectedWorker(WorkerID(rawValue: 1), now: Self.now)
        fleet.addLease(of: Self.attempt(1), Self.lease(.servingFlight(1)), at: 0)
        #expect(fleet.checkInvariants().contains("14: worker 0 has work before its READY"))
        let full = fleet.add(2, slots: 0)
        fleet.addLease(of: Self.attempt(2), Self.lease(.servingFlight(1)), at: full)
        #expect(fleet.checkInvariants().last == "11: worker 1 is overfull")
        fleet.isolateAttempt(Self.attempt(3), until: Self.now, at: full)
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
            (nil, 99, .checkAgain(at: Fleet.later(100))), (nil, 100, .sendPing(checkAt: Fleet.later(200))),
            (50, 100, .checkAgain(at: Fleet.later(150))), (50, 150, .sendPing(checkAt: Fleet.later(250))),
        ] as [(Int?, Int, WorkerFleet.HeartbeatResult)])
    func `a silent worker with transfers is asked for a sign of life`(
        lastReceived: Int?, now: Int, expected: WorkerFleet.HeartbeatResult
    ) {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        #expect(fleet.startHeartbeat(of: worker, now: Fleet.now) == Fleet.later(100))
        #expect(fleet.startHeartbeat(of: worker, now: Fleet.later(1)) == nil)
        fleet.addLease(of: Fleet.attempt(1), Fleet.lease(.servingFlight(1)), at: worker)
        if let lastReceived { fleet.messageReceived(from: worker, now: Fleet.later(lastReceived)) }
        #expect(fleet.heartbeatTimerFired(of: worker, now: Fleet.later(now)) == expected)
    }

    @Test(
        arguments: [
            (nil, 1_099, .checkAgain(at: Fleet.later(1_100))), (nil, 1_100, .unresponsive(checkAt: Fleet.later(2_100))),
            (500, 1_100, .sendPing(checkAt: Fleet.later(1_200))),
        ] as [(Int?, Int, WorkerFleet.HeartbeatResult)])
    func `a worker that was asked has its time to answer`(
        lastReceived: Int?, now: Int, expected: WorkerFleet.HeartbeatResult
    ) {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        _ = fleet.startHeartbeat(of: worker, now: Fleet.now)
        fleet.addLease(of: Fleet.attempt(1), Fleet.lease(.servingFlight(1)), at: worker)
        #expect(fleet.heartbeatTimerFired(of: worker, now: Fleet.later(100)) == .sendPing(checkAt: Fleet.later(200)))
        if let lastReceived { fleet.messageReceived(from: worker, now: Fleet.later(lastReceived)) }
        #expect(fleet.heartbeatTimerFired(of: worker, now: Fleet.later(now)) == expected)
    }

    @Test(arguments: [(100, 1_000, 200), (100, 50, 150)])
    func `a worker that was asked is looked at after the shorter of both times`(
        heartbeat: Int, silence: Int, expected: Int
    ) {
        var fleet = Fleet.fleet()
        fleet.heartbeatLimits = WorkerFleet.HeartbeatLimits(
            silenceBeforePingMilliseconds: heartbeat, pingTimeoutMilliseconds: silence)
        let worker = fleet.add(1)
        fleet.addLease(of: Fleet.attempt(1), Fleet.lease(.servingFlight(1)), at: worker)
        #expect(
            fleet.heartbeatTimerFired(of: worker, now: Fleet.later(100)) == .sendPing(checkAt: Fleet.later(expected)))
    }

    @Test func `a worker without transfers is left alone until it has some`() {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        _ = fleet.startHeartbeat(of: worker, now: Fleet.now)
        #expect(fleet.heartbeatTimerFired(of: worker, now: Fleet.later(100)) == .noTransfers)
        #expect(fleet.startHeartbeat(of: worker, now: Fleet.later(300)) == Fleet.later(400))
        fleet.addLease(of: Fleet.attempt(1), Fleet.lease(.servingFlight(1)), at: worker)
        #expect(fleet.heartbeatTimerFired(of: worker, now: Fleet.later(400)) == .sendPing(checkAt: Fleet.later(500)))
    }

    /// A fleet with a worker that isolates flight 5 until 100 ms after it joined.
    private func isolating() -> (fleet: WorkerFleet, worker: Handle<WorkerSession>) {
        var fleet = Fleet.fleet()
        let worker = fleet.add(1)
        fleet.addLease(of: Fleet.attempt(1), Fleet.lease(.servingFlight(5)), at: worker)
        fleet.isolateAttempt(Fleet.attempt(1), until: Fleet.later(100), at: worker)
        return (fleet, worker)
    }

    @Test(
        arguments: [
            (nil, 1_099, .staleTimer), (nil, 1_100, .workerUnresponsive), (100, 1_100, .workerUnresponsive),
            (101, 1_099, .staleTimer),
            (101, 1_100, .suspectCleared(flight: 5)),
        ] as [(Int?, Int, WorkerFleet.IsolationTimerResult)])
    func `after an isolation the worker is asked, and the suspect cleared if it was heard since`(
        lastReceived: Int?, now: Int, expected: WorkerFleet.IsolationTimerResult
    ) {
        var (fleet, worker) = isolating()
        #expect(fleet.isolationTimerFired(at: worker, now: Fleet.later(99)) == .staleTimer)
        #expect(
            fleet.isolationTimerFired(at: worker, now: Fleet.later(100))
                == .awaitAnswer(until: Fleet.later(1_100), sendsPing: true))
        if let lastReceived { fleet.messageReceived(from: worker, now: Fleet.later(lastReceived)) }
        #expect(fleet.isolationTimerFired(at: worker, now: Fleet.later(now)) == expected)
        #expect((fleet[worker].suspectIsolation == nil) == (expected == .suspectCleared(flight: 5)))
    }

    @Test func `a worker that owes an answer is not asked twice`() {
        var (fleet, worker) = isolating()
        _ = fleet.startHeartbeat(of: worker, now: Fleet.now)
        #expect(fleet.heartbeatTimerFired(of: worker, now: Fleet.later(100)) == .sendPing(checkAt: Fleet.later(200)))
        #expect(
            fleet.isolationTimerFired(at: worker, now: Fleet.later(100))
                == .awaitAnswer(until: Fleet.later(1_100), sendsPing: false))
    }

    @Test func `a PONG clears a suspect after its isolation, not before`() {
        var (fleet, worker) = isolating()
        #expect(fleet.pongReceived(from: worker) == nil && fleet[worker].suspectIsolation != nil)
        _ = fleet.isolationTimerFired(at: worker, now: Fleet.later(100))
        #expect(fleet.pongReceived(from: worker) == 5 && fleet[worker].suspectIsolation == nil)
        #expect(fleet.pongReceived(from: worker) == nil)
        #expect(fleet.isolationTimerFired(at: worker, now: Fleet.later(200)) == .staleTimer)
    }

    @Test func `a suspect that is cancelled is no longer cleared, one that ends is isolated no longer`() {
        var (fleet, worker) = isolating()
        var cancelled = fleet
        cancelled.cancelAttempt(Fleet.attempt(1), at: worker)
        _ = cancelled.isolationTimerFired(at: worker, now: Fleet.later(100))
        #expect(cancelled.pongReceived(from: worker) == nil && cancelled[worker].suspectIsolation == nil)
        fleet.addLease(of: Fleet.attempt(2), Fleet.lease(.servingFlight(6)), at: worker)
        _ = fleet.endLease(of: Fleet.attempt(2), at: worker)
        #expect(fleet[worker].suspectIsolation?.attempt == Fleet.attempt(1))
        _ = fleet.endLease(of: Fleet.attempt(1), at: worker)
        #expect(fleet[worker].suspectIsolation == nil && fleet.checkInvariants() == [])
    }

    @Test func `a worker that dies names the attempt that it isolated`() {
        var (fleet, worker) = isolating()
        fleet.addLease(of: Fleet.attempt(2), Fleet.lease(.servingFlight(6)), at: worker)
        let gone = fleet.remove(WorkerID(rawValue: 1))
        #expect(gone?.isolatedAttempt == Fleet.attempt(1) && gone?.hadSingleTransfer == false)
    }

    @Test func `a suspect runs in the quarantine or in an empty worker, and nothing else in the quarantine`() {
        var fleet = Fleet.fleet()
        let (busy, empty) = (fleet.add(1, slots: 2), fleet.add(2))
        fleet.addLease(of: Fleet.attempt(1), Fleet.lease(.servingFlight(1)), at: busy)
        func place(_ quarantine: Handle<WorkerSession>?) -> [String] {
            fleet.workerForSuspect(of: WorkerPool.webPoolHandle, quarantine: quarantine).map {
                ["\($0.worker)", "\($0.isEmpty)"]
            }
                ?? []
        }
        #expect(place(nil) == ["1", "true"])
        #expect(fleet.workerForSuspect(of: 1, quarantine: nil) == nil)
        // The quarantine of another pool is not available, even if empty.
        fleet.setQuarantine(of: empty, true)
        #expect(place(nil) == [])
        fleet.setQuarantine(of: empty, false)
        // Preference: an empty worker, then a quarantine with transfers.
        fleet.setQuarantine(of: busy, true)
        #expect(fleet.freeSlots(of: busy) == 0 && fleet.slotsWithoutTransfer(of: busy) == 1)
        #expect(place(busy) == ["1", "true"])
        fleet.drain(empty)
        #expect(place(busy) == ["0", "false"])
        fleet.isolateAttempt(Fleet.attempt(1), until: Fleet.later(100), at: busy)
        #expect(place(busy) == [])
        _ = fleet.endLease(of: Fleet.attempt(1), at: busy)
        #expect(place(busy) == ["0", "true"])
        fleet.setQuarantine(of: busy, false)
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
        addConnectedWorker(WorkerID(rawValue: id), now: WorkerFleetTests.now)
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
