import EarshotWire
import Testing

@testable import EarshotCore

/// Users' own workers, their pools, and the requests that wait for them.
struct PoolTests {
    private var rig = CoreRig(secret: "s")

    private var errors: [String] {
        rig.actions.compactMap { if case .worker(.send(_, .error(let code, _))) = $0 { code } else { nil } }
    }

    private var closed: [WorkerID] {
        rig.actions.compactMap { if case .worker(.close(let id)) = $0 { id } else { nil } }
    }

    private mutating func child(_ number: UInt64, slots: Int = 8) -> WorkerID {
        let id = WorkerID(rawValue: number)
        rig.core.workerConnected(id, now: rig.now)
        var ready = Ready(slots: slots)
        ready.supervisorSecret = "s"
        rig.core.workerMessageReceived(.ready(ready), body: nil, from: id, now: rig.now)
        return id
    }

    @Test mutating func `a worker without the secret gets its own scheme and nothing of the web`() {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://h/", by: a)
            rig.fetch("h", "2", "thumb:x", by: a) { $0.options.priority = .high }
        }
        #expect(rig.jobs.map(\.url) == ["thumb:x"])
        #expect(rig.jobs[0].priority == .high)
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: own) }
        #expect(rig.terminals(for: a) == ["h 2 200"])
        rig.pass { rig in _ = rig.worker(2, schemes: ["http", "thumb"]) }
        #expect(errors == ["not-a-child"])
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a scheme that nobody registered is refused at once`() {
        _ = child(1)
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:x", by: a) }
        #expect(rig.terminals(for: a) == ["h 1 unsupported-scheme"])
        #expect(rig.core.records.originGovernor.origins.count == 0)
    }

    @Test mutating func `own workers share the jobs evenly, however small the bodies`() {
        let own = [rig.worker(1, schemes: ["thumb"]), rig.worker(2, schemes: ["thumb"])]
        let a = rig.client(1)
        rig.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "thumb:\(n)", by: a) } }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: own[0]) }
        rig.pass { $0.fetch("h", "3", "thumb:3", by: a) }
        let workers = rig.actions.compactMap { if case .worker(.send(let id, .job)) = $0 { id } else { nil } }
        #expect(workers == [own[0]])
    }

    @Test mutating func `requests for one thumbnail are one job`() {
        let own = rig.worker(1, schemes: ["thumb"])
        let clients = (1...20).map { rig.client($0) }
        rig.pass { rig in for client in clients { rig.fetch("h\(client.rawValue)", "1", "thumb:x", by: client) } }
        #expect(rig.jobs.count == 1)
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: own) }
        for client in clients { #expect(rig.terminals(for: client) == ["h\(client.rawValue) 1 200"]) }
    }

    @Test mutating func `pools do not wait for each other`() {
        _ = child(1, slots: 1)
        let own = rig.worker(2, slots: 2, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { rig in
            for n in 1...9 { rig.fetch("h", "w\(n)", "http://h\(n)/", by: a) }
            for n in 1...9 { rig.fetch("h", "t\(n)", "thumb:\(n)", by: a) }
        }
        #expect(rig.jobs.count { $0.url.hasPrefix("thumb:") } == 2)
        #expect(rig.jobs.count { $0.url.hasPrefix("http:") } == 1)
        // The web pool stays full, and each completion in the other pool starts the next job there.
        var running = rig.jobs.filter { $0.url.hasPrefix("thumb:") }
        var done = 0
        while let job = running.popLast() {
            rig.pass { $0.done(job, by: own) }
            running += rig.jobs
            done += 1
        }
        #expect(done == 9)
        #expect(rig.core.audit() == [])
    }

    @Test func `what one pool leaves to the next pass is not forgotten for another that is through`() {
        var limits = CoreLimits()
        limits.maximumCoolDownRefusalsPerPass = 2
        var rig = CoreRig(limits: limits)
        let gone = rig.worker(1, slots: 1, schemes: ["gone"])
        let cooling = rig.worker(2, schemes: ["cooling"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "c", "cooling://h/1", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: cooling, status: 503, fields: "retry-after: 601") }
        rig.pass { rig in for n in 1...4 { rig.fetch("h", "\(n)", "gone:\(n)", by: a) } }
        rig.pass { $0.core.workerLost(gone, now: $0.now) }
        rig.now = rig.now.advanced(byMilliseconds: limits.emptyPoolGraceMilliseconds)
        // Two of four requests fail in this pass, and the only one of the other pool.
        rig.pass { $0.fetch("h", "d", "cooling://h/2", by: a) }
        #expect(rig.terminals(for: a).count { $0.hasSuffix("unsupported-scheme") } == 2)
        #expect(rig.terminals(for: a).contains("h d origin-cooling"))
        #expect(rig.core.nextTimer == MonotonicTime(nanoseconds: .min))
        rig.pass()
        #expect(rig.terminals(for: a).count { $0.hasSuffix("unsupported-scheme") } == 2)
    }

    @Test mutating func `a window that was full opens for each pool`() {
        _ = child(1, slots: 8)
        let own = rig.worker(2, slots: 8, schemes: ["thumb"])
        let a = rig.client(1, window: 1)
        rig.pass { $0.fetch("h", "1", "thumb:1", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: own) }
        rig.pass { rig in
            rig.fetch("h", "w", "http://h/", by: a)
            rig.fetch("h", "t", "thumb:2", by: a)
        }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.send(.acknowledge(1), by: a) }
        #expect(Set(rig.jobs.map(\.url)) == ["http://h/", "thumb:2"])
    }

    @Test mutating func `a reason of its own is passed on and counts as one code`() {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:x", by: a) }
        let job = rig.jobs[0]
        rig.pass { rig in
            let sent = WorkerMessage.failed(
                job.attempt, code: "not-an-image", detail: String(repeating: "x", count: 300), receivedBytes: 0)
            rig.core.workerMessageReceived(sent, body: nil, from: own, now: rig.now)
        }
        guard
            case .client(.deliverTerminal(_, let terminal, _)) = rig.actions.first(where: {
                if case .client(.deliverTerminal) = $0 { true } else { false }
            }),
            case .failed(let failure) = terminal.outcome
        else {
            Issue.record("no failure in \(rig.actions)")
            return
        }
        #expect(failure.code == "worker-failed")
        #expect(failure.detail == String(repeating: "x", count: 200))
    }

    @Test mutating func `one that breaks the protocol is put out with a reason, and its work goes to another`() {
        let first = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:x", by: a) }
        rig.pass { rig in
            _ = rig.worker(2, schemes: ["thumb"])
            rig.core.malformedWorkerMessageReceived(WireError(.unknownVerb, "no such verb"), from: first, now: rig.now)
        }
        #expect(errors == ["unknown-verb"])
        #expect(closed == [first])
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `one that is silent is put out and not killed`() {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:x", by: a) }
        rig.wait(milliseconds: CoreLimits().silenceBeforePingMilliseconds)
        #expect(rig.actions.contains(.worker(.send(own, .ping))))
        rig.wait(milliseconds: CoreLimits().pingTimeoutMilliseconds)
        #expect(errors == ["silent"])
        #expect(closed == [own])
        #expect(!rig.actions.contains(.worker(.kill(own))))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `what waits for a scheme whose last worker went ends after a while, or goes to the next`() {
        let own = rig.worker(1, slots: 1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "thumb:\(n)", by: a) } }
        rig.pass { $0.core.workerLost(own, now: $0.now) }
        rig.wait(milliseconds: CoreLimits().emptyPoolGraceMilliseconds - 1)
        #expect(rig.terminals(for: a) == [])
        let next = rig.worker(2, slots: 1, schemes: ["thumb"])
        rig.pass()
        let job = rig.jobs[0]
        rig.wait(milliseconds: 2)
        #expect(rig.terminals(for: a) == [], "the timer of the first absence is stale")
        rig.pass { $0.done(job, by: next) }
        rig.pass { $0.core.workerLost(next, now: $0.now) }
        rig.wait(milliseconds: CoreLimits().emptyPoolGraceMilliseconds)
        #expect(rig.terminals(for: a).count == 2)
        #expect(rig.terminals(for: a).allSatisfy { $0.hasSuffix("unsupported-scheme") })
        #expect(rig.core.records.workerPools.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a closed pool fails no more requests than the windows of their clients admit`() {
        let own = rig.worker(1, slots: 1, schemes: ["thumb"])
        let (narrow, wide) = (rig.client(1, window: 1), rig.client(2))
        rig.pass { rig in
            for n in 1...20 {
                rig.fetch("n", "\(n)", "thumb:n\(n)", by: narrow)
                rig.fetch("w", "\(n)", "thumb:w\(n)", by: wide)
            }
            rig.core.workerLost(own, now: rig.now)
        }
        rig.wait(milliseconds: CoreLimits().emptyPoolGraceMilliseconds)
        #expect(rig.terminals(for: narrow).count == 1)
        #expect(rig.terminals(for: wide).count == 20)
        #expect(rig.core.ledger.requests.pending == 19)
        for sequence in 1...19 as ClosedRange<UInt64> {
            rig.pass { $0.send(.acknowledge(sequence), by: narrow) }
            #expect(rig.terminals(for: narrow).count == 1)
        }
        #expect(rig.core.ledger.requests.pending == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a request that is asked while the last worker is gone waits like those before it`() {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.core.workerLost(own, now: $0.now) }
        rig.pass { $0.fetch("h", "1", "thumb:1", by: a) }
        #expect(rig.terminals(for: a) == [])
        rig.pass { rig in _ = rig.worker(2, schemes: ["thumb"]) }
        #expect(rig.jobs.map(\.url) == ["thumb:1"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `what pauses before its next try ends with the wait for a worker, not later`() {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:1", by: a) { $0.options.retries = 9 } }
        // Each pause is longer than the previous one. The last is longer than the absence limit.
        for _ in 1...6 {
            let job = rig.jobs[0]
            rig.pass { rig in
                let sent = WorkerMessage.failed(job.attempt, code: "reset", detail: nil, receivedBytes: 0)
                rig.core.workerMessageReceived(sent, body: nil, from: own, now: rig.now)
            }
            rig.wait(milliseconds: 8_000)
        }
        let job = rig.jobs[0]
        rig.pass { rig in
            let sent = WorkerMessage.failed(job.attempt, code: "reset", detail: nil, receivedBytes: 0)
            rig.core.workerMessageReceived(sent, body: nil, from: own, now: rig.now)
            rig.core.workerLost(own, now: rig.now)
        }
        rig.wait(milliseconds: CoreLimits().emptyPoolGraceMilliseconds)
        #expect(rig.terminals(for: a) == ["h 1 unsupported-scheme"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `what waits until a cool-down is over ends with the wait for a worker, not later`() {
        let own = rig.worker(1, slots: 1, schemes: ["thumb"])
        let a = rig.client(1)
        let b = rig.client(2)
        rig.pass { rig in
            rig.fetch("h", "1", "thumb:1", by: a)
            for n in 2...4 { rig.fetch("h\(n)", "\(n)", "thumb:\(n)", by: a) { $0.options.priority = .low } }
            rig.fetch("i", "1", "thumb:5", by: b)
            rig.fetch("i", "2", "thumb:6", by: b)
        }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: own, status: 429, fields: "retry-after: 60") }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.core.workerLost(own, now: $0.now) }
        rig.wait(milliseconds: CoreLimits().emptyPoolGraceMilliseconds - 1)
        #expect(rig.terminals(for: a) + rig.terminals(for: b) == [])
        rig.wait(milliseconds: 1)
        let reported = rig.terminals(for: a) + rig.terminals(for: b)
        #expect(reported.count == 6)
        #expect(reported.allSatisfy { $0.hasSuffix("unsupported-scheme") })
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a draining broker says so to new children, and to own workers that asked for it`() {
        let quiet = rig.worker(1, schemes: ["thumb"])
        let reported = rig.worker(2, schemes: ["thumb"], acceptsDrain: true)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "thumb:\(n)", by: a) } }
        let jobs = rig.jobs
        #expect(jobs.count == 2)
        rig.pass { $0.core.beginDraining() }
        #expect(drained == [reported])
        rig.pass { rig in
            let child = WorkerID(rawValue: 4)
            rig.core.workerConnected(child, now: rig.now)
            var ready = Ready(slots: 8)
            ready.supervisorSecret = "s"
            rig.core.workerMessageReceived(.ready(ready), body: nil, from: child, now: rig.now)
            _ = rig.worker(5, schemes: ["thumb"])
            _ = rig.worker(6, schemes: ["thumb"], acceptsDrain: true)
        }
        #expect(drained == [WorkerID(rawValue: 4), WorkerID(rawValue: 6)])
        // Running jobs end, and no others start.
        rig.pass { rig in
            for job in jobs {
                for own in [quiet, reported] where rig.core.records.workers.holdsLease(of: job.attempt, by: own) {
                    rig.done(job, by: own)
                }
            }
            rig.fetch("h", "3", "thumb:3", by: a)
        }
        #expect(rig.terminals(for: a).sorted() == ["h 1 200", "h 2 200", "h 3 stopping"])
        #expect(drained == [] && rig.jobs == [])
        for worker in [quiet, reported] { #expect(!rig.actions.contains(.worker(.close(worker)))) }
        #expect(rig.core.audit() == [])
    }

    private var drained: [WorkerID] {
        rig.actions.compactMap { if case .worker(.send(let id, .drain)) = $0 { id } else { nil } }
    }

    @Test mutating func `HEAD has no body, whatever an own worker sends`() throws {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:1", by: a) { $0.options.method = "HEAD" } }
        let job = try #require(rig.jobs.first)
        #expect(job.method == "HEAD")
        rig.pass { $0.done(job, by: own, length: 3, fields: "x-note: a") }
        guard
            case .client(.deliverTerminal(_, let terminal, let body))? = rig.actions.first(where: {
                if case .client(.deliverTerminal) = $0 { true } else { false }
            })
        else {
            Issue.record("nothing is delivered")
            return
        }
        #expect(body == nil)
        #expect(terminal.response?.bodyByteCount == 0)
        #expect(terminal.response?.sha256 == nil)
        #expect(terminal.response?.httpFields == Array("x-note: a".utf8))
        #expect(rig.releasedBodies == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an end that cannot be read is the own worker's failure`() throws {
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:1", by: a) }
        var error = WireError(.badMessage, "")
        error.attempt = try #require(rig.jobs.first).attempt
        rig.pass { $0.core.malformedWorkerMessageReceived(error, from: own, now: $0.now) }
        #expect(rig.terminals(for: a) == ["h 1 worker-failed"])
        #expect(closed == [own])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a broker that follows another takes requests before the worker of their scheme is back`() {
        rig.core.awaitOwnWorkers(until: rig.now.advanced(byMilliseconds: 1_000))
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "thumb:1", by: a)
            rig.fetch("h", "2", "other:1", by: a)
        }
        #expect(rig.terminals(for: a) == [])
        rig.pass { rig in _ = rig.worker(1, schemes: ["thumb"]) }
        #expect(rig.jobs.map(\.url) == ["thumb:1"])
        rig.wait(milliseconds: 1_000)
        #expect(rig.terminals(for: a) == ["h 2 unsupported-scheme"])
        rig.pass { $0.fetch("h", "3", "other:1", by: a) }
        #expect(rig.terminals(for: a) == ["h 3 unsupported-scheme"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `clients cannot make more pools than workers can`() {
        var limits = CoreLimits()
        limits.maximumWorkerPools = 3
        rig = CoreRig(limits: limits)
        rig.core.awaitOwnWorkers(until: rig.now.advanced(byMilliseconds: 1_000))
        let a = rig.client(1)
        rig.pass { rig in for n in 1...4 { rig.fetch("h", "\(n)", "own\(n):x", by: a) } }
        #expect(rig.terminals(for: a) == ["h 3 unsupported-scheme", "h 4 unsupported-scheme"])
        rig.wait(milliseconds: 1_000)
        #expect(rig.core.records.workerPools.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `there is a bound on schemes`() {
        var limits = CoreLimits()
        limits.maximumWorkerPools = 3
        rig = CoreRig(limits: limits)
        rig.pass { rig in
            _ = rig.worker(1, schemes: ["a"])
            _ = rig.worker(2, schemes: ["b"])
            _ = rig.worker(3, schemes: ["a", "c"])
        }
        #expect(errors == ["limit"])
        rig.pass { $0.core.workerLost(WorkerID(rawValue: 2), now: $0.now) }
        rig.pass { rig in _ = rig.worker(4, schemes: ["c"]) }
        #expect(errors == ["limit"], "b is waited for")
        rig.wait(milliseconds: CoreLimits().emptyPoolGraceMilliseconds)
        rig.pass { rig in _ = rig.worker(5, schemes: ["c"]) }
        #expect(errors == [])
        let a = rig.client(1)
        rig.pass { rig in for scheme in ["a", "b", "c"] { rig.fetch("h", scheme, "\(scheme):x", by: a) } }
        #expect(rig.terminals(for: a) == ["h b unsupported-scheme"])
        #expect(Set(rig.jobs.map(\.url)) == ["a:x", "c:x"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `its redirects are results, and nothing is asked of the cache`() {
        rig.core.shellFeatures.isCaching = true
        let own = rig.worker(1, schemes: ["thumb"])
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "thumb:x", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: own, status: 302, fields: "location: http://h/") }
        #expect(rig.terminals(for: a) == ["h 1 302"])
    }
}
