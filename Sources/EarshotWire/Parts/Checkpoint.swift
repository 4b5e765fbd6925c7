/// Bytes at the start of a growing body that are certainly on the disk, with their hash.
public struct Checkpoint: Equatable, Sendable, CustomStringConvertible {
    /// Number of bytes, at least 1.
    public let bytes: Int
    /// SHA-256 of these bytes, 64 lower-case hexadecimal digits.
    public let sha256: String

    public init(bytes: Int, sha256: String) {
        self.bytes = bytes
        self.sha256 = sha256
    }

    /// Parses the text on the wire and in files: `LENGTH SHA256`.
    init?(_ text: String) {
        let words = text.split(separator: " ")
        guard words.count == 2, let bytes = Int(words[0]), bytes > 0, Ascii.isSHA256(Array(words[1].utf8)[...]) else {
            return nil
        }
        self.init(bytes: bytes, sha256: String(words[1]))
    }

    public var description: String { "\(bytes) \(sha256)" }
}
