import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Memory budgets for long heads of open requests: per client and in total.
@Suite struct HeadTests {
    var rig = CoreRig()
    /// Bytes counted for `submit` with 1,000 bytes of fields, which are stored twice.
    static let counted = "http://x/1".utf8.count + 2 * 1_000 - RequestHeads.uncountedBytesPerHead

    private static let fields = Array(("x: " + String(repeating: "y", count: 997)).utf8)

    init() {
        rig.core.limits.maximumRequestHeadBytesPerClient = 3 * Self.counted
        rig.core.limits.maximumTotalRequestHeadBytes = 5 * Self.counted
    }

    private mutating func submit(
        _ handler: String, _ request: String, by client: ClientID, _ change: (inout Fetch) -> Void = { _ in }
    ) {
        rig.fetch(handler, request, "http://x/\(request)", by: client) { fetch in
            fetch.httpFields = Self.fields
            change(&fetch)
        }
    }

    @Test mutating func `a client's requests are refused when their heads are over its budget, others are not`() {
        let (a, b) = (rig.client(1), rig.client(2))
        pass { rig in for n in 1...4 { rig.submit("h", "\(n)", by: a) } }
        #expect(rig.terminals(for: a) == ["h 4 queue-full"])
        // Short heads are accepted regardless of the budget.
        pass { $0.rig.fetch("h", "5", "http://x/5", by: a) }
        #expect(rig.terminals(for: a) == [])
        pass { rig in for n in 6...8 { rig.submit("i", "\(n)", by: b) } }
        #expect(rig.terminals(for: b) == ["i 8 queue-full"])
        #expect(rig.core.records.requests.requestHeads.totalCountedBytes == 5 * Self.counted)
    }

    @Test mutating func `a head is counted as long as its flight lives`() {
        let (a, b) = (rig.client(1), rig.client(2))
        pass { rig in
            rig.submit("h", "1", by: a)
            rig.submit("i", "1", by: b)
        }
        #expect(
            rig.core.records.requests.requestHeads.countedBytes(ofClient: a) == Self.counted, "who began it is charged")
        #expect(rig.core.records.requests.requestHeads.countedBytes(ofClient: b) == 0)
        pass { $0.rig.core.clientLost(a, now: $0.rig.now) }
        #expect(rig.core.records.requests.requestHeads.totalCountedBytes == Self.counted)
        pass { $0.rig.remove("i", by: b) }
        #expect(rig.core.records.requests.requestHeads == RequestHeads())
    }

    @Test mutating func `requests without an owner count against who sent them`() {
        let a = rig.client(1)
        pass { rig in for n in 1...4 { rig.submit("h", "\(n)", by: a) { $0.options.subscribes = false } } }
        #expect(rig.core.records.requests.requestHeads.countedBytes(ofClient: a) == 3 * Self.counted)
    }

    @Test mutating func `a redirect goes on at the bound, and is counted`() {
        let worker = rig.worker()
        let a = rig.client(1)
        pass { rig in for n in 1...3 { rig.submit("h", "\(n)", by: a) } }
        let job = rig.jobs[0]
        pass { $0.rig.done(job, by: worker, status: 302, fields: "location: http://y/1") }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.core.records.requests.requestHeads.countedBytes(ofClient: a) == 4 * Self.counted)
        pass { $0.rig.remove("h", by: a) }
        #expect(rig.core.records.requests.requestHeads == RequestHeads())
    }

    @Test mutating func `of a durable request it is counted from before it is on the disk`() {
        rig.core.shellFeatures.isStoringDurableRequests = true
        let a = rig.client(1)
        pass { rig in for n in 1...4 { rig.submit("h", "\(n)", by: a) { $0.options.isDurable = true } } }
        #expect(rig.refusals(to: a) == ["h 4 queue-full"])
        #expect(rig.core.records.requests.requestHeads.countedBytes(ofClient: a) == 3 * Self.counted)
        pass { $0.rig.core.durableRequestStored(DurableID(rawValue: 1), now: $0.rig.now) }
        #expect(rig.core.records.requests.requestHeads.countedBytes(ofClient: a) == 3 * Self.counted)
        pass { $0.rig.core.durableRequestStoreFailed(DurableID(rawValue: 2), isFull: false, now: $0.rig.now) }
        #expect(rig.core.records.requests.requestHeads.countedBytes(ofClient: a) == 2 * Self.counted)
        pass { $0.rig.remove("h", by: a) }
        #expect(rig.core.records.requests.requestHeads == RequestHeads())
    }

    @Test mutating func `usual requests cost no budget`() {
        rig.core.limits.maximumRequestHeadBytesPerClient = 0
        let a = rig.client(1)
        pass { rig in
            for n in 1...100 {
                rig.rig.fetch("h", "\(n)", "http://x/\(n)?" + String(repeating: "q", count: 300), by: a) {
                    $0.httpFields = Array("accept: image/png".utf8)
                }
            }
        }
        #expect(rig.terminals(for: a) == [])
        #expect(rig.core.records.requests.requestHeads == RequestHeads())
    }

    /// Runs a pass and audits all tables.
    private mutating func pass(_ change: (inout HeadTests) -> Void) {
        rig.pass()
        change(&self)
        rig.core.dispatch(now: rig.now)
        rig.actions = rig.core.takeActions()
        #expect(rig.core.audit() == [])
    }
}
