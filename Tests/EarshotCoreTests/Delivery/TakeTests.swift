import EarshotWire
import Testing

@testable import EarshotCore

/// TAKE: a file is given away once, to the only session that knows it, and only if it has no other use.
@Suite struct TakeTests {
    private static let sum = String(repeating: "ab", count: 32)
    private static let url = "http://a.example/x"
    private static let path = "/spool/" + sum

    private var rig = CoreRig()
    private let worker: WorkerID

    init() { worker = rig.worker() }

    // MARK: Steps

    private mutating func submit(
        _ request: String = "1", of handler: String = "h", by client: ClientID, url: String = TakeTests.url,
        _ change: (inout Fetch) -> Void = { _ in }
    ) {
        rig.pass { $0.fetch(handler, request, url, by: client, change) }
    }

    /// Ends a job with a file that has the name of its content, as the shell reports it.
    private mutating func done(_ job: Job, status: Int = 200, length: Int = 100_000, fields: String = "") {
        var completion = Completion(attempt: job.attempt, status: status)
        completion.bodyByteCount = length
        completion.sha256 = Self.sum
        completion.httpFields = Array(fields.utf8)
        completion.fileName = Self.sum
        rig.pass { [worker] in
            $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now)
        }
        #expect(rig.core.audit() == [])
    }

    /// Acts as the shell: renames the file that the core names, and passes the message on.
    ///
    /// - Returns: the path in TAKEN, empty without one; the code of an ERROR; nil without an answer.
    private mutating func take(_ sequence: UInt64 = 1, by client: ClientID, isLinked: Bool = false) -> String? {
        rig.pass { rig in
            if let file = rig.core.beginFileTake(sequence, by: client), !isLinked { rig.core.fileTaken(file) }
            rig.send(.takeFile(sequence), by: client)
        }
        #expect(rig.core.audit() == [])
        for message in rig.replies(to: client) {
            if case .fileTaken(sequence, let path) = message { return path ?? "" }
            if case .error(let error) = message { return error.code }
        }
        return nil
    }

    /// Whether TAKE is answered with a new path.
    private mutating func isTaken(_ sequence: UInt64 = 1, by client: ClientID) -> Bool {
        take(sequence, by: client)?.hasSuffix(".taken") ?? false
    }

    private mutating func acknowledge(_ sequence: UInt64 = 1, by client: ClientID) {
        rig.pass { $0.send(.acknowledge(sequence), by: client) }
    }

    /// Files in the terminals that a client got in the last pass.
    private func files(for client: ClientID) -> [String?] {
        rig.actions.compactMap { action -> String?? in
            if case .client(.deliverTerminal(client, let terminal, _)) = action {
                .some(terminal.response?.bodyFilePath)
            } else {
                nil
            }
        }
    }

    private func releases(_ path: String?) -> Bool {
        let name = path?.split(separator: "/").last.map(String.init) ?? ""
        return rig.actions.contains(.spool(.releaseFile(name)))
    }

    private mutating func resumable(_ number: UInt64, resuming other: ClientID? = nil) -> ClientID {
        rig.client(number) { hello in
            hello.leaseMilliseconds = 1_000
            hello.token = other.map(CoreRig.token)
        }
    }

    // MARK: The file of one session

    @Test mutating func `a file that is nobody else's is given away once, and goes when acknowledged`() throws {
        let client = rig.client(1)
        submit(by: client)
        done(try #require(rig.jobs.first))
        #expect(files(for: client) == [Self.path])
        let path = take(by: client)
        #expect(path?.hasPrefix("/spool/0000000000000001.") == true && path?.hasSuffix(".taken") == true)
        #expect(take(by: client) == path, "the same TAKE has the same answer")
        #expect(rig.core.records.outcomes.spooledBytes == 100_000, "it counts wherever it is")
        acknowledge(by: client)
        #expect(releases(path) && rig.core.isIdle)
        #expect(take(by: client) == "unknown-body", "it is acknowledged")
    }

    @Test mutating func `two files have different names`() throws {
        let client = rig.client(1)
        submit("1", by: client)
        done(try #require(rig.jobs.first))
        let first = take(1, by: client)
        submit("2", by: client, url: "http://a.example/y")
        done(try #require(rig.jobs.first))
        #expect(files(for: client) == [Self.path], "the name of the content is free again")
        let second = take(2, by: client)
        #expect(first != second && second?.hasSuffix(".taken") == true)
    }

    @Test mutating func `an error page is given away as a result is`() throws {
        let client = rig.client(1)
        submit(by: client) { $0.options.retries = 0 }
        done(try #require(rig.jobs.first), status: 404)
        #expect(isTaken(by: client) == true)
    }

    @Test mutating func `a redirected request's file is its own, too`() throws {
        let client = rig.client(1)
        submit(by: client)
        rig.pass { [job = rig.jobs[0], worker] in $0.done(job, by: worker, status: 302, fields: "location: http://b/") }
        done(try #require(rig.jobs.first))
        #expect(isTaken(by: client) == true)
    }

    @Test mutating func `the bytes that its only session has read while they grew do not hinder`() throws {
        let clients = [rig.client(1), rig.client(2)]
        let job = try grow(for: clients)
        done(job)
        #expect(isTaken(by: clients[0]) == true)
    }

    @Test mutating func `the owner of a taken file gets the terminal of another client's later request, too`() throws {
        let (owner, other) = (rig.client(1), rig.client(2))
        submit(by: owner)
        done(try #require(rig.jobs.first))
        let path = try #require(take(by: owner))
        #expect(path.hasSuffix(".taken"))
        // The same handler, ID and URL: a new request, since no other client may get the file.
        submit(by: other)
        done(try #require(rig.jobs.first))
        #expect(files(for: other) == [Self.path])
        #expect(files(for: owner) == [Self.path], "it is subscribed to the handler")
        acknowledge(2, by: owner)
        acknowledge(1, by: other)
        #expect(rig.core.isIdle)
    }

    // MARK: Files with another use

    @Test mutating func `a file with a second link is refused, also the second time`() throws {
        let client = rig.client(1)
        submit(by: client)
        done(try #require(rig.jobs.first))
        #expect(take(by: client, isLinked: true) == "")
        #expect(take(by: client) == "")
        acknowledge(by: client)
        #expect(releases(Self.path) && rig.core.isIdle)
    }

    @Test mutating func `a file that two got is given to neither, also when one has acknowledged it`() throws {
        let clients = [rig.client(1), rig.client(2)]
        submit(by: clients[0])
        let job = try #require(rig.jobs.first)
        submit(of: "other", by: clients[1])
        done(job)
        #expect(take(by: clients[0]) == "")
        acknowledge(by: clients[0])
        #expect(take(by: clients[1]) == "")
    }

    @Test mutating func `a second subscriber got it, too`() throws {
        let clients = [rig.client(1), rig.client(2)]
        rig.send(.subscribe(.handler(HandlerID("h")!)), by: clients[1])
        submit(by: clients[0])
        done(try #require(rig.jobs.first))
        #expect(clients.map { files(for: $0) } == [[Self.path], [Self.path]])
        #expect(take(by: clients[0]) == "")
    }

    @Test mutating func `a terminal that waits for a window refers to it, and none that was withdrawn`() throws {
        let (client, slow) = (rig.client(1), rig.client(2, window: 1))
        submit("0", of: "first", by: slow, url: "http://b.example/")
        rig.pass { [job = rig.jobs[0], worker] in $0.done(job, by: worker) }
        submit(by: client)
        let job = try #require(rig.jobs.first)
        rig.pass { $0.fetch("other", "1", Self.url, by: slow) { $0.options.subscribes = false } }
        rig.pass { $0.send(.subscribe(.handler(HandlerID("other")!)), by: slow) }
        done(job)
        #expect(files(for: slow) == [])
        var other = self
        #expect(take(by: client) == "")
        other.rig.pass { $0.remove("other", by: slow) }
        #expect(other.isTaken(by: client) == true, "the other one was never told")
    }

    @Test mutating func `a result that waits for a subscriber refers to it`() throws {
        let client = rig.client(1)
        submit(by: client)
        let job = try #require(rig.jobs.first)
        submit(of: "later", by: client) { $0.options.subscribes = false }
        done(job)
        #expect(take(by: client) == "")
    }

    @Test mutating func `a warm request refers to it`() throws {
        let client = rig.client(1)
        rig.pass { rig in
            for (id, isWarm) in [("1", false), ("2", true)] {
                rig.fetch("h", id, Self.url, by: client) { $0.options.isCacheWarming = isWarm }
            }
        }
        for job in rig.jobs { done(job) }
        #expect(take(by: client) == "")
    }

    /// Lets a body grow that one client of several streams, and returns its job.
    private mutating func grow(for clients: [ClientID], streaming second: Bool = false) throws -> Job {
        submit(by: clients[0]) { $0.options.streams = true }
        let job = try #require(rig.jobs.first)
        if second {
            submit(of: "other", by: clients[1]) { $0.options.streams = true }
        }
        rig.now = rig.now.advanced(byMilliseconds: 1_000)
        let part = BodyPart(fileName: "\(worker.rawValue)-\(job.attempt).part", httpFields: [])
        rig.pass { [worker] in
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: 5, total: 9, part: part), body: nil, from: worker, now: $0.now)
        }
        return job
    }

    @Test mutating func `a reader of the growing file may still have it open`() throws {
        let clients = [rig.client(1), rig.client(2)]
        let job = try grow(for: clients, streaming: true)
        rig.pass { $0.remove("other", by: clients[1]) }
        done(job)
        #expect(take(by: clients[0]) == "")
    }

    @Test(arguments: [false, true])
    mutating func `a part that an earlier session knows is not given away`(isKnown: Bool) throws {
        let client = rig.client(1)
        submit(by: client)
        let job = try #require(rig.jobs.first)
        let part = PartDescription(
            validator: "\"a\"", totalBytes: nil, httpFields: Array("etag: \"a\"".utf8), generation: job.attempt,
            isKnownToClient: isKnown)
        rig.core.storedPartFound(part, bytes: 50_000, for: job.attempt, by: worker)
        done(job)
        #expect(isTaken(by: client) == !isKnown)
    }

    @Test mutating func `the description of a growing file tells later brokers that a session knows it`() throws {
        rig.core.shellFeatures.isKeepingParts = true
        submit(by: rig.client(1)) { $0.options.streams = true }
        let job = try #require(rig.jobs.first)
        let part = BodyPart(fileName: "\(worker.rawValue)-\(job.attempt).part", httpFields: Array("etag: \"a\"".utf8))
        let recorded = (2...4).map { mebibytes in
            rig.now = rig.now.advanced(byMilliseconds: 1_000)
            rig.pass { [worker] in
                $0.core.workerMessageReceived(
                    .progress(job.attempt, received: mebibytes << 20, total: nil, part: part), body: nil, from: worker,
                    now: $0.now)
            }
            return rig.recorded.map(\.part.isKnownToClient)
        }
        #expect(recorded == [[false], [true], []])
    }

    @Test mutating func `a subscriber that is away while the file grows does not learn of it`() throws {
        let (client, other) = (rig.client(1), resumable(2))
        rig.send(.subscribe(.handler(HandlerID("h")!)), by: other)
        rig.pass { $0.core.clientLost(other, now: $0.now) }
        // Its lease ends in the pass after the progress.
        done(try grow(for: [client]))
        #expect(isTaken(by: client) == true)
    }

    @Test mutating func `a session that has ended may still have it open`() throws {
        let clients = [rig.client(1), rig.client(2)]
        submit(by: clients[0])
        done(try #require(rig.jobs.first))
        submit(by: clients[1])
        #expect(files(for: clients[1]) == [Self.path], "the repetition gets it")
        rig.pass { $0.core.clientLost(clients[0], now: $0.now) }
        #expect(take(by: clients[1]) == "")
    }

    @Test mutating func `equal content of two fetches has one name, so neither is given away`() throws {
        let clients = [rig.client(1), rig.client(2)]
        submit(by: clients[0])
        done(try #require(rig.jobs.first))
        submit(of: "other", by: clients[1], url: "http://b.example/")
        done(try #require(rig.jobs.first))
        for client in clients { #expect(take(by: client) == "") }
    }

    @Test(arguments: ["etag: \"1\"", "cache-control: no-store"])
    func `the cache has what it keeps, and not what it must not keep`(fields: String) throws {
        var test = self
        test.rig.core.shellFeatures.isCaching = true
        let client = test.rig.client(1)
        test.submit(by: client) { $0.options.cacheMode = .reload }
        test.done(try #require(test.rig.jobs.first), fields: fields)
        let path = test.take(by: client)
        #expect((path == "") == fields.hasPrefix("etag"))
    }

    @Test mutating func `a durable request's file is the disk's, too`() throws {
        rig.core.shellFeatures.isStoringDurableRequests = true
        let client = rig.client(1)
        submit(by: client) { $0.options.isDurable = true }
        let kept = rig.actions.compactMap { if case .durable(.storeRequest(let id, _, _, _)) = $0 { id } else { nil } }
        let id = try #require(kept.first)
        rig.pass { $0.core.durableRequestStored(id, now: $0.now) }
        done(try #require(rig.jobs.first))
        rig.pass { $0.core.durableOutcomeWritten(id, isStored: true, now: $0.now) }
        #expect(files(for: client) == [Self.path])
        #expect(take(by: client) == "")
    }

    @Test mutating func `a path that is no operand is not told`() throws {
        rig.core.records.workerLimits.spoolPath = "/my  spool"
        let client = rig.client(1)
        submit(by: client)
        done(try #require(rig.jobs.first))
        #expect(take(by: client) == "")
    }

    // MARK: Terminals without a file

    @Test mutating func `a body in a message, a failure and another's terminal are no files`() throws {
        let clients = [rig.client(1), rig.client(2)]
        submit(by: clients[0])
        rig.pass { [job = rig.jobs[0], worker] in $0.done(job, by: worker) }
        #expect(take(1, by: clients[0]) == "unknown-body", "in a message")
        submit("2", by: clients[0], url: "ftp://a/")
        #expect(take(2, by: clients[0]) == "unknown-body", "a failure")
        submit("3", by: clients[0], url: "http://b.example/")
        done(try #require(rig.jobs.first))
        #expect(take(3, by: clients[1]) == "unknown-body", "another's sequence number")
        #expect(take(4, by: clients[0]) == "unknown-body", "not sent yet")
        #expect(take(.max, by: clients[0]) == "unknown-body")
        #expect(isTaken(3, by: clients[0]) == true)
    }

    @Test mutating func `a file that is sent in the message is no file`() throws {
        let client = rig.client(1)
        submit(by: client) { $0.options.delivery = .inline }
        done(try #require(rig.jobs.first), length: 1_000)
        #expect(take(by: client) == "unknown-body")
    }

    @Test mutating func `a session without paths is given none`() throws {
        let client = rig.client(1) { $0.pullsBodies = true }
        submit(by: client)
        done(try #require(rig.jobs.first))
        #expect(take(by: client) == "unknown-body")
    }

    // MARK: Later messages

    @Test mutating func `a repetition by another gets a fetch and a file of its own`() throws {
        let clients = [rig.client(1), rig.client(2)]
        submit(by: clients[0])
        done(try #require(rig.jobs.first))
        let path = take(by: clients[0])
        submit(by: clients[0])
        #expect(rig.jobs.isEmpty, "it has it")
        submit(by: clients[1])
        #expect(files(for: clients[1]).isEmpty)
        done(try #require(rig.jobs.first))
        #expect(files(for: clients[1]) == [Self.path])
        acknowledge(by: clients[0])
        #expect(releases(path))
        rig.pass { rig in for client in clients { rig.send(.acknowledge(client == clients[0] ? 2 : 1), by: client) } }
        #expect(releases(Self.path) && rig.core.isIdle)
    }

    @Test mutating func `a session that goes on is told the new name, and its end releases it`() throws {
        let first = resumable(1)
        submit(by: first)
        done(try #require(rig.jobs.first))
        let path = take(by: first)
        rig.pass { $0.core.clientLost(first, now: $0.now) }
        #expect(!releases(path))
        rig.actions = []
        let second = resumable(2, resuming: first)
        rig.actions = rig.takeActions()
        #expect(files(for: second) == [path])
        #expect(take(by: second) == path)
        rig.pass { $0.core.clientLost(second, now: $0.now) }
        rig.wait(milliseconds: 1_001)
        #expect(releases(path) && rig.core.isIdle)
    }

    @Test mutating func `the answer is kept for the next connection, after the answers before it`() throws {
        let first = resumable(1)
        submit(by: first)
        done(try #require(rig.jobs.first))
        rig.send(.query(.ping), number: 2, by: first)
        rig.pass { rig in
            if let file = rig.core.beginFileTake(1, by: first) { rig.core.fileTaken(file) }
            rig.send(.takeFile(1), number: 3, by: first)
        }
        let answers = rig.answers(to: first)
        #expect(answers.count == 1)
        rig.pass { $0.core.clientLost(first, now: $0.now) }
        rig.actions = []
        let second = rig.client(2) { hello in
            hello.leaseMilliseconds = 1_000
            hello.token = CoreRig.token(of: first)
            hello.firstUnansweredNumber = 3
        }
        rig.actions = rig.takeActions()
        #expect(rig.answers(to: second) == answers)
    }

    @Test mutating func `a client that dies with a file of its own leaves it to be removed`() throws {
        let client = rig.client(1)
        submit(by: client)
        done(try #require(rig.jobs.first))
        let path = take(by: client)
        rig.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(releases(path) && rig.core.isIdle)
    }
}
