import EarshotWire
import Testing

@testable import EarshotCore

/// Forms of a shared body for each request, and PROGRESS that a socket refused.
@Suite struct BodyFormTests {
    var rig = CoreRig()
    private static let sum = String(repeating: "ab", count: 32)

    /// The form of the body in a client's only terminal of the last pass.
    private func form(for client: ClientID) -> String? {
        for case .client(.deliver(client, let terminal, let body)) in rig.actions {
            guard case .result(_, let response) = terminal.outcome else {
                guard case .failed(let failure) = terminal.outcome else { return nil }
                return failure.code
            }
            return [response.file, body.map { _ in "inline" }].compactMap(\.self).joined(separator: " and ")
        }
        return nil
    }

    /// Submits three requests with different forms and a streaming one for the same URL, and returns their job.
    private mutating func ask(_ length: Int = 3) -> (WorkerID, [ClientID], Job) {
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

    private static func completion(_ job: Job, file: String?, length: Int = 3) -> WorkerMessage {
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.length = length
        completion.sha256 = sum
        completion.file = file
        return .done(completion)
    }

    @Test mutating func `of a body in both forms each gets the one that it wants`() {
        let (worker, clients, job) = ask()
        #expect(rig.core.wishes(of: job.attempt, by: worker) == BodyWishes(file: true, inlineBytes: 65_536))
        rig.pass {
            $0.core.workerSaid(Self.completion(job, file: Self.sum), body: BodyID(rawValue: 1), by: worker, now: $0.now)
        }
        #expect(clients.map(form) == ["inline", "inline", "/spool/\(Self.sum)", "/spool/\(Self.sum)"])
        rig.pass { rig in for client in clients { rig.say(.acknowledge(1), by: client) } }
        #expect(rig.releasedBodies == 1)
        #expect(rig.actions.contains(.spool(.releaseFile(Self.sum))))
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a form that could not be made fails for those alone who want it`() {
        let (worker, clients, job) = ask()
        var other = self
        rig.pass {
            $0.core.workerSaid(Self.completion(job, file: nil), body: BodyID(rawValue: 1), by: worker, now: $0.now)
        }
        #expect(clients.map(form) == ["inline", "inline", "spool-full", "inline"])
        other.rig.pass { $0.core.workerSaid(Self.completion(job, file: Self.sum), body: nil, by: worker, now: $0.now) }
        #expect(
            clients.map(other.form) == ["/spool/\(Self.sum)", "internal", "/spool/\(Self.sum)", "/spool/\(Self.sum)"])
    }

    @Test mutating func `a copy for which the spool has no room fails for those alone who want it`() {
        var limits = CoreLimits()
        limits.spoolBytes = 2
        rig.core.limitsChanged(limits, now: rig.now)
        let (worker, clients, job) = ask()
        rig.pass {
            $0.core.workerSaid(Self.completion(job, file: Self.sum), body: BodyID(rawValue: 1), by: worker, now: $0.now)
        }
        #expect(clients.map(form) == ["inline", "inline", "spool-full", "inline"])
        #expect(rig.actions.contains(.spool(.releaseFile(Self.sum))))
    }

    @Test mutating func `what is too large for a message is too large for who wants one`() {
        let (worker, clients, job) = ask()
        #expect(job.maxBytes == nil, "the others want all of it")
        rig.pass {
            $0.core.workerSaid(Self.completion(job, file: Self.sum, length: 65_537), body: nil, by: worker, now: $0.now)
        }
        #expect(clients.map(form) == ["/spool/\(Self.sum)", "too-large", "/spool/\(Self.sum)", "/spool/\(Self.sum)"])
    }

    @Test mutating func `a transfer that is wanted in a message alone ends where that does`() {
        _ = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: client) { $0.options.delivery = .inline } }
        #expect(rig.jobs[0].maxBytes == 65_536)
    }

    @Test mutating func `a wish goes with a redirect, and is heard of those who join behind it`() {
        let worker = rig.worker()
        let clients = (1...2).map { rig.client($0) }
        rig.pass { $0.fetch("h", "1", "http://1/", by: clients[0]) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 302, fields: "location: http://2/") }
        let hop = rig.jobs[0]
        #expect(rig.core.wishes(of: hop.attempt, by: worker) == BodyWishes())
        rig.pass { $0.fetch("h", "2", "http://1/", by: clients[1]) { $0.options.delivery = .file } }
        #expect(rig.core.wishes(of: hop.attempt, by: worker).file)
        #expect(!rig.core.wishes(of: job.attempt, by: worker).file, "an attempt that has ended")
        #expect(!rig.core.wishes(of: hop.attempt, by: rig.worker(2)).file, "another's attempt")
    }

    @Test mutating func `progress that a socket did not take is told when it does, as it is then`() {
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: client) { $0.options.progressMilliseconds = 50 } }
        let job = rig.jobs[0]
        rig.pass {
            $0.core.workerSaid(.progress(job.attempt, received: 5, total: 9), body: nil, by: worker, now: $0.now)
        }
        #expect(rig.replies(to: client).count == 1)
        rig.core.progressRefused(HandlerID("h")!, RequestID("1")!, by: client)
        rig.pass {
            $0.core.workerSaid(.progress(job.attempt, received: 7, total: 9), body: nil, by: worker, now: $0.now)
        }
        #expect(rig.replies(to: client).isEmpty, "it comes too soon after the first")
        rig.pass { $0.core.clientWritable(client) }
        guard case .progress(let progress)? = rig.replies(to: client).first else {
            Issue.record("no progress")
            return
        }
        #expect(progress.received == 7)
        rig.pass { $0.core.clientWritable(client) }
        #expect(rig.replies(to: client).isEmpty, "it is told once")
        rig.core.progressRefused(HandlerID("h")!, RequestID("1")!, by: client)
        rig.pass { $0.remove("h", by: client) }
        rig.pass { $0.core.clientWritable(client) }
        #expect(rig.replies(to: client).isEmpty, "of what was removed nothing is told")
    }

    @Test mutating func `a transfer that brings something each time is not waited for longer and longer`() {
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://1/", by: client) { $0.options.retries = 20 } }
        var job = rig.jobs[0]
        func fail(_ received: Int) -> Int {
            rig.pass {
                $0.core.workerSaid(
                    .failed(job.attempt, code: "reset", detail: nil, receivedBytes: received), body: nil, by: worker,
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
