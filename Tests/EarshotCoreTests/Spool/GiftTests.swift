import EarshotWire
import Testing

@testable import EarshotCore

/// Ownership of files: given to a single client, or shared.
@Suite struct GiftTests {
    private static let sum = String(repeating: "ab", count: 32)
    private static let url = "http://a.example/x"

    private var rig = CoreRig()
    private let worker: WorkerID

    init() { worker = rig.worker() }

    /// Acts as the shell: a completion with a file, under the name that the core chose.
    @discardableResult
    private mutating func done(
        _ job: Job, status: Int = 200, length: Int = 100_000, fields: String = ""
    ) -> String {
        var completion = Completion(attempt: job.attempt, status: status)
        completion.length = length
        completion.sha256 = Self.sum
        completion.httpFields = Array(fields.utf8)
        let worker = worker
        let file = rig.core.ownName(of: job.attempt, by: worker) ?? Self.sum
        completion.file = file
        rig.pass { $0.core.workerSaid(.done(completion), body: nil, by: worker, now: $0.now) }
        #expect(rig.core.audit() == [])
        return file
    }

    private mutating func ask(
        _ request: String = "1", of handler: String = "h", by client: ClientID, url: String = GiftTests.url,
        _ change: (inout Fetch) -> Void = { _ in }
    ) {
        rig.pass {
            $0.fetch(handler, request, url, by: client) { fetch in
                fetch.options.takes = true
                change(&fetch)
            }
        }
    }

    /// Whether the file in a client's terminal of the last pass is its own; nil if the terminal names no file.
    private func isOwn(_ client: ClientID) -> Bool? {
        for case .client(.deliver(client, let terminal, _)) in rig.actions {
            return terminal.response.flatMap { $0.file == nil ? nil : $0.isYours }
        }
        return nil
    }

    private func releases(_ file: String) -> Bool { rig.actions.contains(.spool(.releaseFile(file))) }

    @Test mutating func `a file that is nobody else's has its own name, is given away, and goes when acknowledged`()
        throws
    {
        let client = rig.client(1)
        ask(by: client)
        let job = try #require(rig.jobs.first)
        let file = done(job)
        #expect(file == "\(job.attempt).taken" && isOwn(client) == true)
        #expect(!releases(file))
        #expect(rig.core.outcomes.spooledBytes == 100_000, "it counts wherever it is")
        rig.pass { $0.say(.acknowledge(1), by: client) }
        #expect(releases(file))
        #expect(rig.core.isIdle)
    }

    @Test(arguments: ["no wish", "in a message", "warm", "own", "with its content's name"])
    func `who has no use for a file, or whose file is as others', is given none`(how: String) throws {
        var test = self
        let client = test.rig.client(1)
        test.ask(by: client) { fetch in
            fetch.options.takes = how != "no wish"
            fetch.options.isWarm = how == "warm"
            if how == "in a message" { fetch.options.delivery = .inline }
        }
        let job = try #require(test.rig.jobs.first)
        let name = test.rig.core.ownName(of: job.attempt, by: test.worker)
        #expect((name == nil) == (how != "own" && how != "with its content's name"))
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.length = 1_000
        completion.sha256 = Self.sum
        completion.file = how == "own" ? name : Self.sum
        test.rig.pass { [worker] in $0.core.workerSaid(.done(completion), body: nil, by: worker, now: $0.now) }
        #expect(test.isOwn(client) ?? false == (how == "own"))
    }

    @Test mutating func `of a body that two wait for nobody gets the file`() throws {
        let clients = [rig.client(1), rig.client(2)]
        ask(by: clients[0])
        let job = try #require(rig.jobs.first)
        ask(of: "other", by: clients[1])
        #expect(done(job) == Self.sum)
        #expect(clients.map(isOwn) == [false, false])
    }

    @Test mutating func `of two of whom one has gone in time the other gets it`() throws {
        let clients = [rig.client(1), rig.client(2)]
        ask(by: clients[0])
        let job = try #require(rig.jobs.first)
        ask(of: "other", by: clients[1])
        rig.pass { $0.remove("h", by: clients[0]) }
        #expect(done(job) != Self.sum)
        #expect(isOwn(clients[1]) == true)
    }

    @Test mutating func `what a second one listens to, or nobody, is given to nobody`() throws {
        let clients = [rig.client(1), rig.client(2)]
        rig.say(.subscribe(.handler(HandlerID("h")!)), by: clients[1])
        ask(by: clients[0])
        #expect(done(try #require(rig.jobs.first)) == Self.sum)
        #expect(clients.map(isOwn) == [false, false])
        ask("2", of: "later", by: clients[0]) { $0.options.subscribes = false }
        done(try #require(rig.jobs.first))
        rig.pass { $0.say(.subscribe(.handler(HandlerID("later")!)), by: clients[1]) }
        #expect(isOwn(clients[1]) == false)
    }

    @Test mutating func `a subscriber who comes between the name and the end makes it a shared one`() throws {
        let clients = [rig.client(1), rig.client(2)]
        ask(by: clients[0])
        let job = try #require(rig.jobs.first)
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.length = 1_000
        completion.sha256 = Self.sum
        completion.file = rig.core.ownName(of: job.attempt, by: worker)
        rig.pass { [worker] rig in
            rig.say(.subscribe(.handler(HandlerID("h")!)), by: clients[1])
            rig.core.workerSaid(.done(completion), body: nil, by: worker, now: rig.now)
        }
        #expect(completion.file != nil && clients.map(isOwn) == [false, false])
    }

    @Test mutating func `who is redirected alone gets it, and who is redirected to another's does not`() throws {
        let clients = [rig.client(1), rig.client(2)]
        ask(by: clients[0])
        done(try #require(rig.jobs.first), status: 302, fields: "location: http://b.example/")
        let hop = try #require(rig.jobs.first)
        var second = self
        done(hop)
        #expect(isOwn(clients[0]) == true)
        second.ask(of: "other", by: clients[1], url: "http://b.example/")
        #expect(second.done(hop) == Self.sum)
        #expect(clients.map(second.isOwn) == [false, false])
    }

    @Test mutating func `an error page is given to nobody`() throws {
        let client = rig.client(1)
        ask(by: client) { $0.options.retries = 0 }
        done(try #require(rig.jobs.first), status: 404)
        #expect(rig.terminals(for: client) == ["h 1 http-status"])
        #expect(isOwn(client) == false)
    }

    @Test mutating func `a durable request's body is the disk's, too`() throws {
        rig.core.facilities.isKeeping = true
        let client = rig.client(1)
        ask(by: client) { $0.options.isDurable = true }
        let kept = rig.actions.compactMap { if case .durable(.store(let id, _, _, _)) = $0 { id } else { nil } }
        let id = try #require(kept.first)
        rig.pass { $0.core.durableStored(id, now: $0.now) }
        #expect(rig.core.ownName(of: try #require(rig.jobs.first).attempt, by: worker) == nil)
    }

    // MARK: The cache

    @Test(arguments: ["etag: \"1\"", "cache-control: no-store"])
    func `what the cache keeps is shared with it, and what it must not keep is given away`(fields: String) throws {
        var test = self
        test.rig.core.facilities.isCaching = true
        let client = test.rig.client(1)
        test.ask(by: client) { $0.options.cache = .reload }
        let file = test.done(try #require(test.rig.jobs.first), fields: fields)
        let stored = test.rig.actions.compactMap {
            if case .cache(.store(_, _, _, let file, _)) = $0 { file } else { nil }
        }
        #expect(stored == (fields.hasPrefix("etag") ? [file] : []))
        #expect(test.isOwn(client) == stored.isEmpty)
    }

    @Test mutating func `what is larger than all that the cache may keep is not for it`() throws {
        rig.core.facilities.isCaching = true
        let client = rig.client(1)
        ask(by: client) { $0.options.cache = .reload }
        done(try #require(rig.jobs.first), length: 1 << 30, fields: "etag: \"1\"")
        #expect(!rig.actions.contains { if case .cache(.store) = $0 { true } else { false } })
        #expect(isOwn(client) == true)
    }

    @Test mutating func `an error page that is kept does not keep the result from being given away`() throws {
        rig.core.facilities.isCaching = true
        let client = rig.client(1)
        ask(by: client) { $0.options.cache = .reload }
        done(try #require(rig.jobs.first), status: 501, fields: "cache-control: max-age=9")
        rig.wait(milliseconds: 5_000)
        guard let again = rig.jobs.first else { return }
        done(again, fields: "cache-control: no-store")
        #expect(isOwn(client) == true)
    }

    // MARK: JOB and PROGRESS

    @Test(arguments: [
        ("take", 32_768), ("file", 0), ("no wish", nil), ("shared", nil), ("cached", nil), ("past the cache", 32_768),
        ("small messages", nil), ("full", nil),
    ])
    func `a body is a file from fewer bytes on where it will be given away`(how: String, bytes: Int?) throws {
        var test = self
        if how == "full" {
            var limits = CoreLimits()
            limits.spoolBytes = 0
            test.rig.core.limitsChanged(limits, now: test.rig.now)
        }
        if how == "small messages" { test.rig.core.workerLimits.inlineBytes = 1_000 }
        test.rig.core.facilities.isCaching = ["cached", "past the cache"].contains(how)
        let client = test.rig.client(1)
        test.rig.pass { rig in
            if how == "shared" { rig.fetch("other", "1", Self.url, by: client) }
            rig.fetch("h", "1", Self.url, by: client) { fetch in
                fetch.options.takes = how != "no wish"
                if how == "file" { fetch.options.delivery = .file }
                fetch.options.cache = how == "cached" ? .reload : .noStore
            }
        }
        let job = try #require(test.rig.jobs.first)
        #expect(job.inlineBytes == bytes)
    }

    @Test mutating func `where a body grows is told once it will not be given away`() throws {
        let clients = [rig.client(1), rig.client(2)]
        ask(by: clients[0]) { $0.options.streams = true }
        let job = try #require(rig.jobs.first)
        let worker = worker
        func grow(_ received: Int, _ rig: inout CoreRig) -> [String?] {
            rig.now = rig.now.advanced(byMilliseconds: 1_000)
            let part = BodyPart(file: "\(worker.rawValue)-\(job.attempt).part", httpFields: [])
            rig.pass {
                $0.core.workerSaid(
                    .progress(job.attempt, received: received, total: 9_000, part: part), body: nil, by: worker,
                    now: $0.now)
            }
            return clients.map { client in
                for case .progress(let progress) in rig.replies(to: client) { return progress.file }
                return nil
            }
        }
        #expect(grow(1_000, &rig) == [nil, nil])
        ask(of: "other", by: clients[1]) { $0.options.streams = true }
        let path = "/spool/" + SpoolName.path("\(worker.rawValue)-\(job.attempt).part")
        #expect(grow(2_000, &rig) == [path, path])
        rig.pass { $0.remove("other", by: clients[1]) }
        #expect(grow(3_000, &rig) == [nil, nil])
        rig.core.facilities.isCaching = true
        #expect(grow(4_000, &rig) == [path, nil], "the cache may come to have it")
    }

    // MARK: Later requests

    @Test mutating func `who asks for the same when another has the file gets a file of its own`() throws {
        let clients = [rig.client(1), rig.client(2)]
        ask(by: clients[0])
        let first = done(try #require(rig.jobs.first))
        ask(by: clients[0])
        #expect(rig.jobs.isEmpty, "it has it")
        ask(by: clients[1])
        #expect(rig.terminals(for: clients[1]).isEmpty)
        let second = done(try #require(rig.jobs.first))
        #expect(second == Self.sum && isOwn(clients[1]) == false, "both listen by now")
        rig.pass { $0.say(.acknowledge(1), by: clients[0]) }
        #expect(releases(first))
        rig.pass { rig in for client in clients { rig.say(.acknowledge(client == clients[0] ? 2 : 1), by: client) } }
        #expect(releases(second) && rig.core.isIdle)
    }

    @Test mutating func `what was given away and waits for a window is given all the same, once`() throws {
        let client = rig.client(1, window: 1)
        ask("1", by: client)
        done(try #require(rig.jobs.first))
        rig.pass { $0.say(.subscribe(.handler(HandlerID("own")!)), by: client) }
        let other = rig.client(2)
        ask("2", of: "own", by: other) { $0.options.subscribes = false }
        let file = done(try #require(rig.jobs.first))
        ask("2", of: "own", by: other)
        #expect(rig.jobs.count == 1, "it is another's")
        rig.pass { $0.say(.acknowledge(1), by: client) }
        #expect(isOwn(client) == true)
        rig.pass { $0.say(.acknowledge(2), by: client) }
        #expect(releases(file))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a session that goes on is told of the same file, and its end releases it`() throws {
        func connect(_ number: UInt64, token: SessionToken?) -> ClientID {
            let id = ClientID(rawValue: number)
            var hello = Hello(client: "c", window: 256)
            hello.leaseMilliseconds = 1_000
            hello.token = token
            rig.connect(id)
            rig.say(.hello(hello), by: id)
            return id
        }
        let first = connect(1, token: nil)
        ask(by: first)
        let file = done(try #require(rig.jobs.first))
        rig.pass { $0.core.clientLost(first, now: $0.now) }
        #expect(!releases(file))
        rig.actions = []
        let second = connect(2, token: CoreRig.token(of: first))
        rig.actions = rig.core.takeActions()
        #expect(isOwn(second) == true)
        rig.pass { $0.core.clientLost(second, now: $0.now) }
        rig.wait(milliseconds: 1_001)
        #expect(releases(file) && rig.core.isIdle)
    }

    @Test mutating func `a client that dies with a file of its own leaves it to be removed`() throws {
        let client = rig.client(1)
        ask(by: client)
        let file = done(try #require(rig.jobs.first))
        rig.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(releases(file) && rig.core.isIdle)
    }

    @Test mutating func `without a window a file can be taken for a minute`() throws {
        let client = rig.client(1, window: nil)
        ask(by: client)
        let file = done(try #require(rig.jobs.first))
        #expect(isOwn(client) == true)
        rig.pass { $0.core.deliveryTaken(1, by: client, now: $0.now) }
        #expect(!releases(file))
        rig.wait(milliseconds: 60_001)
        #expect(releases(file))
    }
}
