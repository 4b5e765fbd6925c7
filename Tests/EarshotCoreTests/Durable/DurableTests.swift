import EarshotWire
import Testing

@testable import EarshotCore

/// Durable requests: stored before ACCEPTED, executed without their client, and kept until acknowledged.
struct DurableTests {
    private typealias Bed = DurableBed

    private static let accepted = BrokerMessage.fetchAccepted(HandlerID("h")!, RequestID("1")!)

    private static func durable(_ fetch: inout Fetch) { fetch.options.isDurable = true }

    private static func submitted(_ fetch: inout Fetch) {
        fetch.options.isDurable = true
        fetch.options.subscribes = false
    }

    @Test func `nothing is said and nothing begins before it is on the disk`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.rig.pass { $0.fetch("h", "1", "http://a/", by: client, Self.durable) }
        #expect(bed.rig.jobs.isEmpty && bed.rig.replies(to: client).isEmpty)
        bed.disk.take(bed.rig.actions)
        bed.pass()
        #expect(bed.rig.replies(to: client) == [Self.accepted])
        #expect(bed.rig.jobs.count == 1)
        bed.finishJobs(worker)
        #expect(bed.rig.terminals(for: client) == ["h 1 200"])
        bed.pass { $0.send(.acknowledge(1), by: client) }
        #expect(bed.disk.rows.isEmpty)
        #expect(bed.rig.core.isIdle)
    }

    @Test func `it runs without its client, and its result goes to whoever claims the handler`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.durable) }
        let jobs = bed.rig.jobs
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(bed.rig.cancellations.isEmpty)
        bed.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(bed.rig.core.ledger.requests.pending == 1)
        #expect(bed.rig.releasedBodies == 1, "the body is on the disk alone")
        bed.rig.wait(milliseconds: 3_600_000)
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.terminals(for: other) == ["h 1 200"])
        let bodies = bed.rig.actions.compactMap {
            if case .client(.deliverTerminal(_, _, let body?)) = $0 { body } else { nil }
        }
        #expect(bodies.count == 1)
        bed.pass { $0.send(.acknowledge(1), by: other) }
        #expect(bed.disk.rows.isEmpty && bed.rig.core.isIdle)
    }

    @Test func `who goes without acknowledging leaves it to the next`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        for number in 1...3 as ClosedRange<UInt64> {
            let client = bed.rig.client(number)
            bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.durable) }
            #expect(bed.rig.replies(to: client) == [Self.accepted])
            if number == 1 { bed.finishJobs(worker) }
            #expect(bed.rig.terminals(for: client) == ["h 1 200"])
            #expect(bed.rig.core.ledger.requests.answered == 1)
            bed.pass { $0.core.clientLost(client, now: $0.now) }
            #expect(bed.rig.core.ledger.requests.answered == 0)
            #expect(bed.disk.rows.count == 1)
        }
    }

    @Test func `a terminal says whether its request is durable`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { rig in
            rig.fetch("h", "1", "http://a/", by: client, Self.durable)
            rig.fetch("h", "2", "http://b/", by: client)
        }
        bed.finishJobs(worker)
        var sent: [String: Bool] = [:]
        for action in bed.rig.actions {
            if case .client(.deliverTerminal(_, let terminal, _)) = action {
                sent[terminal.request.description] = terminal.isDurable
            }
        }
        #expect(sent == ["1": true, "2": false])
    }

    @Test func `one acknowledgement is enough, and frees the ID`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let one = bed.rig.client(1)
        let two = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: two) }
        bed.pass { $0.fetch("h", "1", "http://a/", by: one, Self.durable) }
        bed.finishJobs(worker)
        #expect(bed.rig.terminals(for: two) == ["h 1 200"])
        bed.pass { $0.send(.acknowledge(1), by: two) }
        #expect(bed.disk.rows.isEmpty)
        bed.pass { $0.fetch("h", "1", "http://b/", by: one, Self.submitted) }
        #expect(bed.rig.replies(to: one) == [Self.accepted])
        bed.pass { $0.core.clientLost(one, now: $0.now) }
        #expect(bed.rig.core.ledger.deliveries.lost == 1)
        #expect(bed.disk.rows.count == 1)
    }

    @Test func `the next broker fetches what had not ended, and has what had`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
        bed.finishJobs(worker)
        bed.pass { $0.fetch("h", "2", "http://b/", by: client, Self.submitted) }
        bed.restart()
        #expect(bed.rig.core.ledger.requests.pending == 2)
        let next = bed.rig.worker()
        bed.pass()
        #expect(bed.rig.jobs.map(\.url) == ["http://b/"])
        bed.finishJobs(next)
        bed.restart()
        let other = bed.rig.client(7)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.terminals(for: other) == ["h 1 200", "h 2 200"])
        bed.pass { $0.send(.acknowledge(2), by: other) }
        bed.restart()
        #expect(bed.rig.core.isIdle)
    }

    @Test func `what is asked again is the same request, with other content it is in use`() {
        var bed = Bed()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
        bed.restart()
        let other = bed.rig.client(2)
        bed.pass { $0.fetch("h", "1", "http://a/", by: other, Self.submitted) }
        #expect(bed.rig.replies(to: other) == [Self.accepted])
        bed.pass { $0.fetch("h", "1", "http://a/", by: other) }
        guard case .error(let reply)? = bed.rig.replies(to: other).first else {
            Issue.record("a request that is not durable passes for one that is")
            return
        }
        #expect(reply.code == "id-in-use")
        #expect(bed.rig.core.ledger.requests.submitted == 1)
    }

    @Test(arguments: ["one", "all", "replace"])
    func `who removes it removes it from the disk`(how: String) {
        var bed = Bed()
        let worker = bed.rig.worker()
        for hasEnded in [false, true] {
            let client = bed.rig.client(hasEnded ? 2 : 1)
            bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
            if hasEnded { bed.finishJobs(worker) }
            bed.pass { rig in
                switch how {
                case "one": rig.remove("h", "1", by: client)
                case "all": rig.remove("h", by: client)
                default:
                    rig.fetch("h", "2", "nonsense", by: client) { $0.options.replacesHandler = true }
                    rig.send(.acknowledge(1), by: client)
                }
            }
            #expect(bed.disk.rows.isEmpty)
            bed.restart()
            #expect(bed.rig.core.isIdle)
            _ = bed.rig.worker()
        }
    }

    @Test func `a removal overtakes the disk`() {
        var bed = Bed()
        let client = bed.rig.client(1)
        bed.pass { rig in
            rig.fetch("h", "1", "http://a/", by: client, Self.durable)
            rig.remove("h", by: client)
        }
        #expect(bed.disk.rows.isEmpty)
        #expect(bed.rig.replies(to: client).count == 1, "REMOVED alone")
        #expect(bed.rig.core.isIdle)
    }

    @Test(arguments: ["one", "all", "many"])
    func `who waits to hear that it is on the disk hears that somebody else removed it`(how: String) {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 1
        var bed = Bed(limits: limits)
        let requester = bed.rig.client(1)
        let other = bed.rig.client(2)
        bed.rig.pass { rig in
            for number in 1...(how == "many" ? 40 : 1) {
                rig.fetch("h", "\(number)", "http://a/", by: requester, Self.submitted)
            }
        }
        bed.disk.take(bed.rig.actions)
        bed.rig.pass { rig in
            if how == "one" {
                rig.remove("h", "1", by: other)
            } else {
                rig.remove("h", by: other)
            }
        }
        bed.disk.take(bed.rig.actions)
        var ends = bed.rig.refusals(for: requester)
        for _ in 0..<50 {
            bed.pass()
            ends += bed.rig.refusals(for: requester)
        }
        #expect(ends.sorted() == (1...(how == "many" ? 40 : 1)).map { "h \($0) removed" }.sorted())
        #expect(bed.disk.rows.isEmpty && bed.rig.core.isIdle)
    }

    /// Found by the simulation: ACCEPTED followed REMOVED when a removal took several passes.
    @Test func `nothing is accepted of what is being removed`() {
        var limits = CoreLimits()
        limits.maximumRequestRemovalsPerPass = 1
        var bed = Bed(limits: limits)
        let client = bed.rig.client(1)
        bed.rig.pass { rig in
            for number in 1...40 { rig.fetch("h", "\(number)", "http://a/", by: client, Self.submitted) }
        }
        bed.disk.take(bed.rig.actions)
        bed.rig.pass { $0.remove("h", by: client) }
        bed.disk.take(bed.rig.actions)
        var replies = bed.rig.replies(to: client)
        for _ in 0..<60 {
            bed.pass()
            replies += bed.rig.replies(to: client)
            #expect(bed.rig.jobs.isEmpty)
        }
        #expect(replies == [.handlersRemoved(HandlerPattern("h")!, count: 40)])
        #expect(bed.disk.rows.isEmpty && bed.rig.core.isIdle)
    }

    @Test func `who asked is told when it cannot be kept`() {
        var bed = Bed()
        let client = bed.rig.client(1)
        bed.disk.isFull = true
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
        #expect(bed.rig.refusals(for: client) == ["h 1 queue-full"])
        bed.pass { rig in
            rig.fetch("h", "2", "http://a/", by: client) {
                Self.submitted(&$0)
                $0.options.method = "POST"
                $0.options.coalesces = false
            }
        }
        #expect(bed.rig.refusals(for: client) == ["h 2 unsupported-method"])
        bed.rig.core.shellFeatures.isStoringDurableRequests = false
        bed.pass { $0.fetch("h", "3", "http://a/", by: client, Self.submitted) }
        #expect(bed.rig.refusals(for: client) == ["h 3 not-stored"])
        #expect(bed.rig.core.isIdle)
    }

    @Test func `a result without room on the disk goes to those who listen, else it says so`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.durable) }
        bed.disk.isFull = true
        bed.finishJobs(worker)
        #expect(bed.rig.terminals(for: client) == ["h 1 200"])
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.terminals(for: other) == ["h 1 not-stored"])
        #expect(bed.disk.rows.count == 1)
        bed.pass { $0.send(.acknowledge(1), by: other) }
        #expect(bed.rig.core.isIdle && bed.disk.rows.isEmpty)
    }

    @Test func `what is over its time is dropped and counted as orphaned, or told to those who listen`() {
        var limits = CoreLimits()
        limits.durableRetentionMilliseconds = 60_000
        var bed = Bed(limits: limits)
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
        bed.finishJobs(worker)
        bed.pass { $0.fetch("h", "2", "http://b/", by: client, Self.submitted) }
        bed.restart(after: 40)
        let other = bed.rig.client(2)
        bed.pass { $0.fetch("k", "1", "http://c/", by: other, Self.durable) }
        bed.rig.now = bed.rig.now.advanced(byMilliseconds: 25_000)
        bed.pass()
        #expect(bed.rig.core.ledger.requests.orphaned == 2)
        #expect(bed.disk.rows.count == 1)
        bed.rig.now = bed.rig.now.advanced(byMilliseconds: 60_000)
        bed.pass()
        #expect(bed.rig.terminals(for: other) == ["k 1 expired"])
        bed.pass { $0.core.clientLost(other, now: $0.now) }
        #expect(bed.disk.rows.isEmpty && bed.rig.core.isIdle)
    }

    @Test func `each change of the retention time replaces the timers of the one before`() {
        var bed = Bed()
        let client = bed.rig.client(1)
        bed.pass { rig in
            for number in 1...100 { rig.fetch("h", "\(number)", "http://a/\(number)", by: client, Self.durable) }
        }
        for change in 1...100 {
            var limits = CoreLimits()
            limits.durableRetentionMilliseconds = 60_000 - change % 2 * 1_000
            bed.rig.core.limitsChanged(limits, now: bed.rig.now)
        }
        #expect(bed.rig.core.timerCount < 3_000)
        bed.rig.now = bed.rig.now.advanced(byMilliseconds: 59_999)
        for _ in 0..<20 { bed.pass() }
        #expect(bed.rig.core.ledger.requests.pending == 100)
        bed.rig.now = bed.rig.now.advanced(byMilliseconds: 1)
        bed.pass()
        #expect(bed.rig.core.ledger.requests.pending == 0)
    }

    @Test func `a stored result with times beyond the clock is delivered`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
        bed.finishJobs(worker)
        bed.disk.damage("elapsed-ms: 9223372036854775807\nqueued-ms: 9223372036855")
        // The request was made before the zero of the clock.
        bed.restart(after: 10)
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.terminals(for: other) == ["h 1 200"])
    }

    @Test func `a deadline counts over restarts`() {
        var bed = Bed()
        let client = bed.rig.client(1)
        bed.pass { rig in
            rig.fetch("h", "1", "http://a/", by: client) {
                Self.submitted(&$0)
                $0.options.deadlineMilliseconds = 60_000
            }
        }
        bed.restart(after: 61)
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.terminals(for: other) == ["h 1 deadline"])
    }

    @Test func `of very many results a few are read at once`() {
        var limits = CoreLimits()
        limits.maximumConcurrentDurableReads = 3
        limits.originRules.defaultMaximumTransfers = 100
        var bed = Bed(limits: limits)
        let worker = bed.rig.worker(slots: 100)
        let client = bed.rig.client(1)
        bed.pass { rig in
            for number in 1...20 { rig.fetch("h", "\(number)", "http://a/\(number)", by: client, Self.submitted) }
        }
        bed.finishJobs(worker)
        bed.finishJobs(worker)
        bed.restart()
        let other = bed.rig.client(2)
        bed.rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.actions.count { if case .durable(.readResult) = $0 { true } else { false } } == 3)
        bed.disk.take(bed.rig.actions)
        var count = 0
        for _ in 0..<4 {
            bed.pass()
            count += bed.rig.terminals(for: other).count
        }
        #expect(count == 20)
    }

    @Test func `a draining broker leaves to the next one what it would try again`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.durable) }
        let jobs = bed.rig.jobs
        bed.pass { rig in
            rig.core.beginDraining()
            for job in jobs { rig.failed(job, "reset", by: worker) }
        }
        #expect(bed.rig.terminals(for: client).isEmpty)
        #expect(bed.rig.core.ledger.isBalanced && bed.disk.rows.count == 1)
        bed.restart()
        _ = bed.rig.worker()
        bed.pass()
        #expect(bed.rig.jobs.count == 1)
    }

    @Test func `a warm one has no body on the disk`() {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { rig in
            rig.fetch("h", "1", "http://a/", by: client) {
                Self.submitted(&$0)
                $0.options.isCacheWarming = true
            }
        }
        bed.finishJobs(worker)
        #expect(bed.disk.rows.values.allSatisfy { $0.result?.body == nil && $0.result?.bodyLength == 0 })
        bed.restart()
        let other = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: other) }
        #expect(bed.rig.terminals(for: other) == ["h 1 200"])
    }

    @Test func `a row that is no request is forgotten`() {
        var bed = Bed()
        bed.pass { rig in
            let entry = DurableEntry(
                id: DurableID(rawValue: 9), acceptedAt: 0, head: Array("nonsense".utf8), hasResult: true)
            rig.core.beginDurableLoad()
            rig.core.durableRowsRead([entry], now: rig.now)
        }
        #expect(bed.sent.contains(.durable(.deleteRequest(DurableID(rawValue: 9)))))
        #expect(bed.rig.core.isIdle)
    }

    /// SQLite does not check values: a damaged page may hold any number.
    @Test(arguments: [Int64.min, -1, 1_000_001, Int64.max] as [Int64])
    func `a row of an impossible time is as old as it can be`(acceptedAt: Int64) {
        var bed = Bed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://a/", by: client, Self.submitted) }
        bed.finishJobs(worker)
        bed.disk.date(DurableID(rawValue: 1), acceptedAt)
        bed.restart()
        #expect(bed.rig.core.ledger.isBalanced)
    }

    @Test(arguments: [UInt64.max, 1 << 63, (1 << 62) + 1] as [UInt64])
    func `a row of an impossible number is forgotten, and those after it have room`(number: UInt64) {
        var bed = Bed()
        bed.pass { rig in
            var fetch = Fetch(handler: HandlerID("h")!, request: RequestID("1")!, url: "http://a/")
            Self.submitted(&fetch)
            let entry = DurableEntry(
                id: DurableID(rawValue: number), acceptedAt: 0, head: ClientMessage.fetch(fetch).encoded(),
                hasResult: true)
            rig.core.beginDurableLoad()
            rig.core.durableRowsRead([entry], now: rig.now)
        }
        #expect(bed.sent.contains(.durable(.deleteRequest(DurableID(rawValue: number)))))
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "2", "http://a/", by: client, Self.submitted) }
        #expect(bed.rig.replies(to: client).count == 1)
        #expect(bed.disk.rows.keys.map(\.rawValue) == [1])
    }

    @Test func `who asks often before it is on the disk is told once`() {
        var bed = Bed()
        let client = bed.rig.client(1)
        bed.pass { rig in for _ in 0..<3 { rig.fetch("h", "1", "http://a/", by: client, Self.submitted) } }
        #expect(bed.sent.count { $0 == .client(.send(client, Self.accepted)) } == 1)
    }
}
