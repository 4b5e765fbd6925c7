import EarshotHTTP
import EarshotWire
import Testing

/// Decisions whether a stored response answers a request.
@Suite struct CacheReuseTests {
    private let rule = CacheRule()

    /// Returns the decision for a response with these fields after some seconds: `use`, `behind`, `validate`, `fetch`
    /// or `none`.
    private func decision(
        _ response: String, _ request: String = "", mode: CacheMode = .default, after seconds: Int64,
        isInvalidated: Bool = false
    ) throws -> String {
        let stored = try CacheWorld.stored("\(response)\netag: \"a\"", isInvalidated: isInvalidated)
        let decision = rule.decision(
            for: try CacheWorld.request(request), mode: mode, stored: [stored], now: CacheWorld.now + seconds)
        switch decision {
        case .useVariant: return "use"
        case .useAndRevalidate: return "behind"
        case .validate: return "validate"
        case .fetch: return "fetch"
        case .notCached: return "none"
        }
    }

    @Test(
        "the modes of the Fetch standard",
        arguments: [
            (CacheMode.default, "use", "validate", "fetch"), (.noStore, "fetch", "fetch", "fetch"),
            (.reload, "fetch", "fetch", "fetch"), (.noCache, "validate", "validate", "fetch"),
            (.forceCache, "use", "use", "fetch"), (.onlyIfCached, "use", "use", "none"),
            (.explicit, "use", "validate", "fetch"),
        ])
    func modes(_ mode: CacheMode, _ fresh: String, _ stale: String, _ absent: String) throws {
        #expect(try decision("cache-control: max-age=60", mode: mode, after: 59) == fresh)
        #expect(try decision("cache-control: max-age=60", mode: mode, after: 60) == stale)
        let strict = "cache-control: max-age=60, must-revalidate, no-cache"
        #expect(try decision(strict, mode: mode, after: 60) == stale)
        let none = rule.decision(for: try CacheWorld.request(), mode: mode, stored: [], now: CacheWorld.now)
        if absent == "none" {
            #expect(none == .notCached)
        } else if case .fetch = none {
        } else {
            Issue.record("\(mode): \(none)")
        }
    }

    @Test func `mode explicit takes no estimated freshness`() throws {
        let estimated = "last-modified: Thu, 27 Oct 1994 08:49:37 GMT"
        #expect(try decision(estimated, after: 60) == "use")
        #expect(try decision(estimated, mode: .explicit, after: 0) == "validate")
        #expect(try decision(estimated, mode: .forceCache, after: 60) == "use")
        let stated = "\(estimated)\nexpires: Sun, 06 Nov 1994 08:50:37 GMT"
        #expect(try decision(stated, mode: .explicit, after: 59) == "use")
        #expect(
            try decision("\(estimated)\ncache-control: stale-while-revalidate=60", mode: .explicit, after: 60)
                == "behind")
    }

    @Test(
        "the request's own Cache-Control, of an answer that is fresh for 60 seconds",
        arguments: [
            Case("RFC 9111 5.2.1.1, young enough", "max-age=30", "30 use"),
            Case("RFC 9111 5.2.1.1, too old", "max-age=30", "31 validate"),
            Case("RFC 9111 5.2.1.1, none is young enough", "max-age=0", "1 validate"),
            Case("RFC 9111 5.2.1.1, broken", "max-age=x", "1 validate"),
            Case("RFC 9111 5.2.1.3, fresh enough", "min-fresh=20", "40 use"),
            Case("RFC 9111 5.2.1.3, not for long", "min-fresh=20", "41 validate"),
            Case("RFC 9111 5.2.1.3, broken", "min-fresh=x", "0 validate"),
            Case("RFC 9111 5.2.1.2, stale enough", "max-stale=10", "70 use"),
            Case("RFC 9111 5.2.1.2, too stale", "max-stale=10", "71 validate"),
            Case("RFC 9111 5.2.1.2, any", "max-stale", "99999 use"),
            Case("RFC 9111 5.2.1.2, broken", "max-stale=x", "61 validate"),
            Case("both: the stricter counts", "max-stale=10, max-age=65", "66 validate"),
            Case("both: as old as it may be", "max-stale=10, max-age=65", "65 use"),
            Case("both: the stricter counts", "max-stale, min-fresh=0", "61 validate"),
            Case("RFC 9111 5.2.1.4", "no-cache", "1 validate"),
            Case("RFC 9111 5.2.1.4, before max-stale", "no-cache, max-stale", "1 validate"),
            Case("RFC 9111 5.2.1.5, what is kept may be used", "no-store", "1 use"),
            Case("RFC 9111 5.2.1.7, fresh", "only-if-cached", "1 use"),
            Case("RFC 9111 5.2.1.7, stale", "only-if-cached", "61 none"),
            Case("RFC 9111 5.2.1.7, stale and accepted", "only-if-cached, max-stale", "61 use"),
        ])
    func request(_ row: Case<String>) throws {
        let seconds = try #require(Int64(row.expected.prefix { $0 != " " }))
        let found = try decision("cache-control: max-age=60", "cache-control: \(row.input)", after: seconds)
        #expect("\(seconds) \(found)" == row.expected)
    }

    @Test(
        "the response's own Cache-Control",
        arguments: [
            Case("RFC 9111 5.2.2.4", "max-age=60, no-cache", "1 validate"),
            Case("RFC 5861 3.1, fresh", "max-age=600, stale-while-revalidate=30", "599 use"),
            Case("RFC 5861 3.1, in the window", "max-age=600, stale-while-revalidate=30", "600 behind"),
            Case("RFC 5861 3.1, its end", "max-age=600, stale-while-revalidate=30", "630 behind"),
            Case("RFC 5861 3.1, behind it", "max-age=600, stale-while-revalidate=30", "631 validate"),
            Case("RFC 9111 5.2.2.2, fresh", "max-age=600, must-revalidate", "599 use"),
            Case("RFC 9111 5.2.2.2", "max-age=600, stale-while-revalidate=30, must-revalidate", "601 validate"),
            Case("RFC 9111 5.2.2.10, for shared caches", "max-age=600, s-maxage=0, proxy-revalidate", "599 use"),
        ])
    func response(_ row: Case<String>) throws {
        let seconds = try #require(Int64(row.expected.prefix { $0 != " " }))
        let found = try decision("cache-control: \(row.input)", after: seconds)
        #expect("\(seconds) \(found)" == row.expected)
    }

    @Test func `must-revalidate is stronger than what the client accepts`() throws {
        let control = "cache-control: max-age=60, must-revalidate"
        #expect(try decision(control, "cache-control: max-stale", after: 61) == "validate")
    }

    @Test func `what may be used while it is validated is validated for who wants it validated`() throws {
        let control = "cache-control: max-age=60, stale-while-revalidate=30"
        #expect(try decision(control, mode: .noCache, after: 61) == "validate")
        #expect(try decision(control, "pragma: no-cache", after: 61) == "validate")
        #expect(try decision(control, "cache-control: max-age=60", after: 61) == "validate")
        #expect(try decision(control, "cache-control: only-if-cached", after: 61) == "use")
    }

    @Test func `RFC 8246 2: what is immutable is validated when it is stale, or by force`() throws {
        let control = "cache-control: max-age=60, immutable"
        #expect(try decision(control, mode: .noCache, after: 59) == "use")
        #expect(try decision(control, "cache-control: max-age=0", after: 59) == "use")
        #expect(try decision(control, "cache-control: no-cache", after: 59) == "validate")
        #expect(try decision(control, mode: .noCache, after: 60) == "validate")
        #expect(try decision(control, mode: .reload, after: 59) == "fetch")
    }

    @Test func `what was invalidated is validated whatever anybody says`() throws {
        for control in ["max-age=60", "max-age=60, immutable", "max-age=60, stale-while-revalidate=60"] {
            for mode in [CacheMode.default, .noCache, .forceCache] {
                let found = try decision("cache-control: \(control)", mode: mode, after: 1, isInvalidated: true)
                #expect(found == "validate")
            }
        }
        #expect(try decision("x: y", mode: .onlyIfCached, after: 1, isInvalidated: true) == "none")
        #expect(try decision("x: y", "cache-control: max-stale", after: 1, isInvalidated: true) == "validate")
    }

    @Test func `a request that chooses its answer goes past the cache`() throws {
        for lines in ["range: bytes=0-,-1", "if-none-match: \"b\"", "Accept-Encoding: identity"] {
            #expect(try decision("cache-control: max-age=60", lines, after: 1) == "fetch")
            #expect(try decision("cache-control: max-age=60", lines, mode: .onlyIfCached, after: 1) == "none")
        }
    }

    @Test(arguments: [
        ("etag: \"a\"", "x: y", true), ("etag: \"a\"", "if-range: \"a\"", true),
        ("etag: \"a\"", "if-range: \"b\"", false), ("etag: \"a\"", "if-range: \"a\"\nif-range: \"b\"", false),
        ("etag: W/\"a\"", "x: y", true), ("etag: W/\"a\"", "if-range: W/\"a\"", false),
        ("x: y", "if-range: \"a\"", false), ("content-encoding: gzip", "x: y", false),
    ])
    func `a stored body answers a range unless If-Range names another validator`(
        stored: String, condition: String, isUsed: Bool
    ) throws {
        let decision = rule.decision(
            for: try CacheWorld.request("range: bytes=0-1\n\(condition)"), mode: .default,
            stored: [try CacheWorld.stored("cache-control: max-age=60\n\(stored)")], now: CacheWorld.now)
        if case .useVariant(0, range: .some) = decision { #expect(isUsed) } else { #expect(!isUsed, "\(decision)") }
    }

    @Test func `a server is asked by all that is known of the answer`() throws {
        let request = try CacheWorld.request()
        func requested(_ lines: String, _ mode: CacheMode = .default) throws -> CacheDecision {
            rule.decision(for: request, mode: mode, stored: [try CacheWorld.stored(lines)], now: CacheWorld.now)
        }
        let modified = "last-modified: Sunday, 06-Nov-94 08:49:37 GMT"
        let since = "if-modified-since: Sunday, 06-Nov-94 08:49:37 GMT"
        #expect(
            try requested("etag: W/\"a\"\n\(modified)\nexpires: 0")
                == .validate(0, adding: CacheWorld.fields("if-none-match: W/\"a\"\n\(since)")))
        #expect(
            try requested("etag: a\n\(modified)\nexpires: 0")
                == .validate(0, adding: CacheWorld.fields("if-none-match: \"a\"\n\(since)")),
            "a tag without marks")
        #expect(try requested("etag: a b\n\(modified)\nexpires: 0") == .validate(0, adding: CacheWorld.fields(since)))
        #expect(
            try requested("etag: \"a\"", .noCache)
                == .validate(0, adding: CacheWorld.fields("if-none-match: \"a\"\ncache-control: max-age=0")))
        #expect(try requested("expires: 0") == .fetch(adding: HeaderFields(), stale: 0))
        #expect(
            try requested("expires: 0", .noCache)
                == .fetch(adding: CacheWorld.fields("cache-control: max-age=0"), stale: 0)
        )
        let reload = CacheWorld.fields("pragma: no-cache\ncache-control: no-cache")
        #expect(try requested("etag: \"a\"", .reload) == .fetch(adding: reload))
    }

    @Test func `what the client tells caches is not told otherwise`() throws {
        let request = try CacheWorld.request("cache-control: max-age=5\npragma: x")
        let decision = rule.decision(for: request, mode: .reload, stored: [], now: CacheWorld.now)
        #expect(decision == .fetch(adding: HeaderFields()))
    }

    @Test func `HEAD is answered by what GET brought, POST is not`() throws {
        let stored = [try CacheWorld.stored("cache-control: max-age=60")]
        let head = try CacheWorld.request(method: .head)
        #expect(rule.decision(for: head, mode: .default, stored: stored, now: CacheWorld.now) == .useVariant(0))
        let post = try CacheWorld.request(method: .post)
        let decision = rule.decision(for: post, mode: .forceCache, stored: stored, now: CacheWorld.now)
        #expect(decision == .fetch(adding: HeaderFields()))
    }

    @Test func `the variant is the one for the request, with Vary before without, new before old`() throws {
        let early = "date: Sun, 06 Nov 1994 08:00:00 GMT"
        let stored = [
            try CacheWorld.stored("vary: accept\n\(early)", for: "accept: a/b"),
            try CacheWorld.stored("x: no vary, newest"),
            try CacheWorld.stored("vary: accept", for: "accept: c/d"),
            try CacheWorld.stored("vary: accept", for: "accept: a/b"),
            try CacheWorld.stored("vary: accept\n\(early)", for: "accept: a/b"),
        ]
        func selection(_ lines: String) throws -> Int? {
            rule.selectedVariantIndex(for: try CacheWorld.request(lines), from: stored)
        }
        #expect(try selection("accept: a/b") == 3)
        #expect(try selection("accept: c/d") == 2)
        #expect(try selection("accept: e/f") == 1)
        #expect(rule.selectedVariantIndex(for: try CacheWorld.request(), from: Array(stored[2...])) == nil)
    }

    @Test(
        "a stale answer stands in for a failed one where a side allows it",
        arguments: [
            Case("RFC 5861 4.1, in the window", "max-age=600, stale-if-error=1200", "1800 yes"),
            Case("RFC 5861 4.1, behind it", "max-age=600, stale-if-error=1200", "1801 no"),
            Case("RFC 9111 4.2.4, not allowed", "max-age=600", "601 no"),
            Case("RFC 9111 5.2.2.2", "max-age=600, stale-if-error=1200, must-revalidate", "601 no"),
            Case("RFC 9111 5.2.2.4", "max-age=600, stale-if-error=1200, no-cache", "1 no"),
            Case("RFC 9111 4.2.1, broken", "max-age=600, stale-if-error=x", "601 no"),
        ])
    func failure(_ row: Case<String>) throws {
        let stored = try CacheWorld.stored("cache-control: \(row.input)")
        let seconds = try #require(Int64(row.expected.prefix { $0 != " " }))
        let may = rule.mayUseStale(
            stored, for: try CacheWorld.request(), mode: .default, after: .connectionReset, status: nil,
            now: CacheWorld.now + seconds)
        #expect("\(seconds) \(may ? "yes" : "no")" == row.expected)
    }

    @Test func `the client may allow it, or want nothing of it`() throws {
        func may(_ lines: String, _ mode: CacheMode = .default, _ control: String = "max-age=1") throws -> Bool {
            rule.mayUseStale(
                try CacheWorld.stored("cache-control: \(control)"), for: try CacheWorld.request(lines), mode: mode,
                after: .timeout, status: nil, now: CacheWorld.now + 50)
        }
        #expect(try may("cache-control: stale-if-error=60"))
        #expect(try !may("cache-control: stale-if-error=60, no-cache"))
        #expect(try !may("cache-control: stale-if-error=10"))
        #expect(try may("", .default, "max-age=1, stale-if-error=60"))
        for mode in CacheMode.allCases where mode != .default && mode != .explicit {
            #expect(try !may("", mode, "max-age=1, stale-if-error=60"))
        }
        let invalidated = try CacheWorld.stored("cache-control: stale-if-error=60", isInvalidated: true)
        #expect(
            !rule.mayUseStale(
                invalidated, for: try CacheWorld.request(), mode: .default, after: .timeout, status: nil,
                now: CacheWorld.now))
    }

    @Test(
        "RFC 5861 4: a failure is what would be a 500, 502, 503 or 504",
        arguments: [
            (FailureCode.httpStatus, 500 as Int?, true), (.httpStatus, 502, true), (.httpStatus, 503, true),
            (.httpStatus, 504, true), (.httpStatus, 404, false), (.httpStatus, 429, false), (.httpStatus, 501, false),
            (.httpStatus, nil, false), (.connectionReset, nil, true), (.dnsFailed, nil, true),
            (.originCoolingDown, nil, true),
            (.tls, nil, false), (.cancelled, nil, false), (.internalError, nil, false),
        ])
    func fault(_ failure: FailureCode, _ status: Int?, _ expected: Bool) throws {
        let stored = try CacheWorld.stored("cache-control: stale-if-error=60")
        let may = rule.mayUseStale(
            stored, for: try CacheWorld.request(), mode: .default, after: failure, status: status, now: CacheWorld.now)
        #expect(may == expected)
    }
}
