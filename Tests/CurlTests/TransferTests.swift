import Curl
import Glibc
import Testing

@testable import TestPeers

/// Transfers that succeed: heads, bodies, codings, and sinks that pause.
@Suite struct TransferTests {
    @Test func `a response arrives whole, head and body`() throws {
        let origin = try LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kind: small\r\n\r\nhello")
        let loop = try CurlTestLoop(origin: origin)
        let sink = RecordingSink()
        var request = TransferRequest(url: loop.url)
        request.userAgent = "test/1"
        request.acceptEncoding = "gzip, br"
        request.headerFields = [.init(name: "X-Asked", value: "yes"), .init(name: "X-Empty", value: "")]
        let result = try #require(try loop.fetch(request, sink: sink))
        #expect(result.failure == nil)
        #expect(result.status == 200)
        #expect(sink.head == "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kind: small\r\n\r\n")
        #expect(sink.text == "hello")
        let requested = try #require(origin.requests.first)
        #expect(requested.hasPrefix("GET /file HTTP/1.1\r\n"))
        #expect(requested.contains("\r\nUser-Agent: test/1\r\n"))
        #expect(requested.contains("\r\nX-Asked: yes\r\n"))
        #expect(requested.contains("\r\nX-Empty:\r\n"))
        #expect(requested.contains("\r\nAccept-Encoding: gzip, br\r\n"))
    }

    @Test(
        "the path and the query arrive byte by byte",
        arguments: ["/a/../b/./c", "/..", "/a/%2e%2e/b/%2E", "//a//b/", "/a%2fb/%zz%", "/?", "/a?../b?./c", "/;p=1/."])
    func pathAsIs(target: String) throws {
        let origin = try LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        let loop = try CurlTestLoop(origin: origin)
        // libcurl parses a URL with user information in a different way.
        for userinfo in ["", "u@"] {
            let url = "http://\(userinfo)127.0.0.1:\(origin.port)\(target)"
            #expect(try loop.fetch(TransferRequest(url: url))?.failure == nil)
            #expect(origin.requests.last?.hasPrefix("GET \(target) HTTP/1.1\r\n") == true, "\(origin.requests)")
        }
    }

    @Test func `HEAD ends with the head although a length is announced`() throws {
        let origin = try LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
        let loop = try CurlTestLoop(origin: origin)
        let sink = RecordingSink()
        var request = TransferRequest(url: loop.url)
        request.method = .head
        let result = try #require(try loop.fetch(request, sink: sink))
        #expect(result.failure == nil)
        #expect(sink.body.isEmpty)
        #expect(origin.requests.first?.hasPrefix("HEAD ") == true)
    }

    @Test func `a chunked body is joined`() throws {
        let origin = try LoopbackOrigin(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n")
        let loop = try CurlTestLoop(origin: origin)
        let sink = RecordingSink()
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: sink)?.failure == nil)
        #expect(sink.text == "abcdefg")
        #expect(sink.head.hasSuffix("X-Sum: 7\r\n"))
    }

    @Test(arguments: ["gzip", "br", "unheard"])
    func `a body arrives in the content coding that it was sent in`(coding: String) throws {
        let head = "HTTP/1.1 200 OK\r\nContent-Encoding: \(coding)\r\nContent-Length: 6\r\n\r\n"
        let loop = try CurlTestLoop(origin: LoopbackOrigin(head, body: [31, 139, 8, 0, 255, 254]))
        let sink = RecordingSink()
        var request = TransferRequest(url: loop.url)
        request.acceptEncoding = "gzip"
        #expect(try loop.fetch(request, sink: sink)?.failure == nil)
        #expect(sink.body == [31, 139, 8, 0, 255, 254])
    }

    @Test func `a field of the request's own replaces the codings that are asked for`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        var request = TransferRequest(url: loop.url)
        request.acceptEncoding = "gzip"
        request.headerFields = [.init(name: "Accept-Encoding", value: "own")]
        #expect(try loop.fetch(request)?.failure == nil)
        let requested = try #require(loop.origin.requests.last)
        #expect(requested.contains("\r\nAccept-Encoding: own\r\n") && !requested.contains("gzip"))
    }

    @Test(
        "a sink that postpones bytes gets them all after it was resumed",
        arguments: ["Content-Length: 1000000", "Connection: close"])
    func postponed(framing: String) throws {
        let body = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 / 251) }
        let isClosed = framing == "Connection: close"
        let loop = try CurlTestLoop(
            origin: LoopbackOrigin(
                "HTTP/1.1 200 OK\r\n\(framing)\r\n\r\n", body: body, end: isClosed ? .close : .open))
        let sink = RecordingSink()
        sink.isPostponing = true
        let transfer = try loop.start(TransferRequest(url: loop.url), sink: sink)
        for turn in 1...3 {
            #expect(loop.run { _ in sink.postponed == turn })
            loop.resume(transfer)
        }
        #expect(sink.body.isEmpty)
        sink.isPostponing = false
        loop.resume(transfer)
        #expect(loop.run { !$0.finished.isEmpty })
        #expect(loop.finished.last?.result.failure == nil)
        #expect(sink.body == body)
    }

    @Test func `a sink that refuses bytes it had postponed ends the transfer`() throws {
        let loop = try CurlTestLoop(
            origin: LoopbackOrigin(
                "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", body: [UInt8](repeating: 1, count: 100_000)))
        let sink = RecordingSink()
        sink.isPostponing = true
        let transfer = try loop.start(TransferRequest(url: loop.url), sink: sink)
        #expect(loop.run { _ in sink.postponed == 1 })
        sink.isPostponing = false
        sink.bodyLimit = 10
        loop.resume(transfer)
        #expect(loop.run { !$0.finished.isEmpty })
        #expect(loop.finished.last?.result.failure == .aborted)
        #expect(loop.multi?.runningCount == 0)
    }

    @Test func `a redirect is an answer and is not followed`() throws {
        let origin = try LoopbackOrigin("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")
        let loop = try CurlTestLoop(origin: origin)
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.status == 302)
        #expect(origin.requests.count == 1)
    }

    @Test func `addresses given with the request are used for its name`() throws {
        let origin = try LoopbackOrigin("HTTP/1.1 204 No Content\r\n\r\n")
        let loop = try CurlTestLoop(origin: origin)
        var request = TransferRequest(url: "http://name.test:\(origin.port)/")
        request.resolveEntries = ["name.test:\(origin.port):127.0.0.1"]
        let result = try #require(try loop.fetch(request))
        #expect(result.failure == nil)
        #expect(result.status == 204)
        #expect(origin.requests.first?.contains("\r\nHost: name.test:\(origin.port)\r\n") == true)
    }

    @Test func `a second request uses the connection of the first`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.openedConnectionCount == 1)
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.openedConnectionCount == 0)
        #expect(loop.origin.accepted == 1)
    }

    @Test func `a descriptor is new for each connection and not for each request`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
        for _ in 0..<3 { #expect(try loop.fetch(TransferRequest(url: loop.url))?.failure == nil) }
        #expect(loop.newDescriptors.count == 1)
    }

    @Test func `a connection under the number of one that ended is new`() throws {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        let loop = try CurlTestLoop(origin: LoopbackOrigin(answer, end: .close))
        for _ in 0..<3 { #expect(try loop.fetch(TransferRequest(url: loop.url))?.openedConnectionCount == 1) }
        #expect(loop.newDescriptors.count == 3)
    }

    @Test func `a handle whose transfer was cancelled before it began keeps none of its addresses`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        // Each cancelled transfer leaves a list behind, whose memory is then reused.
        for number in 0..<50 {
            var cancelled = TransferRequest(url: "http://h\(number).test/")
            cancelled.resolveEntries = ["h\(number).test:80:127.0.0.1,[::1]"]
            loop.cancel(try loop.start(cancelled, sink: RecordingSink()))
            #expect(try #require(try loop.fetch(TransferRequest(url: loop.url))).failure == nil)
        }
    }

    @Test func `a used handle keeps no option of the transfer before`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        var request = TransferRequest(url: loop.url)
        request.method = .head
        request.headerFields = [.init(name: "X-First", value: "1")]
        _ = try loop.fetch(request)
        _ = try loop.fetch(TransferRequest(url: loop.url))
        let second = try #require(loop.origin.requests.last)
        #expect(second.hasPrefix("GET "))
        #expect(!second.contains("X-First"))
    }

    @Test func `a used handle keeps neither fields nor password of the transfer before, and takes another agent`()
        throws
    {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        var request = TransferRequest(url: loop.url.replacing("127.0.0.1", with: "user:word@127.0.0.1"))
        request.userAgent = "first/1"
        request.acceptEncoding = "gzip"
        _ = try loop.fetch(request)
        #expect(loop.origin.requests.last?.contains("Authorization: Basic") == true)
        request = TransferRequest(url: loop.url)
        request.userAgent = "first/1"
        request.acceptEncoding = "gzip"
        request.headerFields = [.init(name: "X-First", value: "1"), .init(name: "Accept-Encoding", value: "x")]
        _ = try loop.fetch(request)
        request.headerFields = []
        _ = try loop.fetch(request)
        let third = try #require(loop.origin.requests.last)
        #expect(!third.contains("Authorization") && !third.contains("X-First"))
        #expect(third.contains("User-Agent: first/1\r\n"))
        #expect(third.contains("Accept-Encoding: ") && !third.contains("Accept-Encoding: x"))
        request.userAgent = "second/2"
        _ = try loop.fetch(request)
        #expect(loop.origin.requests.last?.contains("User-Agent: second/2\r\n") == true)
    }

    @Test func `a used handle asks for each URL as it is written`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        let targets = ["/", "/a%2Fb%2f?q=%C3%bc&r", "/none?", "/;p=1?x=/../y", "/?a?b"]
        for target in targets + ["/end"] {
            let url = "http://127.0.0.1:\(loop.origin.port)\(target)"
            #expect(try loop.fetch(TransferRequest(url: url))?.failure == nil)
        }
        #expect(loop.origin.requests.map { $0.split(separator: " ")[1] } == (targets + ["/end"]).map { $0[...] })
    }

    @Test func `an http proxy is asked for a URL with an empty query as it is written`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        for (url, target) in [
            ("http://u:p@h.test/p?", "http://h.test/p?"), ("http://h.test:81/?", "http://h.test:81/?"),
            ("http://h.test/p?a", "http://h.test/p?a"), ("http://h.test/p", "http://h.test/p"),
        ] {
            var request = TransferRequest(url: url)
            request.proxy = "http://127.0.0.1:\(loop.origin.port)"
            #expect(try loop.fetch(request)?.failure == nil)
            #expect(loop.origin.requests.last?.split(separator: " ")[1] == target[...])
        }
    }

    @Test func `what is no URL fails alone`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        for url in ["http:///", "http://a b/", "http://127.0.0.1:70000/"] {
            #expect(try loop.fetch(TransferRequest(url: loop.url))?.failure == nil)
            #expect(try loop.fetch(TransferRequest(url: url))?.failure == .malformedURL)
        }
        #expect(loop.origin.requests.count == 3)
    }

    @Test func `a used handle measures each transfer from its own beginning`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", end: .close))
        for _ in 0..<3 { #expect(try loop.fetch(TransferRequest(url: loop.url))?.failure == nil) }
        let (descriptor, port) = try Loopback.bind()
        defer { close(descriptor) }
        let result = try #require(try loop.fetch(TransferRequest(url: "http://127.0.0.1:\(port)/")))
        #expect(result.failure == .connectRefused)
        #expect(result.status == 0)
    }

    @Test(
        "a header field that would break out of its line is refused",
        arguments: [("X-A", "1\r\nX-B: 2"), ("X-A", "1\0"), ("X A", "1"), ("", "1"), ("X:A", "1")])
    func badField(name: String, value: String) throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: loop.url)
        request.headerFields = [.init(name: name, value: value)]
        let error = #expect(throws: CurlError.self) { try loop.start(request, sink: RecordingSink()) }
        #expect(error?.code == .badHeaderField)
        #expect(loop.multi?.runningCount == 0)
    }
}

@Suite struct StreamEndTests {
    @Test func `the ends of HTTP/2 streams are seen with this libcurl`() throws {
        _ = try Multi.make(maxConnections: 1)
        #expect(Multi.speaksHTTP2)
    }
}
