import Testing

@testable import earshot

@Suite struct URLListTests {
    private func urls(_ text: [UInt8], pieces: Int) -> [String] {
        var list = URLList()
        var urls: [String] = []
        for start in stride(from: 0, to: text.count, by: pieces) {
            urls += list.take(text[start..<min(start + pieces, text.count)])
        }
        return urls + list.finish()
    }

    @Test(arguments: [1, 2, 7, 1000])
    func `a line is a URL, whatever pieces the list comes in`(pieces: Int) {
        let text = "\u{feff}http://h/a\r\n\n  # a comment\n\thttp://h/b c \n#http://h/d\n   \nhttp://h/e"
        #expect(urls(Array(text.utf8), pieces: pieces) == ["http://h/a", "http://h/b c", "http://h/e"])
        #expect(urls(Array((text + "\n").utf8), pieces: pieces) == ["http://h/a", "http://h/b c", "http://h/e"])
        #expect(urls([], pieces: pieces) == [])
    }

    @Test func `a byte order mark belongs to a URL that is not the first`() {
        let text = "http://h/a\n\u{feff}http://h/b"
        #expect(urls(Array(text.utf8), pieces: 9) == ["http://h/a", "\u{feff}http://h/b"])
    }

    @Test func `a byte that is not UTF-8 becomes a percent sign`() {
        #expect(urls(Array("http://h/".utf8) + [0xe4, 0x0a], pieces: 4) == ["http://h/%E4"])
    }

    @Test func `a line is cut at 64 KiB, which no URL has`() throws {
        let url = try #require(urls([UInt8](repeating: 0x61, count: 200_000), pieces: 5_000).first)
        #expect(url.utf8.count == 64 << 10)
        #expect(URLText.wire(url) == nil)
    }
}

@Suite struct URLTextTests {
    @Test(arguments: [
        ("http://h/a", "http://h/a"), ("http://h/\u{e4}", "http://h/%C3%A4"), ("http://h/a b", nil),
        ("http://h/a\n", nil),
        ("http://h/\u{7f}", nil), ("", nil),
    ])
    func `a URL goes to the wire in ASCII or not at all`(text: String, wire: String?) {
        #expect(URLText.wire(text) == wire)
    }

    @Test func `a URL of the wire has 8,192 bytes at most`() {
        let most = "http://h/" + String(repeating: "a", count: 8_183)
        #expect(URLText.wire(most) == most)
        #expect(URLText.wire(most + "a") == nil)
        #expect(URLText.wire(String(repeating: "\u{e4}", count: 1_366)) == nil, "six bytes each")
    }

    @Test(arguments: [
        ("http://h/a/b", "http://h/a/b"), ("http://h/a?token=s", "http://h/a?..."), ("http://h/a#s", "http://h/a?..."),
        ("http://user:pass@h/a", "http://h/a"), ("http://user:p/a@ss@h/a?q", "http://...@h/a?..."),
        ("http://user:p?ss@h/a", "http://...?..."), ("http://h:80/a?b@c", "http://h:80/a?..."),
        ("user:pass@h/a", "h/a"), ("h/a", "h/a"), ("", ""), ("?s", "?..."),
    ])
    func `messages show no part of a URL that may be secret`(text: String, shown: String) {
        #expect(URLText.discreet(text) == shown)
    }
}
