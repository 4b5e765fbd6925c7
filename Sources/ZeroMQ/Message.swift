internal import CLibZMQ

/// One frame. Its bytes are shared, not copied, with every ``shared()`` of it and with the sockets it was sent to.
@safe public struct Message: ~Copyable {
    /// At a fixed address for life: up to 33 bytes of data are inside, and libzmq refuses a `zmq_msg_t` that moved.
    let pointer: UnsafeMutablePointer<zmq_msg_t>

    /// An empty frame.
    init() {
        unsafe pointer = .allocate(capacity: 1)
        // Cannot fail: zmq_msg_init(3) always returns zero.
        unsafe zmq_msg_init(pointer)
    }

    /// Makes a frame of `count` bytes and lets `fill` write them.
    ///
    /// - Throws: `ZeroMQError` (`ENOMEM`) when there is no memory for it.
    public static func make(
        count: Int, fill: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(ZeroMQError) -> Message {
        let message = Message()
        guard unsafe zmq_msg_init_size(message.pointer, count) == 0 else {
            let error = ZeroMQError("zmq_msg_init_size")
            unsafe zmq_msg_init(message.pointer)
            throw error
        }
        unsafe fill(UnsafeMutableRawBufferPointer(start: zmq_msg_data(message.pointer), count: count))
        return message
    }

    /// Makes a frame with a copy of `bytes`.
    public static func make(_ bytes: [UInt8]) throws(ZeroMQError) -> Message {
        unsafe try make(count: bytes.count) { target in unsafe target.copyBytes(from: bytes) }
    }

    deinit {
        unsafe zmq_msg_close(pointer)
        unsafe pointer.deallocate()
    }

    /// Bytes in the frame; 0 once it was sent.
    public var count: Int { unsafe zmq_msg_size(pointer) }

    /// Whether another frame of the same message follows.
    public var hasMore: Bool { unsafe zmq_msg_more(pointer) != 0 }

    /// The bytes, copied.
    public func bytes() -> [UInt8] {
        unsafe withUnsafeBytes { unsafe [UInt8]($0) }
    }

    /// Calls `body` with the frame's bytes, which are valid during the call only.
    public func withUnsafeBytes<Result: ~Copyable, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try unsafe body(UnsafeRawBufferPointer(start: zmq_msg_data(pointer), count: zmq_msg_size(pointer)))
    }

    /// What libzmq knows of the connection the frame came by.
    ///
    /// A router's *first* frame may carry none (a fault of libzmq 4.3.4): ask the second one. `Peer-Address` is
    /// `localhost:UID:GID:PID` on ipc and the number without the port on tcp.
    public func property(_ name: String) -> String? {
        guard let value = unsafe zmq_msg_gets(pointer, name) else { return nil }
        return unsafe String(cString: value)
    }

    /// The descriptor of the connection the frame came by: the same number that a ``Monitor`` names when it ends.
    /// Numbers are used again, so it identifies the connection only as long as that stands.
    public var sourceDescriptor: Int32? {
        let descriptor = unsafe zmq_msg_get(pointer, ZMQ_SRCFD)
        return descriptor >= 0 ? descriptor : nil
    }

    /// A second owner of the same bytes (copied only if they are 33 or fewer): a fan-out costs one body.
    public func shared() throws(ZeroMQError) -> Message {
        let copy = Message()
        guard unsafe zmq_msg_copy(copy.pointer, pointer) == 0 else { throw ZeroMQError("zmq_msg_copy") }
        return copy
    }
}
