internal import ZeroMQ

/// An inline body as it came from a worker, or from the cache, sent to each subscriber without a copy.
final class SharedBody {
    private let message: Message

    init(_ message: consuming Message) {
        self.message = message
    }

    /// Takes bytes from elsewhere.
    convenience init(_ bytes: [UInt8]) throws(ZeroMQError) {
        self.init(try Message.make(bytes))
    }

    /// The bytes, copied.
    func bytes() -> [UInt8] { message.bytes() }

    /// A message that shares the bytes, for one send.
    func share() throws(ZeroMQError) -> Message {
        try message.shared()
    }
}
