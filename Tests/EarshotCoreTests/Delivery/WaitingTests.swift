import EarshotWire
import Testing

@testable import EarshotCore

/// Spilled terminals: those beyond a full window are in the shell's file, and are delivered in order like the others.
struct WaitingTests {
    /// A core with a fake file of the shell.
    private struct Bed {
        var rig: CoreRig
        var file: [WaitingID: (terminal: Terminal, body: BodyID?)] = [:]
        /// Deliveries of the last pass, as `client: sequence handler request outcome`, with `read` for spilled
        /// terminals.
        var told: [String] = []
        /// Number of spilled terminals.
        var writes = 0
        /// For each spilled terminal of the last pass, whether its body is pulled.
        var pulled: [Bool] = []

        init(_ change: (inout CoreLimits) -> Void = { $0.waitingTerminalBytes = 0 }) {
            var limits = CoreLimits()
            change(&limits)
            rig = CoreRig(limits: limits)
        }

        mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
            rig.pass(body)
            told = []
            pulled = []
            for action in rig.actions {
                switch action {
                case .spool(.keepWaiting(let id, let terminal, let body, _)):
                    #expect(file.updateValue((terminal, body), forKey: id) == nil, "a terminal is written over")
                    writes += 1
                case .spool(.forgetWaiting(let id)): #expect(file.removeValue(forKey: id) != nil, "nothing waits there")
                case .client(.deliver(let client, let terminal, _)): tell(client, terminal.sequence, terminal)
                case .client(.deliverWaiting(let client, let sequence, let id, let isPulled)):
                    pulled.append(isPulled)
                    guard let kept = file[id] else {
                        Issue.record("what is told waits no more")
                        continue
                    }
                    tell(client, sequence, kept.terminal, "read ")
                default: break
                }
            }
            for fault in rig.core.audit() { Issue.record("\(fault)") }
        }

        private mutating func tell(
            _ client: ClientID, _ sequence: UInt64, _ terminal: Terminal, _ how: String = ""
        ) {
            let end =
                switch terminal.outcome {
                case .result(let status, _): String(status)
                case .failed(let failure): failure.code
                }
            told.append(
                "\(client.rawValue): \(how)\(sequence) \(terminal.handler) \(terminal.request) \(end)")
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
            pass { $0.say(.acknowledge(sequence), by: client) }
        }
    }

    /// A stopped client with a window of 1 that has received `first` of `h`, and a client that submits requests.
    private static func beside(_ bed: inout Bed) -> (worker: WorkerID, asker: ClientID, stopped: ClientID) {
        let worker = bed.rig.worker()
        let (asker, stopped) = (bed.rig.client(1), bed.rig.client(2, window: 1))
        bed.pass { $0.say(.subscribe(HandlerPattern("h")!), by: stopped) }
        bed.answer(["first"], by: asker, worker: worker)
        return (worker, asker, stopped)
    }

    @Test func `of what waits in the file nothing else is kept, and all of it is told in order`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.answer(["a", "b", "c"], by: asker, worker: worker)
        #expect(bed.file.count == 3)
        bed.acknowledge(4, by: asker)
        #expect(bed.rig.core.interests.count == 1 && bed.rig.core.outcomes.count == 1, "the one in its window")
        #expect(bed.rig.releasedBodies == 3)
        #expect(bed.rig.core.ledger.deliveries.outstanding == 4)
        for (sequence, name) in [(2, "a"), (3, "b"), (4, "c")] as [(UInt64, String)] {
            bed.acknowledge(sequence - 1, by: stopped)
            #expect(bed.told == ["2: read \(sequence) h \(name) 200"])
        }
        bed.acknowledge(4, by: stopped)
        #expect(bed.file.isEmpty && bed.rig.core.isIdle)
        #expect(bed.rig.core.ledger.deliveries.acknowledged == 8)
    }

    @Test func `what waits in memory is never more than the bound if all are as heavy as the heaviest`() {
        var bed = Bed { $0.waitingTerminalBytes = 4_000 }
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.answer((1...4).map(String.init), by: asker, worker: worker)
        #expect(bed.writes == 0)
        bed.pass { $0.fetch("h", "heavy", "http://heavy/", by: asker) }
        let job = bed.rig.jobs[0]
        bed.pass { $0.done(job, by: worker, length: 3_000) }
        #expect(bed.writes == 1, "five of its size are too much")
        bed.answer(["6", "7"], by: asker, worker: worker)
        #expect(bed.writes == 2, "one more of the first four's size is not")
        for sequence in 1...8 as ClosedRange<UInt64> { bed.acknowledge(sequence, by: stopped) }
        bed.answer(["8", "9"], by: asker, worker: worker)
        #expect(bed.writes == 2, "what was heavy is gone")
        bed.pass { $0.fetch("h", "light", "http://light/", by: asker) }
        let light = bed.rig.jobs[0]
        bed.pass { $0.done(light, by: worker, length: 800) }
        #expect(bed.writes == 2, "two of its size are not too much")
        bed.answer(["10"], by: asker, worker: worker)
        #expect(bed.writes == 3, "but three are, though this one is light")
        for sequence in 9...12 as ClosedRange<UInt64> { bed.acknowledge(sequence, by: stopped) }
        bed.acknowledge(12, by: asker)
        #expect(bed.rig.core.isIdle)
    }

    @Test(arguments: [false, true])
    func `a terminal from the file tells whether its client pulls the body`(isPulled: Bool) {
        var bed = Bed()
        let worker = bed.rig.worker()
        let asker = bed.rig.client(1, window: 1) { $0.isPulling = isPulled }
        let other = bed.rig.client(2) { $0.isPulling = !isPulled }
        bed.pass { $0.say(.subscribe(HandlerPattern("h")!), by: asker) }
        bed.answer(["a", "b"], by: other, worker: worker)
        #expect(bed.writes == 1 && bed.pulled == [])
        bed.acknowledge(1, by: asker)
        #expect(bed.told == ["1: read 2 h b 200"] && bed.pulled == [isPulled])
    }

    @Test func `two who read nothing share what is in the file, and the last of them frees it`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        let other = bed.rig.client(3, window: 1)
        bed.pass { $0.say(.subscribe(HandlerPattern("h")!), by: other) }
        bed.answer(["a", "b"], by: asker, worker: worker)
        bed.acknowledge(3, by: asker)
        #expect(bed.writes == 2, "a is in the other's window")
        bed.acknowledge(1, by: stopped)
        bed.acknowledge(2, by: stopped)
        #expect(bed.told == ["2: read 3 h b 200"])
        bed.acknowledge(3, by: stopped)
        #expect(bed.file.count == 1)
        bed.acknowledge(1, by: other)
        #expect(bed.told == ["3: read 2 h b 200"])
        bed.pass { $0.core.clientLost(other, now: $0.now) }
        #expect(bed.file.isEmpty && bed.rig.core.isIdle)
        #expect(bed.rig.core.ledger.deliveries.lost == 1)
    }

    @Test func `nothing of what a client removed follows, though it waited in the file`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.pass { $0.say(.subscribe(HandlerPattern("k")!), by: stopped) }
        bed.answer(["a"], by: asker, worker: worker)
        bed.answer(["b"], "k", by: asker, worker: worker)
        bed.acknowledge(3, by: asker)
        bed.pass { $0.remove("h", by: stopped) }
        #expect(bed.rig.core.ledger.deliveries.lost == 1 && bed.file.count == 1)
        bed.acknowledge(1, by: stopped)
        #expect(bed.told == ["2: read 2 k b 200"])
        bed.acknowledge(2, by: stopped)
        #expect(bed.rig.core.isIdle)
    }

    /// IDs with a common prefix, short ones, and ones too long for the record.
    @Test(arguments: [
        ["1", "11"], ["0123456789abcdef", "0123456789abcde"],
        [1, 2].map { String(repeating: "x", count: 63) + "\($0)" },
    ])
    func `a cancelled request does not follow, and no other is taken for it`(requests: [String]) {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.answer(requests, by: asker, worker: worker) { $0.url = "http://a/\($0.request.description.count)" }
        bed.acknowledge(3, by: asker)
        #expect(bed.file.count == 2)
        bed.pass { $0.remove("k", requests[1], by: stopped) }
        #expect(bed.file.count == 2)
        bed.pass { $0.remove("h", requests[0], by: stopped) }
        #expect(bed.file.count == 1)
        bed.acknowledge(1, by: stopped)
        #expect(bed.told == ["2: read 2 h \(requests[1]) 200"])
    }

    @Test func `an owner's ID is taken as long as its terminal waits in the file, for whoever asks again`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let (owner, other) = (bed.rig.client(1, window: 1), bed.rig.client(2))
        bed.pass { rig in
            for n in 1...2 { rig.fetch("h", "\(n)", "http://\(n)/", by: owner) }
        }
        for job in bed.rig.jobs { bed.pass { $0.done(job, by: worker) } }
        #expect(bed.file.count == 1 && bed.rig.core.outcomes.count == 1)
        bed.pass { $0.fetch("h", "2", "http://other/", by: other) }
        #expect(bed.rig.replies(to: other).count == 1, "id-in-use")
        bed.pass { $0.fetch("h", "2", "http://2/", by: other) }
        #expect(bed.told == ["2: read 1 h 2 200"])
        #expect(bed.rig.jobs.isEmpty)
        bed.acknowledge(1, by: other)
        bed.pass { $0.fetch("h", "2", "http://other/", by: other) }
        #expect(bed.rig.replies(to: other).count == 1, "only the owner frees it")
        bed.acknowledge(1, by: owner)
        bed.acknowledge(2, by: owner)
        #expect(bed.rig.core.isIdle && bed.file.isEmpty)
    }

    @Test func `the first who acknowledges what belongs to its handler frees the ID`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.acknowledge(1, by: asker)
        bed.answer(["a"], by: asker, worker: worker) { $0.options.subscribes = false }
        bed.acknowledge(2, by: asker)
        #expect(bed.rig.core.interests.count == 1, "the one in its window")
        bed.answer(["a"], by: asker, worker: worker) { $0.options.subscribes = false }
        #expect(bed.told == ["1: 3 h a 200"])
        bed.acknowledge(1, by: stopped)
        bed.acknowledge(2, by: stopped)
        #expect(bed.told == ["2: read 3 h a 200"])
    }

    @Test func `a removal by another leaves what is due, and frees the record`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let (owner, other) = (bed.rig.client(1, window: 1), bed.rig.client(2))
        bed.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "http://\(n)/", by: owner) } }
        for job in bed.rig.jobs { bed.pass { $0.done(job, by: worker) } }
        bed.pass { $0.remove("h", by: other) }
        #expect(bed.rig.core.interests.count == 1)
        bed.acknowledge(1, by: owner)
        #expect(bed.told == ["1: read 2 h 2 200"])
        bed.acknowledge(2, by: owner)
        #expect(bed.rig.core.isIdle)
    }

    @Test func `who takes a session over is told what was read before again, under its number`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let asker = bed.rig.client(1)
        func connect(_ number: UInt64, token: SessionToken? = nil) -> ClientID {
            let id = ClientID(rawValue: number)
            var hello = Hello(client: "c", window: 2)
            hello.leaseMilliseconds = 1_000
            hello.token = token
            bed.pass { rig in
                rig.connect(id)
                rig.say(.hello(hello), by: id)
            }
            return id
        }
        let first = connect(2)
        bed.pass { $0.say(.subscribe(HandlerPattern("h")!), by: first) }
        bed.answer(["a", "b", "c", "d"], by: asker, worker: worker)
        bed.acknowledge(4, by: asker)
        bed.acknowledge(1, by: first)
        #expect(bed.told == ["2: read 3 h c 200"])
        bed.pass { $0.core.clientLost(first, now: $0.now) }
        bed.answer(["e"], by: asker, worker: worker)
        let second = connect(3, token: CoreRig.token(of: first))
        #expect(bed.told == ["3: 2 h b 200", "3: read 3 h c 200"])
        bed.acknowledge(3, by: second)
        #expect(bed.told == ["3: read 4 h d 200", "3: read 5 h e 200"])
        bed.acknowledge(5, by: second)
        bed.acknowledge(5, by: asker)
        #expect(bed.rig.core.isIdle && bed.file.isEmpty)
    }

    @Test func `of what was removed only the ID waits, unless it is long or has a tag, and all are told`() {
        var bed = Bed()
        let (_, asker, stopped) = Self.beside(&bed)
        let long = String(repeating: "x", count: 17)
        bed.pass { rig in
            for name in ["0123456789abcdef", "a", long] { rig.fetch("h", name, "http://\(name)/", by: asker) }
            rig.fetch("h", "b", "http://b/", by: asker) { $0.options.tag = "t" }
        }
        bed.pass { $0.remove("h", by: asker) }
        #expect(bed.writes == 2 && bed.rig.core.outcomes.waiting.count == 4)
        #expect(bed.rig.core.interests.count == 1, "the one in its window")
        let all = ["2 h 0123456789abcdef", "3 h a", "read 4 h \(long)", "read 5 h b"]
        for (sequence, name) in zip(1...4 as ClosedRange<UInt64>, all) {
            bed.acknowledge(sequence, by: stopped)
            #expect(bed.told == ["2: \(name) removed"])
        }
        bed.acknowledge(5, by: stopped)
        bed.acknowledge(1, by: asker)
        #expect(bed.file.isEmpty && bed.rig.core.outcomes.waiting.count == 0 && bed.rig.core.interests.count == 0)
    }

    @Test func `a terminal that was read and that the socket refused is read again`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.answer(["a"], by: asker, worker: worker)
        bed.acknowledge(1, by: stopped)
        bed.pass { $0.core.deliveryRefused(2, by: stopped) }
        bed.pass { $0.core.clientWritable(stopped) }
        #expect(bed.told == ["2: read 2 h a 200"])
    }

    @Test func `a file that a waiting terminal names is kept until it is acknowledged`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.pass { $0.fetch("h", "a", "http://a/", by: asker) }
        let job = bed.rig.jobs[0]
        bed.pass { rig in
            var completion = Completion(attempt: job.attempt, status: 200)
            completion.file = "content"
            completion.length = 100_000
            rig.core.workerSaid(.done(completion), body: nil, by: worker, now: rig.now)
        }
        bed.acknowledge(2, by: asker)
        #expect(!bed.rig.actions.contains(.spool(.releaseFile("content"))))
        #expect(bed.file.values.first?.terminal.response?.file == "/spool/content")
        bed.acknowledge(1, by: stopped)
        bed.acknowledge(2, by: stopped)
        #expect(bed.rig.actions.contains(.spool(.releaseFile("content"))))
        #expect(bed.rig.core.isIdle)
    }

    @Test func `while nothing can be written terminals wait in memory, and later no more`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.answer(["a"], by: asker, worker: worker)
        bed.pass { $0.core.waitingFailed(now: $0.now) }
        bed.answer(["b"], by: asker, worker: worker)
        #expect(bed.writes == 1)
        bed.rig.now = bed.rig.now.advanced(byMilliseconds: bed.rig.core.limits.spoolRetryMilliseconds)
        bed.pass()
        bed.answer(["c"], by: asker, worker: worker)
        #expect(bed.writes == 2)
        bed.acknowledge(1, by: stopped)
        #expect(bed.told == ["2: read 2 h a 200"])
        bed.acknowledge(2, by: stopped)
        #expect(bed.told == ["2: 3 h b 200"])
        bed.acknowledge(3, by: stopped)
        #expect(bed.told == ["2: read 4 h c 200"])
    }

    @Test func `a client whose terminal cannot be read back is closed, and nobody else`() {
        var bed = Bed()
        let (worker, asker, stopped) = Self.beside(&bed)
        bed.answer(["a"], by: asker, worker: worker)
        bed.acknowledge(1, by: stopped)
        bed.pass { $0.core.waitingLost(by: stopped) }
        #expect(bed.rig.actions == [.client(.close(stopped, reason: "too-slow"))])
        bed.pass { $0.core.clientLost(stopped, now: $0.now) }
        bed.acknowledge(2, by: asker)
        #expect(bed.file.isEmpty && bed.rig.core.isIdle)
    }

    @Test func `a durable result waits in the file while its row is on the disk, and rests there when nobody has it`() {
        var bed = Bed()
        bed.rig.core.facilities.isKeeping = true
        var disk = FakeDisk()
        func settle() {
            disk.take(bed.rig.actions)
            for _ in 0..<4 {
                bed.pass { disk.work(&$0.core, now: $0.now) }
                disk.take(bed.rig.actions)
            }
        }
        let worker = bed.rig.worker()
        let client = bed.rig.client(1, window: 1)
        bed.pass { rig in
            for n in 1...2 { rig.fetch("h", "\(n)", "http://\(n)/", by: client) { $0.options.isDurable = true } }
        }
        settle()
        // Jobs that one of the passes above assigned.
        for flight in 1...2 as ClosedRange<UInt64> {
            let job = Job(
                attempt: AttemptID(broker: bed.rig.core.instance, flight: flight, attempt: 1), url: "http://\(flight)/")
            bed.pass { $0.done(job, by: worker) }
            settle()
        }
        #expect(bed.file.count == 1)
        #expect(bed.rig.core.outcomes.count == 1, "the one in its window")
        #expect(bed.rig.core.ledger.requests.answered == 2)
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(bed.file.isEmpty)
        #expect(bed.rig.core.ledger.requests.answered == 0 && bed.rig.core.ledger.requests.pending == 2)
        let next = bed.rig.client(2)
        bed.pass { $0.say(.subscribe(HandlerPattern("h")!), by: next) }
        settle()
        bed.acknowledge(2, by: next)
        disk.take(bed.rig.actions)
        #expect(bed.rig.core.isIdle)
        #expect(bed.rig.core.ledger.requests.answered == 2)
    }
}
