internal import EarshotWire
internal import LibCrypto

extension FlightIdentity {
    /// Creates an identity from the first 128 bits of the SHA-256 of `bytes`. Brokers of later versions compare it with
    /// theirs.
    @Sendable
    init(digestOf bytes: [UInt8]) {
        let digest = SHA256.digest(of: bytes.span).bytes
        func word(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        self.init(high: word(digest[..<8]), low: word(digest[8..<16]))
    }
}
