internal import DequeModule
internal import EarshotWire
internal import HeapModule

/// Release of memory after a burst.
extension BrokerCore {
    /// Bytes reserved for a request that waits: growing tables need them while they are copied.
    private static let growthBytes = 512

    /// Takes note of the memory that this process may still use below the limits of the kernel. While little is left, no
    /// request is added to those that wait.
    ///
    /// - Parameter room: bytes; nil without a limit.
    public mutating func memoryChecked(room: Int?) {
        let isShort = room.map { $0 < limits.memoryReserve + interests.count * Self.growthBytes } ?? false
        requestsInMemory = isShort ? ledger.requests.pending : .max
    }

    /// Maximum open requests of all clients now.
    @inline(__always)
    var mostRequests: Int { min(limits.requests, requestsInMemory) }

    /// Whether a table of records was large and is mostly empty, and its spare capacity has not been released.
    @inline(__always)
    var hasSpareRoom: Bool {
        let least = SpareRoom.leastPlaces
        return interests.hasSpareRoom(least: least) || flights.hasSpareRoom(least: least)
            || handlers.hasSpareRoom(least: least) || outcomes.hasSpareRoom(least: least)
    }

    /// Releases the spare capacity of tables that are mostly empty. O(released capacity). The shell calls it some time
    /// after `endPass` has reported spare room, because an emptied table is often filled again.
    public mutating func releaseRoom() { releaseRoom(least: SpareRoom.leastPlaces) }

    /// - Parameter least: number of entries for which each table may keep capacity.
    mutating func releaseRoom(least: Int) {
        interests.releaseRoom(least: least)
        extras.releaseRoom(least: least)
        flights.releaseRoom(beyond: interests.bound, least: least)
        outcomes.releaseRoom(least: least)
        handlers.releaseRoom(beyond: interests.bound, least: least)
        clients.releaseRoom(least: least)
        governor.releaseRoom(least: least)
        ownerChains.releaseRoom(beyond: interests.bound, least: least)
        queue.releaseRoom(beyond: interests.bound, least: least)
        releaseRoomOfNames(least: least)
        revalidations.releaseRoomIfEmpty()
        if timers.isEmpty { timers = [] }
    }

    private mutating func releaseRoomOfNames(least: Int) {
        requestNumbers.releaseRoom(least: least)
        cachePlans.releaseRoom(least: least)
        parts.releaseRoom(least: least)
        durables.releaseRoom(least: least)
        quotas.releaseRoom(least: least)
    }
}
