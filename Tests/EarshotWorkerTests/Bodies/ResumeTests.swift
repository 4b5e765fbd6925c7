import EarshotWire
import Foundation
import LibCrypto
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Resumption of a partial body that the broker lends.
@Suite struct ResumeTests {
    private let body = (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }

    /// Returns a bed whose origin sends this head and the bytes after the first 150,000, or all.
    private func bed(_ head: String, from: Int = 150_000, closes: Bool = false) throws -> Bed {
        let body = body
        return try Bed { requested in
            guard requested.contains("range: bytes=150000-") else { return .ok(body) }
            return .init(head + "\r\n\r\n", body: Array(body[min(from, body.count)...]), closes: closes)
        }
    }

    /// Returns a job that resumes after the first 150,000 bytes.
    private func job(_ bed: Bed, content: [UInt8]? = nil) throws -> Job {
        var job = bed.job()
        job.resume = Job.Resume(availableBytes: 150_000, totalBytes: 200_000, validator: "\"a\"")
        let file = bed.folder.appending(path: "spool/\(SpoolName.partFile(of: job.attempt, pid: getpid()))")
        try Data(content ?? Array(body[..<150_000])).write(to: file)
        return job
    }

    private func content(_ completion: Completion, _ bed: Bed) throws -> [UInt8] {
        let file = try #require(completion.fileName)
        return try Array(Data(contentsOf: bed.folder.appending(path: "spool/\(file)")))
    }

    @Test func `the rest is asked for, appended, and all of it hashed`() throws {
        let bed = try bed(
            "HTTP/1.1 206 Partial\r\nETag: \"a\"\r\nContent-Range: bytes 150000-199999/200000\r\nContent-Length: 50000")
        let job = try job(bed)
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(done.isResumed && done.status == 200 && done.bodyByteCount == 200_000)
        #expect(done.sha256 == SHA256.digest(of: body.span).hex)
        #expect(try content(done, bed) == body)
        let requested = try #require(bed.origin.requests.first).lowercased()
        #expect(requested.contains("if-range: \"a\"\r\n") && requested.contains("accept-encoding: identity\r\n"))
        #expect(bed.spool == [done.fileName])
    }

    @Test func `a part with the hash that the broker names is continued`() throws {
        let bed = try bed(
            "HTTP/1.1 206 Partial\r\nETag: \"a\"\r\nContent-Range: bytes 150000-199999/200000\r\nContent-Length: 50000")
        var job = try job(bed)
        job.resume?.sha256 = SHA256.digest(of: body.span.extracting(..<150_000)).hex
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(done.isResumed && done.sha256 == SHA256.digest(of: body.span).hex)
    }

    /// Expects that the job fetches the whole body into another file, and deletes the part.
    private func expectWhole(_ job: Job, _ bed: Bed) throws {
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(!done.isResumed)
        #expect(done.fileName == SpoolName.partFile(of: job.attempt, pid: getpid(), startsAnew: true))
        #expect(try content(done, bed) == body)
        #expect(bed.spool == [done.fileName])
    }

    @Test func `a part with another hash is deleted, and the whole requested`() throws {
        let bed = try bed("")
        var job = try job(bed, content: [UInt8](repeating: 9, count: 150_000))
        job.resume?.sha256 = SHA256.digest(of: body.span.extracting(..<150_000)).hex
        try expectWhole(job, bed)
        #expect(bed.origin.requests.allSatisfy { !$0.lowercased().contains("range:") })
    }

    @Test func `bytes behind those that are to be gone on with are cut off`() throws {
        let bed = try bed(
            "HTTP/1.1 206 Partial\r\nETag: \"a\"\r\nContent-Range: bytes 150000-199999/200000\r\nContent-Length: 50000")
        let job = try job(bed, content: Array(body[..<150_000]) + [1, 2, 3])
        #expect(try bed.fetch(job))
        #expect(try content(try #require(bed.broker.completion(job.attempt)?.completion), bed) == body)
    }

    @Test func `a 416 that says so makes a whole of what is there`() throws {
        let bed = try Bed { _ in
            .init("HTTP/1.1 416 No\r\nContent-Range: bytes */150000\r\nContent-Length: 4\r\n\r\n", body: [1, 2, 3, 4])
        }
        var job = try job(bed)
        job.resume?.totalBytes = 150_000
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(done.isResumed && done.bodyByteCount == 150_000 && done.httpFields.isEmpty)
        #expect(try content(done, bed) == Array(body[..<150_000]))
    }

    @Test func `another version goes into another file, and the first one is deleted`() throws {
        let bed = try bed("HTTP/1.1 200 OK\r\nETag: \"b\"\r\nContent-Length: 200000", from: 0)
        let job = try job(bed, content: [UInt8](repeating: 9, count: 150_000))
        try expectWhole(job, bed)
    }

    @Test(arguments: [
        "ETag: \"b\"\r\nContent-Range: bytes 150000-199999/200000", "ETag: \"a\"",
        "ETag: \"a\"\r\nContent-Range: bytes 150001-199999/200000",
        "ETag: \"a\"\r\nContent-Range: bytes 150000-199999/200001",
        "ETag: W/\"a\"\r\nContent-Range: bytes 150000-199999/200000",
    ])
    func `an answer that fits nothing is dropped and the whole asked for`(fields: String) throws {
        let bed = try bed("HTTP/1.1 206 Partial\r\n\(fields)\r\nContent-Length: 50000")
        let job = try job(bed)
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(!done.isResumed)
        #expect(try content(done, bed) == body)
        #expect(bed.origin.requests.count == 2)
    }

    @Test func `the whole in a coding that nobody asked for is decoded`() throws {
        let packed = Deflate.zeros(matches: 1000)
        let bed = try Bed { _ in .ok(packed, fields: "ETag: \"b\"\r\nContent-Encoding: deflate\r\n") }
        let job = try job(bed)
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(try content(done, bed) == [UInt8](repeating: 0, count: 258_001))
    }

    @Test func `an error page leaves what was given as it was`() throws {
        let bed = try bed("HTTP/1.1 503 No\r\nContent-Length: 0", from: .max)
        let job = try job(bed)
        #expect(try bed.fetch(job))
        let done = try #require(bed.broker.completion(job.attempt)?.completion)
        #expect(done.status == 503 && !done.isResumed && done.fileName == nil)
        #expect(bed.spool == [SpoolName.partFile(of: job.attempt, pid: getpid())])
    }

    @Test func `more bytes than the Content-Range says are none of the body`() throws {
        let bed = try bed(
            "HTTP/1.1 206 Partial\r\nETag: \"a\"\r\nContent-Range: bytes 150000-199998/200000", closes: true)
        let job = try job(bed)
        #expect(try bed.failure(job) == "truncated")
        #expect(bed.spool.isEmpty)
    }

    @Test func `a file that is not as the broker says is not gone on with`() throws {
        let bed = try bed("")
        let job = try job(bed, content: [1, 2, 3])
        #expect(try bed.fetch(job))
        #expect(try content(try #require(bed.broker.completion(job.attempt)?.completion), bed) == body)
        #expect(bed.origin.requests.allSatisfy { !$0.lowercased().contains("range:") })
    }

    @Test func `what came of a body that can be gone on with stays, and its fields are told`() throws {
        let body = body
        let bed = try Bed { _ in
            .init("HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 200001\r\n\r\n", body: body, closes: true)
        }
        let job = bed.job()
        #expect(try bed.failure(job) == "truncated")
        let part = try #require(bed.broker.part(job.attempt))
        #expect(String(decoding: part.httpFields, as: UTF8.self).lowercased().contains("etag: \"a\""))
        #expect(bed.spool == [part.fileName])
    }

    @Test(arguments: ["ETag: W/\"a\"", "X: y", "ETag: \"a\"\r\nTransfer-Encoding: chunked"])
    func `what came of another body is deleted`(fields: String) throws {
        let body = body
        let isChunked = fields.contains("chunked")
        let bed = try Bed { _ in
            .init(
                "HTTP/1.1 200 OK\r\n\(fields)\r\n\(isChunked ? "" : "Content-Length: 200001\r\n")\r\n",
                body: isChunked ? Array("zzz\r\n".utf8) : body, closes: true)
        }
        _ = try bed.failure(bed.job())
        #expect(bed.spool.isEmpty)
    }
}
