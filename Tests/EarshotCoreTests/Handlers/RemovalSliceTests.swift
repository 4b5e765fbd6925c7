import EarshotWire
import Testing

@testable import EarshotCore

/// Removals that take several passes, and ends of sessions. Clients do not observe the slices.
struct RemovalSliceTests {
    private var rig: CoreRig

    init() {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 4
        limits.maximumSessionCleanupsPerPass = 4
        rig = CoreRig(limits: limits)
    }

    private mutating func submit(_ count: Int, _ handler: String = "h", by client: ClientID) {
        for number in 0..<count { rig.fetch(handler, "\(number)", "http://h\(number)/", by: client) }
    }

    /// Runs passes until nothing is being removed.
    ///
    /// - Returns: the number of passes.
    private mutating func finish() -> Int {
        var passes = 0
        while rig.core.hasPendingRemovals {
            rig.pass()
            passes += 1
            #expect(rig.core.audit() == [])
        }
        return passes
    }

    @Test mutating func `a large REMOVE is carried out in slices, which are counted as they come, and then answered`() {
        let a = rig.client(1)
        rig.pass { _ in }
        submit(100, by: a)
        rig.pass { $0.remove("h", by: a) }
        #expect(rig.replies(to: a) == [] && rig.core.hasPendingRemoval(by: a))
        #expect(rig.core.ledger.requests.pending == 96 && rig.core.doomedRequestCount == 96)
        #expect(rig.core.ledger.requests.removed == 4)
        #expect(rig.core.nextTimer == MonotonicTime(nanoseconds: .min))
        #expect(rig.core.audit() == [])
        #expect(finish() == 24)
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern("h")!, count: 100)])
        #expect(rig.core.isIdle)
        #expect(rig.core.nextTimer == nil)
    }

    @Test mutating func `the end of a removal is the one pass that ends with spare room`() {
        let a = rig.client(1)
        rig.pass { _ in }
        submit(100, by: a)
        #expect(!rig.core.endPass().canReleaseMemory)
        rig.pass { $0.remove("h", by: a) }
        while rig.core.hasPendingRemovals {
            let end = rig.core.endPass()
            #expect(!end.canReleaseMemory && end.nextTimer == MonotonicTime(nanoseconds: .min))
            rig.pass()
        }
        #expect(rig.core.endPass() == PassEnd(nextTimer: nil, canReleaseMemory: true))
        #expect(rig.core.endPass() == PassEnd(nextTimer: nil, canReleaseMemory: false))
    }

    @Test mutating func `a transfer that many removed requests share ends without a wait for the client's messages`() {
        let a = rig.client(1)
        let worker = rig.worker(slots: 1)
        rig.pass { rig in
            // More than are removed ahead of the slices.
            for number in 0..<70 { rig.fetch("h", "same-\(number)", "http://h0/", by: a) }
            for number in 1..<20 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) }
        }
        let jobs = rig.jobs
        #expect(jobs.count == 1)
        rig.pass(unread: [a]) { $0.remove("h", by: a) }
        #expect(rig.cancellations == [])
        var cancelled: [AttemptID] = []
        while rig.core.hasPendingRemovals {
            rig.pass(unread: [a])
            cancelled += rig.cancellations
        }
        #expect(cancelled == [jobs[0].attempt])
        rig.pass { rig in
            rig.fetch("other", "1", "http://h0/", by: a)
            rig.failed(jobs[0], "cancelled", by: worker)
        }
        #expect(rig.jobs.map(\.url) == ["http://h0/"], "a new fetch")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a transfer ends at once with the session that made all its requests`() {
        let (a, b) = (rig.client(1), rig.client(2))
        _ = rig.worker(slots: 1)
        rig.pass { rig in
            rig.fetch("first", "1", "http://h0/", by: a)
            for number in 1...20 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) }
            rig.fetch("last", "1", "http://h0/", by: a)
        }
        let jobs = rig.jobs
        #expect(jobs.map(\.url) == ["http://h0/"])
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        #expect(rig.cancellations == jobs.map(\.attempt), "the slices remove the last request in a later pass")
        rig.pass { $0.fetch("other", "1", "http://h0/", by: b) }
        #expect(finish() > 2)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the latest removal decides about the wait of a transfer, also during a large one`() {
        let (a, b) = (rig.client(1), rig.client(2))
        _ = rig.worker(slots: 1)
        rig.pass { rig in
            // Its request is the first one, so those with running transfers are not removed at once.
            rig.fetch("other", "1", "http://h0/", by: b)
            rig.fetch("h", "0", "http://h0/", by: a)
            for number in 1..<20 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) }
        }
        let jobs = rig.jobs
        rig.pass(unread: [a]) { rig in
            rig.remove("h", by: a)
            rig.remove("other", by: b)
        }
        #expect(rig.cancellations == jobs.map(\.attempt), "no message of its client is unread")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a request removed in slices does not rejoin a transfer that ended meanwhile`() {
        let a = rig.client(1)
        let worker = rig.worker(slots: 1)
        rig.pass { $0.fetch("first", "1", "http://h0/", by: a) }
        let jobs = rig.jobs
        rig.pass(unread: [a]) { $0.remove("first", "1", by: a) }
        rig.pass(unread: [a]) { $0.done(jobs[0], by: worker) }
        let kept = rig.core.records.flights.deferredCancellations.values.compactMap(\.outcome)
        #expect(kept.map { rig.core.records.outcomes[$0].response?.status } == [200])
        rig.pass { rig in
            for number in 0..<20 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) }
            rig.remove("h", by: a)
        }
        _ = finish()
        #expect(rig.core.isIdle)
        #expect(rig.terminals(for: a) == [])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the subtrees of an ended session are left in slices, and nothing is delivered to it`() {
        let (a, b) = (rig.client(1), rig.client(2))
        let worker = rig.worker(slots: 100)
        rig.pass { rig in
            for number in 0..<20 {
                rig.send(.subscribe(HandlerPattern("h\(number)/")!), by: a)
                rig.fetch("h\(number)/x", "1", "http://h\(number)/", by: b)
            }
        }
        let jobs = rig.jobs
        #expect(jobs.count == 20)
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        #expect(rig.core.hasPendingRemovals && rig.core.audit() == [])
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: a) == [] && rig.terminals(for: b).count == 20)
        #expect(finish() > 1)
        #expect(rig.core.records.handlers.subtreeCount == 0 && rig.core.audit() == [])
    }

    @Test mutating func `removals leave no backlog that grows, however fast their handlers come back`() {
        let a = rig.client(1)
        for pass in 0..<100 {
            rig.pass { _ in }
            submit(20, "h\(pass)", by: a)
            rig.pass { $0.remove("h\(pass)", by: a) }
            #expect(rig.core.records.requests.count <= 40)
        }
        _ = finish()
        #expect(rig.core.isIdle)
    }

    @Test mutating func `what runs is cut off with the message, before the slices`() {
        let a = rig.client(1)
        submit(100, by: a)
        rig.fetch("h", "urgent", "http://urgent/", by: a) { $0.options.priority = .high }
        let worker = rig.worker(slots: 2)
        rig.pass()
        let jobs = rig.jobs
        #expect(jobs.contains { $0.url == "http://urgent/" })
        rig.pass { $0.remove("h", by: a) }
        #expect(Set(rig.cancellations) == Set(jobs.map(\.attempt)))
        rig.pass { rig in for job in jobs { rig.failed(job, "cancelled", by: worker) } }
        #expect(rig.jobs == [], "nothing doomed is started")
        _ = finish()
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a request that comes in during a removal joins nothing of it, and has its ID at once`() {
        let (a, b) = (rig.client(1), rig.client(2))
        submit(100, by: a)
        let worker = rig.worker(slots: 1)
        rig.pass { rig in
            rig.remove("h", by: a)
            rig.fetch("h", "99", "http://h99/", by: b)
        }
        #expect(rig.core.ledger.flights.joinedRequests == 0 && rig.core.hasPendingRemoval(by: a))
        var jobs = rig.jobs
        while rig.core.hasPendingRemovals {
            rig.pass()
            jobs += rig.jobs
        }
        #expect(jobs.map(\.url) == ["http://h99/"])
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern("h")!, count: 100)])
        rig.pass { $0.done(jobs[0], by: worker) }
        #expect(rig.terminals(for: b) == ["h 99 200"])
    }

    @Test mutating func `a FETCH that replaces very many is carried out when they are gone, and counts none of them`() {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 4
        limits.maximumOpenRequestsPerClient = 50
        rig = CoreRig(limits: limits)
        let a = rig.client(1)
        let worker = rig.worker(slots: 1)
        rig.pass { _ in }
        submit(50, by: a)
        rig.pass { rig in
            rig.fetch("h", "0", "http://new/", by: a) { $0.options.replacesHandler = true }
        }
        #expect(rig.core.hasPendingRemoval(by: a) && rig.core.ledger.requests.submitted == 50)
        var jobs: [Job] = []
        while rig.core.hasPendingRemovals {
            rig.pass { rig in for job in jobs { rig.failed(job, "cancelled", by: worker) } }
            jobs = rig.jobs
            #expect(rig.core.audit() == [])
        }
        #expect(rig.core.ledger.requests.submitted == 51 && rig.core.ledger.requests.removed == 50)
        #expect(rig.core.ledger.requests.pending == 1 && rig.terminals(for: a) == [])
    }

    @Test mutating func `the body of a FETCH that replaces is released when its client is lost before`() {
        let a = rig.client(1)
        rig.pass { _ in }
        submit(50, by: a)
        rig.pass { rig in
            var fetch = Fetch(handler: HandlerID("h")!, request: RequestID("0")!, url: "http://new/")
            fetch.options.method = "POST"
            fetch.options.coalesces = false
            fetch.options.replacesHandler = true
            let body = RequestBody(bodyID: BodyID(rawValue: 77), byteCount: 1, digestPrefix: 1)
            rig.core.clientMessageReceived(.fetch(fetch), body: body, from: a, now: rig.now)
        }
        func isReleased() -> Bool {
            rig.actions.contains { if case .spool(.releaseBody(BodyID(rawValue: 77))) = $0 { true } else { false } }
        }
        #expect(rig.core.hasPendingRemoval(by: a) && !isReleased())
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        #expect(isReleased())
        _ = finish()
        #expect(rig.core.isIdle)
    }

    @Test mutating func `handlers that are removed take turns`() {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 64
        rig = CoreRig(limits: limits)
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { _ in }
        submit(640, "long", by: a)
        submit(65, "short", by: b)
        rig.pass { rig in
            rig.remove("long", by: a)
            rig.remove("short", by: b)
        }
        for _ in 0..<3 { rig.pass() }
        #expect(rig.replies(to: b) == [.handlersRemoved(HandlerPattern("short")!, count: 65)])
        #expect(rig.core.hasPendingRemoval(by: a))
        _ = finish()
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern("long")!, count: 640)])
    }

    @Test mutating func `a subscriber gets one FAILED removed for each request, before anything new of that name`() {
        let (a, b, c) = (rig.client(1), rig.client(2, window: 1_000), rig.client(3))
        let worker = rig.worker(slots: 1)
        rig.send(.subscribe(HandlerPattern("h")!), by: b)
        rig.core.workerDisconnected(worker, isProcessAlive: false, now: rig.now)
        submit(100, by: a)
        var received: [String] = []
        rig.pass { rig in
            rig.remove("h", by: a)
            rig.fetch("h", "50", "nonsense", by: c)
        }
        received += rig.terminals(for: b)
        #expect(rig.terminals(for: c) == ["h 50 malformed-url"])
        while rig.core.hasPendingRemovals {
            rig.pass()
            received += rig.terminals(for: b)
        }
        #expect(received.count == 101)
        #expect(Set(received).count == 101)
        #expect(received.firstIndex(of: "h 50 removed")! < received.firstIndex(of: "h 50 malformed-url")!)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a subscriber that removes the handler too gets nothing after its answer`() {
        let (a, b) = (rig.client(1), rig.client(2, window: 1_000))
        rig.send(.subscribe(HandlerPattern("h")!), by: b)
        submit(100, by: a)
        rig.pass { $0.remove("h", by: a) }
        let reported = rig.terminals(for: b).count
        #expect(reported < 100)
        rig.pass { $0.remove("h", by: b) }
        #expect(rig.core.hasPendingRemoval(by: b) && rig.replies(to: b) == [])
        while rig.core.hasPendingRemovals {
            rig.pass()
            #expect(rig.terminals(for: b) == [])
        }
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern("h")!, count: 100)])
        #expect(rig.replies(to: b) == [.handlersRemoved(HandlerPattern("h")!, count: 0)])
        #expect(rig.core.ledger.deliveries.started == 100)
        #expect(rig.core.ledger.isBalanced)
    }

    @Test mutating func `a client at its limit can ask again as soon as its removal is answered`() {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 1
        limits.maximumOpenRequestsPerClient = 50
        rig = CoreRig(limits: limits)
        let a = rig.client(1)
        submit(50, by: a)
        rig.pass { rig in
            rig.remove("h", by: a)
            for number in 0..<50 { rig.fetch("g", "\(number)", "http://g/", by: a) }
        }
        #expect(rig.core.ledger.requests.failedCount == 0)
        rig.pass { $0.fetch("g", "50", "http://g/", by: a) }
        #expect(rig.terminals(for: a) == ["g 50 queue-full"])
    }

    @Test mutating func `a dead client's requests go in slices, what runs first, and none of it starts meanwhile`() {
        let (a, b) = (rig.client(1), rig.client(2))
        submit(100, by: a)
        rig.fetch("h", "urgent", "http://urgent/", by: a) { $0.options.priority = .high }
        let worker = rig.worker(slots: 1)
        rig.pass()
        let running = rig.jobs[0]
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        #expect(rig.cancellations == [running.attempt])
        rig.pass { rig in
            rig.failed(running, "cancelled", by: worker)
            rig.fetch("g", "1", "http://g/", by: b)
        }
        #expect(rig.jobs.map(\.url) == ["http://g/"])
        #expect(rig.core.hasPendingRemovals)
        _ = finish()
        #expect(rig.core.ledger.requests.removed == 101)
        #expect(rig.core.ledger.requests.pending == 1)
    }

    @Test mutating func `a connection that says BYE and HELLO again hears nothing of its old requests`() {
        let a = rig.client(1)
        submit(100, by: a)
        rig.pass { rig in
            rig.send(.bye, by: a)
            rig.send(.hello(Hello()), by: a)
            rig.send(.subscribe(HandlerPattern("h")!), by: a)
        }
        var received = rig.terminals(for: a)
        while rig.core.hasPendingRemovals {
            rig.pass()
            received += rig.terminals(for: a)
        }
        // It subscribes again while its old requests are removed.
        #expect(received.allSatisfy { $0.hasSuffix(" removed") })
        #expect(Set(received).count == received.count)
        #expect(rig.core.ledger.requests.removed == 100)
    }

    @Test mutating func `what is asked again by a new connection during the removal of the old one's is a new one`() {
        let a = rig.client(1)
        submit(100, by: a)
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        let again = rig.client(2)
        rig.pass { $0.fetch("h", "99", "http://h99/", by: again) }
        _ = finish()
        #expect(rig.core.ledger.requests.removed == 100 && rig.core.ledger.requests.submitted == 101)
        #expect(rig.core.ledger.requests.pending == 1)
    }

    @Test mutating func `a dead client is told nothing while its many subscriptions and terminals are taken off`() {
        let (a, b) = (rig.client(1, window: 2), rig.client(2))
        let worker = rig.worker(slots: 64)
        rig.pass { rig in
            for n in 0..<30 {
                rig.send(.subscribe(HandlerPattern("h\(n)")!), by: a)
                rig.fetch("h\(n)", "1", "http://h\(n)/", by: b)
            }
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs.dropLast(10) { rig.done(job, by: worker) } }
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        #expect(rig.core.hasPendingRemovals)
        rig.pass { rig in for job in jobs.suffix(10) { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.terminals(for: b).count == 10)
        #expect(finish() > 5)
        rig.pass { $0.send(.acknowledge(30), by: b) }
        #expect(rig.core.ledger.deliveries.lost == 20)
        rig.pass { $0.core.clientLost(b, now: $0.now) }
        _ = finish()
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a large subtree is removed in slices, in which others have their turn, and then answered`() {
        var limits = CoreLimits()
        limits.maximumSessionCleanupsPerPass = 4
        rig = CoreRig(limits: limits)
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            for number in 10..<20 {
                rig.fetch("s/\(number)", "1", "http://h\(number)/", by: a)
                rig.send(.subscribe(HandlerPattern("s/\(number)")!), by: b)
            }
            rig.fetch("t", "1", "http://t/", by: a)
        }
        rig.pass { $0.remove("s/", by: a) }
        #expect(rig.core.hasPendingRemoval(by: a) && !rig.core.hasPendingRemoval(by: b))
        #expect(rig.replies(to: a).isEmpty)
        #expect(rig.terminals(for: b) == (10..<14).map { "s/\($0) 1 removed" }, "two slices")
        // A name that was not reached yet belongs to the removal, one that was reached does not.
        rig.pass { rig in
            for number in [11, 19] { rig.fetch("s/\(number)", "2", "http://new/", by: b) }
        }
        #expect(rig.core.hasPendingRemoval(by: a))
        _ = finish()
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern("s/")!, count: 11)])
        #expect(rig.core.ledger.requests.pending == 2)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `two removals of subtrees take turns, and a message of the client waits for its own`() {
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            for number in 10..<30 {
                rig.fetch("s/\(number)", "1", "http://h\(number)/", by: a)
                rig.fetch("u/\(number)", "1", "http://h\(number)/", by: b)
            }
        }
        rig.pass { rig in
            rig.remove("s/", by: a)
            rig.remove("u/", by: b)
        }
        #expect(rig.core.ledger.requests.removed == 6, "the dispatch of the pass was the second turn of the first")
        rig.pass()
        #expect(rig.core.ledger.requests.removed == 8)
        rig.pass { $0.send(.bye, by: b) }
        #expect(rig.replies(to: b).first == .handlersRemoved(HandlerPattern("u/")!, count: 20))
        _ = finish()
        #expect(rig.replies(to: a) == [.handlersRemoved(HandlerPattern("s/")!, count: 20)])
        #expect(rig.core.isIdle)
    }

    @Test mutating func `deadlines and graces of very many end in slices`() {
        var limits = CoreLimits()
        limits.maximumTimersPerPass = 10
        limits.maximumSessionCleanupsPerPass = 10
        rig = CoreRig(limits: limits)
        let a = rig.client(1, window: 1_000)
        rig.pass { rig in
            for n in 0..<50 {
                rig.fetch("h", "\(n)", "http://h\(n)/", by: a) { $0.options.deadlineMilliseconds = 100 }
            }
            for n in 0..<50 {
                rig.fetch("own", "\(n)", "http://h\(n)/", by: a) { $0.options.subscribes = false }
            }
            rig.send(.subscribe(HandlerPattern("own")!), by: a)
            rig.send(.unsubscribe(HandlerPattern("own")!), by: a)
        }
        var ends: [Int] = []
        rig.wait(milliseconds: 100)
        while rig.core.nextTimer ?? MonotonicTime(nanoseconds: .max) <= rig.now {
            ends.append(rig.core.ledger.requests.failedCount)
            rig.pass()
        }
        #expect(ends == [10, 20, 30, 40])
        #expect(rig.core.ledger.requests.failed == ["deadline": 50])
        rig.wait(milliseconds: limits.subscriberGraceMilliseconds)
        #expect(rig.core.ledger.requests.orphaned == 10)
        for _ in 0..<4 {
            rig.now = rig.now.advanced(byNanoseconds: 1)
            rig.pass()
        }
        #expect(rig.core.ledger.requests.orphaned == 50)
        #expect(rig.core.audit() == [])
    }
}
