internal import DequeModule

/// Memory shared by the connections of one socket: unsent output and incomplete incoming frames.
///
/// A frame of more than `unreservedFrameBytes` is read only after all of its bytes are reserved, so that each frame
/// being read can be completed. Processes take turns, and waiting connections are not read, so the kernel's buffer
/// stops the sender.
///
/// One process holds at most half of the capacity. If several users share it (``hasOtherUsers``), each holds at most a
/// quarter with all of its processes, and the administrator at most three quarters.
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
    static let unreservedFrameBytes = 16_384

    private struct Waiter {
        weak var stream: MessageStream?
        let requestedBytes: Int
    }

    /// Waiting connections of one owner, in order, and the bytes reserved by all of its connections.
    private struct Account {
        var reservedBytes = 0
        var waiters: Deque<Waiter> = []
    }

    /// Bytes not yet accepted by the kernel.
    public var unsentBytes: Int { unsentTotals.bytes }
    /// Bytes of replies among them.
    public var unsentReplyBytes: Int { unsentTotals.replyBytes }
    /// Bytes reserved for incoming frames.
    public private(set) var reservedBytes = 0
    /// Whether users besides the administrator have connections.
    public var hasOtherUsers = false
    /// Called when a connection begins to wait for memory and no other one waits.
    public var onMemoryShortage: (() -> Void)?

    /// Input buffer shared by the connections, because few of them have input at a time.
    let spareBuffer = SpareBuffer()

    private let totalFrameCapacityBytes: Int
    /// Values of ``unsentBytes`` and ``unsentReplyBytes``. Private: accesses to public ones are checked at run time.
    private var unsentTotals = (bytes: 0, replyBytes: 0)
    private var isClosed = false
    private var accountsByOwner: [Owner: Account] = [:]
    /// Bytes reserved by all processes of each user.
    private var reservedBytesByUser: [UInt32?: Int] = [:]
    /// Owners with waiting connections, in the order of their turns.
    private var waitingOwners: Deque<Owner> = []

    /// - Parameter frameCapacity: Maximum number of bytes of all incoming frames. A larger frame is read alone.
    public init(frameCapacity: Int = .max) {
        self.totalFrameCapacityBytes = frameCapacity
    }

    /// Whether a connection waits for memory.
    public var isMemoryShort: Bool { !waitingOwners.isEmpty }

    func unsentChanged(by bytes: Int, replies replyBytes: Int) {
        unsentTotals.bytes += bytes
        unsentTotals.replyBytes += replyBytes
    }

    /// Reserves memory for a frame.
    ///
    /// - Returns: false if the stream must wait for ``MessageStream/memoryGranted(_:)``.
    func reserve(_ bytes: Int, for stream: MessageStream, of owner: Owner) -> Bool {
        guard !isClosed else { return false }
        var entry = accountsByOwner[owner] ?? Account()
        guard entry.waiters.isEmpty, hasRoom(for: bytes, entry, of: owner.user) else {
            let wasShort = isMemoryShort
            if entry.waiters.isEmpty { waitingOwners.append(owner) }
            entry.waiters.append(Waiter(stream: stream, requestedBytes: bytes))
            accountsByOwner[owner] = entry
            if !wasShort { onMemoryShortage?() }
            return false
        }
        addReservation(bytes, to: &entry, of: owner)
        return true
    }

    private func addReservation(_ bytes: Int, to entry: inout Account, of owner: Owner) {
        entry.reservedBytes += bytes
        accountsByOwner[owner] = entry
        reservedBytes += bytes
        reservedBytesByUser[owner.user, default: 0] += bytes
    }

    /// Releases reserved memory and grants it to waiting connections.
    func release(_ bytes: Int, of owner: Owner) {
        reservedBytes -= bytes
        guard !isClosed else { return }
        accountsByOwner[owner]?.reservedBytes -= bytes
        if let rest = reservedBytesByUser[owner.user] {
            reservedBytesByUser[owner.user] = rest > bytes ? rest - bytes : nil
        }
        grantToWaiters()
        if let entry = accountsByOwner[owner], entry.reservedBytes == 0, entry.waiters.isEmpty {
            accountsByOwner[owner] = nil
        }
    }

    /// Stops granting memory, because the owner of the connections is about to release them.
    public func close() {
        onMemoryShortage = nil
        waitingOwners = []
        accountsByOwner = [:]
        isClosed = true
    }

    /// Returns whether the bytes fit. With nothing reserved any frame fits, because a connection bounds its frames.
    private func hasRoom(for bytes: Int, _ entry: Account, of user: UInt32?) -> Bool {
        let quarter = totalFrameCapacityBytes / 4
        let share = !hasOtherUsers ? totalFrameCapacityBytes : user == nil ? totalFrameCapacityBytes - quarter : quarter
        return Self.fits(bytes, beside: reservedBytes, in: totalFrameCapacityBytes)
            && Self.fits(bytes, beside: entry.reservedBytes, in: totalFrameCapacityBytes / 2)
            && Self.fits(bytes, beside: reservedBytesByUser[user] ?? 0, in: share)
    }

    private static func fits(_ bytes: Int, beside reserved: Int, in capacity: Int) -> Bool {
        reserved == 0 || bytes <= capacity - reserved
    }

    private func grantToWaiters() {
        // Each owner gets one turn per grant; the loop ends after a full round without a grant.
        var refusals = 0
        while refusals < waitingOwners.count, let owner = waitingOwners.popFirst() {
            guard var entry = accountsByOwner[owner] else { continue }
            while let first = entry.waiters.first, first.stream?.awaitsMemory != true { entry.waiters.removeFirst() }
            guard let first = entry.waiters.first else {
                accountsByOwner[owner] = entry.reservedBytes > 0 ? entry : nil
                continue
            }
            guard hasRoom(for: first.requestedBytes, entry, of: owner.user) else {
                accountsByOwner[owner] = entry
                waitingOwners.append(owner)
                refusals += 1
                continue
            }
            refusals = 0
            entry.waiters.removeFirst()
            addReservation(first.requestedBytes, to: &entry, of: owner)
            if !entry.waiters.isEmpty { waitingOwners.append(owner) }
            first.stream?.memoryGranted(first.requestedBytes)
        }
    }
}
