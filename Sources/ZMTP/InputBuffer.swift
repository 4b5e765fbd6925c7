internal import EarshotLoop

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

    /// A byte, counted from the first that was not used; it is there.
    subscript(offset: Int) -> UInt8 {
        precondition(offset >= 0 && offset < count, "byte \(offset) of \(count)")
        guard let memory = unsafe memory else { return 0 }
        return unsafe memory[start + offset]
    }

    /// Reads behind what is there, which is less than it can hold.
    ///
    /// - Returns: what that came to, and whether as much as there was room for.
    mutating func read(_ descriptor: Int32) -> (UnixSocket.Transfer, isFull: Bool) {
        let memory = unsafe self.memory ?? .allocate(byteCount: Self.capacity, alignment: 16)
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
            release()
            return (outcome, false)
        }
        end += count
        return (outcome, count == room)
    }

    /// Takes the next bytes out; so many are there.
    mutating func take(_ wanted: Int) -> [UInt8] {
        precondition(wanted <= count, "\(wanted) bytes of \(count)")
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

    /// Gives the memory back if nothing is in it.
    mutating func release() {
        guard count == 0 else { return }
        unsafe memory?.deallocate()
        unsafe memory = nil
    }
}
