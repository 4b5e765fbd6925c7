import EarshotWire
import Testing

@testable import EarshotClient

/// Bodies that the broker sends: READs of the core.
@Suite struct ClientPullTests {
    private let piece = WireLimits.dataBytes

    private func core(lease: Bool = false) -> ClientCore {
        var hello = hello
        hello.pullsBodies = true
        hello.leaseMilliseconds = lease ? 5_000 : 0
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(greeting(1, lease: lease))
        return core
    }

    private func greeting(_ instance: UInt64, lease: Bool = false, lastReceived: UInt64? = nil) -> BrokerMessage {
        var welcome = Welcome(broker: BrokerInstance(rawValue: instance), window: 256)
        welcome.pullsBodies = true
        welcome.token = lease ? token : nil
        welcome.lastReceivedNumber = lastReceived
        return .welcome(welcome)
    }

    private func pulled(
        _ request: String, _ sequence: UInt64, _ length: Int, generation: String? = nil
    ) -> BrokerMessage {
        var response = Terminal.Response(url: "http://127.0.0.1/\(request)")
        response.isPulled = true
        response.bodyByteCount = length
        response.generation = generation.flatMap { Generation($0) }
        return .terminal(
            Terminal(
                handler: handler, request: RequestID(request)!, sequence: sequence,
                outcome: .result(status: 200, response)))
    }

    private func streaming(_ request: String) -> Fetch {
        var fetch = fetch(request)
        fetch.options.streams = true
        return fetch
    }

    private func grown(_ request: String, _ received: Int, _ generation: String = "1.1") -> BrokerMessage {
        var progress = Progress(
            handler: handler, request: RequestID(request)!, receivedBytes: received, totalBytes: nil)
        progress.generation = Generation(generation)
        // A path in a session that pulls is ignored.
        progress.filePath = "/etc/passwd"
        return .progress(progress)
    }

    private func read(_ sequence: UInt64, _ offset: Int, _ length: Int) -> ClientMessage {
        .readBody(BodyRead(.terminal(sequence), offset: offset, maximumBytes: length))
    }

    private func read(_ request: String, _ offset: Int, _ length: Int, _ generation: String = "1.1") -> ClientMessage {
        .readBody(
            BodyRead(
                .request(handler, RequestID(request)!), offset: offset, maximumBytes: length,
                generation: Generation(generation)))
    }

    private func data(_ sequence: UInt64, _ offset: Int) -> BrokerMessage {
        .bodyData(BodyData(.terminal(sequence), offset: offset))
    }

    private func refusal(
        _ body: BodyReference, _ offset: Int = 0, code: String = "unknown-body"
    ) -> BrokerMessage {
        var data = BodyData(body, offset: offset)
        data.errorCode = code
        return .bodyData(data)
    }

    private func data(_ request: String, _ offset: Int, _ generation: String = "1.1") -> BrokerMessage {
        .bodyData(
            BodyData(
                .request(handler, RequestID(request)!), offset: offset, generation: Generation(generation)))
    }

    private func reports(_ actions: [ClientAction]) -> [Int] {
        actions.compactMap { if case .reportGrowth(let progress, _) = $0 { progress.receivedBytes } else { nil } }
    }

    private func isLost(_ action: ClientAction?) -> Bool {
        guard case .deliver(let delivery)? = action else { return false }
        return delivery.terminal.response?.bodyFilePath == BodyFile.missingFilePath
    }

    @Test func `a body is read with four READs at a time, and acknowledged when the consumer has finished`() throws {
        var core = core()
        _ = core.fetch(fetch("1"))
        #expect(core.received(pulled("1", 1, 5 * piece + 7)) == [])
        #expect(sent(core.passEnded()) == (0..<4).map { read(1, $0 * piece, piece) })
        #expect(core.received(data(1, 0), count: piece) == [.store(file: 1, offset: 0, count: piece)])
        #expect(sent(core.passEnded()) == [read(1, 4 * piece, piece)])
        // Answers may come in any order.
        for offset in [3, 2, 1] { _ = core.received(data(1, offset * piece), count: piece) }
        #expect(sent(core.passEnded()) == [read(1, 5 * piece, 7)])
        _ = core.received(data(1, 4 * piece), count: piece)
        let end = core.received(data(1, 5 * piece), count: 7)
        #expect(end.first == .store(file: 1, offset: 5 * piece, count: 7))
        guard case .deliverReceived(let delivery, file: 1)? = end.last else {
            Issue.record("not delivered: \(end)")
            return
        }
        #expect(core.passEnded() == [])
        core.finishDelivery(delivery.id)
        #expect(core.passEnded() == [.send(.acknowledge(1))])
    }

    @Test func `a keeper gets the start of a body and its bytes without a gap`() throws {
        var core = core()
        core.pulls.reportsBodyArrival = true
        _ = core.fetch(fetch("1"))
        guard case .beginBody(let begun, file: 1)? = core.received(pulled("1", 1, 3 * piece)).first else {
            Issue.record("no start")
            return
        }
        #expect(begun.key == RequestKey(begun.terminal.handler, begun.terminal.request))
        _ = core.passEnded()
        var arrived: [Int] = []
        for offset in [1, 0, 2] {
            for action in core.received(data(1, offset * piece), count: piece) {
                if case .reportArrival(_, let bytes, file: 1) = action { arrived.append(bytes) }
            }
        }
        #expect(arrived == [0, 2 * piece, 3 * piece])
    }

    @Test func `the rest of a short answer is read again, and other DATA is ignored`() {
        var core = core()
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 100))
        #expect(sent(core.passEnded()) == [read(1, 0, 100)])
        #expect(core.received(data(1, 0), count: 30) == [.store(file: 1, offset: 0, count: 30)])
        #expect(sent(core.passEnded()) == [read(1, 30, 70)])
        #expect(core.received(data(1, 0), count: 30) == [])
        #expect(core.received(data(2, 30), count: 70) == [])
        #expect(core.received(data("1", 30), count: 70) == [])
        // More bytes than requested are not stored.
        #expect(core.received(data(1, 30), count: 90).first == .store(file: 1, offset: 30, count: 70))
    }

    @Test(arguments: [4, 32]) func `a session has a bounded number of READs without an answer`(most: Int) {
        var core = core(lease: true)
        core.pulls.maximumReads = most
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 100 * piece))
        #expect(sent(core.passEnded()).count == most)
        #expect(sent(core.passEnded()).isEmpty)
        _ = core.received(data(1, 0), count: piece)
        #expect(sent(core.passEnded()) == [read(1, most * piece, piece)])
        _ = core.linkLost()
        _ = core.linkOpened()
        _ = core.received(greeting(1, lease: true, lastReceived: 1_000))
        #expect(sent(core.passEnded()).count == most)
    }

    @Test func `further connections share the READs of complete bodies, and others carry those of a lost one`() {
        var core = core(lease: true)
        func reads(_ core: inout ClientCore) -> [[Int]] {
            var reads = [[Int]](repeating: [], count: 3)
            for action in core.passEnded() {
                switch action {
                case .send(.readBody(let read)): reads[0].append(read.offset / piece)
                case .sendRead(let read, let connection): reads[connection].append(read.offset / piece)
                default: break
                }
            }
            return reads
        }
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 17 * piece))
        #expect(reads(&core) == [[0, 1, 2, 3], [], []])
        // Connection 2 opens first. Connection 1 is not open, so it gets no READ.
        core.pulls.openConnection(2, maximumReads: 3)
        #expect(reads(&core) == [[], [], [4, 5, 6]])
        core.pulls.openConnection(1, maximumReads: 2)
        #expect(reads(&core) == [[], [7, 8], []])
        // The answer makes room on the connection of its READ.
        _ = core.received(data(1, 5 * piece), count: piece)
        #expect(reads(&core) == [[], [], [9]])
        core.pulls.closeConnection(2)
        #expect(reads(&core) == [[], [], []])
        for offset in [0, 1, 2, 3, 7] { _ = core.received(data(1, offset * piece), count: piece) }
        #expect(reads(&core) == [[4, 6, 9, 10], [11], []])
        // With the session's connection all READs are void.
        _ = core.linkLost()
        _ = core.linkOpened()
        _ = core.received(greeting(1, lease: true, lastReceived: 1_000))
        #expect(reads(&core) == [[4, 6, 8, 9], [], []])
    }

    @Test func `further connections are wanted while many bytes of complete bodies have no READ`() {
        var core = core(lease: true)
        _ = core.fetch(streaming("1"))
        _ = core.received(grown("1", 100 * piece))
        #expect(!core.pulls.wantsMoreConnections, "growing bodies use the session's connection")
        for number in 2...5 {
            #expect(!core.pulls.wantsMoreConnections)
            _ = core.fetch(fetch("\(number)"))
            _ = core.received(pulled("\(number)", UInt64(number), 4 * piece))
        }
        #expect(core.pulls.wantsMoreConnections)
        _ = core.passEnded()
        #expect(!core.pulls.wantsMoreConnections)
    }

    @Test func `bodies take turns, and many of them do not have more than eight files`() {
        var core = core()
        for number in 1...12 {
            _ = core.fetch(fetch("\(number)"))
            _ = core.received(pulled("\(number)", UInt64(number), 2))
        }
        var requested: [UInt64] = []
        var most = 0
        var open: Set<Int> = []
        while true {
            let reads = sent(core.passEnded()).compactMap { message -> UInt64? in
                guard case .readBody(let read) = message, case .terminal(let sequence) = read.body else { return nil }
                return sequence
            }
            guard !reads.isEmpty else { break }
            #expect(reads.count <= core.pulls.maximumReads)
            requested += reads
            for sequence in reads {
                for action in core.received(data(sequence, 0), count: 1) {
                    if case .store(let file, _, _) = action { open.insert(file) }
                }
                most = max(most, open.count)
                // The second byte is read in the turn of a later pass.
                if requested.count(where: { $0 == sequence }) == 2 { open.remove(Int(sequence)) }
            }
            for sequence in reads { _ = core.received(data(sequence, 1), count: 1) }
        }
        #expect(Set(requested) == Set(1...12))
        #expect(most <= 8)
    }

    @Test func `a growing body is read as far as it is reported, and continues with its terminal`() {
        var core = core()
        _ = core.fetch(streaming("1"))
        #expect(reports(core.received(grown("1", 100))) == [0])
        #expect(sent(core.passEnded()) == [read("1", 0, 100)])
        let stored = core.received(data("1", 0), count: 100)
        #expect(stored.first == .store(file: 1, offset: 0, count: 100))
        #expect(reports(stored) == [100])
        #expect(core.passEnded() == [])
        _ = core.received(grown("1", 250))
        #expect(sent(core.passEnded()) == [read("1", 100, 150)])
        // The terminal ends this READ.
        _ = core.received(pulled("1", 1, 300, generation: "1.1"))
        #expect(sent(core.passEnded()) == [read(1, 100, 150), read(1, 250, 50)])
        #expect(core.received(data("1", 100), count: 150) == [])
        _ = core.received(data(1, 100), count: 150)
        guard case .deliverReceived(_, file: 1)? = core.received(data(1, 250), count: 50).last else {
            Issue.record("not delivered")
            return
        }
    }

    @Test func `another version of a growing body goes to another file`() {
        var core = core()
        _ = core.fetch(streaming("1"))
        _ = core.received(grown("1", 100))
        _ = core.passEnded()
        _ = core.received(data("1", 0), count: 100)
        #expect(reports(core.received(grown("1", 50, "1.2"))) == [0])
        #expect(core.passEnded() == [.discard(file: 1), .send(read("1", 0, 50, "1.2"))])
        // The answer names a third version: its progress begins it.
        #expect(core.received(data("1", 0, "1.3"), count: 0) == [])
        #expect(core.passEnded() == [.discard(file: 2)])
        _ = core.received(pulled("1", 1, 10, generation: "1.4"))
        #expect(sent(core.passEnded()) == [read(1, 0, 10)])
        #expect(core.received(data(1, 0), count: 10).first == .store(file: 3, offset: 0, count: 10))
    }

    @Test func `growing bodies leave READs to complete ones`() {
        var core = core()
        _ = core.fetch(streaming("1"))
        _ = core.received(grown("1", 10 * piece))
        #expect(sent(core.passEnded()).count == 2)
        _ = core.fetch(fetch("2"))
        _ = core.received(pulled("2", 1, 10 * piece))
        #expect(sent(core.passEnded()) == [read(1, 0, piece), read(1, piece, piece)])
    }

    /// Found by the fuzz target `reader`: the broker refused READs of other bodies with `limit`, so these were lost too.
    @Test func `READs of a lost body count until they are answered or its terminal is acknowledged`() throws {
        var core = core()
        for request in ["1", "2"] { _ = core.fetch(fetch(request)) }
        _ = core.received(pulled("1", 1, 9 * piece))
        #expect(sent(core.passEnded()).count == 4)
        _ = core.received(pulled("2", 2, 9 * piece))
        #expect(core.passEnded() == [])
        let lost = try #require(delivery(core.received(refusal(.terminal(1)))))
        #expect(sent(core.passEnded()) == [read(2, 0, piece)])
        // The answer of a READ that was answered before has no effect.
        _ = core.received(refusal(.terminal(1)))
        _ = core.received(refusal(.terminal(1), piece))
        _ = core.received(data(1, 2 * piece), count: piece)
        #expect(sent(core.passEnded()) == [read(2, piece, piece), read(2, 2 * piece, piece)])
        core.finishDelivery(lost.id)
        #expect(sent(core.passEnded()) == [.acknowledge(1), read(2, 3 * piece, piece)])
    }

    /// Found by the fuzz target `reader`: the second body replaced the first one, whose file stayed open.
    @Test func `a body of a terminal without a number is lost, because no READ can name it`() throws {
        var core = core()
        for request in ["1", "2"] {
            _ = core.fetch(fetch(request))
            #expect(isLost(core.received(pulled(request, 0, 100)).first))
            #expect(core.pulls.isEmpty && core.passEnded() == [])
        }
    }

    @Test func `a body in memory ends a growing one`() {
        var core = core()
        _ = core.fetch(streaming("1"))
        _ = core.received(grown("1", 100))
        #expect(delivery(core.received(.terminal(result("1", sequence: 1)))) != nil)
        #expect(core.passEnded() == [.send(.acknowledge(1)), .discard(file: 1)])
    }

    @Test(arguments: ["unknown-body", "limit", "bad-message"])
    func `a body whose READ is refused is requested again`(code: String) throws {
        var core = core()
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 100))
        _ = core.passEnded()
        let actions = core.received(refusal(.terminal(1), code: code))
        #expect(isLost(actions.first))
        #expect(core.received(refusal(.terminal(1))) == [], "one answer is sufficient")
        let lost = try #require(delivery(actions))
        #expect(core.resubmitRequest(of: lost) == [])
        // The ID is free after the acknowledgement.
        #expect(sent(core.passEnded()) == [.acknowledge(1), .fetch(fetch("1"))])
    }

    @Test func `an answer without bytes loses a body, and so does a path`() {
        var core = core()
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 100))
        _ = core.passEnded()
        #expect(isLost(core.received(data(1, 0), count: 0).first))
        _ = core.fetch(fetch("2"))
        #expect(isLost(core.received(.terminal(result("2", sequence: 2, file: "/etc/passwd"))).first))
    }

    @Test func `the refusal of a READ of a growing body ends nothing`() {
        var core = core()
        _ = core.fetch(streaming("1"))
        _ = core.received(grown("1", 100))
        _ = core.passEnded()
        #expect(core.received(refusal(.request(handler, RequestID("1")!))) == [])
        #expect(core.requests[key("1")] != nil)
        _ = core.received(grown("1", 200))
        #expect(sent(core.passEnded()) == [read("1", 0, 200)])
    }

    @Test(arguments: ["cancel", "remove", "replace"])
    func `bodies of removed requests are not read on`(verb: String) {
        var core = core()
        _ = core.fetch(fetch("1"))
        _ = core.fetch(streaming("2"))
        _ = core.received(pulled("1", 1, 100))
        _ = core.received(grown("2", 100))
        #expect(sent(core.passEnded()).count == 2)
        switch verb {
        case "cancel":
            _ = core.cancel(key("1"))
            _ = core.cancel(key("2"))
        case "remove": _ = core.remove(.handler(handler))
        default:
            var next = fetch("3")
            next.options.replacesHandler = true
            _ = core.fetch(next)
        }
        #expect(core.received(data(1, 0), count: 100) == [])
        #expect(core.received(data("2", 0), count: 100) == [])
        let actions = core.passEnded()
        #expect(sent(actions) == [.acknowledge(1)])
        #expect(Set(actions.compactMap { if case .discard(let file) = $0 { file } else { nil } }) == [1, 2])
    }

    @Test func `a resumed session reads on at its offset`() {
        var core = core(lease: true)
        _ = core.fetch(fetch("1"))
        _ = core.fetch(streaming("2"))
        _ = core.received(pulled("1", 1, 2 * piece))
        _ = core.received(grown("2", 50))
        #expect(sent(core.passEnded()) == [read("2", 0, 50), read(1, 0, piece), read(1, piece, piece)])
        _ = core.received(data(1, 0), count: piece)
        _ = core.linkLost()
        #expect(core.passEnded() == [])
        _ = core.linkOpened()
        #expect(sent(core.received(greeting(1, lease: true, lastReceived: 5))) == [])
        #expect(core.received(pulled("1", 1, 2 * piece)) == [], "a repetition")
        #expect(sent(core.passEnded()) == [read("2", 0, 50), read(1, piece, piece)])
        // READs are numbered like other messages and not repeated.
        _ = core.linkLost()
        _ = core.linkOpened()
        _ = core.fetch(fetch("3"))
        #expect(sent(core.received(greeting(1, lease: true, lastReceived: 6))) == [.fetch(fetch("3"))])
    }

    @Test func `without a lease the body is lost with the connection, and requested again`() throws {
        var core = core()
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 100))
        _ = core.passEnded()
        let actions = core.linkLost()
        #expect(actions.first == .report(.stateChanged(.disconnected)))
        guard case .deliver(let lost)? = actions.last else {
            Issue.record("not delivered: \(actions)")
            return
        }
        #expect(isLost(actions.last))
        #expect(core.resubmitRequest(of: lost) == [])
        _ = core.linkOpened()
        let messages = sent(core.received(greeting(2)))
        #expect(messages.count == 1)
        #expect(core.pulls.isEmpty)
    }

    @Test func `bodies of other programs are read for subscribers only`() {
        var core = core()
        #expect(isLost(core.received(pulled("1", 1, 100)).first))
        _ = core.subscribe(.handler(handler))
        #expect(core.received(pulled("2", 2, 100)) == [])
        #expect(sent(core.passEnded()) == [read(2, 0, 100)])
    }

    @Test func `the broker may impose it on a client that opens paths`() {
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(greeting(1))
        _ = core.fetch(fetch("1"))
        _ = core.received(pulled("1", 1, 100))
        #expect(sent(core.passEnded()) == [read(1, 0, 100)])
    }
}
