import EarshotHTTP
import EarshotLoop
import EarshotWire
import Foundation
import LibCrypto
import Logging
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// The response to one job, without a transfer: its verdicts on heads and bytes, and its reports.
struct IncomingResponseTests {
    /// A response in a class, because expectations accept only copyable values.
    private final class Subject {
        private var response: IncomingResponse

        init(_ response: consuming IncomingResponse) { self.response = response }

        var isCut: Bool { response.omitsBody }
        var isEncoded: Bool { response.body.isEncoded }
        var isReceived: Bool { response.isTransferComplete }
        var wantsWhole: Bool { response.requiresWholeBody }
        var endsWithConnection: Bool { response.endsAtConnectionClose }
        var refusal: Refusal? { response.refusal }
        var offeredPart: OfferedPart? { response.offeredPart }
        var count: Int { response.body.count }

        /// Appends header lines and the empty line after them.
        ///
        /// - Returns: The verdict on the last line.
        func take(_ lines: String...) -> IncomingResponse.HeadVerdict {
            var verdict = IncomingResponse.HeadVerdict.accepted
            for line in lines + [""] { verdict = response.append(headerLine: Array("\(line)\r\n".utf8).span) }
            return verdict
        }

        func append(headerLine line: String) -> IncomingResponse.HeadVerdict {
            response.append(headerLine: Array(line.utf8).span)
        }

        func append(_ text: String) -> Bool { response.append(body: Array(text.utf8).span) }

        /// Decodes all of these bytes.
        func decode(_ bytes: [UInt8]) -> Bool {
            response.append(encoded: bytes.span)
            var buffer = [UInt8](repeating: 0, count: 64)
            return response.decode(atMost: 1_000_000, into: &buffer) != nil
        }

        func startOver() { response.resetResponse() }
        func raise(to maximum: Int?) { response.raiseMaximumBodyBytes(to: maximum) }
        func cut() -> Bool { response.omitRedirectBody() }
        func leave() -> BodyPart? { response.handOverPartialBody() }
        func discard() { response.discard() }
        func progressTaken() { response.recordSentProgress() }
        func end() throws(Refusal) { try response.finishTransfer() }
        func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) { try response.makeCompletion() }
    }

    /// Jobs with a temporary spool folder.
    private final class Bed {
        let spool = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
        let terms: Terms

        init() throws {
            try FileManager.default.createDirectory(
                at: spool, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
            var limits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: spool.path)
            limits.maximumInlineBodyBytes = 100
            limits.maximumErrorPageBytes = 10
            terms = Terms(limits, spool: try SpoolFolder(spool.path), logger: Logger(label: "test"))
        }

        deinit { try? FileManager.default.removeItem(at: spool) }

        var files: [String] { (try? FileManager.default.contentsOfDirectory(atPath: spool.path)) ?? [] }

        func job() -> Job {
            var job = Job(
                attempt: AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1), url: "http://a/")
            job.maximumBodyBytes = 20
            return job
        }

        func response(_ job: Job, part: OfferedPart? = nil) throws -> Subject {
            let plan = try TransferPlan.make(job: job, body: nil, options: WorkerOptions(workPath: "", slots: 1))
            return Subject(
                IncomingResponse(
                    .make(job: job, plan: plan, terms: terms), continuing: part, maximumBodyBytes: job.maximumBodyBytes)
            )
        }

        /// Returns the response to a request for the rest of a body that starts with `hello `.
        func continuing(total: Int? = 11) throws -> Subject {
            var job = job()
            job.resume = Job.Resume(availableBytes: 6, totalBytes: total, validator: "\"a\"")
            let name = SpoolName.partFile(of: job.attempt, pid: getpid())
            try Data("hello ".utf8).write(to: spool.appending(path: name))
            let part = OfferedPart(job, in: try SpoolFolder(spool.path))
            var hash = SHA256()
            hash.update(Array("hello ".utf8).span)
            #expect(part?.verifyHash(hash) == true)
            return try response(job, part: part)
        }
    }

    private let bed: Bed

    init() throws { bed = try Bed() }

    @Test(arguments: [
        ("HTTP/1.1 206 Partial", "ETag: \"a\"", FailureCode.protocolError),
        ("HTTP/1.1 200 OK", "Content-Length: 5, 6", .protocolError),
        ("HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked", .encodingError),
        ("HTTP/1.1 200 OK", "Content-Length: 21", .tooLarge),
    ])
    func `a head that cannot be used ends the transfer`(status: String, field: String, code: FailureCode) throws {
        let response = try bed.response(bed.job())
        #expect(response.take(status, field) == .refused)
        #expect(response.refusal?.code == code)
        #expect(!response.isCut)
    }

    @Test(arguments: [("GET", 204), ("HEAD", 200)])
    func `a response without a body has no length to judge`(method: String, status: Int) throws {
        var job = bed.job()
        job.method = method
        let response = try bed.response(job)
        #expect(response.take("HTTP/1.1 \(status) X", "Content-Length: 21") == .accepted)
        #expect(!response.endsWithConnection)
        let whole = try response.complete()
        #expect(whole.completion.status == status)
    }

    @Test func `an error page beyond its limit is cut, and the answer is its head`() throws {
        let announced = try bed.response(bed.job())
        #expect(announced.take("HTTP/1.1 404 X", "Content-Length: 11") == .refused)
        #expect(announced.isCut)
        let growing = try bed.response(bed.job())
        #expect(growing.take("HTTP/1.1 404 X") == .accepted)
        #expect(growing.append("0123456789"))
        #expect(!growing.append("!"))
        #expect(growing.isCut && growing.refusal == nil)
        let whole = try growing.complete()
        #expect(whole.completion.isBodyOmitted && whole.completion.status == 404 && whole.body == nil)
    }

    @Test func `an error page that is a result has the limit of results`() throws {
        var job = bed.job()
        job.route.deliversErrorResponses = true
        let whole = try bed.response(job)
        #expect(whole.take("HTTP/1.1 404 X", "Content-Length: 11") == .accepted)
        #expect(whole.append("0123456789!"))
        let delivered = try whole.complete()
        #expect(!delivered.completion.isBodyOmitted && delivered.completion.bodyByteCount == 11)
        let large = try bed.response(job)
        #expect(large.take("HTTP/1.1 404 X", "Content-Length: 21") == .refused)
        #expect(large.refusal?.code == .tooLarge && !large.isCut)
    }

    @Test func `a redirect that the core follows needs no body, and one for the client does`() throws {
        var job = bed.job()
        let followed = try bed.response(job)
        #expect(followed.take("HTTP/1.1 302 X", "Location: /b") == .followedRedirect)
        #expect(followed.cut())
        job.redirectMode = .manual
        let shown = try bed.response(job)
        #expect(shown.take("HTTP/1.1 302 X", "Location: /b") == .accepted)
        #expect(!shown.cut())
    }

    @Test func `a body beyond the maximum is refused, and not beyond one that was raised`() throws {
        let response = try bed.response(bed.job())
        _ = response.take("HTTP/1.1 200 OK")
        response.raise(to: 25)
        #expect(response.append(String(repeating: "x", count: 25)))
        #expect(!response.append("x"))
        #expect(response.refusal?.code == .tooLarge)
    }

    @Test func `a body before its head is refused`() throws {
        let response = try bed.response(bed.job())
        #expect(!response.append("x"))
        #expect(response.refusal?.code == .protocolError)
    }

    @Test(arguments: ["", "HTTP/1.1 200 OK\r\n"])
    func `a transfer that ends before the end of its head is a protocol error`(lines: String) throws {
        let response = try bed.response(bed.job())
        if !lines.isEmpty { #expect(response.append(headerLine: lines) == .accepted) }
        var code: FailureCode?
        do throws(Refusal) { _ = try response.complete() } catch { code = error.code }
        #expect(code == .protocolError)
    }

    @Test func `only a body that its head does not frame ends with its connection`() throws {
        for (field, ends) in [("Content-Length: 5", false), ("Transfer-Encoding: chunked", false), ("A: 1", true)] {
            let response = try bed.response(bed.job())
            _ = response.take("HTTP/1.1 200 OK", field)
            #expect(response.endsWithConnection == ends, "\(field)")
        }
    }

    @Test func `the rest of a body is appended, and the whole is a 200`() throws {
        let response = try bed.continuing()
        #expect(
            response.take("HTTP/1.1 206 X", "ETag: \"a\"", "Content-Range: bytes 6-10/11", "Content-Length: 5")
                == .accepted)
        #expect(!response.endsWithConnection)
        #expect(response.append("world"))
        let whole = try response.complete()
        #expect(whole.completion.status == 200 && whole.completion.isResumed && whole.completion.bodyByteCount == 11)
        var hash = SHA256()
        hash.update(Array("hello world".utf8).span)
        let digest = hash.finalize()
        #expect(whole.completion.sha256 == digest.hex)
        let file = try #require(whole.completion.fileName)
        #expect(try Data(contentsOf: bed.spool.appending(path: file)) == Data("hello world".utf8))
    }

    @Test func `a rest that is shorter than its range is truncated`() throws {
        let response = try bed.continuing()
        _ = response.take("HTTP/1.1 206 X", "ETag: \"a\"", "Content-Range: bytes 6-10/11")
        #expect(response.append("worl"))
        var code: FailureCode?
        do throws(Refusal) { _ = try response.complete() } catch { code = error.code }
        #expect(code == .truncated)
    }

    @Test func `a rest that is longer than its range is refused, and none of its bytes are kept`() throws {
        let response = try bed.continuing()
        _ = response.take("HTTP/1.1 206 X", "ETag: \"a\"", "Content-Range: bytes 6-10/11")
        #expect(!response.append("world!"))
        #expect(response.refusal?.code == .truncated)
        #expect(response.leave() == nil)
    }

    @Test func `a part that is the whole body ignores the bytes of the response`() throws {
        let response = try bed.continuing(total: 6)
        #expect(response.take("HTTP/1.1 416 X", "ETag: \"a\"", "Content-Range: bytes */6") == .accepted)
        #expect(response.append("an explanation of the 416, which is long"))
        let whole = try response.complete()
        #expect(
            whole.completion.bodyByteCount == 6 && whole.completion.isResumed && whole.completion.httpFields.isEmpty)
    }

    @Test func `a rest of another representation is not appended, and the whole is requested`() throws {
        let response = try bed.continuing()
        #expect(response.take("HTTP/1.1 206 X", "ETag: \"b\"", "Content-Range: bytes 6-10/11") == .refused)
        #expect(response.wantsWhole)
        response.startOver()
        #expect(!response.wantsWhole && response.offeredPart == nil && response.count == 0)
        #expect(response.take("HTTP/1.1 200 OK") == .accepted)
        #expect(response.append("another"))
        let whole = try response.complete()
        #expect(whole.body == Array("another".utf8) && !whole.completion.isResumed)
    }

    @Test func `an error leaves the part of earlier attempts where it is`() throws {
        let response = try bed.continuing()
        #expect(response.take("HTTP/1.1 500 X") == .accepted)
        #expect(response.offeredPart != nil)
        response.discard()
        #expect(bed.files.count == 1)
    }

    @Test func `bytes of a body with a validator are left for a later attempt, with their fields until they are told`()
        throws
    {
        var job = bed.job()
        job.maximumBodyBytes = nil
        for (isReported, fields) in [(false, "ETag: \"a\""), (true, "")] {
            let response = try bed.response(job)
            _ = response.take("HTTP/1.1 200 OK", "ETag: \"a\"")
            #expect(response.append(String(repeating: "b", count: 101)))
            if isReported { response.progressTaken() }
            let part = try #require(response.leave())
            #expect(part.httpFields == Array(fields.utf8))
            #expect(bed.files == [part.fileName])
            try FileManager.default.removeItem(at: bed.spool.appending(path: part.fileName))
        }
    }

    @Test func `the file of discarded bytes is deleted at once`() throws {
        var job = bed.job()
        job.maximumBodyBytes = nil
        let response = try bed.response(job)
        _ = response.take("HTTP/1.1 200 OK")
        #expect(response.append(String(repeating: "b", count: 101)))
        #expect(bed.files.count == 1)
        response.discard()
        #expect(bed.files.isEmpty && response.count == 0)
    }

    @Test func `a content coding that does not come to its end truncates the body`() throws {
        let response = try bed.response(bed.job())
        _ = response.take("HTTP/1.1 200 OK", "Content-Encoding: deflate")
        #expect(response.isEncoded)
        #expect(response.decode(Deflate.zeros(matches: 0).dropLast()))
        var code: FailureCode?
        do throws(Refusal) { try response.end() } catch { code = error.code }
        #expect(code == .truncated)
        #expect(response.isReceived)
    }
}
