import EarshotWire
import Testing

@testable import EarshotCore

/// Cool-downs: an origin that requests one gets no requests with the same credentials.
struct CoolDownTests {
    private var rig = CoreRig()

    @Test mutating func `no request goes to an origin while it cools, others go on, and one tries first`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...10 { rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) }
        }
        let jobs = rig.jobs
        #expect(jobs.count == 5)
        rig.pass { $0.done(jobs[0], by: worker, status: 429, fields: "retry-after: 5") }
        #expect(rig.jobs.isEmpty)
        rig.pass { rig in for job in jobs[1...] { rig.done(job, by: worker) } }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.fetch("h", "other", "http://fast/", by: a) }
        #expect(rig.jobs.map(\.url) == ["http://fast/"])
        rig.wait(milliseconds: 4_999)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.count == 1)
        let probe = rig.jobs[0]
        rig.pass { $0.done(probe, by: worker) }
        #expect(rig.jobs.count == 5)
        #expect(rig.core.audit() == [])
    }

    @Test
    mutating func `a proxy that says when to come again is not asked before, and one that refuses is not asked again`()
    {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "https://busy/", by: a)
            rig.fetch("h", "2", "https://closed/", by: a)
        }
        let jobs = rig.jobs
        rig.pass { rig in
            rig.core.workerMessageReceived(
                .failed(
                    jobs[0].attempt, code: "proxy-unavailable", detail: nil, receivedBytes: 0, retryAfterSeconds: 5),
                body: nil, from: worker, now: rig.now)
            rig.failed(jobs[1], "proxy-refused", by: worker)
        }
        #expect(rig.terminals(for: a) == ["h 2 proxy-refused"])
        rig.wait(milliseconds: 4_999)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.map(\.url) == ["https://busy/"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a probe that is cancelled gives its turn to the next`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...3 { rig.fetch("h/\(n)", "1", "http://slow/\(n)", by: a) { $0.options.retries = 9 } }
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker, status: 503, fields: "retry-after: 70") } }
        rig.wait(milliseconds: 70_000)
        #expect(rig.jobs.count == 1)
        let probe = rig.jobs[0]
        let handler = "h/" + probe.url.suffix(1)
        rig.pass { $0.remove(handler, by: a) }
        #expect(rig.jobs.count == 1)
        #expect(rig.jobs[0].url != probe.url)
    }

    @Test mutating func `a refused probe lets the origin rest for longer`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://slow/", by: a) { $0.options.retries = 5 } }
        var pauses: [Int] = []
        for _ in 0..<5 {
            let job = rig.jobs[0]
            rig.pass { $0.done(job, by: worker, status: 503) }
            let before = rig.now
            while rig.jobs.isEmpty { rig.wait(milliseconds: 100) }
            pauses.append(rig.now.milliseconds(since: before))
        }
        for (shorter, longer) in zip(pauses, pauses.dropFirst(2)) { #expect(longer > shorter) }
        let last = rig.jobs[0]
        rig.pass { $0.done(last, by: worker, status: 503) }
        #expect(rig.terminals(for: a) == ["h 1 http-status"])
    }

    @Test mutating func `a server that refuses one credential is still asked with another`() {
        let worker = rig.worker()
        let a = rig.client(1)
        func requesting(_ credentials: String) -> (inout Fetch) -> Void {
            { $0.httpFields = Array("authorization: \(credentials)".utf8) }
        }
        rig.pass { $0.fetch("h", "1", "http://api/", by: a, requesting("x")) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 60") }
        rig.pass { rig in
            rig.fetch("h", "2", "http://api/2", by: a, requesting("x"))
            rig.fetch("h", "3", "http://api/2", by: a, requesting("y"))
        }
        #expect(rig.jobs.map { String(decoding: $0.httpFields, as: UTF8.self) } == ["authorization: y"])
    }

    @Test mutating func `requests to an origin that asks for more than ten minutes fail at once, then one tries`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://slow/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 601") }
        #expect(rig.terminals(for: a) == ["h 1 origin-cooling"])
        rig.pass { $0.fetch("h", "2", "http://slow/2", by: a) }
        #expect(rig.terminals(for: a) == ["h 2 origin-cooling"])
        guard case .client(.deliverTerminal(_, let terminal, _))? = rig.actions.first,
            case .failed(let failure) = terminal.outcome
        else {
            Issue.record("not failed")
            return
        }
        #expect(failure.detail == "The server requested a cool-down for another 601 s.")
        rig.wait(milliseconds: 601_000)
        rig.pass { $0.fetch("h", "3", "http://slow/3", by: a) }
        #expect(rig.jobs.count == 1)
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        let probe = AttemptID(broker: rig.core.brokerInstance, flight: 3, attempt: 1)
        rig.pass {
            $0.core.workerMessageReceived(
                .failed(probe, code: "cancelled", detail: nil, receivedBytes: 0), body: nil, from: worker, now: $0.now)
        }
        #expect(rig.core.isIdle)
    }

    @Test mutating func `refusals of what was under way together are one, and do not make the pause longer`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...5 { rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) } }
        for job in rig.jobs {
            rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 5") }
            rig.wait(milliseconds: 10)
        }
        rig.wait(milliseconds: 4_980)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 20)
        #expect(rig.jobs.count == 1)
    }

    @Test func `a broker that drains does not go on waking for refusals it had put off`() {
        var limits = CoreLimits()
        limits.maximumCoolDownRefusalsPerPass = 1
        var rig = CoreRig(limits: limits)
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://slow/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 601") }
        rig.pass { rig in for n in 2...4 { rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) } }
        #expect(rig.core.nextTimer == MonotonicTime(nanoseconds: .min))
        rig.pass { $0.core.beginDraining() }
        #expect(rig.core.nextTimer.map { $0 > rig.now } == true)
    }

    @Test mutating func `a server that refuses for a year is remembered for so many credentials and no more`() {
        var limits = CoreLimits()
        limits.maximumCoolDownOnlyScopes = 3
        rig = CoreRig(limits: limits)
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        func submit(_ user: Int) -> [Job] {
            rig.pass { rig in
                rig.fetch("h", "\(user)", "http://u\(user)@h/", by: a) { $0.options.retries = 0 }
            }
            return rig.jobs
        }
        for user in 1...5 {
            let job = submit(user)[0]
            rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 30000000") }
            rig.pass { $0.send(.acknowledge(UInt64(user)), by: a) }
        }
        #expect(rig.core.records.originGovernor.scopes.count == 3)
        #expect(rig.core.records.originGovernor.coolDownOnlyScopeCount == 3)
        // The first three are refused at once, the others are sent.
        #expect(submit(11).count == 1)
        #expect(submit(3).isEmpty)
        #expect(rig.core.audit() == [])
        // A cool-down beyond one setting may be within another.
        limits.maximumCoolDownMilliseconds = 40_000_000
        rig.core.limitsChanged(limits, now: rig.now)
        #expect(submit(1).count == 1)
    }

    @Test mutating func `the timer of refusals that a setting ended lets no second probe start`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 0...1 { rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) { $0.options.retries = 0 } }
        }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 700") }
        var limits = CoreLimits()
        limits.maximumCoolDownMilliseconds = 800_000
        rig.core.limitsChanged(limits, now: rig.now)
        rig.pass { rig in for n in 2...3 { rig.fetch("h", "\(n)", "http://slow/\(n)", by: a) } }
        #expect(rig.jobs.count == 1)
        rig.wait(milliseconds: 700_000)
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
    }
}
