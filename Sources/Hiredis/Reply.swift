internal import CHiredis

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

    /// - Parameter reply: A complete reply; the caller frees it.
    init(_ reply: UnsafePointer<redisReply>) {
        switch unsafe reply.pointee.type {
        case REDIS_REPLY_STATUS: self = unsafe .status(String(decoding: Self.text(reply), as: UTF8.self))
        case REDIS_REPLY_ERROR: self = unsafe .error(String(decoding: Self.text(reply), as: UTF8.self))
        case REDIS_REPLY_STRING: self = unsafe .bytes(Self.text(reply))
        case REDIS_REPLY_INTEGER: self = unsafe .integer(Int(reply.pointee.integer))
        case REDIS_REPLY_ARRAY:
            var elements: [Reply] = []
            elements.reserveCapacity(unsafe reply.pointee.elements)
            for index in 0..<(unsafe reply.pointee.elements) {
                let element = unsafe hiredis_reply_element(reply, index)
                elements.append(unsafe element.map { unsafe Reply($0) } ?? .null)
            }
            self = .array(elements)
        default: self = .null
        }
    }

    /// The text is a null pointer in replies of other types.
    private static func text(_ reply: UnsafePointer<redisReply>) -> [UInt8] {
        guard let start = unsafe reply.pointee.str else { return [] }
        let text = unsafe UnsafeRawBufferPointer(start: start, count: reply.pointee.len)
        return unsafe [UInt8](text)
    }

    /// Text of a status or of bytes; nil for other replies.
    public var text: String? {
        switch self {
        case .status(let text): text
        case .bytes(let bytes): String(decoding: bytes, as: UTF8.self)
        case .error, .integer, .array, .null: nil
        }
    }
}
