import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Forms of a shared body that requests demand, and PROGRESS that a socket refused.
@Suite struct BodyFormTests {
    var rig = CoreRig()
    private static let sum = String(repeating: "ab", count: 32)

    /// The form of the body in a client's only terminal of the last pass.
    private func form(for client: ClientID) -> String? {
        for case .client(.deliverTerminal(client, let terminal, let body)) in rig.actions {
            guard case .result(_, let response) = terminal.outcome else {
                guard case .failed(let failure) = terminal.outcome else { return nil }
                return failure.code
            }
            guard let file = response.bodyFilePath else { return body == nil ? nil : "inline" }
            #expect(body == nil)
            return response.isInline ? "from \(file)" : file
        }
        return nil
    }

    /// Submits three requests with different forms and a streaming one for the same URL, and returns their job.
    private mutating func submit() -> (WorkerID, [ClientID], Job) {
        let worker = rig.worker()
        let clients = (1...4).map { rig.client($0) }
        rig.pass { rig in
            for (client, form) in zip(clients, [BodyDelivery.auto, .inline, .file, .auto]) {
                rig.fetch("h\(client.rawValue)", "1", "http://1/", by: client) { fetch in
                    fetch.options.delivery = form
                    fetch.options.streams = client.rawValue == 4
                }
            }
        }
        return (worker, clients, rig.jobs[0])
    }

    /// Ends the job with a body of some bytes, in a file or in memory.
    private mutating func end(_ job: Job, by worker: WorkerID, isFile: Bool, length: Int = 3, status: Int = 200) {
        var completion = Completion(attempt: job.attempt, status: status)
        completion.bodyByteCount = length
        completion.sha256 = Self.sum
        completion.fileName = isFile ? Self.sum : nil
        let body = isFile ? nil : BodyID(rawValue: 1)
        rig.pass { $0.core.workerMessageReceived(.completed(completion), body: body, from: worker, now: $0.now) }
        #expect(rig.core.audit() == [])
    }

    private var written: [Action] {
        rig.actions.filter { if case .spool(.writeBody) = $0 { true } else { false } }
    }

    @Test mutating func `of a body in memory a file is written before the terminal of who demands it`() throws {
        let (worker, clients, job) = submit()
        end(job, by: worker, isFile: false)
        #expect(clients.map(form) == ["inline", "inline", "/spool/\(Self.sum)", "inline"])
        #expect(written == [.spool(.writeBody(BodyID(rawValue: 1), file: Self.sum))])
        let write = try #require(rig.actions.firstIndex(of: written[0]))
        let delivery = rig.actions.firstIndex {
            if case .client(.deliverTerminal(clients[2], _, _)) = $0 { true } else { false }
        }
        #expect(write < delivery ?? 0)
        #expect(rig.core.records.outcomes.spooledBytes == 3)
        rig.pass { rig in for client in clients { rig.send(.acknowledge(1), by: client) } }
        #expect(rig.releasedBodies == 1)
        #expect(rig.actions.contains(.spool(.releaseFile(Self.sum))))
        #expect(rig.core.isIdle)
    }

    @Test mutating func `of a body in a file a message is made for who demands it`() {
        let (worker, clients, job) = submit()
        end(job, by: worker, isFile: true)
        let path = "/spool/\(Self.sum)"
        #expect(clients.map(form) == [path, "from \(path)", path, path])
        #expect(written == [])
    }

    @Test mutating func `one file is written for all`() {
        let worker = rig.worker()
        let clients = (1...3).map { rig.client($0) }
        rig.pass { rig in
            for client in clients {
                rig.fetch("h\(client.rawValue)", "1", "http://1/", by: client) { $0.options.delivery = .file }
            }
        }
        end(rig.jobs[0], by: worker, isFile: false)
        #expect(written.count == 1)
        #expect(clients.allSatisfy { form(for: $0) == "/spool/\(Self.sum)" })
        rig.pass { rig in for client in clients { rig.send(.acknowledge(1), by: client) } }
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a file for which the spool has no room fails for those alone who demand it`() {
        var limits = CoreLimits()
        limits.maximumSpoolBytes = 2
        rig.core.limitsChanged(limits, now: rig.now)
        let (worker, clients, job) = submit()
        end(job, by: worker, isFile: false)
        #expect(clients.map(form) == ["inline", "inline", "spool-full", "inline"])
        #expect(written == [])
        #expect(rig.core.ledger.requests.failed == ["spool-full": 1])
    }

    @Test mutating func `a terminal whose file could not be written is a failure`() throws {
        let (worker, clients, job) = submit()
        end(job, by: worker, isFile: false)
        for case .client(.deliverTerminal(clients[2], let terminal, _)) in rig.actions {
            let other = terminal.replacedByFailure(.spoolFull)
            guard case .failed(let failure) = other.outcome else {
                Issue.record("it is a result")
                return
            }
            #expect(failure.code == "spool-full" && failure.attempts == 1 && failure.url == terminal.response?.url)
            #expect(other.sequence == 1 && other.request == terminal.request)
        }
    }

    @Test mutating func `what is too large for a message is too large for who demands one`() {
        let (worker, clients, job) = submit()
        #expect(job.maximumBodyBytes == nil, "the others take all of it")
        end(job, by: worker, isFile: true, length: 65_537)
        #expect(clients.map(form) == ["/spool/\(Self.sum)", "too-large", "/spool/\(Self.sum)", "/spool/\(Self.sum)"])
    }

    @Test mutating func `a transfer that is wanted in a message alone ends where that does`() {
        _ = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: client) { $0.options.delivery = .inline } }
        #expect(rig.jobs[0].maximumBodyBytes == 65_536)
    }

    @Test mutating func `a result that waited for its subscriber has the form that was demanded`() {
        let (worker, client) = (rig.worker(), rig.client(1))
        rig.pass { rig in
            rig.fetch("h", "1", "http://1/", by: client) { fetch in
                fetch.options.delivery = .file
                fetch.options.subscribes = false
            }
        }
        end(rig.jobs[0], by: worker, isFile: false)
        #expect(written.count == 1)
        rig.pass { $0.send(.subscribe(.handler(HandlerID("h")!)), by: client) }
        #expect(form(for: client) == "/spool/\(Self.sum)")
    }

    @Test mutating func `progress that a socket did not take is told when it does, as it is then`() {
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: client) { $0.options.progressIntervalMilliseconds = 50 } }
        let job = rig.jobs[0]
        rig.pass {
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: 5, total: 9), body: nil, from: worker, now: $0.now)
        }
        #expect(rig.replies(to: client).count == 1)
        rig.core.socketRefusedProgress(HandlerID("h")!, RequestID("1")!, by: client)
        rig.pass {
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: 7, total: 9), body: nil, from: worker, now: $0.now)
        }
        #expect(rig.replies(to: client).isEmpty, "it comes too soon after the first")
        rig.pass { $0.core.clientSocketWritable(client) }
        guard case .progress(let progress)? = rig.replies(to: client).first else {
            Issue.record("no progress")
            return
        }
        #expect(progress.receivedBytes == 7)
        rig.pass { $0.core.clientSocketWritable(client) }
        #expect(rig.replies(to: client).isEmpty, "it is told once")
        rig.core.socketRefusedProgress(HandlerID("h")!, RequestID("1")!, by: client)
        rig.pass { $0.remove("h", by: client) }
        rig.pass { $0.core.clientSocketWritable(client) }
        #expect(rig.replies(to: client).isEmpty, "of what was removed nothing is told")
    }

    @Test mutating func `a transfer that brings something each time is not waited for longer and longer`() {
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: client) { $0.options.retries = 20 } }
        var job = rig.jobs[0]
        func fail(_ received: Int) -> Int {
            rig.pass {
                $0.core.workerMessageReceived(
                    .failed(job.attempt, code: "reset", detail: nil, receivedBytes: received), body: nil, from: worker,
                    now: $0.now)
            }
            var waited = 0
            while rig.jobs.isEmpty {
                rig.wait(milliseconds: 5)
                waited += 5
            }
            job = rig.jobs[0]
            return waited
        }
        for attempt in 1...10 { #expect(fail(attempt * 100) <= 255) }
        #expect(fail(1000) <= 505)
        #expect(fail(10) > 250)
        #expect(fail(1000) > 500)
        #expect(fail(1001) <= 255)
    }
}
