import Testing

@testable import EarshotWeb

@Suite struct AccessRuleTests {
    private let open = AccessRule(token: nil, hosts: ["bus.example"])
    private let closed = AccessRule(token: Array("0123456789abcdef".utf8), hosts: [])

    private func refusal(
        _ rule: AccessRule, _ fields: String..., path: String = "/metrics", host: String = "localhost:5766",
        needsToken: Bool = true
    ) throws -> AccessRule.Refusal? {
        let lines = ["GET \(path) HTTP/1.1", "Host: \(host)"] + fields + ["", ""]
        guard case .complete(let head, _) = RequestHead.read(Array(lines.joined(separator: "\r\n").utf8)) else {
            throw Malformed()
        }
        return rule.refusal(of: head, needsToken: needsToken)
    }

    private struct Malformed: Error {}

    @Test(arguments: [
        ("localhost", true), ("localhost:1", true), ("127.0.0.1:5766", true), ("[::1]:5766", true), ("10.1.2.3", true),
        ("bus.example", true), ("BUS.example.:80", true), ("evil.example", false), ("evil.example:5766", false),
        ("127.0.0.1.evil.example", false), ("localhost.evil.example", false), ("1.2.3", false), ("256.1.1.1", false),
        ("[evil.example]", false), ("[::1].evil.example", false), ("[::1", false),
    ])
    func `only a name of this server is admitted`(host: String, isAdmitted: Bool) throws {
        #expect(try refusal(open, host: host) == (isAdmitted ? nil : .unknownHost))
    }

    @Test func `a page of another origin is rejected, and a link to the page is not`() throws {
        #expect(try refusal(open, "Origin: http://localhost:5766") == nil)
        #expect(try refusal(open, "Origin: https://localhost:5766", "Sec-Fetch-Site: same-origin") == nil)
        for origin in ["http://localhost", "http://localhost:5767", "http://evil.example", "null", ""] {
            #expect(try refusal(open, "Origin: \(origin)") == .crossSite, "\(origin)")
        }
        #expect(try refusal(open, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors") == .crossSite)
        #expect(try refusal(open, "Sec-Fetch-Site: same-site") == .crossSite)
        #expect(try refusal(open, "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site") == .crossSite)
        #expect(try refusal(open, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate") == .crossSite)
        #expect(try refusal(open, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", path: "/") == nil)
        #expect(try refusal(open, "Sec-Fetch-Site: none") == nil)
    }

    @Test func `the token is a bearer token, or a password for any user`() throws {
        #expect(try refusal(closed) == .noToken)
        #expect(try refusal(closed, "Authorization: Bearer 0123456789abcdef") == nil)
        #expect(try refusal(closed, "Authorization: Basic YTowMTIzNDU2Nzg5YWJjZGVm") == nil)
        for wrong in [
            "Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer", "Basic !", "Basic YTow", "Digest x",
        ] {
            #expect(try refusal(closed, "Authorization: \(wrong)") == .noToken, "\(wrong)")
        }
        #expect(try refusal(closed, needsToken: false) == nil)
        #expect(try refusal(closed, host: "evil.example", needsToken: false) == .unknownHost)
    }
}

@Suite struct ListenAddressTests {
    @Test func `loopback and Unix sockets are local`() {
        #expect(ListenAddress("localhost:1") == .tcp(host: "127.0.0.1", port: 1))
        #expect(ListenAddress("[::1]:80") == .tcp(host: "::1", port: 80))
        #expect(ListenAddress("./s") == .unix("./s"))
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "/run/web"] {
            #expect(ListenAddress(local)?.isLocal == true, "\(local)")
        }
        for remote in ["0.0.0.0:1", "[::]:1", "192.168.1.1:1", "[fe80::1]:1", "[::ffff:127.0.0.1]:1"] {
            #expect(ListenAddress(remote)?.isLocal == false, "\(remote)")
        }
        for invalid in ["", "1", "host:1", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", ":1"] {
            #expect(ListenAddress(invalid) == nil, "\(invalid)")
        }
    }
}
