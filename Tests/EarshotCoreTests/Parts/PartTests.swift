import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Partial bodies of interrupted transfers, and their resumption.
@Suite struct PartTests {
    private static let fields = "etag: \"a\"\ncontent-length: 1000\ncontent-type: image/png"

    /// A rig in which the first attempt failed and left `bytes` bytes.
    private func broken(
        bytes: Int = 400, fields: String = Self.fields, limits: CoreLimits = CoreLimits(),
        _ change: (inout Fetch) -> Void = { _ in }
    ) throws -> (rig: CoreRig, client: ClientID, worker: WorkerID) {
        var rig = CoreRig(limits: limits)
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client, change) }
        let job = try #require(rig.jobs.first)
        #expect(job.resume == nil)
        rig.pass { $0.leave(job, bytes: bytes, fields: fields, by: worker) }
        return (rig, client, worker)
    }

    @Test func `the next attempt goes on where the last one broke off`() throws {
        var (rig, client, worker) = try broken()
        rig.wait(milliseconds: 1_000)
        let job = try #require(rig.jobs.first)
        #expect(job.resume == Job.Resume(availableBytes: 400, totalBytes: 1000, validator: "\"a\""))
        let kept = AttemptID(broker: job.attempt.broker, flight: 1, attempt: 1)
        #expect(rig.actions.contains(.spool(.assignPart("\(kept).kept", as: "3-\(job.attempt).part"))))
        rig.pass { $0.resumed(job, by: worker, length: 1000, fields: "content-range: bytes 400-999/1000\nx-new: 1") }
        let terminal = try #require(rig.result(for: client))
        #expect(terminal.source == .resumed && terminal.resumedBytes == 400)
        #expect(
            String(decoding: terminal.httpFields, as: UTF8.self)
                == "etag: \"a\"\ncontent-type: image/png\nx-new: 1\ncontent-length: 1000")
        #expect(rig.core.audit() == [])
    }

    @Test func `only the request that started a resumed transfer is told where it began`() throws {
        var (rig, client, worker) = try broken()
        rig.wait(milliseconds: 1_000)
        let job = try #require(rig.jobs.first)
        let other = rig.client(2)
        rig.pass { $0.fetch("other", "1", "http://a.example/x", by: other) }
        // A faulty worker: the body is shorter than the part.
        rig.pass { $0.resumed(job, by: worker, length: 300, fields: "x-new: 1") }
        #expect(rig.result(for: client)?.resumedBytes == 300)
        let shared = try #require(rig.result(for: other))
        #expect(shared.source == .sharedFlight && shared.resumedBytes == 0)
    }

    @Test func `the fields of a resumed body are bounded together`() throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) }
        let first = try #require(rig.jobs.first)
        let begun = "etag: \"a\"\nx-first: " + String(repeating: "v", count: 30_000)
        rig.pass { $0.leave(first, bytes: 400, fields: begun, by: worker) }
        rig.wait(milliseconds: 1_000)
        let second = try #require(rig.jobs.first)
        #expect(second.resume?.availableBytes == 400)
        let rest = "x-second: " + String(repeating: "v", count: 30_000)
        rig.pass {
            $0.resumed(second, by: worker, length: 1_000, fields: "content-range: bytes 400-999/1000\n" + rest)
        }
        #expect(rig.terminals(for: client) == ["h 1 protocol-error"])
        #expect(rig.core.audit() == [])
    }

    @Test func `a partial body with too many header fields is not gone on with`() throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) }
        let job = try #require(rig.jobs.first)
        let long = "etag: \"a\"\nx: " + String(repeating: "v", count: WireLimits.responseFieldBytes)
        rig.pass { $0.leave(job, bytes: 400, fields: long, by: worker) }
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.first?.resume == nil)
        #expect(rig.core.audit() == [])
    }

    @Test func `what a dead worker left is gone on with as far as it came`() throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) }
        let job = try #require(rig.jobs.first)
        let part = BodyPart(fileName: "3-\(job.attempt).part", httpFields: Array(Self.fields.utf8))
        rig.pass {
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: 100, total: 1000, part: part), body: nil, from: worker, now: $0.now)
        }
        #expect(rig.core.records.workers.resumableFiles(of: worker).map(\.file) == [part.fileName])
        rig.pass {
            $0.core.partFileKept(of: job.attempt, bytes: 250, by: worker)
            $0.core.workerLost(worker, now: $0.now)
            _ = $0.worker(4)
        }
        #expect(rig.jobs.first?.resume?.availableBytes == 250)
        // The next worker dies before its first report; its file has a known name.
        let second = try #require(rig.jobs.first)
        #expect(
            rig.core.records.workers.resumableFile(of: second.attempt, by: WorkerID(rawValue: 4))
                == "4-\(second.attempt).part")
    }

    @Test(arguments: ["etag: W/\"a\"", "content-length: 1000", "etag: \"a\"\ncontent-encoding: gzip", ""])
    func `what cannot be gone on with is removed`(fields: String) throws {
        var (rig, _, _) = try broken(fields: fields)
        #expect(rig.removedParts.count == 1)
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.first?.resume == nil)
    }

    // MARK: Parts that outlive their flights

    /// A rig whose shell has a folder of parts.
    private static func keeping() -> (rig: CoreRig, client: ClientID, worker: WorkerID) {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 20
        var rig = CoreRig(limits: limits)
        rig.core.shellFeatures.isKeepingParts = true
        let (client, worker) = (rig.client(1), rig.worker(3))
        return (rig, client, worker)
    }

    private static let mebibyte = 1 << 20

    /// Interrupts a request by its removal after so many bytes.
    private func interrupt(
        _ rig: inout CoreRig, bytes: Int, by client: ClientID, _ worker: WorkerID, request: String = "1",
        _ change: (inout Fetch) -> Void = { _ in }
    ) throws -> Job {
        rig.pass { $0.fetch("h", request, "http://a.example/x", by: client, change) }
        let job = try #require(rig.jobs.first)
        rig.pass { $0.remove("h", request, by: client) }
        rig.pass { $0.leave(job, "cancelled", bytes: bytes, fields: "etag: \"a\"\nset-cookie: s", by: worker) }
        return job
    }

    @Test func `the part of a cancelled flight is stored, and the next flight of its key asks for it`()
        throws
    {
        var (rig, client, worker) = Self.keeping()
        let job = try interrupt(&rig, bytes: Self.mebibyte, by: client, worker)
        let file = SpoolName.keptPart(of: job.attempt)
        let keys = PartKeys(keyTexts: ["http://a.example/x\n"], owner: nil)
        #expect(rig.stored == [file] && rig.removedParts.isEmpty)
        #expect(rig.recorded.map(\.keys) == [keys] && rig.recorded.map(\.part.validator) == ["\"a\""])
        rig.pass { $0.fetch("h", "2", "http://a.example/x", by: client) }
        let (next, requested) = try #require(rig.resumeJobs.first)
        #expect(requested == keys)
        // The shell has found it.
        rig.pass {
            $0.core.storedPartFound(Self.description(job), bytes: Self.mebibyte, for: next.attempt, by: worker)
            $0.resumed(next, by: worker, length: Self.mebibyte + 1, fields: "content-range: x")
        }
        let terminal = try #require(rig.result(for: client))
        #expect(terminal.source == .resumed && terminal.resumedBytes == Self.mebibyte)
        #expect(rig.core.ledger.parts.resumedParts == 1)
        #expect(rig.core.audit() == [])
    }

    private static func description(_ job: Job) -> PartDescription {
        PartDescription(
            validator: "\"a\"", totalBytes: nil, httpFields: Array("etag: \"a\"".utf8), generation: job.attempt)
    }

    @Test func `a small part, and one larger than the setting, are removed`() throws {
        var (rig, client, worker) = Self.keeping()
        for bytes in [Self.mebibyte - 1, (1 << 30) + 1] {
            let job = try interrupt(&rig, bytes: bytes, by: client, worker, request: "\(bytes)")
            #expect(rig.stored.isEmpty && rig.removedParts == [SpoolName.keptPart(of: job.attempt)])
        }
    }

    @Test(arguments: ["jar", "alone", "no-store", "range", "directive", "certificate"])
    func `a request whose part may not outlive it has no keys`(kind: String) throws {
        var (rig, client, worker) = Self.keeping()
        let job = try interrupt(&rig, bytes: Self.mebibyte, by: client, worker) { fetch in
            switch kind {
            case "jar": fetch.options.usesCookies = true
            case "alone": fetch.options.coalesces = false
            case "no-store": fetch.options.cacheMode = .noStore
            case "certificate": fetch.options.route.caFile = "/cert"
            case "range": fetch.httpFields = Array("range: bytes=0-9".utf8)
            default: fetch.httpFields = Array("cache-control: no-store".utf8)
            }
        }
        #expect(rig.stored.isEmpty && rig.removedParts == [SpoolName.keptPart(of: job.attempt)])
        #expect(rig.core.audit() == [])
    }

    @Test func `credentials, routes and principals are in the keys`() throws {
        var (rig, client, _) = Self.keeping()
        rig.core.hasStoredParts = true
        rig.pass {
            $0.fetch("h", "1", "http://a.example/x", by: client)
            $0.fetch("h", "2", "http://u:p@a.example/x", by: client)
            $0.fetch("h", "3", "http://a.example/x", by: client) { $0.httpFields = Array("authorization: me".utf8) }
            $0.fetch("h", "4", "http://a.example/x", by: client) { $0.httpFields = Array("cookie: a=b".utf8) }
            $0.fetch("h", "5", "http://a.example/x", by: client) { $0.options.route.proxy = "http://p.example:1" }
        }
        let texts = rig.resumeJobs.map { $0.1.keyTexts }
        #expect(texts.count == 5 && Set(texts).count == 5)
    }

    @Test func `a request that bypasses caches asks for a part`() {
        var (rig, client, _) = Self.keeping()
        rig.core.hasStoredParts = true
        rig.pass {
            $0.fetch("h", "1", "http://a.example/x", by: client) { $0.options.cacheMode = .noCache }
            $0.fetch("h", "2", "http://a.example/y", by: client) { $0.options.cacheMode = .reload }
        }
        #expect(rig.resumeJobs.count == 2)
    }

    @Test func `a growing body is recorded once it is large enough, and again at each checkpoint`() throws {
        var (rig, client, worker) = Self.keeping()
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) }
        let job = try #require(rig.jobs.first)
        let part = BodyPart(fileName: "3-\(job.attempt).part", httpFields: Array("etag: \"a\"".utf8))
        let checkpoint = Checkpoint(byteCount: 16 << 20, sha256: String(repeating: "ab", count: 32))
        let counts = [
            (Self.mebibyte - 1, nil), (Self.mebibyte, nil), (Self.mebibyte + 1, nil), (17 << 20, checkpoint),
            (18 << 20, checkpoint),
        ]
        .map { received, checkpoint in
            rig.pass {
                $0.core.workerMessageReceived(
                    .progress(job.attempt, received: received, total: nil, part: part, checkpoint: checkpoint),
                    body: nil, from: worker, now: $0.now)
            }
            return rig.recorded.map { $0.part.checkpoint?.byteCount ?? 0 }
        }
        #expect(counts == [[], [0], [], [16 << 20], []])
    }

    @Test func `a part from before a boot goes back to the folder unless the worker has verified it`() throws {
        var (rig, client, worker) = Self.keeping()
        rig.core.hasStoredParts = true
        for isVerified in [false, true] {
            rig.pass { $0.fetch("h", "\(isVerified)", "http://a.example/x", by: client) }
            let job = try #require(rig.resumeJobs.first?.0)
            let file = SpoolName.keptPart(of: job.attempt)
            rig.pass {
                $0.core.storedPartFound(
                    Self.description(job), bytes: Self.mebibyte, isVerified: false, for: job.attempt, by: worker)
                $0.remove("h", "\(isVerified)", by: client)
                $0.core.partFileKept(of: job.attempt, bytes: 3 * Self.mebibyte, by: worker)
                let part = isVerified ? BodyPart(fileName: "3-\(job.attempt).part") : nil
                $0.core.workerMessageReceived(
                    .failed(job.attempt, code: "cancelled", detail: nil, receivedBytes: 0, part: part), body: nil,
                    from: worker, now: $0.now)
            }
            #expect(rig.stored == [file] && rig.removedParts.isEmpty)
            #expect(rig.recorded.count == (isVerified ? 1 : 0))
            #expect(rig.core.audit() == [])
        }
    }

    @Test func `a date, or a body of unknown length, has no second key`() throws {
        for (fields, count) in [("etag: \"a\"\ncontent-length: 3000000", 2), ("etag: \"a\"", 1)] {
            var (rig, client, worker) = Self.keeping()
            rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) }
            let first = try #require(rig.jobs.first)
            rig.pass { $0.done(first, by: worker, status: 302, fields: "location: http://b.example/y") }
            let job = try #require(rig.jobs.first)
            let part = BodyPart(fileName: "3-\(job.attempt).part", httpFields: Array(fields.utf8))
            rig.pass {
                $0.core.workerMessageReceived(
                    .progress(job.attempt, received: Self.mebibyte, total: nil, part: part), body: nil, from: worker,
                    now: $0.now)
            }
            #expect(rig.recorded.map(\.keys.keyTexts.count) == [count])
        }
    }

    @Test func `a redirected request asks also by the key of its first URL`() throws {
        var (rig, client, worker) = Self.keeping()
        rig.core.hasStoredParts = true
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) }
        let first = try #require(rig.resumeJobs.first?.0)
        rig.pass { $0.done(first, by: worker, status: 302, fields: "location: http://b.example/signed?a=1") }
        #expect(
            rig.resumeJobs.map { $0.1.keyTexts } == [
                ["http://b.example/signed?a=1\n", "redirected\nhttp://a.example/x\n"]
            ])
    }

    @Test func `a part beyond what a request allows is not gone on with`() throws {
        var (rig, client, _) = try broken { $0.options.maximumBodyBytes = 2_000 }
        rig.pass { $0.fetch("h", "2", "http://a.example/x", by: client) { $0.options.maximumBodyBytes = 399 } }
        rig.pass { $0.remove("h", "1", by: client) }
        rig.wait(milliseconds: 1_000)
        #expect(rig.jobs.first?.resume == nil)
        #expect(rig.removedParts.count == 1)
    }

    @Test func `an answer that has nothing to do with the part leaves it as it is`() throws {
        var (rig, _, worker) = try broken()
        rig.wait(milliseconds: 1_000)
        let job = try #require(rig.jobs.first)
        rig.pass {
            $0.core.partFileKept(of: job.attempt, bytes: 400, by: worker)
            $0.done(job, by: worker, status: 500)
        }
        rig.wait(milliseconds: 2_000)
        #expect(rig.jobs.first?.resume?.availableBytes == 400)
    }

    @Test func `what is told late of an attempt that has ended is removed`() throws {
        var (rig, _, worker) = try broken()
        let ended = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
        rig.pass { $0.core.partFileKept(of: ended, bytes: 7, by: worker) }
        #expect(rig.removedParts == ["\(ended).kept"])
    }
}

extension CoreRig {
    /// Fails an attempt that leaves `bytes` bytes of its body.
    fileprivate mutating func leave(
        _ job: Job, _ code: String = "reset", bytes: Int, fields: String, by worker: WorkerID
    ) {
        let part = BodyPart(fileName: "\(worker.rawValue)-\(job.attempt).part", httpFields: Array(fields.utf8))
        core.partFileKept(of: job.attempt, bytes: bytes, by: worker)
        core.workerMessageReceived(
            .failed(job.attempt, code: code, detail: nil, receivedBytes: bytes, part: part), body: nil, from: worker,
            now: now)
    }

    fileprivate mutating func resumed(_ job: Job, by worker: WorkerID, length: Int, fields: String) {
        wholeBody(job, by: worker, length: length, isResumed: true, fields: fields)
    }

    /// Completes an attempt with a body in a file.
    fileprivate mutating func wholeBody(
        _ job: Job, by worker: WorkerID, length: Int, isResumed: Bool, fields: String = ""
    ) {
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.bodyByteCount = length
        completion.sha256 = String(repeating: "ab", count: 32)
        completion.fileName = completion.sha256
        completion.isResumed = isResumed
        completion.httpFields = Array(fields.utf8)
        core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: now)
    }

    /// Parts removed in the last pass.
    fileprivate var removedParts: [String] {
        actions.compactMap { if case .spool(.removePart(let file)) = $0 { file } else { nil } }
    }

    /// Descriptions of parts that the shell has to store after the last pass.
    var recorded: [(keys: PartKeys, part: PartDescription)] {
        actions.compactMap { if case .spool(.recordPart(_, let keys, let part)) = $0 { (keys, part) } else { nil } }
    }

    /// Parts that outlive their flights since the last pass.
    fileprivate var stored: [String] {
        actions.compactMap { if case .spool(.storePart(let file)) = $0 { file } else { nil } }
    }

    fileprivate var resumeJobs: [(Job, PartKeys)] {
        actions.compactMap { if case .worker(.resumeJob(_, let job, let keys)) = $0 { (job, keys) } else { nil } }
    }

    fileprivate func result(for client: ClientID) -> Terminal.Response? {
        actions.lazy.compactMap { action -> Terminal.Response? in
            if case .client(.deliverTerminal(client, let terminal, _)) = action { terminal.response } else { nil }
        }.first
    }
}

/// Bodies that clients read while they grow.
@Suite struct StreamTests {
    private func progress(_ rig: CoreRig, to client: ClientID) -> [Progress] {
        rig.replies(to: client).compactMap { if case .progress(let progress) = $0 { progress } else { nil } }
    }

    private func report(_ job: Job, _ received: Int, file: Bool = true, by worker: WorkerID, _ rig: inout CoreRig) {
        let part = BodyPart(
            fileName: "\(worker.rawValue)-\(job.attempt).part", httpFields: Array("etag: \"a\"".utf8))
        rig.pass {
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: received, total: nil, part: file ? part : nil), body: nil,
                from: worker, now: $0.now)
        }
    }

    @Test func `who streams is told of the file, who comes half-way at once, and nobody else`() throws {
        var rig = CoreRig()
        let (client, other) = (rig.client(1), rig.client(2))
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) { $0.options.streams = true } }
        let job = try #require(rig.jobs.first)
        #expect(job.streams && job.progressIntervalMilliseconds == 50)
        report(job, 10, by: worker, &rig)
        let first = try #require(progress(rig, to: client).first)
        #expect(
            first.filePath == "/spool/" + SpoolName.relativePath(of: "3-\(job.attempt).part")
                && first.generation == Generation(job.attempt))
        rig.pass { rig in
            rig.fetch("o", "1", "http://a.example/x", by: other) { $0.options.streams = true }
            rig.fetch("o", "2", "http://a.example/x", by: other) { $0.options.progressIntervalMilliseconds = 50 }
            rig.fetch("o", "3", "http://a.example/x", by: other)
        }
        #expect(progress(rig, to: other).map(\.filePath) == [first.filePath, nil])
        #expect(progress(rig, to: other).map(\.receivedBytes) == [10, 10])
    }

    @Test func `progress within the interval is sent at its end, once`() throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass {
            $0.fetch("h", "1", "http://a.example/x", by: client) { $0.options.progressIntervalMilliseconds = 200 }
        }
        let job = try #require(rig.jobs.first)
        for received in [10, 20, 30] { report(job, received, by: worker, &rig) }
        rig.wait(milliseconds: 199)
        #expect(progress(rig, to: client).isEmpty)
        rig.wait(milliseconds: 1)
        #expect(progress(rig, to: client).map(\.receivedBytes) == [30])
        rig.wait(milliseconds: 1_000)
        #expect(progress(rig, to: client).isEmpty)
        report(job, 40, by: worker, &rig)
        #expect(progress(rig, to: client).map(\.receivedBytes) == [40])
        report(job, 50, by: worker, &rig)
        rig.now = rig.now.advanced(byMilliseconds: 200)
        report(job, 60, by: worker, &rig)
        #expect(progress(rig, to: client).map(\.receivedBytes) == [60], "the timer of 50 is then stale")
        rig.wait(milliseconds: 1_000)
        #expect(progress(rig, to: client).isEmpty)
    }

    /// The running job, interrupted after 10 bytes, and the job that resumes them.
    private func brokenOff(by worker: WorkerID, _ rig: inout CoreRig) throws -> (Job, Job) {
        let first = try #require(rig.jobs.first)
        report(first, 10, by: worker, &rig)
        rig.pass {
            $0.core.partFileKept(of: first.attempt, bytes: 10, by: worker)
            $0.failed(first, "reset", by: worker)
        }
        rig.wait(milliseconds: 1_000)
        let second = try #require(rig.jobs.first)
        return (first, second)
    }

    @Test func `the generation stays with the bytes and changes with another body`() throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) { $0.options.streams = true } }
        let (first, second) = try brokenOff(by: worker, &rig)
        report(second, 20, by: worker, &rig)
        #expect(progress(rig, to: client).map(\.generation) == [Generation(first.attempt)])
        rig.wait(milliseconds: 1_000)
        rig.pass {
            let part = BodyPart(fileName: "3-\(second.attempt).anew.part", httpFields: [])
            $0.core.workerMessageReceived(
                .progress(second.attempt, received: 5, total: nil, part: part), body: nil, from: worker, now: $0.now)
        }
        #expect(progress(rig, to: client).map(\.generation) == [Generation(second.attempt)])
    }

    @Test(arguments: [true, false])
    func `a whole body of which nothing was told is of no generation but that of what it goes on with`(
        isResumed: Bool
    ) throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) { $0.options.streams = true } }
        let (first, second) = try brokenOff(by: worker, &rig)
        #expect(second.resume?.availableBytes == 10)
        rig.pass { $0.wholeBody(second, by: worker, length: 100, isResumed: isResumed) }
        let terminal = try #require(rig.result(for: client))
        #expect(terminal.bodyFilePath != nil)
        #expect(terminal.generation == (isResumed ? Generation(first.attempt) : nil))
        #expect(terminal.resumedBytes == (isResumed ? 10 : 0))
    }

    @Test func `a file that is not the attempt's own is told to nobody`() throws {
        var rig = CoreRig()
        let client = rig.client(1)
        let worker = rig.worker(3)
        rig.pass { $0.fetch("h", "1", "http://a.example/x", by: client) { $0.options.streams = true } }
        let job = try #require(rig.jobs.first)
        rig.pass {
            let part = BodyPart(fileName: "broker.lock")
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: 5, total: nil, part: part), body: nil, from: worker, now: $0.now)
        }
        #expect(progress(rig, to: client).map(\.filePath) == [nil])
    }
}
