/// SHA-256 digest: 32 bytes, written as 64 lower-case hexadecimal digits.
public struct Digest: Hashable, Sendable {
    /// Length of a SHA-256 digest in bytes.
    static let byteCount = 32

    /// Exactly `byteCount` bytes.
    public let bytes: [UInt8]

    /// Digest in lower-case hexadecimal, 64 characters.
    public var hex: String { Hex.encode(bytes) }

    init(checked bytes: [UInt8]) {
        precondition(bytes.count == Self.byteCount, "a digest of \(bytes.count) bytes")
        self.bytes = bytes
    }

    /// Parses 64 hexadecimal digits of either case; nil for anything else.
    public init?(hex: String) {
        guard let bytes = Hex.decode(hex), bytes.count == Self.byteCount else { return nil }
        self.bytes = bytes
    }
}
