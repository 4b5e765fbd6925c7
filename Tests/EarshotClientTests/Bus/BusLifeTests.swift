import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

/// Absent, ending and starting brokers.
@Suite(.timeLimit(.minutes(10))) struct BusLifeTests {
    private let url = "http://127.0.0.1/a"

    @Test func `without a broker it is said how to start one`() async throws {
        let folder = try RuntimeFolder(named: Endpoint().path)
        let error = await #expect(throws: BusError.self) { try await Bus.connect(to: .running(in: folder.path)) }
        #expect(error?.code == .noBroker)
        #expect(error?.description.contains("`earshot serve`") == true)
        #expect(error?.description.contains(folder.path) == true)
    }

    @Test func `a private broker needs a program, and one that ends is told of`() async throws {
        for program in ["/nonexistent/earshot", "/bin/false"] {
            let options = PrivateBrokerOptions(program: program)
            let error = await #expect(throws: BusError.self) { try await Bus.connect(to: .privateBroker(options)) }
            #expect(error?.code == .noBroker)
        }
    }

    @Test func `one that holds the lock and does not answer is not waited for without end`() async throws {
        let folder = try RuntimeFolder(named: Endpoint().path)
        try folder.prepare()
        defer { PrivateFolder.remove(folder.path) }
        let lock = try LockFile.acquire(folder.brokerLock)
        let error = await #expect(throws: BusError.self) {
            try await Bus.connect(to: .running(in: folder.path), timeout: .milliseconds(20))
        }
        #expect(error?.code == .noBroker)
        let task = Task { try await Bus.connect(to: .running(in: folder.path), timeout: nil) }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        withExtendedLifetime(lock) {}
    }

    @Test func `the next broker is asked again, and who waits does not notice`() async throws {
        let first = try ScriptedBus()
        let bus = try await first.connect()
        let handler = bus.handler()
        let fetched = Task { try await handler.fetch(url) }
        let fetch = await first.fetch()
        await first.die()
        let second = try ScriptedBus(in: first.home, instance: 2)
        let again = await second.fetch()
        #expect(ClientMessage.fetch(again).withoutAge == .fetch(fetch))
        second.answer(fetch, [5])
        #expect(try await fetched.value.body.bytes() == [5])
    }

    @Test func `a broker that stays away fails what is awaited, and serves again when it comes`() async throws {
        let first = try ScriptedBus()
        // Sufficient for a connection on a busy machine.
        let bus = try await first.connect(timeout: .seconds(20))
        let handler = bus.handler()
        let watch = try await bus.watch("page/")
        let fetched = Task { try await handler.fetch(url) }
        _ = await first.fetch()
        await first.die()
        let error = await #expect(throws: BusError.self) { try await fetched.value }
        #expect(error?.code == .noBroker)
        var watched = watch.makeAsyncIterator()
        #expect(await #expect(throws: BusError.self) { try await watched.next() }?.code == .noBroker)
        #expect(await #expect(throws: BusError.self) { try await handler.fetch(url) }?.code == .noBroker)
        await #expect(throws: BusError.self) { try await bus.watch("page/") }

        let second = try ScriptedBus(in: first.home, instance: 2, answers: true)
        await second.awaitMessage(.hello(Hello()))
        // The broker has sent WELCOME, but the bus may not have received it.
        while (try? await handler.fetch(url + "2")) == nil { await Task.yield() }
        // The scripted broker records a FETCH after its answer.
        #expect(await second.fetch().url == url + "2")
        #expect(!second.fetches.contains { $0.url == url })
    }

    @Test func `what nobody has heard of and nobody wants is not said to the next broker`() async throws {
        let first = try ScriptedBus()
        let bus = try await first.connect(timeout: nil)
        await first.die()
        while await !bus.tableSizes().isDisconnected { await Task.yield() }
        for number in 0..<100 {
            let handler = bus.handler()
            let fetched = Task { try await handler.fetch(url) }
            while await bus.tableSizes().requests == 0 { await Task.yield() }
            if number.isMultiple(of: 2) { handler.remove() } else { fetched.cancel() }
            await #expect(throws: (any Error).self) { try await fetched.value }
        }
        let second = try ScriptedBus(in: first.home, instance: 2, answers: true)
        let last = bus.handler()
        #expect(try await last.fetch(url).status == 200)
        let idle = second.sent.versionedValue.value.filter {
            switch $0 {
            case .removeHandlers, .removeRequest: true
            default: false
            }
        }
        #expect(idle.isEmpty)
    }

    @Test func `of handlers of one name that go while there is no broker it is told once`() async throws {
        let first = try ScriptedBus()
        let bus = try await first.connect(timeout: nil)
        await first.die()
        while await !bus.tableSizes().isDisconnected { await Task.yield() }
        for number in 0..<200 {
            let handler = try bus.handler(named: "page/1")
            guard number.isMultiple(of: 2) else { continue }
            try handler.fetch(url, onMain: { _ in })
        }
        while await bus.tableSizes() != BusTableSizes(isDisconnected: true) { await Task.yield() }
        let second = try ScriptedBus(in: first.home, instance: 2, answers: true)
        #expect(try await bus.handler().fetch(url).status == 200)
        let sent = second.sent.versionedValue.value
        #expect(sent.count { $0 == .removeHandlers(.handler(HandlerID("page/1")!)) } == 1)
        #expect(second.fetches.map(\.handler.description).filter { $0 == "page/1" }.isEmpty)
    }

    @Test func `removals without a broker are refused at their bound`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect(timeout: nil)
        await broker.die()
        while await !bus.tableSizes().isDisconnected { await Task.yield() }
        for number in 0..<ClientCore.maximumUnsentRemovals - 1 { _ = try bus.handler(named: "page/\(number)") }
        let waiting = Task { try await bus.remove("page/") }
        // The bus takes commands in their order, so that the removal above comes before or after these.
        _ = try bus.handler(named: "last/1")
        _ = try bus.handler(named: "last/2")
        let error = await #expect(throws: BusError.self) { try await bus.remove("other") }
        #expect(error?.code == .noBroker && error?.isRetryable == true)
        #expect(error?.description.contains("removals") == true)
        #expect(await bus.tableSizes() == BusTableSizes(isDisconnected: true))
        await bus.close()
        await #expect(throws: BusError.self) { try await waiting.value }
    }

    @Test func `a cancelled task does not wait for the broker that a watch needs`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect(timeout: nil)
        await broker.die()
        let watching = Task {
            unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
            _ = try await bus.watch("page/")
        }
        await #expect(throws: CancellationError.self) { try await watching.value }
        while await bus.tableSizes().watches > 0 { await Task.yield() }
    }

    @Test func `a closed bus ends all that is awaited, and takes nothing more`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let handler = bus.handler()
        let watch = try await bus.watch("page/")
        let fetched = Task { try await handler.fetch(url) }
        let download = try handler.download(url + "2")
        _ = await broker.fetch(2)
        await bus.close()
        await bus.close()
        #expect(await #expect(throws: BusError.self) { try await fetched.value }?.code == .closed)
        #expect(await #expect(throws: BusError.self) { try await download.response() }?.code == .closed)
        #expect(await #expect(throws: BusError.self) { try await handler.fetch(url) }?.code == .closed)
        var watched = watch.makeAsyncIterator()
        #expect(await #expect(throws: BusError.self) { try await watched.next() }?.code == .closed)
        await #expect(throws: BusError.self) { try await bus.watch("page/") }
        #expect(throws: BusError.self) { try handler.fetch(url, onMain: { _ in Issue.record("delivered") }) }
        #expect(await bus.tableSizes() == BusTableSizes())
        // The broker answers before it records the message.
        await broker.awaitMessage(.query(.ping))
        #expect(broker.sent.versionedValue.value.last == .query(.ping), "the broker has received all messages")
    }

    @Test func `a request that may not be done twice is not asked again`() async throws {
        let first = try ScriptedBus()
        let handler = try await first.connect().handler()
        var options = FetchOptions()
        (options.method, options.isShared, options.body) = ("POST", false, [1])
        let posted = Task { [options] in try await handler.fetch(url, options) }
        _ = await first.fetch()
        await first.die()
        let second = try ScriptedBus(in: first.home, instance: 2)
        #expect(await #expect(throws: BusError.self) { try await posted.value }?.code == .connectionLost)
        #expect(second.fetches.isEmpty)
    }

    @Test func `a bus that nobody holds ends its thread`() async throws {
        let broker = try ScriptedBus()
        let hasEnded: Observed<Bool>
        do {
            let bus = try await broker.connect()
            hasEnded = bus.hasEnded
            let handler = bus.handler()
            let fetched = Task { try await handler.fetch(url) }
            await broker.answer(broker.fetch())
            _ = try await fetched.value
        }
        while !hasEnded.versionedValue.value { await hasEnded.changed(since: 0) }
    }
}
