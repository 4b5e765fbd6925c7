import EarshotWire
import Testing

@testable import EarshotCore

/// Connections that read the bodies of another connection's session.
struct BodyConnectionTests {
    /// A core with a session, a second connection that reads its bodies, and a worker.
    private struct Bed {
        var rig: CoreRig
        let client = ClientID(rawValue: 1)
        let reader = ClientID(rawValue: 2)
        let worker: WorkerID

        init(_ change: (inout CoreLimits) -> Void = { _ in }) {
            var limits = CoreLimits()
            change(&limits)
            rig = CoreRig(limits: limits)
            worker = rig.worker(9)
            rig.connect(client)
            var hello = Self.hello
            hello.leaseMilliseconds = 60_000
            rig.send(.hello(hello), by: client)
        }

        static var hello: Hello {
            var hello = Hello(window: 10)
            hello.pullsBodies = true
            return hello
        }

        /// Opens a connection for the bodies of a session.
        ///
        /// - Returns: whether the WELCOME permits it.
        mutating func join(
            _ token: SessionToken? = nil, by reader: ClientID? = nil, principal: PrincipalName? = nil
        ) -> Bool {
            let reader = reader ?? self.reader
            var hello = Self.hello
            hello.bodySessionToken = token ?? CoreRig.token(of: client)
            hello.principal = principal
            rig.connect(reader)
            rig.pass { [hello] in $0.send(.hello(hello), by: reader) }
            return rig.actions.contains {
                if case .client(.send(reader, .welcome(let welcome))) = $0 { welcome.readsOtherSession } else { false }
            }
        }

        /// Fetches a body of 1,000 bytes in a file. Its terminal gets the next number.
        mutating func file(_ request: String) throws {
            rig.pass { [client] in $0.fetch("h", request, "http://\(request).example/", by: client) }
            let job = try #require(rig.jobs.first)
            rig.pass { [worker] in
                var completion = Completion(attempt: job.attempt, status: 200)
                completion.bodyByteCount = 1_000
                completion.sha256 = String(repeating: "ab", count: 32)
                completion.fileName = completion.sha256
                $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now)
            }
        }

        /// Sends a READ in one pass.
        ///
        /// - Returns: its answers: DATA as connection, offset and length, or the code of a refusal.
        mutating func read(
            _ body: BodyReference, by reader: ClientID? = nil, _ event: (inout CoreRig) -> Void = { _ in }
        ) -> [String] {
            let reader = reader ?? self.reader
            rig.pass {
                $0.send(.readBody(BodyRead(body, offset: 100, maximumBytes: 50)), by: reader)
                event(&$0)
            }
            return rig.actions.compactMap { action in
                switch action {
                case .client(.sendBodyPiece(let id, let piece)):
                    "\(id.rawValue): \(piece.dataHead.offset)+\(piece.maximumBytes)"
                case .client(.send(reader, .bodyData(let data))) where data.errorCode != nil: data.errorCode
                case .client(.send(reader, .error(let reply))): "ERROR \(reply.code)"
                default: nil
                }
            }
        }

        func check() { for fault in rig.core.audit() { Issue.record("\(fault)") } }
    }

    @Test func `the answer comes over the connection that asked`() throws {
        var bed = Bed()
        try bed.file("1")
        #expect(bed.join() == true)
        #expect(bed.read(.terminal(1)) == ["2: 100+50"])
        #expect(bed.read(.terminal(1), by: bed.client) == ["1: 100+50"])
        bed.check()
    }

    @Test func `it reads as long as the session may`() throws {
        var bed = Bed()
        let client = bed.client
        try bed.file("1")
        try bed.file("2")
        try bed.file("3")
        #expect(bed.join() == true)
        #expect(bed.read(.terminal(1)) { $0.send(.acknowledge(1), by: client) } == [], "the READ is void")
        #expect(bed.read(.terminal(1)) == ["unknown-body"])
        bed.rig.pass { $0.remove("h", "2", by: client) }
        #expect(bed.read(.terminal(2)) == ["unknown-body"], "the request was removed")
        bed.rig.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(bed.read(.terminal(3)) == ["2: 100+50"], "the session is away and can be resumed")
        bed.rig.wait(milliseconds: 60_001)
        #expect(bed.read(.terminal(3)) == ["unknown-body"], "the session has ended")
        bed.check()
    }

    @Test func `only bodies of terminals are read, and only those of the session`() throws {
        var bed = Bed()
        let (client, reader) = (bed.client, bed.reader)
        #expect(bed.join() == true)
        bed.rig.pass { $0.fetch("h", "1", "http://a.example/", by: client) { $0.options.streams = true } }
        #expect(bed.read(.request(HandlerID("h")!, RequestID("1")!)) == ["unknown-body"])
        bed.rig.pass { $0.fetch("k", "1", "http://b.example/", by: reader) }
        try bed.file("2")
        #expect(bed.read(.terminal(2)) == ["unknown-body"])
        #expect(bed.read(.terminal(1)) == ["2: 100+50"])
        bed.check()
    }

    @Test func `an unknown session, one of another principal and one with paths are treated alike`() throws {
        var bed = Bed()
        try bed.file("1")
        #expect(bed.join(SessionToken(highBits: 1, lowBits: 1)) == false)
        #expect(bed.read(.terminal(1)) == ["unknown-body"])
        let foreign = ClientID(rawValue: 3)
        #expect(bed.join(by: foreign, principal: PrincipalName("key:other")!) == false)
        #expect(bed.read(.terminal(1), by: foreign) == ["unknown-body"])
        let (local, third) = (ClientID(rawValue: 4), ClientID(rawValue: 5))
        bed.rig.connect(local)
        var hello = Hello(window: 10)
        hello.leaseMilliseconds = 60_000
        bed.rig.pass { [hello] in $0.send(.hello(hello), by: local) }
        #expect(bed.join(CoreRig.token(of: local), by: third) == false)
        bed.check()
    }

    @Test func `each connection has its own READs, and a session that is read so is not too slow`() throws {
        var bed = Bed { limits in
            limits.maximumStalledBodyBytesPerClient = 1_000
            limits.maximumStallMilliseconds = 1_000
            limits.maximumBodyReadsPerPass = 200
        }
        try bed.file("1")
        #expect(bed.join() == true)
        let (client, reader) = (bed.client, bed.reader)
        bed.rig.pass { rig in
            for id in [client, reader] {
                for offset in 0..<65 {
                    rig.send(.readBody(BodyRead(.terminal(1), offset: offset, maximumBytes: 1)), by: id)
                }
            }
        }
        let refused = bed.rig.actions.compactMap { action -> ClientID? in
            if case .client(.send(let id, .bodyData(let data))) = action, data.errorCode == "limit", data.offset == 64 {
                id
            } else {
                nil
            }
        }
        #expect(refused == [client, reader])
        func closed() -> Bool {
            bed.rig.actions.contains { if case .client(.close(client, _)) = $0 { true } else { false } }
        }
        for _ in 0..<3 {
            #expect(bed.read(.terminal(1)) == ["2: 100+50"])
            bed.rig.wait(milliseconds: 1_000)
            #expect(!closed())
        }
        bed.rig.wait(milliseconds: 1_000)
        #expect(closed())
        bed.check()
    }
}
