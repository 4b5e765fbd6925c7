import LibCrypto
import Testing

/// Random bytes, and hexadecimal text.
@Suite struct SecretTests {
    @Test func `random bytes come in the number asked for and differ`() {
        #expect(Secret.randomBytes(0).isEmpty)
        let one = Secret.randomBytes(32)
        let other = Secret.randomBytes(32)
        #expect(one.count == 32)
        #expect(one != other)
        // More than the 256 bytes that getrandom(2) returns in one call.
        #expect(Secret.randomBytes(100_000).count == 100_000)
    }

    @Test func `hexadecimal text is written in lower case and read strictly`() {
        #expect(Hex.encode([0x00, 0x9f, 0xA0, 0xff]) == "009fa0ff")
        #expect(Hex.decode("009FA0ff") == [0x00, 0x9f, 0xA0, 0xff])
        #expect(Hex.decode("") == [])
        #expect(Hex.decode("abc") == nil)
        #expect(Hex.decode("0x") == nil)
        #expect(Hex.decode(" 1") == nil)
    }
}
