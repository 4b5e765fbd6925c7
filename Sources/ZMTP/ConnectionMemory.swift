internal import DequeModule

/// Memory shared by the connections of one socket: unsent output and incomplete incoming frames.
///
/// A frame of more than `freeBytes` is read only after all of its bytes are reserved, so that each frame being read can
/// be completed. One owner holds at most half of the capacity, and owners take turns. Waiting connections are not read,
/// so the kernel's buffer stops the sender.
public final class ConnectionMemory {
    /// Largest frame that needs no reservation, in bytes: more than nearly all heads.
    static let freeBytes = 16_384

    private struct Waiter {
        weak var stream: MessageStream?
        let bytes: Int
    }

    /// Waiting connections of one owner, in order, and the bytes reserved by all of its connections.
    private struct Owner {
        var reserved = 0
        var waiters: Deque<Waiter> = []
    }

    /// Bytes not yet accepted by the kernel.
    public var unsentBytes: Int { unsent.bytes }
    /// Bytes of replies among them.
    public var unsentReplyBytes: Int { unsent.replyBytes }
    /// Bytes reserved for incoming frames.
    public private(set) var reservedBytes = 0
    /// Called when a connection begins to wait for memory and no other one waits.
    public var onShortage: (() -> Void)?

    /// Input buffer shared by the connections, because few of them have input at a time.
    let spare = SpareBuffer()

    private let frameCapacity: Int
    /// Values of ``unsentBytes`` and ``unsentReplyBytes``. Private: accesses to public ones are checked at run time.
    private var unsent = (bytes: 0, replyBytes: 0)
    private var isClosed = false
    private var owners: [Int32: Owner] = [:]
    /// Owners with waiting connections, in the order of their turns.
    private var turns: Deque<Int32> = []

    /// - Parameter frameCapacity: Maximum number of bytes of all incoming frames. A larger frame is read alone.
    public init(frameCapacity: Int = .max) {
        self.frameCapacity = frameCapacity
    }

    /// Whether a connection waits for memory.
    public var isShort: Bool { !turns.isEmpty }

    func unsentChanged(by bytes: Int, replies replyBytes: Int) {
        unsent.bytes += bytes
        unsent.replyBytes += replyBytes
    }

    /// Reserves memory for a frame.
    ///
    /// - Returns: false if the stream must wait for ``MessageStream/roomGranted(_:)``.
    func reserve(_ bytes: Int, for stream: MessageStream, of owner: Int32) -> Bool {
        guard !isClosed else { return false }
        var entry = owners[owner] ?? Owner()
        guard entry.waiters.isEmpty, hasRoom(for: bytes, entry) else {
            let wasShort = isShort
            if entry.waiters.isEmpty { turns.append(owner) }
            entry.waiters.append(Waiter(stream: stream, bytes: bytes))
            owners[owner] = entry
            if !wasShort { onShortage?() }
            return false
        }
        entry.reserved += bytes
        reservedBytes += bytes
        owners[owner] = entry
        return true
    }

    /// Releases reserved memory and grants it to waiting connections.
    func release(_ bytes: Int, of owner: Int32) {
        reservedBytes -= bytes
        guard !isClosed else { return }
        owners[owner]?.reserved -= bytes
        grant()
        if let entry = owners[owner], entry.reserved == 0, entry.waiters.isEmpty { owners[owner] = nil }
    }

    /// Stops granting memory, because the owner of the connections is about to release them.
    public func close() {
        onShortage = nil
        turns = []
        owners = [:]
        isClosed = true
    }

    /// Returns whether the bytes fit. With nothing reserved any frame fits, because a connection bounds its frames.
    private func hasRoom(for bytes: Int, _ owner: Owner) -> Bool {
        (reservedBytes == 0 || bytes <= frameCapacity - reservedBytes)
            && (owner.reserved == 0 || bytes <= frameCapacity / 2 - owner.reserved)
    }

    private func grant() {
        // Each owner gets one turn per grant; the loop ends after a full round without a grant.
        var refusals = 0
        while refusals < turns.count, let owner = turns.popFirst() {
            guard var entry = owners[owner] else { continue }
            while let first = entry.waiters.first, first.stream?.awaitsRoom != true { entry.waiters.removeFirst() }
            guard let first = entry.waiters.first else {
                owners[owner] = entry.reserved > 0 ? entry : nil
                continue
            }
            guard hasRoom(for: first.bytes, entry) else {
                owners[owner] = entry
                turns.append(owner)
                refusals += 1
                continue
            }
            refusals = 0
            entry.waiters.removeFirst()
            entry.reserved += first.bytes
            reservedBytes += first.bytes
            owners[owner] = entry
            if !entry.waiters.isEmpty { turns.append(owner) }
            first.stream?.roomGranted(first.bytes)
        }
    }
}
