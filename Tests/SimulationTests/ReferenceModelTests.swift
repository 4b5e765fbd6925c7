import EarshotCore
import EarshotWire
import Testing

@testable import EarshotSimulation

/// Histories that the reference model once took for faults of the core.
struct ReferenceModelTests {
    @Test func `a FETCH that has waited for a removal may rejoin a flight before its cancellation`() throws {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 1
        var trial = Trial(limits: limits, canary: nil)
        let (client, worker) = (ClientID(rawValue: 1), WorkerID(rawValue: 2))
        func handle(_ event: BrokerEvent) throws -> [Action] {
            try trial.handleEvent(event, now: MonotonicTime(nanoseconds: 1_000_000_000))
        }
        func fetch(_ handler: String, _ request: String, _ key: Int, replaces: Bool = false) throws {
            let names = try (#require(HandlerID(handler)), #require(RequestID(request)))
            var fetch = Fetch(handler: names.0, request: names.1, url: "http://o1.test/\(key)")
            fetch.options.replacesHandler = replaces
            _ = try handle(.clientSent(client, .fetch(fetch)))
        }
        _ = try handle(.workerConnected(worker, process: 1))
        var ready = Ready(slots: 8)
        ready.pid = 1
        _ = try handle(.workerSent(worker, .ready(ready), nil))
        _ = try handle(.clientConnected(client))
        _ = try handle(.clientSent(client, .hello(Hello(window: 256))))
        try fetch("a", "1", 1)
        for key in 2...3 { try fetch("b", "\(key)", key) }
        let jobs = try handle(.dispatch(unread: []))
        #expect(jobs.count == 3)
        let (handler, request) = try (#require(HandlerID("a")), #require(RequestID("1")))
        _ = try handle(.clientSent(client, .removeRequest(handler, request)))
        try fetch("b", "1", 1, replaces: true)
        #expect(trial.broker.core.hasPendingRemoval(by: client))
        #expect(try handle(.dispatch(unread: [])) == [], "the transfer goes on")
    }
}
