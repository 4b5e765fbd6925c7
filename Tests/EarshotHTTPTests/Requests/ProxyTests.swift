import EarshotHTTP
import Testing

/// Proxy settings in the environment and in URLs.
struct ProxyTests {
    private func proxy(_ url: String, _ variables: [String: String]) throws -> String? {
        ProxyRule { variables[$0] }.proxy(for: try FetchURL(url))
    }

    @Test func `each scheme has its variable, and one is for all`() throws {
        let variables = ["http_proxy": "a:1", "https_proxy": "http://b:2", "ALL_PROXY": "socks5://c:3"]
        #expect(try proxy("http://x/", variables) == "http://a:1")
        #expect(try proxy("https://x/", variables) == "http://b:2")
        #expect(try proxy("https://x/", ["ALL_PROXY": "socks5://c:3"]) == "socks5://c:3")
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
    ])
    func `exceptions are names, what is below them, and networks`(url: String, exceptions: String, isExcepted: Bool)
        throws
    {
        let found = try proxy(url, ["http_proxy": "p:1", "no_proxy": exceptions])
        #expect((found == nil) == isExcepted)
    }

    @Test(arguments: [
        ("http://p", "http://p:1080"), ("https://p", "https://p:443"), ("socks5://P:9", "socks5h://p:9"),
        ("socks5h://p", "socks5h://p:1080"), ("http://u:p@p:80/", "http://u:p@p:80"),
        ("http://u@x@p:80", "http://u@x@p:80"),
        ("HTTP://[::1]:8080", "http://[::1]:8080"), ("http://[::1]", "http://[::1]:1080"),
        ("http://127.1:80", "http://127.0.0.1:80"),
    ])
    func `a proxy is told complete`(text: String, url: String) {
        #expect(ProxyAddress(text)?.url == url)
    }

    @Test(arguments: [
        "", "p", "p:80", "ftp://p", "http://", "http://:80", "http://p:0", "http://p:65536", "http://p:x", "http://p/a",
        "http://p?q", "http://a b", "http://[::1", "socks4://p", "://p",
    ])
    func `what is no proxy is none`(text: String) {
        #expect(ProxyAddress(text) == nil)
    }
}
