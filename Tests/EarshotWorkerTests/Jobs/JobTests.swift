import EarshotLoop
import EarshotWire
import Foundation
import LibCrypto
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Jobs that succeed, over real transfers: their bodies and their messages.
@Suite struct JobTests {
    static let kilobyte = [UInt8](repeating: 7, count: 1000)

    @Test func `the first message tells what the worker is`() throws {
        let bed = try Bed(slots: 17) { _ in .ok([]) }
        #expect(try bed.meet())
        let ready = try #require(bed.broker.readies.first)
        #expect(ready.slots == 17)
        #expect(ready.supervisorSecret == "c0ffee")
        #expect(ready.pid == Int(getpid()))
        #expect(ready.schemes == ["http", "https"])
    }

    @Test func `a small body comes with its message`() throws {
        let bed = try Bed { _ in .ok(Self.kilobyte, fields: "ETag: \"1\"\r\n") }
        var job = bed.job()
        job.httpFields = Array("accept: image/*\nx-name: \u{fc}".utf8)
        #expect(try bed.fetch(job))
        let (completion, body) = try #require(bed.broker.completion(job.attempt))
        #expect(completion.status == 200)
        #expect(completion.bodyByteCount == 1000)
        #expect(completion.sha256 == SHA256.digest(of: Self.kilobyte.span).hex)
        #expect(completion.fileName == nil)
        #expect(body == Self.kilobyte)
        #expect(completion.httpFields == Array("Content-Length: 1000\nETag: \"1\"".utf8))
        let request = try #require(bed.origin.requests.first)
        #expect(request.contains("\r\naccept: image/*\r\n"))
        #expect(request.contains("\r\nx-name: \u{fc}\r\n"))
        #expect(request.contains("\r\nUser-Agent: earshot/0.1\r\n"))
        #expect(bed.spool.isEmpty)
    }

    @Test func `a large body becomes a file that only this user can read`() throws {
        let body = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let bed = try Bed(inlineBytes: 1000) { _ in .ok(body) }
        let job = bed.job()
        #expect(try bed.fetch(job))
        let (completion, frame) = try #require(bed.broker.completion(job.attempt))
        #expect(frame == nil)
        #expect(completion.bodyByteCount == body.count)
        let name = try #require(completion.fileName)
        #expect(name == "\(getpid())-\(job.attempt).part")
        let path = bed.folder.appending(path: "spool/\(name)")
        let content = try Array(Data(contentsOf: path))
        #expect(content == body)
        #expect(completion.sha256 == SHA256.digest(of: body.span).hex)
        let mode = try FileManager.default.attributesOfItem(atPath: path.path)[.posixPermissions] as? Int
        #expect(mode == 0o400)
    }

    @Test func `a body of exactly the inline limit stays in memory`() throws {
        let bed = try Bed(inlineBytes: 1000) { _ in .ok(Self.kilobyte) }
        let job = bed.job()
        #expect(try bed.fetch(job))
        #expect(bed.broker.completion(job.attempt)?.body == Self.kilobyte)
        #expect(bed.spool.isEmpty)
    }

    @Test func `an error page is told like any other answer`() throws {
        let bed = try Bed { _ in .init("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy") }
        let job = bed.job()
        #expect(try bed.fetch(job))
        let (completion, body) = try #require(bed.broker.completion(job.attempt))
        #expect(completion.status == 503)
        #expect(body == Array("busy".utf8))
    }

    @Test(arguments: ["HEAD", "GET"])
    func `an answer without a body has none, whatever length it announces`(method: String) throws {
        let bed = try Bed { _ in
            .init("HTTP/1.1 \(method == "HEAD" ? 200 : 304) X\r\nContent-Length: 5000\r\n\r\n")
        }
        var job = bed.job()
        job.method = method
        job.httpFields = Array("if-none-match: \"a\"".utf8)
        job.maximumBodyBytes = 10
        #expect(try bed.fetch(job))
        let (completion, body) = try #require(bed.broker.completion(job.attempt))
        #expect(completion.bodyByteCount == 0)
        #expect(completion.sha256 == nil)
        #expect(body == nil)
        #expect(bed.origin.requests.first?.hasPrefix(method + " ") == true)
    }

    @Test(
        arguments: [
            (304, "", false), (304, "if-none-match: \"a\"", true), (304, "if-modified-since: x", true),
            (304, "range: bytes=0-3", false), (206, "", false), (206, "range: bytes=0-3", true),
            (206, "if-none-match: \"a\"", false),
        ] as [(Int, String, Bool)])
    func `a 304 answers a condition and a 206 a range, and nothing else`(
        status: Int, fields: String, isRight: Bool
    ) throws {
        let bed = try Bed { _ in
            .init("HTTP/1.1 \(status) X\r\nContent-Length: 4\r\n\r\n\(status == 304 ? "" : "body")")
        }
        var job = bed.job()
        job.httpFields = Array(fields.utf8)
        #expect(try bed.fetch(job))
        #expect((bed.broker.completion(job.attempt)?.completion.status == status) == isRight)
        #expect(bed.broker.failure(job.attempt) == (isRight ? nil : "protocol-error"))
    }

    @Test(
        arguments: [
            ("accept: x", "accept-encoding: gzip, deflate, br, zstd"),
            ("Range: bytes=0-9", "accept-encoding: identity"),
            ("range: bytes=0-9\nAccept-Encoding: br", "accept-encoding: br"),
        ] as [(String, String)])
    func `a request for a range asks for no coding, unless its own fields name one`(fields: String, sent: String) throws
    {
        let bed = try Bed { _ in .ok([1]) }
        for method in ["GET", "HEAD", "POST"] {
            var job = bed.job()
            job.method = method
            job.httpFields = Array(fields.utf8)
            #expect(try bed.fetch(job))
            let lines = try #require(bed.origin.requests.last).lowercased().split(separator: "\r\n")
            #expect(lines.filter { $0.hasPrefix("accept-encoding:") } == [sent[...]], "\(method)")
        }
    }

    @Test func `an interim answer is dropped and a folded field unfolded`() throws {
        let bed = try Bed { _ in
            .init(
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
                    + "HTTP/1.1 200 OK\r\nX-Long: one\r\n  two\r\nContent-Length: 0\r\n\r\n")
        }
        let job = bed.job()
        #expect(try bed.fetch(job))
        let (completion, _) = try #require(bed.broker.completion(job.attempt))
        #expect(completion.status == 200)
        #expect(completion.httpFields == Array("X-Long: one two\nContent-Length: 0".utf8))
    }

    @Test func `a folded line that continues none is a protocol error`() throws {
        let bed = try Bed { _ in .init("HTTP/1.1 200 OK\r\n folded: first\r\nContent-Length: 2\r\n\r\nok") }
        let job = bed.job()
        #expect(try bed.fetch(job))
        #expect(bed.broker.failure(job.attempt) == "protocol-error")
    }

    @Test func `names are looked up once however many jobs wait, and then known`() throws {
        let bed = try Bed(names: .loopback()) { _ in .ok([1]) }
        #expect(try bed.meet())
        let jobs = (0..<5).map { _ in bed.job(bed.origin.url(host: "Origin.Example")) }
        for job in jobs { try bed.broker.send(.job(job)) }
        #expect(try bed.run { jobs.allSatisfy { bed.broker.completion($0.attempt) != nil } })
        #expect(bed.nameServer?.addressQuestions == 1)
        #expect(try bed.fetch(bed.job(bed.origin.url(host: "origin.example"))))
        #expect(bed.nameServer?.addressQuestions == 1)
    }

    @Test(arguments: ["localhost", "a.localhost"])
    func `localhost is this machine and asks nobody`(host: String) throws {
        let bed = try Bed(names: .noSuchName) { _ in .ok([1]) }
        let job = bed.job(bed.origin.url(host: host))
        #expect(try bed.fetch(job))
        #expect(bed.broker.completion(job.attempt) != nil)
        #expect(bed.nameServer?.addressQuestions == 0)
    }

    @Test func `hundreds of jobs run at once over several multi handles`() throws {
        try ResourceLimits.raiseDescriptorLimit()
        var waiting = 0
        let bed = try Bed(slots: 600) { _ in
            waiting += 1
            return .init("")
        }
        #expect(try bed.meet())
        let jobs = (0..<600).map { bed.job(bed.origin.url("/\($0)", host: "h\($0 % 40).localhost")) }
        for job in jobs { try bed.broker.send(.job(job)) }
        #expect(try bed.run { waiting == 600 })
        #expect(bed.worker.jobKind.pool.runningTransferCount == 600)
        bed.origin.send(LoopbackOrigin.Reply.ok([1]).bytes)
        #expect(try bed.run { jobs.allSatisfy { bed.broker.completion($0.attempt) != nil } })
        #expect(bed.worker.jobKind.pool.runningTransferCount == 0)
    }
}
