import EarshotLoop
import EarshotWire
import Glibc
import Testing

@testable import EarshotClient

/// The library over a scripted broker: responses, failures, cancellation and handlers.
@Suite(.timeLimit(.minutes(10))) struct BusTests {
    private let url = "http://127.0.0.1/a"

    @Test func `a response has its status, URL, fields and body, and is acknowledged`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let handler = try bus.handler(named: "page/1")
        var options = FetchOptions()
        options.fields = [HeaderField("accept", "text/*"), HeaderField("x-b", "2")]
        options.deadline = .milliseconds(1500)
        let fetched = Task { try await handler.fetch(url, priority: .high, options) }
        let fetch = await broker.fetch()
        #expect(fetch.handler.description == "page/1")
        #expect(fetch.options.priority == .high)
        #expect(fetch.options.deadlineMilliseconds == 1500)
        #expect(fetch.httpFields == Array("accept: text/*\nx-b: 2".utf8))
        broker.answer(fetch, [1, 2, 3])
        let response = try await fetched.value
        #expect(response.status == 200)
        #expect(response.url == url)
        #expect(response.fields["Content-Type"] == "text/plain")
        #expect(response.fields.values("x-a") == ["1", "2"])
        #expect(response.fields.count == 3)
        #expect(try await response.body.bytes() == [1, 2, 3])
        #expect(response.body.path == nil)
        await broker.awaitMessage(.acknowledge(1))
    }

    /// Sends two requests from one actor, each in a task.
    private actor Requester {
        func submit(_ handler: Handler, _ urls: (String, String)) -> [Task<Response, any Error>] {
            [urls.0, urls.1].map { url in Task.immediate { try await fetch(handler, url) } }
        }

        private func fetch(_ handler: Handler, _ url: String) async throws -> Response {
            try await handler.fetch(url)
        }
    }

    @Test func `what an actor's tasks fetch is asked for in their order`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let requester = Requester()
        // Idle threads would have to wake for a request that does not start immediately.
        for round in 1...200 {
            let urls = ("http://127.0.0.1/\(round)/1", "http://127.0.0.1/\(round)/2")
            let tasks = await requester.submit(handler, urls)
            _ = await broker.fetch(2 * round)
            #expect(broker.fetches.suffix(2).map(\.url) == [urls.0, urls.1])
            for task in tasks { task.cancel() }
        }
    }

    @Test(.timeLimit(.minutes(3))) func `the end of one of very many handlers costs no look at what the others want`()
        async throws
    {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        // A search of all handlers for each removal would take minutes.
        let handlers = (0..<20_000).map { _ in bus.handler() }
        for replaces in [false, true] {
            for handler in handlers { try handler.fetch(url, replaces: replaces, onMain: { _ in }) }
        }
        while await bus.tableSizes().requests < handlers.count { await Task.yield() }
        for handler in handlers { handler.remove() }
        while await bus.tableSizes() != BusTableSizes() { await Task.yield() }
    }

    @Test func `an error page is an error, with its status and its page`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let fetched = Task { try await handler.fetch(url) }
        var failure = Terminal.Failure(code: "http-status")
        failure.status = 503
        failure.errorPageResponse = Terminal.Response(url: url)
        failure.errorPageResponse?.bodyByteCount = 2
        await broker.end(broker.fetch(), .failed(failure), [7, 8])
        let error = await #expect(throws: BusError.self) { try await fetched.value }
        #expect(error?.code == .httpStatus)
        #expect(error?.status == 503)
        #expect(error?.isRetryable == true)
        #expect(try await error?.page?.body.bytes() == [7, 8])
    }

    @Test func `a code of a later version is a failure that is not retryable`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let fetched = Task { try await handler.fetch(url) }
        await broker.end(broker.fetch(), .failed(Terminal.Failure(code: "novel")))
        let error = await #expect(throws: BusError.self) { try await fetched.value }
        #expect(error?.code == BusError.Code("novel"))
        #expect(error?.isRetryable == false)
    }

    @Test func `a cancelled task removes its request, and one cancelled before sends nothing`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let task = Task { try await handler.fetch(url) }
        let fetch = await broker.fetch()
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        await broker.awaitMessage(.removeRequest(fetch.handler, fetch.request))
        // This answer concerns the request before the cancellation.
        broker.answer(fetch)

        let late = Task { [url] in
            unsafe withUnsafeCurrentTask { unsafe $0?.cancel() }
            return try await handler.fetch(url)
        }
        await #expect(throws: CancellationError.self) { try await late.value }
        #expect(broker.fetches.count == 1)
        #expect(await handler.bus.tableSizes() == BusTableSizes(handlers: 1, handlerNames: 1))
    }

    @Test func `a removed handler ends what is awaited, and takes nothing more`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let fetched = Task { try await handler.fetch(url) }
        let fetch = await broker.fetch()
        handler.remove()
        let error = await #expect(throws: BusError.self) { try await fetched.value }
        #expect(error?.code == .removed)
        await broker.awaitMessage(.removeHandlers(.handler(fetch.handler)))
        await #expect(throws: BusError.self) { try await handler.fetch(url) }
        #expect(throws: BusError.self) { try handler.download(url) }
        #expect(await handler.bus.tableSizes() == BusTableSizes())
    }

    @Test func `a handler that goes is removed, and one that asked for nothing is not told of`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        var handler: Handler? = bus.handler()
        let name = try #require(HandlerID(handler?.name ?? ""))
        try handler?.fetch(url, onMain: { _ in Issue.record("it was delivered") })
        _ = bus.handler()
        _ = await broker.fetch()
        handler = nil
        await broker.awaitMessage(.removeHandlers(.handler(name)))
        #expect(await bus.tableSizes() == BusTableSizes())
        let removals = broker.sent.versionedValue.value.filter { if case .removeHandlers = $0 { true } else { false } }
        #expect(removals.count == 1)
    }

    @Test func `a replaced request ends, and its successor purges the handler`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let first = Task { try await handler.fetch(url) }
        _ = await broker.fetch(1)
        let second = Task { try await handler.replace(with: url + "2") }
        let error = await #expect(throws: BusError.self) { try await first.value }
        #expect(error?.code == .replaced)
        let fetch = await broker.fetch(2)
        #expect(fetch.options.replacesHandler)
        broker.answer(fetch, [2])
        #expect(try await second.value.body.bytes() == [2])
    }

    @Test func `a replacement that is cancelled before it was said replaces all the same`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let first = Task { try await handler.fetch(url) }
        let firstFetch = await broker.fetch(1)
        let fetch = Fetch(handler: firstFetch.handler, request: RequestID("second")!, url: url)
        let second = Request(RequestKey(fetch), handler.state, handler.bus.commands)
        second.cancel()
        try second.send(Shared(fetch), .function { _ in }, replaces: true)
        #expect(await #expect(throws: BusError.self) { try await first.value }?.code == .replaced)
        await broker.awaitMessage(.removeRequest(firstFetch.handler, firstFetch.request))
        #expect(broker.fetches.count == 1)
    }

    @Test(arguments: ["http://127.0.0.1/\u{7f}", "http://127.0.0.1/" + String(repeating: "a", count: 8_192)])
    func `a replacement that cannot be said replaces nothing`(bad: String) async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let first = Task { try await handler.fetch(url) }
        let fetch = await broker.fetch()
        let error = await #expect(throws: BusError.self) { try await handler.replace(with: bad) }
        #expect(error?.code == .invalidRequest)
        broker.answer(fetch)
        #expect(try await first.value.status == 200)
    }

    @Test func `a file that is gone is asked for again, and purges nothing that came after it`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let first = Task { try await handler.replace(with: url) }
        let fetch = await broker.fetch(1)
        let second = Task { try await handler.fetch(url + "2") }
        let secondFetch = await broker.fetch(2)
        broker.answer(fetch, file: "\(broker.folder.path)/none", length: 3)
        let again = await broker.fetch(3)
        #expect(again.request == fetch.request)
        #expect(!again.options.replacesHandler)
        #expect(!broker.sent.versionedValue.value.contains(.removeHandlers(.handler(fetch.handler))))
        broker.answer(again)
        broker.answer(secondFetch)
        #expect(try await first.value.status == 200)
        #expect(try await second.value.status == 200)
    }

    @Test func `handlers of one name hold what is theirs, and the last removes the name`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let old = try bus.handler(named: "cell/1")
        let new = try bus.handler(named: "cell/1")
        let first = Task { try await old.fetch(url) }
        let firstFetch = await broker.fetch(1)
        let second = Task { try await new.fetch(url + "2") }
        let secondFetch = await broker.fetch(2)
        let third = Task { try await new.replace(with: url + "3") }
        await broker.awaitMessage(.removeRequest(secondFetch.handler, secondFetch.request))
        let thirdFetch = await broker.fetch(3)
        #expect(!thirdFetch.options.replacesHandler)
        #expect(await #expect(throws: BusError.self) { try await second.value }?.code == .replaced)
        old.remove()
        await broker.awaitMessage(.removeRequest(firstFetch.handler, firstFetch.request))
        #expect(await #expect(throws: BusError.self) { try await first.value }?.code == .removed)
        broker.answer(thirdFetch)
        #expect(try await third.value.status == 200)
        new.remove()
        await broker.awaitMessage(.removeHandlers(.handler(firstFetch.handler)))
    }

    @Test func `a file is acknowledged at once and can be read as long as its response is held`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let content = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 / 7) }
        let file = broker.file("body", content)
        do {
            let fetched = Task { try await handler.fetch(url) }
            await broker.answer(broker.fetch(), file: file, length: content.count)
            let response = try await fetched.value
            await broker.awaitMessage(.acknowledge(1))
            unsafe unlink(file)
            #expect(response.body.count == content.count)
            let whole = try await response.body.bytes()
            #expect(whole == content)
            var pieces: [[UInt8]] = []
            for try await piece in response.body.pieces { pieces.append(piece) }
            #expect(pieces.map(\.count) == [131_072, 131_072, 37_856])
            #expect(pieces.joined().elementsEqual(content))
            let seenByOthers = try SystemFile.bytes(try #require(response.body.path))
            #expect(seenByOthers == content)
            #expect(SystemFile.isOpen(file))
        }
        #expect(!SystemFile.isOpen(file))
    }

    @Test func `a file that is gone is asked for again, and the caller does not notice`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let fetched = Task { try await handler.fetch(url) }
        let fetch = await broker.fetch(1)
        broker.answer(fetch, file: "\(broker.folder.path)/none", length: 3)
        #expect(await broker.fetch(2) == fetch)
        broker.answer(fetch, [1, 2, 3])
        #expect(try await fetched.value.body.bytes() == [1, 2, 3])
    }

    @Test func `what the broker refuses fails, and a late priority harms nothing`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let fetched = Task { try await handler.fetch(url) }
        let fetch = await broker.fetch()
        handler.setPriority(.low)
        await broker.awaitMessage(.setPriority(fetch.handler, fetch.request, .low))
        broker.refuse(.setPriority(fetch.handler, fetch.request, .low), ErrorReply(code: "unknown-request"))
        broker.refuse(.fetch(fetch), ErrorReply(code: "id-in-use", detail: "choose another"))
        let error = await #expect(throws: BusError.self) { try await fetched.value }
        #expect(error?.code.name == "id-in-use")
        #expect(error?.description == "Choose another.")
    }

    @Test(arguments: [
        "http://b\u{fc}cher.example/", "http://127.0.0.1/\u{e4}?\u{1f600}", "http://bu\u{308}cher.example/",
    ])
    func `a URL need not be ASCII, and reaches the broker unchanged`(url: String) async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        var options = FetchOptions()
        options.deadline = .seconds(20)
        for (number, options) in [FetchOptions(), options].enumerated() {
            let download = try handler.download(url, options)
            #expect(Array(await broker.fetch(number + 1).url.utf8) == Array(url.utf8))
            download.cancel()
        }
    }

    @Test(arguments: ["", "http://127.0.0.1/a b", "http://127.0.0.1/\nreplace: yes", "http://127.0.0.1/\u{7f}"])
    func `what is no URL is refused`(url: String) async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let error = await #expect(throws: BusError.self) { try await handler.fetch(url) }
        #expect(error?.code == .invalidRequest)
        #expect(broker.fetches.isEmpty)
    }

    @Test func `the longest request that can be said can still replace, and change its class`() throws {
        var options = FetchOptions()
        func request(_ bytes: Int) throws -> Fetch {
            options.fields = [HeaderField("a", String(repeating: "b", count: bytes))]
            return try options.makeFetch(key("1"), url: url, priority: .normal, streams: true)
        }
        var (longest, refused) = (65_200, WireLimits.headBytes)
        while refused - longest > 1 {
            let middle = (longest + refused) / 2
            if (try? request(middle)) != nil { longest = middle } else { refused = middle }
        }
        var fetch = try request(longest)
        (fetch.options.replacesHandler, fetch.options.priority) = (true, .background)
        let head = ClientMessage.fetch(fetch).encoded()
        // A refusal of a longer head could not name the request.
        #expect(head.count <= WireLimits.headBytes)
        #expect(head.count > WireLimits.headBytes - 64)
    }

    @Test func `an option cannot say more than it is`() async throws {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        let handler = bus.handler()
        let changes: [(inout FetchOptions) -> Void] = [
            { $0.fields = [HeaderField("a", "1\nb: 2")] }, { $0.fields = [HeaderField("a: 1\nb", "2")] },
            { $0.fields = [HeaderField("", "2")] }, { $0.retries = 21 },
            { $0.method = "GET\nwarm: yes" }, { $0.timeout = .zero }, { $0.deadline = .seconds(86_401) },
            { $0.maximumBytes = -1 }, { $0.digest = "A" }, { $0.proxy = "ftp://a" }, { $0.clientKey = "relative" },
            { $0.body = [UInt8](repeating: 0, count: 4 << 20 + 1) },
        ]
        for change in changes {
            var options = FetchOptions()
            change(&options)
            let error = await #expect(throws: BusError.self) { try await handler.fetch(url, options) }
            #expect(error?.code == .invalidRequest)
        }
        for name in ["", "/", "a//b", "a b", "a/"] {
            #expect(throws: BusError.self) { try bus.handler(named: name) }
        }
        #expect(broker.fetches.isEmpty)
    }
}
