internal import EarshotLoop

/// The next frame in an ``InputBuffer``.
enum NextFrame {
    /// Its header has not come whole.
    case incomplete
    /// Its flags have no meaning.
    case unknown
    case frame(Frame.Header, isWhole: Bool)
}

/// Bytes that were read and not used yet.
///
/// It has memory only while there are such: of a thousand connections few have something to say at a time.
@safe struct InputBuffer: ~Copyable {
    /// Bytes read at once: what a Unix socket has, or some hundred small messages.
    private static let capacity = 65_536

    private var memory: UnsafeMutableRawBufferPointer?
    private var start = 0
    private var end = 0

    deinit { unsafe memory?.deallocate() }

    var count: Int { end - start }

    /// The frame that begins with the next byte. All that ``MessageStream`` asks about it is found in one access.
    var next: NextFrame {
        guard count >= Frame.leastBytes, let memory = unsafe memory else { return .incomplete }
        let start = start
        guard count >= Frame.headerBytes(flags: unsafe memory[start]) else { return .incomplete }
        guard let header = Frame.header({ unsafe memory[start + $0] }) else { return .unknown }
        return .frame(header, isWhole: UInt64(count - header.headerBytes) >= header.count)
    }

    /// Reads more bytes; fewer are there than it can hold.
    ///
    /// - Parameter spare: memory of a connection of the same port, used if there is some.
    /// - Returns: the result, and whether as many bytes came as there was room for.
    mutating func read(_ descriptor: Int32, _ spare: SpareBuffer) -> (UnixSocket.Transfer, isFull: Bool) {
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
        guard case .bytes(let count) = outcome else {
            release(to: spare)
            return (outcome, false)
        }
        end += count
        return (outcome, count == room)
    }

    /// Takes the next bytes out; so many are there.
    ///
    /// - Parameter passed: bytes before them, which are dropped.
    mutating func take(_ wanted: Int, behind passed: Int = 0) -> [UInt8] {
        precondition(passed + wanted <= count, "\(passed) + \(wanted) bytes of \(count)")
        if passed > 0 { drop(passed) }
        guard wanted > 0, let memory = unsafe memory else { return [] }
        let bytes = unsafe [UInt8](UnsafeRawBufferPointer(rebasing: memory[start..<start + wanted]))
        drop(wanted)
        return bytes
    }

    /// Moves the next bytes, as many as are there, into `target` from `offset` on.
    ///
    /// - Returns: how many.
    mutating func move(into target: inout [UInt8], at offset: Int) -> Int {
        let moved = min(count, target.count - offset)
        guard moved > 0, let memory = unsafe memory else { return 0 }
        unsafe target.withUnsafeMutableBytes {
            unsafe UnsafeMutableRawBufferPointer(rebasing: $0[offset..<offset + moved])
                .copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[start..<start + moved]))
        }
        drop(moved)
        return moved
    }

    /// Passes bytes over; so many are there.
    mutating func drop(_ dropped: Int) {
        start += dropped
        if start == end { (start, end) = (0, 0) }
    }

    /// Gives the memory back if no bytes are in it.
    mutating func release(to spare: SpareBuffer) {
        guard count == 0, let released = unsafe memory else { return }
        unsafe memory = nil
        unsafe spare.keep(released)
    }
}

/// The memory of one ``InputBuffer`` without bytes, for the next connection that reads: an allocation of this size
/// makes malloc(3) tidy its lists each time it is freed.
@safe final class SpareBuffer {
    private var memory: UnsafeMutableRawBufferPointer?

    deinit { unsafe memory?.deallocate() }

    func take() -> UnsafeMutableRawBufferPointer? { unsafe memory.take() }

    func keep(_ released: UnsafeMutableRawBufferPointer) {
        if unsafe memory == nil { unsafe memory = released } else { unsafe released.deallocate() }
    }
}
