internal import CLibZMQ

/// Frames of one received message. The storage is reused, so that receiving allocates nothing.
///
/// See ``Socket/receive(into:)``. An index outside `0..<count` is a programming error.
@safe public struct Multipart: ~Copyable {
    /// `capacity + 1` initialized frames; the last one receives surplus frames.
    private let frames: UnsafeMutablePointer<zmq_msg_t>
    /// Maximum number of stored frames per message.
    public let capacity: Int
    /// Stored frames of the current message.
    public private(set) var count = 0
    /// Frames of the current message beyond `capacity`: received, counted and discarded.
    public private(set) var surplusFrames = 0

    /// Allocates storage for messages of up to `capacity` frames. A ``Context`` must exist.
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

    /// Returns the number of bytes in frame `index`.
    public func byteCount(_ index: Int) -> Int {
        unsafe zmq_msg_size(framePointer(at: index))
    }

    /// Returns a copy of the bytes of frame `index`.
    public func bytes(_ index: Int) -> [UInt8] {
        unsafe withUnsafeBytes(index) { unsafe [UInt8]($0) }
    }

    /// Calls `body` with the bytes of frame `index`, which are valid only during the call.
    public func withUnsafeBytes<Result: ~Copyable, Failure: Error>(
        _ index: Int, _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let frame = unsafe framePointer(at: index)
        return try unsafe body(UnsafeRawBufferPointer(start: zmq_msg_data(frame), count: zmq_msg_size(frame)))
    }

    /// Moves frame `index` out without copying its bytes, and leaves an empty one.
    public mutating func takeFrame(at index: Int) -> MessageFrame {
        let message = MessageFrame()
        // Fails only for an invalid message; both are initialized.
        unsafe zmq_msg_move(message.pointer, framePointer(at: index))
        return message
    }

    /// Removes the message and frees the memory of large frames now rather than with the next message.
    public mutating func removeAll() {
        for index in 0..<(count + min(surplusFrames, 1)) {
            unsafe zmq_msg_close(frames + index)
            unsafe zmq_msg_init(frames + index)
        }
        count = 0
        surplusFrames = 0
    }

    /// Storage for the next frame.
    var nextFrameStorage: UnsafeMutablePointer<zmq_msg_t> { unsafe frames + count }

    /// Records that ``nextFrameStorage`` was filled.
    mutating func nextFrameWasFilled() {
        if count < capacity { count += 1 } else { surplusFrames += 1 }
    }

    private func framePointer(at index: Int) -> UnsafeMutablePointer<zmq_msg_t> {
        precondition(index >= 0 && index < count, "frame \(index) of a message of \(count)")
        return unsafe frames + index
    }
}
