import EarshotWire
import Testing

/// Every typed message survives the wire unchanged.
struct RoundTripTests {
    private let handler = HandlerID("gallery/42")!
    private let request = RequestID("7")!
    private let attempt = AttemptID(broker: BrokerInstance(rawValue: 0xfeed), flight: 12, attempt: 3)

    @Test func `every client message decodes to what was encoded`() throws {
        var fetch = Fetch(handler: handler, request: request, url: "https://example.org/a.png")
        fetch.options.priority = .high
        fetch.options.method = "HEAD"
        fetch.options.timeoutMilliseconds = 1_250
        fetch.options.deadlineMilliseconds = 9_000
        fetch.options.maximumBodyBytes = 1 << 40
        fetch.options.redirectMode = .manual
        fetch.options.retries = 0
        fetch.options.progressIntervalMilliseconds = 100
        fetch.options.streams = true
        fetch.options.expectedSHA256 = String(repeating: "0a", count: 32)
        fetch.options.replacesHandler = true
        fetch.options.isCacheWarming = true
        fetch.options.subscribes = false
        fetch.httpFields = Array("accept: image/*\nx-a: b".utf8)
        var hello = Hello()
        hello.principal = PrincipalName("key:laptop")
        hello.proof = GatewayProof(String(repeating: "0123456789abcdef", count: 4))
        let messages: [ClientMessage] = [
            .hello(hello), .hello(Hello(window: 10)), .hello(Hello()),
            .fetch(fetch), .fetch(Fetch(handler: handler, request: request, url: "http://a/")),
            .retry(handler, request), .removeHandlers(.handler(handler)), .removeHandlers(.subtree(handler)),
            .removeRequest(handler, request),
            .subscribe(.subtree(handler)), .unsubscribe(.handler(handler)), .setPriority(handler, request, .background),
            .acknowledge(.max), .query(.ping), .query(.handlers, QueryPage(cursor: "a/b", limit: 10)),
            .query(.requests, QueryPage(cursor: "7", limit: 1, handler: .subtree(handler), state: .backingOff)),
            .query(.requests), .query(.handlers, QueryPage(handler: .handler(handler))),
            .query(.status), .query(.ledger), .query(.handlers), .query(.origins),
            .query(.workers), .query(.settings), .query(.explainRequest(handler, request)), .bye,
            .changeSetting(try #require(SettingWords(["origin", "*.example.org", "limit=2"]))),
        ]
        for message in messages {
            #expect(try ClientMessage(head: message.encoded()) == message)
        }
    }

    @Test func `every broker message decodes to what was encoded`() throws {
        var response = Terminal.Response(url: "http://a/b")
        response.source = .sharedFlight
        response.bodyByteCount = 12
        response.sha256 = String(repeating: "ab", count: 32)
        response.bodyFilePath = "/spool/with a space/x"
        response.queuedMilliseconds = 1
        response.elapsedMilliseconds = 2
        response.attempts = 3
        response.httpFields = Array("etag: \"x\"".utf8)
        var resumed = response
        resumed.source = .resumed
        resumed.resumedBytes = 12
        var failure = Terminal.Failure(code: "http-status", detail: "The server answered 404.")
        failure.status = 404
        failure.errorPageResponse = response
        failure.attempts = 3
        let error = ErrorReply(code: "id-in-use", detail: "Choose another.")
        var refused = BodyData(.terminal(3), offset: 7)
        (refused.errorCode, refused.detail) = ("unknown-body", "The file is missing.")
        var resumable = Progress(handler: handler, request: request, receivedBytes: 1, totalBytes: 2)
        resumable.isResumable = true
        func terminal(_ outcome: Terminal.Outcome) -> BrokerMessage {
            .terminal(Terminal(handler: handler, request: request, sequence: 9, outcome: outcome))
        }
        let messages: [BrokerMessage] = [
            .welcome(Welcome(broker: attempt.broker, window: 256)),
            terminal(.result(status: 200, response)), terminal(.result(status: 200, resumed)),
            terminal(.failed(failure)), terminal(.failed(Terminal.Failure(code: "removed"))),
            .progress(Progress(handler: handler, request: request, receivedBytes: 1, totalBytes: nil)),
            .progress(Progress(handler: handler, request: request, receivedBytes: 1, totalBytes: 2)),
            .progress(resumable), .handlersRemoved(.subtree(handler), count: 3),
            .requestRemoved(handler, request, wasOpen: true),
            .fetchAccepted(handler, request), .queryAnswer(.explainRequest(handler, request)),
            .error(error), .bodyData(refused), .goodbye(reason: "draining"), .queryAnswer(.settings),
            .settingChanged(try #require(SettingWords(["slots", "3"]))),
        ]
        for message in messages {
            #expect(try BrokerMessage(head: message.encoded()) == message)
        }
    }

    @Test func `every message between broker and worker decodes to what was encoded`() throws {
        var ready = Ready(slots: 64)
        ready.pid = 4711
        ready.supervisorSecret = "00ff"
        var completion = Completion(attempt: attempt, status: 301)
        completion.bodyByteCount = 5
        completion.sha256 = String(repeating: "00", count: 32)
        completion.fileName = "1-2.part"
        completion.elapsedMilliseconds = 7
        completion.httpFields = Array("location: /b".utf8)
        let up: [WorkerMessage] = [
            .ready(ready), .completed(completion), .failed(attempt, code: "reset", detail: "Gone.", receivedBytes: 3),
            .progress(attempt, received: 1, total: nil), .progress(attempt, received: 1, total: 2), .slots(3), .pong,
            .progress(
                attempt, received: 2, total: 2,
                part: BodyPart(fileName: "1-2.part", httpFields: Array("etag: \"x\"".utf8)),
                checkpoint: Checkpoint(byteCount: 2, sha256: String(repeating: "0f", count: 32))),
            .bye,
        ]
        for message in up {
            #expect(try WorkerMessage(head: message.encoded()) == message)
        }
        var limits = WorkerLimits(broker: attempt.broker, spoolPath: "/s p")
        limits.maximumInlineBodyBytes = 0
        limits.slots = 12
        limits.logLevel = LogSeverity.debug.index
        var job = Job(attempt: attempt, url: "http://a/")
        job.method = "HEAD"
        job.timeoutMilliseconds = 1
        job.connectTimeoutMilliseconds = 10
        job.maximumBodyBytes = 0
        job.progressIntervalMilliseconds = 50
        job.resume = Job.Resume(
            availableBytes: 5, totalBytes: nil, validator: "\"x\"", sha256: String(repeating: "0f", count: 32))
        job.httpFields = Array("a: b".utf8)
        let down: [PoolMessage] = [
            .limits(limits), .job(job), .raiseBodyLimit(attempt, maximumBodyBytes: 9),
            .raiseBodyLimit(attempt, maximumBodyBytes: nil),
            .cancelAttempt(attempt),
            .ping, .drain, .error(code: "not-a-child", detail: "No."),
        ]
        for message in down {
            #expect(try PoolMessage(head: message.encoded()) == message)
        }
    }

    @Test func `words that cannot stand on a line are no setting`() {
        for words in [[], ["slots"], ["slots", ""], ["slots", "1 2"], ["a", "\n"], Array(repeating: "a", count: 9)] {
            #expect(SettingWords(words) == nil)
        }
    }

    @Test func `a failure's part has no status, since it can be resumed`() throws {
        let head = Array("FAILED \(attempt) reset\nfile: 9-\(attempt).part\nstatus: 500\n\netag: \"a\"".utf8)
        let message = try WorkerMessage(head: head)
        guard case .failed(_, _, _, _, _, let part?, _, _) = message else {
            Issue.record("no part")
            return
        }
        #expect(part == BodyPart(fileName: "9-\(attempt).part", httpFields: Array("etag: \"a\"".utf8)))
        #expect(try WorkerMessage(head: message.encoded()) == message)
    }
}
