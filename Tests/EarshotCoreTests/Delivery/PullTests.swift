import EarshotWire
import Testing

@testable import EarshotCore

/// READ and DATA in the core: bodies of sessions that receive no paths.
struct PullTests {
    /// A core with a client that pulls and a worker.
    private struct Bed {
        var rig: CoreRig
        let client: ClientID
        let worker: WorkerID

        init(window: Int = 256, lease: Int = 0, _ change: (inout CoreLimits) -> Void = { _ in }) {
            var limits = CoreLimits()
            change(&limits)
            rig = CoreRig(limits: limits)
            client = ClientID(rawValue: 1)
            rig.connect(client)
            var hello = Hello(window: window)
            hello.pullsBodies = true
            hello.leaseMilliseconds = lease
            rig.send(.hello(hello), by: client)
            worker = rig.worker(9)
        }

        /// Fetches a body of `length` bytes in a file. Its terminal gets the next number.
        mutating func file(_ request: String, of handler: String = "h", length: Int = 1_000) throws {
            rig.pass { [client] in $0.fetch(handler, request, "http://\(request).example/", by: client) }
            finish(try #require(rig.jobs.first), length: length)
        }

        /// Completes a job with a body in a file.
        mutating func finish(_ job: Job, length: Int = 1_000) {
            rig.pass { [worker] in
                var completion = Completion(attempt: job.attempt, status: 200)
                completion.bodyByteCount = length
                completion.sha256 = String(repeating: "ab", count: 32)
                completion.fileName = completion.sha256
                $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now)
            }
        }

        /// Starts a streaming transfer.
        mutating func stream(_ request: String = "1") throws -> Job {
            rig.pass { [client] in
                $0.fetch("h", request, "http://a.example/", by: client) { $0.options.streams = true }
            }
            return try #require(rig.jobs.first)
        }

        mutating func grow(_ job: Job, to received: Int) {
            let part = BodyPart(fileName: "9-\(job.attempt).part", httpFields: Array("etag: \"a\"".utf8))
            rig.pass { [worker] in
                $0.core.workerMessageReceived(
                    .progress(job.attempt, received: received, total: nil, part: part), body: nil, from: worker,
                    now: $0.now)
            }
        }

        /// Sends READs in one pass.
        ///
        /// - Returns: DATA as `offset+length`, without a length for one without bytes, or as its code.
        mutating func read(_ reads: [BodyRead], _ event: (inout CoreRig) -> Void = { _ in }) -> [String] {
            rig.pass { [client] rig in
                for read in reads { rig.send(.readBody(read), by: client) }
                event(&rig)
            }
            return answers
        }

        mutating func read(_ body: BodyReference, _ offset: Int, _ length: Int = 100) -> [String] {
            read([BodyRead(body, offset: offset, maximumBytes: length)])
        }

        /// Answers to READs in the last pass.
        var answers: [String] {
            rig.actions.compactMap { action in
                switch action {
                case .client(.sendBodyPiece(client, let piece)): "\(piece.dataHead.offset)+\(piece.maximumBytes)"
                case .client(.send(client, .bodyData(let data))): data.errorCode ?? "\(data.offset)"
                case .client(.send(client, .error(let reply))): "ERROR \(reply.code)"
                default: nil
                }
            }
        }

        var pieces: [BodyPiece] {
            rig.actions.compactMap { if case .client(.sendBodyPiece(_, let piece)) = $0 { piece } else { nil } }
        }

        func check() { for fault in rig.core.audit() { Issue.record("\(fault)") } }
    }

    private static let growing = BodyReference.request(HandlerID("h")!, RequestID("1")!)

    @Test func `a terminal is marked and a READ names the file to the shell`() throws {
        var bed = Bed()
        try bed.file("1")
        let terminals = bed.rig.actions.compactMap { action -> Terminal? in
            if case .client(.deliverTerminal(_, let terminal, _)) = action { terminal } else { nil }
        }
        let head = String(decoding: try #require(terminals.first).encoded(), as: UTF8.self)
        #expect(head.contains("\npull: yes\n") && !head.contains("/spool") && !head.contains("file"))
        #expect(bed.read(.terminal(1), 900, 200) == ["900+100"])
        #expect(bed.pieces.first?.file == String(repeating: "ab", count: 32))
        #expect(bed.read(.terminal(1), 1_000) == ["1000"])
        #expect(bed.read(.terminal(1), .max) == [String(Int.max)])
        bed.check()
    }

    @Test func `a body is read under the number of a refused terminal whose request was removed`() throws {
        var bed = Bed()
        let client = bed.client
        try bed.file("1")
        bed.rig.pass { $0.remove("h", "1", by: client) }
        bed.rig.core.socketRefusedTerminal(1, by: client)
        bed.rig.pass { $0.core.clientSocketWritable(client) }
        #expect(bed.rig.terminals(for: client) == [])
        try bed.file("2")
        #expect(bed.rig.terminals(for: client) == ["h 2 200"])
        #expect(bed.read(.terminal(1), 0) == ["0+100"])
        bed.check()
    }

    @Test func `WELCOME names no spool`() throws {
        var rig = CoreRig()
        let client = ClientID(rawValue: 1)
        rig.connect(client)
        var hello = Hello(window: 1)
        hello.pullsBodies = true
        rig.pass { [hello] in $0.send(.hello(hello), by: client) }
        var welcome = Welcome(broker: BrokerInstance(rawValue: 1), window: 1)
        welcome.pullsBodies = true
        #expect(rig.actions.contains(.client(.send(client, .welcome(welcome)))))
    }

    @Test func `a terminal is read from its sending to its ACK`() throws {
        var bed = Bed(window: 1)
        let client = bed.client
        // Both start before the first result fills the window.
        bed.rig.pass { rig in
            for request in ["1", "2"] { rig.fetch("h", request, "http://\(request).example/", by: client) }
        }
        let jobs = bed.rig.jobs
        #expect(jobs.count == 2)
        for job in jobs { bed.finish(job) }
        #expect(bed.read(.terminal(0), 0) == ["unknown-body"])
        #expect(bed.read(.terminal(1), 0) == ["0+100"])
        #expect(bed.read(.terminal(2), 0) == ["unknown-body"], "it waits for the window")
        bed.rig.pass { $0.send(.acknowledge(1), by: client) }
        #expect(bed.read(.terminal(1), 0) == ["unknown-body"])
        #expect(bed.read(.terminal(2), 0) == ["0+100"])
        #expect(bed.read(.terminal(.max), 0) == ["unknown-body"])
        bed.check()
    }

    @Test func `a READ before an ACK or a removal in the same pass is void`() throws {
        var bed = Bed()
        try bed.file("1")
        try bed.file("2")
        let client = bed.client
        #expect(
            bed.read([BodyRead(.terminal(1), offset: 0, maximumBytes: 1)]) { $0.send(.acknowledge(1), by: client) }
                == [])
        #expect(bed.read([BodyRead(.terminal(2), offset: 0, maximumBytes: 1)]) { $0.remove("h", by: client) } == [])
        #expect(bed.read(.terminal(2), 0) == ["unknown-body"])
        bed.check()
    }

    @Test func `a removal closes the sent bodies of its requests only, to its remover only`() throws {
        var bed = Bed()
        let client = bed.client
        let other = ClientID(rawValue: 2)
        bed.rig.connect(other)
        var hello = Hello(window: 10)
        hello.pullsBodies = true
        bed.rig.send(.hello(hello), by: other)
        bed.rig.send(.subscribe(HandlerPattern("h")!), by: other)
        try bed.file("1")
        try bed.file("2")
        try bed.file("3", of: "k")
        bed.rig.pass { $0.remove("h", "1", by: client) }
        #expect(bed.read(.terminal(1), 0) == ["unknown-body"])
        #expect(bed.read(.terminal(2), 0) == ["0+100"])
        bed.rig.pass { rig in rig.fetch("h", "9", "http://9.example/", by: client) { $0.options.replacesHandler = true }
        }
        #expect(bed.read(.terminal(2), 0) == ["unknown-body"])
        #expect(bed.read(.terminal(3), 0) == ["0+100"])
        bed.rig.pass { $0.send(.readBody(BodyRead(.terminal(1), offset: 0, maximumBytes: 5)), by: other) }
        #expect(bed.pieces.map(\.maximumBytes) == [5])
        bed.check()
    }

    @Test func `a session that gets paths cannot read`() throws {
        var bed = Bed()
        try bed.file("1")
        let other = bed.rig.client(2)
        bed.rig.pass { $0.send(.readBody(BodyRead(.terminal(1), offset: 7, maximumBytes: 1)), by: other) }
        let answers = bed.rig.actions.compactMap { action -> BodyData? in
            if case .client(.send(other, .bodyData(let data))) = action { data } else { nil }
        }
        #expect(answers.map(\.errorCode) == ["bad-message"])
        #expect(answers.map(\.body) == [.terminal(1)] && answers.map(\.offset) == [7])
    }

    @Test func `a READ of a growing body waits for its bytes and binds its generation`() throws {
        var bed = Bed()
        let job = try bed.stream()
        #expect(bed.read(Self.growing, 0) == [])
        bed.grow(job, to: 10)
        #expect(bed.answers == ["0+10"])
        #expect(bed.pieces.first?.dataHead.generation == Generation(job.attempt))
        #expect(bed.pieces.first?.file == "9-\(job.attempt).part")
        #expect(bed.read(Self.growing, 10) == [])
        bed.grow(job, to: 10)
        #expect(bed.answers == [])
        bed.grow(job, to: 500)
        #expect(bed.answers == ["10+100"])
        let other = BodyRead(Self.growing, offset: 10, maximumBytes: 1, generation: Generation("other"))
        #expect(bed.read([other]) == ["10"])
        bed.check()
    }

    @Test func `another body answers the waiting READs of the former one`() throws {
        var bed = Bed()
        let first = try bed.stream()
        bed.grow(first, to: 10)
        #expect(bed.read(Self.growing, 10) == [])
        bed.rig.pass { [worker = bed.worker] in $0.failed(first, "reset", by: worker) }
        bed.rig.wait(milliseconds: 1_000)
        let second = try #require(bed.rig.jobs.first)
        bed.grow(second, to: 5)
        #expect(bed.answers == ["10"], "without bytes, since the body is another one")
        bed.check()
    }

    @Test func `a session has 64 READs without an answer`() throws {
        var bed = Bed()
        let job = try bed.stream()
        bed.grow(job, to: 10)
        let waiting = (0..<64).map { BodyRead(Self.growing, offset: 100 + $0, maximumBytes: 1) }
        #expect(bed.read(waiting) == [])
        #expect(bed.read(Self.growing, 200) == ["limit"])
        bed.check()
    }

    @Test func `the end of a request ends its READs`() throws {
        var bed = Bed { $0.maximumBodyReadsPerPass = 100 }
        let job = try bed.stream()
        bed.grow(job, to: 10)
        let waiting = (0..<64).map { BodyRead(Self.growing, offset: 100 + $0, maximumBytes: 1) }
        #expect(bed.read(waiting) == [])
        #expect(bed.read(Self.growing, 200) == ["limit"])
        bed.rig.pass { [worker = bed.worker] in $0.done(job, by: worker, length: 10) }
        #expect(bed.answers == [])
        #expect(bed.read(Self.growing, 0) == ["unknown-body"])
        try bed.file("2")
        #expect(bed.read(.terminal(2), 0) == ["0+100"], "READs without an answer to come do not count")
        bed.check()
    }

    @Test func `only subscribers of the handler read its growing bodies`() throws {
        var bed = Bed()
        let client = bed.client
        bed.grow(try bed.stream(), to: 10)
        let request = BodyReference.request(HandlerID("h")!, RequestID("2")!)
        #expect(bed.read(request, 0) == ["unknown-body"])
        #expect(bed.read(Self.growing, 10) == [])
        bed.rig.pass { $0.send(.unsubscribe(HandlerPattern("h")!), by: client) }
        #expect(bed.read(Self.growing, 0) == ["unknown-body"])
        bed.check()
    }

    @Test func `a pass answers a bounded number of READs and asks for another pass`() throws {
        var bed = Bed { $0.maximumBodyReadsPerPass = 2 }
        try bed.file("1")
        #expect(bed.read((0..<3).map { BodyRead(.terminal(1), offset: $0, maximumBytes: 1) }) == ["0+1", "1+1"])
        #expect(bed.rig.core.nextTimer == MonotonicTime(nanoseconds: .min))
        bed.rig.pass()
        #expect(bed.answers == ["2+1"] && bed.rig.core.nextTimer != MonotonicTime(nanoseconds: .min))
    }

    @Test func `a full socket holds READs back until it is writable`() throws {
        var bed = Bed()
        let client = bed.client
        try bed.file("1")
        #expect(bed.read(.terminal(1), 7) == ["7+100"])
        let piece = try #require(bed.pieces.first)
        bed.rig.core.socketRefusedPiece(piece, by: client)
        bed.rig.pass()
        #expect(bed.answers == [])
        bed.rig.pass { $0.core.clientSocketWritable(client) }
        #expect(bed.pieces == [piece])
        bed.check()
    }

    @Test func `a lost file is reported, a growing one without its bytes waits`() throws {
        var bed = Bed()
        let client = bed.client
        let job = try bed.stream()
        bed.grow(job, to: 10)
        #expect(bed.read(Self.growing, 0) == ["0+10"])
        let growing = try #require(bed.pieces.first)
        bed.rig.pass { $0.core.bodyPieceUnreadable(growing, by: client, now: $0.now) }
        #expect(bed.answers == [])
        bed.grow(job, to: 20)
        #expect(bed.answers == ["0+20"])
        try bed.file("2")
        #expect(bed.read(.terminal(1), 0) == ["0+100"])
        let complete = try #require(bed.pieces.first)
        bed.rig.pass { $0.core.bodyPieceUnreadable(complete, by: client, now: $0.now) }
        #expect(bed.answers == ["unknown-body"])
        bed.rig.pass { $0.core.clientLost(client, now: $0.now) }
        bed.rig.core.bodyPieceUnreadable(complete, by: client, now: bed.rig.now)
        bed.rig.core.socketRefusedPiece(complete, by: client)
        bed.check()
    }

    @Test func `a resumed session reads on, in the mode of its new HELLO`() throws {
        var bed = Bed(lease: 60_000)
        try bed.file("1")
        let (first, second) = (bed.client, ClientID(rawValue: 2))
        #expect(bed.read(.terminal(1), 0) == ["0+100"])
        bed.rig.pass { $0.core.clientLost(first, now: $0.now) }
        let token = try #require(bed.rig.core.records.clients[0].token as SessionToken?)
        bed.rig.connect(second)
        var hello = Hello(window: 10)
        hello.leaseMilliseconds = 60_000
        hello.token = token
        hello.pullsBodies = true
        bed.rig.pass { [hello] in
            $0.send(.hello(hello), by: second)
            $0.send(.readBody(BodyRead(.terminal(1), offset: 100, maximumBytes: 100)), by: second)
        }
        #expect(bed.pieces.map(\.dataHead.offset) == [100])
        bed.check()
    }

    @Test func `a large body that is being read is not too slow`() throws {
        var bed = Bed { limits in
            limits.maximumStalledBodyBytesPerClient = 1_000
            limits.maximumStallMilliseconds = 1_000
        }
        try bed.file("1")
        for _ in 0..<3 {
            #expect(bed.read(.terminal(1), 0) == ["0+100"])
            bed.rig.wait(milliseconds: 1_000)
            #expect(!bed.rig.actions.contains { if case .client(.close) = $0 { true } else { false } })
        }
        bed.rig.wait(milliseconds: 1_000)
        #expect(bed.rig.actions.contains { if case .client(.close) = $0 { true } else { false } })
    }
}
