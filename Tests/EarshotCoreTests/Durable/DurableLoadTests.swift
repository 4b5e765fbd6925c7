import EarshotWire
import Testing

@testable import EarshotCore

/// Rows of earlier brokers, which are loaded in slices while the broker serves.
struct DurableLoadTests {
    private static let handler = HandlerID("h")!
    private static let user = PrincipalName("uid:1")!

    private static func submitted(_ fetch: inout Fetch) {
        fetch.options.isDurable = true
        fetch.options.subscribes = false
    }

    private static func connect(_ number: UInt64, _ bed: inout DurableBed) -> ClientID {
        let id = ClientID(rawValue: number)
        bed.rig.connect(id, user: user)
        bed.rig.send(.hello(Hello()), by: id)
        return id
    }

    private static func submit(_ requests: ClosedRange<Int>, by client: ClientID, _ bed: inout DurableBed) {
        bed.pass { rig in
            for request in requests { rig.fetch("h", "\(request)", "http://a/\(request)", by: client, submitted) }
        }
    }

    /// A broker whose disk has rows that are not read yet.
    private static func loading(_ requests: ClosedRange<Int> = 1...3) -> DurableBed {
        var bed = DurableBed()
        let client = bed.rig.client(1)
        submit(requests, by: client, &bed)
        bed.disk.isReading = false
        bed.restart()
        return bed
    }

    private static func load(_ bed: inout DurableBed) {
        bed.disk.isReading = true
        bed.pass()
    }

    private static func readings(_ actions: [Action]) -> Int {
        actions.count { if case .durable(.readRows) = $0 { true } else { false } }
    }

    // MARK: All rows

    @Test func `one slice is read at a time, and all rows are loaded in their order`() {
        var bed = Self.loading(1...5)
        _ = bed.rig.worker()
        bed.disk.isReading = true
        bed.disk.sliceRows = 2
        var urls: [String] = []
        var readings = 0
        for _ in 0..<6 {
            var disk = bed.disk
            bed.rig.pass { disk.work(&$0.core, now: $0.now) }
            bed.disk = disk
            bed.disk.take(bed.rig.actions)
            urls += bed.rig.jobs.map(\.url)
            #expect(Self.readings(bed.rig.actions) <= 1)
            readings += Self.readings(bed.rig.actions)
            #expect(bed.rig.core.audit() == [])
        }
        #expect(urls == (1...5).map { "http://a/\($0)" })
        #expect(readings == 3 && !bed.rig.core.hasDurableRows && bed.rig.core.loadedDurableCount == 5)
    }

    @Test func `a plain request is served before the rows are loaded, and a durable one waits for them`() {
        var bed = Self.loading()
        let worker = bed.rig.worker()
        let (plain, durable) = (bed.rig.client(1), bed.rig.client(2))
        bed.pass { rig in
            rig.fetch("plain", "1", "http://b/", by: plain)
            rig.fetch("h", "1", "http://a/1", by: durable, Self.submitted)
            rig.send(.query(.ping), by: plain)
        }
        #expect(bed.rig.jobs.map(\.url) == ["http://b/"])
        #expect(bed.sent.contains { if case .client(.answerQuery(plain, .ping, _)) = $0 { true } else { false } })
        #expect(bed.rig.replies(to: durable) == [])
        #expect(bed.rig.core.awaitsDurableRows(durable) && !bed.rig.core.awaitsDurableRows(plain))
        bed.finishJobs(worker)
        #expect(bed.rig.terminals(for: plain) == ["plain 1 200"])
        Self.load(&bed)
        #expect(bed.rig.replies(to: durable) == [.fetchAccepted(Self.handler, RequestID("1")!)])
        #expect(!bed.rig.core.awaitsDurableRows(durable))
        #expect(bed.disk.rows.count == 3, "it is a repetition")
    }

    @Test func `messages that name or list requests wait, and are carried out in their order`() {
        var bed = Self.loading()
        let clients = (1...4).map { bed.rig.client(UInt64($0)) }
        let messages: [ClientMessage] = [
            .query(.requests), .query(.explainRequest(Self.handler, RequestID("2")!)),
            .setPriority(Self.handler, RequestID("3")!, .high),
            .removeRequest(Self.handler, RequestID("3")!),
        ]
        bed.pass { rig in for (client, message) in zip(clients, messages) { rig.send(message, by: client) } }
        #expect(clients.allSatisfy { bed.rig.core.awaitsDurableRows($0) })
        Self.load(&bed)
        let answers = bed.sent.compactMap { action -> String? in
            if case .client(.answerQuery(_, _, let json)) = action {
                String(decoding: json, as: UTF8.self)
            } else {
                nil
            }
        }
        #expect(answers.count == 2 && answers[0].contains("\"request\":\"3\""))
        #expect(answers.last?.contains("\"state\":\"queued\"") == true)
        #expect(bed.rig.replies(to: clients[2]) == [])
        #expect(bed.rig.replies(to: clients[3]) == [.requestRemoved(Self.handler, RequestID("3")!, wasOpen: true)])
    }

    @Test(arguments: [false, true])
    func `of a handler that is removed meanwhile nothing comes back`(replaces: Bool) {
        var bed = Self.loading()
        let (client, subscriber) = (bed.rig.client(1), bed.rig.client(2))
        bed.pass { rig in
            rig.send(.subscribe(.handler(Self.handler)), by: subscriber)
            if replaces {
                rig.fetch("h", "9", "http://b/", by: client) { $0.options.replacesHandler = true }
            } else {
                rig.remove("h", by: client)
            }
        }
        #expect(bed.rig.replies(to: client) == [] && bed.disk.rows.count == 3)
        Self.load(&bed)
        #expect(replaces || bed.rig.replies(to: client) == [.handlersRemoved(.handler(Self.handler), count: 3)])
        #expect(bed.rig.terminals(for: subscriber) == ["h 1 removed", "h 2 removed", "h 3 removed"])
        #expect(bed.disk.rows.isEmpty)
        bed.restart()
        #expect(bed.rig.core.isIdle)
    }

    @Test func `a subscriber of the first moment receives the results as they are loaded`() {
        var bed = DurableBed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        Self.submit(1...2, by: client, &bed)
        bed.finishJobs(worker)
        bed.disk.isReading = false
        bed.restart()
        let subscriber = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(.handler(Self.handler)), by: subscriber) }
        #expect(bed.rig.terminals(for: subscriber) == [])
        Self.load(&bed)
        #expect(bed.rig.terminals(for: subscriber) == ["h 1 200", "h 2 200"])
    }

    @Test(arguments: [false, true])
    func `a row takes its ID from a request that came before it was loaded`(hasEnded: Bool) {
        var bed = Self.loading(1...1)
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://plain/", by: client) }
        let jobs = bed.rig.jobs
        #expect(jobs.map(\.url) == ["http://plain/"])
        if hasEnded {
            bed.finishJobs(worker)
            #expect(bed.rig.terminals(for: client) == ["h 1 200"])
        }
        Self.load(&bed)
        #expect(bed.rig.replies(to: client).isEmpty)
        #expect(bed.rig.terminals(for: client) == (hasEnded ? [] : ["h 1 removed"]))
        #expect(bed.rig.jobs.map(\.url) == ["http://a/1"] && bed.disk.rows.count == 1)
        #expect(hasEnded || bed.rig.cancellations == [jobs[0].attempt])
        if hasEnded { bed.pass { $0.send(.acknowledge(1), by: client) } }
        #expect(bed.disk.rows.count == 1, "the acknowledgement was that of the plain request")
    }

    @Test func `a message whose client is lost is not carried out`() {
        var bed = Self.loading()
        let client = bed.rig.client(1)
        bed.pass { $0.remove("h", by: client) }
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        Self.load(&bed)
        #expect(bed.disk.rows.count == 3 && bed.rig.core.ledger.requests.pending == 3)
    }

    @Test func `a body that waits with its message is released once`() {
        var bed = Self.loading()
        let client = bed.rig.client(1)
        let body = RequestBody(bodyID: BodyID(rawValue: 77), byteCount: 3, digestPrefix: 1)
        bed.pass { rig in
            var fetch = Fetch(handler: Self.handler, request: RequestID("9")!, url: "http://b/")
            fetch.options.method = "POST"
            fetch.options.coalesces = false
            fetch.options.replacesHandler = true
            rig.core.clientMessageReceived(.fetch(fetch), body: body, from: client, now: rig.now)
        }
        let release = Action.spool(.releaseBody(body.bodyID))
        #expect(!bed.sent.contains(release))
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(bed.sent.count { $0 == release } == 1)
    }

    @Test func `a draining broker answers a message that waits before it ends`() {
        var bed = Self.loading()
        let client = bed.rig.client(1)
        bed.pass { rig in
            rig.core.beginDraining()
            rig.remove("h", by: client)
        }
        #expect(!bed.rig.core.isDrained)
        Self.load(&bed)
        #expect(bed.rig.replies(to: client).contains(.handlersRemoved(.handler(Self.handler), count: 3)))
        #expect(bed.rig.core.isDrained && bed.disk.rows.isEmpty)
    }

    @Test func `the status says that rows are being loaded`() {
        var bed = Self.loading()
        let client = bed.rig.client(1)
        func status() -> String {
            bed.pass { $0.send(.query(.status), by: client) }
            for case .client(.answerQuery(client, .status, let json)) in bed.sent {
                return String(decoding: json, as: UTF8.self)
            }
            return ""
        }
        #expect(status().contains("\"durable\":\"loading\""))
        Self.load(&bed)
        #expect(status().contains("\"requests\"") && !status().contains("\"durable\":\"loading\""))
    }

    @Test func `a file of a result is kept until the rows are loaded, and goes if none names it`() {
        var rig = CoreRig()
        rig.core.shellFeatures.isStoringDurableRequests = true
        let release = Action.spool(.releaseFile("a"))
        rig.pass { $0.core.beginDurableLoad(files: ["a": 5]) }
        #expect(!rig.actions.contains(release) && !rig.core.isIdle && rig.core.audit() == [])
        rig.pass { $0.core.durableRowsRead([], now: $0.now) }
        #expect(rig.actions.contains(release) && rig.core.isIdle)
    }

    // MARK: Quotas

    /// A broker that a user has left more rows than a lowered quota admits, and a client of the user.
    private static func limited(rows: ClosedRange<Int> = 1...8, quota: Int = 700) -> (DurableBed, ClientID) {
        var bed = DurableBed()
        let first = connect(1, &bed)
        submit(rows, by: first, &bed)
        var limits = bed.rig.core.limits
        limits.maximumDurableBytesPerUser = quota
        bed.pass { $0.core.limitsChanged(limits, now: $0.now) }
        bed.restart()
        let client = connect(2, &bed)
        return (bed, client)
    }

    private static func used(_ bed: DurableBed) -> Int {
        bed.rig.core.records.principals.handle(of: user).map {
            bed.rig.core.records.quotaUse.currentUse(by: $0).durableBytes
        }
            ?? 0
    }

    @Test func `rows of a user beyond the quota stay in the table, and are loaded as others end`() {
        var (bed, client) = Self.limited()
        #expect(bed.rig.core.ledger.requests.pending == 2 && bed.disk.rows.count == 8)
        #expect(bed.rig.core.usersWithDurableRows == [Self.user])
        let worker = bed.rig.worker()
        bed.pass { $0.send(.subscribe(.handler(Self.handler)), by: client) }
        var jobs = bed.rig.jobs
        var received: [String] = []
        for _ in 0..<8 where !jobs.isEmpty {
            let job = jobs.removeFirst()
            bed.pass { $0.done(job, by: worker, status: 404) }
            jobs += bed.rig.jobs
            received += bed.rig.terminals(for: client)
            #expect(Self.used(bed) <= 700)
            let sequence = UInt64(received.count)
            bed.pass { $0.send(.acknowledge(sequence), by: client) }
            jobs += bed.rig.jobs
            #expect(Self.used(bed) <= 700)
        }
        #expect(received == (1...8).map { "h \($0) http-status" })
        #expect(bed.disk.rows.isEmpty && !bed.rig.core.hasDurableRows)
    }

    @Test func `meanwhile the user gets no new durable request, and others do`() {
        var (bed, client) = Self.limited()
        let administrator = bed.rig.client(3)
        bed.pass { rig in
            rig.fetch("h", "20", "http://b/", by: client, Self.submitted)
            rig.fetch("h", "8", "http://a/8", by: client, Self.submitted)
            rig.fetch("h", "1", "http://a/1", by: client, Self.submitted)
            rig.fetch("h", "20", "http://b/", by: administrator, Self.submitted)
        }
        let codes = bed.rig.replies(to: client).compactMap { reply -> String? in
            switch reply {
            case .fetchAccepted(_, let request): "accepted \(request)"
            case .terminal(let terminal):
                if case .failed(let failure) = terminal.outcome { "\(failure.code) \(terminal.request)" } else { nil }
            default: nil
            }
        }
        #expect(Set(codes) == ["quota 20", "quota 8", "accepted 1"])
        #expect(bed.rig.replies(to: administrator) == [.fetchAccepted(Self.handler, RequestID("20")!)])
        #expect(bed.disk.rows.count == 9, "a repetition of a row in the table makes no second one")
    }

    @Test func `a removal deletes rows that are not loaded, and counts them`() {
        var (bed, client) = Self.limited()
        bed.pass { rig in rig.remove("h", "8", by: client) }
        #expect(bed.rig.replies(to: client) == [.requestRemoved(Self.handler, RequestID("8")!, wasOpen: true)])
        #expect(bed.disk.rows.count == 7 && bed.rig.core.hasDurableRows)
        bed.pass { rig in rig.remove("h", by: client) }
        #expect(bed.rig.replies(to: client) == [.handlersRemoved(.handler(Self.handler), count: 7)])
        #expect(bed.disk.rows.isEmpty && !bed.rig.core.hasDurableRows && Self.used(bed) == 0)
        bed.pass { rig in rig.fetch("h", "1", "http://a/1", by: client, Self.submitted) }
        #expect(bed.rig.replies(to: client) == [.fetchAccepted(Self.handler, RequestID("1")!)])
    }

    @Test func `another user's removal deletes none of them`() {
        var (bed, _) = Self.limited()
        let administrator = bed.rig.client(3)
        bed.pass { rig in rig.remove("h", by: administrator) }
        #expect(bed.rig.replies(to: administrator) == [.handlersRemoved(.handler(Self.handler), count: 0)])
        #expect(bed.disk.rows.count == 8)
    }

    @Test func `a row longer than the quota is loaded alone`() {
        var (bed, client) = Self.limited(rows: 1...2, quota: 10)
        #expect(bed.rig.core.ledger.requests.pending == 1)
        bed.pass { rig in rig.remove("h", "1", by: client) }
        #expect(bed.rig.core.ledger.requests.pending == 1 && bed.disk.rows.count == 1 && !bed.rig.core.hasDurableRows)
    }

    @Test func `a raised quota loads the rest`() {
        var (bed, _) = Self.limited()
        var limits = bed.rig.core.limits
        limits.maximumDurableBytesPerUser = 0
        bed.pass { $0.core.limitsChanged(limits, now: $0.now) }
        #expect(bed.rig.core.ledger.requests.pending == 8 && !bed.rig.core.hasDurableRows)
    }

    @Test func `after a restart a user has as many bytes as before, with the results in memory`() {
        var bed = DurableBed()
        let worker = bed.rig.worker()
        let client = Self.connect(1, &bed)
        Self.submit(1...3, by: client, &bed)
        bed.finishJobs(worker)
        let before = Self.used(bed)
        bed.restart()
        #expect(Self.used(bed) == before && before > 0)
    }

    @Test func `the administrator's durable requests leave the last quarter of the store to other users`() {
        var bed = DurableBed()
        let administrator = bed.rig.client(3)
        let bytes = bed.rig.core.settings[.durableSize] ?? 0
        #expect(bytes > 0)
        bed.rig.core.records.quotaUse.mayHaveOtherUsers = true
        bed.rig.core.records.quotaUse.addSharedAmount(
            bytes - bytes / 4, of: \.durableBytes, by: PrincipalTable.administrator)
        bed.rig.pass { $0.fetch("h", "1", "http://a/1", by: administrator, Self.submitted) }
        let codes = bed.rig.replies(to: administrator).compactMap { reply -> String? in
            guard case .terminal(let terminal) = reply, case .failed(let failure) = terminal.outcome else { return nil }
            return failure.code
        }
        #expect(codes == ["queue-full"])
    }
}
