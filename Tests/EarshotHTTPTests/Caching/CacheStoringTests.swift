import EarshotHTTP
import EarshotWire
import Testing

/// Responses that a private cache stores, and those that it does not.
@Suite struct CacheStoringTests {
    private let world = CacheWorld()

    /// Returns the reason of a refusal; nil if the response is stored.
    private func reason(_ decision: StoreDecision) -> StoreDecision.Reason? {
        if case .refuse(let reason) = decision { return reason }
        return nil
    }

    @Test(
        "an answer is kept if both sides let it",
        arguments: [
            Case("RFC 9111 3, nothing said", "", nil as StoreDecision.Reason?),
            Case("RFC 9111 3, private cache", "cache-control: private, max-age=5", nil),
            Case("RFC 9111 5.2.2.5", "cache-control: no-store", .noStore),
            Case("RFC 9111 5.2.2.5, beside max-age", "cache-control: max-age=5\ncache-control: No-Store", .noStore),
            Case("RFC 9111 5.2.2.3", "cache-control: must-understand, no-store", nil),
            Case("RFC 9111 5.2.2.4, kept to be validated", "cache-control: no-cache", nil),
            Case("RFC 9111 4.1", "vary: *", .varyWildcard),
            Case("RFC 9111 4.1, among names", "vary: accept, *", .varyWildcard),
            Case("RFC 9110 12.5.5, no name", "vary: a b", .varyWildcard),
            Case("RFC 9110 12.5.5, names", "vary: accept,, Accept-Language", nil),
            Case("RFC 9111 7.3, cookies of a private cache", "set-cookie: a=b\nmax-age: 5", nil),
            Case("own limit of bytes", "x: \(String(repeating: "a", count: HTTPLimits.headerBytes))", .fieldsTooLarge),
            Case("own limit of names", "vary: \((0...50).map { "x\($0)" }.joined(separator: ","))", .varyWildcard),
        ])
    func response(_ row: Case<StoreDecision.Reason?>) throws {
        #expect(reason(world.storing(row.input, to: try CacheWorld.request())) == row.expected)
    }

    @Test(
        "the request has a say",
        arguments: [
            Case("RFC 9111 3.5, private cache", "authorization: Basic eA==", nil as StoreDecision.Reason?),
            Case("RFC 9111 5.2.1.5", "cache-control: no-store", .noStore),
            Case("RFC 9111 5.2.1.4", "cache-control: no-cache", nil),
            Case("own part", "range: bytes=0-4", .bypassesCache),
            Case("own condition", "If-None-Match: \"a\"", .bypassesCache),
            Case("own coding", "accept-encoding: br", .bypassesCache),
        ])
    func request(_ row: Case<StoreDecision.Reason?>) throws {
        let request = try CacheWorld.request(row.input)
        #expect(reason(world.storing("cache-control: max-age=5", to: request)) == row.expected)
    }

    @Test func `a request says no by its mode or its method`() throws {
        let request = try CacheWorld.request()
        for mode in CacheMode.allCases {
            let expected: StoreDecision.Reason? = mode == .noStore ? .bypassesCache : nil
            #expect(reason(world.storing("", to: request, mode: mode)) == expected)
        }
        #expect(reason(world.storing("", to: try CacheWorld.request(method: .head))) == .methodNotGET)
        #expect(
            reason(world.storing("cache-control: public", to: try CacheWorld.request(method: .post))) == .methodNotGET)
    }

    @Test(
        "a status is kept by default, where the server allows it, for as long as it says, or never",
        arguments: [
            (200, "cpf"), (203, "cpf"), (204, "cpf"), (300, "cpf"), (301, "cpf"), (308, "cpf"), (302, "pf"),
            (303, "pf"), (307, "pf"), (404, "f"), (405, "f"), (410, "cpf"), (414, "f"), (451, "f"), (501, "f"),
            (201, "f"), (226, "f"), (299, "f"), (399, "f"), (400, "f"), (401, "f"), (403, "f"), (416, "f"),
            (421, "f"), (499, "f"), (500, "f"), (502, "f"), (503, "f"), (504, "f"), (599, "f"), (100, ""), (206, ""),
            (304, ""), (407, ""), (428, ""), (429, ""), (431, ""), (511, ""), (600, ""), (0, ""), (-1, ""),
        ])
    func status(_ status: Int, _ stored: String) throws {
        let request = try CacheWorld.request()
        let bare = reason(world.storing(CacheWorld.date, status: status, to: request)) == nil
        let allowed = reason(world.storing("cache-control: public", status: status, to: request)) == nil
        let fresh = reason(world.storing("cache-control: max-age=5", status: status, to: request)) == nil
        #expect((bare ? "c" : "") + (allowed ? "p" : "") + (fresh ? "f" : "") == stored)
    }

    @Test func `RFC 9111 5.2.2.3: must-understand keeps a status only if its meaning is known`() throws {
        let request = try CacheWorld.request()
        for control in ["must-understand, max-age=5", "must-understand, no-store, max-age=5"] {
            for (status, expected) in [(200, nil), (404, nil), (299, .unstorableStatus), (500, .unstorableStatus)]
                as [(Int, StoreDecision.Reason?)]
            {
                let decision = world.storing("cache-control: \(control)", status: status, to: request)
                #expect(reason(decision) == expected, "\(status) \(control)")
            }
        }
    }

    @Test func `an error that is stale when it comes is not kept`() throws {
        let request = try CacheWorld.request()
        for lines in ["cache-control: max-age=0", "expires: 0", "cache-control: max-age=5\nage: 5", "expires: x"] {
            #expect(
                reason(world.storing("\(CacheWorld.date)\n\(lines)", status: 404, to: request)) == .noExplicitPermission
            )
        }
        let expires = "\(CacheWorld.date)\nexpires: Sun, 06 Nov 1994 08:49:38 GMT"
        #expect(reason(world.storing(expires, status: 404, to: request)) == nil)
    }

    @Test func `fields of the connection and of a proxy are not kept`() throws {
        let lines = """
            Connection: close, X-Hop, Cache-Control
            X-Hop: 1
            Cache-Control: no-cache
            no field
            Transfer-Encoding: chunked
            Keep-Alive: 5
            Proxy-Authenticate: Basic
            Upgrade: h2c
            Set-Cookie: a=b
            ETag: "x"
            """
        guard case .store(let stored) = world.storing(lines, to: try CacheWorld.request()) else {
            Issue.record("not stored")
            return
        }
        #expect(stored.fields == CacheWorld.fields("Cache-Control: no-cache\nSet-Cookie: a=b\nETag: \"x\""))
        #expect(!world.rule.isFresh(stored, now: CacheWorld.now))
    }

    @Test func `the key is the URL without user information, and the scope`() throws {
        let plain = CacheKey(try CacheWorld.request())
        #expect(plain == CacheKey(try CacheWorld.request("accept: a/b", method: .head)))
        #expect(plain == CacheKey(try CacheWorld.request(url: "HTTP://A.example:80/x#f")))
        #expect(plain != CacheKey(try CacheWorld.request(url: "http://a.example/x?")))
        #expect(plain != CacheKey(try CacheWorld.request("cookie: a=b")))
        let user = CacheKey(try CacheWorld.request(url: "http://u:p@a.example/x"))
        #expect(user != plain && user.url == plain.url)
        let other = CacheKey(try CacheWorld.request(url: "http://u:q@a.example/x"))
        #expect(user != other)
        var coded = try CacheWorld.request()
        coded.route.decodesBody = false
        #expect(CacheKey(coded) != plain && CacheKey(coded).trustScope == plain.trustScope)
        #expect(CacheKey(coded, partition: "p") != CacheKey(coded))
    }
}
