import EarshotWire
import Testing

@testable import EarshotCore

/// Attempts: lost workers, failures, redirects, origins.
struct AttemptTests {
    private var rig = CoreRig()

    @Test mutating func `what a lost worker held is assigned again, first`() {
        _ = rig.worker(1, slots: 4)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...8 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        let lost = Set(rig.jobs.map(\.url))
        rig.pass { rig in
            rig.core.workerLost(WorkerID(rawValue: 1), now: rig.now)
            _ = rig.worker(2, slots: 4)
        }
        #expect(Set(rig.jobs.map(\.url)) == lost)
        #expect(rig.jobs.allSatisfy { $0.attempt.attempt == 2 })
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a flight whose first worker and two that ran it alone died is poisonous`() {
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        for number in 1...3 as ClosedRange<UInt64> {
            rig.pass { _ = $0.worker(number) }
            #expect(rig.jobs.count == 1)
            #expect(rig.terminals(for: a) == [])
            rig.pass { $0.core.workerLost(WorkerID(rawValue: number), now: $0.now) }
        }
        #expect(rig.terminals(for: a) == ["h 1 poisonous"])
    }

    @Test mutating func `a late completion of a lost worker's attempt is stale, and its body freed`() {
        _ = rig.worker(1)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let old = rig.jobs[0]
        rig.pass { rig in
            rig.core.workerLost(WorkerID(rawValue: 1), now: rig.now)
            _ = rig.worker(2)
        }
        rig.pass { $0.done(old, by: WorkerID(rawValue: 2)) }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.core.ledger.flights.staleCompletions == 1)
        #expect(rig.releasedBodies == 1)
    }

    @Test mutating func `a draining broker leaves the next try to the next broker`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/1", by: a)
            rig.fetch("h", "2", "http://h/2", by: a)
            rig.fetch("h", "3", "http://h/3", by: a) { $0.options.retries = 0 }
        }
        let jobs = rig.jobs.sorted { $0.url < $1.url }
        rig.pass { $0.core.beginDraining() }
        rig.pass { rig in
            rig.failed(jobs[0], "truncated", by: worker)
            rig.done(jobs[1], by: worker, status: 503)
            rig.failed(jobs[2], "truncated", by: worker)
        }
        #expect(rig.terminals(for: a) == ["h 3 truncated"])
        rig.wait(milliseconds: 60_000)
        #expect(rig.terminals(for: a) == [])
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.runningAttemptCount == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a retryable failure is tried again after a pause, as often as allowed`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) { $0.options.retries = 1 } }
        var job = rig.jobs[0]
        rig.pass { $0.failed(job, "reset", by: worker) }
        #expect(rig.terminals(for: a) == [])
        rig.wait(milliseconds: 1_000)
        job = rig.jobs[0]
        rig.pass { $0.failed(job, "reset", by: worker) }
        #expect(rig.terminals(for: a) == ["h 1 reset"])
    }

    @Test(arguments: [("reset", false), ("truncated", false), ("timeout", false), ("connect-refused", true)])
    mutating func `an attempt after a failure that HTTP/2 may have caused does without it`(
        code: String, allowsHTTP2: Bool
    ) throws {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "https://h/", by: a) { $0.options.retries = 2 } }
        let first = try #require(rig.jobs.first)
        #expect(first.allowsHTTP2)
        rig.pass { $0.failed(first, code, by: worker) }
        rig.wait(milliseconds: 1_000)
        let second = try #require(rig.jobs.first)
        #expect(second.allowsHTTP2 == allowsHTTP2)
        rig.pass { $0.done(second, by: worker, status: 500) }
        rig.wait(milliseconds: 2_000)
        #expect(try #require(rig.jobs.first).allowsHTTP2 == allowsHTTP2)
    }

    @Test(arguments: ["reset", "tls", "protocol-error"])
    mutating func `an attempt without HTTP/2 that brings nothing is followed by one with it`(code: String) throws {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "https://h/", by: a) { $0.options.retries = 3 } }
        for (code, allowsHTTP2) in [("reset", true), (code, false), ("reset", true), (code, false)] {
            let job = try #require(rig.jobs.first)
            #expect(job.allowsHTTP2 == allowsHTTP2)
            rig.pass { $0.failed(job, code, by: worker) }
            if rig.terminals(for: a).isEmpty { rig.wait(milliseconds: 2_000) }
        }
        #expect(rig.terminals(for: a) == ["h 1 reset"])
    }

    @Test mutating func `a request that a worker repeated counts as attempts, and as one failure`() throws {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) { $0.options.retries = 1 } }
        let first = try #require(rig.jobs.first)
        rig.pass {
            $0.core.workerMessageReceived(
                .failed(first.attempt, code: "reset", detail: nil, receivedBytes: 0, repeats: 1), body: nil,
                from: worker,
                now: $0.now)
        }
        rig.wait(milliseconds: 1_000)
        let second = try #require(rig.jobs.first)
        #expect(second.attempt != first.attempt)
        var completion = Completion(attempt: second.attempt, status: 204)
        completion.repeatCount = 2
        rig.pass { $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now) }
        let attempts = rig.actions.compactMap { action -> Int? in
            guard case .client(.deliverTerminal(_, let terminal, _)) = action,
                case .result(_, let response) = terminal.outcome
            else {
                return nil
            }
            return response.attempts
        }
        #expect(attempts == [5])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an attempt after an error status may use HTTP/2`() throws {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "https://h/", by: a) { $0.options.retries = 1 } }
        let job = try #require(rig.jobs.first)
        rig.pass { $0.done(job, by: worker, status: 500) }
        rig.wait(milliseconds: 1_000)
        #expect(try #require(rig.jobs.first).allowsHTTP2)
    }

    @Test mutating func `a server that says when to come again is not asked before`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 503, fields: "Retry-After: 5") }
        rig.wait(milliseconds: 4_999)
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `a worker that leaves gets nothing more, and what it refused runs elsewhere`() {
        let leaving = rig.worker(1)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) { $0.options.retries = 0 } }
        let job = rig.jobs[0]
        rig.pass { $0.failed(job, "worker-lost", by: leaving) }
        #expect(rig.jobs.isEmpty)
        rig.pass { _ = $0.worker(2) }
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `an end that cannot be read ends its attempt`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        var error = WireError(.badMessage, "")
        error.attempt = rig.jobs[0].attempt
        rig.pass { $0.core.malformedWorkerMessageReceived(error, from: worker, now: $0.now) }
        #expect(rig.terminals(for: a) == ["h 1 internal"])
        #expect(rig.core.runningAttemptCount == 0)
    }

    @Test mutating func `a worker that did not send READY ends no attempt`() {
        let worker = rig.worker(1)
        let other = WorkerID(rawValue: 2)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let job = rig.jobs[0]
        rig.pass { rig in
            rig.core.workerConnected(other, now: rig.now)
            rig.done(job, by: other)
        }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.releasedBodies == 1)
        #expect(!rig.core.records.workers.holdsLease(of: job.attempt, by: other))
        #expect(rig.core.records.workers.holdsLease(of: job.attempt, by: worker))
    }

    @Test mutating func `a worker that says BYE with work in hand is no death of that work`() {
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        for number in 1...3 as ClosedRange<UInt64> {
            let worker = rig.worker(number)
            rig.pass()
            #expect(rig.jobs.count == 1)
            rig.pass { $0.core.workerMessageReceived(.bye, body: nil, from: worker, now: $0.now) }
        }
        #expect(rig.terminals(for: a) == [])
    }

    @Test mutating func `a worker of other schemes gets no http`() {
        let a = rig.client(1)
        let id = WorkerID(rawValue: 1)
        rig.pass { rig in
            rig.core.workerConnected(id, now: rig.now)
            var ready = Ready(slots: 3)
            ready.schemes = ["thumb"]
            rig.core.workerMessageReceived(.ready(ready), body: nil, from: id, now: rig.now)
            rig.fetch("h", "1", "http://h/", by: a)
        }
        #expect(rig.jobs.isEmpty)
    }

    @Test mutating func `an error page is a failure with its status, not a result`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 404) }
        #expect(rig.terminals(for: a) == ["h 1 http-status"])
    }

    @Test mutating func `a redirect is a flight of its own that others can join`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("h", "1", "http://h/a", by: a) }
        let first = rig.jobs[0]
        rig.pass { $0.done(first, by: worker, status: 302, fields: "location: /b") }
        let second = rig.jobs[0]
        #expect(second.url == "http://h/b")
        rig.pass { $0.fetch("g", "0", "http://h/b", by: b) }
        rig.pass { $0.remove("g", by: b) }
        #expect(rig.cancellations.isEmpty)
        rig.pass { $0.fetch("g", "1", "http://h/b", by: b) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.done(second, by: worker) }
        #expect(rig.terminals(for: b) == ["g 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `two chains that lead to each other end as loops`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/a", by: a)
            rig.fetch("h", "2", "http://h/b", by: a)
        }
        let jobs = rig.jobs
        rig.pass { $0.done(jobs[0], by: worker, status: 301, fields: "location: /b") }
        rig.pass { $0.done(jobs[1], by: worker, status: 301, fields: "location: /a") }
        #expect(Set(rig.terminals(for: a)) == ["h 1 redirect-loop", "h 2 redirect-loop"])
        #expect(rig.core.ledger.requests.pending == 0)
    }

    @Test mutating func `the last interest of a redirected request takes the hop with it`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/a", by: a) }
        let first = rig.jobs[0]
        rig.pass { $0.done(first, by: worker, status: 302, fields: "location: http://other/b") }
        let second = rig.jobs[0]
        rig.pass { $0.remove("h", by: a) }
        #expect(rig.cancellations == [second.attempt])
    }

    @Test mutating func `an origin has no more transfers than its limit, its last slot kept for high`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...20 { rig.fetch("h", "\(n)", "http://h/\(n)", by: a) } }
        #expect(rig.jobs.count == 5)
        let first = rig.jobs[0]
        rig.pass { $0.fetch("h", "x", "http://h/x", by: a) { $0.options.priority = .high } }
        #expect(rig.jobs.map(\.url) == ["http://h/x"])
        rig.pass { $0.fetch("h", "o", "http://other/", by: a) }
        #expect(rig.jobs.map(\.url) == ["http://other/"])
        rig.pass { $0.done(first, by: worker) }
        #expect(rig.jobs.count == 1)
        rig.pass { $0.remove("h", "x", by: a) }
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `all requests to a full origin are done in the end`() {
        let worker = rig.worker(slots: 64)
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            for n in 1...50 { rig.fetch("a/\(n % 7)", "\(n)", "http://h/a\(n)", by: a) }
            for n in 1...50 { rig.fetch("b/\(n % 3)", "\(n)", "http://h/b\(n)", by: b) }
        }
        var running = rig.jobs
        var count = 0
        while let job = running.popLast() {
            rig.pass { $0.done(job, by: worker) }
            running += rig.jobs
            count += 1
        }
        #expect(count == 100)
        #expect(rig.core.ledger.requests.answered == 100)
    }

    @Test mutating func `a silent worker with work is asked, then killed`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        rig.wait(milliseconds: 5_000)
        #expect(rig.actions == [.worker(.send(worker, .ping))])
        var answered = rig
        answered.pass { $0.core.workerMessageReceived(.pong, body: nil, from: worker, now: $0.now) }
        answered.wait(milliseconds: 10_000)
        #expect(!answered.actions.contains(.worker(.kill(worker))))
        rig.wait(milliseconds: 10_000)
        #expect(rig.actions == [.worker(.kill(worker))])
    }

    @Test mutating func `a worker that answers is asked again after as much silence as before`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        for _ in 1...5 {
            rig.wait(milliseconds: 4_999)
            #expect(rig.actions == [])
            rig.wait(milliseconds: 1)
            #expect(rig.actions == [.worker(.send(worker, .ping))])
            rig.pass { $0.core.workerMessageReceived(.pong, body: nil, from: worker, now: $0.now) }
        }
        rig.wait(milliseconds: 3_000)
        rig.pass { $0.core.workerMessageReceived(.slots(8), body: nil, from: worker, now: $0.now) }
        rig.wait(milliseconds: 4_999)
        #expect(rig.actions == [])
        rig.wait(milliseconds: 1)
        #expect(rig.actions == [.worker(.send(worker, .ping))])
        rig.wait(milliseconds: 9_999)
        #expect(rig.actions == [])
        rig.wait(milliseconds: 1)
        #expect(rig.actions == [.worker(.kill(worker))])
    }

    @Test mutating func `a worker that lost its connection but lives is ended before its work runs elsewhere`() {
        let worker = rig.worker(1)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        rig.pass { rig in
            _ = rig.worker(2)
            rig.core.workerDisconnected(worker, isProcessAlive: true, now: rig.now)
        }
        #expect(rig.actions.contains(.worker(.kill(worker))))
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.core.workerLost(worker, now: $0.now) }
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `the audit sees a running flight whose worker has no lease for it`() throws {
        let id = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        #expect(rig.core.audit() == [])
        let worker = try #require(rig.core.records.workers.handle(of: id))
        _ = rig.core.records.workers.endLease(of: rig.jobs[0].attempt, at: worker)
        #expect(rig.core.audit().contains { $0.hasPrefix("6: ") && $0.hasSuffix(" runs without a lease") })
    }

    @Test mutating func `an idle bus sets no timer`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: WorkerID(rawValue: 1)) }
        rig.wait(milliseconds: 5_000)
        #expect(rig.core.nextTimer == nil)
    }

    @Test mutating func `a worker without the secret gets no jobs`() {
        rig = CoreRig(secret: "00ff")
        let a = rig.client(1)
        rig.pass { rig in
            _ = rig.worker()
            rig.fetch("h", "1", "http://h/", by: a)
        }
        #expect(rig.jobs.isEmpty)
    }
}
