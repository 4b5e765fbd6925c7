import EarshotWire
import Testing

@testable import EarshotCore

/// Quotas of users, through the whole core.
struct QuotaTests {
    private static let (a, b) = (ClientID(rawValue: 1), ClientID(rawValue: 2))

    /// A rig with a client of each of two users, and a worker.
    private static func rig(slots: Int = 8, _ change: (inout CoreLimits) -> Void) -> (CoreRig, WorkerID) {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 1_000
        change(&limits)
        var rig = CoreRig(limits: limits)
        for (client, user) in [(a, "uid:1"), (b, "uid:2")] { connect(client, user, &rig) }
        let worker = rig.worker(9, slots: slots)
        return (rig, worker)
    }

    private static func connect(_ client: ClientID, _ user: String, _ rig: inout CoreRig) {
        rig.connect(client, user: PrincipalName(user)!)
        rig.send(.hello(Hello()), by: client)
    }

    private static func submit(
        _ requests: ClosedRange<Int>, by client: ClientID, under handler: String = "h", _ rig: inout CoreRig,
        _ change: (inout Fetch) -> Void = { _ in }
    ) {
        for request in requests {
            rig.fetch(handler, "\(request)", "http://u\(client.rawValue)/\(handler)/\(request)", by: client, change)
        }
    }

    private static func expectSound(_ rig: CoreRig, _ location: SourceLocation = #_sourceLocation) {
        for fault in rig.core.audit() { Issue.record("\(fault)", sourceLocation: location) }
    }

    // MARK: Requests

    @Test func `requests beyond the quota of a user are refused, and those of another are not`() {
        var (rig, worker) = Self.rig { $0.maximumOpenRequestsPerUser = 2 }
        rig.pass { Self.submit(1...3, by: Self.a, &$0) }
        #expect(rig.terminals(for: Self.a) == ["h 3 quota"])
        let jobs = rig.jobs
        rig.pass { Self.submit(1...2, by: Self.b, &$0) }
        #expect(rig.terminals(for: Self.b) == [] && rig.jobs.count == 2)
        Self.expectSound(rig)
        rig.pass { rig in
            rig.done(jobs[0], by: worker)
            Self.submit(4...4, by: Self.a, &rig)
        }
        #expect(rig.terminals(for: Self.a) == ["h 1 200"], "one has ended, so another is accepted")
        rig.pass { rig in
            rig.remove("h", by: Self.a)
            Self.submit(5...7, by: Self.a, &rig)
        }
        #expect(rig.terminals(for: Self.a) == ["h 7 quota"])
        Self.expectSound(rig)
        let administrator = rig.client(3)
        rig.pass { rig in
            for request in 1...9 { rig.fetch("h", "\(request)", "http://u3/\(request)", by: administrator) }
        }
        #expect(rig.terminals(for: administrator) == [])
    }

    @Test func `no terminal of a refused request waits for a subscriber, so refusals take no memory`() {
        var (rig, _) = Self.rig(slots: 1) { $0.maximumOpenRequestsPerUser = 2 }
        rig.pass { Self.submit(1...20, by: Self.a, &$0) { $0.options.subscribes = false } }
        #expect(rig.core.records.requests.count == 2 && rig.core.records.quotaUse.currentUse(by: 1).openRequests == 2)
        Self.expectSound(rig)
    }

    @Test func `the removal of a large handler frees its quota before the client's next message`() {
        var (rig, _) = Self.rig(slots: 1) {
            $0.maximumOpenRequestsPerUser = 500
            $0.maximumRequestRemovalsPerPass = 10
        }
        rig.pass { Self.submit(1...500, by: Self.a, &$0) }
        rig.pass { rig in
            rig.remove("h", by: Self.a)
            Self.submit(501...900, by: Self.a, under: "i", &rig)
        }
        #expect(rig.terminals(for: Self.a) == [] && !rig.core.hasPendingRemovals)
        Self.expectSound(rig)
    }

    // MARK: Transfers

    @Test func `a user at the quota of transfers waits, and the slots serve another`() throws {
        var (rig, worker) = Self.rig(slots: 16) { $0.maximumTransfersPerUser = 2 }
        rig.pass { Self.submit(1...6, by: Self.a, &$0) { $0.options.priority = .high } }
        #expect(rig.jobs.count == 2)
        let first = rig.jobs
        rig.pass { Self.submit(1...2, by: Self.b, &$0) }
        #expect(rig.jobs.count == 2 && rig.jobs.allSatisfy { $0.url.hasPrefix("http://u2/") })
        Self.expectSound(rig)
        rig.pass { $0.send(.query(.explainRequest(HandlerID("h")!, RequestID("6")!), QueryPage()), by: Self.a) }
        let answer = try #require(self.answer(rig))
        #expect(answer.contains(#""waits-for":"quota""#) && answer.contains(#""running":2,"limit":2"#), "\(answer)")
        rig.pass { $0.done(first[0], by: worker) }
        #expect(rig.jobs.map(\.url) == ["http://u1/h/3"])
        // A cancelled transfer counts until the worker confirms its end.
        rig.pass { $0.remove("h", "2", by: Self.a) }
        #expect(rig.jobs == [] && rig.cancellations == [first[1].attempt])
        Self.expectSound(rig)
        rig.pass { $0.failed(first[1], "cancelled", by: worker) }
        #expect(rig.jobs.map(\.url) == ["http://u1/h/4"])
        Self.expectSound(rig)
    }

    private func answer(_ rig: CoreRig) -> String? {
        rig.actions.compactMap {
            if case .client(.answerQuery(_, _, let json)) = $0 { String(decoding: json, as: UTF8.self) } else { nil }
        }.first
    }

    @Test func `a raised quota starts waiting requests, and a lost worker frees it`() {
        var (rig, worker) = Self.rig(slots: 16) { $0.maximumTransfersPerUser = 1 }
        let administrator = rig.client(3)
        rig.pass { Self.submit(1...6, by: Self.a, &$0) }
        #expect(rig.jobs.count == 1)
        rig.pass { $0.send(.changeSetting(SettingWords(["transfers-per-user", "3"])!), by: administrator) }
        #expect(rig.jobs.count == 2)
        rig.pass { $0.core.workerLost(worker, now: $0.now) }
        #expect(rig.core.records.quotaUse.currentUse(by: 1).transfers == 0)
        rig.pass { _ = $0.worker(10, slots: 16) }
        #expect(rig.jobs.count == 3)
        Self.expectSound(rig)
    }

    @Test func `the number of a user who left is not reused while a transfer counts for it`() {
        var (rig, _) = Self.rig { $0.maximumTransfersPerUser = 1 }
        rig.pass { Self.submit(1...1, by: Self.a, &$0) }
        rig.pass { $0.core.clientLost(Self.a, now: $0.now) }
        #expect(
            rig.core.records.quotaUse.currentUse(by: 1).transfers == 1, "the worker has not confirmed the cancellation")
        // Enough users that the table of principals sweeps.
        for user in 100...400 as ClosedRange<UInt64> {
            let client = ClientID(rawValue: user)
            rig.pass { Self.connect(client, "uid:\(user)", &$0) }
            rig.pass { $0.core.clientLost(client, now: $0.now) }
        }
        #expect(
            rig.core.records.quotaUse.currentUse(by: 1).transfers == 1
                && rig.core.records.principals.name(of: 1)?.description == "uid:1")
        Self.expectSound(rig)
    }

    // MARK: Bytes

    private func done(_ job: Job, _ name: String, length: Int, by worker: WorkerID, _ rig: inout CoreRig) {
        rig.pass {
            var completion = Completion(attempt: job.attempt, status: 200)
            completion.bodyByteCount = length
            completion.sha256 = name
            completion.fileName = name
            $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now)
        }
    }

    @Test(arguments: [false, true])
    func `a user holds no more bytes than its quota, and its acknowledgements make room`(areInMemory: Bool) throws {
        var (rig, worker) = Self.rig {
            // With the URLs of two results.
            if areInMemory { $0.maximumMemoryBytesPerUser = 1_026 } else { $0.maximumSpoolBytesPerUser = 1_000 }
        }
        var jobs: [String: Job] = [:]
        for (client, requests) in [(Self.a, 1...5), (Self.b, 1...1)] {
            rig.pass { Self.submit(requests, by: client, &$0) }
            for job in rig.jobs { jobs[job.url] = job }
        }
        done(try #require(jobs["http://u1/h/1"]), "one", length: 600, by: worker, &rig)
        #expect(rig.terminals(for: Self.a) == ["h 1 200"])
        done(try #require(jobs["http://u1/h/2"]), "two", length: 401, by: worker, &rig)
        #expect(rig.terminals(for: Self.a) == ["h 2 quota"])
        #expect(
            rig.details(for: Self.a) == [areInMemory ? QuotaRefusalText.memoryFull : QuotaRefusalText.spoolFull])
        #expect(rig.actions.contains(.spool(.releaseFile("two"))))
        done(try #require(jobs["http://u2/h/1"]), "three", length: 1_000, by: worker, &rig)
        #expect(rig.terminals(for: Self.b) == ["h 1 200"], "another user has its own quota")
        Self.expectSound(rig)
        rig.pass { $0.send(.acknowledge(1), by: Self.a) }
        done(try #require(jobs["http://u1/h/3"]), "four", length: 1_000, by: worker, &rig)
        #expect(rig.terminals(for: Self.a) == ["h 3 200"])
        Self.expectSound(rig)
        rig.pass { $0.core.clientLost(Self.a, now: $0.now) }
        rig.pass()
        let left = rig.core.records.quotaUse.currentUse(by: 1)
        #expect(left.spoolBytes == 0 && left.memoryBytes == 0 && left.terminals == 0)
        Self.expectSound(rig)
    }

    @Test(arguments: [true, false])
    func `header fields in memory count, whether somebody listens or not`(subscribes: Bool) throws {
        var (rig, worker) = Self.rig { $0.maximumMemoryBytesPerUser = 1_000 }
        rig.pass { Self.submit(1...3, by: Self.a, &$0) { $0.options.subscribes = subscribes } }
        for job in rig.jobs {
            rig.pass { $0.done(job, by: worker, fields: "x: " + String(repeating: "y", count: 600)) }
        }
        Self.expectSound(rig)
        if !subscribes { rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: Self.a) } }
        // Fields, URL and a body of 3 bytes.
        #expect(rig.core.records.quotaUse.currentUse(by: 1).memoryBytes == 603 + "http://u1/h/1".utf8.count + 3)
        #expect(rig.core.ledger.requests.failed == ["quota": 2] && rig.core.ledger.requests.answered == 1)
        rig.pass { $0.send(.acknowledge(3), by: Self.a) }
        #expect(rig.core.records.quotaUse.currentUse(by: 1).memoryBytes == 0)
        Self.expectSound(rig)
    }

    @Test func `a body that is not small has no part of the memory`() throws {
        var (rig, worker) = Self.rig { $0.maximumMemoryBytesPerUser = 1_000 }
        rig.pass { Self.submit(1...1, by: Self.a, &$0) }
        done(try #require(rig.jobs.first), "large", length: CoreLimits().maximumInMemoryBodyBytes + 1, by: worker, &rig)
        #expect(rig.terminals(for: Self.a) == ["h 1 200"])
        #expect(rig.core.records.quotaUse.currentUse(by: 1).memoryBytes == "http://u1/h/1".utf8.count)
        Self.expectSound(rig)
    }

    @Test func `clients of a user to whom too much is due are disconnected if they do not read`() {
        var (rig, _) = Self.rig { $0.maximumDueTerminalsPerUser = 30 }
        let other = ClientID(rawValue: 4)
        rig.connect(other, user: PrincipalName("uid:1"))
        var hello = Hello()
        hello.window = 1
        rig.send(.hello(hello), by: other)
        rig.send(.subscribe(HandlerPattern("h")!), by: other)
        func refused(_ requests: ClosedRange<Int>, by client: ClientID) -> [ClientID] {
            rig.pass { rig in for request in requests { rig.fetch("h", "\(request)", "none:\(request)", by: client) } }
            Self.expectSound(rig)
            return rig.actions.compactMap { if case .client(.close(let id, "too-slow")) = $0 { id } else { nil } }
        }
        #expect(refused(1...15, by: Self.a) == [] && rig.core.records.quotaUse.currentUse(by: 1).terminals == 30)
        #expect(refused(1...40, by: Self.b) == [], "another user has a quota of its own")
        #expect(refused(16...16, by: Self.a) == [other], "the one with a window of 1 waits, the other does not")
        rig.pass { $0.core.clientLost(other, now: $0.now) }
        #expect(rig.core.records.quotaUse.currentUse(by: 1).terminals == 16)
        Self.expectSound(rig)
    }

    @Test func `a growing body counts, and is cut off at the quota`() throws {
        var (rig, worker) = Self.rig { $0.maximumSpoolBytesPerUser = 1_000 }
        rig.pass { Self.submit(1...1, by: Self.a, &$0) }
        let job = try #require(rig.jobs.first)
        let part = BodyPart(fileName: "9-\(job.attempt).part", httpFields: [])
        for (bytes, isWithin) in [(1_000, true), (1_001, false)] {
            rig.pass {
                $0.core.workerMessageReceived(
                    .progress(job.attempt, received: bytes, total: nil, part: part), body: nil, from: worker,
                    now: $0.now)
            }
            #expect(rig.terminals(for: Self.a) == (isWithin ? [] : ["h 1 quota"]))
            Self.expectSound(rig)
        }
        #expect(rig.cancellations == [job.attempt])
    }

    @Test func `parts of flights that wait have a quarter of their number, and count as bodies`() throws {
        for (parts, bytes) in [(8, 1_000_000), (1_000, 1_000)] {
            var (rig, worker) = Self.rig {
                $0.maximumKeptParts = parts
                $0.maximumSpoolBytesPerUser = bytes
            }
            func breakOff(_ client: ClientID) -> Int {
                rig.pass { Self.submit(1...4, by: client, &$0) }
                for job in rig.jobs {
                    rig.pass { rig in
                        let part = BodyPart(fileName: "9-\(job.attempt).part", httpFields: Array("etag: \"a\"".utf8))
                        rig.core.partFileKept(of: job.attempt, bytes: 400, by: worker)
                        rig.core.workerMessageReceived(
                            .failed(job.attempt, code: "reset", detail: nil, receivedBytes: 400, part: part), body: nil,
                            from: worker, now: rig.now)
                    }
                    Self.expectSound(rig)
                }
                return rig.core.records.keptParts.keptPartsByFlight.count
            }
            #expect(breakOff(Self.a) == 2)
            let use = rig.core.records.quotaUse.currentUse(by: 1)
            #expect(use.waitingParts == 2 && use.spoolBytes == 800)
            #expect(breakOff(Self.b) == 4, "those of another user are kept")
            rig.pass { $0.remove("h", by: Self.a) }
            #expect(rig.core.records.quotaUse.currentUse(by: 1).waitingParts == 0)
            Self.expectSound(rig)
        }
    }

    @Test func `outcomes that wait for a subscriber count too`() throws {
        var (rig, worker) = Self.rig { $0.maximumSpoolBytesPerUser = 1_000 }
        rig.pass { Self.submit(1...2, by: Self.a, &$0) { $0.options.subscribes = false } }
        let jobs = rig.jobs
        done(jobs[0], "one", length: 900, by: worker, &rig)
        #expect(rig.core.records.quotaUse.currentUse(by: 1).spoolBytes == 900)
        done(jobs[1], "two", length: 900, by: worker, &rig)
        Self.expectSound(rig)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: Self.a) }
        #expect(rig.terminals(for: Self.a) == ["h 1 200", "h 2 quota"])
        Self.expectSound(rig)
    }

    @Test func `durable requests and results of a user have a quota of their own`() {
        var limits = CoreLimits()
        limits.maximumDurableBytesPerUser = 1_500
        var bed = DurableBed(limits: limits)
        Self.connect(Self.a, "uid:1", &bed.rig)
        let administrator = bed.rig.client(3)
        let worker = bed.rig.worker(9)
        func durable(_ fetch: inout Fetch) { fetch.options.isDurable = true }
        bed.pass { Self.submit(1...1, by: Self.a, &$0, durable) }
        let bytes = bed.rig.core.records.quotaUse.currentUse(by: 1).durableBytes
        #expect(bytes > 256 && bytes < 500)
        bed.finishJobs(worker)
        #expect(bed.rig.core.records.quotaUse.currentUse(by: 1).durableBytes > bytes + 3, "the result counts")
        bed.pass { Self.submit(2...9, by: Self.a, &$0, durable) }
        #expect(bed.rig.refusals(to: Self.a).contains("h 9 quota"))
        bed.pass { rig in
            for request in 1...9 { rig.fetch("h", "\(request)", "http://u3/\(request)", by: administrator, durable) }
        }
        #expect(bed.rig.terminals(for: administrator) == [])
        bed.restart()
        #expect(
            bed.rig.core.records.quotaUse.currentUse(by: 1).durableBytes > bytes, "those of an earlier broker count")
        Self.connect(Self.a, "uid:1", &bed.rig)
        bed.pass { $0.remove("h", by: Self.a) }
        #expect(bed.rig.core.records.quotaUse.currentUse(by: 1).durableBytes == 0)
    }
}
