import EarshotWire
import Testing

@testable import EarshotCore

/// RETRY: a failed durable request without a subscriber becomes pending again.
struct RetryTests {
    private static let accepted = BrokerMessage.fetchAccepted(HandlerID("h")!, RequestID("1")!)
    private static let retry = ClientMessage.retry(HandlerID("h")!, RequestID("1")!)

    /// A bed whose request `h 1` has failed and waits on disk, and the worker of its broker.
    private static func failed(_ options: (inout Fetch) -> Void = { _ in }) -> (DurableBed, WorkerID) {
        var bed = DurableBed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass {
            $0.fetch("h", "1", "http://a/", by: client) { fetch in
                fetch.options.isDurable = true
                fetch.options.subscribes = false
                fetch.options.retries = 0
                options(&fetch)
            }
        }
        fail(&bed, worker)
        return (bed, worker)
    }

    private static func fail(_ bed: inout DurableBed, _ worker: WorkerID) {
        let jobs = bed.rig.jobs
        bed.pass { rig in for job in jobs { rig.failed(job, "malformed-url", by: worker) } }
    }

    private func code(_ bed: DurableBed, _ client: ClientID) -> [String] {
        bed.rig.replies(to: client).map { reply in
            switch reply {
            case .error(let error): error.code
            case .fetchAccepted(_, let request): "accepted \(request)"
            case .terminal(let terminal): terminal.sequence == 0 ? "refused" : "terminal"
            default: "other"
            }
        }
    }

    @Test func `it starts again once its failure is deleted, and ends with the next result`() {
        var (bed, worker) = Self.failed()
        let client = bed.rig.client(2)
        bed.rig.wait(milliseconds: 60_000)
        bed.rig.pass { $0.send(Self.retry, by: client) }
        #expect(bed.rig.jobs.isEmpty && bed.rig.replies(to: client).isEmpty)
        bed.disk.take(bed.rig.actions)
        bed.pass()
        #expect(bed.rig.replies(to: client) == [Self.accepted] && bed.rig.jobs.count == 1)
        #expect(bed.disk.rows.values.map(\.result) == [nil])
        bed.finishJobs(worker)
        #expect(bed.rig.core.ledger.requests.pending == 1 && bed.rig.core.ledger.requests.failed.isEmpty)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: client) }
        #expect(bed.rig.terminals(for: client) == ["h 1 200"])
        bed.pass { $0.send(.acknowledge(1), by: client) }
        #expect(bed.disk.rows.isEmpty && bed.rig.core.isIdle && bed.rig.core.ledger.isBalanced)
    }

    @Test(arguments: [true, false])
    func `a broker that is killed leaves the failure or the pending request`(isFlushed: Bool) {
        var (bed, _) = Self.failed()
        let client = bed.rig.client(2)
        if isFlushed {
            bed.pass { $0.send(Self.retry, by: client) }
        } else {
            bed.rig.pass { $0.send(Self.retry, by: client) }
        }
        bed.restart()
        let worker = bed.rig.worker()
        bed.pass()
        #expect(bed.rig.jobs.count == (isFlushed ? 1 : 0))
        Self.fail(&bed, worker)
        let next = bed.rig.client(3)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: next) }
        #expect(bed.rig.terminals(for: next) == ["h 1 malformed-url"])
    }

    @Test func `the next broker knows which results are failures`() {
        var (bed, worker) = Self.failed()
        let client = bed.rig.client(2)
        bed.pass {
            $0.fetch("h", "2", "http://b/", by: client) { fetch in
                fetch.options.isDurable = true
                fetch.options.subscribes = false
            }
        }
        bed.finishJobs(worker)
        bed.restart()
        let next = bed.rig.client(3)
        bed.pass { rig in
            for id in ["1", "2"] { rig.send(.retry(HandlerID("h")!, RequestID(id)!), by: next) }
        }
        #expect(code(bed, next) == ["unknown-request", "accepted 1"])
    }

    @Test func `a failure that cannot be deleted waits as before`() {
        var (bed, _) = Self.failed()
        let client = bed.rig.client(2)
        bed.disk.isFull = true
        bed.pass { $0.send(Self.retry, by: client) }
        #expect(bed.rig.refusals(for: client) == ["h 1 not-stored"] && bed.rig.jobs.isEmpty)
        bed.disk.isFull = false
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: client) }
        #expect(bed.rig.terminals(for: client) == ["h 1 malformed-url"])
    }

    @Test func `a repetition that many clients ask for happens once, and a pending request needs none`() {
        var (bed, _) = Self.failed()
        let clients = [bed.rig.client(2), bed.rig.client(3)]
        bed.pass { rig in
            for client in clients + clients { rig.send(Self.retry, by: client) }
        }
        for client in clients { #expect(bed.rig.replies(to: client) == [Self.accepted]) }
        #expect(bed.rig.jobs.count == 1)
        bed.pass { $0.send(Self.retry, by: clients[0]) }
        #expect(bed.rig.replies(to: clients[0]) == [Self.accepted] && bed.rig.jobs.isEmpty)
    }

    @Test func `a failure that a subscriber has, or that no request has, is refused`() {
        var (bed, _) = Self.failed()
        let client = bed.rig.client(2)
        bed.pass { rig in
            rig.send(.retry(HandlerID("h")!, RequestID("7")!), by: client)
            rig.send(.retry(HandlerID("x")!, RequestID("1")!), by: client)
            rig.fetch("h", "2", "http://b/", by: client)
            rig.send(.retry(HandlerID("h")!, RequestID("2")!), by: client)
        }
        #expect(code(bed, client) == [String](repeating: "unknown-request", count: 3))
        bed.pass { $0.send(Self.retry, by: client) }
        #expect(code(bed, client) == ["unknown-request"], "the FETCH has subscribed")
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        let next = bed.rig.client(3)
        bed.pass { $0.send(Self.retry, by: next) }
        #expect(bed.rig.replies(to: next) == [Self.accepted])
    }

    @Test func `a removal meanwhile ends it`() {
        var (bed, _) = Self.failed()
        let client = bed.rig.client(2)
        bed.rig.pass { $0.send(Self.retry, by: client) }
        bed.disk.take(bed.rig.actions)
        let remover = bed.rig.client(3)
        bed.pass { $0.remove("h", by: remover) }
        #expect(bed.rig.refusals(for: client) == ["h 1 removed"])
        #expect(bed.rig.jobs.isEmpty && bed.disk.rows.isEmpty && bed.rig.core.ledger.isBalanced)
    }

    @Test func `its deadline and its time on disk count from the repetition`() {
        var (bed, worker) = Self.failed { $0.options.deadlineMilliseconds = 60_000 }
        let client = bed.rig.client(2)
        bed.rig.wait(milliseconds: 50_000)
        bed.pass { $0.send(Self.retry, by: client) }
        #expect(bed.disk.rows.values.map(\.acceptedAt) == [bed.rig.core.unixTimeSeconds])
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: client) }
        bed.rig.wait(milliseconds: 20_000)
        #expect(bed.rig.terminals(for: client) == [], "the deadline of the first acceptance has passed")
        bed.rig.wait(milliseconds: 40_000)
        bed.disk.take(bed.rig.actions)
        bed.pass()
        #expect(bed.rig.terminals(for: client) == ["h 1 deadline"])
        _ = worker
    }

    @Test func `a repeated request hides no later one from the end of the grace period`() {
        var (bed, _) = Self.failed()
        let client = bed.rig.client(2)
        bed.pass { $0.send(Self.retry, by: client) }
        bed.pass {
            $0.fetch("h", "2", "http://slow/", by: client) { $0.options.subscribes = false }
            $0.send(.subscribe(HandlerPattern("h")!), by: client)
            $0.send(.unsubscribe(HandlerPattern("h")!), by: client)
        }
        #expect(bed.rig.core.ledger.requests.pending == 2)
        bed.rig.wait(milliseconds: 10_000)
        #expect(bed.rig.core.ledger.requests.orphaned == 1)
    }

    @Test func `the list has the code of a failure on disk`() {
        var (bed, _) = Self.failed()
        let client = bed.rig.client(2)
        bed.pass { $0.send(.query(.requests), by: client) }
        let answers = bed.rig.actions.compactMap { action in
            if case .client(.answerQuery(_, _, let json)) = action {
                String(decoding: json, as: UTF8.self)
            } else {
                nil
            }
        }
        let json = answers.joined()
        #expect(json.contains(#""state":"held""#) && json.contains(#""code":"malformed-url""#))
    }

    // MARK: Failures that stay

    private static func subscribe(_ bed: inout DurableBed, _ client: ClientID) {
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: client) }
    }

    @Test func `a failure stays after the acknowledgement of a session that keeps failures, and comes once`() {
        var (bed, worker) = Self.failed()
        let watcher = bed.rig.client(2) { $0.keepsFailures = true }
        Self.subscribe(&bed, watcher)
        #expect(bed.rig.terminals(for: watcher) == ["h 1 malformed-url"])
        bed.pass { $0.send(.acknowledge(1), by: watcher) }
        #expect(bed.rig.terminals(for: watcher).isEmpty)
        #expect(bed.disk.rows.count == 1 && bed.rig.core.ledger.requests.pending == 1)
        #expect(bed.rig.core.ledger.requests.failed.isEmpty && bed.rig.core.ledger.isBalanced)
        bed.pass { $0.send(Self.retry, by: watcher) }
        #expect(bed.rig.replies(to: watcher).contains(Self.accepted))
        bed.finishJobs(worker)
        #expect(bed.rig.terminals(for: watcher) == ["h 1 200"])
        bed.pass { $0.send(.acknowledge(2), by: watcher) }
        #expect(bed.disk.rows.isEmpty && bed.rig.core.ledger.isBalanced)
    }

    @Test func `a failure that stays is claimed by the next subscriber, whose acknowledgement removes it`() {
        var (bed, _) = Self.failed()
        let watcher = bed.rig.client(2) { $0.keepsFailures = true }
        Self.subscribe(&bed, watcher)
        bed.pass { $0.send(.acknowledge(1), by: watcher) }
        let taker = bed.rig.client(3)
        Self.subscribe(&bed, taker)
        #expect(bed.rig.terminals(for: taker) == ["h 1 malformed-url"])
        bed.pass { $0.send(.acknowledge(2), by: watcher) }
        #expect(bed.disk.rows.count == 1)
        bed.pass { $0.send(.acknowledge(1), by: taker) }
        #expect(bed.disk.rows.isEmpty && bed.rig.core.ledger.isBalanced && bed.rig.core.ledger.requests.pending == 0)
    }

    @Test func `a failure that another subscriber loses is not sent to the one that has acknowledged it`() {
        var (bed, _) = Self.failed()
        let watcher = bed.rig.client(2) { $0.keepsFailures = true }
        let taker = bed.rig.client(3)
        bed.pass {
            $0.send(.subscribe(HandlerPattern("h")!), by: watcher)
            $0.send(.subscribe(HandlerPattern("h")!), by: taker)
        }
        bed.pass { $0.send(.acknowledge(1), by: watcher) }
        bed.pass { $0.core.clientLost(taker, now: $0.now) }
        #expect(bed.rig.terminals(for: watcher).isEmpty && bed.disk.rows.count == 1)
    }

    @Test func `a session that keeps failures frees results, and removals end them for good`() {
        var (bed, worker) = Self.failed()
        let watcher = bed.rig.client(2) { $0.keepsFailures = true }
        Self.subscribe(&bed, watcher)
        bed.pass { $0.send(.acknowledge(1), by: watcher) }
        bed.pass { rig in
            rig.fetch("h", "2", "http://a/2", by: watcher) { $0.options.isDurable = true }
        }
        bed.finishJobs(worker)
        bed.pass { $0.send(.acknowledge(2), by: watcher) }
        #expect(bed.disk.rows.count == 1)
        bed.pass { $0.send(.removeHandlers(HandlerPattern("h")!), by: watcher) }
        #expect(bed.disk.rows.isEmpty && bed.rig.core.ledger.isBalanced)
    }
}
