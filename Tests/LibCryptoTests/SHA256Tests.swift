import LibCrypto
import Testing

/// Vectors of FIPS 180-2, appendix B, and the empty message.
@Suite struct SHA256Tests {
    static let twoBlocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"

    @Test(
        "a published vector gives its published digest",
        arguments: [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (twoBlocks, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
        ])
    func vector(text: String, hex: String) {
        let bytes = Array(text.utf8)
        #expect(SHA256.digest(of: bytes.span).hex == hex)
    }

    @Test func `a million bytes added in uneven parts give the published digest`() {
        var hash = SHA256()
        let part = [UInt8](repeating: UInt8(ascii: "a"), count: 997)
        var left = 1_000_000
        while left > 0 {
            let count = min(left, part.count)
            hash.update(part.span.extracting(0..<count))
            left -= count
        }
        let digest = hash.finalize()
        #expect(digest.hex == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0")
    }

    @Test func `a copy has the bytes so far, and neither has those of the other`() {
        var hash = SHA256()
        hash.update(Array("a".utf8).span)
        var copy = hash.copy()
        hash.update(Array("b".utf8).span)
        copy.update(Array("c".utf8).span)
        let digests = [hash.finalize(), copy.finalize()]
        #expect(digests == [SHA256.digest(of: Array("ab".utf8).span), SHA256.digest(of: Array("ac".utf8).span)])
    }

    @Test func `a digest is read back from its text in either case`() throws {
        let bytes = Array("abc".utf8)
        let digest = SHA256.digest(of: bytes.span)
        #expect(Digest(hex: digest.hex) == digest)
        #expect(Digest(hex: digest.hex.uppercased()) == digest)
        #expect(Digest(hex: String(digest.hex.dropLast(2))) == nil)
        #expect(Digest(hex: String(digest.hex.dropLast()) + "g") == nil)
    }
}
