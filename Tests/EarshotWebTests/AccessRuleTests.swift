import EarshotLoop
import Testing

@testable import EarshotWeb

@Suite struct AccessRuleTests {
    private let open = AccessRule(serverNames: ["bus.example"])

    private func refusal(
        _ rule: AccessRule, _ fields: String..., path: String = "/metrics", host: String = "localhost:5766"
    ) throws -> AccessRule.Refusal? {
        rule.refusal(of: try head(fields, path: path, host: host))
    }

    private func head(
        _ fields: [String], path: String = "/metrics", host: String = "localhost:5766"
    ) throws -> RequestHead {
        let lines = ["GET \(path) HTTP/1.1", "Host: \(host)"] + fields + ["", ""]
        guard case .complete(let head, _) = RequestHead.parse(Array(lines.joined(separator: "\r\n").utf8)) else {
            throw Malformed()
        }
        return head
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

    @Test func `a page of a named origin is admitted`() throws {
        let rule = AccessRule(permittedOrigins: ["https://console.example"])
        #expect(try refusal(rule, "Origin: https://Console.example", "Sec-Fetch-Site: cross-site") == nil)
        #expect(try refusal(rule, "Origin: https://console.example", "Origin: null") == .crossSite)
        #expect(try refusal(rule, "Origin: https://console.example", host: "evil.example") == .unknownHost)
        let foreign = try head(["Origin: http://evil.example"], host: "bus.test")
        #expect(
            rule.refusal(of: foreign) == .unknownHost && rule.refusal(of: foreign, allowsAnyHost: true) == .crossSite)
        #expect(rule.refusal(of: try head([], host: "bus.test"), allowsAnyHost: true) == nil)
    }

    @Test func `the token is a bearer token, or a password for any user`() throws {
        #expect(
            try verdicts("Bearer 0123456789abcdef", "Basic YTowMTIzNDU2Nzg5YWJjZGVm") == [.validToken, .validToken])
        #expect(try verdicts("", "Bearer", "Basic !", "Digest x").allSatisfy { $0 == .missingToken })
        for wrong in ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Basic YTow"] {
            #expect(try verdicts(wrong) == [.wrongToken], "\(wrong)")
        }
    }

    @Test func `ten wrong tokens in a second are compared, and no right one meanwhile`() throws {
        var rule = TokenRule(tokens: [Array("0123456789abcdef".utf8)])
        var compared = 0
        for millisecond in 0..<1_000 {
            let now = LoopTime(nanoseconds: Int64(5_000 + millisecond) * 1_000_000)
            if rule.checkToken(of: try head(["Authorization: Bearer wrong"]), now: now) == .wrongToken { compared += 1 }
            if millisecond == 50 {
                #expect(
                    rule.checkToken(of: try head(["Authorization: Bearer 0123456789abcdef"]), now: now)
                        == .tooManyFailures)
            }
        }
        #expect(compared == 10)
    }

    private func verdicts(_ values: String...) throws -> [TokenRule.Verdict] {
        try values.map { value in
            var rule = TokenRule(tokens: [Array("another-token-16".utf8), Array("0123456789abcdef".utf8)])
            return rule.checkToken(of: try head(["Authorization: \(value)"]), now: LoopTime(nanoseconds: 1))
        }
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
