import EarshotHTTP
import Testing

/// Proxy settings in the environment and in URLs.
struct ProxyRuleTests {
    private func proxy(_ url: String, _ variables: [String: String]) throws -> String? {
        try ProxyRule { variables[$0] }.proxy(for: try FetchURL(url))?.url(for: try FetchURL(url))
    }

    @Test func `each scheme has its variable, and one is for all`() throws {
        let variables = ["http_proxy": "a:1", "https_proxy": "http://b:2", "ALL_PROXY": "socks5://c:3"]
        #expect(try proxy("http://x/", variables) == "http://a:1")
        #expect(try proxy("https://x/", variables) == "http://b:2")
        #expect(try proxy("https://x/", ["ALL_PROXY": "socks5://c:3"]) == "socks5h://c:3")
        #expect(try proxy("https://x/", ["HTTPS_PROXY": "b:2"]) == "http://b:2")
        #expect(try proxy("http://x/", [:]) == nil)
        #expect(try proxy("http://x/", ["http_proxy": ""]) == nil)
    }

    @Test func `the upper form of http_proxy is not believed`() throws {
        #expect(try proxy("http://x/", ["HTTP_PROXY": "evil:1"]) == nil)
    }

    @Test(arguments: [
        ("http://example.org/", "example.org", true), ("http://a.example.org/", "example.org", true),
        ("http://a.example.org/", ".example.org", true), ("http://example.org/", ".example.org", true),
        ("http://badexample.org/", "example.org", false), ("http://EXAMPLE.org./", "Example.ORG", true),
        ("http://example.org/", "other, example.org", true), ("http://example.org/", "other example.org", true),
        ("http://example.org/", "*", true), ("http://example.org/", "*.org", false),
        ("http://10.1.2.3/", "10.0.0.0/8", true), ("http://11.1.2.3/", "10.0.0.0/8", false),
        ("http://10.1.2.3/", "10.1.2.3", true), ("http://[::1]/", "::1", true),
        ("http://[fe80::1]/", "fe80::/10", true),
        ("http://10.1.2.3/", "3", false), ("http://example.org/", "", false), ("http://example.org/", ".", false),
        ("http://127.0.0.1/", "127.0.0.1/8", true), ("http://127.0.0.9/", "127.0.0.1/24", true),
        ("http://127.0.1.9/", "127.0.0.1/24", false), ("http://[::1:2:3:4]/", "::1/64", true),
        ("http://[1::1]/", "::1/64", false), ("http://10.1.2.3/", "::ffff:10.9.9.9/104", true),
        ("http://[::1]/", "[::1]", true), ("http://example.org/", "a\texample.org", true),
        ("http://example.org/", "a\n,\r\n example.org\u{b}", true), ("http://example.org/", "a,*", true),
    ])
    func `exceptions are names, what is below them, and networks`(url: String, exceptions: String, isExcepted: Bool)
        throws
    {
        let found = try proxy(url, ["http_proxy": "p:1", "no_proxy": exceptions])
        #expect((found == nil) == isExcepted)
    }

    @Test(arguments: [
        ("10.0.0.1/8, example.org .b.c. ::1/64 [::1] * host_name", []),
        (
            "10.0.0.0/33,*.org,a:80,10.0.0.256,3,http://a,é.org,.",
            ["10.0.0.0/33", "*.org", "a:80", "10.0.0.256", "3", "http://a", "é.org", "."]
        ),
    ])
    func `an exception that has no effect is known`(text: String, unknown: [String]) {
        #expect(ProxyRule { $0 == "no_proxy" ? text : nil }.unknownExceptions == unknown)
    }

    @Test(arguments: [("http_proxy", "ftp://p"), ("http_proxy", "http://p:0"), ("ALL_PROXY", "http://a b")])
    func `a malformed proxy of the environment is an error and no direct connection`(name: String, value: String) throws
    {
        let rule = ProxyRule { $0 == name ? value : nil }
        let url = try FetchURL("http://x/")
        #expect(throws: ProxyAddress.ParseError.self) { try rule.proxy(for: url) }
    }

    @Test(arguments: [
        ("http://p", "http://p:1080"), ("https://p", "https://p:443"), ("socks5://P:9", "socks5h://p:9"),
        ("socks5h://p", "socks5h://p:1080"), ("http://u:p@p:80/", "http://u:p@p:80"),
        ("http://u@x@p:80", "http://u%40x@p:80"), ("http://u:a/b?c#d%20@p:80", "http://u:a%2Fb%3Fc%23d%20@p:80"),
        ("p", "http://p:1080"), ("p:80", "http://p:80"), ("u:p@p:80", "http://u:p@p:80"),
        ("[::1]:80", "http://[::1]:80"),
        ("socks4://p", "socks4a://p:1080"), ("socks4a://p", "socks4a://p:1080"), ("SOCKS://p", "socks5h://p:1080"),
        ("socks5h://u:p@[::1]", "socks5h://u:p@[::1]:1080"),
        ("HTTP://[::1]:8080", "http://[::1]:8080"), ("http://[::1]", "http://[::1]:1080"),
        ("http://127.1:80", "http://127.0.0.1:80"),
    ])
    func `a proxy is told complete`(text: String, url: String) throws {
        #expect(try ProxyAddress(text).url(for: try FetchURL("http://x/")) == url)
    }

    @Test func `SOCKS 4 takes an IPv4 address as it is, and needs the extension 4A for anything else`() throws {
        let proxy = try ProxyAddress("socks4a://p")
        #expect(try proxy.url(for: FetchURL("https://10.0.0.1/")) == "socks4://p:1080")
        #expect(try proxy.url(for: FetchURL("https://[::1]/")) == "socks4a://p:1080")
    }

    @Test(
        arguments: [
            ("", .invalidHost), ("ftp://p", .unsupportedScheme), ("http://", .invalidHost),
            ("http://:80", .invalidHost), ("http://p:0", .invalidPort),
            ("http://p:65536", .invalidPort), ("http://p:x", .invalidPort), ("http://p/a", .invalidHost),
            ("http://p?q", .invalidHost),
            ("http://a b", .invalidHost), ("http://[::1", .invalidHost), ("://p", .unsupportedScheme),
            ("http://ü:p@p", .invalidUserinfo),
            ("http://::1:80", .invalidHost), ("http://a\u{0}@p", .invalidUserinfo), ("socks6://p", .unsupportedScheme),
        ] as [(String, ProxyAddress.ParseError)])
    func `text that is no proxy is refused with its fault and the wanted form`(
        text: String, fault: ProxyAddress.ParseError
    ) {
        #expect(throws: fault) { try ProxyAddress(text) }
        #expect(fault.description.hasSuffix("; give \(ProxyAddress.ParseError.acceptedForms)."))
    }
}
