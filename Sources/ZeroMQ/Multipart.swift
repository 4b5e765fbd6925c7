internal import CLibZMQ

/// The frames of one received message, in storage that is used again for the next one: receiving allocates nothing.
///
/// See ``Socket/receive(into:)``. An index outside `0..<count` is a fault of the caller.
@safe public struct Multipart: ~Copyable {
    /// `capacity` initialized frames; the last one takes what is drained.
    private let frames: UnsafeMutablePointer<zmq_msg_t>
    /// Frames kept of one message.
    public let capacity: Int
    /// Frames of the current message that are kept.
    public private(set) var count = 0
    /// Frames of the current message beyond `capacity`: received, counted and dropped.
    public private(set) var surplus = 0

    /// Makes room for messages of up to `capacity` frames.
    public init(capacity: Int) {
        precondition(capacity > 0, "a message has at least one frame, room was asked for \(capacity)")
        self.capacity = capacity
        unsafe frames = .allocate(capacity: capacity + 1)
        for index in 0...capacity { unsafe zmq_msg_init(frames + index) }
    }

    deinit {
        for index in 0...capacity { unsafe zmq_msg_close(frames + index) }
        unsafe frames.deallocate()
    }

    /// Bytes in frame `index`.
    public func byteCount(_ index: Int) -> Int {
        unsafe zmq_msg_size(frame(index))
    }

    /// The bytes of frame `index`, copied.
    public func bytes(_ index: Int) -> [UInt8] {
        unsafe withUnsafeBytes(index) { unsafe [UInt8]($0) }
    }

    /// Calls `body` with the bytes of frame `index`, which are valid during the call only.
    public func withUnsafeBytes<Result: ~Copyable, Failure: Error>(
        _ index: Int, _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let frame = unsafe frame(index)
        return try unsafe body(UnsafeRawBufferPointer(start: zmq_msg_data(frame), count: zmq_msg_size(frame)))
    }

    /// As ``Message/property(_:)``, of frame `index`.
    public func property(_ name: String, of index: Int) -> String? {
        guard let value = unsafe zmq_msg_gets(frame(index), name) else { return nil }
        return unsafe String(cString: value)
    }

    /// As ``Message/sourceDescriptor``, of frame `index`.
    public func sourceDescriptor(of index: Int) -> Int32? {
        let descriptor = unsafe zmq_msg_get(frame(index), ZMQ_SRCFD)
        return descriptor >= 0 ? descriptor : nil
    }

    /// Moves frame `index` out, without copying its bytes, and leaves an empty one.
    public mutating func take(_ index: Int) -> Message {
        let message = Message()
        // Fails for an invalid message only, and both were initialized.
        unsafe zmq_msg_move(message.pointer, frame(index))
        return message
    }

    /// Forgets the message; memory of large frames goes back now instead of with the next message.
    public mutating func removeAll() {
        for index in 0..<(count + min(surplus, 1)) {
            unsafe zmq_msg_close(frames + index)
            unsafe zmq_msg_init(frames + index)
        }
        count = 0
        surplus = 0
    }

    /// Where the next frame goes.
    var nextSlot: UnsafeMutablePointer<zmq_msg_t> { unsafe frames + count }

    /// Notes that ``nextSlot`` was filled.
    mutating func slotWasFilled() {
        if count < capacity { count += 1 } else { surplus += 1 }
    }

    private func frame(_ index: Int) -> UnsafeMutablePointer<zmq_msg_t> {
        precondition(index >= 0 && index < count, "frame \(index) of a message of \(count)")
        return unsafe frames + index
    }
}
