import EarshotWire
import Testing

@testable import EarshotCore

/// Limits of origins under rules that may change, and the preferred worker of an origin.
struct OriginTests {
    private var rig = CoreRig()

    private static func limits(_ rules: [String: Int]) -> CoreLimits {
        var limits = CoreLimits()
        for (pattern, limit) in rules {
            limits.originRules.rules[OriginPattern(pattern)!] = OriginRules.RuleTerms(maximumTransfers: limit)
        }
        return limits
    }

    private mutating func submit(_ count: Int, _ host: String, by client: ClientID) {
        for n in 1...count { rig.fetch("h", "\(host)\(n)", "http://\(host)/\(n)", by: client) }
    }

    @Test mutating func `each origin has the limit of its rule`() {
        rig = CoreRig(limits: Self.limits(["one": 1, "*.example": 2]))
        _ = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { _ in }
        submit(9, "one", by: a)
        submit(9, "a.example", by: a)
        submit(9, "b.example", by: a)
        submit(9, "other", by: a)
        rig.pass()
        let started = Dictionary(grouping: rig.jobs.map { $0.url.split(separator: "/")[1] }, by: \.self)
        #expect(started.mapValues(\.count) == ["one": 1, "a.example": 2, "b.example": 2, "other": 5])
    }

    @Test mutating func `a limit that is raised opens the origin, one that is lowered lets it drain`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        submit(30, "one", by: a)
        rig.pass()
        var jobs = rig.jobs
        #expect(jobs.count == 5)
        rig.pass { $0.core.limitsChanged(Self.limits(["one": 10]), now: $0.now) }
        jobs += rig.jobs
        #expect(jobs.count == 9)
        rig.pass { $0.core.limitsChanged(Self.limits(["one": 2]), now: $0.now) }
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
        for left in (2...8).reversed() {
            let job = jobs.removeFirst()
            rig.pass { $0.done(job, by: worker) }
            #expect(rig.jobs.isEmpty, "\(left) run")
            #expect(rig.core.audit() == [])
        }
        let job = jobs.removeFirst()
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the audit sees one transfer more than a lowered limit lets run out`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        submit(5, "one", by: a)
        rig.pass()
        let job = rig.jobs[0]
        rig.pass { $0.core.limitsChanged(Self.limits(["one": 2]), now: $0.now) }
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.core.audit() == [])
        _ = rig.core.records.originGovernor.startTransfer(at: 0, by: worker, isHigh: true, now: rig.now)
        #expect(rig.core.audit().contains("9: origin http://one is over its limit"))
    }

    @Test mutating func `a limit of none stops an origin until it is raised`() {
        rig = CoreRig(limits: Self.limits(["one": 0]))
        _ = rig.worker()
        let a = rig.client(1)
        submit(2, "one", by: a)
        rig.pass()
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.core.limitsChanged(CoreLimits(), now: $0.now) }
        #expect(rig.jobs.count == 2)
    }

    // MARK: Workers

    private var workersOfJobs: [UInt64] {
        rig.actions.compactMap { if case .worker(.send(let id, .job)) = $0 { id.rawValue } else { nil } }
    }

    @Test mutating func `of workers with the same room the one that an origin's last transfer went to gets the next`() {
        let workers = [rig.worker(1), rig.worker(2), rig.worker(3)]
        let a = rig.client(1)
        var known: [String: UInt64] = [:]
        for host in ["x", "y", "z"] {
            rig.pass { $0.fetch("h", host, "http://\(host)/0", by: a) }
            known[host] = workersOfJobs[0]
        }
        #expect(Set(known.values).count == 3)
        for host in ["z", "x", "y"] {
            rig.pass { $0.fetch("h", host + "2", "http://\(host)/2", by: a) }
            #expect(workersOfJobs == [known[host]!])
            let job = rig.jobs[0]
            let worker = workers[Int(known[host]!) - 1]
            rig.pass { $0.done(job, by: worker) }
        }
    }

    @Test(
        arguments: [
            (6, 1_024, 5...5), (6, 100_000, 0...1), (64, 1_024, 0...9), (200, 1_024, 0...9),
        ] as [(Int, Int, ClosedRange<Int>)])
    mutating func `few transfers of small bodies at one origin go to one worker, many or large ones to all`(
        limit: Int, length: Int, difference: ClosedRange<Int>
    ) {
        rig = CoreRig(limits: Self.limits(["one": limit]))
        _ = [rig.worker(1, slots: 64), rig.worker(2, slots: 64)]
        let a = rig.client(1, window: 1_000)
        submit(600, "one", by: a)
        rig.pass()
        var running = Array(zip(rig.jobs, workersOfJobs))
        for _ in 0..<300 {
            let (job, worker) = running.removeFirst()
            rig.pass { $0.done(job, by: WorkerID(rawValue: worker), length: length) }
            running += zip(rig.jobs, workersOfJobs)
        }
        let first = running.count { $0.1 == 1 }
        #expect(difference.contains(abs(running.count - 2 * first)), "\(first) of \(running.count)")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a worker that is gone is not asked for, whoever has its number now`() {
        let first = rig.worker(1)
        _ = rig.worker(2, slots: 9)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "0", "http://other/0", by: a) }
        rig.pass { $0.fetch("h", "1", "http://x/1", by: a) }
        #expect(workersOfJobs == [1])
        rig.pass { $0.fetch("h", "2", "http://x/2", by: a) }
        #expect(workersOfJobs == [2])
        rig.pass { rig in
            rig.core.workerLost(first, now: rig.now)
            _ = rig.worker(7)
        }
        rig.pass { $0.fetch("h", "3", "http://x/3", by: a) }
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a flight whose worker died is refused, too, where its origin asks for more than ten minutes`()
    {
        let first = rig.worker(1)
        let second = rig.worker(2)
        let a = rig.client(1)
        submit(2, "slow", by: a)
        rig.pass()
        let answered = rig.actions.compactMap { action -> Job? in
            if case .worker(.send(second, .job(let job))) = action { job } else { nil }
        }
        rig.pass { $0.done(answered[0], by: second, status: 503, fields: "retry-after: 700") }
        rig.pass { $0.core.workerLost(first, now: $0.now) }
        #expect(rig.jobs.isEmpty)
        #expect(rig.terminals(for: a).map { $0.hasSuffix("origin-cooling") } == [true])
    }
}
