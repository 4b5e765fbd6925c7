import EarshotWire
import Testing

@testable import EarshotCore

/// Requests whose wait for a cool-down is limited: `wait-ms` of FETCH.
struct CoolDownWaitTests {
    private var rig = CoreRig()

    private static func waiting(_ milliseconds: Int?) -> @Sendable (inout Fetch) -> Void {
        { $0.options.coolDownWaitMilliseconds = milliseconds }
    }

    /// Begins a cool-down of an origin, and returns the worker.
    private mutating func cool(_ seconds: Int, by client: ClientID) -> WorkerID {
        let worker = rig.worker(slots: 64)
        rig.pass { $0.fetch("h", "first", "http://slow/first", by: client) { $0.options.retries = 0 } }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: \(seconds)") }
        return worker
    }

    private func retryAfter(_ client: ClientID) -> [Int?] {
        rig.actions.compactMap { action in
            guard case .client(.deliverTerminal(client, let terminal, _)) = action,
                case .failed(let failure) = terminal.outcome
            else { return nil }
            return failure.retryAfterSeconds
        }
    }

    @Test mutating func `a request that meets a longer cool-down fails at once, and others wait`() {
        let a = rig.client(1)
        let worker = cool(5, by: a)
        rig.pass { rig in
            rig.fetch("h", "none", "http://slow/1", by: a, Self.waiting(0))
            rig.fetch("h", "short", "http://slow/1", by: a, Self.waiting(4_999))
            rig.fetch("h", "long", "http://slow/1", by: a, Self.waiting(5_000))
            rig.fetch("h", "any", "http://slow/1", by: a)
        }
        #expect(Set(rig.terminals(for: a)) == ["h none origin-cooling", "h short origin-cooling"])
        #expect(retryAfter(a) == [5, 5])
        #expect(rig.details(for: a).first == "The server requested a cool-down for another 5 s.")
        rig.wait(milliseconds: 5_000)
        #expect(rig.terminals(for: a).isEmpty && rig.jobs.count == 1)
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: a) == ["h long 200", "h any 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the seconds are rounded up`() {
        let a = rig.client(1)
        _ = cool(5, by: a)
        rig.wait(milliseconds: 3_001)
        rig.pass { $0.fetch("h", "1", "http://slow/1", by: a, Self.waiting(0)) }
        #expect(retryAfter(a) == [2])
    }

    @Test mutating func `a cool-down that begins ends the queued requests that do not wait for it`() {
        rig = CoreRig(limits: CoreLimits())
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...10 {
                rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) {
                    $0.options.retries = 0
                    if n > 8 { $0.options.coolDownWaitMilliseconds = n == 9 ? 100 : 60_000 }
                }
            }
        }
        let jobs = rig.jobs
        #expect(jobs.count == 5)
        rig.pass { $0.done(jobs[0], by: worker, status: 429, fields: "retry-after: 30") }
        #expect(rig.terminals(for: a) == ["h 1 http-status", "h 9 origin-cooling"])
        #expect(retryAfter(a) == [nil, 30])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a request whose own attempt is refused ends while its flight waits for the others`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://slow/", by: a, Self.waiting(1_000))
            rig.fetch("h", "2", "http://slow/", by: a)
        }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 7") }
        #expect(rig.terminals(for: a) == ["h 1 origin-cooling"] && retryAfter(a) == [7])
        rig.wait(milliseconds: 7_000)
        #expect(rig.jobs.map(\.attempt.attempt) == [2])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a cool-down that is prolonged ends a request that would wait too long`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...2 { rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) { $0.options.retries = 0 } }
        }
        let jobs = rig.jobs
        rig.pass { $0.done(jobs[0], by: worker, status: 429, fields: "retry-after: 2") }
        rig.pass { $0.fetch("h", "3", "http://slow/3", by: a, Self.waiting(3_000)) }
        #expect(rig.terminals(for: a).isEmpty)
        rig.wait(milliseconds: 1_000)
        rig.pass { $0.done(jobs[1], by: worker, status: 429, fields: "retry-after: 2") }
        #expect(rig.terminals(for: a) == ["h 2 http-status"])
        rig.wait(milliseconds: 500)
        #expect(rig.terminals(for: a).isEmpty)
    }

    @Test(arguments: [0, 400])
    mutating func `a wait for the probe counts, too`(limit: Int) {
        let a = rig.client(1)
        let worker = cool(5, by: a)
        rig.pass { $0.fetch("h", "probe", "http://slow/probe", by: a) }
        rig.wait(milliseconds: 5_000)
        let probe = rig.jobs[0]
        rig.pass { $0.fetch("h", "1", "http://slow/1", by: a, Self.waiting(limit)) }
        if limit > 0 {
            #expect(rig.terminals(for: a).isEmpty)
            rig.wait(milliseconds: limit)
        }
        #expect(rig.terminals(for: a) == ["h 1 origin-cooling"] && retryAfter(a) == [1])
        rig.pass { $0.done(probe, by: worker) }
        rig.pass { $0.fetch("h", "2", "http://slow/2", by: a, Self.waiting(limit)) }
        #expect(rig.jobs.count == 1 && rig.core.audit() == [])
    }

    @Test mutating func `a wait that ended with an answer does not count towards the next one`() {
        rig = CoreRig(limits: CoreLimits())
        let a = rig.client(1)
        let worker = cool(5, by: a)
        rig.pass { rig in
            rig.fetch("h", "probe", "http://slow/probe", by: a)
            for n in 1...5 { rig.fetch("h", "long\(n)", "http://slow/long\(n)", by: a) { $0.options.retries = 0 } }
            rig.fetch("h", "1", "http://slow/1", by: a, Self.waiting(6_000))
        }
        rig.wait(milliseconds: 5_000)
        let probe = rig.jobs[0]
        rig.pass { $0.done(probe, by: worker) }
        let jobs = rig.jobs
        #expect(jobs.count == 5 && !jobs.contains { $0.url == "http://slow/1" })
        rig.wait(milliseconds: 3_000)
        rig.pass { $0.done(jobs[0], by: worker, status: 429, fields: "retry-after: 4") }
        #expect(rig.terminals(for: a).filter { $0.hasPrefix("h 1 ") }.isEmpty)
        rig.wait(milliseconds: 4_000)
        #expect(rig.terminals(for: a).isEmpty && rig.core.audit() == [])
    }

    /// Begins five transfers of an origin, behind which requests of these times wait, and a cool-down of the origin.
    private mutating func cool(_ seconds: Int, behind waits: [Int], perPass: Int) -> (ClientID, [Job], WorkerID) {
        var limits = CoreLimits()
        limits.maximumCoolDownWaitChecksPerPass = perPass
        rig = CoreRig(limits: limits)
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...5 { rig.fetch("h", "long\(n)", "http://slow/long\(n)", by: a) { $0.options.retries = 0 } }
            for (n, wait) in waits.enumerated() {
                rig.fetch("h", "\(n)", "http://slow/\(n)", by: a, Self.waiting(wait))
            }
        }
        let jobs = rig.jobs
        #expect(jobs.count == 5)
        rig.pass { $0.done(jobs[0], by: worker, status: 429, fields: "retry-after: \(seconds)") }
        return (a, jobs, worker)
    }

    @Test mutating func `many queued requests are compared with a cool-down in slices`() {
        let waits = (0..<10).map { $0.isMultiple(of: 2) ? 0 : 31_000 }
        let (a, _, _) = cool(30, behind: waits, perPass: 4)
        #expect(Set(rig.terminals(for: a)) == ["h long1 http-status", "h 0 origin-cooling", "h 2 origin-cooling"])
        for ended in [["h 4 origin-cooling", "h 6 origin-cooling"], ["h 8 origin-cooling"]] {
            #expect(rig.core.nextTimer == MonotonicTime(nanoseconds: .min))
            rig.pass()
            #expect(Set(rig.terminals(for: a)) == Set(ended))
            #expect(rig.core.audit() == [])
        }
        #expect(rig.core.nextTimer.map { $0 > rig.now } == true)
    }

    @Test mutating func `a wait begins with the cool-down, also if a later pass finds it`() {
        let (a, jobs, worker) = cool(2, behind: [9_000, 2_500], perPass: 1)
        rig.wait(milliseconds: 400)
        rig.wait(milliseconds: 300)
        // The end of the cool-down is now between 2,500 ms since its begin and since the later pass.
        rig.pass { $0.done(jobs[1], by: worker, status: 429, fields: "retry-after: 2") }
        for _ in 0..<2 where rig.terminals(for: a) != ["h 1 origin-cooling"] { rig.pass() }
        #expect(rig.terminals(for: a) == ["h 1 origin-cooling"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `requests that leave the queue are not compared`() {
        let (a, _, _) = cool(30, behind: [60_000, 0, 60_000, 0], perPass: 1)
        rig.pass { rig in for n in 0...2 { rig.remove("h", "\(n)", by: a) } }
        #expect(rig.terminals(for: a) == ["h 3 origin-cooling"])
        rig.pass()
        #expect(rig.core.nextTimer.map { $0 > rig.now } == true && rig.core.audit() == [])
    }

    @Test mutating func `a refusal for longer than the setting names the seconds, too`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://slow/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 601") }
        #expect(rig.terminals(for: a) == ["h 1 origin-cooling"] && retryAfter(a) == [601])
    }

    @Test mutating func `a terminal that waits for its window keeps the seconds`() {
        let a = rig.client(1, window: 1)
        _ = cool(5, by: a)
        rig.pass { $0.fetch("h", "1", "http://slow/1", by: a, Self.waiting(0)) }
        #expect(rig.terminals(for: a).isEmpty)
        rig.pass { $0.send(.acknowledge(1), by: a) }
        #expect(rig.terminals(for: a) == ["h 1 origin-cooling"] && retryAfter(a) == [5])
        #expect(rig.core.audit() == [])
    }
}
