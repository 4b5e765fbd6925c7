import EarshotWire
import Testing

@testable import EarshotCore

/// Leases: the state of a session outlives its connection, and the next connection resumes it.
struct SessionTests {
    private var rig = CoreRig()

    private mutating func connect(
        _ number: UInt64, window: Int = 256, lease: Int = 1_000, token: SessionToken? = nil
    ) -> ClientID {
        let id = ClientID(rawValue: number)
        var hello = Hello(window: window)
        hello.leaseMilliseconds = lease
        hello.token = token
        rig.connect(id)
        rig.send(.hello(hello), by: id)
        return id
    }

    private mutating func lose(_ client: ClientID) {
        rig.pass { $0.core.clientLost(client, now: $0.now) }
    }

    /// The sequence numbers of terminals sent to a client in the last pass.
    private func sequences(for client: ClientID) -> [UInt64] {
        rig.actions.compactMap {
            if case .client(.deliverTerminal(client, let terminal, _)) = $0 { terminal.sequence } else { nil }
        }
    }

    private func welcome(of client: ClientID) -> Welcome? {
        rig.replies(to: client).compactMap { if case .welcome(let welcome) = $0 { welcome } else { nil } }.first
    }

    private func error(to client: ClientID) -> String? {
        rig.replies(to: client).compactMap { if case .error(let reply) = $0 { reply.code } else { nil } }.first
    }

    /// Delivers `count` terminals to a client, from one worker.
    private mutating func answer(_ count: Int, under handler: String = "h", by client: ClientID) {
        let worker = rig.worker(900, slots: 64)
        let from = rig.core.ledger.requests.submitted
        rig.pass { rig in
            for number in from..<(from + count) {
                rig.fetch(handler, "\(number)", "http://h\(number)/", by: client)
            }
        }
        let jobs = rig.jobs
        #expect(jobs.count == count)
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
    }

    @Test mutating func `a lease is granted up to an hour, with a token, and none is without`() throws {
        var clients: [ClientID] = []
        rig.pass { _ in }
        clients = [connect(1, lease: 0), connect(2, lease: 7_000), connect(3, lease: 86_400_000)]
        rig.actions = rig.core.takeActions()
        let welcomes = clients.map { welcome(of: $0) }
        #expect(welcomes.map { $0?.leaseMilliseconds } == [0, 7_000, 3_600_000])
        #expect(welcomes.map { $0?.token } == [nil, CoreRig.token(of: clients[1]), CoreRig.token(of: clients[2])])
        #expect(welcomes.map { $0?.lastReceivedNumber } == [nil, nil, nil])
    }

    @Test mutating func `who is away is removed when its lease is over, and not before`() {
        let a = connect(1)
        _ = rig.worker()
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        #expect(rig.jobs.count == 1)
        lose(a)
        rig.wait(milliseconds: 999)
        #expect(rig.core.ledger.requests.pending == 1)
        #expect(rig.cancellations.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.core.ledger.requests.removed == 1)
        #expect(rig.cancellations.count == 1)
        #expect(rig.core.records.clients.count == 0)
    }

    @Test mutating func `who comes back gets what it had not acknowledged, in order and under its numbers, once`() {
        let a = connect(1)
        answer(5, by: a)
        #expect(sequences(for: a) == [1, 2, 3, 4, 5])
        rig.pass { $0.send(.acknowledge(2), by: a) }
        lose(a)
        let b = connect(2, token: CoreRig.token(of: a))
        rig.actions = rig.core.takeActions()
        #expect(sequences(for: b) == [3, 4, 5])
        rig.pass { $0.send(.acknowledge(5), by: b) }
        #expect(rig.core.ledger.deliveries.acknowledged == 5)
        answer(1, by: b)
        #expect(sequences(for: b) == [6])
    }

    @Test mutating func `a takeover is told with what was heard, and what was due follows`() {
        let a = connect(1, window: 2)
        answer(4, by: a)
        #expect(sequences(for: a) == [1, 2])
        lose(a)
        _ = rig.core.takeActions()
        let b = connect(2, window: 3, token: CoreRig.token(of: a))
        rig.actions = rig.core.takeActions()
        #expect(welcome(of: b)?.lastReceivedNumber == 4, "the number of the last message")
        #expect(welcome(of: b)?.token == CoreRig.token(of: a))
        #expect(sequences(for: b) == [1, 2, 3])
        rig.pass { $0.send(.acknowledge(3), by: b) }
        #expect(sequences(for: b) == [4])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `nobody takes over a session whose connection stands, or without its token`() {
        let a = connect(1)
        answer(1, by: a)
        _ = rig.core.takeActions()
        let early = connect(2, token: CoreRig.token(of: a))
        rig.actions = rig.core.takeActions()
        #expect(error(to: early) == "session-in-use")
        lose(a)
        _ = rig.core.takeActions()
        let others = [
            connect(4, token: SessionToken(highBits: 7, lowBits: 99)), connect(5, lease: 0),
        ]
        rig.actions = rig.core.takeActions()
        for other in others {
            #expect(welcome(of: other)?.lastReceivedNumber == nil)
            #expect(error(to: other) == nil)
            #expect(sequences(for: other).isEmpty)
        }
        rig.send(.hello(Hello()), by: early)
        let right = connect(6, token: CoreRig.token(of: a))
        rig.actions = rig.core.takeActions()
        #expect(sequences(for: right) == [1])
    }

    @Test mutating func `what ends while its client is away is due to it, and its window holds back the rest`() {
        let worker = rig.worker(slots: 64)
        let a = connect(1, window: 2)
        lose(a)
        let b = connect(2, window: 2, token: CoreRig.token(of: a))
        rig.pass { rig in for number in 0..<5 { rig.fetch("h", "\(number)", "http://h\(number)/", by: b) } }
        #expect(rig.jobs.count == 5)
        let running = rig.jobs
        rig.pass { rig in for number in 5..<9 { rig.fetch("h", "\(number)", "http://h\(number)/", by: b) } }
        let more = rig.jobs
        lose(b)
        rig.pass { rig in for job in running + more { rig.done(job, by: worker) } }
        #expect(rig.core.ledger.deliveries.outstanding == 9)
        #expect(!rig.actions.contains { if case .client(.deliverTerminal) = $0 { true } else { false } })
        // Nothing starts for a full window. The rest starts when the client returns and reads.
        let watcher = connect(7)
        rig.pass { $0.fetch("g", "1", "http://g/", by: watcher) }
        #expect(rig.jobs.count == 1)
        let c = connect(3, window: 20, token: CoreRig.token(of: a))
        rig.actions = rig.core.takeActions()
        #expect(sequences(for: c) == [1, 2, 3, 4, 5, 6, 7, 8, 9])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `nothing is started for a full window while its client is away`() {
        let worker = rig.worker(slots: 1)
        let a = connect(1, window: 1)
        rig.pass { rig in for number in 0..<3 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) } }
        let first = rig.jobs[0]
        lose(a)
        rig.pass { $0.done(first, by: worker) }
        #expect(rig.jobs.isEmpty)
        let b = connect(2, window: 3, token: CoreRig.token(of: a))
        rig.pass()
        #expect(rig.jobs.count == 1)
        rig.pass { $0.send(.acknowledge(1), by: b) }
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `what is withdrawn after its number was told leaves the number to nobody`() {
        let worker = rig.worker(slots: 64)
        let a = connect(1, window: 3)
        let handlers = ["h", "h", "h", "g", "h"]
        rig.pass { rig in
            for (number, handler) in handlers.enumerated() {
                rig.fetch(handler, "\(number)", "http://\(number)/", by: a)
            }
        }
        let jobs = rig.jobs.sorted { $0.url < $1.url }
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(sequences(for: a) == [1, 2, 3])
        lose(a)
        // 1, 2 and 3 have numbers. Only 1 is sent again; 2 and 3 wait.
        let b = connect(2, window: 1, token: CoreRig.token(of: a))
        rig.pass { $0.remove("h", "1", by: b) }
        #expect(rig.core.ledger.deliveries.lost == 1)
        rig.pass { $0.send(.acknowledge(1), by: b) }
        #expect(rig.terminals(for: b) == ["h 2 200"])
        #expect(sequences(for: b) == [3])
        #expect(rig.core.audit() == [])
        // A withdrawn terminal without a number leaves no gap.
        rig.pass { $0.remove("g", by: b) }
        rig.pass { $0.send(.acknowledge(3), by: b) }
        #expect(sequences(for: b) == [4])
        rig.pass { $0.send(.acknowledge(4), by: b) }
        #expect(rig.core.ledger.deliveries.outstanding == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an acknowledgement of what an earlier connection had needs no second sending`() {
        let a = connect(1, window: 4)
        answer(4, by: a)
        lose(a)
        let b = connect(2, window: 1, token: CoreRig.token(of: a))
        rig.pass { $0.send(.acknowledge(4), by: b) }
        #expect(rig.core.ledger.deliveries.acknowledged == 4)
        #expect(error(to: b) == nil)
        rig.pass { $0.send(.acknowledge(5), by: b) }
        #expect(error(to: b) == "bad-message")
        answer(1, by: b)
        #expect(sequences(for: b) == [5])
    }

    @Test mutating func `BYE removes at once, whatever the lease`() {
        let a = connect(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        rig.pass { $0.send(.bye, by: a) }
        #expect(rig.core.ledger.requests.removed == 1)
        lose(a)
        #expect(rig.core.records.clients.count == 0)
    }

    @Test mutating func `of too many that are away the one that went first is removed`() {
        var limits = CoreLimits()
        limits.maximumDisconnectedSessions = 2
        rig = CoreRig(limits: limits)
        let clients = (1...3).map { connect($0) }
        for client in clients { rig.pass { $0.fetch("h\(client.rawValue)", "1", "http://h/", by: client) } }
        for client in clients { lose(client) }
        #expect(rig.core.ledger.requests.removed == 1)
        #expect(rig.core.records.handlers.handle(of: HandlerID("h1")!) == nil)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `who goes hears as due of the removal of one that went before`() {
        var limits = CoreLimits()
        limits.maximumDisconnectedSessions = 1
        rig = CoreRig(limits: limits)
        let (first, second) = (connect(1), connect(2))
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: second) }
        rig.pass { $0.fetch("h", "1", "http://h/", by: first) }
        lose(first)
        lose(second)
        #expect(rig.core.ledger.deliveries.outstanding == 1)
        #expect(!rig.actions.contains { if case .client(.deliverTerminal) = $0 { true } else { false } })
    }

    @Test mutating func `who is owed too much while away is removed`() {
        var limits = CoreLimits()
        limits.maximumDueTerminalsPerClient = 3
        rig = CoreRig(limits: limits)
        let a = connect(1)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: a) }
        lose(a)
        let b = connect(2)
        answer(4, by: b)
        // In the pass after the one that exceeded the bound.
        rig.wait(milliseconds: 1)
        #expect(rig.core.ledger.deliveries.lost == 4)
        #expect(rig.core.records.clients.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `who is owed too much while away is not removed in the same moment, whatever came last`() {
        var limits = CoreLimits()
        limits.maximumDueTerminalsPerClient = 3
        rig = CoreRig(limits: limits)
        let worker = rig.worker()
        let a = connect(1)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: a) }
        lose(a)
        let b = connect(2, lease: 0)
        rig.pass { $0.fetch("h", "1", "http://slow/1", by: b) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "retry-after: 601") }
        rig.send(.acknowledge(1), by: b)
        // The assignment refuses them at a later time.
        for number in 2...4 { rig.fetch("h", "\(number)", "http://slow/\(number)", by: b) }
        rig.now = rig.now.advanced(byMilliseconds: 5)
        rig.core.dispatch(now: rig.now)
        #expect(rig.core.ledger.requests.failed["origin-cooling"] == 4)
        rig.core.timePassed(now: rig.now)
        #expect(rig.core.ledger.deliveries.lost == 0)
        rig.wait(milliseconds: 1)
        #expect(rig.core.ledger.deliveries.lost == 4)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `whatever event may end requests tells the time from which an end is counted`() {
        let worker = rig.worker()
        let none = FlightName(reference: GenerationalHandle(record: 9, generation: 9))
        let events: [(inout BrokerCore, MonotonicTime) -> Void] = [
            { core, now in core.dispatch(now: now) },
            { core, now in
                core.malformedWorkerMessageReceived(WireError(.unknownVerb, "no such verb"), from: worker, now: now)
            },
            { core, now in core.cacheLookupCompleted(none, [], now: now) },
            { core, now in core.cachedBodyRead(none, .missing, now: now) },
        ]
        for event in events {
            rig.now = rig.now.advanced(byMilliseconds: 1)
            event(&rig.core, rig.now)
            #expect(rig.core.records.latestEventTime == rig.now)
        }
    }

    @Test mutating func `who was closed for reading too slowly does not come back to its session`() {
        var limits = CoreLimits()
        limits.maximumDueTerminalsPerClient = 3
        rig = CoreRig(limits: limits)
        let a = connect(1, window: 1)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: a) }
        let b = connect(2)
        answer(4, by: b)
        #expect(
            rig.actions.contains(.client(.close(a, reason: "too-slow"))) || rig.core.records.clients[0].isCloseRequested
        )
        lose(a)
        _ = rig.core.takeActions()
        let c = connect(3, token: CoreRig.token(of: a))
        rig.actions = rig.core.takeActions()
        #expect(welcome(of: c) != nil && welcome(of: c)?.lastReceivedNumber == nil)
    }

    @Test mutating func `a watcher is not closed for a removal that it can read as it comes`() {
        var limits = CoreLimits()
        limits.maximumDueTerminalsPerClient = 50
        limits.maximumRequestRemovalsPerPass = 5
        rig = CoreRig(limits: limits)
        let watcher = connect(1, window: 10)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: watcher) }
        let a = connect(2)
        rig.pass { rig in for number in 0..<200 { rig.fetch("h", "\(number)", "http://h\(number)/", by: a) } }
        var lastReceived = 0
        rig.pass { $0.remove("h", by: a) }
        repeat {
            lastReceived += rig.terminals(for: watcher).count
            #expect(!rig.actions.contains { if case .client(.close) = $0 { true } else { false } })
            let upTo = UInt64(lastReceived)
            rig.pass { $0.send(.acknowledge(upTo), by: watcher) }
        } while rig.core.hasPendingRemovals || !rig.terminals(for: watcher).isEmpty
        #expect(lastReceived == 200)
    }

    @Test mutating func `a reader that takes nothing of very much is closed after a time, one that reads is not`() {
        var limits = CoreLimits()
        limits.maximumStalledBodyBytesPerClient = 9
        limits.maximumStallMilliseconds = 1_000
        rig = CoreRig(limits: limits)
        let (reader, stopped, small) = (connect(1), connect(2), connect(3))
        answer(2, under: "small", by: small)
        answer(4, under: "read", by: reader)
        answer(4, under: "unread", by: stopped)
        rig.wait(milliseconds: 500)
        rig.pass { $0.send(.acknowledge(1), by: reader) }
        rig.wait(milliseconds: 499)
        #expect(rig.actions.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.actions == [.client(.close(stopped, reason: "too-slow"))])
        // From here on the other client does not acknowledge either.
        rig.wait(milliseconds: 999)
        #expect(rig.actions.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(rig.actions == [.client(.close(reader, reason: "too-slow"))])
        rig.wait(milliseconds: 100_000)
        #expect(!rig.actions.contains(.client(.close(small, reason: "too-slow"))))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a connection without HELLO is closed after 10 s, and one that said it is not`() {
        let silent = ClientID(rawValue: 1)
        rig.connect(silent)
        rig.send(.query(.ping), by: silent)
        rig.send(.query(.ping), by: silent)
        let a = connect(2)
        rig.wait(milliseconds: 9_999)
        #expect(!rig.actions.contains { if case .client(.close) = $0 { true } else { false } })
        rig.wait(milliseconds: 1)
        #expect(rig.actions == [.client(.close(silent, reason: "silent"))])
        rig.pass { $0.send(.bye, by: a) }
        rig.wait(milliseconds: 10_000)
        #expect(rig.actions == [.client(.close(a, reason: "silent"))])
    }

    @Test mutating func `10,000 that come and go leave nothing`() {
        for number in 1...10_000 as ClosedRange<UInt64> {
            let client = connect(number, lease: number % 2 == 0 ? 1_000 : 0)
            rig.pass { $0.core.clientLost(client, now: $0.now) }
        }
        #expect(rig.core.records.clients.count == 256)
        rig.wait(milliseconds: 1_000)
        for _ in 0..<10 where rig.core.records.clients.count > 0 { rig.pass() }
        #expect(rig.core.records.clients.count == 0)
        #expect(rig.core.records.clients.resumableCount == 0 && rig.core.records.clients.awaySessions.isEmpty)
        rig.wait(milliseconds: 10_000)
        for _ in 0..<100 where rig.core.timerCount > 0 { rig.pass() }
        #expect(rig.core.timerCount == 0)
    }

    @Test mutating func `what a full socket held back starts when that socket is gone and the session is kept`() {
        let a = connect(1)
        answer(1, by: a)
        rig.pass { rig in
            rig.core.socketRefusedTerminal(1, by: a)
            rig.fetch("h", "later", "http://later/", by: a)
        }
        #expect(rig.jobs.isEmpty)
        lose(a)
        #expect(rig.jobs.map(\.url) == ["http://later/"])
    }
}
