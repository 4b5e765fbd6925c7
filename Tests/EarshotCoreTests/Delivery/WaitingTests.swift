import EarshotWire
import Testing

@testable import EarshotCore

/// Terminals beyond a full window: they are delivered in order like the others, failures without a response in little
/// memory, and a client that reads nothing is disconnected at a bound.
struct WaitingTests {
    /// A core with the deliveries of its last pass.
    private struct Bed {
        var rig: CoreRig
        /// Deliveries of the last pass, as `client: sequence handler request outcome`.
        var reported: [String] = []
        /// The terminals of these deliveries.
        var terminals: [Terminal] = []

        init(_ change: (inout CoreLimits) -> Void = { _ in }) {
            var limits = CoreLimits()
            change(&limits)
            rig = CoreRig(limits: limits)
        }

        mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
            rig.pass(body)
            reported = []
            terminals = []
            for case .client(.deliverTerminal(let client, let terminal, _)) in rig.actions {
                let end =
                    switch terminal.outcome {
                    case .result(let status, _): String(status)
                    case .failed(let failure): failure.code
                    }
                reported.append(
                    "\(client.rawValue): \(terminal.sequence) \(terminal.handler) \(terminal.request) \(end)")
                terminals.append(terminal)
            }
            for fault in rig.core.audit() { Issue.record("\(fault)") }
        }

        /// Submits and answers these requests one after the other.
        mutating func answer(
            _ requests: [String], _ handler: String = "h", by client: ClientID, worker: WorkerID,
            _ change: (inout Fetch) -> Void = { _ in }
        ) {
            for request in requests {
                pass { $0.fetch(handler, request, "http://\(request)/", by: client, change) }
                for job in rig.jobs { pass { $0.done(job, by: worker) } }
            }
        }

        mutating func acknowledge(_ sequence: UInt64, by client: ClientID) {
            pass { $0.send(.acknowledge(sequence), by: client) }
        }

        var closed: [ClientID] {
            rig.actions.compactMap { if case .client(.close(let client, "too-slow")) = $0 { client } else { nil } }
        }
    }

    /// A stopped client with a window of 1 that has received `first` of `h`, and a client that submits requests.
    private static func beside(_ bed: inout Bed) -> (worker: WorkerID, requester: ClientID, stopped: ClientID) {
        let worker = bed.rig.worker()
        let (requester, stopped) = (bed.rig.client(1), bed.rig.client(2, window: 1))
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: stopped) }
        bed.answer(["first"], by: requester, worker: worker)
        return (worker, requester, stopped)
    }

    // MARK: Order

    @Test func `terminals beyond the window are delivered in order, and the last acknowledgement frees them`() {
        var bed = Bed()
        let (worker, requester, stopped) = Self.beside(&bed)
        bed.answer(["a", "b", "c"], by: requester, worker: worker)
        bed.acknowledge(4, by: requester)
        #expect(bed.rig.core.records.requests.count == 4 && bed.rig.core.records.outcomes.count == 4)
        #expect(
            bed.rig.core.records.clients[1].deliveries.countedOutcomes.count == 3,
            "the one in its window does not count")
        for (sequence, name) in [(2, "a"), (3, "b"), (4, "c")] as [(UInt64, String)] {
            bed.acknowledge(sequence - 1, by: stopped)
            #expect(bed.reported == ["2: \(sequence) h \(name) 200"])
        }
        bed.acknowledge(4, by: stopped)
        #expect(bed.rig.core.isIdle && bed.rig.core.ledger.deliveries.acknowledged == 8)
    }

    @Test func `a removal by another leaves results that are due`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let (owner, other) = (bed.rig.client(1, window: 1), bed.rig.client(2))
        bed.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "http://\(n)/", by: owner) } }
        for job in bed.rig.jobs { bed.pass { $0.done(job, by: worker) } }
        bed.pass { $0.remove("h", by: other) }
        bed.acknowledge(1, by: owner)
        #expect(bed.reported == ["1: 2 h 2 200"])
        bed.acknowledge(2, by: owner)
        #expect(bed.rig.core.isIdle)
    }

    @Test func `a resumed session gets what it has not acknowledged again, under its number`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let requester = bed.rig.client(1)
        func connect(_ number: UInt64, token: SessionToken? = nil) -> ClientID {
            let id = ClientID(rawValue: number)
            var hello = Hello(window: 2)
            hello.leaseMilliseconds = 1_000
            hello.token = token
            bed.pass { rig in
                rig.connect(id)
                rig.send(.hello(hello), by: id)
            }
            return id
        }
        let first = connect(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: first) }
        bed.answer(["a", "b", "c"], by: requester, worker: worker)
        bed.pass { $0.fetch("h", "d", "nonsense", by: requester) }
        bed.acknowledge(4, by: requester)
        bed.acknowledge(1, by: first)
        #expect(bed.reported == ["2: 3 h c 200"])
        bed.pass { $0.core.clientLost(first, now: $0.now) }
        bed.pass { $0.fetch("h", "e", "nonsense", by: requester) }
        let second = connect(3, token: CoreRig.token(of: first))
        #expect(bed.reported == ["3: 2 h b 200", "3: 3 h c 200"])
        bed.acknowledge(3, by: second)
        #expect(bed.reported == ["3: 4 h d malformed-url", "3: 5 h e malformed-url"])
        bed.acknowledge(5, by: second)
        bed.acknowledge(5, by: requester)
        #expect(bed.rig.core.isIdle)
    }

    @Test func `a terminal that the socket refused is sent again`() {
        var bed = Bed()
        let (worker, requester, stopped) = Self.beside(&bed)
        bed.answer(["a"], by: requester, worker: worker)
        bed.acknowledge(1, by: stopped)
        bed.pass { $0.core.socketRefusedTerminal(2, by: stopped) }
        bed.pass { $0.core.clientSocketWritable(stopped) }
        #expect(bed.reported == ["2: 2 h a 200"])
    }

    // MARK: Owed failures

    @Test func `an owed failure has the text, URL and attempts of its request, whose record is freed`() {
        var bed = Bed()
        let (worker, requester, stopped) = Self.beside(&bed)
        let long = String(repeating: "x", count: 64)
        bed.pass { rig in
            rig.fetch("h", long, "http://a/", by: requester)
            rig.fetch("h", "b", "http://b/", by: requester) { $0.options.retries = 0 }
            rig.fetch("h", "c", "nonsense", by: requester)
        }
        let jobs = bed.rig.jobs
        bed.pass { $0.failed(jobs[0], "unknown-host", by: worker) }
        bed.pass { $0.failed(jobs[1], "reset", by: worker) }
        #expect(bed.rig.core.records.requests.count == 4)
        bed.acknowledge(4, by: requester)
        #expect(bed.rig.core.records.requests.count == 1, "the one in its window")
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 3)
        var failures: [Terminal] = []
        for sequence in 1...3 as ClosedRange<UInt64> {
            bed.acknowledge(sequence, by: stopped)
            failures += bed.terminals
        }
        let expected: [(String, String, String?, Int)] = [
            ("c", "malformed-url", nil, 0), (long, "unknown-host", "http://a/", 1), ("b", "reset", "http://b/", 1),
        ]
        #expect(failures.count == 3)
        for (terminal, (request, code, url, attempts)) in zip(failures, expected) {
            guard case .failed(let failure) = terminal.outcome else {
                Issue.record("\(terminal) is no failure")
                continue
            }
            #expect(terminal.request.description == request)
            #expect(failure.code == code && failure.url == url && failure.attempts == attempts)
            #expect(failure.detail?.isEmpty == false)
        }
        bed.acknowledge(4, by: stopped)
        #expect(bed.rig.core.isIdle)
    }

    @Test func `two clients share an owed failure, and the last of them frees it`() {
        var bed = Bed()
        let (worker, requester, stopped) = Self.beside(&bed)
        let other = bed.rig.client(3, window: 1)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        bed.answer(["a"], by: requester, worker: worker)
        bed.pass { $0.fetch("h", "b", "nonsense", by: requester) }
        bed.acknowledge(3, by: requester)
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 1)
        bed.acknowledge(1, by: stopped)
        bed.acknowledge(2, by: stopped)
        #expect(bed.reported == ["2: 3 h b malformed-url"])
        bed.acknowledge(3, by: stopped)
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 1)
        bed.acknowledge(1, by: other)
        #expect(bed.reported == ["3: 2 h b malformed-url"])
        bed.pass { $0.core.clientLost(other, now: $0.now) }
        #expect(bed.rig.core.isIdle && bed.rig.core.ledger.deliveries.lost == 1)
    }

    @Test func `nothing of a removed handler follows, and the rest does`() {
        var bed = Bed()
        let (worker, requester, stopped) = Self.beside(&bed)
        bed.pass { $0.send(.subscribe(HandlerPattern("k")!), by: stopped) }
        bed.answer(["a"], by: requester, worker: worker)
        bed.pass { $0.fetch("h", "b", "nonsense", by: requester) }
        bed.pass { $0.fetch("k", "c", "nonsense", by: requester) }
        bed.acknowledge(4, by: requester)
        bed.pass { $0.remove("h", by: stopped) }
        #expect(bed.rig.core.ledger.deliveries.lost == 2)
        bed.acknowledge(1, by: stopped)
        #expect(bed.reported == ["2: 2 k c malformed-url"])
        bed.acknowledge(2, by: stopped)
        #expect(bed.rig.core.isIdle)
    }

    /// IDs with a common prefix, short ones, and long ones.
    @Test(arguments: [
        ["1", "11"], ["0123456789abcdef", "0123456789abcde"],
        [1, 2].map { String(repeating: "x", count: 63) + "\($0)" },
    ])
    func `a cancelled request does not follow, and no other is taken for it`(requests: [String]) {
        var bed = Bed()
        let (_, requester, stopped) = Self.beside(&bed)
        bed.pass { rig in for request in requests { rig.fetch("h", request, "nonsense", by: requester) } }
        bed.acknowledge(3, by: requester)
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 2)
        bed.pass { $0.remove("k", requests[1], by: stopped) }
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 2)
        bed.pass { $0.remove("h", requests[0], by: stopped) }
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 1)
        bed.acknowledge(1, by: stopped)
        #expect(bed.reported == ["2: 2 h \(requests[1]) malformed-url"])
    }

    @Test func `an owner's ID is taken while its failure waits, and a repetition gets the failure`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let (owner, other) = (bed.rig.client(1, window: 1), bed.rig.client(2))
        bed.pass { $0.fetch("h", "1", "http://1/", by: owner) }
        let job = bed.rig.jobs[0]
        bed.pass { $0.done(job, by: worker) }
        bed.pass { $0.fetch("h", "2", "nonsense", by: owner) }
        #expect(bed.rig.core.records.outcomes.compactFailures.count == 1)
        bed.pass { $0.fetch("h", "2", "http://other/", by: other) }
        #expect(bed.rig.replies(to: other).count == 1, "id-in-use")
        bed.pass { $0.fetch("h", "2", "nonsense", by: other) }
        #expect(bed.reported == ["2: 1 h 2 malformed-url"])
        bed.acknowledge(1, by: other)
        bed.pass { $0.fetch("h", "2", "http://other/", by: other) }
        #expect(bed.rig.replies(to: other).count == 1, "only the owner frees it")
        bed.acknowledge(1, by: owner)
        bed.acknowledge(2, by: owner)
        #expect(bed.rig.core.isIdle)
    }

    @Test func `the first client that acknowledges a failure of its handler frees the ID`() {
        var bed = Bed()
        let (_, requester, stopped) = Self.beside(&bed)
        bed.acknowledge(1, by: requester)
        bed.pass { $0.fetch("h", "a", "nonsense", by: requester) { $0.options.subscribes = false } }
        bed.acknowledge(2, by: requester)
        #expect(bed.rig.core.records.requests.count == 1, "the one in its window")
        bed.pass { $0.fetch("h", "a", "nonsense", by: requester) { $0.options.subscribes = false } }
        #expect(bed.reported == ["1: 3 h a malformed-url"])
        bed.acknowledge(1, by: stopped)
        bed.acknowledge(2, by: stopped)
        #expect(bed.reported == ["2: 3 h a malformed-url"])
    }

    @Test func `a client is owed the removal of another's requests, which share one outcome and need no record`() {
        var bed = Bed { $0.maximumDueOutcomesPerClient = 1 }
        let (_, requester, stopped) = Self.beside(&bed)
        bed.rig.pass { rig in for n in 0..<500 { rig.fetch("h", "\(n)", "http://h/\(n)", by: requester) } }
        bed.pass { $0.remove("h", by: requester) }
        for _ in 0..<10 { bed.pass() }
        #expect(bed.closed == [] && bed.rig.core.records.outcomes.compactFailures.count == 500)
        #expect(bed.rig.core.records.requests.count == 1, "the one in its window")
        #expect(bed.rig.core.records.outcomes.count == 2)
        for sequence in 1...500 as ClosedRange<UInt64> {
            bed.rig.pass { $0.send(.acknowledge(sequence), by: stopped) }
            #expect(bed.rig.terminals(for: stopped).count == 1)
        }
        bed.acknowledge(501, by: stopped)
        bed.acknowledge(1, by: requester)
        #expect(bed.rig.core.records.outcomes.isEmpty && bed.rig.core.ledger.deliveries.outstanding == 0)
    }

    // MARK: Bounds

    @Test func `one outcome more than the bound ends a client, and results of one flight are one outcome`() {
        var bed = Bed { $0.maximumDueOutcomesPerClient = 3 }
        let (worker, requester, stopped) = Self.beside(&bed)
        bed.pass { rig in for n in 0..<50 { rig.fetch("h", "\(n)", "http://shared/", by: requester) } }
        let job = bed.rig.jobs[0]
        bed.pass { $0.done(job, by: worker) }
        #expect(bed.rig.core.records.clients[1].deliveries.dueTerminalCount == 51)
        bed.answer(["a", "b"], by: requester, worker: worker)
        #expect(bed.closed == [])
        bed.answer(["c"], by: requester, worker: worker)
        #expect(bed.closed == [stopped])
    }

    @Test func `one terminal more than the bound ends a client, though they share an outcome`() {
        var bed = Bed { $0.maximumDueTerminalsPerClient = 10 }
        let (_, requester, stopped) = Self.beside(&bed)
        bed.acknowledge(1, by: requester)
        for n in 2...10 as ClosedRange<UInt64> {
            bed.pass { $0.fetch("h", "\(n)", "nonsense", by: requester) }
            #expect(bed.closed == [])
            bed.acknowledge(n, by: requester)
        }
        bed.pass { $0.fetch("h", "11", "nonsense", by: requester) }
        #expect(bed.closed == [stopped])
    }

    @Test func `deadlines of very many requests end no client, since each needs no outcome of its own`() {
        var bed = Bed { $0.maximumDueOutcomesPerClient = 2 }
        let owner = bed.rig.client(1, window: 1)
        bed.pass { rig in
            for n in 0..<100 {
                rig.fetch("h", "\(n)", "http://h\(n)/", by: owner) { $0.options.deadlineMilliseconds = 5 }
            }
        }
        bed.rig.now = bed.rig.now.advanced(byMilliseconds: 5)
        bed.pass()
        #expect(bed.closed == [] && bed.rig.core.records.clients[0].deliveries.dueTerminalCount == 100)
        var urls: Set<String> = []
        for sequence in 1...100 as ClosedRange<UInt64> {
            for terminal in bed.terminals { urls.insert(terminal.url ?? "") }
            bed.acknowledge(sequence, by: owner)
        }
        #expect(urls.count == 100 && bed.rig.core.isIdle)
    }

    @Test func `URLs of owed failures count towards the bytes in memory`() {
        var bed = Bed { $0.maximumDueHeaderBytesPerClient = 600 }
        let owner = bed.rig.client(1, window: 1)
        func expire(_ request: String) {
            bed.pass {
                $0.fetch("h", request, "http://h/" + String(repeating: "x", count: 190), by: owner) {
                    $0.options.deadlineMilliseconds = 5
                }
            }
            bed.rig.now = bed.rig.now.advanced(byMilliseconds: 5)
            bed.pass()
        }
        for request in ["1", "2", "3", "4"] {
            expire(request)
            #expect(bed.closed == [])
        }
        expire("5")
        #expect(bed.closed == [owner])
    }

    // MARK: Bodies

    @Test func `a file that a waiting terminal names is kept until it is acknowledged`() {
        var bed = Bed()
        let (worker, requester, stopped) = Self.beside(&bed)
        bed.pass { $0.fetch("h", "a", "http://a/", by: requester) }
        let job = bed.rig.jobs[0]
        bed.pass { rig in
            var completion = Completion(attempt: job.attempt, status: 200)
            completion.fileName = "content"
            completion.bodyByteCount = 100_000
            rig.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: rig.now)
        }
        bed.acknowledge(2, by: requester)
        #expect(!bed.rig.actions.contains(.spool(.releaseFile("content"))))
        bed.acknowledge(1, by: stopped)
        #expect(bed.terminals.map { $0.response?.bodyFilePath } == ["/spool/content"])
        bed.acknowledge(2, by: stopped)
        #expect(bed.rig.actions.contains(.spool(.releaseFile("content"))))
        #expect(bed.rig.core.isIdle)
    }

    @Test(arguments: [false, true])
    func `a body that waits in the spool is delivered from there, pulled or not`(isPulled: Bool) {
        var bed = Bed { $0.maximumWaitingBodyBytes = 2 }
        let worker = bed.rig.worker()
        let requester = bed.rig.client(1, window: 1) { $0.pullsBodies = isPulled }
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: requester) }
        bed.answer(["a", "b"], by: other, worker: worker)
        #expect(bed.rig.actions.contains { if case .spool(.spillBody) = $0 { true } else { false } })
        bed.acknowledge(1, by: requester)
        #expect(bed.reported == ["1: 2 h b 200"])
        #expect(bed.terminals.allSatisfy { $0.hasBodyFile && $0.response?.isPulled == isPulled })
    }
}
