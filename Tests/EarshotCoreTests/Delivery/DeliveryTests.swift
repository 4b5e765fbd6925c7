import EarshotWire
import Testing

@testable import EarshotCore

/// Delivery of terminals: to each subscriber, within its window, once.
struct DeliveryTests {
    private var rig = CoreRig()

    @Test mutating func `a full window holds terminals back and starts no work that only its client wants`() {
        let worker = rig.worker(slots: 8)
        let (slow, fast) = (rig.client(1, window: 2), rig.client(2))
        rig.pass { rig in for n in 1...4 { rig.fetch("s", "\(n)", "http://s\(n)/", by: slow) } }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: slow).count == 2)
        rig.pass { rig in
            rig.fetch("s", "5", "http://s5/", by: slow)
            rig.fetch("s", "6", "http://shared/", by: slow)
            rig.fetch("f", "1", "http://shared/", by: fast)
        }
        #expect(rig.jobs.map(\.url) == ["http://shared/"])
        rig.pass { $0.send(.acknowledge(2), by: slow) }
        #expect(rig.terminals(for: slow).count == 2)
        rig.pass { $0.send(.acknowledge(4), by: slow) }
        #expect(rig.jobs.map(\.url) == ["http://s5/"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an ID stays taken for a subscriber when its owner has unsubscribed and leaves`() {
        let worker = rig.worker()
        let (owner, other) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: other)
            rig.fetch("h", "1", "http://1/", by: owner)
        }
        let job = rig.jobs[0]
        rig.pass { $0.send(.unsubscribe(HandlerPattern("h")!), by: owner) }
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: other) == ["h 1 200"] && rig.terminals(for: owner).isEmpty)
        rig.pass { $0.send(.bye, by: owner) }
        let third = rig.client(3)
        rig.pass { $0.fetch("h", "1", "http://other/", by: third) }
        let codes = rig.replies(to: third).map { if case .error(let reply) = $0 { reply.code } else { "" } }
        #expect(codes == ["id-in-use"], "a repetition would get the terminal")
        rig.pass { rig in
            rig.send(.acknowledge(1), by: other)
            rig.fetch("h", "1", "http://other/", by: third)
        }
        #expect(rig.jobs.map(\.url) == ["http://other/"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an ID whose owner has unsubscribed is free when the owner leaves before the end`() {
        let (owner, other) = (rig.client(1), rig.client(2))
        _ = rig.worker()
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: other)
            rig.fetch("h", "1", "http://1/", by: owner)
            rig.send(.unsubscribe(HandlerPattern("h")!), by: owner)
        }
        rig.pass { $0.send(.bye, by: owner) }
        #expect(rig.terminals(for: other) == ["h 1 removed"])
        rig.pass { $0.fetch("h", "1", "http://other/", by: other) }
        #expect(rig.jobs.map(\.url) == ["http://other/"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an ID is taken until its terminal is acknowledged`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        rig.pass { $0.fetch("h", "1", "http://other/", by: a) }
        guard case .error(let reply)? = rig.replies(to: a).first else {
            Issue.record("not refused")
            return
        }
        #expect(reply.code == "id-in-use")
        rig.pass { rig in
            rig.send(.acknowledge(1), by: a)
            rig.fetch("h", "1", "http://other/", by: a)
        }
        #expect(rig.jobs.map(\.url) == ["http://other/"])
    }

    @Test mutating func `the same request asked again by a new connection is one request, owned by the newest`() {
        let worker = rig.worker()
        let old = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: old) }
        let job = rig.jobs[0]
        let new = rig.client(2)
        rig.pass { $0.fetch("h", "1", "http://1/", by: new) }
        rig.pass { $0.core.clientLost(old, now: $0.now) }
        #expect(rig.cancellations.isEmpty)
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: new) == ["h 1 200"])
        #expect(rig.core.ledger.requests.submitted == 1)
    }

    @Test mutating func `a terminal that the socket refused is sent again when the socket is writable`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        rig.pass { $0.core.socketRefusedTerminal(1, by: a) }
        rig.pass { $0.core.clientSocketWritable(a) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        rig.pass { $0.send(.acknowledge(1), by: a) }
        #expect(rig.releasedBodies == 1)
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a handler's own request is fetched at once and waits ten seconds for a subscriber`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("h", "1", "http://1/", by: a) { $0.options.subscribes = false } }
        let job = rig.jobs[0]
        rig.pass { $0.core.clientLost(a, now: $0.now) }
        rig.pass { $0.done(job, by: worker) }
        rig.wait(milliseconds: 9_999)
        var received = rig
        received.pass { $0.send(.subscribe(HandlerPattern("h")!), by: b) }
        #expect(received.terminals(for: b) == ["h 1 200"])
        #expect(received.core.ledger.requests.answered == 1)
        rig.wait(milliseconds: 1)
        #expect(rig.core.ledger.requests.orphaned == 1)
        #expect(rig.core.isIdle)
    }

    @Test mutating func `what a handler wants by itself ends when its last subscriber stays away for the grace`() {
        _ = rig.worker(slots: 1)
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            for n in 1...3 { rig.fetch("h", "\(n)", "http://\(n)/", by: a) { $0.options.subscribes = false } }
        }
        rig.pass { $0.core.clientLost(b, now: $0.now) }
        rig.wait(milliseconds: 10_000)
        #expect(rig.core.ledger.requests.orphaned == 3)
        #expect(rig.cancellations.count == 1)
    }

    @Test mutating func `an ID is free once its owner has acknowledged, though a watcher has not`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            rig.fetch("h", "1", "http://1/", by: a)
        }
        var job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        rig.pass { rig in
            rig.send(.acknowledge(1), by: a)
            rig.fetch("h", "1", "http://1/", by: a)
        }
        #expect(rig.terminals(for: a) == [])
        job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a subscriber that came back starts its grace anew when it leaves again`() {
        _ = rig.worker(slots: 1)
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: b)
            for n in 1...2 { rig.fetch("h", "\(n)", "http://\(n)/", by: a) { $0.options.subscribes = false } }
            rig.send(.unsubscribe(HandlerPattern("h")!), by: b)
        }
        rig.wait(milliseconds: 5_000)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: b) }
        rig.wait(milliseconds: 4_000)
        rig.pass { $0.send(.unsubscribe(HandlerPattern("h")!), by: b) }
        rig.wait(milliseconds: 9_999)
        #expect(rig.core.ledger.requests.orphaned == 0)
        rig.wait(milliseconds: 1)
        #expect(rig.core.ledger.requests.orphaned == 2)
    }

    @Test mutating func `BYE forgets what was wanted, and terminals go on being counted`() {
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "nonsense", by: a)
            rig.send(.bye, by: a)
        }
        rig.pass()
        #expect(rig.actions.isEmpty)
        rig.pass { rig in
            rig.send(.hello(Hello()), by: a)
            rig.fetch("h", "1", "nonsense", by: a)
        }
        guard case .client(.deliverTerminal(_, let terminal, _))? = rig.actions.last else {
            Issue.record("nothing delivered")
            return
        }
        #expect(terminal.sequence == 2)
    }

    @Test mutating func `large bodies that wait for a full window wait in the spool`() {
        let worker = rig.worker(slots: 64)
        let (slow, fast) = (rig.client(1, window: 1), rig.client(2))
        rig.pass { rig in
            rig.send(.subscribe(HandlerPattern("h")!), by: slow)
            for n in 1...40 { rig.fetch("h", "\(n)", "http://\(n)/", by: fast) }
        }
        var spilled = 0
        for job in rig.jobs {
            rig.pass { $0.done(job, by: worker, length: 65_536) }
            spilled += spills.count
            #expect(rig.terminals(for: fast).count == 1)
        }
        #expect(spilled == 40 - 1 - (1 << 20) / 65_536, "the bound is a mebibyte")
        rig.pass { $0.send(.acknowledge(1), by: slow) }
        #expect(rig.terminals(for: slow).count == 1)
        for sequence in 2...40 as ClosedRange<UInt64> { rig.pass { $0.send(.acknowledge(sequence), by: slow) } }
        rig.pass { $0.send(.acknowledge(40), by: fast) }
        #expect(rig.core.isIdle)
    }

    @Test mutating func `an acknowledgement of what was never sent is refused`() {
        let a = rig.client(1)
        rig.pass { $0.send(.acknowledge(.max), by: a) }
        guard case .error(let reply)? = rig.replies(to: a).first else {
            Issue.record("not refused")
            return
        }
        #expect(reply.code == "bad-message")
    }

    @Test mutating func `a connection that did not say HELLO is told to`() {
        let id = ClientID(rawValue: 5)
        rig.pass { rig in
            rig.connect(id)
            rig.fetch("h", "1", "http://1/", by: id)
        }
        guard case .error(let reply)? = rig.replies(to: id).first else {
            Issue.record("not refused")
            return
        }
        #expect(reply.code == "hello-required")
    }

    @Test mutating func `a client is closed when the header fields that wait for it pass their bound, and only it`() {
        var limits = CoreLimits()
        limits.maximumDueHeaderBytesPerClient = 2_500
        rig = CoreRig(limits: limits)
        let worker = rig.worker(slots: 8)
        let (reader, stopped) = (rig.client(1), rig.client(2, window: 1))
        rig.send(.subscribe(HandlerPattern("h")!), by: stopped)
        rig.pass { rig in for number in 0..<4 { rig.fetch("h", "\(number)", "http://h\(number)/", by: reader) } }
        let jobs = rig.jobs
        let fields = "x-long: " + String(repeating: "x", count: 992)
        func answer(_ job: Job) -> [Action] {
            rig.pass { $0.done(job, by: worker, fields: fields) }
            rig.send(.acknowledge(UInt64(rig.core.ledger.requests.answered)), by: reader)
            return rig.actions.filter { if case .client(.close) = $0 { true } else { false } }
        }
        #expect(answer(jobs[0]) == [])
        #expect(answer(jobs[1]) == [])
        #expect(answer(jobs[2]) == [])
        #expect(answer(jobs[3]) == [.client(.close(stopped, reason: "too-slow"))])
        #expect(rig.core.audit() == [])
    }

    // MARK: A full spool

    /// Sets limits of two bodies in memory per client, and per handler.
    private mutating func tighten() -> WorkerID {
        var limits = CoreLimits()
        limits.maximumWaitingBodyBytes = 8
        rig = CoreRig(limits: limits)
        return rig.worker(slots: 8)
    }

    /// The bodies spilled in the last pass.
    private var spills: [BodyID] {
        rig.actions.compactMap { action in
            switch action {
            case .spool(.spillBody(let body, _)): body
            default: nil
            }
        }
    }

    @Test mutating func `a body that cannot be written stays in memory and is delivered`() {
        let worker = tighten()
        let slow = rig.client(1)
        rig.pass { rig in
            for n in 1...3 {
                rig.fetch("h", "\(n)", "http://h\(n)/", by: slow) { $0.options.subscribes = false }
            }
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(spills.count == 1)
        let body = spills[0]
        rig.pass { $0.core.bodySpillFailed(body, now: $0.now) }
        #expect(!rig.actions.contains(.spool(.releaseBody(body))))
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: slow) }
        let received = rig.actions.compactMap {
            if case .client(.deliverTerminal(_, _, let body)) = $0 { body } else { nil }
        }
        #expect(received.count == 3)
        #expect(received.contains(body))
        rig.pass { $0.send(.acknowledge(3), by: slow) }
        #expect(rig.actions.contains(.spool(.releaseBody(body))))
        #expect(rig.core.audit() == [])
        #expect(rig.core.isIdle)
    }

    @Test mutating func `while the spool is full what would have to wait fails, and later no more`() {
        let worker = tighten()
        let requester = rig.client(1)
        func submit(_ numbers: ClosedRange<Int>) {
            rig.pass { rig in
                for n in numbers {
                    rig.fetch("h", "\(n)", "http://h\(n)/", by: requester) { $0.options.subscribes = false }
                }
            }
            let jobs = rig.jobs
            rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        }
        submit(1...3)
        #expect(spills.count == 1)
        let body = spills[0]
        rig.pass { $0.core.bodySpillFailed(body, now: $0.now) }
        submit(4...4)
        #expect(spills == [])
        rig.wait(milliseconds: rig.core.limits.spoolRetryMilliseconds)
        submit(5...5)
        #expect(spills.count == 1)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: requester) }
        #expect(
            rig.terminals(for: requester) == ["h 1 200", "h 2 200", "h 3 200", "h 4 spool-full", "h 5 200"])
        #expect(rig.core.ledger.requests.failed == ["spool-full": 1])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `while the spool is full a slow subscriber is closed, and the others have the result`() {
        let worker = tighten()
        let (fast, slow) = (rig.client(1), rig.client(2, window: 1))
        rig.send(.subscribe(HandlerPattern("h")!), by: slow)
        func answer(_ n: Int) {
            rig.pass { $0.fetch("h", "\(n)", "http://h\(n)/", by: fast) }
            let job = rig.jobs[0]
            rig.pass { $0.done(job, by: worker) }
        }
        for n in 1...4 { answer(n) }
        #expect(spills.count == 1)
        let body = spills[0]
        rig.pass { $0.core.bodySpillFailed(body, now: $0.now) }
        answer(5)
        #expect(rig.terminals(for: fast) == ["h 5 200"])
        #expect(rig.actions.contains(.client(.close(slow, reason: "too-slow"))))
        #expect(rig.core.audit() == [])
    }
}
