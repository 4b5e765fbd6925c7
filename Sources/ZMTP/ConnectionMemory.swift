internal import DequeModule

/// Memory shared by the connections of one socket: unsent output and incomplete incoming frames.
///
/// A frame of more than `freeBytes` is read only after all of its bytes are reserved, so that each frame being read can
/// be completed. Processes take turns, and waiting connections are not read, so the kernel's buffer stops the sender.
///
/// One process holds at most half of the capacity. If several users share it (``isShared``), each holds at most a quarter
/// with all of its processes, and the administrator at most three quarters.
public final class ConnectionMemory {
    /// Holder of reservations.
    public struct Owner: Hashable {
        let process: Int32
        let user: UInt32?

        /// - Parameters:
        ///   - process: Process ID of a peer.
        ///   - user: User ID of that process; nil for the administrator.
        public init(process: Int32, user: UInt32?) {
            self.process = process
            self.user = user
        }
    }

    /// Largest frame that needs no reservation, in bytes: more than nearly all heads.
    static let freeBytes = 16_384

    private struct Waiter {
        weak var stream: MessageStream?
        let bytes: Int
    }

    /// Waiting connections of one owner, in order, and the bytes reserved by all of its connections.
    private struct Account {
        var reserved = 0
        var waiters: Deque<Waiter> = []
    }

    /// Bytes not yet accepted by the kernel.
    public var unsentBytes: Int { unsent.bytes }
    /// Bytes of replies among them.
    public var unsentReplyBytes: Int { unsent.replyBytes }
    /// Bytes reserved for incoming frames.
    public private(set) var reservedBytes = 0
    /// Whether users besides the administrator have connections.
    public var isShared = false
    /// Called when a connection begins to wait for memory and no other one waits.
    public var onShortage: (() -> Void)?

    /// Input buffer shared by the connections, because few of them have input at a time.
    let spareBuffer = SpareBuffer()

    private let frameCapacity: Int
    /// Values of ``unsentBytes`` and ``unsentReplyBytes``. Private: accesses to public ones are checked at run time.
    private var unsent = (bytes: 0, replyBytes: 0)
    private var isClosed = false
    private var accounts: [Owner: Account] = [:]
    /// Bytes reserved by all processes of each user.
    private var users: [UInt32?: Int] = [:]
    /// Owners with waiting connections, in the order of their turns.
    private var turns: Deque<Owner> = []

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
    func reserve(_ bytes: Int, for stream: MessageStream, of owner: Owner) -> Bool {
        guard !isClosed else { return false }
        var entry = accounts[owner] ?? Account()
        guard entry.waiters.isEmpty, hasRoom(for: bytes, entry, of: owner.user) else {
            let wasShort = isShort
            if entry.waiters.isEmpty { turns.append(owner) }
            entry.waiters.append(Waiter(stream: stream, bytes: bytes))
            accounts[owner] = entry
            if !wasShort { onShortage?() }
            return false
        }
        count(bytes, in: &entry, of: owner)
        return true
    }

    private func count(_ bytes: Int, in entry: inout Account, of owner: Owner) {
        entry.reserved += bytes
        accounts[owner] = entry
        reservedBytes += bytes
        users[owner.user, default: 0] += bytes
    }

    /// Releases reserved memory and grants it to waiting connections.
    func release(_ bytes: Int, of owner: Owner) {
        reservedBytes -= bytes
        guard !isClosed else { return }
        accounts[owner]?.reserved -= bytes
        if let rest = users[owner.user] { users[owner.user] = rest > bytes ? rest - bytes : nil }
        grant()
        if let entry = accounts[owner], entry.reserved == 0, entry.waiters.isEmpty { accounts[owner] = nil }
    }

    /// Stops granting memory, because the owner of the connections is about to release them.
    public func close() {
        onShortage = nil
        turns = []
        accounts = [:]
        isClosed = true
    }

    /// Returns whether the bytes fit. With nothing reserved any frame fits, because a connection bounds its frames.
    private func hasRoom(for bytes: Int, _ entry: Account, of user: UInt32?) -> Bool {
        let quarter = frameCapacity / 4
        let most = !isShared ? frameCapacity : user == nil ? frameCapacity - quarter : quarter
        return Self.fits(bytes, beside: reservedBytes, in: frameCapacity)
            && Self.fits(bytes, beside: entry.reserved, in: frameCapacity / 2)
            && Self.fits(bytes, beside: users[user] ?? 0, in: most)
    }

    private static func fits(_ bytes: Int, beside reserved: Int, in most: Int) -> Bool {
        reserved == 0 || bytes <= most - reserved
    }

    private func grant() {
        // Each owner gets one turn per grant; the loop ends after a full round without a grant.
        var refusals = 0
        while refusals < turns.count, let owner = turns.popFirst() {
            guard var entry = accounts[owner] else { continue }
            while let first = entry.waiters.first, first.stream?.awaitsRoom != true { entry.waiters.removeFirst() }
            guard let first = entry.waiters.first else {
                accounts[owner] = entry.reserved > 0 ? entry : nil
                continue
            }
            guard hasRoom(for: first.bytes, entry, of: owner.user) else {
                accounts[owner] = entry
                turns.append(owner)
                refusals += 1
                continue
            }
            refusals = 0
            entry.waiters.removeFirst()
            count(first.bytes, in: &entry, of: owner)
            if !entry.waiters.isEmpty { turns.append(owner) }
            first.stream?.roomGranted(first.bytes)
        }
    }
}
