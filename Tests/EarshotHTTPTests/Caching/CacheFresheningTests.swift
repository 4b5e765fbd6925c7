import EarshotHTTP
import Testing

/// The effect of a 304, or of a response to HEAD, on a stored response.
@Suite struct CacheFresheningTests {
    private let rule = CacheRule()
    private let later = CacheWorld.now + 100

    private func by304(_ lines: String, _ stored: StoredResponse, _ request: String = "") throws -> Freshening {
        rule.freshening(
            of: stored, by304: CacheWorld.fields(lines), to: try CacheWorld.request(request), requestTime: later - 1,
            responseTime: later)
    }

    private func byHead(_ lines: String, _ stored: StoredResponse, status: Int = 200) throws -> Freshening {
        rule.freshening(
            of: stored, byHead: status, CacheWorld.fields(lines), to: try CacheWorld.request(method: .head),
            requestTime: later - 1, responseTime: later)
    }

    /// Returns `update`, `once`, `mismatch` or `unrelated`.
    private func name(_ freshening: Freshening) -> String {
        switch freshening {
        case .replaceStored: "update"
        case .useOnceThenRemove: "once"
        case .otherRepresentation: "mismatch"
        case .noEffect: "unrelated"
        }
    }

    private static let modified = "last-modified: Sat, 05 Nov 1994 08:49:37 GMT"
    private static let other = "last-modified: Fri, 04 Nov 1994 08:49:37 GMT"

    @Test(
        "RFC 9111 4.3.4: a 304 is about the kept answer if no validator says otherwise",
        arguments: [
            ("etag: \"a\"", "etag: \"a\"", "update"), ("etag: \"a\"", "etag: \"b\"", "mismatch"),
            ("etag: W/\"a\"", "etag: W/\"a\"", "update"), ("etag: W/\"a\"", "etag: W/\"b\"", "mismatch"),
            ("etag: W/\"a\"", "etag: \"a\"", "update"), ("etag: \"a\"", "", "update"),
            ("etag: \"a\"", "etag: a b", "mismatch"), ("etag: \"a\"", "etag: \"a\"\netag: \"b\"", "mismatch"),
            (modified, "etag: \"a\"", "mismatch"), (modified, "etag: \"a\"\n\(modified)", "mismatch"),
            (modified, "etag: W/\"a\"\n\(modified)", "update"), (modified, "etag: W/\"a\"\n\(other)", "mismatch"),
            (modified, "etag: W/\"a\"", "mismatch"), ("x: y", "etag: W/\"a\"", "mismatch"),
            (modified, modified, "update"), (modified, other, "mismatch"), (modified, "", "update"),
            ("etag: \"a\"\n\(modified)", "etag: \"a\"\n\(other)", "update"),
            ("etag: \"a\"\n\(modified)", other, "mismatch"),
        ])
    func validators(_ kept: String, _ newer: String, _ expected: String) throws {
        #expect(try name(by304(newer, CacheWorld.stored(kept))) == expected)
    }

    @Test func `RFC 9111 3.2: all fields are updated but those that the body depends upon`() throws {
        let kept = try CacheWorld.stored(
            """
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Age: 50
            ETag: W/"a"
            Content-Type: text/plain
            Content-Length: 10
            Content-Encoding: gzip
            Cache-Control: max-age=5
            Cache-Control: must-revalidate
            X-Kept: 1
            date: x
            """)
        let newer = """
            etag: "a"
            content-type: text/html
            content-length: 0
            content-encoding: br
            content-range: bytes */5
            cache-control: max-age=60
            connection: close, x-hop
            x-hop: 1
            transfer-encoding: chunked
            set-cookie: a=b
            set-cookie: c=d
            """
        let expected = """
            ETag: W/"a"
            Content-Length: 10
            Content-Encoding: gzip
            X-Kept: 1
            content-type: text/html
            cache-control: max-age=60
            set-cookie: a=b
            set-cookie: c=d
            """
        guard case .replaceStored(let updated) = try by304(newer, kept) else {
            Issue.record("not updated")
            return
        }
        #expect(String(decoding: updated.fields.bytes, as: UTF8.self) == expected)
        #expect(updated.age(now: later) == 1, "neither Date nor Age of the older answer count")
        #expect(updated.status == 200 && updated.responseTime == later)
        #expect(rule.isFresh(updated, now: later + 58) && !rule.isFresh(updated, now: later + 59))
    }

    @Test func `a 304 makes an invalidated answer good again`() throws {
        let kept = try CacheWorld.stored("etag: \"a\"\ncache-control: max-age=60", isInvalidated: true)
        guard case .replaceStored(let updated) = try by304("etag: \"a\"", kept) else {
            Issue.record("not updated")
            return
        }
        #expect(!updated.isInvalidated && rule.isFresh(updated, now: later))
    }

    @Test func `a 304 that forbids keeping lets the answer be used once more`() throws {
        let kept = try CacheWorld.stored("etag: \"a\"")
        #expect(try name(by304("cache-control: no-store", kept)) == "once")
        #expect(try name(by304("cache-control: no-store, must-understand", kept)) == "update")
        #expect(try name(by304("vary: *", kept)) == "once")
        #expect(try name(by304("etag: \"a\"", kept, "cache-control: no-store")) == "once")
        let long = "x-b: \(String(repeating: "b", count: HTTPLimits.headerBytes / 2))"
        let large = try CacheWorld.stored("x-a: \(String(repeating: "a", count: HTTPLimits.headerBytes / 2))")
        #expect(try name(by304(long, large)) == "once", "many validations do not make the fields grow without bound")
    }

    @Test func `a Vary that has changed is applied to the request that asked`() throws {
        let kept = try CacheWorld.stored("etag: \"a\"")
        guard case .replaceStored(let updated) = try by304("vary: accept", kept, "accept: a/b") else {
            Issue.record("not updated")
            return
        }
        #expect(rule.selectedVariantIndex(for: try CacheWorld.request("accept: a/b"), from: [updated]) == 0)
        #expect(rule.selectedVariantIndex(for: try CacheWorld.request("accept: c/d"), from: [updated]) == nil)
    }

    @Test(
        "RFC 9111 4.3.5: an answer to HEAD confirms or contradicts what GET brought",
        arguments: [
            Case("same tag", "etag: \"a\"", "update"),
            Case("same tag and length", "etag: \"a\"\ncontent-length: 10", "update"),
            Case("same date", modified, "update"),
            Case("another tag", "etag: \"b\"", "mismatch"),
            Case("another strength", "etag: W/\"a\"", "mismatch"),
            Case("another date", "etag: \"a\"\n\(other)", "mismatch"),
            Case("another length", "etag: \"a\"\ncontent-length: 11", "mismatch"),
            Case("another length and no validator", "content-length: 11", "mismatch"),
            Case("same length and no validator", "content-length: 10", "unrelated"),
            Case("nothing", "", "unrelated"),
        ])
    func head(_ row: Case<String>) throws {
        let kept = try CacheWorld.stored("etag: \"a\"\ncontent-length: 10\n\(Self.modified)")
        #expect(try name(byHead(row.input, kept)) == row.expected)
    }

    @Test func `RFC 9111 4.3.5: without any validator an answer to HEAD updates what has none either`() throws {
        let kept = try CacheWorld.stored("cache-control: max-age=5\ncontent-length: 10\nx-kept: 1")
        guard case .replaceStored(let updated) = try byHead("cache-control: max-age=60\nx-new: 2", kept) else {
            Issue.record("not updated")
            return
        }
        #expect(updated.fields.firstValue(named: "x-kept") == "1" && updated.fields.firstValue(named: "x-new") == "2")
        #expect(rule.isFresh(updated, now: later + 50))
        #expect(try name(byHead("content-length: 10", kept)) == "update")
        #expect(try name(byHead("content-length: 11", kept)) == "mismatch")
        #expect(try name(byHead("etag: \"a\"", kept)) == "mismatch")
    }

    @Test func `a 304 with a tag without quotation marks is about what was kept with it`() throws {
        let kept = try CacheWorld.stored("etag: a")
        #expect(try name(by304("etag: a", kept)) == "update")
        #expect(try name(by304("etag: \"a\"", kept)) == "update")
        #expect(try name(by304("etag: b", kept)) == "mismatch")
    }

    @Test func `an answer to HEAD with another status is another matter`() throws {
        let kept = try CacheWorld.stored("etag: \"a\"")
        #expect(try name(byHead("etag: \"b\"", kept, status: 404)) == "unrelated")
        #expect(try name(byHead("etag: \"b\"", kept, status: 304)) == "unrelated")
        let moved = try CacheWorld.stored("etag: \"a\"", status: 301)
        #expect(try name(byHead("etag: \"a\"", moved)) == "mismatch")
        #expect(try name(byHead("etag: \"a\"\ncache-control: no-store", kept)) == "once")
    }

    @Test(
        "RFC 9111 4.4: what may have been changed is invalidated",
        arguments: [
            Case("no more than the URL", "", "/x"),
            Case("Location", "location: /y?z#f", "/x /y?z"),
            Case("Content-Location", "content-location: y", "/x /y"),
            Case("both", "location: /y\ncontent-location: z", "/x /y /z"),
            Case("both the same", "location: /y\ncontent-location: http://A.example:80/y", "/x /y"),
            Case("the URL itself", "location: x", "/x"),
            Case("user information", "location: http://u:p@a.example/y", "/x /y"),
            Case("another host", "location: http://b.example/y", "/x"),
            Case("another scheme", "location: https://a.example/y", "/x"),
            Case("another port", "location: //a.example:81/y", "/x"),
            Case("malformed", "location: http://[", "/x"),
            Case("two that differ", "location: /y\nlocation: /z", "/x"),
        ])
    func invalidation(_ row: Case<String>) throws {
        let request = try CacheWorld.request(method: .post, url: "http://u:p@a.example/x")
        let urls = rule.invalidatedURLs(status: 201, response: CacheWorld.fields(row.input), to: request)
        #expect(
            urls.map { String($0.description.dropFirst("http://a.example".count)) }.joined(separator: " ")
                == row.expected)
    }

    @Test func `neither an error nor a safe method invalidates`() throws {
        let location = CacheWorld.fields("location: /y")
        for (method, status, count) in [
            ("POST", 200, 2), ("PUT", 204, 2), ("DELETE", 303, 2), ("PURGE", 200, 2), ("get", 200, 2), ("GET", 200, 0),
            ("HEAD", 200, 0), ("OPTIONS", 200, 0), ("TRACE", 200, 0), ("POST", 400, 0), ("POST", 500, 0),
            ("POST", 100, 0), ("POST", .min, 0),
        ] {
            let request = try CacheWorld.request(method: try #require(HTTPMethod(method)))
            #expect(rule.invalidatedURLs(status: status, response: location, to: request).count == count, "\(method)")
        }
    }
}
