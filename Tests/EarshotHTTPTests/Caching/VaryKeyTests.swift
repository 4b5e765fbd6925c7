import EarshotHTTP
import Testing

/// Request fields that distinguish variants of a response.
@Suite struct VaryKeyTests {
    private func key(_ vary: String, _ request: String) -> VaryKey? {
        VaryKey(response: CacheWorld.fields("vary: \(vary)"), request: CacheWorld.fields(request))
    }

    @Test(
        "the key is one for all spellings that mean the same, and only for those",
        arguments: [
            Case("RFC 9111 4.1, names in any order and case", "B: 1\na: 2", "a:2\nb:1\n" as String?),
            Case("RFC 9111 4.1, absent", "b: 1", "a\nb:1\n"),
            Case("RFC 9111 4.1, absent is not empty", "a:\nb: 1", "a:\nb:1\n"),
            Case("RFC 9111 4.1, lines combined", "a: x\na: y", "a:x, y\nb\n"),
            Case("RFC 9111 4.1, what is not known to be a list stays", "a: x,y", "a:x,y\nb\n"),
            Case("RFC 9111 4.1, other fields do not matter", "c: x", "a\nb\n"),
        ])
    func canonical(_ row: Case<String?>) {
        #expect(key("B, a", row.input).map { String(decoding: $0.canonicalFields, as: UTF8.self) } == row.expected)
        #expect(key("a,, B ,b", row.input) == key("B, a", row.input))
    }

    @Test func `blanks and case of lists that allow it do not matter, order does`() {
        #expect(
            key("accept", "accept: text/html, a/b ; q=0.5") == key("Accept", "Accept: text/html\naccept: a/b;q=0.5"))
        #expect(key("accept", "accept: a/b;x=\"1 , 2\"") != key("accept", "accept: a/b;x=\"1,2\""))
        #expect(key("accept", "accept: a/b;x=A") != key("accept", "accept: a/b;x=a"))
        #expect(key("accept", "accept: a/b, c/d") != key("accept", "accept: c/d, a/b"))
        let languages = "accept-language: de-DE, en;q=0.5"
        #expect(key("accept-language", languages) == key("accept-language", "accept-language: DE-de,EN; q=0.5"))
        #expect(key("user-agent", "user-agent: A (b, c)") != key("user-agent", "user-agent: A (b,c)"))
    }

    @Test func `no value can be taken for another name`() {
        #expect(key("a, b", "a: 1\nb:") != key("a, b", "a: 1"))
        #expect(key("a", "a: b") != key("a, b", "a: b"))
    }

    @Test func `without Vary any request matches`() {
        #expect(VaryKey(response: HeaderFields(), request: CacheWorld.fields("a: 1"))?.canonicalFields == [])
        #expect(key("", "a: 1")?.canonicalFields == [])
        #expect(key("*", "") == nil && key("a\nvary: *", "") == nil && key("a/b", "") == nil)
    }
}
