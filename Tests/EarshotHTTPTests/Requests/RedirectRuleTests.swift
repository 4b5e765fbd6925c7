import EarshotHTTP
import EarshotWire
import Testing

/// Redirects: targets, methods, fields and loops.
@Suite struct RedirectRuleTests {
    private let start = "https://u:p@a.example/x?q"

    private func request(
        _ url: String, method: HTTPMethod = .get, _ lines: String = ""
    ) throws -> HTTPRequest {
        HTTPRequest(method: method, url: try FetchURL(url), fields: HeaderFields(lines: Array(lines.utf8)))
    }

    private func outcome(
        _ status: Int, to location: String?, from request: HTTPRequest, rule: RedirectRule = RedirectRule(),
        hops: Int = 0, ancestors: [HTTPRequest] = []
    ) -> RedirectOutcome {
        let line = location.map { "Location: \($0)" } ?? "server: x"
        return rule.outcome(
            status: status, response: HeaderFields(lines: Array(line.utf8)), request: request, hops: hops,
            ancestors: ancestors)
    }

    @Test(
        "the method of the next request is the one the Fetch standard says",
        arguments: [
            (301, "GET", "GET"), (301, "HEAD", "HEAD"), (301, "POST", "GET"), (301, "PUT", "PUT"),
            (302, "GET", "GET"), (302, "HEAD", "HEAD"), (302, "POST", "GET"), (302, "PUT", "PUT"),
            (303, "GET", "GET"), (303, "HEAD", "HEAD"), (303, "POST", "GET"), (303, "PUT", "GET"),
            (307, "GET", "GET"), (307, "HEAD", "HEAD"), (307, "POST", "POST"), (307, "PUT", "PUT"),
            (308, "GET", "GET"), (308, "HEAD", "HEAD"), (308, "POST", "POST"), (308, "PUT", "PUT"),
        ])
    func method(_ status: Int, _ method: String, _ next: String) throws {
        let lines = "content-type: a/b\naccept: x\nContent-Language: de"
        let from = try request("http://a/", method: try #require(HTTPMethod(method)), lines)
        let kept = method == next ? lines : "accept: x"
        let expected = try request("http://a/b", method: try #require(HTTPMethod(next)), kept)
        #expect(outcome(status, to: "/b", from: from) == .follow(expected))
    }

    @Test("another status is not a redirect", arguments: [0, 200, 206, 300, 304, 305, 306, 309, 400, 503, -1, Int.max])
    func isNoRedirect(_ status: Int) throws {
        #expect(outcome(status, to: "/b", from: try request("http://a/")) == .notARedirect)
    }

    @Test func `a redirect without Location is an answer`() throws {
        #expect(outcome(302, to: nil, from: try request("http://a/")) == .notARedirect)
    }

    @Test func `the mode decides`() throws {
        let from = try request("http://a/")
        #expect(outcome(302, to: "/b", from: from, rule: RedirectRule(mode: .manual)) == .notARedirect)
        #expect(outcome(302, to: "/b", from: from, rule: RedirectRule(mode: .error)) == .refused(.redirectRefused))
        #expect(outcome(200, to: "/b", from: from, rule: RedirectRule(mode: .error)) == .notARedirect)
    }

    @Test(
        "a Location that leads nowhere is refused",
        arguments: [
            Case("RFC 3986 3, file", "file:///etc/passwd", FailureCode.redirectRefused),
            Case("RFC 3986 3, opaque", "javascript:alert(1)", .redirectRefused),
            Case("RFC 3986 3, custom scheme", "thumb:x", .redirectRefused),
        ])
    func isRefused(_ row: Case<FailureCode>) throws {
        #expect(outcome(302, to: row.input, from: try request("https://a/")) == .refused(row.expected))
    }

    @Test(
        "a malformed Location is refused with its fault",
        arguments: [
            Case("RFC 9110 4.2.1, no host", "https://", FetchURL.ParseError.missingHost),
            Case("URL standard 3.5, bad address", "http://1.2.3.256/", .invalidAddress),
            Case("URL standard 4.4, backslash", "/\\evil", .backslash),
            Case("RFC 9110 4.1, too long", "/" + String(repeating: "a", count: 9000), .tooLong),
        ])
    func isMalformed(_ row: Case<FetchURL.ParseError>) throws {
        #expect(outcome(302, to: row.input, from: try request("https://a/")) == .invalidTarget(row.expected))
    }

    @Test(
        "a Location in an odd form leads where RFC 3986 says, or nowhere",
        arguments: [
            Case("RFC 3986 5.4, query alone", "?x", "http://a.example/d/e?x"),
            Case("RFC 3986 5.4, this folder", ".", "http://a.example/d/"),
            Case("RFC 3986 5.4, the one above", "..", "http://a.example/"),
            Case("RFC 3986 5.4.2, above the top", "../../../g", "http://a.example/g"),
            Case("RFC 3986 5.4.2, dots at the end", "g/..", "http://a.example/d/"),
            Case("RFC 3986 5.4.2, dots in a query", "g?y/../z", "http://a.example/d/g?y/../z"),
            Case("RFC 3986 5.4, parameters", "g;p=1", "http://a.example/d/g;p=1"),
            Case("RFC 3986 5.4, host alone", "//b.example", "http://b.example/"),
            Case("RFC 9110 10.2.2, fragment", "/g#there", "http://a.example/g"),
            Case("RFC 3986 6.2.2, upper case and port", "HTTP://B.EXAMPLE:80/%7ex", "http://b.example/%7ex"),
            Case("RFC 3986 3.2.3, empty port", "http://b.example:/", "http://b.example/"),
            Case("RFC 9110 5.5, blanks around", " \t/g \t", "http://a.example/g"),
            Case("URL standard 4.4, space inside", "/a b", "http://a.example/a%20b"),
            Case("URL standard 4.4, UTF-8", "/\u{fc}", "http://a.example/%C3%BC"),
            Case("URL standard 1.3, escaped slash", "/a%2f..%2fb", "http://a.example/a%2f..%2fb"),
            Case("RFC 3986 5.2.4, escaped dots are a name", "/x/%2e%2e/g", "http://a.example/x/%2e%2e/g"),
            Case("URL standard 3.5, number", "http://2130706433/", "http://127.0.0.1/"),
            Case("RFC 3986 3.2.2, IPv6", "http://[0:0::1]:8080/x", "http://[::1]:8080/x"),
            Case("RFC 3986 5.2, colon in a segment", "./g:h", "http://a.example/d/g:h"),
            Case("RFC 3986 3.3, empty segments", "/a//b", "http://a.example/a//b"),
            Case("RFC 3986 3.2.3, port too large", "http://b.example:99999/", nil),
            Case("RFC 3986 3.2, three slashes", "http:///b.example/", nil),
            Case("URL standard 4.4, scheme without slashes", "http:g", "http://a.example/d/g"),
        ])
    func isResolved(_ row: Case<String?>) throws {
        let result = outcome(302, to: row.input, from: try request("http://a.example/d/e?q"))
        guard let expected = row.expected else {
            if case .invalidTarget = result {} else { Issue.record("\(result)") }
            return
        }
        #expect(result == .follow(try request(expected)))
    }

    @Test func `several Locations must agree`() throws {
        let from = try request("http://a/")
        let same = HeaderFields(lines: Array("location: /b\nLocation: /b".utf8))
        let other = HeaderFields(lines: Array("location: /b\nLocation: /c".utf8))
        let rule = RedirectRule()
        #expect(
            rule.outcome(status: 302, response: same, request: from, hops: 0, ancestors: [])
                == .follow(try request("http://a/b")))
        #expect(
            rule.outcome(status: 302, response: other, request: from, hops: 0, ancestors: [])
                == .refused(.redirectRefused))
    }

    @Test func `a Location that is not UTF-8 keeps its bytes`() throws {
        let response = HeaderFields(lines: Array("location: /caf".utf8) + [0xe9])
        let outcome = RedirectRule().outcome(
            status: 302, response: response, request: try request("http://a/"), hops: 0, ancestors: [])
        #expect(outcome == .follow(try request("http://a/caf%E9")))
    }

    @Test(
        "credentials stay at their origin",
        arguments: [
            Case("RFC 6454 5, same origin, relative", "/y", "https://u:p@a.example/y"),
            Case("RFC 6454 5, same origin, absolute", "https://A.example:443/y", "https://u:p@a.example/y"),
            Case("RFC 6454 5, other user information", "https://v:w@a.example/y", "https://u:p@a.example/y"),
        ])
    func areKept(_ row: Case<String>) throws {
        let lines = "authorization: s\ncookie: c\naccept: x"
        let from = try request(start, lines)
        #expect(outcome(302, to: row.input, from: from) == .follow(try request(row.expected, lines)))
    }

    @Test(
        "credentials do not go to another origin",
        arguments: [
            Case("RFC 6454 5, host", "https://b.example/y", "https://b.example/y"),
            Case("RFC 6454 5, host without scheme", "//b.example/y", "https://b.example/y"),
            Case("RFC 6454 5, subdomain", "https://s.a.example/y", "https://s.a.example/y"),
            Case("RFC 6454 5, port", "https://a.example:444/y", "https://a.example:444/y"),
            Case("RFC 6454 5, dot at the end", "https://a.example./y", "https://a.example./y"),
            Case("RFC 6454 5, https to http", "http://a.example/y", "http://a.example/y"),
            Case("Fetch 4.4, user information in Location", "https://v:w@b.example/y", "https://b.example/y"),
        ])
    func areStripped(_ row: Case<String>) throws {
        let lines = "Authorization: s\naccept: x\nCookie: c\nProxy-Authorization: p\nHost: a.example\nX-Key: k"
        let from = try request(start, lines)
        let rule = RedirectRule(credentialRule: CredentialRule(additionalNames: ["x-key"]))
        let expected = try request(row.expected, "accept: x")
        #expect(outcome(302, to: row.input, from: from, rule: rule) == .follow(expected))
    }

    @Test func `a loop is seen whoever closes it`() throws {
        let first = try request("http://a/1")
        let second = try request("http://a/2")
        #expect(outcome(302, to: "", from: first) == .refused(.redirectLoop))
        #expect(outcome(302, to: "/1#again", from: first) == .refused(.redirectLoop))
        #expect(outcome(302, to: "/1", from: second, hops: 1, ancestors: [first]) == .refused(.redirectLoop))
        #expect(
            outcome(302, to: "/3", from: second, hops: 1, ancestors: [first]) == .follow(try request("http://a/3")))
    }

    @Test func `another cookie at the same URL is no loop, the same one is`() throws {
        func requested(_ url: String, cookie: String?) throws -> HTTPRequest {
            var request = try request(url, cookie.map { "cookie: \($0)" } ?? "")
            request.cookieJarOwner = "shop"
            return request
        }
        func outcome(_ from: HTTPRequest, to location: String, sets cookie: String?, after: [HTTPRequest] = [])
            -> RedirectOutcome
        {
            RedirectRule().outcome(
                status: 302, response: HeaderFields(lines: Array("location: \(location)".utf8)), request: from, hops: 0,
                ancestors: after
            ) { next in
                guard let seen = try? requested(next.url.description, cookie: cookie) else { return next }
                return seen
            }
        }
        let first = try requested("http://a/1", cookie: nil)
        let seen = try requested("http://a/1", cookie: "seen=1")
        #expect(outcome(first, to: "/1", sets: "seen=1") == .follow(seen))
        #expect(outcome(first, to: "/1", sets: nil) == .refused(.redirectLoop))
        #expect(outcome(seen, to: "/1", sets: "seen=1", after: [first]) == .refused(.redirectLoop))
        let second = try requested("http://a/2", cookie: "seen=1")
        #expect(outcome(second, to: "/1", sets: "seen=1", after: [first]) == .follow(seen))
        #expect(outcome(second, to: "/1", sets: "seen=1", after: [first, seen]) == .refused(.redirectLoop))
    }

    @Test func `credentials lost on the way do not hide a loop`() throws {
        let first = try request("http://a/1", "cookie: c")
        let second = try request("http://b/2")
        #expect(outcome(302, to: "http://a/1", from: second, hops: 1, ancestors: [first]) == .refused(.redirectLoop))
    }

    @Test func `an answer to POST at the same URL is no loop`() throws {
        let from = try request("http://a/1", method: .post)
        #expect(outcome(303, to: "/1", from: from) == .follow(try request("http://a/1")))
        #expect(outcome(307, to: "/1", from: from) == .refused(.redirectLoop))
    }

    @Test func `the tenth redirect is followed, the eleventh is not`() throws {
        let from = try request("http://a/1")
        #expect(outcome(302, to: "/2", from: from, hops: 9) == .follow(try request("http://a/2")))
        #expect(outcome(302, to: "/2", from: from, hops: 10) == .refused(.tooManyRedirects))
        #expect(outcome(302, to: "/1", from: from, hops: 10) == .refused(.redirectLoop))
        #expect(outcome(200, to: "/2", from: from, hops: 10) == .notARedirect)
    }
}
