import EarshotWire
import Testing

@testable import EarshotCore

/// Faults found by the simulation, each reduced to a minimal history.
struct SimulationFindingsTests {
    @Test func `nothing follows a removal's answer although another client had removed it before`() {
        var rig = CoreRig()
        let worker = rig.worker()
        let a = rig.client(1)
        let b = rig.client(2, window: 1)
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            rig.fetch("h", "1", "http://h/1", by: a)
            rig.fetch("h", "2", "http://h/2", by: a)
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: b) == ["h 1 200"])
        rig.pass { $0.remove("h", by: a) }
        rig.pass { $0.remove("h", by: b) }
        rig.pass { $0.send(.acknowledge(1), by: b) }
        #expect(rig.terminals(for: b) == [])
        rig.pass { $0.send(.acknowledge(2), by: a) }
        #expect(rig.core.ledger.deliveries.outstanding == 0)
        #expect(rig.core.audit() == [])
    }

    @Test func `nothing follows a cancellation's answer, but the same ID asked again is answered`() {
        var rig = CoreRig()
        let worker = rig.worker()
        let a = rig.client(1)
        let b = rig.client(2, window: 1)
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            rig.fetch("h", "1", "http://h/1", by: a)
            rig.fetch("h", "2", "http://h/2", by: a)
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        rig.pass { $0.remove("h", "2", by: a) }
        rig.pass { $0.remove("h", "2", by: b) }
        rig.pass { $0.fetch("h", "2", "nonsense", by: a) }
        rig.pass { $0.send(.acknowledge(1), by: b) }
        #expect(rig.terminals(for: b) == ["h 2 malformed-url"])
    }

    @Test func `over the bound on requests nothing is kept for handlers without subscribers`() {
        var limits = CoreLimits()
        limits.maximumOpenRequests = 1
        var rig = CoreRig(limits: limits)
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...5 { rig.fetch("h", "\(n)", "http://h/", by: a) { $0.options.subscribes = false } }
        }
        #expect(rig.core.ledger.requests.pending == 1)
        #expect(rig.core.ledger.requests.orphaned == 4)
        #expect(rig.core.audit() == [])
    }

    @Test func `a body too large for the worker although no request limits it ends the flight`() {
        var rig = CoreRig()
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.failed(job, "too-large", by: worker) }
        #expect(rig.jobs == [])
        #expect(rig.terminals(for: a) == ["h 1 too-large"])
    }

    @Test func `asking again for a handler over the bound on subscriptions is refused, not ignored`() {
        var limits = CoreLimits()
        limits.maximumSubscriptionsPerClient = 1
        var rig = CoreRig(limits: limits)
        let a = rig.client(1)
        let b = rig.client(2)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/", by: a)
            rig.fetch("other", "1", "http://h/", by: b)
        }
        rig.pass { $0.fetch("h", "1", "http://h/", by: b) }
        guard case .error(let error)? = rig.replies(to: b).first else {
            Issue.record("no ERROR: \(rig.actions)")
            return
        }
        #expect(error.code == "too-many-handlers")
    }

    @Test func `a handler's requests have their whole grace from the last time it lost its subscribers`() {
        var limits = CoreLimits()
        limits.subscriberGraceMilliseconds = 1_000
        var rig = CoreRig(limits: limits)
        let pattern = HandlerPattern("h")!
        let a = rig.client(1)
        rig.pass { rig in
            rig.send(.subscribe(pattern), by: a)
            rig.fetch("h", "1", "http://h/1", by: a) { $0.options.subscribes = false }
            rig.send(.unsubscribe(pattern), by: a)
        }
        rig.wait(milliseconds: 900)
        rig.pass { rig in
            rig.send(.subscribe(pattern), by: a)
            rig.send(.unsubscribe(pattern), by: a)
            rig.fetch("h", "2", "http://h/2", by: a) { $0.options.subscribes = false }
        }
        rig.wait(milliseconds: 999)
        #expect(rig.core.ledger.requests.orphaned == 0)
        rig.wait(milliseconds: 1)
        // The request that came later never had a subscriber to lose.
        #expect(rig.core.ledger.requests.orphaned == 1)
        #expect(rig.core.ledger.requests.pending == 1)
    }
}
