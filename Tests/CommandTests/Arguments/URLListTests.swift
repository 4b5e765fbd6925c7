import Testing

@testable import earshot

/// Lists of URLs with options, in a file and in pieces of standard input.
@Suite struct URLListTests {
    private func urls(_ text: [UInt8], pieces: Int) -> [String] {
        entries(text, pieces: pieces).map(\.url)
    }

    private func entries(_ text: [UInt8], pieces: Int = 1000) -> [ListEntry] {
        var list = URLList()
        var entries: [ListEntry] = []
        for start in stride(from: 0, to: text.count, by: pieces) {
            entries += list.parse(text[start..<min(start + pieces, text.count)])
        }
        return entries + list.finish()
    }

    private static let digest = String(repeating: "0a", count: 32)

    @Test(arguments: [1, 3, 1000])
    func `indented lines are options of the URL above them`(pieces: Int) {
        let text = """
            \u{feff}http://h/a\r
              out=b/c.txt\r

              # a comment
            \theader=Accept: a=b
            http://h/b
             dir=x
             checksum=sha-256=\(Self.digest.uppercased())
            http://h/c?a=b
              http://h/d=e
            """
        #expect(
            entries(Array(text.utf8), pieces: pieces) == [
                ListEntry(url: "http://h/a", options: [.outputPath("b/c.txt"), .header("Accept: a=b")]),
                ListEntry(url: "http://h/b", options: [.outputDirectory("x"), .checksum(Self.digest)]),
                ListEntry(url: "http://h/c?a=b"), ListEntry(url: "http://h/d=e"),
            ])
    }

    @Test(arguments: [
        "out=/etc/passwd", "out=../x", "out=a/../../x", "out=", "dir=..", "dir=/", "header=no colon",
        "header=a: b\u{1b}",
        "checksum=md5=0", "checksum=sha-256=0", "split=5",
    ])
    func `an invalid option makes its entry invalid`(line: String) throws {
        let entry = try #require(entries(Array("http://h/a\n \(line)\n out=b".utf8)).first)
        #expect(entry.fault != nil)
    }

    @Test func `an option without a URL is an invalid entry with its line`() throws {
        let first = entries(Array("#\n out=a\nhttp://h/a".utf8))
        #expect(first.map(\.url) == ["line 2", "http://h/a"])
        #expect(first[0].fault != nil && first[1].fault == nil)
    }

    @Test func `a URL can be released before the next line`() {
        var list = URLList()
        #expect(list.parse(Array("http://h/a\n".utf8)[...]) == [] && list.hasOpenEntry)
        #expect(list.releaseLastEntry().map(\.url) == ["http://h/a"])
        #expect(!list.hasOpenEntry && list.releaseLastEntry() == [])
        #expect(list.parse(Array(" out=late\n".utf8)[...]).first?.fault?.contains("too late") == true)
        #expect(list.finish() == [])
    }

    @Test func `a URL has 99 options at most`() throws {
        let text = "http://h/a\n" + String(repeating: " out=a\n", count: 1_000)
        let entry = try #require(entries(Array(text.utf8)).first)
        #expect(entry.options.count == 100 && entry.fault?.contains("99") == true)
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
        #expect(URLText.wireForm(url) == nil)
    }
}

@Suite struct URLTextTests {
    @Test(arguments: [
        ("http://h/a", "http://h/a"), ("http://h/\u{e4}", "http://h/%C3%A4"), ("http://h/a b", nil),
        ("http://h/a\n", nil),
        ("http://h/\u{7f}", nil), ("", nil),
    ])
    func `a URL goes to the wire in ASCII or not at all`(text: String, wire: String?) {
        #expect(URLText.wireForm(text) == wire)
    }

    @Test func `a URL of the wire has 8,192 bytes at most`() {
        let most = "http://h/" + String(repeating: "a", count: 8_183)
        #expect(URLText.wireForm(most) == most)
        #expect(URLText.wireForm(most + "a") == nil)
        #expect(URLText.wireForm(String(repeating: "\u{e4}", count: 1_366)) == nil, "six bytes each")
    }

    @Test(arguments: [
        ("http://h/a/b", "http://h/a/b"), ("http://h/a?token=s", "http://h/a?..."), ("http://h/a#s", "http://h/a?..."),
        ("http://user:pass@h/a", "http://h/a"), ("http://user:p/a@ss@h/a?q", "http://...@h/a?..."),
        ("http://user:p?ss@h/a", "http://...?..."), ("http://h:80/a?b@c", "http://h:80/a?..."),
        ("user:pass@h/a", "h/a"), ("h/a", "h/a"), ("", ""), ("?s", "?..."),
    ])
    func `messages show no part of a URL that may be secret`(text: String, shown: String) {
        #expect(URLText.redacted(text) == shown)
    }
}
