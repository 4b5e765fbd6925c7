internal import DequeModule

/// Memory that the connections of one socket hold together: bytes on their way out, and frames that have not come whole.
///
/// An incoming frame of more than `freeBytes` is read only after all of its bytes were reserved, so that each frame
/// which is being read can be completed. One owner holds at most half of the capacity, and owners take turns.
/// Connections that wait are not read from: the kernel's buffer stops the sender.
public final class ConnectionMemory {
    /// Bytes of a frame that need no reservation: more than nearly all heads have.
    static let freeBytes = 16_384

    private struct Waiter {
        weak var stream: MessageStream?
        let bytes: Int
    }

    /// Connections of one owner that wait, in order, and what its others have reserved.
    private struct Owner {
        var reserved = 0
        var waiters: Deque<Waiter> = []
    }

    /// Bytes that the kernel has not taken yet.
    public private(set) var unsentBytes = 0
    /// Bytes of replies among them.
    public private(set) var unsentReplyBytes = 0
    /// Bytes reserved for incoming frames.
    public private(set) var reservedBytes = 0
    /// Called when a connection begins to wait for room and none waited before.
    public var onShortage: (() -> Void)?

    /// Shared by the connections: few of them have bytes to read at a time.
    let spare = SpareBuffer()

    private let frameCapacity: Int
    private var isClosed = false
    private var owners: [Int32: Owner] = [:]
    /// Owners with connections that wait, in the order of their turns.
    private var turns: Deque<Int32> = []

    /// - Parameter frameCapacity: bytes that incoming frames may take together. A larger frame gets its turn alone.
    public init(frameCapacity: Int = .max) {
        self.frameCapacity = frameCapacity
    }

    /// Whether a connection waits for room.
    public var isShort: Bool { !turns.isEmpty }

    func unsentChanged(by bytes: Int, replies replyBytes: Int) {
        unsentBytes += bytes
        unsentReplyBytes += replyBytes
    }

    /// Reserves memory for a frame.
    ///
    /// - Returns: false if the stream has to wait until ``MessageStream/roomGranted(_:)``.
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

    /// Gives reserved memory back, and grants it to those who wait.
    func release(_ bytes: Int, of owner: Int32) {
        reservedBytes -= bytes
        guard !isClosed else { return }
        owners[owner]?.reserved -= bytes
        grant()
        if let entry = owners[owner], entry.reserved == 0, entry.waiters.isEmpty { owners[owner] = nil }
    }

    /// Grants nothing from now on: the owner of the connections is about to end, and them with it.
    public func close() {
        onShortage = nil
        turns = []
        owners = [:]
        isClosed = true
    }

    /// One who waits first may always have what it needs: no frame is longer than a connection allows.
    private func hasRoom(for bytes: Int, _ owner: Owner) -> Bool {
        (reservedBytes == 0 || bytes <= frameCapacity - reservedBytes)
            && (owner.reserved == 0 || bytes <= frameCapacity / 2 - owner.reserved)
    }

    private func grant() {
        // Each owner has one turn for each grant; a round without any ends it.
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
