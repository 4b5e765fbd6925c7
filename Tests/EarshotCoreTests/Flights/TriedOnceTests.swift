import EarshotWire
import Testing

@testable import EarshotCore

/// Requests with `retries: 0` that share a flight with others: they get the answer of the attempt that they joined.
struct TriedOnceTests {
    private var rig = CoreRig()

    private static let once: @Sendable (inout Fetch) -> Void = { $0.options.retries = 0 }

    @Test mutating func `it gets the error of its attempt, and the others the next answer`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/a", by: a)
            rig.fetch("h", "2", "http://h/a", by: a, Self.once)
        }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 500, fields: "x: y") }
        #expect(rig.terminals(for: a) == ["h 2 http-status"])
        #expect(rig.releasedBodies == 0 && rig.core.audit() == [])
        rig.pass { $0.send(.acknowledge(1), by: a) }
        #expect(rig.releasedBodies == 1)
        rig.wait(milliseconds: 1_000)
        let second = rig.jobs[0]
        rig.pass { $0.fetch("h", "3", "http://h/a", by: a, Self.once) }
        rig.pass { $0.failed(second, "reset", by: worker) }
        #expect(rig.terminals(for: a) == ["h 3 reset"])
        rig.wait(milliseconds: 5_000)
        let third = rig.jobs[0]
        rig.pass { $0.done(third, by: worker) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        #expect(rig.core.ledger.flights.retriedAttempts == 2 && rig.core.audit() == [])
    }

    @Test mutating func `a flight that only such requests are left of ends, although another one was to be retried`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/a", by: a, Self.once)
            rig.fetch("x", "1", "http://h/a", by: b)
        }
        let job = rig.jobs[0]
        rig.pass { $0.remove("x", by: b) }
        rig.pass { $0.failed(job, "reset", by: worker) }
        #expect(rig.terminals(for: a) == ["h 1 reset"])
        #expect(rig.core.records.flights.count == 0 && rig.core.ledger.flights.retriedAttempts == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a request that was redirected to a flight of others ends alone`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/from", by: a, Self.once)
            rig.fetch("h", "2", "http://h/to", by: a)
        }
        let jobs = rig.jobs
        rig.pass { $0.done(jobs[0], by: worker, status: 302, fields: "location: http://h/to") }
        rig.pass { $0.done(jobs[1], by: worker, status: 502) }
        #expect(rig.terminals(for: a) == ["h 1 http-status"])
        #expect(rig.core.records.flights.count == 1 && rig.core.audit() == [])
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.map(\.url) == ["http://h/to"])
    }

    @Test mutating func `its own limits apply to the answer`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/a", by: a)
            rig.fetch("h", "2", "http://h/a", by: a) {
                $0.options.retries = 0
                $0.options.isCacheWarming = true
            }
        }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 2") }
        #expect(rig.terminals(for: a) == ["h 2 http-status"])
        rig.pass { $0.remove("h", by: a) }
        #expect(rig.core.records.flights.count == 0 && rig.core.audit() == [])
    }
}
