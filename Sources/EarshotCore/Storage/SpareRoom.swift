internal import DequeModule

/// Memory of tables that were large once: they grow by doubling and do not shrink by themselves, since a table that
/// empties is often filled again. The broker releases it when a burst is over.
enum SpareRoom {
    /// Places that a table may keep whatever it holds: a megabyte of the largest records.
    static let leastPlaces = 4_096

    /// Whether a table is worth a copy with less room: three quarters or more are unused.
    static func isMuch(_ capacity: Int, used: Int, least: Int) -> Bool { capacity > least && used < capacity / 4 }
}

extension Array {
    /// Drops the elements from `bound` on, and their room if it is much.
    mutating func releaseRoom(beyond bound: Int, least: Int) {
        if count > bound { removeLast(count - bound) }
        guard SpareRoom.isMuch(capacity, used: count, least: least) else { return }
        var copy: [Element] = []
        copy.reserveCapacity(count)
        copy += self
        self = copy
    }
}

extension Dictionary {
    mutating func releaseRoom(least: Int) {
        guard SpareRoom.isMuch(capacity, used: count, least: least) else { return }
        var copy = Dictionary(minimumCapacity: count)
        for (key, value) in self { copy[key] = value }
        self = copy
    }
}

extension Set {
    mutating func releaseRoom(least: Int) {
        guard SpareRoom.isMuch(capacity, used: count, least: least) else { return }
        var copy = Set(minimumCapacity: count)
        for element in self { copy.insert(element) }
        self = copy
    }
}

extension Deque {
    /// Releases the room of an empty one. That of others is kept: they are being worked off.
    mutating func releaseRoomIfEmpty() { if isEmpty { self = [] } }
}
