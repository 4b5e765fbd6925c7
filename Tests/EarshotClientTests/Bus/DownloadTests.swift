import EarshotWire
import Glibc
import Testing

@testable import EarshotClient

/// Bodies read while they arrive.
@Suite(.timeLimit(.minutes(10))) struct DownloadTests {
    private let url = "http://127.0.0.1/a"

    private func progress(
        _ fetch: Fetch, _ received: Int, of total: Int? = nil, _ file: String? = nil, _ generation: String? = nil
    ) -> BrokerMessage {
        var progress = Progress(
            handler: fetch.handler, request: fetch.request, receivedBytes: received, totalBytes: total)
        progress.filePath = file
        progress.generation = generation.flatMap { Generation($0) }
        return .progress(progress)
    }

    @Test func `a body is read from its file while it grows, whatever the file's name becomes`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        #expect(fetch.options.streams)
        let file = broker.file("part", [1, 2, 3, 4])
        // Reading stops at the announced count.
        broker.send(progress(fetch, 3, of: 6, file, "1.1"))
        var pieces = download.pieces.makeAsyncIterator()
        #expect(try await pieces.next() == .bytes([1, 2, 3]))
        broker.append([5, 6], to: file)
        unsafe rename(file, file + "-2")
        broker.send(progress(fetch, 5, of: 6, file + "-other", "1.1"))
        #expect(try await pieces.next() == .bytes([4, 5]))
        broker.answer(fetch, file: file + "-2", length: 6, generation: "1.1")
        #expect(try await pieces.next() == .bytes([6]))
        #expect(try await pieces.next() == nil)
        #expect(try await download.response().body.bytes() == [1, 2, 3, 4, 5, 6])
        // A second reader starts at the first byte.
        var again = download.pieces.makeAsyncIterator()
        #expect(try await again.next() == .bytes([1, 2, 3, 4, 5, 6]))
    }

    @Test func `another version is told of, and never put behind the first`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        broker.send(progress(fetch, 2, of: nil, broker.file("first", [1, 2]), "1.1"))
        var pieces = download.pieces.makeAsyncIterator()
        #expect(try await pieces.next() == .bytes([1, 2]))
        broker.send(progress(fetch, 1, of: nil, broker.file("second", [7, 8]), "1.2"))
        #expect(try await pieces.next() == .restarted)
        #expect(try await pieces.next() == .bytes([7]))
        // The ending has a third generation, which no progress report announced.
        broker.answer(fetch, file: broker.file("third", [9]), length: 1, generation: "1.3")
        #expect(try await pieces.next() == .restarted)
        #expect(try await pieces.next() == .bytes([9]))
        #expect(try await pieces.next() == nil)
    }

    @Test(arguments: [true, false])
    func `a body that grew in a file and comes inline goes on where it is the same`(isSame: Bool) async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        broker.send(progress(fetch, 2, of: 3, broker.file("part", [1, 2]), "1.1"))
        var pieces = download.pieces.makeAsyncIterator()
        #expect(try await pieces.next() == .bytes([1, 2]))
        broker.answer(fetch, isSame ? [1, 2, 3] : [1, 7, 3])
        if !isSame { #expect(try await pieces.next() == .restarted) }
        #expect(try await pieces.next() == .bytes(isSame ? [3] : [1, 7, 3]))
        #expect(try await pieces.next() == nil)
    }

    @Test func `a body that comes inline is a piece`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        await broker.answer(broker.fetch(), [1, 2])
        var pieces: [DownloadPiece] = []
        for try await piece in download.pieces { pieces.append(piece) }
        #expect(pieces == [.bytes([1, 2])])
    }

    @Test func `progress is told, the last of it to who is slow, and ends with the download`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        var reported = download.progress.makeAsyncIterator()
        broker.send(progress(fetch, 1, of: 9))
        #expect(await reported.next() == DownloadProgress(received: 1, total: 9))
        for count in 2...5 { broker.send(progress(fetch, count, of: 9)) }
        broker.answer(fetch, [1, 2])
        _ = try await download.response()
        #expect(await reported.next() == DownloadProgress(received: 2, total: 2))
        #expect(await reported.next() == nil)
    }

    @Test @MainActor func `a piece that is being read when its handler is removed does not come`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        broker.send(progress(fetch, 2, of: 9, broker.file("part", [1, 2]), "1.1"))
        while download.state.versionedValue.version == 0 { await download.state.changed(since: 0) }
        // The main actor runs this while the piece is read on another thread.
        let removal = Task { @MainActor in handler.remove() }
        var pieces = download.pieces.makeAsyncIterator()
        do {
            let piece = try await pieces.next(isolation: #isolation)
            Issue.record("there came \(String(describing: piece))")
        } catch {
            #expect((error as? BusError)?.code == .removed)
        }
        await removal.value
    }

    @Test func `no progress is told after a removal`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        broker.send(progress(fetch, 1, of: 9))
        while download.state.versionedValue.version == 0 { await download.state.changed(since: 0) }
        var reported = download.progress.makeAsyncIterator()
        handler.remove()
        #expect(await reported.next() == nil)
    }

    @Test func `who waits hears of a failure`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let reader = Task { for try await _ in download.pieces {} }
        let watcher = Task { for await _ in download.progress {} }
        await broker.end(broker.fetch(), .failed(Terminal.Failure(code: "reset")))
        #expect(await #expect(throws: BusError.self) { try await reader.value }?.isRetryable == true)
        await #expect(throws: BusError.self) { try await download.response() }
        await watcher.value
    }

    @Test func `a download that nobody holds is cancelled`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        var download: Download? = try handler.download(url)
        let fetch = await broker.fetch()
        var pieces: DownloadPieces? = download?.pieces
        download = nil
        #expect(!broker.sent.versionedValue.value.contains(.removeRequest(fetch.handler, fetch.request)))
        #expect(pieces != nil)
        pieces = nil
        await broker.awaitMessage(.removeRequest(fetch.handler, fetch.request))
        #expect(await handler.bus.tableSizes().requests == 0)
    }

    @Test func `a reader whose task is cancelled ends, and the download goes on`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let download = try handler.download(url)
        let fetch = await broker.fetch()
        let reader = Task { for try await _ in download.pieces {} }
        reader.cancel()
        await #expect(throws: CancellationError.self) { try await reader.value }
        broker.answer(fetch, [1])
        #expect(try await download.response().body.bytes() == [1])
    }

    @Test func `a removed handler ends its downloads, the finished ones too`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let done = try handler.download(url)
        await broker.answer(broker.fetch(1), [1])
        _ = try await done.response()
        let open = try handler.download(url + "2")
        _ = await broker.fetch(2)
        handler.remove()
        for download in [done, open] {
            var pieces = download.pieces.makeAsyncIterator()
            let error = await #expect(throws: BusError.self) { try await pieces.next() }
            #expect(error?.code == .removed)
        }
    }
}
