internal import EarshotLoop

/// Bytes that were read but not yet consumed.
///
/// Memory is allocated only while the buffer is not empty, because few of a thousand connections are active at a time.
@safe struct InputBuffer: ~Copyable {
    /// Maximum number of bytes per read: as much as a Unix socket buffers, or some hundred small messages.
    private static let capacity = 65_536

    private var memory: UnsafeMutableRawBufferPointer?
    private var start = 0
    private var end = 0

    deinit { unsafe memory?.deallocate() }

    var count: Int { end - start }

    /// The frame that starts with the next byte. One access answers all questions of ``MessageStream`` about it.
    var nextFrame: NextFrame {
        guard count >= Frame.minimumHeaderBytes, let memory = unsafe memory else { return .incomplete }
        let start = start
        guard count >= Frame.headerBytes(flags: unsafe memory[start]) else { return .incomplete }
        guard let header = Frame.parseHeader({ unsafe memory[start + $0] }) else { return .invalidFlags }
        return .frame(header, isWhole: UInt64(count - header.headerBytes) >= header.count)
    }

    /// Reads more bytes after the unconsumed ones. The buffer must not be full.
    ///
    /// - Parameter spare: Source of memory for an empty buffer.
    /// - Returns: Result of the read, and whether it filled the buffer.
    mutating func read(_ descriptor: Int32, _ spare: SpareBuffer) -> (UnixSocket.TransferResult, isFull: Bool) {
        let memory =
            unsafe self.memory ?? spare.take() ?? .allocate(byteCount: Self.capacity, alignment: 16)
        unsafe self.memory = memory
        if start > 0 {
            unsafe memory.copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[start..<end]))
            (start, end) = (0, count)
        }
        let room = Self.capacity - end
        precondition(room > 0, "nothing of \(end) bytes was used")
        let outcome = unsafe UnixSocket.receive(
            descriptor, into: UnsafeMutableRawBufferPointer(rebasing: memory[end...]))
        guard case .bytesTransferred(let count) = outcome else {
            release(to: spare)
            return (outcome, false)
        }
        end += count
        return (outcome, count == room)
    }

    /// Consumes the next bytes and returns them. `passed + wanted` is at most `count`.
    ///
    /// - Parameter passed: Number of bytes before them to discard.
    mutating func takeBytes(_ wanted: Int, discarding passed: Int = 0) -> [UInt8] {
        precondition(passed + wanted <= count, "\(passed) + \(wanted) bytes of \(count)")
        if passed > 0 { discard(passed) }
        guard wanted > 0, let memory = unsafe memory else { return [] }
        let bytes = unsafe [UInt8](UnsafeRawBufferPointer(rebasing: memory[start..<start + wanted]))
        discard(wanted)
        return bytes
    }

    /// Moves as many bytes as available and needed into `target`, starting at `offset`.
    ///
    /// - Returns: Number of bytes moved.
    mutating func moveBytes(into target: inout [UInt8], at offset: Int) -> Int {
        let moved = min(count, target.count - offset)
        guard moved > 0, let memory = unsafe memory else { return 0 }
        unsafe target.withUnsafeMutableBytes {
            unsafe UnsafeMutableRawBufferPointer(rebasing: $0[offset..<offset + moved])
                .copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[start..<start + moved]))
        }
        discard(moved)
        return moved
    }

    /// Discards the next bytes. `dropped` is at most `count`.
    mutating func discard(_ dropped: Int) {
        start += dropped
        if start == end { (start, end) = (0, 0) }
    }

    /// Returns the memory to `spare` if the buffer is empty.
    mutating func release(to spare: SpareBuffer) {
        guard count == 0, let released = unsafe memory else { return }
        unsafe memory = nil
        unsafe spare.keepBuffer(released)
    }
}

/// The next frame of an ``InputBuffer``.
enum NextFrame {
    /// Its header is incomplete.
    case incomplete
    /// Its flags have no meaning.
    case invalidFlags
    case frame(Frame.Header, isWhole: Bool)
}

/// Memory of an empty ``InputBuffer``, shared by the connections of one port. malloc(3) consolidates its free lists
/// each time an allocation of this size is freed.
@safe final class SpareBuffer {
    private var memory: UnsafeMutableRawBufferPointer?

    deinit { unsafe memory?.deallocate() }

    func take() -> UnsafeMutableRawBufferPointer? { unsafe memory.take() }

    func keepBuffer(_ released: UnsafeMutableRawBufferPointer) {
        if unsafe memory == nil { unsafe memory = released } else { unsafe released.deallocate() }
    }
}

/// Incomplete incoming frame.
struct PartialFrame {
    /// Memory allocated before any content arrives, in bytes. A peer that only announces a long frame gets no more.
    static let initialCapacityBytes = 65_536

    let header: Frame.Header
    private let totalBytes: Int
    /// Received bytes, followed by unused space.
    var bytes: [UInt8]
    var filledBytes = 0

    /// - Parameter count: Length of the frame in bytes, from its header.
    init(_ header: Frame.Header, count: Int) {
        self.header = header
        self.totalBytes = count
        bytes = [UInt8](repeating: 0, count: min(count, Self.initialCapacityBytes))
    }

    var isWhole: Bool { filledBytes == totalBytes }

    /// Doubles a full buffer, up to the length of the frame.
    mutating func makeRoom() {
        guard filledBytes == bytes.count else { return }
        bytes += repeatElement(0, count: min(bytes.count, totalBytes - bytes.count))
    }
}
