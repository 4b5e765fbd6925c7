import EarshotWire
import Testing

@testable import EarshotCore

/// Requests for which a response with an error status is a result.
struct DeliveredErrorTests {
    private var rig = CoreRig()

    private static let delivering: @Sendable (inout Fetch) -> Void = { $0.options.route.deliversErrorResponses = true }

    @Test(arguments: [404, 500, 503])
    mutating func `an error status is a result, and no retry follows it`(status: Int) {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a, Self.delivering) }
        let job = rig.jobs[0]
        #expect(job.route.deliversErrorResponses)
        rig.pass { $0.done(job, by: worker, status: status) }
        #expect(rig.terminals(for: a) == ["x 1 \(status)"])
        rig.wait(milliseconds: 60_000)
        #expect(rig.jobs.isEmpty && rig.core.audit() == [])
    }

    @Test mutating func `requests that differ in it have two flights, of which one is tried again`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("x", "1", "http://h/a", by: a)
            rig.fetch("x", "2", "http://h/a", by: a, Self.delivering)
            rig.fetch("x", "3", "http://h/a", by: a, Self.delivering)
        }
        let jobs = rig.jobs
        #expect(jobs.count == 2)
        rig.pass { rig in for job in jobs { rig.done(job, by: worker, status: 500) } }
        #expect(rig.terminals(for: a) == ["x 2 500", "x 3 500"])
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.count == 1 && rig.core.audit() == [])
    }

    @Test mutating func `a failure of the connection is tried again`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a, Self.delivering) }
        let job = rig.jobs[0]
        rig.pass { $0.failed(job, "reset", by: worker) }
        #expect(rig.terminals(for: a) == [])
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `a redirect is followed, and the error behind it is the result`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a, Self.delivering) }
        let first = rig.jobs[0]
        rig.pass { $0.done(first, by: worker, status: 302, fields: "location: http://other/b") }
        let second = rig.jobs[0]
        #expect(second.route.deliversErrorResponses)
        rig.pass { $0.done(second, by: worker, status: 410) }
        #expect(rig.terminals(for: a) == ["x 1 410"] && rig.core.audit() == [])
    }

    @Test mutating func `a 429 begins a cool-down all the same`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a, Self.delivering) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 5") }
        #expect(rig.terminals(for: a) == ["x 1 429"])
        rig.pass { $0.fetch("x", "2", "http://h/b", by: a) }
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 5_000)
        #expect(rig.jobs.count == 1 && rig.core.audit() == [])
    }

    @Test mutating func `a worker that leaves the body out breaks its promise`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a, Self.delivering) }
        var completion = Completion(attempt: rig.jobs[0].attempt, status: 404)
        completion.isBodyOmitted = true
        rig.pass { $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now) }
        #expect(rig.terminals(for: a) == ["x 1 protocol-error"] && rig.core.audit() == [])
    }
}
