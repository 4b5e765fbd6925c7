import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotWeb

@Suite struct ProxyTests {
    private let proxy = ProxyRequest(pseudonym: "earshot-x", ports: [5_768], maximumWaitMilliseconds: 1_000)

    private func head(_ line: String, _ fields: [String] = [], host: String = "a.example") throws -> RequestHead {
        let lines = [line, "Host: \(host)"] + fields + ["", ""]
        guard case .complete(let head, _) = RequestHead.parse(Array(lines.joined(separator: "\r\n").utf8)) else {
            throw Malformed()
        }
        return head
    }

    private struct Malformed: Error {}

    private func read(_ line: String, _ fields: String..., body: String = "") throws -> ProxyRequest.Reading {
        let handler = try #require(HandlerID("http-1"))
        let id = try #require(RequestID("1"))
        return proxy.read(try head(line, fields), body: Array(body.utf8), handler: handler, id: id)
    }

    private func fields(_ line: String, _ fields: String...) throws -> [String] {
        let handler = try #require(HandlerID("http-1"))
        let id = try #require(RequestID("1"))
        guard case .fetchRequest(let fetch) = proxy.read(try head(line, fields), body: [], handler: handler, id: id)
        else {
            throw Malformed()
        }
        return String(decoding: fetch.httpFields, as: UTF8.self).split(separator: "\n").map(String.init)
    }

    @Test func `a request becomes one attempt whose answer is passed on as it is`() throws {
        guard case .fetchRequest(let fetch) = try read("GET http://b.example/x?y HTTP/1.1", "Cookie: a=b") else {
            throw Malformed()
        }
        let options = fetch.options
        #expect(fetch.url == "http://b.example/x?y" && fetch.body == nil)
        #expect(options.retries == 0 && options.redirectMode == .manual && options.streams && options.coalesces)
        #expect(
            !options.route.decodesBody && options.route.deliversErrorResponses && !options.usesCookies
                && options.coolDownWaitMilliseconds == 1_000)
        guard
            case .fetchRequest(let post) = try read("POST http://b.example/ HTTP/1.1", "Content-Length: 2", body: "ab")
        else {
            throw Malformed()
        }
        #expect(post.body == Array("ab".utf8) && !post.options.coalesces && post.options.method == "POST")
    }

    @Test func `fields of the connection stay behind`() throws {
        let passed = try fields(
            "GET http://b/ HTTP/1.1", "Accept: */*", "Connection: close, X-Mine", "X-Mine: 1", "Keep-Alive: 5",
            "TE: trailers",
            "Proxy-Authorization: Basic abc", "Proxy-Connection: close", "Upgrade: h2c", "Trailer: a",
            "Earshot-Priority: low",
            "If-None-Match: \"a\"", "Via: 1.0 other")
        #expect(passed == ["accept: */*", "if-none-match: \"a\"", "via: 1.0 other", "via: 1.1 earshot-x"])
        #expect(try fields("GET http://b/ HTTP/1.0") == ["via: 1.0 earshot-x"])
        #expect(try fields("OPTIONS http://b/ HTTP/1.1", "Max-Forwards: 3").contains("max-forwards: 2"))
    }

    @Test func `Earshot-Priority and Earshot-Deadline are options of the request`() throws {
        guard
            case .fetchRequest(let fetch) = try read(
                "GET http://b/ HTTP/1.1", "Earshot-Priority: low", "Earshot-Deadline: 2.5")
        else {
            throw Malformed()
        }
        #expect(fetch.options.priority == .low && fetch.options.deadlineMilliseconds == 2_500)
    }

    @Test(arguments: [
        ("CONNECT b:443 HTTP/1.1", 405), ("TRACE http://b/ HTTP/1.1", 405), ("GET / HTTP/1.1", 421),
        ("GET * HTTP/1.1", 404),
        ("GET http://b/#c HTTP/1.1", 400), ("GET http:///x HTTP/1.1", 400), ("GET b HTTP/1.1", 400),
        ("GET ftp://b/ HTTP/1.1", 400),
        ("GET file:///etc/passwd HTTP/1.1", 400), ("GET https://b/ HTTP/1.1", 501), ("POST /https://b/ HTTP/1.1", 421),
        ("GET /ftp://b/ HTTP/1.1", 421), ("GET http://u:p@b/ HTTP/1.1", 400),
        ("GET http://localhost:5768/ HTTP/1.1", 508), ("GET http://127.0.0.9:5768/ HTTP/1.1", 508),
        ("GET http://[::1]:5768/ HTTP/1.1", 508), ("GET http://0:5768/ HTTP/1.1", 508), ("OPTIONS * HTTP/1.1", 200),
    ])
    func `another request is answered here`(line: String, status: Int) throws {
        guard case .ownAnswer(let answer) = try read(line) else { throw Malformed() }
        #expect(answer.status == status)
    }

    @Test func `a loop, a body of GET and a bad option are refused`() throws {
        for (line, field, body, status) in [
            ("GET http://b/ HTTP/1.1", "Via: 1.1 a, 1.1 earshot-x (c)", "", 508),
            ("GET http://b/ HTTP/1.1", "A: b", "x", 400),
            ("GET http://b/ HTTP/1.1", "Earshot-Priority: highest", "", 400),
            (String(repeating: "m", count: 120) + " http://b/ HTTP/1.1", "A: b", "", 400),
            ("OPTIONS http://b/ HTTP/1.1", "Max-Forwards: 0", "", 200),
            ("GET http://b/" + String(repeating: "a", count: 8_192) + " HTTP/1.1", "A: b", "", 414),
        ] {
            guard case .ownAnswer(let answer) = try read(line, field, body: body) else { throw Malformed() }
            #expect(answer.status == status, "\(line.prefix(40)) \(field)")
        }
    }

    // MARK: The prefix

    private func prefixed(_ line: String, _ fields: [String] = [], host: String = "localhost:5768") throws
        -> ProxyRequest.Reading
    {
        let handler = try #require(HandlerID("http-1"))
        let id = try #require(RequestID("1"))
        return proxy.read(try head(line, fields, host: host), body: [], handler: handler, id: id)
    }

    @Test(arguments: [
        ("/https://b.example/x?y=%2F", "https://b.example/x?y=%2F"), ("/https:/b.example/x", "https://b.example/x"),
        ("/http://b.example:8/", "http://b.example:8/"), ("/https:///b.example/", "https://b.example/"),
        ("/https%3A/b.example%3a8/x%3A?%3A", "https://b.example:8/x%3A?%3A"), ("/http://b?x%3A/", "http://b?x%3A/"),
    ])
    func `a path below the prefix is a URL`(path: String, url: String) throws {
        guard case .fetchRequest(let fetch) = try prefixed("GET \(path) HTTP/1.1") else { throw Malformed() }
        #expect(fetch.url == url)
    }

    @Test func `below the prefix no site gets what the client keeps for another`() throws {
        let fields = ["Authorization: a", "Cookie: a=b", "Referer: a", "Accept: */*", "Sec-Fetch-Site: none"]
        guard case .fetchRequest(let fetch) = try prefixed("GET /https://b/ HTTP/1.1", fields) else {
            throw Malformed()
        }
        #expect(String(decoding: fetch.httpFields, as: UTF8.self) == "accept: */*\nvia: 1.1 earshot-x")
    }

    @Test(arguments: [
        ("GET /https://b/ HTTP/1.1", "A: b", "evil.example", 421), ("GET /https://b/ HTTP/1.1", "A: b", "[evil]", 421),
        ("GET /https://b/ HTTP/1.1", "Origin: http://evil.example", "localhost", 403),
        ("GET /https://b/ HTTP/1.1", "Origin: null", "localhost", 403),
        ("GET /https://b/ HTTP/1.1", "Sec-Fetch-Site: cross-site", "localhost", 403),
        ("POST /https://b/ HTTP/1.1", "A: b", "localhost", 405), ("GET / HTTP/1.1", "A: b", "localhost", 404),
        ("GET /https/b HTTP/1.1", "A: b", "localhost", 404), ("GET /ftp://b/ HTTP/1.1", "A: b", "localhost", 404),
        ("GET /https:/ HTTP/1.1", "A: b", "localhost", 400),
        ("GET /http://[::1]:5768/ HTTP/1.1", "A: b", "localhost", 508),
    ])
    func `below the prefix another request is refused`(line: String, field: String, host: String, status: Int) throws {
        guard case .ownAnswer(let answer) = try prefixed(line, [field], host: host) else { throw Malformed() }
        #expect(answer.status == status)
    }

    @Test(arguments: [
        ("localhost", "/y", "http://localhost:5768/https://b/y"),
        ("localhost", "y?z", "http://localhost:5768/https://b/x/y?z"),
        ("localhost", "http://c:8/", "http://localhost:5768/http://c:8/"),
        ("127.0.0.1", "//b/y", "http://127.0.0.1:5768/https://b/y"),
        ("127.0.0.1", "//c/", "http://[::ffff:127.0.0.1]:5768/https://c/"),
        ("127.0.0.1", "http://b/", "http://[::ffff:127.0.0.1]:5768/http://b/"),
        ("localhost", "ftp://c/", "ftp://c/"),
    ])
    func `a redirect stays below the prefix, and no field reaches other sites there`(
        host: String, target: String, location: String
    ) throws {
        let response = ProxyResponse(pseudonym: "earshot-x").responseHead(
            status: 302,
            fields: HeaderFields(
                lines: Array(
                    "location: \(target)\nset-cookie: a=b\nnel: {}\nreport-to: {}\naccess-control-allow-origin: *\nx: y"
                        .utf8)),
            of: "https://b/x/", length: 0, source: .network,
            to: try head("GET /https://b/x/ HTTP/1.1", host: "\(host):5768"))
        let lines = String(decoding: response.bytes, as: UTF8.self).split(separator: "\r\n").map(String.init)
        #expect(lines.contains("Location: \(location)") && lines.contains("x: y"))
        #expect(lines.contains("Content-Security-Policy: sandbox") && lines.contains("X-Content-Type-Options: nosniff"))
        #expect(
            !lines.contains {
                ["set-cookie", "nel", "report-to"].contains($0.prefix { $0 != ":" }) || $0.hasPrefix("access-control")
            })
    }

    // MARK: Responses

    private func response(
        _ status: Int, _ fields: String, length: Int?, to line: String = "GET http://b/ HTTP/1.1"
    ) throws -> (text: String, keepsAlive: Bool) {
        let head = ProxyResponse(pseudonym: "earshot-x").responseHead(
            status: status, fields: HeaderFields(lines: Array(fields.utf8)), length: length, source: .cache,
            to: try head(line))
        return (String(decoding: head.bytes, as: UTF8.self), head.keepsAlive)
    }

    @Test func `a response has its length, and no field of the other connection`() throws {
        let (text, keepsAlive) = try response(
            404,
            "date: now\nconnection: x-mine\nx-mine: 1\ntransfer-encoding: chunked\ncontent-length: 9\netag: \"a\"\nage: 3\n"
                + "keep-alive: 5\nproxy-authenticate: a", length: 5)
        #expect(
            text == "HTTP/1.1 404 Not Found\r\ndate: now\r\netag: \"a\"\r\nage: 3\r\nVia: 1.1 earshot-x\r\n"
                + "Earshot-Source: cache\r\nContent-Length: 5\r\n\r\n")
        #expect(keepsAlive)
    }

    @Test func `the end of a growing body is a chunk, or that of the connection`() throws {
        #expect(try response(200, "", length: nil).text.contains("\r\nTransfer-Encoding: chunked\r\n"))
        let (text, keepsAlive) = try response(200, "", length: nil, to: "GET http://b/ HTTP/1.0")
        #expect(text.hasSuffix("Connection: close\r\n\r\n") && !text.contains("chunked") && !keepsAlive)
    }

    @Test func `HEAD has the length of the GET, and 304 and 204 have none`() throws {
        let head = "HEAD http://b/ HTTP/1.1"
        #expect(try response(200, "content-length: 7", length: 0, to: head).text.contains("\r\nContent-Length: 7\r\n"))
        #expect(try !response(200, "", length: 0, to: head).text.contains("Content-Length"))
        for status in [204, 304] {
            #expect(try !response(status, "content-length: 0", length: 0).text.contains("Content-Length"))
        }
        #expect(try response(200, "", length: 0).text.contains("\r\nDate: "))
    }

    @Test func `failures of the bus have Proxy-Status, and those that pass Retry-After`() {
        var failure = Terminal.Failure(code: "origin-cooling", detail: "wait \"now\"\n")
        failure.retryAfterSeconds = 7
        let cooling = ProxyResponse.failureResponse(failure)
        #expect(cooling.status == 503)
        #expect(
            cooling.fields.map(\.value) == [
                "earshot; error=destination_unavailable; details=\"wait \\\"now\\\"\"", "7",
            ])
        for (code, status, retries) in [
            ("unknown-host", 502, false), ("timeout", 504, false), ("not-cached", 504, false),
            ("queue-full", 503, true),
            ("quota", 503, true), ("address-refused", 403, false), ("new-code", 502, false),
        ] {
            let response = ProxyResponse.failureResponse(Terminal.Failure(code: code))
            #expect(
                response.status == status && response.fields.contains { $0.name == "Retry-After" } == retries, "\(code)"
            )
        }
    }
}
