import EarshotClient
import Testing

/// File names that are derived from URLs.
@Suite struct SafeFileNamesTests {
    @Test(arguments: [
        ("http://h/a.png", "a.png"), ("http://h/a/b/c.tar.gz?x=/y#/z", "c.tar.gz"), ("http://h/a/", "a"),
        ("http://h", "download"), ("http://h/", "download"), ("http://h/?q=1", "download"), ("", "download"),
        ("http://h/%2e%2e%2fetc", "_etc"), ("http://h/..", "download"), ("http://h/.profile", "profile"),
        ("http://h/-rf", "rf"), ("http://h/a%00b%0ac", "a_b_c"), ("http://h/a%1b[31m", "a_[31m"),
        ("http://h/%C3%A4.txt", "\u{e4}.txt"), ("http://h/%C3.txt", "%C3.txt"), ("http://h/a%5cb", "a_b"),
        ("http://h/gpj.%E2%80%AEexe", "gpj._exe"), ("http://h/%20%2d%2dx", "x"), ("http://h/100%", "100%"),
        ("http://h/a//", "a"), ("//h/b", "b"), ("a:b/c://d/e", "e"), ("http:/h", "h"), ("http://h/a b", "a b"),
        ("http://h/\u{e4}/\u{301}x", "\u{301}x"),
        ("http://h/a?b=/c", "a"), ("http://h/a#/b", "a"), ("http://h?/a", "download"), ("http://h/%61/b", "b"),
        ("http://h/a/?b", "a"), ("h/b", "b"), ("/b", "b"), ("b", "b"), ("/", "download"),
    ])
    func `a name is safe`(url: String, name: String) {
        var names = SafeFileNames()
        #expect(names.name(for: url) == name)
    }

    @Test func `each name is given once, whatever the case of its letters`() {
        var names = SafeFileNames()
        let used = ["a.png", "a.png", "A.png", "a-2.png", "a.png", "b", "b", ".b"].map {
            names.name(for: "http://h/\($0)")
        }
        #expect(used == ["a.png", "a-2.png", "A-3.png", "a-2-2.png", "a-4.png", "b", "b-2", "b-3"])
    }

    @Test(arguments: [
        (String(repeating: "a", count: 251) + ".txt", String(repeating: "a", count: 251) + ".txt"),
        (String(repeating: "a", count: 300) + ".txt", String(repeating: "a", count: 251) + ".txt"),
        (String(repeating: "a", count: 300) + ".tar.gz", String(repeating: "a", count: 248) + ".tar.gz"),
        (String(repeating: "a", count: 300), String(repeating: "a", count: 255)),
        ("b." + String(repeating: "a", count: 300), "b." + String(repeating: "a", count: 253)),
        (String(repeating: "%C3%A4", count: 500), String(repeating: "\u{e4}", count: 127)),
        (String(repeating: "%C3%A4", count: 500) + ".c", String(repeating: "\u{e4}", count: 126) + ".c"),
    ])
    func `a name is whole up to 255 bytes, and a longer one keeps its extension`(used: String, name: String) {
        #expect(SafeFileNames.fileName(ofURL: "http://h/" + used) == name)
    }

    @Test func `the number of a repeated name fits, too`() {
        var names = SafeFileNames()
        let long = "http://h/d/" + String(repeating: "%C3%A4", count: 125) + ".txt"
        #expect(names.name(for: long).utf8.count == 254)
        #expect(names.name(for: long) == String(repeating: "\u{e4}", count: 124) + "-2.txt")
        #expect(names.uniqueName("x/" + String(repeating: "a", count: 255)).utf8.count == 257)
        #expect(
            names.uniqueName("x/" + String(repeating: "a", count: 255)) == "x/" + String(repeating: "a", count: 253)
                + "-2")
    }

    @Test(
        arguments: [
            0x7f, 0x85, 0xad, 0x34f, 0x61c, 0x115f, 0x180e, 0x200b, 0x200d, 0x200f, 0x2028, 0x202e, 0x2060, 0x2066,
            0x206f,
            0x3164, 0xfeff, 0xfff9, 0xffff, 0x1bca0, 0x1d173, 0xe0001, 0xe0041, 0xe007f, 0xe0100, 0xe0fff, 0x10fee9,
            0x10ffff,
        ] as [UInt32])
    func `invisible and direction characters are neither in names nor in messages`(value: UInt32) throws {
        let scalar = try #require(Unicode.Scalar(value))
        let encoded = String(scalar).utf8.map { "%" + String($0, radix: 16) }.joined()
        var names = SafeFileNames()
        #expect(names.name(for: "http://h/a\(encoded)b") == "a_b")
        #expect(names.name(for: "http://h/c\(scalar)d") == "c_d")
        let escaped = TerminalText.escaped("a\(scalar)b")
        #expect(escaped == (value == 0x10fee9 ? "a\\xe9b" : "a\\u{\(String(value, radix: 16))}b"))
    }

    @Test func `letters of all scripts and emoji stay`() {
        let text = "\u{e4}\u{301}\u{627}\u{5d0}\u{915}\u{93f}\u{4e2d}\u{1f600}\u{2764}\u{fe0f}\u{f8ff}"
        #expect(TerminalText.escaped(text) == text)
        var names = SafeFileNames()
        #expect(names.name(for: "http://h/\(text)") == text)
    }

    @Test func `strangers' text cannot command a terminal`() {
        #expect(TerminalText.escaped("a\u{1b}[2J\nb\u{202e}c\u{9b}") == "a\\u{1b}[2J\\u{a}b\\u{202e}c\\u{9b}")
        #expect(TerminalText.escaped("plain \u{e4} text") == "plain \u{e4} text")
    }
}
