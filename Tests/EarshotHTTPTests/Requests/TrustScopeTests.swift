import EarshotHTTP
import EarshotWire
import Testing

/// Credentials that separate requests, and their removal by a redirect.
@Suite struct TrustScopeTests {
    private func scope(
        _ lines: String, url: String = "https://h/", rule: CredentialRule = CredentialRule()
    ) throws -> TrustScope {
        rule.trustScope(of: HTTPRequest(url: try FetchURL(url), fields: HeaderFields(lines: Array(lines.utf8))))
    }

    @Test func `a request without credentials is everybody's`() throws {
        #expect(try scope("").isCredentialFree)
        #expect(try scope("accept: authorization\nx-cookie: 1") == .credentialFree)
    }

    @Test(
        "schemes that authenticate a connection",
        arguments: [
            ("authorization: Negotiate YII=", true), ("Authorization: NTLM TlRM", true),
            ("AUTHORIZATION:\tnegotiate", true), ("proxy-authorization: ntlm x", true),
            ("authorization: Basic eA==, Negotiate x", true), ("authorization: Kerberos x", true),
            ("authorization: Bearer Negotiate", false), ("authorization: NegotiateX y", false),
            ("authorization: Basic eA==", false), ("authorization: Digest a=b, c=\"NTLM\"", false),
            ("x-authorization: Negotiate x", false), ("authorization:", false), ("", false),
        ])
    func authenticatesConnection(line: String, expected: Bool) {
        #expect(CredentialRule.authenticatesConnection(HeaderFields(lines: Array(line.utf8))) == expected)
    }

    @Test func `a body that is not decoded, or an error page that is a result, needs no scope of its own`() throws {
        var request = HTTPRequest(url: try FetchURL("https://h/"))
        request.route.decodesBody = false
        request.route.deliversErrorResponses = true
        #expect(CredentialRule().trustScope(of: request) == .credentialFree && CredentialRule().isAnonymous(request))
        request.route.verifiesServer = false
        #expect(CredentialRule().trustScope(of: request) != .credentialFree)
    }

    @Test(
        "each credential makes a scope of its own",
        arguments: [
            Case("RFC 9110 11.6.2", "AUTHORIZATION: Bearer x", "https://h/"),
            Case("RFC 9110 11.7.2", "proxy-authorization: Basic x", "https://h/"),
            Case("RFC 6265 4.2", "cookie: a=b", "https://h/"),
            Case("RFC 9110 4.2.4", "", "https://u:p@h/"),
            Case("a setting", "X-API-Key: 1", "https://h/"),
        ])
    func isPrivate(_ row: Case<String>) throws {
        let rule = CredentialRule(additionalNames: ["x-Api-key"])
        let own = try scope(row.input, url: row.expected, rule: rule)
        #expect(!own.isCredentialFree)
        #expect(own.description == "private")
        #expect(try scope("accept: 1\n" + row.input, url: row.expected, rule: rule) == own)
    }

    @Test func `requests to unverified servers are a scope of their own`() throws {
        let url = try FetchURL("https://h/")
        var request = HTTPRequest(url: url, fields: HeaderFields(lines: []))
        request.route.verifiesServer = false
        let unverified = CredentialRule().trustScope(of: request)
        #expect(!unverified.isCredentialFree)
        #expect(unverified == CredentialRule().trustScope(of: request))
    }

    @Test func `other credentials are another scope, the same are the same`() throws {
        let one = try scope("Authorization: a\ncookie: b")
        #expect(try scope("Cookie:b\naccept: x\nauthorization: a") == one)
        #expect(try scope("authorization: a\ncookie: c") != one)
        #expect(try scope("authorization: a") != one)
        #expect(try scope("", url: "https://u@h/") != scope("", url: "https://v@h/"))
    }

    @Test func `what leaves an origin has no credentials`() {
        let lines = "a: 1\nAuthorization: x\nCOOKIE: y\nproxy-authorization: z\nHost: h\nkey: k\nb: 2"
        let rule = CredentialRule(additionalNames: ["KEY"])
        let left = rule.withoutCredentials(HeaderFields(lines: Array(lines.utf8)))
        #expect(left == HeaderFields(lines: Array("a: 1\nb: 2".utf8)))
    }
}
