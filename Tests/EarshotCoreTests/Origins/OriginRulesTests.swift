import EarshotHTTP
import Testing

@testable import EarshotCore

@Suite("Rules for origins")
struct OriginRulesTests {
    private func origin(_ url: String) throws -> Origin { try FetchURL(url).origin }

    @Test("The most specific rule wins, and what it leaves open comes from the next")
    func precedence() throws {
        var rules = OriginRules()
        rules.defaultMaximumTransfers = 6
        rules.rules = [
            try #require(OriginPattern("*.org")): OriginRules.RuleTerms(maximumTransfers: 1, spacingMilliseconds: 10),
            try #require(OriginPattern("*.example.org")): OriginRules.RuleTerms(maximumTransfers: 2),
            try #require(OriginPattern("a.example.org")): OriginRules.RuleTerms(spacingMilliseconds: 30),
            try #require(OriginPattern("https://a.example.org:8443")): OriginRules.RuleTerms(maximumTransfers: 4),
        ]
        func terms(_ url: String) throws -> [Int] {
            let named = try origin(url)
            let terms = rules.terms(for: named)
            return [terms.limit, terms.spacingMilliseconds]
        }
        #expect(try terms("https://a.example.org:8443/x") == [4, 30])
        #expect(try terms("https://a.example.org/x") == [2, 30])
        #expect(try terms("http://b.example.org/x") == [2, 10])
        #expect(try terms("http://example.org/x") == [1, 10])
        #expect(try terms("http://example.com/x") == [6, 0])
    }

    @Test(
        "A pattern is an origin, a host or the hosts below a name, in normal form",
        arguments: [
            ("HTTPS://Example.org:443", "https://example.org"),
            ("https://example.org:8443/", "https://example.org:8443"),
            ("Example.ORG", "example.org"), ("*.Example.org", "*.example.org"), ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"), ("http://[::1]:80", "http://[::1]"), ("example.org.", "example.org"),
        ])
    func normalForm(text: String, normal: String) {
        #expect(OriginPattern(text)?.description == normal)
    }

    @Test(
        "Other text is no pattern",
        arguments: [
            "", "*", "*.", "https://*.example.org", "example.org:80", "example.org:8443", "example.org/x", "a b",
            "user@example.org", "https://user:pw@example.org", "*.127.0.0.1", "a.*.org", "http://x/?q", "x?",
        ])
    func noPattern(text: String) {
        #expect(OriginPattern(text) == nil)
    }

    @Test("A host that is an address is matched by its pattern")
    func addresses() throws {
        #expect(
            OriginPattern.matchingPatterns(for: try origin("http://[::1]:8080/")).map(\.description).contains("[::1]"))
        #expect(
            OriginPattern.matchingPatterns(for: try origin("http://127.0.0.1:8080/")).contains {
                $0 == OriginPattern("127.0.0.1")
            })
    }
}
