import EarshotWire
import Testing

@testable import EarshotCore

/// Spacing: the minimum time between two starts at an origin.
struct SpacingTests {
    private static func limits(_ milliseconds: Int, limit: Int = 6) -> CoreLimits {
        var limits = CoreLimits()
        limits.originRules.rules[OriginPattern("spaced")!] = OriginRules.RuleTerms(
            maximumTransfers: limit, spacingMilliseconds: milliseconds)
        return limits
    }

    private var rig = CoreRig(limits: limits(100))

    @Test mutating func `whatever the class, the credentials and the worker, one starts at a time, woken by a timer`() {
        _ = rig.worker(1)
        _ = rig.worker(2)
        let a = rig.client(1)
        let b = rig.client(2)
        rig.pass { rig in
            rig.fetch("h", "1", "http://spaced/1", by: a)
            rig.fetch("h", "2", "http://spaced/2", by: a) { $0.options.priority = .high }
            rig.fetch("h", "3", "http://spaced/3", by: b) { $0.httpFields = Array("cookie: x".utf8) }
            rig.fetch("h", "4", "http://free/1", by: b)
            rig.fetch("h", "5", "http://free/2", by: b)
        }
        #expect(rig.jobs.map(\.url).sorted() == ["http://free/1", "http://free/2", "http://spaced/2"])
        #expect(rig.core.nextTimer == MonotonicTime(nanoseconds: 100_000_000))
        rig.wait(milliseconds: 99)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.count == 1)
        rig.pass { $0.fetch("h", "6", "http://spaced/6", by: a) { $0.options.priority = .high } }
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 100)
        #expect(rig.jobs.map(\.url) == ["http://spaced/6"])
        rig.wait(milliseconds: 100)
        #expect(rig.jobs.count == 1)
        rig.wait(milliseconds: 100)
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `another scheme or port of the host is another origin`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            for url in ["http://spaced/", "https://spaced/", "http://spaced:8080/"] { rig.fetch("h", url, url, by: a) }
        }
        #expect(rig.jobs.count == 3)
    }

    @Test mutating func `the spacing outlasts the interest in the origin`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://spaced/1", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        rig.pass { $0.send(.acknowledge(1), by: a) }
        rig.pass { $0.fetch("h", "2", "http://spaced/2", by: a) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.remove("h", by: a) }
        #expect(!rig.core.isIdle)
        rig.wait(milliseconds: 100)
        #expect(rig.core.isIdle)
        #expect(rig.core.nextTimer.map { $0 > MonotonicTime(nanoseconds: 1_000_000_000) } ?? true)
    }

    @Test mutating func `a retry, a redirect's hop and a flight whose worker died wait for it`() {
        let first = rig.worker(1)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://spaced/1", by: a) }
        var job = rig.jobs[0]
        rig.pass { $0.done(job, by: first, status: 302, fields: "location: http://spaced/2") }
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 100)
        #expect(rig.jobs.map(\.url) == ["http://spaced/2"])
        let second = rig.worker(2)
        rig.pass { $0.core.workerLost(first, now: $0.now) }
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 99)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.map(\.attempt.attempt) == [2])
        // The pause of a retry is longer than the spacing, so another start precedes its end.
        job = rig.jobs[0]
        rig.pass { $0.failed(job, "reset", by: second) }
        rig.wait(milliseconds: 100)
        rig.wait(milliseconds: (rig.core.nextTimer?.milliseconds(since: rig.now) ?? 0) - 10)
        rig.pass { $0.fetch("h", "2", "http://spaced/3", by: a) }
        #expect(rig.jobs.map(\.url) == ["http://spaced/3"])
        rig.wait(milliseconds: 99)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.map(\.attempt.attempt) == [3])
    }

    @Test mutating func `what cools down does not use it up, and the probe waits for it`() {
        let worker = rig.worker()
        let a = rig.client(1)
        func requesting(_ credentials: String) -> (inout Fetch) -> Void {
            { $0.httpFields = Array("authorization: \(credentials)".utf8) }
        }
        rig.pass { $0.fetch("h", "1", "http://spaced/1", by: a, requesting("x")) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 1") }
        rig.pass { rig in
            rig.fetch("h", "2", "http://spaced/2", by: a, requesting("x"))
            for n in 3...12 { rig.fetch("h", "\(n)", "http://spaced/\(n)", by: a, requesting("y")) }
        }
        for n in 3...5 {
            rig.wait(milliseconds: 100)
            #expect(rig.jobs.map(\.url) == ["http://spaced/\(n)"])
            let job = rig.jobs[0]
            rig.pass { $0.done(job, by: worker) }
            #expect(rig.jobs.isEmpty)
        }
        rig.wait(milliseconds: 650)
        #expect(rig.jobs.map(\.url) == ["http://spaced/6"])
        // The cool-down ends 50 ms after that start.
        rig.wait(milliseconds: 50)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 50)
        rig.wait(milliseconds: 100)
        let probes = rig.core.records.originGovernor.scopes.indices.count {
            if case .probing = rig.core.records.originGovernor.scopes[$0].coolDown?.phase { true } else { false }
        }
        #expect(probes == 1)
    }

    // MARK: Changes

    @Test mutating func `a shorter one ends the wait sooner, a longer one later, none at once`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in for n in 1...9 { rig.fetch("h", "\(n)", "http://spaced/\(n)", by: a) } }
        rig.wait(milliseconds: 10)
        rig.pass { $0.core.limitsChanged(Self.limits(40), now: $0.now) }
        rig.wait(milliseconds: 29)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.count == 1)
        rig.pass { $0.core.limitsChanged(Self.limits(1_000), now: $0.now) }
        rig.wait(milliseconds: 999)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.count == 1)
        rig.wait(milliseconds: 10)
        rig.pass { $0.core.limitsChanged(Self.limits(10), now: $0.now) }
        #expect(rig.jobs.count == 1)
        rig.pass { $0.core.limitsChanged(Self.limits(0), now: $0.now) }
        #expect(rig.jobs.count == 1, "the last of six slots is for high")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `one that begins to hold counts from the last start`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.core.limitsChanged(CoreLimits(), now: rig.now)
        rig.pass { $0.fetch("h", "1", "http://spaced/1", by: a) }
        rig.wait(milliseconds: 30)
        rig.pass { rig in
            rig.core.limitsChanged(Self.limits(100), now: rig.now)
            rig.fetch("h", "2", "http://spaced/2", by: a)
        }
        rig.wait(milliseconds: 69)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `timers of spacings that hold no more do not pile up`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://spaced/1", by: a) }
        for n in 1...5_000 { rig.core.limitsChanged(Self.limits(1_000 + n % 2), now: rig.now) }
        #expect(rig.core.timerCount < 1_100)
        rig.pass { $0.fetch("h", "2", "http://spaced/2", by: a) }
        rig.wait(milliseconds: 999)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1)
        // Stale timers are due first, and each pass handles a part of them.
        for _ in 0..<10 where rig.jobs.isEmpty { rig.pass() }
        #expect(rig.jobs.count == 1)
    }
}
