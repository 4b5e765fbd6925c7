import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Jobs that fail, over real transfers: each has its code.
@Suite struct JobFailureTests {
    @Test(
        "a job that cannot be run fails by its code",
        arguments: [
            ("ftp://127.0.0.1/a", "GET", "", FailureCode.unsupportedScheme), ("nonsense", "GET", "", .malformedURL),
            ("http://127.0.0.1:0/", "GET", "", .malformedURL), ("http://127.0.0.1/", "TRACE", "", .unsupportedMethod),
            ("http://127.0.0.1/", "GET", "host: other", .badHeader), ("http://127.0.0.1/", "GET", "a b", .badHeader),
            ("http://name.invalid/", "GET", "", .unknownHost),
        ])
    func refused(url: String, method: String, fields: String, code: FailureCode) throws {
        let bed = try Bed { _ in .ok([]) }
        var job = bed.job(url)
        job.method = method
        job.httpFields = Array(fields.utf8)
        #expect(try bed.failure(job) == code.rawValue)
    }

    @Test func `a name that does not exist is an unknown host`() throws {
        let bed = try Bed(names: .noSuchName) { _ in .ok([]) }
        #expect(try bed.failure(bed.job("http://host.example/")) == "unknown-host")
    }

    @Test func `a port nobody listens on refuses the connection`() throws {
        let bed = try Bed { _ in .ok([]) }
        #expect(try bed.failure(bed.job("http://127.0.0.1:\(try Loopback.freePort())/")) == "connect-refused")
    }

    @Test func `a body that ends before its length is truncated`() throws {
        let bed = try Bed(inlineBytes: 2) { _ in
            .init("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this", closes: true)
        }
        #expect(try bed.failure(bed.job()) == "truncated")
        #expect(bed.spool.isEmpty)
    }

    @Test(
        "an answer whose end nobody can tell is none: RFC 9112, section 6.3",
        arguments: [
            "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5, 6", "Content-Length: +5", "Content-Length: ",
            "Content-Length: 99999999999999999999",
        ])
    func unknownLength(fields: String) throws {
        let bed = try Bed { _ in .init("HTTP/1.1 200 OK\r\n\(fields)\r\n\r\nsomething", closes: true) }
        #expect(try bed.failure(bed.job()) == "protocol-error")
    }

    @Test(
        "a length that means nothing harms nothing",
        arguments: [
            ("GET", "200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde"),
            ("GET", "200 OK\r\nContent-Length: 9, 8\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"),
            ("GET", "204 No\r\nContent-Length: 5, 6\r\n\r\n"), ("HEAD", "200 OK\r\nContent-Length: 5, 6\r\n\r\n"),
        ])
    func meaninglessLength(method: String, answer: String) throws {
        let bed = try Bed { _ in .init("HTTP/1.1 " + answer) }
        var job = bed.job()
        job.method = method
        #expect(try bed.fetch(job))
        #expect(
            try #require(bed.broker.completion(job.attempt)).body.map { String(decoding: $0, as: UTF8.self) }
                == (method == "GET" && answer.hasPrefix("200") ? "abcde" : nil))
    }

    @Test func `silence for longer than allowed is a timeout`() throws {
        let bed = try Bed { _ in .init("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this") }
        var job = bed.job()
        job.timeoutMilliseconds = 50
        #expect(try bed.failure(job) == "timeout")
        #expect(try bed.run { bed.origin.closedByPeer == 1 })
    }

    @Test func `a name that nobody answers for counts in the time to connect`() throws {
        let bed = try Bed(names: .silence) { _ in .ok([]) }
        var job = bed.job("http://host.example/")
        job.connectTimeoutMilliseconds = 50
        #expect(try bed.failure(job) == "connect-timeout")
    }

    @Test(
        "more bytes than allowed end the transfer, announced or not",
        arguments: [
            "Content-Length: 3000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n",
            "Connection: close\r\n\r\n",
        ])
    func tooLarge(head: String) throws {
        let bed = try Bed(inlineBytes: 100) { _ in
            .init("HTTP/1.1 200 OK\r\n" + head, body: [UInt8](repeating: 1, count: 3_000_000))
        }
        var job = bed.job()
        job.maximumBodyBytes = 20_000
        #expect(try bed.failure(job) == "too-large")
        #expect(try bed.run { bed.origin.closedByPeer == 1 })
        #expect(bed.spool.isEmpty)
    }

    @Test func `a small body that unpacks to a large one is too large`() throws {
        let bomb = Deflate.zeros(matches: 40_000)
        let unpacked = 40_000 * 258 + 1
        #expect(bomb.count < 70_000)
        let bed = try Bed { _ in .ok(bomb, fields: "Content-Encoding: deflate\r\n") }
        var job = bed.job()
        job.maximumBodyBytes = 100_000
        #expect(try bed.failure(job) == "too-large")
        job = bed.job()
        job.maximumBodyBytes = unpacked
        #expect(try bed.fetch(job))
        #expect(bed.broker.completion(job.attempt)?.completion.bodyByteCount == unpacked)
    }

    @Test(
        "what is not HTTP is a protocol error",
        arguments: ["nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nX-A: 1\r2\r\nContent-Length: 0\r\n\r\n"])
    func notHTTP(answer: String) throws {
        let bed = try Bed { _ in .init(answer, closes: true) }
        #expect(try bed.failure(bed.job()) == "protocol-error")
    }

    @Test func `a header that is too long is a protocol error`() throws {
        let line = "X-Pad: " + String(repeating: "x", count: 4000) + "\r\n"
        let bed = try Bed { _ in .ok([], fields: String(repeating: line, count: 13)) }
        #expect(try bed.failure(bed.job()) == "protocol-error")
    }

    @Test func `a job beyond the slots is refused so that it can run elsewhere`() throws {
        let bed = try Bed(slots: 1) { _ in .init("") }
        #expect(try bed.meet())
        let first = bed.job()
        try bed.broker.send(.job(first))
        #expect(try bed.failure(bed.job()) == "worker-lost")
        #expect(!bed.broker.hasEnded(first.attempt))
    }
}
