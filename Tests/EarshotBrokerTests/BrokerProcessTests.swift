import EarshotCore
import EarshotLoop
import EarshotWire
import Foundation
import Logging
import Testing

@testable import EarshotBroker

/// The broker's shell over real sockets: messages, files, settings and shutdown.
struct BrokerProcessTests {
    private static let url = "http://a.example/x"
    private static let sum = String(repeating: "ab", count: 32)

    /// Returns the completion of a job with the body `text` and the SHA-256 `sum`.
    private static func done(_ job: Job, _ text: String = "", file: String? = nil) -> Completion {
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.bodyByteCount = text.utf8.count
        completion.sha256 = sum
        completion.fileName = file
        return completion
    }

    /// Returns a client, a worker, and the job of the client's request.
    private func fetching(
        _ rig: BrokerRig, _ change: (inout Fetch) -> Void = { _ in }
    ) throws -> (client: BrokerRig.Client, worker: BrokerRig.FakeWorker, job: Job) {
        let (client, worker) = (try rig.client(), try rig.worker())
        try client.fetch("1", Self.url, change)
        try #require(try rig.reaches { worker.jobs.count == 1 })
        return (client, worker, worker.jobs[0].job)
    }

    @Test func `a request becomes a job, and its result reaches the client with its body`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        #expect(job.url == Self.url)
        worker.send(.completed(Self.done(job, "hello")), Array("hello".utf8))
        #expect(try rig.reaches { client.ends == ["200"] })
        #expect(client.terminals[0].body == Array("hello".utf8))
        #expect(rig.spool.isEmpty)
        client.acknowledge()
        #expect(try rig.reaches { rig.broker.bodies.isEmpty })
    }

    @Test func `the body of a request reaches the worker`() throws {
        let rig = try BrokerRig()
        let (client, worker) = (try rig.client(), try rig.worker())
        try client.fetch("1", Self.url) { fetch in
            fetch.options.method = "POST"
            fetch.options.coalesces = false
            fetch.body = Array("name=value".utf8)
        }
        #expect(try rig.reaches { worker.jobs.count == 1 })
        #expect(worker.jobs[0].job.method == "POST")
        #expect(worker.jobs[0].body == Array("name=value".utf8))
    }

    @Test func `a client that is gone cancels its transfers`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        rig.drop(client)
        #expect(try rig.reaches { worker.messages.contains(.cancelAttempt(job.attempt)) })
    }

    @Test func `bytes that are no message are answered with an error, and the connection stands`() throws {
        let rig = try BrokerRig()
        let client = try rig.client()
        client.send(head: Array("NONSENSE".utf8))
        #expect(try rig.reaches { client.messages.count == 2 })
        guard case .error(let reply) = client.messages[1] else {
            Issue.record("\(client.messages[1]) is not an error")
            return
        }
        #expect(reply.code == "unknown-verb")
        client.send(.query(.status))
        #expect(try rig.reaches { client.messages.last == .queryAnswer(.status) })
    }

    // MARK: Workers in sandboxes

    @Test func `a process in a sandbox is one worker`() throws {
        let rig = try BrokerRig()
        let worker = try rig.worker()
        var parts = SandboxParts()
        parts.filtersSystemCalls = true
        worker.send(.sandbox(parts))
        #expect(
            try rig.reaches {
                rig.broker.workerPort.admission.barredProcesses.containsLiveProcess(
                    pid: ProcessInfo.processInfo.processIdentifier)
            })
        let second = try rig.unready()
        #expect(try rig.reaches { second.isEnded })
        #expect(second.messages.isEmpty)
        worker.send(.slots(3))
        #expect(try rig.reaches { rig.broker.core.acceptingWorkerCount == 1 })
    }

    @Test func `a worker in a sandbox serves no further schemes, also with a later broker`() throws {
        let rig = try BrokerRig { $0.workerPids = [ProcessInfo.processInfo.processIdentifier] }
        let worker = try rig.unready()
        try #require(try rig.reaches { worker.isOpen })
        var ready = Ready(slots: 1)
        ready.schemes = ["gpu"]
        worker.send(.ready(ready))
        #expect(try rig.reaches { worker.isEnded })
        #expect(worker.messages.isEmpty)
        let usual = try rig.worker()
        #expect(!usual.messages.isEmpty)
    }

    // MARK: Files

    @Test func `a worker's file gets the name of its content, and goes with the acknowledgement`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        try rig.write("hello", rig.part(of: job))
        worker.send(.completed(Self.done(job, "hello", file: rig.part(of: job))))
        #expect(try rig.reaches { client.ends == ["200"] })
        #expect(client.terminals[0].terminal.response?.bodyFilePath == "\(rig.folder)/spool/\(Self.sum)")
        #expect(rig.spool == [Self.sum])
        client.acknowledge()
        #expect(try rig.reaches { rig.spool.isEmpty })
    }

    /// One write takes all parts of a pass, so no event reports room for the next one.
    @Test func `more READs than the unsent bytes permit are answered without another event`() throws {
        let rig = try BrokerRig()
        let client = try rig.client {
            $0.window = 8
            $0.pullsBodies = true
        }
        let worker = try rig.worker()
        let (count, bytes) = (4, WireLimits.dataBytes)
        let text = String(repeating: "x", count: count * bytes)
        try client.fetch("1", Self.url)
        try #require(try rig.reaches { worker.jobs.count == 1 })
        let job = worker.jobs[0].job
        try rig.write(text, rig.part(of: job))
        worker.send(.completed(Self.done(job, text, file: rig.part(of: job))))
        try #require(try rig.reaches { client.ends == ["200"] })
        // A timer wakes the broker, too: the READs must be answered before it is due.
        var due = Int64.max
        try #require(
            try rig.reaches {
                due = rig.broker.core.nextTimer?.nanoseconds ?? .max
                return due - rig.broker.loop.now.nanoseconds > 3_000_000_000
            })
        // The kernel takes several parts. A client that reads would wake the broker, because they share the loop.
        client.isReading = false
        let taken = rig.broker.clientPort.processedMessageCount
        client.send(
            together: (0..<count).map { .readBody(BodyRead(.terminal(1), offset: $0 * bytes, maximumBytes: bytes)) })
        #expect(
            try rig.reaches {
                rig.broker.clientPort.processedMessageCount == taken + count && rig.broker.refusingClients.isEmpty
            })
        #expect(rig.broker.loop.now.nanoseconds < due)
        client.isReading = true
        #expect(try rig.reaches { client.parts == count })
    }

    @Test(arguments: [false, true]) func `a client owns a file that has no other link`(isLinked: Bool) throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        try rig.write("hello", rig.part(of: job))
        worker.send(.completed(Self.done(job, "hello", file: rig.part(of: job))))
        #expect(try rig.reaches { client.ends == ["200"] })
        let path = try #require(client.terminals[0].terminal.response?.bodyFilePath)
        if isLinked { try FileManager.default.linkItem(atPath: path, toPath: path + ".link") }
        client.send(.takeFile(1))
        client.send(.query(.ping))
        #expect(try rig.reaches { client.messages.last == .queryAnswer(.ping) })
        guard case .fileTaken(1, let taken) = client.messages[client.messages.count - 2] else {
            Issue.record("TAKE has no answer before the next one's")
            return
        }
        #expect((taken == nil) == isLinked)
        #expect(FileManager.default.fileExists(atPath: path) == isLinked)
        if let taken { #expect(try String(contentsOfFile: taken, encoding: .utf8) == "hello") }
        client.send(.acknowledge(1))
        #expect(try rig.reaches { rig.spool.allSatisfy { $0.hasSuffix(".link") } })
    }

    @Test func `a file of another length than its DONE says is a failure`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        try rig.write("hell", rig.part(of: job))
        worker.send(.completed(Self.done(job, "hello", file: rig.part(of: job))))
        #expect(try rig.reaches { client.ends == ["internal"] })
    }

    @Test(arguments: [Array("hello".utf8), nil]) func `lengths of no body end their attempts alone`(
        body: [UInt8]?
    ) throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        try client.fetch("2", Self.url + "y")
        try #require(try rig.reaches { worker.jobs.count == 2 })
        for job in [job, worker.jobs[1].job] {
            var completion = Self.done(job)
            completion.bodyByteCount = WireLimits.responseBodyBytes
            worker.send(.completed(completion), body)
        }
        #expect(try rig.reaches { client.ends == ["internal", "internal"] })
        client.send(.query(.status))
        #expect(try rig.reaches { client.messages.last == .queryAnswer(.status) })
    }

    @Test func `a file that is not the worker's is a failure, and stays as it is`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        try rig.write("hello", "precious")
        worker.send(.completed(Self.done(job, "hello", file: "precious")))
        #expect(try rig.reaches { client.ends == ["internal"] })
        #expect(rig.spool == ["precious"])
    }

    @Test func `the file of an attempt that nobody waits for is removed`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        var other = job
        other.attempt.flight += 1
        try rig.write("hello", rig.part(of: other))
        worker.send(.completed(Self.done(other, "hello", file: rig.part(of: other))))
        #expect(try rig.reaches { rig.spool.isEmpty })
        worker.send(.completed(Self.done(job)))
        #expect(try rig.reaches { client.ends == ["200"] })
    }

    @Test func `the file of a cancelled attempt is removed`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        client.send(.removeRequest(try #require(HandlerID("app/list")), try #require(RequestID("1"))))
        #expect(try rig.reaches { worker.messages.contains(.cancelAttempt(job.attempt)) })
        try rig.write("hello", rig.part(of: job))
        worker.send(.completed(Self.done(job, "hello", file: rig.part(of: job))))
        #expect(try rig.reaches { rig.spool.isEmpty })
    }

    @Test func `a client that wants a file gets one of a body that came in a message`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig) { $0.options.delivery = .file }
        var done = Self.done(job, "hello")
        done.sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        worker.send(.completed(done), Array("hello".utf8))
        #expect(try rig.reaches { client.ends == ["200"] })
        let file = try #require(client.terminals[0].terminal.response?.bodyFilePath)
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "hello")
        #expect(client.terminals[0].body == nil)
    }

    @Test func `a file is not written under a digest that a worker has invented`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig) { $0.options.delivery = .file }
        worker.send(.completed(Self.done(job, "hello")), Array("hello".utf8))
        #expect(try rig.reaches { client.ends == ["spool-full"] })
    }

    @Test func `a client that wants a message gets one of a body that came as a file`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig) { $0.options.delivery = .inline }
        try rig.write("hello", rig.part(of: job))
        worker.send(.completed(Self.done(job, "hello", file: rig.part(of: job))))
        #expect(try rig.reaches { client.ends == ["200"] })
        #expect(
            client.terminals[0].body == Array("hello".utf8)
                && client.terminals[0].terminal.response?.bodyFilePath == nil)
        client.send(.acknowledge(1))
        #expect(try rig.reaches { rig.spool.isEmpty })
    }

    @Test func `a file lost with its folder is a failure of the spool, and the folder is made again`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        try FileManager.default.removeItem(atPath: rig.folder + "/spool")
        worker.send(.completed(Self.done(job, "hello", file: rig.part(of: job))))
        #expect(try rig.reaches { client.ends == ["spool-failed"] })
        #expect(FileManager.default.fileExists(atPath: rig.folder + "/spool/broker.lock"))
        #expect(rig.broker.core.pathFaults.map(\.pathRole) == ["spool"])
    }

    // MARK: Stores

    @Test func `an answer of the cache needs no worker`() throws {
        let rig = try BrokerRig { $0.cacheFolder = $0.runtimeFolder + "-cache" }
        let (client, worker, job) = try fetching(rig)
        var completion = Self.done(job, "hello")
        completion.httpFields = Array("cache-control: max-age=600".utf8)
        worker.send(.completed(completion), Array("hello".utf8))
        #expect(try rig.reaches { client.ends == ["200"] })
        try client.fetch("2", Self.url)
        #expect(try rig.reaches { client.ends == ["200", "200"] })
        #expect(client.terminals[1].terminal.response?.source == .cache)
        #expect(client.terminals[1].body == Array("hello".utf8))
        #expect(worker.jobs.count == 1)
        rig.broker.finish()
    }

    @Test func `a durable request and its result outlive the broker`() throws {
        let folder = try BrokerRig.Folder()
        let handler = try #require(HandlerID("app/list"))
        let request = try #require(RequestID("1"))
        do {
            let first = try BrokerRig(in: folder) { $0.durableFolder = $0.runtimeFolder + "-durable" }
            let client = try first.client()
            try client.fetch("1", Self.url) { $0.options.isDurable = true }
            #expect(try first.reaches { client.messages.contains(.fetchAccepted(handler, request)) })
            first.broker.drain("test")
            #expect(try first.ends())
            first.broker.finish()
        }
        let second = try BrokerRig(in: folder) { $0.durableFolder = $0.runtimeFolder + "-durable" }
        #expect(second.broker.core.isLoadingDurables, "it serves before it has loaded the request")
        let (client, worker) = (try second.client(), try second.worker())
        client.send(together: [.removeRequest(handler, try #require(RequestID("9"))), .query(.ping)])
        #expect(try second.reaches { client.messages.contains(.queryAnswer(.ping)) })
        #expect(!second.broker.core.isLoadingDurables, "a message that waits holds those behind it")
        #expect(try second.reaches { worker.jobs.count == 1 })
        worker.send(.completed(Self.done(worker.jobs[0].job, "hello")), Array("hello".utf8))
        client.send(.subscribe(.handler(handler)))
        #expect(try second.reaches { client.ends == ["200"] })
        #expect(client.terminals[0].terminal.isDurable)
        #expect(client.terminals[0].body == Array("hello".utf8))
        second.broker.finish()
    }

    // MARK: Settings and the end

    @Test func `a setting of a client reaches the supervisor, and the supervisor's settings apply`() throws {
        let ends = try LineChannel.makePair()
        let rig = try BrokerRig { $0.supervisorDescriptor = ends.child }
        var lines: [String] = []
        let supervisor = try LineChannel(ends.own, loop: rig.broker.loop) { lines.append($0) }
        let client = try rig.client()
        client.send(.changeSetting(try #require(SettingWords(["origin-limit", "3"]))))
        #expect(try rig.reaches { lines.contains("origin-limit 3") })
        var settings = Settings()
        try settings.applyChange(try SettingChange(words: ["origin-limit", "5"]), source: "flag")
        supervisor.send(settings.supervisorLines + [Settings.endOfSettingsLine])
        #expect(try rig.reaches { lines.contains(Settings.confirmationLine) })
        #expect(rig.broker.core.limits.originRules.defaultMaximumTransfers == 5)
    }

    @Test func `the broker knows a gateway's process before it accepts a connection of it`() throws {
        let ends = try LineChannel.makePair()
        let rig = try BrokerRig { $0.supervisorDescriptor = ends.child }
        let supervisor = try LineChannel(ends.own, loop: rig.broker.loop) { _ in }
        let local = try rig.client()
        #expect(local.messages.contains { if case .welcome = $0 { true } else { false } })
        let proof = try #require(GatewayProof(String(repeating: "0a", count: 32)))
        // This process is the gateway from here on. The broker reads the lines before it accepts the next connection.
        supervisor.send([
            "\(SupervisorCommand.gatewayProof) \(proof)",
            "\(SupervisorCommand.gatewayProcessID) \(ProcessInfo.processInfo.processIdentifier)",
        ])
        let laptop = try #require(PrincipalName("key:laptop"))
        for (name, proof, isOpen) in [(nil, nil, false), (laptop, nil, false), (laptop, proof, true)] {
            let client = try rig.client { ($0.principal, $0.proof) = (name, proof) }
            #expect(client.messages.contains { if case .welcome = $0 { true } else { false } } == isOpen)
        }
        let worker = try rig.worker(schemes: ["x"])
        #expect(worker.messages.contains { if case .error("not-authorized", _) = $0 { true } else { false } })
    }

    @Test func `the supervisor hears how many workers there are`() throws {
        let ends = try LineChannel.makePair()
        let rig = try BrokerRig { $0.supervisorDescriptor = ends.child }
        var lines: [String] = []
        let supervisor = try LineChannel(ends.own, loop: rig.broker.loop) { lines.append($0) }
        let worker = try rig.worker()
        #expect(try rig.reaches { lines == ["\(SupervisorCommand.readyWorkerCount) 1"] })
        worker.send(.bye)
        #expect(try rig.reaches { lines.last == "\(SupervisorCommand.readyWorkerCount) 0" })
        withExtendedLifetime(supervisor) {}
    }

    @Test func `a broker that drains finishes its transfers, says goodbye and stops`() throws {
        let rig = try BrokerRig()
        let (client, worker, job) = try fetching(rig)
        rig.broker.drain("test")
        #expect(try rig.reaches { client.messages.contains { if case .goodbye = $0 { true } else { false } } })
        worker.send(.completed(Self.done(job, "hello")), Array("hello".utf8))
        #expect(try rig.reaches { client.ends == ["200"] })
        client.acknowledge()
        #expect(try rig.ends())
        #expect(rig.broker.core.isDrained)
    }

    @Test func `the second drain stops the loop at once`() throws {
        let rig = try BrokerRig()
        let (_, _, job) = try fetching(rig)
        rig.broker.drain("test")
        rig.broker.loop.setTimer(after: .zero) { rig.broker.drain("test") }
        #expect(try rig.ends())
        #expect(rig.broker.core.isAttemptRunning(job.attempt))
    }

    @Test func `a second broker in a folder is refused`() throws {
        let folder = try BrokerRig.Folder()
        let rig = try BrokerRig(in: folder)
        #expect(throws: BrokerError.self) { try BrokerRig(in: folder) }
        let client = try rig.client()
        #expect(!client.isEnded)
    }

    @Test func `a path that is too long for a socket is refused with the limit`() throws {
        let name = String(repeating: "n", count: 100)
        let error = #expect(throws: BrokerError.self) {
            try BrokerRig { $0.runtimeFolder += "-" + name }
        }
        #expect(error?.description.contains("107 bytes") == true)
    }
}
