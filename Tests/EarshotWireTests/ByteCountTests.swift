import EarshotWire
import Testing

/// Numbers of bytes as text.
@Suite struct ByteCountTests {
    @Test(arguments: [
        ("0", 0), ("65536", 65_536), ("64K", 65_536), ("64k", 65_536), ("3m", 3 << 20), ("2G", 2 << 30),
        ("1T", 1 << 40),
        ("9223372036854775807", Int.max), ("8388607T", 8_388_607 << 40),
    ])
    func `a suffix is a power of 1024`(text: String, bytes: Int) {
        #expect(ByteCount.parse(text) == bytes)
    }

    @Test(arguments: [
        "", "K", "1.5M", "-1", "+1", "1 K", "1KB", "1KiB", "1P", "1,000", "9223372036854775808", "8388608T", "1\u{b}",
        "K1",
        "18446744073709551615K",
    ])
    func `other text is no number of bytes`(text: String) {
        #expect(ByteCount.parse(text) == nil)
    }
}
