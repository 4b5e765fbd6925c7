import EarshotWire
import Testing

@testable import EarshotClient

/// TAKE: a terminal with a large file is delivered when the broker has answered whose the file is.
@Suite struct ClientTakeTests {
    private static let path = "/spool/content"
    private static let ownPath = "/spool/own.taken"

    private func taker(lease: Bool = false) -> ClientCore {
        var hello = hello
        if lease { hello.leaseMilliseconds = 5_000 }
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(lease ? welcome(1, lastReceived: nil) : welcome(1))
        core.takesFiles = true
        return core
    }

    private func result(_ request: String, _ sequence: UInt64, length: Int = ClientCore.minimumTakenFileBytes)
        -> Terminal
    {
        var terminal = EarshotClientTests.result(request, sequence: sequence, file: Self.path)
        guard case .result(_, var response) = terminal.outcome else { return terminal }
        response.bodyByteCount = length
        terminal.outcome = .result(status: 200, response)
        return terminal
    }

    /// Requests a URL and receives its terminal.
    private func fetchAndReceive(
        _ core: inout ClientCore, _ request: String = "1", _ sequence: UInt64 = 1,
        _ change: (inout Terminal) -> Void = { _ in }
    ) -> [ClientAction] {
        _ = core.fetch(fetch(request))
        var terminal = result(request, sequence)
        change(&terminal)
        return core.received(.terminal(terminal))
    }

    @Test func `a terminal waits for the answer, with which its file is the consumer's own`() {
        var core = taker()
        #expect(fetchAndReceive(&core) == [.send(.takeFile(1))])
        let delivered = delivery(core.received(.fileTaken(1, path: Self.ownPath)))
        #expect(delivered?.ownsFile == true && delivered?.terminal.response?.bodyFilePath == Self.ownPath)
        #expect(core.terminalsAwaitingTaken.isEmpty && core.unansweredMessages.isEmpty)
        #expect(core.passEnded() == [], "the file is needed until the delivery is finished")
        core.finishDelivery(delivered!.id)
        #expect(core.passEnded() == [.send(.acknowledge(1))])
    }

    @Test func `a file that is not given away is delivered as any other`() {
        var core = taker()
        _ = fetchAndReceive(&core)
        let delivered = delivery(core.received(.fileTaken(1, path: nil)))
        #expect(delivered?.ownsFile == false && delivered?.terminal.response?.bodyFilePath == Self.path)
        _ = fetchAndReceive(&core, "2", 2)
        let refused = core.refused(.takeFile(2), ErrorReply(code: "unknown-body"))
        #expect(delivery(refused)?.terminal.response?.bodyFilePath == Self.path)
        _ = fetchAndReceive(&core, "3", 3)
        let fragment = BrokerFragment(head: Array("TAKEN 3 relative\nto: 6\n".utf8))
        let actions = core.malformedMessageReceived(fragment, WireError(.badMessage, "malformed"))
        #expect(delivery(actions)?.ownsFile == false)
        #expect(core.terminalsAwaitingTaken.isEmpty && core.unansweredMessages.isEmpty)
    }

    @Test func `small files, durable ones, those of others and of a copying consumer are not asked for`() {
        var core = taker()
        let small = fetchAndReceive(&core, "1", 1) { $0 = result("1", 1, length: ClientCore.minimumTakenFileBytes - 1) }
        #expect(deliveries(small).count == 1)
        #expect(deliveries(fetchAndReceive(&core, "2", 2) { $0.isDurable = true }).count == 1)
        #expect(deliveries(core.received(.terminal(result("stranger", 3)))).count == 1)
        core.takesFiles = false
        #expect(deliveries(fetchAndReceive(&core, "4", 4)).count == 1)
        #expect(core.terminalsAwaitingTaken.isEmpty)
    }

    @Test func `a session that ends without a connection delivers what waited in it`() {
        var core = taker(lease: true)
        #expect(fetchAndReceive(&core) == [.send(.takeFile(1))])
        #expect(core.linkLost() == [.report(.stateChanged(.disconnected))])
        for number in 0...NoticeLog.maximumEntries { _ = core.subscribe(pattern("handler-\(number)")) }
        #expect(core.sessionToken == nil, "more notices than a session keeps")
        // The next attempt fails.
        #expect(deliveries(core.linkLost()).map(\.request) == [key("1").request])
    }

    @Test func `a request that is cancelled meanwhile has no delivery`() {
        var core = taker()
        _ = fetchAndReceive(&core)
        #expect(core.cancel(key("1")) == [.send(.removeRequest(handler, key("1").request))])
        #expect(core.received(.fileTaken(1, path: Self.ownPath)) == [])
        #expect(core.passEnded() == [.send(.acknowledge(1))])
    }

    @Test func `with the session the file is lost, and the consumer may ask again`() throws {
        var core = taker()
        _ = fetchAndReceive(&core)
        let lost = core.linkLost().compactMap { if case .deliver(let delivery) = $0 { delivery } else { nil } }
        #expect(lost.map(\.ownsFile) == [false])
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [])
        let actions = core.resubmitRequest(of: lost[0])
        #expect(sent(try #require(actions)) == [.fetch(fetch("1"))])
    }

    @Test func `a resumed session repeats a TAKE that was not heard, and hears a lost answer`() {
        for lastReceived in [UInt64(1), 2] {
            var core = taker(lease: true)
            _ = fetchAndReceive(&core)
            #expect(deliveries(core.linkLost()).isEmpty)
            _ = core.linkOpened()
            let actions = sent(core.received(welcome(1, lastReceived: lastReceived)))
            #expect(actions == (lastReceived == 1 ? [.takeFile(1)] : []))
            #expect(core.received(.terminal(result("1", 1))) == [], "a repetition")
            #expect(delivery(core.received(.fileTaken(1, path: Self.ownPath)))?.ownsFile == true)
        }
    }
}
