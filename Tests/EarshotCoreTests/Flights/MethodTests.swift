import EarshotWire
import Testing

@testable import EarshotCore

/// Requests that are not coalesced: methods with a body, and non-idempotent methods.
struct MethodTests {
    var rig = CoreRig()

    private mutating func submit(
        _ request: String, _ method: String, body: RequestBody? = nil, coalesces: Bool = false, by client: ClientID,
        _ change: (inout Fetch) -> Void = { _ in }
    ) {
        var fetch = Fetch(handler: HandlerID("h")!, request: RequestID(request)!, url: "http://o/a")
        fetch.options.method = method
        fetch.options.coalesces = coalesces
        change(&fetch)
        rig.core.clientMessageReceived(.fetch(fetch), body: body, from: client, now: rig.now)
    }

    private func body(_ number: UInt64, bytes: Int = 10) -> RequestBody {
        RequestBody(bodyID: BodyID(rawValue: 1_000 + number), byteCount: bytes, digestPrefix: number)
    }

    /// JOBs with a body that were assigned in the last pass.
    private var jobs: [(job: Job, body: BodyID)] {
        rig.actions.compactMap { if case .worker(.sendJob(_, let job, let body)) = $0 { (job, body) } else { nil } }
    }

    private func released(_ body: RequestBody) -> Int { rig.actions.count { $0 == .spool(.releaseBody(body.bodyID)) } }

    private mutating func pass(_ change: (inout MethodTests) -> Void = { _ in }) {
        rig.pass()
        change(&self)
        rig.core.dispatch(now: rig.now)
        rig.actions = rig.core.takeActions()
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a body goes out with its job and is held until the request has ended`() {
        let worker = rig.worker()
        let a = rig.client(1)
        pass { $0.submit("1", "POST", body: $0.body(1), by: a) }
        #expect(jobs.map(\.body) == [body(1).bodyID])
        #expect(jobs.map(\.job.method) == ["POST"])
        #expect(released(body(1)) == 0)
        let job = jobs[0].job
        pass { $0.rig.done(job, by: worker, status: 201) }
        #expect(rig.terminals(for: a) == ["h 1 201"])
        #expect(released(body(1)) == 1)
        #expect(rig.core.records.requests.requestBodies == RequestBodies())
    }

    @Test mutating func `what is asked alone shares with nobody, be it the same`() {
        _ = rig.worker()
        let a = rig.client(1)
        pass { tests in for request in ["1", "2", "3"] { tests.submit(request, "POST", by: a) } }
        #expect(rig.jobs.count == 3)
        pass { tests in for request in ["4", "5"] { tests.submit(request, "GET", by: a) } }
        #expect(rig.jobs.count == 2)
        #expect(rig.core.ledger.flights.joinedRequests == 0)
    }

    @Test(arguments: [("POST", true), ("DELETE", true), ("TRACE", false), ("CONNECT", false), ("a b", false)])
    mutating func `a method that may not be asked so is not supported`(method: String, coalesces: Bool) {
        _ = rig.worker()
        let a = rig.client(1)
        pass { $0.submit("1", method, body: $0.body(1), coalesces: coalesces, by: a) }
        #expect(rig.terminals(for: a) == ["h 1 unsupported-method"])
        #expect(released(body(1)) == 1)
    }

    @Test mutating func `a GET has no body, and a body has a bound`() {
        let a = rig.client(1)
        rig.core.limits.maximumRequestBodyBytes = 100
        pass { tests in
            tests.submit("1", "GET", body: tests.body(1), by: a)
            tests.submit("2", "POST", body: tests.body(2, bytes: 101), by: a)
        }
        let codes = rig.replies(to: a).compactMap { if case .error(let reply) = $0 { reply.code } else { nil } }
        #expect(codes == ["bad-message", "limit"])
        #expect(released(body(1)) == 1 && released(body(2)) == 1)
        #expect(rig.core.ledger.requests.submitted == 0)
    }

    @Test mutating func `bodies of one client and of all have bounds`() {
        rig.core.limits.maximumRequestBodyBytesPerClient = 20
        rig.core.limits.maximumTotalRequestBodyBytes = 30
        let clients = [rig.client(1), rig.client(2)]
        pass { tests in
            for number in 1...3 as ClosedRange<UInt64> {
                tests.submit("\(number)", "PUT", body: tests.body(number), by: clients[0])
            }
            for number in 4...5 as ClosedRange<UInt64> {
                tests.submit("\(number)", "PUT", body: tests.body(number), by: clients[1])
            }
        }
        #expect(
            rig.terminals(for: clients[0]) == ["h 3 queue-full"]
                || rig.terminals(for: clients[0]).contains("h 3 queue-full"))
        #expect(rig.terminals(for: clients[1]).contains("h 5 queue-full"))
        #expect(released(body(3)) == 1 && released(body(5)) == 1 && released(body(4)) == 0)
        pass { $0.rig.core.clientLost(clients[0], now: $0.rig.now) }
        pass()
        #expect(rig.core.records.requests.requestBodies.totalByteCount == 10)
        #expect(rig.core.records.requests.requestBodies.byteCount(of: clients[0]) == 0)
    }

    @Test mutating func `what may not be done twice is not tried again`() {
        let worker = rig.worker()
        let a = rig.client(1)
        pass { $0.submit("1", "POST", by: a) { $0.options.retries = 9 } }
        let job = rig.jobs[0]
        pass { $0.rig.failed(job, "reset", by: worker) }
        #expect(rig.terminals(for: a) == ["h 1 reset"])
        pass { $0.submit("2", "PUT", by: a) { $0.options.retries = 9 } }
        let put = rig.jobs[0]
        pass { $0.rig.failed(put, "reset", by: worker) }
        #expect(rig.terminals(for: a) == [])
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.map(\.method) == ["PUT"])
    }

    @Test
    mutating func `a worker's death ends what may not be done twice, and a refusal of a worker that leaves does not`() {
        let first = rig.worker(1)
        let a = rig.client(1)
        pass { $0.submit("1", "POST", body: $0.body(1), by: a) }
        let refused = jobs[0].job
        pass { $0.rig.failed(refused, "worker-lost", by: first) }
        #expect(rig.terminals(for: a) == [])
        pass { _ = $0.rig.worker(2) }
        #expect(jobs.map(\.body) == [body(1).bodyID])
        pass { $0.rig.core.workerLost(WorkerID(rawValue: 2), now: $0.rig.now) }
        #expect(rig.terminals(for: a) == ["h 1 worker-lost"])
        #expect(released(body(1)) == 1)
    }

    @Test(arguments: [
        (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (307, "POST", "POST"), (308, "POST", "POST"),
        (301, "PUT", "PUT"), (302, "PATCH", "PATCH"), (303, "DELETE", "GET"), (307, "PUT", "PUT"),
    ])
    mutating func `a redirect keeps method and body, or neither`(status: Int, method: String, next: String) {
        let worker = rig.worker()
        let a = rig.client(1)
        pass { tests in
            tests.submit("1", method, body: tests.body(1), by: a) {
                $0.httpFields = Array("content-type: a/b\nx: y".utf8)
            }
        }
        let job = jobs[0].job
        pass { $0.rig.done(job, by: worker, status: status, fields: "location: http://other/b") }
        let hop = (rig.jobs + jobs.map(\.job))[0]
        #expect(hop.method == next && hop.url == "http://other/b")
        #expect(jobs.isEmpty == (next == "GET"))
        #expect(String(decoding: hop.httpFields, as: UTF8.self).contains("content-type") == (next != "GET"))
        pass { $0.rig.done(hop, by: worker) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        #expect(rig.core.records.requests.requestBodies == RequestBodies())
    }

    @Test mutating func `a loop is told though nobody meets anybody in it`() {
        let worker = rig.worker()
        let a = rig.client(1)
        pass { $0.submit("1", "POST", body: $0.body(1), by: a) }
        for target in ["http://o/b", "http://o/a"] {
            let job = jobs[0].job
            pass { $0.rig.done(job, by: worker, status: 307, fields: "location: \(target)") }
        }
        #expect(rig.terminals(for: a) == ["h 1 redirect-loop"])
        #expect(rig.core.records.requests.requestBodies == RequestBodies())
    }

    @Test mutating func `the same again is the same request, with another body it is another`() {
        _ = rig.worker()
        let a = rig.client(1)
        pass { $0.submit("1", "POST", body: $0.body(1), by: a) }
        var again = body(1)
        again.bodyID = BodyID(rawValue: 7)
        pass { $0.submit("1", "POST", body: again, by: a) }
        #expect(rig.replies(to: a) == [])
        #expect(released(again) == 1 && released(body(1)) == 0)
        pass { $0.submit("1", "POST", body: $0.body(2), by: a) }
        guard case .error(let reply)? = rig.replies(to: a).first else {
            Issue.record("\(rig.actions)")
            return
        }
        #expect(reply.code == "id-in-use")
    }

    @Test mutating func `a removed request lets go of its body`() {
        let a = rig.client(1)
        pass { $0.submit("1", "POST", body: $0.body(1), by: a) }
        pass { $0.rig.remove("h", by: a) }
        pass()
        #expect(rig.core.records.requests.requestBodies == RequestBodies())
        #expect(rig.core.isIdle)
    }

    @Test mutating func `a body with another message than FETCH is let go`() {
        let a = rig.client(1)
        pass { $0.rig.core.clientMessageReceived(.query(.ping), body: $0.body(1), from: a, now: $0.rig.now) }
        #expect(released(body(1)) == 1)
    }
}
