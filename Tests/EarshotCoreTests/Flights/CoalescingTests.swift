import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Coalescing: equal requests share one flight, and each has its own end.
struct CoalescingTests {
    private var rig = CoreRig()

    @Test mutating func `identical requests of two clients are one job and two answers`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.fetch("x", "1", "http://h/a", by: a)
            rig.fetch("y", "9", "HTTP://h:80/a#part", by: b)
        }
        #expect(rig.jobs.map(\.url) == ["http://h/a"])
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: a) == ["x 1 200"])
        #expect(rig.terminals(for: b) == ["y 9 200"])
        #expect(rig.core.ledger.flights.joinedRequests == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `both forms of an internationalized host share a flight, and an invalid one says why`() {
        rig.core.shellFeatures.hostNameEncoder = HostNameEncoder { name throws(HostNameEncoder.Failure) in
            guard name == "bücher.example" else { throw HostNameEncoder.Failure("no such name") }
            return "xn--bcher-kva.example"
        }
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("x", "1", "http://xn--bcher-kva.example/é", by: a)
            rig.fetch("x", "2", "http://bücher.example/%C3%A9", by: a)
            rig.fetch("x", "3", "http://ü.example/", by: a)
        }
        #expect(rig.jobs.map(\.url) == ["http://xn--bcher-kva.example/%C3%A9"])
        #expect(rig.terminals(for: a) == ["x 3 malformed-url"])
        #expect(rig.details(for: a) == ["The host is not a valid internationalized name: no such name."])
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 302, fields: "location: http://bücher.example/b") }
        #expect(rig.jobs.map(\.url) == ["http://xn--bcher-kva.example/b"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a request joins a running flight`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a) }
        let job = rig.jobs[0]
        rig.pass { $0.fetch("y", "1", "http://h/a", by: b) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.terminals(for: b) == ["y 1 200"])
    }

    @Test(arguments: [
        "authorization: Basic YTpi", "cookie: a=b", "accept: image/png",
    ])
    mutating func `other header fields make another flight`(field: String) {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("x", "1", "http://h/a", by: a)
            rig.fetch("x", "2", "http://h/a", by: a) { $0.httpFields = Array(field.utf8) }
        }
        #expect(rig.jobs.count == 2)
    }

    @Test mutating func `a flight goes on while one of its requests lives, and is cut off with the last`() {
        let worker = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            rig.fetch("x", "1", "http://h/a", by: a)
            rig.fetch("y", "1", "http://h/a", by: b)
        }
        let job = rig.jobs[0]
        rig.pass { $0.remove("x", by: a) }
        #expect(rig.cancellations.isEmpty)
        rig.pass { $0.core.clientLost(b, now: $0.now) }
        #expect(rig.cancellations == [job.attempt])
        rig.pass { $0.failed(job, "cancelled", by: worker) }
        #expect(rig.core.ledger.flights.staleCompletions == 0)
        #expect(rig.core.ledger.requests.removed == 2)
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a request that meets a flight being cancelled gets a new one`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a) }
        let old = rig.jobs[0]
        rig.pass { $0.remove("x", by: a) }
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a) }
        let new = rig.jobs[0]
        #expect(new.attempt.flight != old.attempt.flight)
        rig.pass { $0.done(old, by: worker) }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.releasedBodies == 1)
        rig.pass { $0.done(new, by: worker) }
        #expect(rig.terminals(for: a) == ["x 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `A asks and vanishes before a worker took it, B asks the same and is answered`() {
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a) }
        rig.pass { rig in
            rig.core.clientLost(a, now: rig.now)
            rig.fetch("y", "1", "http://h/a", by: b)
        }
        rig.pass { _ = $0.worker() }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: WorkerID(rawValue: 1)) }
        #expect(rig.terminals(for: b) == ["y 1 200"])
    }

    @Test mutating func `a warm request that an ordinary one joined and left still runs, and brings no body`() {
        let a = rig.client(1)
        let b = rig.client(2)
        rig.pass { rig in
            rig.fetch("x", "1", "http://h/a", by: a) { $0.options.isCacheWarming = true }
            rig.fetch("y", "1", "http://h/a", by: b)
        }
        rig.pass { $0.core.clientLost(b, now: $0.now) }
        rig.pass { _ = $0.worker() }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: WorkerID(rawValue: 1)) }
        #expect(rig.terminals(for: a) == ["x 1 200"])
        for case .client(.deliverTerminal(_, _, let body)) in rig.actions { #expect(body == nil) }
    }

    @Test mutating func `a low request joined by a high one runs next, and falls back when that leaves`() {
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            for number in 0..<10 {
                rig.fetch("n", "\(number)", "http://h\(number)/", by: a)
            }
            rig.fetch("n", "x", "http://x/", by: a) { $0.options.priority = .background }
            rig.fetch("y", "1", "http://x/", by: b) { $0.options.priority = .high }
        }
        var joined = rig
        joined.pass { _ = $0.worker(slots: 1) }
        #expect(joined.jobs.map(\.url) == ["http://x/"])
        rig.pass { $0.remove("y", by: b) }
        rig.pass { _ = $0.worker(slots: 1) }
        #expect(rig.jobs.map(\.url) == ["http://h0/"])
    }

    @Test mutating func `a size limit, a digest or a deadline ends its own request alone`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("x", "1", "http://h/a", by: a)
            rig.fetch("x", "2", "http://h/a", by: a) { $0.options.maximumBodyBytes = 2 }
            rig.fetch("x", "3", "http://h/a", by: a) { $0.options.expectedSHA256 = String(repeating: "00", count: 32) }
            rig.fetch("x", "4", "http://h/a", by: a) { $0.options.deadlineMilliseconds = 5 }
        }
        let job = rig.jobs[0]
        #expect(job.maximumBodyBytes == nil)
        rig.wait(milliseconds: 5)
        #expect(rig.terminals(for: a) == ["x 4 deadline"])
        rig.pass { $0.done(job, by: worker) }
        #expect(Set(rig.terminals(for: a)) == ["x 1 200", "x 2 too-large", "x 3 digest-mismatch"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a running attempt is allowed what a request that joins it allows`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a) { $0.options.maximumBodyBytes = 10 } }
        let job = rig.jobs[0]
        rig.pass { $0.fetch("x", "2", "http://h/a", by: a) { $0.options.maximumBodyBytes = 5 } }
        #expect(rig.actions.isEmpty)
        rig.pass { $0.fetch("x", "3", "http://h/a", by: a) }
        #expect(
            rig.actions == [.worker(.send(WorkerID(rawValue: 1), .raiseBodyLimit(job.attempt, maximumBodyBytes: nil)))])
    }

    @Test mutating func `an attempt that hit a joined request's size limit is tried again for those who allow more`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("x", "1", "http://h/a", by: a) { $0.options.maximumBodyBytes = 10 } }
        let small = rig.jobs[0]
        #expect(small.maximumBodyBytes == 10)
        rig.pass { $0.fetch("x", "2", "http://h/a", by: a) { $0.options.maximumBodyBytes = 100 } }
        rig.pass { $0.failed(small, "too-large", by: worker) }
        #expect(rig.terminals(for: a) == ["x 1 too-large"])
        #expect(rig.jobs.map(\.maximumBodyBytes) == [100])
        #expect(rig.jobs[0].attempt.attempt == 2)
    }
}
