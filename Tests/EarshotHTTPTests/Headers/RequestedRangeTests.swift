import EarshotHTTP
import Testing

/// Ranges of bytes in a request.
@Suite struct RequestedRangeTests {
    @Test(
        "a single range of bytes selects offsets in a body of 10 bytes",
        arguments: [
            ("bytes=0-0", 0..<1), ("bytes=2-", 2..<10), ("bytes=9-9", 9..<10), ("bytes=0-99", 0..<10),
            ("bytes=-3", 7..<10), ("bytes=-99", 0..<10), ("BYTES=1-2", 1..<3),
            ("bytes=10-", nil), ("bytes=-0", nil), ("bytes=9223372036854775807-", nil),
        ] as [(String, Range<Int>?)])
    func satisfiable(_ text: String, _ expected: Range<Int>?) throws {
        let range = try #require(RequestedRange(fieldValue: text.utf8))
        #expect(range.offsets(in: 10) == expected)
    }

    @Test func `an empty body satisfies no range`() {
        for text in ["bytes=0-", "bytes=-1"] { #expect(RequestedRange(fieldValue: text.utf8)?.offsets(in: 0) == nil) }
    }

    @Test(
        "other text is no single range of bytes",
        arguments: [
            "", "bytes=", "bytes=-", "bytes=0-1,3-4", "bytes=3-1", "bytes= 0-1", "bytes=0-1 ", "bytes=a-b",
            "bytes=0x1-2",
            "items=0-1", "bytes 0-1", "bytes=--1", "bytes=1", "bytes=0-99999999999999999999", "bytes=+1-2",
        ])
    func malformed(_ text: String) {
        #expect(RequestedRange(fieldValue: text.utf8) == nil)
    }
}
