import EarshotLoop
import EarshotWire
import Glibc
import Testing

@testable import EarshotClient

/// Bodies that a scripted broker sends to a bus.
@Suite(.timeLimit(.minutes(10))) struct PulledBodyTests {
    private let url = "http://127.0.0.1/a"
    private static let content = (0..<600_001).map { UInt8(truncatingIfNeeded: $0 / 251) }

    /// Broker whose sessions pull.
    private func broker() throws -> ScriptedBus { try ScriptedBus(isPulling: true) }

    private func response(_ fetch: Fetch, _ length: Int, generation: String? = nil) -> Terminal.Response {
        var response = Terminal.Response(url: fetch.url)
        response.bodyByteCount = length
        response.isPulled = true
        response.generation = generation.flatMap { Generation($0) }
        return response
    }

    private func progress(_ fetch: Fetch, _ received: Int, _ generation: String) -> BrokerMessage {
        var progress = Progress(
            handler: fetch.handler, request: fetch.request, receivedBytes: received, totalBytes: nil)
        progress.generation = Generation(generation)
        return .progress(progress)
    }

    /// Answers the next READ from `content`.
    @discardableResult
    private func answer(
        _ broker: ScriptedBus, _ number: Int, from content: [UInt8] = Self.content, short: Int = .max
    ) async -> BodyRead {
        let read = await broker.read(number)
        let data = BodyData(read.body, offset: read.offset, generation: read.generation)
        broker.send(.bodyData(data), body: Array(content[read.offset...].prefix(min(read.maximumBytes, short))))
        return read
    }

    @Test func `a body is read whole, in pieces and by its path`() async throws {
        let broker = try broker()
        let bus = try await Bus.connect(to: .running(in: broker.folder.path), bodies: .pull)
        let handler = bus.handler()
        async let response = handler.fetch(url)
        let fetch = await broker.fetch()
        broker.end(fetch, .result(status: 200, self.response(fetch, Self.content.count)))
        for number in 1...3 { await answer(broker, number, short: number == 1 ? 100_000 : .max) }
        await answer(broker, 4)
        let body = try await response.body
        await broker.awaitMessage(.acknowledge(1))
        #expect(try await body.bytes() == Self.content)
        var pieces: [UInt8] = []
        for try await piece in body.pieces { pieces += piece }
        #expect(pieces == Self.content)
        let path = try #require(body.path)
        #expect(try SystemFile.bytes(path) == Self.content)
    }

    @Test func `a download is read while it arrives, and continues with its terminal`() async throws {
        let broker = try broker()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        broker.send(progress(fetch, 3, "1.1"))
        await answer(broker, 1)
        var pieces = download.pieces.makeAsyncIterator()
        #expect(try await pieces.next() == .bytes(Array(Self.content[..<3])))
        broker.end(fetch, .result(status: 200, response(fetch, 10, generation: "1.1")))
        let read = await answer(broker, 2)
        #expect((read.body, read.offset, read.maximumBytes) == (.terminal(1), 3, 7))
        #expect(try await pieces.next() == .bytes(Array(Self.content[3..<10])))
        #expect(try await pieces.next() == nil)
        #expect(try await download.response().body.bytes() == Array(Self.content[..<10]))
    }

    @Test func `another version restarts a download`() async throws {
        let broker = try broker()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        broker.send(progress(fetch, 2, "1.1"))
        await answer(broker, 1)
        var pieces = download.pieces.makeAsyncIterator()
        #expect(try await pieces.next() == .bytes(Array(Self.content[..<2])))
        broker.end(fetch, .result(status: 200, response(fetch, 4, generation: "1.2")))
        await answer(broker, 2, from: [9, 8, 7, 6])
        #expect(try await pieces.next() == .restarted)
        #expect(try await pieces.next() == .bytes([9, 8, 7, 6]))
        #expect(try await pieces.next() == nil)
    }

    @Test func `a body that is gone is fetched again, and given up after four losses`() async throws {
        let broker = try broker()
        let handler = try await broker.connect().handler()
        async let result = Task { try await handler.fetch(url) }.result
        for number in 1...4 {
            let fetch = await broker.fetch(number)
            broker.end(fetch, .result(status: 200, response(fetch, 10)))
            let read = await broker.read(number)
            var data = BodyData(read.body, offset: read.offset)
            data.errorCode = "unknown-body"
            broker.send(.bodyData(data))
        }
        guard case .failure(let error as BusError) = await result else {
            Issue.record("a body without bytes was delivered")
            return
        }
        #expect(error.code == .bodyLost)
    }

    @Test func `an error page is read, too`() async throws {
        let broker = try broker()
        let handler = try await broker.connect().handler()
        async let result = Task { try await handler.fetch(url) }.result
        let fetch = await broker.fetch()
        var failure = Terminal.Failure(code: "http-status")
        failure.status = 404
        failure.errorPageResponse = response(fetch, 5)
        broker.end(fetch, .failed(failure))
        await answer(broker, 1, from: [1, 2, 3, 4, 5])
        guard case .failure(let error as BusError) = await result else {
            Issue.record("the request did not fail")
            return
        }
        #expect(try await error.page?.body.bytes() == [1, 2, 3, 4, 5])
    }

    @Test func `a watch and a claim read bodies`() async throws {
        let broker = try broker()
        let bus = try await broker.connect()
        let watch = try await bus.watch("others")
        let fetch = Fetch(handler: HandlerID("others")!, request: RequestID("1")!, url: url)
        broker.end(fetch, .result(status: 200, response(fetch, 4)))
        await answer(broker, 1)
        var results = watch.makeAsyncIterator()
        let ended = try #require(try await results.next())
        #expect(try await ended.result.get().body.bytes() == Array(Self.content[..<4]))
    }

    @Test func `a body that cannot be stored fails with the reason`() throws {
        let file = ReceivedFile(preferredFolder: nil)
        #expect(file.creationErrno == 0)
        #expect(file.write([1, 2, 3], count: 3, at: 0) == 0)
        #expect(try SystemFile.bytes(file.path) == [1, 2, 3])
        let delivery = DeliveredTerminal(
            id: DeliveredTerminal.ID(sessionNumber: 1, sequence: 1), result("1", sequence: 1), of: nil)
        guard
            case .failed(let error) = DeliveredEnding(
                delivery: delivery.withReceivedFile(file, storeFailure: ENOSPC), bodyBytes: [])
        else {
            Issue.record("delivered")
            return
        }
        #expect(error.code == .bodyLost)
        #expect(error.description.contains("No space left"))
    }
}
