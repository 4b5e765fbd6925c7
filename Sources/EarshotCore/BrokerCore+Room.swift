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
        let isShort =
            room.map { $0 < records.limits.memoryReserve + records.requests.count * Self.growthBytes } ?? false
        records.requestsInMemory = isShort ? records.ledger.requests.pending : .max
    }

    /// Whether a table of records was large and is mostly empty, and its spare capacity has not been released.
    var canShrink: Bool {
        let least = Shrinking.leastCapacity
        return records.requests.canShrink(least: least) || records.flights.canShrink(least: least)
            || records.handlers.canShrink(least: least) || records.outcomes.canShrink(least: least)
    }

    /// Releases the spare capacity of tables that are mostly empty. O(released capacity). The shell calls it some time
    /// after `endPass` has reported spare room, because an emptied table is often filled again.
    public mutating func releaseRoom() { releaseRoom(least: Shrinking.leastCapacity) }

    /// - Parameter least: number of entries for which each table may keep capacity.
    mutating func releaseRoom(least: Int) {
        records.requests.releaseRoom(least: least)
        records.flights.releaseRoom(beyond: records.requests.bound, least: least)
        records.outcomes.releaseRoom(least: least)
        records.handlers.releaseRoom(beyond: records.requests.bound, least: least)
        records.clients.releaseRoom(least: least)
        records.governor.releaseRoom(least: least)
        records.queue.releaseRoom(beyond: records.requests.bound, least: least)
        releaseRoomOfNames(least: least)
        records.revalidations.releaseRoomIfEmpty()
        if records.outbox.timers.isEmpty { records.outbox.timers = [] }
    }

    private mutating func releaseRoomOfNames(least: Int) {
        records.cachePlans.releaseRoom(least: least)
        records.parts.releaseRoom(least: least)
        records.durables.releaseRoom(least: least)
        records.quotas.releaseRoom(least: least)
    }
}
