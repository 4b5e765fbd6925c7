internal import CLibZMQ

/// One frame. Its bytes are shared, not copied, with each ``shared()`` frame and with the sockets it was sent to.
@safe public struct MessageFrame: ~Copyable {
    /// Stable address: a frame of up to 33 bytes is stored inside, and libzmq rejects a `zmq_msg_t` that was moved.
    let pointer: UnsafeMutablePointer<zmq_msg_t>

    /// Creates an empty frame.
    init() {
        unsafe pointer = .allocate(capacity: 1)
        // Cannot fail: zmq_msg_init(3) always returns zero.
        unsafe zmq_msg_init(pointer)
    }

    /// Creates a frame of `count` bytes, which `fill` writes.
    ///
    /// - Throws: `ZeroMQError` (`ENOMEM`) without memory.
    public static func make(
        count: Int, fill: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(ZeroMQError) -> MessageFrame {
        try ZeroMQLibrary.load()
        let message = MessageFrame()
        guard unsafe zmq_msg_init_size(message.pointer, count) == 0 else {
            let error = ZeroMQError("zmq_msg_init_size")
            unsafe zmq_msg_init(message.pointer)
            throw error
        }
        unsafe fill(UnsafeMutableRawBufferPointer(start: zmq_msg_data(message.pointer), count: count))
        return message
    }

    /// Creates a frame with a copy of `bytes`.
    public static func make(_ bytes: [UInt8]) throws(ZeroMQError) -> MessageFrame {
        unsafe try make(count: bytes.count) { target in unsafe target.copyBytes(from: bytes) }
    }

    deinit {
        unsafe zmq_msg_close(pointer)
        unsafe pointer.deallocate()
    }

    /// Number of bytes in the frame; 0 after it was sent.
    public var count: Int { unsafe zmq_msg_size(pointer) }

    /// Whether another frame of the same message follows.
    public var hasMore: Bool { unsafe zmq_msg_more(pointer) != 0 }

    /// Returns a copy of the bytes.
    public func bytes() -> [UInt8] {
        unsafe withUnsafeBytes { unsafe [UInt8]($0) }
    }

    /// Calls `body` with the frame's bytes, which are valid only during the call.
    public func withUnsafeBytes<Result: ~Copyable, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try unsafe body(UnsafeRawBufferPointer(start: zmq_msg_data(pointer), count: zmq_msg_size(pointer)))
    }
}
