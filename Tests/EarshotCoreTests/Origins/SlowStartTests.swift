import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The slow start of origins after the death of an earlier broker: in the governor alone, and in a broker that waits for
/// the workers of the dead one.
struct SlowStartTests {
    private static let start = MonotonicTime(nanoseconds: 1_000_000_000)

    private static func later(_ milliseconds: Int) -> MonotonicTime { start.advanced(byMilliseconds: milliseconds) }

    private static func terms(_ limit: Int) -> OriginEntry.Terms { (limit, 0, true, 0) }

    private static func governor() -> OriginGovernor {
        var limits = CoreLimits()
        (limits.maximumCoolDownOnlyScopes, limits.maximumCoolDownMilliseconds, limits.slowStartPeriodMilliseconds) = (
            1, 1_000, 1_000
        )
        return OriginGovernor(limits: OriginGovernor.Limits(limits))
    }

    /// Adds an origin with a flight, so that it is not forgotten.
    private static func add(
        _ limit: Int, to governor: inout OriginGovernor, host: String = "a.example",
        pool: Handle<WorkerPool> = WorkerPool.webPoolHandle, now: MonotonicTime
    ) throws -> (origin: Handle<OriginEntry>, step: OriginGovernor.SlowStartStep?) {
        let url = try FetchURL("http://\(host)/")
        var entry = OriginEntry(of: url, nameHash: UInt32(truncatingIfNeeded: url.originHash), pool: pool)
        entry.setTerms(terms(limit))
        let added = governor.addOrigin(entry, now: now)
        let scope = governor.scope(.credentialFree, at: added.origin)
        governor.flightJoined(scope)
        return added
    }

    // MARK: The governor

    @Test func `a limit doubles from 1 every 100 ms up to that of the rules`() throws {
        var governor = Self.governor()
        governor.prepareSlowStart()
        let (origin, early) = try Self.add(6, to: &governor, now: Self.start)
        #expect(early == nil && governor.origins[origin].transferLimit == 1, "the broker is not open")
        let timers = governor.beginSlowStartSteps(now: Self.start)
        #expect(timers.map(\.dueAt) == [Self.later(100)])
        var limits: [Int32] = []
        var next = timers.first
        while let step = next {
            #expect(governor.isCurrentSlowStartTimer(origin, serial: step.timerSerial))
            #expect(governor.checkInvariants() == [])
            next = governor.slowStartStep(of: origin, now: step.dueAt)
            limits.append(governor.origins[origin].transferLimit)
        }
        #expect(limits == [2, 4, 6])
        #expect(governor.slowStartState?.timerSerialsByOrigin.isEmpty == true && governor.checkInvariants() == [])
    }

    @Test func `an origin that becomes known after the opening has a slow start of its own, and a late one has none`()
        throws
    {
        var governor = Self.governor()
        governor.prepareSlowStart()
        #expect(governor.beginSlowStartSteps(now: Self.start) == [])
        let (first, step) = try Self.add(2, to: &governor, now: Self.later(999))
        #expect(step?.dueAt == Self.later(1_099) && governor.origins[first].transferLimit == 1)
        let end = governor.slowStartStep(of: first, now: Self.later(1_099))
        #expect(end == nil && governor.origins[first].transferLimit == 2)
        let (late, none) = try Self.add(6, to: &governor, host: "b.example", now: Self.later(1_000))
        #expect(none == nil && governor.origins[late].transferLimit == 6 && governor.slowStartState == nil)
    }

    @Test func `a broker that follows no dead one, and origins of users' own workers, have no slow start`() throws {
        var governor = Self.governor()
        let (origin, step) = try Self.add(6, to: &governor, now: Self.start)
        #expect(
            step == nil && governor.origins[origin].transferLimit == 6
                && governor.beginSlowStartSteps(now: Self.start) == [])
        governor = Self.governor()
        governor.prepareSlowStart()
        let (own, _) = try Self.add(.max, to: &governor, pool: 7, now: Self.start)
        #expect(governor.origins[own].transferLimit == .max && governor.beginSlowStartSteps(now: Self.start) == [])
    }

    @Test func `changed rules apply at once only as far as they lower the limit`() throws {
        var governor = Self.governor()
        governor.prepareSlowStart()
        let (origin, _) = try Self.add(8, to: &governor, now: Self.start)
        let first = governor.beginSlowStartSteps(now: Self.start).first
        #expect(first != nil)
        _ = governor.slowStartStep(of: origin, now: Self.later(100))
        _ = governor.slowStartStep(of: origin, now: Self.later(200))
        _ = governor.setTerms(Self.terms(100), of: origin, now: Self.later(200))
        #expect(governor.origins[origin].transferLimit == 4)
        _ = governor.setTerms(Self.terms(3), of: origin, now: Self.later(200))
        #expect(governor.origins[origin].transferLimit == 3)
        _ = governor.setTerms(Self.terms(8), of: origin, now: Self.later(200))
        #expect(governor.origins[origin].transferLimit == 3 && governor.checkInvariants() == [])
        let last = governor.slowStartStep(of: origin, now: Self.later(300))
        #expect(last != nil && governor.origins[origin].transferLimit == 6)
    }

    // MARK: The broker

    private func rig(awaiting processes: Set<Int32>, isSupervised: Bool = true) -> CoreRig {
        var rig = CoreRig()
        rig.core.shellFeatures.isSupervised = isSupervised
        rig.core.recoverFromBrokerDeath(
            awaiting: processes, until: rig.now.advanced(byMilliseconds: 1_000), now: rig.now)
        let client = rig.client(1)
        rig.pass { rig in for number in 1...8 { rig.fetch("h", "\(number)", "http://h/\(number)", by: client) } }
        return rig
    }

    private static let kill = Action.supervisor(.killWorker(2))

    @Test func `nothing starts until each awaited worker is READY or has ended`() {
        var rig = rig(awaiting: [1, 2])
        rig.pass { _ = $0.worker(3) }
        rig.pass { _ = $0.worker(1) }
        #expect(rig.jobs.isEmpty && !rig.actions.contains(.spool(.removeStaleAttemptFiles)))
        var other = rig
        rig.pass { _ = $0.worker(2) }
        #expect(rig.jobs.count == 1 && rig.actions.contains(.spool(.removeStaleAttemptFiles)))
        other.pass { $0.core.formerProcessEnded(2, now: $0.now) }
        #expect(other.jobs.count == 1 && other.core.audit() == [])
    }

    @Test func `a worker that is late is killed by the supervisor, and nothing starts before its end`() {
        var rig = rig(awaiting: [1, 2])
        rig.pass { _ = $0.worker(1) }
        rig.wait(milliseconds: 999)
        #expect(!rig.actions.contains(Self.kill))
        rig.wait(milliseconds: 1)
        #expect(rig.actions.contains(Self.kill) && rig.jobs.isEmpty)
        rig.wait(milliseconds: 5_000)
        #expect(!rig.actions.contains(Self.kill) && rig.jobs.isEmpty)
        rig.pass { $0.core.formerProcessEnded(2, now: $0.now) }
        #expect(rig.jobs.count == 1)
    }

    @Test func `without a supervisor the wait ends after its time`() {
        var rig = rig(awaiting: [1, 2], isSupervised: false)
        rig.pass { _ = $0.worker(1) }
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.count == 1 && !rig.actions.contains(Self.kill))
    }

    @Test func `the transfers of an origin double every 100 ms up to its limit`() {
        var rig = rig(awaiting: [])
        rig.pass { _ = $0.worker(1) }
        var started = [rig.jobs.count]
        for _ in 1...4 {
            rig.wait(milliseconds: 100)
            started.append(rig.jobs.count)
        }
        // Of the usual limit of 6, one place is kept for `high`.
        #expect(started == [1, 1, 1, 2, 0] && rig.core.audit() == [])
    }
}
