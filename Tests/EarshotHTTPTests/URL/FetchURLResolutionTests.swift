import EarshotHTTP
import Testing

/// References relative to a URL: RFC 3986, section 5.
@Suite struct FetchURLResolutionTests {
    @Test(
        "a reference resolves as RFC 3986 says",
        arguments: [
            Case("5.4.1", "g:h", "g:h"),
            Case("5.4.1", "g", "http://a/b/c/g"),
            Case("5.4.1", "./g", "http://a/b/c/g"),
            Case("5.4.1", "g/", "http://a/b/c/g/"),
            Case("5.4.1", "/g", "http://a/g"),
            Case("5.4.1", "//g", "http://g/"),
            Case("5.4.1", "?y", "http://a/b/c/d;p?y"),
            Case("5.4.1", "g?y", "http://a/b/c/g?y"),
            Case("5.4.1", "#s", "http://a/b/c/d;p?q"),
            Case("5.4.1", "g#s", "http://a/b/c/g"),
            Case("5.4.1", "g?y#s", "http://a/b/c/g?y"),
            Case("5.4.1", ";x", "http://a/b/c/;x"),
            Case("5.4.1", "g;x", "http://a/b/c/g;x"),
            Case("5.4.1", "g;x?y#s", "http://a/b/c/g;x?y"),
            Case("5.4.1", "", "http://a/b/c/d;p?q"),
            Case("5.4.1", ".", "http://a/b/c/"),
            Case("5.4.1", "./", "http://a/b/c/"),
            Case("5.4.1", "..", "http://a/b/"),
            Case("5.4.1", "../", "http://a/b/"),
            Case("5.4.1", "../g", "http://a/b/g"),
            Case("5.4.1", "../..", "http://a/"),
            Case("5.4.1", "../../", "http://a/"),
            Case("5.4.1", "../../g", "http://a/g"),
            Case("5.4.2", "../../../g", "http://a/g"),
            Case("5.4.2", "../../../../g", "http://a/g"),
            Case("5.4.2", "/./g", "http://a/g"),
            Case("5.4.2", "/../g", "http://a/g"),
            Case("5.4.2", "g.", "http://a/b/c/g."),
            Case("5.4.2", ".g", "http://a/b/c/.g"),
            Case("5.4.2", "g..", "http://a/b/c/g.."),
            Case("5.4.2", "..g", "http://a/b/c/..g"),
            Case("5.4.2", "./../g", "http://a/b/g"),
            Case("5.4.2", "./g/.", "http://a/b/c/g/"),
            Case("5.4.2", "g/./h", "http://a/b/c/g/h"),
            Case("5.4.2", "g/../h", "http://a/b/c/h"),
            Case("5.4.2", "g;x=1/./y", "http://a/b/c/g;x=1/y"),
            Case("5.4.2", "g;x=1/../y", "http://a/b/c/y"),
            Case("5.4.2", "g?y/./x", "http://a/b/c/g?y/./x"),
            Case("5.4.2", "g?y/../x", "http://a/b/c/g?y/../x"),
            Case("5.4.2", "g#s/./x", "http://a/b/c/g"),
            Case("5.4.2", "g#s/../x", "http://a/b/c/g"),
            Case("5.4.2, not strict", "http:g", "http://a/b/c/g"),
            Case("5.2.2, not strict", "HTTP:/g", "http://a/g"),
            Case("5.2.2, not strict, nothing left", "http:", "http://a/b/c/d;p?q"),
            Case("5.2.2, absolute", "HTTPS://X:443/y", "https://x/y"),
            Case("5.2.2, colon in a later segment", "./a:b", "http://a/b/c/a:b"),
            Case("4.2, colon in a query", "?a:b", "http://a/b/c/d;p?a:b"),
            Case("2.1, space and non-ASCII", "é x", "http://a/b/c/%C3%A9%20x"),
        ])
    func resolves(_ row: Case<String>) throws {
        let base = try FetchURL("http://a/b/c/d;p?q#f")
        #expect(try base.resolve(row.input).description == row.expected)
    }

    @Test func `user information and port go with a relative reference only`() throws {
        let base = try FetchURL("http://u:p@h:81/a")
        #expect(try base.resolve("b").description == "http://u:p@h:81/b")
        #expect(try base.resolve("/b").description == "http://u:p@h:81/b")
        #expect(try base.resolve("?b").description == "http://u:p@h:81/a?b")
        #expect(try base.resolve("//g/b").description == "http://g/b")
    }

    @Test func `a base without a path merges at the root`() throws {
        #expect(try FetchURL("http://h?q").resolve("g").description == "http://h/g")
    }

    @Test(
        "a reference that leads nowhere is refused",
        arguments: [
            Case("RFC 9110 4.2.1, other scheme without a host", "https:g", FetchURL.ParseError.missingHost),
            Case("RFC 3986 5.2.2, empty authority", "//", .missingHost),
            Case("URL standard 4.4, control in a fragment", "#\r\n", .controlCharacter),
            Case("URL standard 4.4, backslash", "\\\\evil", .backslash),
            Case("RFC 9110 4.1, length", String(repeating: "a", count: 8192), .tooLong),
            Case("RFC 9110 4.1, length alone", String(repeating: "a", count: 100_000), .tooLong),
        ])
    func isRefused(_ row: Case<FetchURL.ParseError>) throws {
        let base = try FetchURL("http://a/b")
        #expect(throws: row.expected) { try base.resolve(row.input) }
    }

    @Test func `nothing but a fragment resolves against an opaque URL`() throws {
        let base = try FetchURL("thumb:x")
        #expect(throws: FetchURL.ParseError.opaqueBase) { try base.resolve("y") }
        #expect(throws: FetchURL.ParseError.opaqueBase) { try base.resolve("/y") }
        #expect(try base.resolve("#y") == base)
        #expect(try base.resolve("thumb:y").description == "thumb:y")
        #expect(try base.resolve("http://h").description == "http://h/")
    }
}
