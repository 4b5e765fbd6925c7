import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

/// Answers of the broker other than responses: removals by name, submissions, claims.
@Suite(.timeLimit(.minutes(10))) struct BusAnswerTests {
    private let url = "http://127.0.0.1/a"
    private let key = RequestKey(HandlerID("reports")!, RequestID("1")!)

    @Test func `a removal by name ends what is below it, and its handlers can be used again`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let meant = try bus.handler(named: "page/1")
        let other = try bus.handler(named: "other")
        let first = Task { try await meant.fetch(url) }
        _ = await broker.fetch(1)
        let second = Task { try await other.fetch(url) }
        let secondFetch = await broker.fetch(2)
        // The removal of an unused handler must not affect the answer of the removal by name.
        bus.handler().remove()
        #expect(try await bus.remove("page/") == 0)
        await broker.awaitMessage(.removeHandlers(pattern("page/")))
        #expect(await #expect(throws: BusError.self) { try await first.value }?.code == .removed)
        broker.answer(secondFetch)
        #expect(try await second.value.status == 200)
        let third = Task { try await meant.fetch(url) }
        await broker.answer(broker.fetch(3))
        #expect(try await third.value.status == 200)
        await #expect(throws: BusError.self) { try await bus.remove("/") }
    }

    @Test func `what is asked for after a removal by name was begun is not removed by it`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let handler = try bus.handler(named: "page/1")
        for round in 1...200 {
            let removed = Task.immediate { try await bus.remove("page/") }
            let fetched = Task.immediate { try await handler.fetch(url) }
            await broker.answer(broker.fetch(round))
            #expect(try await fetched.value.status == 200)
            #expect(try await removed.value == 0)
        }
    }

    @Test func `a purge is no obstacle to what is still to be carried out`() throws {
        let commands = try Mailbox<BusCommand>()
        let state = HandlerState(1, key.handler, isNamed: true)
        let fetch = Shared(Fetch(handler: key.handler, request: key.request, url: url))
        let request = Request(key, state, commands)
        try request.send(fetch, .function { _ in }, replaces: false)
        state.invalidateRequests()
        #expect(request.invalidityError == nil)
        request.markStarted()
        #expect(request.invalidityError == nil)
        state.invalidateRequests()
        #expect((request.invalidityError as? BusError)?.code == .removed)
        let replaced = Request(key, state, commands)
        try replaced.send(fetch, .function { _ in }, replaces: false)
        try Request(key, state, commands).send(fetch, .function { _ in }, replaces: true)
        #expect((replaced.invalidityError as? BusError)?.code == .replaced)
    }

    @Test func `a purge is of before what is carried out later, and a replacement is not`() throws {
        let state = HandlerState(1, key.handler, isNamed: true)
        let purged = try state.beginRequest(replaces: false) { $0 }
        state.invalidateRequests()
        #expect(state.invalidityError(ofEpoch: purged)?.code == .removed)
        let renewed = try #require(state.renewedEpoch(purged))
        #expect(state.invalidityError(ofEpoch: renewed) == nil)
        #expect(state.renewedEpoch(renewed) == nil, "it is the newest")
        let next = try state.beginRequest(replaces: true) { $0 }
        state.invalidateRequests()
        #expect(state.renewedEpoch(renewed) == nil)
        #expect(state.renewedEpoch(next) != nil)
        state.remove {}
        #expect(state.renewedEpoch(next) == nil)
    }

    @Test func `a handler that others may know is removed though it asked for nothing`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        do { _ = try bus.handler(named: "page/1") }
        await broker.awaitMessage(.removeHandlers(pattern("page/1")))
    }

    @Test @MainActor func `nothing comes after a removal by name, though it was on its way`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let handler = try bus.handler(named: "page/1")
        try handler.fetch(url, onMain: { _ in Issue.record("delivered") })
        await broker.answer(broker.fetch())
        // Occupies the main actor, so that the delivery is queued behind the removal.
        while !broker.sent.versionedValue.value.contains(.acknowledge(1)) {}
        let removal = Answer<Int>()
        bus.commands.put(.purgePattern(pattern("page/"), removal))
        while !broker.sent.versionedValue.value.contains(.removeHandlers(pattern("page/"))) {}
        for _ in 0..<10 { await Task { @MainActor in }.value }
        #expect(try await removal.value() == 0)
    }

    @Test func `what is submitted is durable, and told when it is on the disk`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let submitted = Task { try await bus.submit(url, under: "reports", id: "1", priority: .low) }
        let fetch = await broker.fetch()
        #expect(RequestKey(fetch) == key)
        #expect(fetch.options.isDurable && !fetch.options.subscribes && fetch.options.priority == .low)
        // A second submission of a pending ID fails without a message.
        let twice = await #expect(throws: BusError.self) { try await bus.submit(url, under: "reports", id: "1") }
        #expect(twice?.code == .idInUse)
        broker.send(.fetchAccepted(key.handler, key.request))
        try await submitted.value
        for (handler, id) in [("a b", "1"), ("reports/", "1"), ("reports", ""), ("reports", "a b")] {
            let error = await #expect(throws: BusError.self) { try await bus.submit(url, under: handler, id: id) }
            #expect(error?.code == .invalidRequest)
        }
        #expect(broker.fetches.count == 1)
    }

    @Test func `a repetition ends with the answer of the broker, and is never withdrawn`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let ids = ["1", "2", "3", "4"].compactMap { RequestID($0) }
        let first = Task { try await bus.retry("1", under: "reports") }
        await broker.awaitMessage(.retry(key.handler, ids[0]))
        #expect(await #expect(throws: BusError.self) { try await bus.retry("1", under: "reports") }?.code == .idInUse)
        broker.send(.fetchAccepted(key.handler, ids[0]))
        try await first.value
        let second = Task { try await bus.retry("2", under: "reports") }
        await broker.awaitMessage(.retry(key.handler, ids[1]))
        broker.refuse(.retry(key.handler, ids[1]), ErrorReply(code: "unknown-request"))
        #expect(await #expect(throws: BusError.self) { try await second.value }?.code == .unknownRequest)
        let third = Task { try await bus.retry("3", under: "reports") }
        await broker.awaitMessage(.retry(key.handler, ids[2]))
        third.cancel()
        await #expect(throws: CancellationError.self) { try await third.value }
        broker.send(.fetchAccepted(key.handler, ids[2]))
        let last = Task { try await bus.retry("4", under: "reports") }
        await broker.awaitMessage(.retry(key.handler, ids[3]))
        #expect(!broker.sent.versionedValue.value.contains(.removeRequest(key.handler, ids[2])))
        broker.send(.fetchAccepted(key.handler, ids[3]))
        try await last.value
        for (handler, id) in [("a b", "1"), ("reports/", "1"), ("reports", "")] {
            let error = await #expect(throws: BusError.self) { try await bus.retry(id, under: handler) }
            #expect(error?.code == .invalidRequest)
        }
    }

    @Test func `what cannot be kept says why`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let first = Task { try await bus.submit(url, under: "reports", id: "1") }
        await broker.end(broker.fetch(1), .failed(Terminal.Failure(code: "not-stored")))
        #expect(await #expect(throws: BusError.self) { try await first.value }?.code == .notStored)
        await broker.awaitMessage(.acknowledge(1))
        let second = Task { try await bus.submit(url, under: "reports", id: "2") }
        await broker.refuse(.fetch(broker.fetch(2)), ErrorReply(code: "id-in-use"))
        #expect(await #expect(throws: BusError.self) { try await second.value }?.code == .idInUse)
    }

    @Test func `a submission that nobody waits for is withdrawn, and one that is removed ends`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let first = Task { try await bus.submit(url, under: "reports", id: "1") }
        _ = await broker.fetch(1)
        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        await broker.awaitMessage(.removeRequest(key.handler, key.request))
        let second = Task { try await bus.submit(url, under: "reports", id: "2") }
        _ = await broker.fetch(2)
        try await bus.remove("reports")
        #expect(await #expect(throws: BusError.self) { try await second.value }?.code == .removed)
    }

    @Test func `a submission whose acceptance meets its cancellation is kept if its task is told so, else withdrawn`()
        async throws
    {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        for round in 1...500 {
            let submitted = Task { try await bus.submit(url, under: "reports", id: "\(round)") }
            let request = await broker.fetch(round).request
            broker.send(.fetchAccepted(key.handler, request))
            submitted.cancel()
            guard case .failure(let error) = await submitted.result else { continue }
            #expect(error is CancellationError)
            await broker.awaitMessage(.removeRequest(key.handler, request))
        }
    }

    @Test func `a submission whose task went before it was accepted is to be withdrawn`() async throws {
        for isFirst in [true, false] {
            let answer = Answer<Void>()
            var answers = OpenAnswers()
            _ = answers.addSubmission(key, answer)
            if isFirst { answer.abandon() }
            let isToBeWithdrawn = answers.requestAccepted(key)
            #expect(isToBeWithdrawn == isFirst)
            answer.abandon()
            let isWithdrawnAgain = answers.withdrawSubmission(key, answer: answer)
            #expect(!isWithdrawnAgain)
            if isFirst {
                await #expect(throws: CancellationError.self) { try await answer.value() }
            } else {
                try await answer.value()
            }
        }
    }

    @Test func `the next broker is asked for what was not accepted`() async throws {
        let first = try ScriptedBus()
        let bus = try await first.connect()
        let submitted = Task { try await bus.submit(url, under: "reports", id: "1") }
        let fetch = await first.fetch()
        await first.die()
        let second = try ScriptedBus(in: first.home, instance: 2)
        #expect(await second.fetch() == fetch)
        second.send(.fetchAccepted(key.handler, key.request))
        try await submitted.value
    }

    @Test func `a claim is acknowledged by its program, in order`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let claim = try await bus.claim("reports")
        for number in 1...2 {
            broker.answer(Fetch(handler: key.handler, request: RequestID("\(number)")!, url: url), [UInt8(number)])
        }
        var reader = claim.makeAsyncIterator()
        let first = try #require(try await reader.next())
        let second = try #require(try await reader.next())
        #expect(first.request == "1")
        #expect(try await second.result.get().body.bytes() == [2])
        try await second.acknowledge()
        #expect(!broker.sent.versionedValue.value.contains { if case .acknowledge = $0 { true } else { false } })
        try await first.acknowledge()
        #expect(broker.sent.versionedValue.value.contains(.acknowledge(2)))
    }

    @Test func `what was claimed of a broker that is gone comes again`() async throws {
        let first = try ScriptedBus()
        let bus = try await first.connect()
        let claim = try await bus.claim("reports")
        let fetch = Fetch(handler: key.handler, request: key.request, url: url)
        first.answer(fetch)
        var reader = claim.makeAsyncIterator()
        let old = try #require(try await reader.next())
        await first.die()
        let second = try ScriptedBus(in: first.home, instance: 2)
        await second.awaitMessage(.subscribe(.handler(key.handler)))
        let error = await #expect(throws: BusError.self) { try await old.acknowledge() }
        #expect(error?.code == .connectionLost)
        // The scripted broker sends to the client that sent last.
        await second.awaitMessage(.hello(Hello()))
        let again = try await bus.claim("reports")
        second.answer(fetch)
        var next = again.makeAsyncIterator()
        try await #require(try await next.next()).acknowledge()
        await second.awaitMessage(.acknowledge(1))
    }

    @Test func `a bus that is closed, or without a broker for too long, ends what waits`() async throws {
        let broker = try ScriptedBus()
        // Sufficient for a connection on a busy machine.
        let bus = try await broker.connect(timeout: .seconds(20))
        let claim = try await bus.claim("reports")
        let submitted = Task { try await bus.submit(url, under: "reports", id: "1") }
        _ = await broker.fetch()
        await broker.die()
        #expect(await #expect(throws: BusError.self) { try await submitted.value }?.code == .noBroker)
        #expect(await #expect(throws: BusError.self) { try await bus.remove("reports") }?.code == .noBroker)
        var reader = claim.makeAsyncIterator()
        #expect(await #expect(throws: BusError.self) { try await reader.next() }?.code == .noBroker)
        await bus.close()
        #expect(await #expect(throws: BusError.self) { try await bus.remove("reports") }?.code == .closed)
        let late = await #expect(throws: BusError.self) { try await bus.submit(url, under: "reports", id: "1") }
        #expect(late?.code == .closed)
    }

    @Test func `a lease is asked for, of an hour at most`() async throws {
        let broker = try ScriptedBus()
        let choice = BrokerChoice.running(in: broker.folder.path)
        let bus = try await Bus.connect(to: choice, lease: .seconds(30))
        var hello = Hello()
        hello.leaseMilliseconds = 30_000
        await broker.awaitMessage(.hello(hello))
        for lease in [Duration.seconds(3_601), .seconds(-1)] {
            await #expect(throws: BusError.self) { try await Bus.connect(to: choice, lease: lease) }
        }
        await bus.close()
    }

    @Test func `the form of a body and how often progress comes are said`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        var options = FetchOptions()
        (options.isWarm, options.bodyForm, options.progressInterval) = (true, .inFile, .seconds(2))
        _ = try handler.fetch(url, options, onMain: { _ in })
        let sent = await broker.fetch().options
        #expect(sent.isCacheWarming && sent.delivery == .file && sent.progressIntervalMilliseconds == 2_000)
        options.progressInterval = .milliseconds(49)
        #expect(throws: BusError.self) { try handler.download(url, options) }
    }
}
