import EarshotWire
import Testing

@testable import EarshotCore

/// Effect of REMOVE: no request of a removed handler starts, and no terminal follows the reply.
struct RemovalTests {
    private var rig = CoreRig()
    private let h = HandlerID("h")!

    @Test mutating func `REMOVE ends queued and running requests of its handler only`() {
        let worker = rig.worker(slots: 2)
        let a = rig.client(1)
        rig.pass { rig in
            for number in 0..<100 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) }
            rig.fetch("other", "1", "http://o/", by: a)
        }
        let running = rig.jobs
        #expect(running.count == 2)
        rig.pass { $0.remove("h", by: a) }
        let cancelled = running.filter { $0.url != "http://o/" }
        #expect(rig.cancellations.count == cancelled.count)
        #expect(rig.replies(to: a) == [.handlersRemoved(.handler(h), count: 100)])
        #expect(rig.core.ledger.requests.removed == 100)
        rig.pass { rig in for job in cancelled { rig.failed(job, "cancelled", by: worker) } }
        #expect(rig.jobs.allSatisfy { $0.url == "http://o/" })
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a subtree is removed without its own root handler or neighbours`() {
        let a = rig.client(1)
        rig.pass { rig in
            for handler in ["g", "g/1", "g/1/x", "gallery/1"] {
                rig.fetch(handler, "1", "http://\(handler.count)/", by: a)
            }
        }
        rig.pass { $0.remove("g/", by: a) }
        #expect(rig.replies(to: a) == [.handlersRemoved(.subtree(HandlerID("g")!), count: 2)])
        #expect(rig.core.ledger.requests.pending == 2)
    }

    @Test
    mutating func `a removal below a name looks at the handlers below it and at one more, not at its 20,000 neighbors`()
    {
        let a = rig.client(1)
        for number in 0..<20_000 { rig.send(.subscribe(.handler(HandlerID("q/h\(number)")!)), by: a) }
        for number in 0..<3 { rig.send(.subscribe(.handler(HandlerID("q/x/\(number)")!)), by: a) }
        let pattern = HandlerPattern("q/x/")!
        var looks = 0
        let found = rig.core.records.handlers.handlersInNameOrder.handles(
            from: rig.core.records.handlers.position(of: pattern.description)
        ) {
            handler in
            looks += 1
            return pattern.matches(rig.core.records.handlers[handler].id)
        }
        #expect(found.map { rig.core.records.handlers[$0].id.description } == ["q/x/0", "q/x/1", "q/x/2"])
        #expect(found == rig.core.records.handlers.matching(pattern))
        #expect(looks <= found.count + 1)
        rig.remove("q/x/", by: a)
        #expect(rig.core.records.handlers.count == 20_000)
    }

    @Test mutating func `other subscribers of a removed handler get one FAILED removed each, the remover none`() {
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            rig.send(.subscribe(HandlerPattern("h/")!), by: b)
            rig.fetch("h", "1", "http://h/", by: a)
        }
        rig.pass { $0.remove("h", by: a) }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.terminals(for: b) == ["h 1 removed"])
    }

    @Test mutating func `the reused cell never gets the old result for the new request`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "7", "http://old/", by: a) }
        let old = rig.jobs[0]
        rig.pass { rig in
            rig.remove("h", by: a)
            rig.fetch("h", "7", "http://new/", by: a)
            rig.done(old, by: worker)
        }
        #expect(rig.terminals(for: a) == [])
        let new = rig.jobs[0]
        rig.pass { $0.done(new, by: worker) }
        guard case .client(.deliverTerminal(_, let terminal, _))? = rig.actions.first else {
            Issue.record("nothing delivered")
            return
        }
        #expect(terminal.response?.url == "http://new/")
    }

    @Test mutating func `replace removes what the handler wanted before`() {
        _ = rig.worker(slots: 1)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://old/", by: a) }
        rig.pass { $0.fetch("h", "2", "http://new/", by: a) { $0.options.replacesHandler = true } }
        #expect(rig.cancellations.count == 1)
        #expect(rig.core.ledger.requests.removed == 1)
        #expect(rig.core.ledger.requests.pending == 1)
    }

    @Test mutating func `what one handler lets go and another takes in the same pass goes on`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { $0.fetch("row/1", "1", "http://one/", by: a) }
        let job = rig.jobs[0]
        // The first flight loses its request before the second request joins it.
        rig.pass { rig in
            rig.fetch("row/1", "2", "http://two/", by: a) { $0.options.replacesHandler = true }
            rig.fetch("row/2", "1", "http://one/", by: a) { $0.options.replacesHandler = true }
        }
        #expect(rig.cancellations == [])
        #expect(rig.jobs.map(\.url) == ["http://two/"])
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: a) == ["row/2 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `what is let go goes on until all that came together with it is told`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("row/1", "1", "http://one/", by: a)
            rig.fetch("row/2", "1", "http://two/", by: a)
        }
        let jobs = rig.jobs
        rig.pass(unread: [a]) { $0.remove("row/", by: a) }
        #expect(rig.cancellations == [])
        rig.pass { $0.fetch("row/3", "1", "http://one/", by: a) }
        #expect(rig.cancellations == [jobs[1].attempt])
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.done(jobs[0], by: worker) }
        #expect(rig.terminals(for: a) == ["row/3 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a transfer whose worker died between REMOVE and FETCH of one client starts for the FETCH`() {
        let (worker, other) = (rig.worker(1), rig.worker(2))
        let a = rig.client(1)
        rig.pass { $0.fetch("row/1", "1", "http://one/", by: a) }
        let job = rig.jobs[0]
        rig.pass(unread: [a]) { $0.remove("row/", by: a) }
        let holder =
            rig.core.records.workers.handle(of: worker).map { rig.core.records.workers[$0].leases[job.attempt] != nil }
            == true
        rig.pass(unread: [a]) { $0.core.workerLost(holder ? worker : other, now: $0.now) }
        #expect(rig.jobs == [])
        #expect(rig.core.audit() == [])
        rig.pass { $0.fetch("row/2", "1", "http://one/", by: a) }
        #expect(rig.jobs.map(\.url) == ["http://one/"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a transfer that ends between REMOVE and FETCH of one client answers the FETCH`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { $0.fetch("row/1", "1", "http://one/", by: a) }
        let job = rig.jobs[0]
        rig.pass(unread: [a]) { $0.remove("row/", by: a) }
        rig.pass(unread: [a]) { $0.done(job, by: worker) }
        #expect(rig.releasedBodies == 0)
        rig.pass { $0.fetch("row/2", "1", "http://one/", by: a) }
        #expect(rig.jobs.isEmpty)
        #expect(rig.terminals(for: a) == ["row/2 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the outcome of a transfer that no request rejoins is dropped`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { $0.fetch("row/1", "1", "http://one/", by: a) }
        let job = rig.jobs[0]
        rig.pass(unread: [a]) { $0.remove("row/", by: a) }
        rig.pass(unread: [a]) { $0.done(job, by: worker) }
        #expect(rig.core.audit() == [])
        rig.pass { $0.fetch("row/2", "1", "http://two/", by: a) }
        #expect(rig.releasedBodies == 1)
        #expect(rig.cancellations == [])
        #expect(rig.core.audit() == [])
        rig.pass { $0.fetch("row/2", "2", "http://one/", by: a) }
        #expect(rig.jobs.map(\.url) == ["http://one/"])
    }

    @Test mutating func `a kept body gets the form that the later request demands`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { $0.fetch("row/1", "1", "http://one/", by: a) }
        let job = rig.jobs[0]
        rig.pass(unread: [a]) { $0.remove("row/", by: a) }
        rig.pass(unread: [a]) { $0.done(job, by: worker) }
        rig.pass { $0.fetch("row/2", "1", "http://one/", by: a) { $0.options.delivery = .file } }
        #expect(rig.jobs.isEmpty && rig.terminals(for: a) == ["row/2 1 200"])
        #expect(rig.actions.contains { if case .spool(.writeBody) = $0 { true } else { false } })
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a body that is too large for the removed request is fetched for one that allows more`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { $0.fetch("row/1", "1", "http://one/", by: a) { $0.options.maximumBodyBytes = 2 } }
        let job = rig.jobs[0]
        rig.pass(unread: [a]) { $0.remove("row/", by: a) }
        rig.pass(unread: [a]) { $0.failed(job, "too-large", by: worker) }
        rig.pass { $0.fetch("row/2", "1", "http://one/", by: a) }
        #expect(rig.jobs.map(\.maximumBodyBytes) == [nil])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `unread messages of another client neither prolong nor shorten a hand-over`() {
        _ = rig.worker(slots: 4)
        let a = rig.client(1)
        let b = rig.client(2)
        rig.pass { rig in
            rig.fetch("a", "1", "http://one/", by: a)
            rig.fetch("b", "1", "http://two/", by: b)
        }
        let jobs = rig.jobs
        rig.pass(unread: [b]) { $0.remove("a", by: a) }
        #expect(rig.cancellations == [jobs[0].attempt])
        rig.pass(unread: [b]) { $0.remove("b", by: b) }
        for _ in 0..<100 {
            rig.pass(unread: [a, b]) { $0.send(.query(.ping), by: a) }
            #expect(rig.cancellations == [])
        }
        rig.pass { $0.fetch("c", "1", "http://two/", by: b) }
        #expect(rig.cancellations == [])
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a client without end of messages keeps what it left for a bounded number of them`() {
        _ = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { $0.fetch("a", "1", "http://one/", by: a) }
        let job = rig.jobs[0]
        rig.pass(unread: [a]) { $0.remove("a", by: a) }
        for _ in 1..<16 {
            rig.pass(unread: [a]) { rig in for _ in 0..<32 { rig.send(.query(.ping), by: a) } }
            #expect(rig.cancellations == [])
        }
        rig.pass(unread: [a]) { rig in for _ in 0..<32 { rig.send(.query(.ping), by: a) } }
        #expect(rig.cancellations == [job.attempt])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `what nobody takes in the pass in which it was left is cut off with it, or ends before`() {
        let worker = rig.worker(slots: 4)
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://one/", by: a)
            rig.fetch("h", "2", "http://two/", by: a)
            rig.fetch("h", "3", "http://three/", by: a) { $0.options.coalesces = false }
        }
        let jobs = rig.jobs
        rig.pass { rig in
            rig.remove("h", by: a)
            rig.done(jobs[0], by: worker)
            rig.failed(jobs[1], "connection-lost", by: worker)
            rig.fetch("g", "1", "http://three/", by: a)
        }
        // No other request shares the third flight.
        #expect(rig.cancellations == [jobs[2].attempt])
        #expect(rig.jobs.map(\.url) == ["http://three/"])
        #expect(rig.core.ledger.flights.staleCompletions == 0)
        #expect(rig.core.audit() == [])
        rig.pass { $0.fetch("g", "2", "http://one/", by: a) }
        #expect(rig.jobs.map(\.url) == ["http://one/"])
    }

    @Test mutating func `a terminal that waits for its window is withdrawn by its own removal`() {
        let worker = rig.worker()
        let a = rig.client(1, window: 1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://1/", by: a)
            rig.fetch("h", "2", "http://2/", by: a)
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: a).count == 1)
        rig.pass { $0.remove("h", by: a) }
        rig.pass { $0.send(.acknowledge(1), by: a) }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.core.ledger.deliveries.lost == 1)
        #expect(rig.core.isIdle)
    }

    @Test mutating func `what somebody else removed before does not follow one's own removal either`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1, window: 1), rig.client(2))
        rig.pass { rig in
            rig.fetch("h", "1", "http://1/", by: a)
            rig.fetch("h", "2", "http://2/", by: a)
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        rig.pass { $0.remove("h", by: b) }
        rig.pass { $0.remove("h", by: a) }
        rig.pass { $0.send(.acknowledge(1), by: a) }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.core.isIdle)
    }

    @Test mutating func `the answer to the removal of a request states whether it had ended`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("h", "ended", "http://1/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        rig.pass { $0.fetch("h", "open", "http://2/", by: a) }
        for (name, wasOpen) in [("unknown", false), ("ended", false), ("open", true), ("open", false)] {
            rig.pass { $0.remove("h", name, by: b) }
            #expect(rig.replies(to: b) == [.requestRemoved(h, RequestID(name)!, wasOpen: wasOpen)])
            #expect(rig.terminals(for: a) == (wasOpen ? ["h open removed"] : []))
        }
    }

    @Test mutating func `a client that removes one request stays subscribed`() {
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("h", "1", "http://1/", by: a) }
        rig.pass { $0.remove("h", "1", by: a) }
        rig.pass { $0.fetch("h", "2", "nonsense", by: b) }
        #expect(rig.terminals(for: a) == ["h 2 malformed-url"])
    }

    /// The removal of the first request removes the other one, whose owner has ended, from their flight.
    @Test(arguments: ["h", "h/"])
    mutating func `REMOVE meets a request that has gone with an earlier one, and with its handler`(pattern: String) {
        var limits = CoreLimits()
        limits.maximumSessionCleanupsPerPass = 1
        rig = CoreRig(limits: limits)
        let (a, b) = (rig.client(1), rig.client(2))
        let handlers = pattern == "h" ? ["h", "h"] : ["h/1", "h/2"]
        rig.pass { rig in
            rig.fetch(handlers[0], "1", "http://shared/", by: a)
            rig.fetch(handlers[1], "2", "http://shared/", by: b)
            rig.core.clientLost(b, now: rig.now)
            #expect(rig.core.ledger.requests.pending == 2)
            rig.remove(pattern, by: a)
            #expect(rig.core.ledger.requests.pending == 0)
        }
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern(pattern)!, count: pattern == "h" ? 2 : 1)])
        // From the end of its owner.
        #expect(rig.terminals(for: a) == (pattern == "h" ? ["h 2 removed"] : []))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the owner's death ends its requests, a watcher's does not`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            rig.fetch("h", "1", "http://1/", by: a)
        }
        let job = rig.jobs[0]
        var watched = rig
        watched.pass { $0.core.clientLost(b, now: $0.now) }
        watched.pass { $0.done(job, by: worker) }
        #expect(watched.terminals(for: a) == ["h 1 200"])
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        #expect(rig.cancellations == [job.attempt])
        #expect(rig.terminals(for: b) == ["h 1 removed"])
    }
}
