import EarshotCore
import EarshotHTTP
import Testing

/// The jar: domains, paths, ages, limits and the order of its cookies.
@Suite struct CookieJarTests {
    private static let now: Int64 = 1_767_225_600

    /// Returns the cookies sent to `url` after these cookies were set by `origin`, at the same time by default.
    private func sent(
        _ cookies: [String], from origin: String = "https://www.example.com/", to url: String? = nil, after: Int64 = 0
    ) throws -> String? {
        var jar = CookieJar()
        try set(cookies, from: origin, in: &jar)
        return jar.cookieField(for: try FetchURL(url ?? origin), now: Self.now + after).firstValue(named: "cookie")
    }

    private func set(_ cookies: [String], from origin: String, in jar: inout CookieJar, at now: Int64 = now) throws {
        for cookie in cookies {
            let field = HeaderFields(lines: Array("Set-Cookie: \(cookie)".utf8))
            jar.storeCookies(of: field, from: try FetchURL(origin), suffixes: .registries, now: now)
        }
    }

    @Test func `the examples of RFC 6265, section 3.1`() throws {
        var jar = CookieJar()
        let origin = try FetchURL("https://www.example.com/")
        func sent(_ url: FetchURL) -> String? { jar.cookieField(for: url, now: Self.now).firstValue(named: "cookie") }
        try set(["SID=31d4d96e407aad42"], from: origin.description, in: &jar)
        #expect(sent(origin) == "SID=31d4d96e407aad42")
        let narrow = ["SID=31d4d96e407aad42; Path=/; Secure; HttpOnly", "lang=en-US; Path=/; Domain=example.com"]
        try set(narrow, from: origin.description, in: &jar)
        #expect(sent(origin) == "SID=31d4d96e407aad42; lang=en-US")
        #expect(sent(try FetchURL("https://example.com/")) == "lang=en-US")
        #expect(sent(try FetchURL("http://www.example.com/")) == "lang=en-US")
        try set(
            ["lang=; Expires=Sun, 06 Nov 1994 08:49:37 GMT; Domain=example.com"], from: origin.description, in: &jar)
        #expect(sent(origin) == "SID=31d4d96e407aad42")
        #expect(jar.count == 1)
    }

    @Test(
        "name and value",
        arguments: [
            Case("RFC 6265bis 5.6", "a=b", "a=b" as String?), Case("RFC 6265bis 5.6, blanks", " a\t = b ;x", "a=b"),
            Case("RFC 6265bis 5.6, second equals sign", "a=b=c", "a=b=c"),
            Case("RFC 6265bis 5.6, quotation marks are part of it", "a=\"b; c\"", "a=\"b"),
            Case("RFC 6265bis 5.6, no equals sign", "b", "b"), Case("RFC 6265bis 5.6, no name", "=b", "b"),
            Case("RFC 6265bis 5.6, no value", "a=", "a="), Case("RFC 6265bis 5.6, neither", "=", nil),
            Case("RFC 6265bis 5.6, nothing", "", nil), Case("RFC 6265bis 5.6, only attributes", "; path=/", nil),
            Case("RFC 6265bis 5.6, control", "a=b\u{1}", nil), Case("RFC 6265bis 5.6, NUL", "a=b; x=\u{0}", nil),
            Case("RFC 6265bis 5.6, tab", "a=b\tc", "a=b\tc"), Case("RFC 6265bis 5.6, not ASCII", "a=é", "a=é"),
            Case("RFC 6265bis 5.6, longest", "a=\(long(4095))", "a=" + long(4095) as String?),
            Case("RFC 6265bis 5.6, too long", "a=\(long(4096))", nil),
        ])
    func pair(_ row: Case<String?>) throws {
        #expect(try sent([row.input]) == row.expected)
    }

    private static func long(_ count: Int) -> String { String(repeating: "b", count: count) }

    @Test(
        "Domain",
        arguments: [
            Case("RFC 6265bis 5.1.3, host-only", "a=b", "www.example.com"),
            Case(
                "RFC 6265bis 5.1.3, above", "a=b; Domain=example.com",
                "www.example.com example.com x.example.com y.www.example.com"),
            Case(
                "RFC 6265bis 5.6.3, dot", "a=b; domain=.Example.COM",
                "www.example.com example.com x.example.com y.www.example.com"),
            Case("RFC 6265bis 5.6.3, two dots", "a=b; domain=..example.com", ""),
            Case("RFC 6265bis 5.7, itself", "a=b; Domain=www.example.com", "www.example.com y.www.example.com"),
            Case("RFC 6265bis 5.7, empty", "a=b; Domain=", "www.example.com"),
            Case(
                "RFC 6265bis 5.7, the last counts", "a=b; Domain=x.org; Domain=example.com",
                "www.example.com example.com x.example.com y.www.example.com"),
            Case("RFC 6265bis 5.7, below", "a=b; Domain=y.www.example.com", ""),
            Case("RFC 6265bis 5.7, beside", "a=b; Domain=x.example.com", ""),
            Case("RFC 6265bis 5.7, no label's end", "a=b; Domain=ample.com", ""),
            Case("no dot inside", "a=b; Domain=com", ""), Case("no dot inside", "a=b; Domain=.com", ""),
            Case("dot at the end", "a=b; Domain=example.com.", ""), Case("not ASCII", "a=b; Domain=éxample.com", ""),
            Case("RFC 6265bis 5.6, too long to be looked at", "a=b; Domain=\(long(1025))", "www.example.com"),
        ])
    func domain(_ row: Case<String>) throws {
        let hosts = ["www.example.com", "example.com", "x.example.com", "y.www.example.com", "com", "ample.com"]
        let reached = try hosts.filter { try sent([row.input], to: "https://\($0)/") != nil }
        #expect(reached.joined(separator: " ") == row.expected)
    }

    @Test(
        "Domain and public suffixes",
        arguments: [
            ("a.co.uk", "co.uk", ""), ("co.uk", "co.uk", "co.uk"), ("a.b.co.uk", "b.co.uk", "b.co.uk a.b.co.uk"),
            ("a.github.io", "github.io", ""), ("github.io", "github.io", "github.io"),
        ])
    func publicSuffix(host: String, domain: String, expected: String) throws {
        for source in [CookieJar.Source.server, .user] {
            var jar = CookieJar()
            let field = HeaderFields(lines: Array("set-cookie: a=b; domain=\(domain)".utf8))
            jar.storeCookies(
                of: field, from: try FetchURL("https://\(host)/"), by: source, suffixes: .registries, now: Self.now)
            let hosts = ["co.uk", "a.co.uk", "b.co.uk", "a.b.co.uk", "github.io", "a.github.io"]
            let reached = try hosts.filter {
                jar.cookieField(for: try FetchURL("https://\($0)/"), now: Self.now).firstValue(named: "cookie") != nil
            }
            #expect(reached.joined(separator: " ") == expected, "\(source)")
        }
    }

    @Test func `without a list a server sets cookies only for its own host, and the user for any`() throws {
        func hosts(_ source: CookieJar.Source, from host: String, domain: String) throws -> [String] {
            var jar = CookieJar()
            let field = HeaderFields(lines: Array("set-cookie: a=b; domain=\(domain)".utf8))
            jar.storeCookies(
                of: field, from: try FetchURL("https://\(host)/"), by: source, suffixes: .unavailable, now: Self.now)
            return try ["example.com", "www.example.com"].filter {
                jar.cookieField(for: try FetchURL("https://\($0)/"), now: Self.now).firstValue(named: "cookie") != nil
            }
        }
        #expect(try hosts(.server, from: "www.example.com", domain: "example.com") == [])
        #expect(try hosts(.server, from: "example.com", domain: "example.com") == ["example.com"])
        #expect(try hosts(.user, from: "example.com", domain: "example.com") == ["example.com", "www.example.com"])
        #expect(try hosts(.user, from: "com", domain: "com") == [])
    }

    @Test func `a dot at the end makes another host`() throws {
        for (from, to) in [("localhost", "localhost."), ("a.example.com", "a.example.com.")] {
            for domain in ["", "; Domain=\(from)", "; Domain=example.com"] {
                #expect(try sent(["a=b\(domain)"], from: "https://\(from)/", to: "https://\(to)/") == nil, "\(domain)")
                #expect(try sent(["a=b\(domain)"], from: "https://\(to)/", to: "https://\(from)/") == nil, "\(domain)")
            }
            #expect(try sent(["a=b"], from: "https://\(to)/", to: "https://\(to)/") == "a=b")
        }
        var jar = CookieJar()
        let field = HeaderFields(lines: Array("set-cookie: a=b; domain=co.uk.".utf8))
        jar.storeCookies(of: field, from: try FetchURL("https://a.co.uk./"), suffixes: .registries, now: Self.now)
        #expect(jar.count == 0)
    }

    @Test func `HttpOnly is kept`() throws {
        var jar = CookieJar()
        try set(["a=b; HttpOnly", "c=d"], from: "https://a.example/", in: &jar)
        #expect(jar.cookies(now: Self.now).sorted { $0.created < $1.created }.map(\.isHTTPOnly) == [true, false])
    }

    @Test func `an address has nothing above it, a name without dots only itself`() throws {
        #expect(try sent(["a=b; Domain=1.2.3.4"], from: "http://1.2.3.4/") == "a=b")
        #expect(try sent(["a=b; Domain=3.4"], from: "http://1.2.3.4/") == nil)
        var jar = CookieJar()
        try set(["a=b; Domain=3.4"], from: "http://1.2.3.4/", in: &jar)
        #expect(jar.count == 0)
        #expect(try sent(["a=b"], from: "http://[::1]/") == "a=b")
        #expect(try sent(["a=b; Domain=localhost"], from: "http://localhost/") == "a=b")
        #expect(try sent(["a=b; Domain=localhost"], from: "http://localhost/", to: "http://x.localhost/") == nil)
        #expect(try sent(["a=b"], from: "http://localhost/", to: "http://LOCALHOST:8080/") == "a=b")
        #expect(try sent(["a=b"], from: "thumb://example.com/") == nil)
    }

    @Test(
        "Path",
        arguments: [
            ("a=b", "/x/y/z", "/x/y /x/y/ /x/y/w /x/y/w/v"), ("a=b", "/x", "all"), ("a=b", "/", "all"),
            ("a=b; path=/x", "/", "/x /x/ /x/y /x/y/ /x/y/w /x/y/w/v"),
            ("a=b; Path=/x/", "/", "/x/ /x/y /x/y/ /x/y/w /x/y/w/v"),
            ("a=b; path=x", "/x/y/z", "/x/y /x/y/ /x/y/w /x/y/w/v"),
            ("a=b; path", "/x/y/z", "/x/y /x/y/ /x/y/w /x/y/w/v"), ("a=b; path=/; path=/xy", "/", "/xy"),
            ("a=b; path=/xy; path=", "/", "all"),
        ])
    func path(_ cookie: String, _ origin: String, _ expected: String) throws {
        let paths = ["/", "/x", "/x/", "/xy", "/x/y", "/x/y/", "/x/y/w", "/x/y/w/v", "/X"]
        let reached = try paths.filter {
            try sent([cookie], from: "https://a.example\(origin)", to: "https://a.example\($0)?/x/y") != nil
        }
        #expect(reached.joined(separator: " ") == (expected == "all" ? paths.joined(separator: " ") : expected))
    }

    @Test(
        "Max-Age and Expires",
        arguments: [
            ("max-age=10", 9 as Int64, true), ("max-age=10", 10, false), ("Max-Age=0", 0, false),
            ("Max-Age=-1", 0, false), ("max-age=99999999999999999999", 34_559_999, true),
            ("max-age=99999999999999999999", 34_560_000, false), ("max-age=x", 9_999_999_999, true),
            ("max-age=+1", 9_999_999_999, true), ("max-age=-", 9_999_999_999, true), ("max-age", 9_999_999_999, true),
            ("expires=Thu, 01 Jan 2026 00:00:10 GMT", 9, true), ("expires=Thu, 01 Jan 2026 00:00:10 GMT", 10, false),
            ("expires=Thu, 01 Jan 2026 00:00:10 GMT; max-age=20", 19, true),
            ("max-age=20; expires=Thu, 01 Jan 2026 00:00:10 GMT", 19, true),
            ("max-age=20; max-age=5", 5, false), ("max-age=20; max-age=x", 19, true),
            ("expires=Fri, 31 Dec 9999 23:59:59 GMT", 34_559_999, true),
            ("expires=Fri, 31 Dec 9999 23:59:59 GMT", 34_560_000, false), ("expires=0", 9_999_999_999, true),
            ("", 9_999_999_999, true),
        ])
    func end(_ attributes: String, _ after: Int64, _ isSent: Bool) throws {
        #expect(try (sent(["a=b; \(attributes)"], after: after) != nil) == isSent)
    }

    @Test(
        "Secure and the prefixes of names",
        arguments: [
            ("a=b; Secure", "https", true), ("a=b; Secure", "http", false), ("__Secure-a=b; Secure", "https", true),
            ("__Secure-a=b", "https", false), ("__sEcure-a=b", "https", false), ("__Secure-a=b; Secure", "http", false),
            ("__Host-a=b; Secure; Path=/", "https", true), ("__Host-a=b; Secure", "https", false),
            ("__Host-a=b; Path=/", "https", false), ("__host-a=b; Secure; Path=/x", "https", false),
            ("__Host-a=b; Secure; Path=/; Domain=a.example", "https", false),
            ("__Host-a=b; Secure; Path=/; Domain=", "https", true), ("=__Secure-a=b; Secure", "https", false),
            ("__Host-a; Secure; Path=/", "https", false), ("__Secur-a=b", "http", true),
            ("a=b; HttpOnly; SameSite=Strict; Partitioned", "http", true),
        ])
    func prefixes(_ cookie: String, _ scheme: String, _ isStored: Bool) throws {
        #expect(try (sent([cookie], from: "\(scheme)://a.example/") != nil) == isStored)
    }

    @Test func `what came without TLS does not stand in for what goes by TLS alone`() throws {
        func stored(_ cookie: String, _ host: String) throws -> Int {
            var jar = CookieJar()
            try set(["a=1; Secure; Domain=example.com; Path=/x"], from: "https://www.example.com/", in: &jar)
            try set([cookie], from: "http://\(host)/", in: &jar)
            return jar.count
        }
        #expect(try stored("a=2; Path=/x", "www.example.com") == 1)
        #expect(try stored("a=2; Path=/x/y; Domain=example.com", "www.example.com") == 1)
        #expect(try stored("a=2; Path=/x", "y.www.example.com") == 1)
        #expect(try stored("a=2; Path=/", "www.example.com") == 2)
        #expect(try stored("a=2; Path=/xy", "www.example.com") == 2)
        #expect(try stored("b=2; Path=/x", "www.example.com") == 2)
        #expect(try stored("a=2; Path=/x", "www.example.org") == 2)
    }

    @Test func `longer paths come first, then what came first, also after it was changed`() throws {
        let cookies = ["a=1", "b=1; path=/x", "c=1", "d=1; path=/x/y", "a=2", "e=1; domain=example.com"]
        let url = "https://www.example.com/x/y"
        #expect(try sent(cookies, from: "https://www.example.com/", to: url) == "d=1; b=1; a=2; c=1; e=1")
    }

    @Test func `a cookie is replaced by one of its name, domain and path, and by no other`() throws {
        var jar = CookieJar()
        let cookies = ["a=1", "a=2; path=/x", "a=3; domain=www.example.com", "a=4; domain=example.com", "A=5"]
        try set(cookies + cookies, from: "https://www.example.com/", in: &jar)
        #expect(jar.count == 5)
        try set(["a=; max-age=0", "a=; max-age=0; path=/x"], from: "https://www.example.com/", in: &jar)
        #expect(jar.count == 3)
    }

    @Test func `a domain has so many, without TLS first to go, then the one not used for longest`() throws {
        var jar = CookieJar()
        let origin = "https://www.example.com/"
        try set((0..<50).map { "s\($0)=1; Secure" }, from: origin, in: &jar)
        try set(["open=1"], from: origin, in: &jar)
        #expect(jar.count == 50 && !jar.cookies(now: Self.now).contains { $0.name == Array("open".utf8) })
        try set(["s50=1; Secure; path=/x"], from: origin, in: &jar)
        #expect(!jar.cookies(now: Self.now).contains { $0.name == Array("s0".utf8) })
        // All but s50 are used, so s50 is evicted next.
        _ = jar.cookieField(for: try FetchURL(origin), now: Self.now)
        try set(["s51=1; Secure"], from: origin, in: &jar)
        #expect(jar.count == 50 && !jar.cookies(now: Self.now).contains { $0.name == Array("s50".utf8) })
    }

    @Test func `a jar has so many, and what has ended goes first`() throws {
        var jar = CookieJar()
        for host in 0..<60 {
            let ends = host == 30 ? "; max-age=5" : ""
            try set((0..<50).map { "c\($0)=1\(ends)" }, from: "http://h\(host).example/", in: &jar)
        }
        #expect(jar.count == HTTPLimits.cookiesPerJar)
        func has(_ host: Int) -> Int {
            jar.cookies(now: Self.now + 10).filter { $0.domain == "h\(host).example" }.count
        }
        func fill(_ hosts: Range<Int>) throws {
            for host in hosts {
                try set((0..<50).map { "c\($0)=1" }, from: "http://n\(host).example/", in: &jar, at: Self.now + 10)
            }
        }
        try fill(0..<4)
        #expect(jar.count == HTTPLimits.cookiesPerJar + HTTPLimits.surplusCookies && has(0) == 50)
        try set(["a=b"], from: "http://new.example/", in: &jar, at: Self.now + 10)
        #expect(jar.count == HTTPLimits.cookiesPerJar && has(30) == 0, "the ended ones go first")
        #expect((has(0), has(2), has(3), has(4)) == (0, 0, 49, 50), "then those that were not used for longest")
        #expect(jar.byteCount == jar.cookies(now: Self.now + 10).reduce(0) { $0 + $1.byteCount })
        jar.shrink(toBytes: 10_000)
        #expect((1...10_000).contains(jar.byteCount))
        #expect(jar.cookies(now: Self.now).contains { $0.domain == "new.example" })
    }

    @Test func `neither a response nor a field has no end`() throws {
        var jar = CookieJar()
        let url = try FetchURL("http://a.example/")
        let many = (0..<60).map { "set-cookie: c\($0)=1" }.joined(separator: "\n")
        jar.storeCookies(of: HeaderFields(lines: Array(many.utf8)), from: url, suffixes: .registries, now: Self.now)
        #expect(jar.cookies(now: Self.now).map(\.name).contains(Array("c49".utf8)))
        #expect(!jar.cookies(now: Self.now).map(\.name).contains(Array("c50".utf8)))
        let value = String(repeating: "v", count: 4000)
        try set((0..<9).map { "big\($0)=\(value); path=/" }, from: url.description, in: &jar)
        let field = jar.cookieField(for: url, now: Self.now)
        #expect(field.bytes.count <= HTTPLimits.cookieFieldBytes + "cookie: ".utf8.count)
        #expect((try? HeaderFields(request: field.bytes)) == field)
    }

    @Test func `bytes that are no text go back as they came`() throws {
        var jar = CookieJar()
        let url = try FetchURL("http://a.example/")
        let field = HeaderFields(lines: Array("set-cookie: a=".utf8) + [0xff, 0x80])
        jar.storeCookies(of: field, from: url, suffixes: .registries, now: Self.now)
        let request = HTTPRequest(url: url, fields: HeaderFields(lines: Array("Cookie: old\naccept: a/b".utf8)))
        let sent = request.addingFields(jar.cookieField(for: url, now: Self.now))
        #expect(sent.fields.bytes == Array("accept: a/b\ncookie: a=".utf8) + [0xff, 0x80])
        #expect(request.addingFields(HeaderFields()) == request)
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `no cookie and no clock makes it trap or go beyond its bounds`(_ seed: UInt64) throws {
        var generator = SplitMix64Generator(seed: seed)
        let pieces = [
            "a", "b=", "=", ";", "; ", "domain=", "example.com", ".", "path=", "/", "/x", "secure", "max-age=", "9",
            "-",
            "99999999999999999999", "expires=", "Thu, 01 Jan 2026 00:00:10 GMT", "70", "23:59:59", "Feb", "__host-",
            "__Secure-", "\t", "é", "\u{0}", "\"",
        ]
        let urls = try [
            "http://example.com/", "https://www.example.com/x/y", "http://a.www.example.com/x", "http://1.2.3.4/",
            "https://localhost/", "http://com/",
        ].map { try FetchURL($0) }
        var jar = CookieJar()
        var stored = 0
        for round in 0..<3000 {
            let text = (0..<Int.random(in: 0...8, using: &generator)).map { _ in
                pieces.randomElement(using: &generator) ?? ""
            }
            let isFar = Int.random(in: 0..<20, using: &generator) == 0
            let now =
                isFar ? Int64(bitPattern: generator.next()) : Self.now + Int64.random(in: 0...20, using: &generator)
            let line = "set-cookie: n\(Int.random(in: 0..<80, using: &generator))\(text.joined())"
            let origin = urls.randomElement(using: &generator) ?? urls[0]
            jar.storeCookies(of: HeaderFields(lines: Array(line.utf8)), from: origin, suffixes: .registries, now: now)
            stored = max(stored, jar.count)
            let field = jar.cookieField(for: urls.randomElement(using: &generator) ?? urls[0], now: Self.now)
            #expect((try? HeaderFields(request: field.bytes)) == field, "seed \(seed): \(line)")
            guard round % 50 == 0 else { continue }
            let all = jar.cookies(now: .min)
            #expect(all.count <= jar.count)
            let most = Dictionary(grouping: all, by: \.domain).values.map(\.count).max() ?? 0
            #expect(most <= HTTPLimits.cookiesPerDomain, "seed \(seed): \(line)")
        }
        #expect(stored > 100, "the generator makes too few cookies to test anything: \(stored)")
    }
}

extension PublicSuffixes {
    /// A list with `co.uk`, `github.io` and the domains without an inner dot.
    static let registries = PublicSuffixes { ["co.uk", "github.io"].contains($0) }
}
