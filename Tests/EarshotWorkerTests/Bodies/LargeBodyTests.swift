import EarshotLoop
import EarshotWire
import Foundation
import LibCrypto
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Bodies large enough for hash threads.
@Suite struct LargeBodyTests {
    private static func body(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 7) } }

    @Test(
        "a large body has the same hash, wherever its pieces end",
        arguments: [
            Limits.inlineHashedPrefixBytes, Limits.inlineHashedPrefixBytes + 1, Limits.minimumHashRangeBytes,
            Limits.inlineHashedPrefixBytes + 2 * Limits.minimumHashRangeBytes, 11_000_001,
        ], [1000, 9_000_000])
    func hash(count: Int, inlineBytes: Int) throws {
        let body = Self.body(count)
        let bed = try Bed(inlineBytes: inlineBytes) { _ in .ok(body) }
        let job = bed.job()
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt))
        #expect(done.completion.bodyByteCount == count)
        #expect(done.completion.sha256 == SHA256.digest(of: body.span).hex)
        if count > inlineBytes {
            let file = try #require(done.completion.fileName)
            #expect(try Array(Data(contentsOf: bed.folder.appending(path: "spool/\(file)"))) == body)
        } else {
            #expect(done.body == body)
        }
    }

    @Test func `a file that is shorter than it was has no hash`() throws {
        let bed = try Bed { _ in .ok([]) }
        let spool = try SpoolFolder(bed.folder.appending(path: "spool").path)
        let file = try SpoolFile("one.part", in: spool)
        let content = Self.body(1000)
        try file.write(content.span)
        var ended: [PartHasher.Task] = []
        let hasher = try PartHasher(bed.loop)
        let attempt = bed.job().attempt
        for count in [1000, 1001] {
            _ = try hasher.hash(file.descriptor, 500..<count, continuing: SHA256(), for: attempt)
        }
        #expect(
            try bed.run {
                ended += hasher.takeFinishedTasks()
                return ended.count == 2
            })
        let digests = ended.sorted { $0.range.upperBound < $1.range.upperBound }.map { $0.takeHash()?.finalize() }
        let half = Array(content[500...])
        #expect(digests == [SHA256.digest(of: half.span), nil])
    }

    @Test(arguments: [true, false])
    func `a slow body that can be resumed has a checkpoint, which one PROGRESS reports`(isResumable: Bool) throws {
        let body = Self.body(24_000_000)
        let validator = isResumable ? "ETag: \"a\"\r\n" : ""
        let bed = try Bed { _ in
            .init("HTTP/1.1 200 OK\r\n\(validator)Content-Length: 30000000\r\n\r\n", body: Array(body[..<18_000_000]))
        }
        var job = bed.job()
        job.progressIntervalMilliseconds = 10
        let attempt = job.attempt
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        #expect(try bed.run { bed.worker.jobs.runs[attempt]?.receivedBytes == 18_000_000 })
        #expect(try !bed.loop.run(for: Limits.minimumCheckpointInterval) { false })
        bed.origin.send(Array(body[18_000_000...]))
        #expect(try bed.run { bed.worker.jobs.runs[attempt]?.receivedBytes == 24_000_000 })
        var checkpoints: [Checkpoint] {
            bed.broker.sent.compactMap { sent in
                if case .progress(attempt, _, _, _, let checkpoint) = sent.message { checkpoint } else { nil }
            }
        }
        if isResumable { #expect(try bed.run { !checkpoints.isEmpty }) }
        for _ in 0..<3 { #expect(try bed.barrier()) }
        #expect(checkpoints.count == (isResumable ? 1 : 0))
        for checkpoint in checkpoints {
            #expect(checkpoint.byteCount >= Limits.minimumCheckpointDistanceBytes)
            #expect(checkpoint.sha256 == SHA256.digest(of: body.span.extracting(..<checkpoint.byteCount)).hex)
        }
    }

    @Test func `a job is cancelled while a thread hashes its body`() throws {
        let body = Self.body(12_000_000)
        let bed = try Bed(inlineBytes: 1000) { _ in
            .init("HTTP/1.1 200 OK\r\nContent-Length: 12000001\r\n\r\n", body: body)
        }
        for _ in 0..<5 {
            let job = bed.job()
            #expect(try bed.meet())
            try bed.broker.send(.job(job))
            #expect(try bed.run { !bed.spool.isEmpty })
            try bed.broker.send(.cancelAttempt(job.attempt))
            #expect(try bed.run { bed.broker.failure(job.attempt) == "cancelled" })
            #expect(bed.spool.isEmpty)
        }
    }
}
