import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// COOKIES and `QUERY cookies`: the cookies of a user in the jar of a root, and the jar in the answer.
struct CookieMessagesTests {
    private var rig = CoreRig()
    private let client: ClientID
    private let worker: WorkerID

    init() {
        worker = rig.worker()
        client = rig.client(1)
        rig.core.unixTimeSeconds = 1_767_225_600
        rig.core.shellFeatures.publicSuffixes = PublicSuffixes { $0 == "co.uk" }
    }

    private mutating func store(_ fields: String, from url: String = "https://a.example/", to handler: String) {
        rig.send(.storeCookies(HandlerID(handler)!, url: url, fields: Array(fields.utf8)), by: client)
    }

    private mutating func jar(of handler: String, _ page: QueryPage = QueryPage()) -> String {
        rig.pass { $0.send(.query(.cookies(HandlerID(handler)!), page), by: client) }
        for case .client(.answerQuery(_, _, let json)) in rig.actions {
            return String(decoding: json.dropFirst(#"{"broker":"0000000000000001","#.utf8.count), as: UTF8.self)
        }
        return ""
    }

    /// The `Cookie` field of a request's job.
    private mutating func sent(_ handler: String, _ url: String, cookies: Bool = true) -> String? {
        rig.pass { $0.fetch(handler, "r\($0.nextBody.rawValue)", url, by: client) { $0.options.usesCookies = cookies } }
        guard let job = rig.jobs.first else { return nil }
        rig.pass { $0.done(job, by: worker) }
        return HeaderFields(lines: job.httpFields).firstValue(named: "cookie")
    }

    private var errors: [String] {
        rig.replies(to: client).compactMap {
            if case .error(let reply) = $0 { reply.code } else { nil }
        }
    }

    @Test mutating func `cookies of the user go to the requests of the root that ask for them`() {
        rig.pass { $0.send(.subscribe(HandlerPattern("shop/1")!), by: client) }
        store("set-cookie: a=1\nset-cookie: b=2; domain=a.example; path=/x", to: "shop/1")
        #expect(sent("shop/2", "http://a.example/x") == "b=2; a=1")
        #expect(sent("shop/2", "http://www.a.example/x") == "b=2")
        #expect(sent("shop/2", "http://a.example/y", cookies: false) == nil)
        #expect(sent("other", "http://a.example/z") == nil)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the answer lists the jar in the order of creation, also after the last handler`() {
        rig.pass { $0.send(.subscribe(HandlerPattern("shop")!), by: client) }
        store(
            "set-cookie: s=1; domain=co.uk\nset-cookie: a=\"1\"; httponly\nset-cookie: =2; secure; max-age=10",
            to: "shop")
        store("set-cookie: c=3; domain=b.example; path=/x", from: "http://b.example/", to: "shop")
        let expected = #"""
            "cookies":[\#
            {"domain":"a.example","subdomains":false,"path":"/","secure":false,"http-only":true,"name":"a","value":"\"1\""},\#
            {"domain":"a.example","subdomains":false,"path":"/","secure":true,"http-only":false,"expires":1767225610,\#
            "name":"","value":"2"},\#
            {"domain":"b.example","subdomains":true,"path":"/x","secure":false,"http-only":false,"name":"c","value":"3"}]}
            """#
        #expect(jar(of: "shop") == expected)
        rig.pass { $0.send(.unsubscribe(HandlerPattern("shop")!), by: client) }
        #expect(jar(of: "shop/any") == expected, "the jar is idle")
        #expect(jar(of: "other") == #""cookies":[]}"#)
    }

    @Test mutating func `pages hold each cookie once`() {
        rig.pass { $0.send(.subscribe(HandlerPattern("shop")!), by: client) }
        for number in 0..<60 {
            store(
                "set-cookie: n\(number)=\(String(repeating: "v", count: 2_000))", from: "https://h\(number)/",
                to: "shop")
        }
        var page = QueryPage()
        var names: [String] = []
        for _ in 0..<10 {
            let json = jar(of: "shop", page)
            #expect(json.utf8.count < 40_000)
            names += json.matches(of: /"name":"(n\d+)"/).map { String($0.1) }
            guard let next = json.firstMatch(of: /"cookies-next":"(\d+)"/) else { break }
            page.cursor = String(next.1)
        }
        #expect(names == (0..<60).map { "n\($0)" })
    }

    @Test mutating func `cookies without a handler, an HTTP URL or room are refused`() {
        rig.core.limits.maximumTotalCookieBytes = 1_000
        rig.pass { rig in
            rig.send(.storeCookies(HandlerID("shop")!, url: "https://a.example/", fields: []), by: client)
            rig.send(.subscribe(HandlerPattern("shop")!), by: client)
            rig.send(.subscribe(HandlerPattern("other")!), by: client)
            for url in ["thumb://a/", "x", "https://a.example/"] {
                rig.send(.storeCookies(HandlerID("shop")!, url: url, fields: []), by: client)
            }
            rig.send(.storeCookies(HandlerID("other")!, url: "https://a.example/", fields: []), by: client)
        }
        #expect(errors == Array(repeating: "bad-message", count: 3) + ["limit"])
    }

    @Test mutating func `a server's cookie for a public suffix is not stored`() {
        rig.pass { $0.fetch("shop", "1", "https://a.co.uk/", by: client) { $0.options.usesCookies = true } }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, fields: "set-cookie: s=1; domain=co.uk\nset-cookie: a=1; domain=a.co.uk") }
        #expect(sent("shop", "https://b.co.uk/") == nil)
        #expect(sent("shop", "https://x.a.co.uk/") == "a=1")
    }
}
