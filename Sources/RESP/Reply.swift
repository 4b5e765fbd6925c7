/// Reply of a server, in version 2 of its protocol (RESP2).
public indirect enum Reply: Hashable, Sendable {
    /// Status such as `OK`.
    case status(String)
    /// Error text, which starts with a word in capital letters.
    case error(String)
    case integer(Int)
    case bytes([UInt8])
    case array([Reply])
    case null

    /// Text of a status or of bytes; nil for other replies.
    public var text: String? {
        switch self {
        case .status(let text): text
        case .bytes(let bytes): String(decoding: bytes, as: UTF8.self)
        case .error, .integer, .array, .null: nil
        }
    }
}
