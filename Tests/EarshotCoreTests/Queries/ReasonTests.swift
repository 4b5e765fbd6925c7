import EarshotWire
import Testing

@testable import EarshotCore

/// Reasons in the reply to `QUERY why`.
struct ReasonTests {
    private var rig = CoreRig(limits: limits)

    private static var limits: CoreLimits {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 2
        limits.originRules.rules[OriginPattern("spaced")!] = OriginRules.RuleTerms(spacingMilliseconds: 100)
        return limits
    }

    /// The reply without its constant prefix.
    private mutating func why(_ handler: String, _ request: String, by client: ClientID) -> String {
        rig.pass { $0.send(.query(.explainRequest(HandlerID(handler)!, RequestID(request)!)), by: client) }
        for case .client(.answerQuery(_, _, let json)) in rig.actions { return String(decoding: json, as: UTF8.self) }
        return ""
    }

    private mutating func expect(
        _ members: String..., of handler: String, _ request: String, by client: ClientID,
        at place: SourceLocation = #_sourceLocation
    ) {
        let answer = why(handler, request, by: client)
        for member in members { #expect(answer.contains(member), "\(answer)", sourceLocation: place) }
    }

    @Test mutating func `that no worker is there, or no slot for its class`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...9 { rig.fetch("h", "\(n)", "http://\(n)/", by: a) } }
        expect(#""state":"queued","attempts":0,"waits-for":"worker","#, of: "h", "1", by: a)
        expect(#""reason":"no worker is connected""#, of: "h", "1", by: a)
        rig.core.childFailures = [
            ChildCrashLoop(
                childRole: "broker", consecutiveDeathCount: 9, firstDeathAt: "-", lastExitDescription: "signal 9"),
            ChildCrashLoop(
                childRole: "worker", consecutiveDeathCount: 6, firstDeathAt: "-", lastExitDescription: "exit code 1"),
        ]
        expect(
            #""reason":"no worker is connected; 6 workers ended in a row, the last one with exit code 1""#,
            of: "h", "1", by: a)
        rig.core.childFailures = []
        rig.pass { _ = $0.worker(slots: 8) }
        expect(
            #""waits-for":"slot","reason":"the free slots are reserved for class high""#,
            #""slots":8,"slots-free":2,"slots-for-high":2"#, #""effective-class":"normal","class-is-own":true"#,
            of: "h", "9", by: a)
        rig.pass { rig in
            for n in 1...2 { rig.fetch("i", "\(n)", "http://i\(n)/", by: a) { $0.options.priority = .high } }
        }
        expect(#""reason":"all worker slots are in use","slots":8,"slots-free":0"#, of: "h", "9", by: a)
        expect(#""state":"running""#, #""worker":1"#, of: "h", "1", by: a)
    }

    @Test mutating func `that its origin is full, and by whom`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("first/1", "1", "http://full/1", by: a)
            rig.fetch("second", "1", "http://full/2", by: a)
            rig.fetch("h", "1", "http://full/3", by: a)
        }
        expect(
            #""waits-for":"origin","reason":"its origin has 2 of 2 transfers","origin":"http://full","running":2,"limit":2"#,
            #""running-for":[{"handler":"first/1","running":1},{"handler":"second","running":1}],"cancelling":0"#,
            of: "h", "1", by: a)
        rig.pass { $0.remove("first/1", by: a) }
        expect(
            #""running-for":[{"handler":"second","running":1}],"cancelling":1"#, of: "h", "1", by: a)
        _ = worker
    }

    @Test mutating func `at most five handlers fill an origin by name, the largest first`() {
        var limits = Self.limits
        limits.originRules.defaultMaximumTransfers = 20
        rig = CoreRig(limits: limits)
        _ = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...19 { rig.fetch("h\(n < 13 ? 0 : n % 6 + 1)", "\(n)", "http://full/\(n)", by: a) }
        }
        rig.pass { $0.fetch("h", "1", "http://full/20", by: a) { $0.options.priority = .background } }
        expect(
            "its origin has 19 of 20 transfers, and the last slot is reserved for class high",
            #""running-for":[{"handler":"h0","running":12},{"handler":"h2","running":2},{"handler":"h1","running":1},{"handler":"h3","running":1},{"handler":"h4","running":1}]"#,
            of: "h", "1", by: a)
    }

    @Test mutating func `that the origin's spacing is not over`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "http://spaced/\(n)", by: a) } }
        rig.wait(milliseconds: 30)
        expect(
            #""waits-for":"spacing""#, #""origin":"http://spaced","spacing-ms":100,"starts-in-ms":70"#, of: "h", "2",
            by: a)
        rig.pass { $0.send(.query(.origins), by: a) }
        guard case .client(.answerQuery(_, _, let json))? = rig.actions.first else {
            Issue.record("no answer")
            return
        }
        #expect(
            String(decoding: json, as: UTF8.self).contains(
                #"{"origin":"http://spaced","running":1,"limit":2,"spacing-ms":100,"flights":2}"#))
    }

    @Test mutating func `that the origin cools down, or is tried`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://slow/1", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 5") }
        rig.pass { $0.fetch("h", "2", "http://slow/2", by: a) }
        expect(#""waits-for":"cool-down""#, #""origin":"http://slow","cooling-ms":5000"#, of: "h", "2", by: a)
        rig.wait(milliseconds: 5_000)
        expect(#""waits-for":"probe""#, of: "h", "2", by: a)
    }

    @Test mutating func `that its window is full, unless somebody else who wants it can be served`() {
        let worker = rig.worker()
        let a = rig.client(1, window: 1)
        let b = rig.client(2)
        rig.pass { $0.fetch("h", "1", "http://x/1", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        rig.pass { $0.fetch("h", "2", "http://x/2", by: a) { $0.options.priority = .high } }
        expect(#""waits-for":"window""#, #""outstanding":1,"window":1"#, of: "h", "2", by: a)
        #expect(!why("h", "2", by: a).contains("effective-class"))
        expect(#""waits-for":"acknowledgement""#, of: "h", "1", by: b)
        rig.pass { rig in
            for n in 3...4 { rig.fetch("i", "\(n)", "http://x/\(n)", by: b) }
            rig.fetch("i", "2", "http://x/2", by: b) { $0.options.priority = .low }
        }
        expect(
            #""waits-for":"origin""#,
            #""effective-class":"low","class-is-own":false,"class-from":{"handler":"i","request":"2"}"#,
            of: "h", "2", by: a)
    }

    @Test mutating func `who donates its class, also through a redirect`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("far", "1", "http://y/1", by: a) { $0.options.priority = .high }
            for n in 1...2 { rig.fetch("i", "\(n)", "http://x/\(n)", by: a) }
            rig.fetch("h", "1", "http://x/9", by: a) { $0.options.priority = .low }
        }
        let job = rig.jobs.first { $0.url == "http://y/1" }!
        rig.pass { $0.done(job, by: worker, status: 302, fields: "location: http://x/9") }
        expect(
            #""class":"low""#,
            #""effective-class":"high","class-is-own":false,"class-from":{"handler":"far","request":"1"}"#,
            of: "h", "1", by: a)
        expect(#""class":"high""#, #""effective-class":"high","class-is-own":true}"#, of: "far", "1", by: a)
    }

    @Test mutating func `that its owner is gone and it is about to be removed`() {
        var limits = Self.limits
        limits.maximumSessionCleanupsPerPass = 1
        rig = CoreRig(limits: limits)
        _ = rig.worker()
        let a = rig.client(1)
        let b = rig.client(2)
        rig.pass { rig in for n in 1...20 { rig.fetch("h", "\(n)", "http://x/\(n)", by: a) } }
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        expect(#""waits-for":"removal""#, of: "h", "20", by: b)
    }

    @Test mutating func `that nobody listens, or that it is tried again later`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("own", "1", "http://x/1", by: a) { $0.options.subscribes = false }
            rig.fetch("h", "1", "http://x/2", by: a)
        }
        let jobs = rig.jobs
        rig.pass { $0.done(jobs.first { $0.url == "http://x/1" }!, by: worker) }
        rig.pass { $0.failed(jobs.first { $0.url == "http://x/2" }!, "reset", by: worker) }
        expect(
            #""state":"held","url":"http://x/1","attempts":1,"status":200,"waits-for":"subscriber""#, of: "own", "1",
            by: a)
        expect(#""state":"backing-off""#, #""waits-for":"retry""#, #""retry-in-ms":"#, of: "h", "1", by: a)
        expect(#""state":"unknown""#, of: "h", "2", by: a)
    }
}
