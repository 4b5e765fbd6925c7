import Testing

@testable import EarshotWeb

@Suite struct RequestHeadTests {
    private func read(_ text: String) -> RequestHead.Reading { RequestHead.parse(Array(text.utf8)) }

    private func head(_ text: String) -> RequestHead? {
        if case .complete(let head, _) = read(text) { head } else { nil }
    }

    private func status(_ text: String) -> Int? {
        if case .rejected(let status) = read(text) { status } else { nil }
    }

    @Test func `a head has a path, a decoded query, and a host in lower case`() throws {
        let text = "GET /why?handler=a%2Fb&request=x+y&z HTTP/1.1\r\nHost: LocalHost:1\r\nA: b\r\n\r\nrest"
        let head = try #require(self.head(text))
        #expect(head.path == "/why" && head.host == "localhost:1" && head.keepsAlive && !head.isHEADMethod)
        #expect(head.query == ["handler": "a/b", "request": "x y", "z": ""])
        guard case .complete(_, let length) = read(text) else { return }
        #expect(length == text.utf8.count - 4)
    }

    @Test func `a head is incomplete before its empty line, at any length`() {
        let bytes = Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
        for length in bytes.indices { #expect(RequestHead.parse(Array(bytes.prefix(length))) == .incomplete) }
        // A reader that continues a search finds an end that is split between two reads.
        for searched in 0..<bytes.count {
            #expect(RequestHead.parse(bytes, searched: searched) == RequestHead.parse(bytes))
        }
    }

    @Test func `the connection stays open as the version and the client say`() {
        #expect(head("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n")?.keepsAlive == false)
        #expect(head("GET / HTTP/1.0\r\nHost: a\r\n\r\n")?.keepsAlive == false)
        #expect(head("HEAD / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")?.keepsAlive == true)
        #expect(head("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n")?.keepsAlive == false)
    }

    @Test func `targets in all forms are read, and bytes outside ASCII are escaped`() {
        #expect(head("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n")?.target == "http://b/")
        #expect(head("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")?.target == "*")
        #expect(head("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n")?.method == "CONNECT")
        #expect(head("GET /ü HTTP/1.1\r\nHost: a\r\n\r\n")?.path == "/%C3%BC")
        #expect(head("GET http://a/ HTTP/1.0\r\n\r\n")?.host == "")
        #expect(head("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")?.path == "/")
    }

    @Test func `the length of a body has one meaning`() {
        func length(_ fields: String) -> RequestHead.BodyLength? {
            head("POST / HTTP/1.1\r\nHost: a\r\n\(fields)\r\n\r\n")?.bodyLength
        }
        #expect(length("Content-Length: 12") == .bytes(12))
        #expect(length("Content-Length: 0") == RequestHead.BodyLength.none)
        #expect(length("Transfer-Encoding: Chunked") == .chunked)
        #expect(length("A: b") == RequestHead.BodyLength.none)
        #expect(
            head("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n")?.expectsContinue
                == true)
        #expect(
            head("POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")?.expectsContinue
                == false)
    }

    @Test(arguments: [
        // Section 2.2: lines.
        ("GET / HTTP/1.1\nHost: a\n\n", 400), ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400), ("\r\n\r\n", 400),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", 400), ("GET / HTTP/1.1\r\nA: b\rc\r\nHost: a\r\n\r\n", 400), ("\n\n", 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400), ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        // Section 3: the request line.
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET /\r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400), ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET /\u{0} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400), ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 505), ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        // Section 3.2: Host.
        ("GET / HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost:80a\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: [::1]:1:1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: \(String(repeating: "a", count: 301))\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400), ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        // Section 5: fields.
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: \u{1}\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tc\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\u{0}\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n", 400),
        // Section 6: the body.
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: a-pony\r\n\r\n", 417),
    ])
    func `a request that others could read differently is rejected`(text: String, status: Int) {
        #expect(self.status(text) == status)
    }

    @Test func `a head without an end is rejected at the limit`() {
        let long = "GET / HTTP/1.1\r\nHost: a\r\nA: " + String(repeating: "b", count: RequestHead.defaultMaximumBytes)
        #expect(RequestHead.parse(Array(long.utf8.prefix(RequestHead.defaultMaximumBytes - 1))) == .incomplete)
        #expect(status(long) == 431)
        #expect(status(long + "\r\n\r\n") == 431)
    }
}
