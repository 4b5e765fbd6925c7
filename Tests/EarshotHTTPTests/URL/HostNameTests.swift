import EarshotHTTP
import Testing

/// Internationalized host names.
@Suite struct HostNameTests {
    /// Table that replaces UTS 46.
    private static let hosts = HostNameEncoder { name throws(HostNameEncoder.Failure) in
        switch name {
        case "bücher.example", "BÜCHER.example": return "xn--bcher-kva.example"
        case "１２７.0.0.1": return "127.0.0.1"
        case "a／b.example": return "a/b.example"
        default: throw HostNameEncoder.Failure("string contains a disallowed character")
        }
    }

    @Test(
        "an internationalized host is encoded, and nothing else of the URL",
        arguments: [
            Case("RFC 5891 4, a name", "http://bücher.example/", "http://xn--bcher-kva.example/"),
            Case("RFC 5891 4, upper case", "HTTP://BÜCHER.example", "http://xn--bcher-kva.example/"),
            Case("URL standard 3.5, escaped", "http://b%c3%BCcher.example/", "http://xn--bcher-kva.example/"),
            Case(
                "RFC 3986 3.2, all parts", "https://u:p@bücher.example:8443/ü/../é?ß#x",
                "https://u:p@xn--bcher-kva.example:8443/%C3%A9?%C3%9F"),
            Case("RFC 3986 3.5, fragment after the host", "http://bücher.example#@ü", "http://xn--bcher-kva.example/"),
            Case("URL standard 3.5, digits that are an address", "http://１２７.0.0.1/", "http://127.0.0.1/"),
        ])
    func isEncoded(_ row: Case<String>) throws {
        #expect(try FetchURL(row.input, hostEncoder: Self.hosts).description == row.expected)
        let base = try FetchURL("ftp://example.org/a")
        #expect(try base.resolve(row.input, hostEncoder: Self.hosts).description == row.expected, "as a reference")
    }

    @Test func `both forms of a host are one URL and one origin`() throws {
        let url = try FetchURL("https://bücher.example/a", hostEncoder: Self.hosts)
        let ascii = try FetchURL("https://xn--bcher-kva.example/a")
        #expect(url == ascii)
        #expect(url.origin == ascii.origin)
    }

    @Test(
        "a host without an ASCII form is refused with the reason",
        arguments: [
            Case(
                "UTS 46 4, refused by the encoder", "http://☃.example/",
                FetchURL.ParseError.invalidHostName("string contains a disallowed character")),
            Case(
                "URL standard 3.5, a delimiter after mapping", "http://a／b.example/",
                .invalidHostName("string contains a disallowed character")),
            Case("URL standard 3.5, not UTF-8", "http://caf%E9.example/", .invalidHostName("it is not UTF-8")),
            Case("RFC 3986 3.2.2, escaped ASCII", "http://%68/", .escapedHost),
            Case("RFC 3986 3.2.2, another scheme", "thumb://bücher.example/", .nonASCIIHost),
            Case("RFC 3986 3.2.1, user information", "http://ü@bücher.example/", .invalidUserinfo),
        ])
    func isRefused(_ row: Case<FetchURL.ParseError>) {
        #expect(throws: row.expected) { try FetchURL(row.input, hostEncoder: Self.hosts) }
    }

    @Test func `a redirect may lead to an internationalized host, escaped or in UTF-8`() throws {
        let request = HTTPRequest(method: .get, url: try FetchURL("http://a.example/"), fields: HeaderFields())
        for location in ["http://bücher.example/é", "//b%C3%BCcher.example/%C3%A9"] {
            let outcome = RedirectRule().outcome(
                status: 302, response: HeaderFields(lines: Array("location: \(location)".utf8)), request: request,
                hops: 0, ancestors: [], hosts: Self.hosts)
            guard case .follow(let next) = outcome else {
                Issue.record("\(outcome)")
                continue
            }
            #expect(next.url.description == "http://xn--bcher-kva.example/%C3%A9")
        }
    }
}
