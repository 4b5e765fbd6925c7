import EarshotLoop
import Testing

/// Text for bytes that need not be UTF-8.
@Suite struct ByteTextTests {
    @Test func `UTF-8 is the text that it is`() {
        for text in ["", "a", "caf\u{e9}", "\u{1f600}\u{10ffff}", "e\u{301}"] {
            #expect(Array(ByteText.text(of: Array(text.utf8)).utf8) == Array(text.utf8))
            #expect(ByteText.bytes(of: text) == Array(text.utf8))
            #expect(!ByteText.containsNonUTF8Bytes(text))
        }
    }

    @Test(
        arguments: [
            [0x63, 0xe9], [0xe9, 0x63], [0x80], [0xc3], [0xc3, 0xa9, 0xff], [0xe2, 0x82], [0xf0, 0x9f, 0x98],
            [0xc0, 0x80],
            [0xed, 0xa0, 0x80], [0xf4, 0x8f, 0xba, 0x80], [0xf4, 0x8f, 0xbb, 0xbf, 0x61], [0xf5, 0xff, 0xfe],
        ] as [[UInt8]])
    func `bytes that are not UTF-8 come back`(bytes: [UInt8]) {
        let text = ByteText.text(of: bytes)
        #expect(ByteText.containsNonUTF8Bytes(text))
        #expect(ByteText.bytes(of: text) == bytes)
        #expect(ByteText.cString(text).map { UInt8(bitPattern: $0) } == bytes + [0])
    }

    @Test func `any bytes come back`() {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<2_000 {
            let count = Int.random(in: 0..<12, using: &generator)
            let bytes = (0..<count).map { _ in
                [UInt8.random(in: 1...255, using: &generator), 0xf4, 0x8f, 0xba, 0xbb, 0x80].randomElement() ?? 1
            }
            #expect(ByteText.bytes(of: ByteText.text(of: bytes)) == bytes)
        }
    }
}
