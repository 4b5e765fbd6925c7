internal import DequeModule
internal import OrderedCollections

/// Spare capacity of tables. They grow by doubling and do not shrink by themselves, since an emptied table is often
/// filled again. The broker releases the capacity after a burst.
enum CapacityShrinking {
    /// Number of places that every table may keep: a megabyte of the largest records.
    static let alwaysRetainedCapacity = 4_096

    /// Whether spare capacity justifies a copy of the table: more than three quarters are unused.
    static func isMostlyUnused(_ capacity: Int, used: Int, least: Int) -> Bool {
        capacity > least && used < capacity / 4
    }
}

extension Array {
    /// Removes the elements from `bound` on, and releases spare capacity if it is large.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        if count > bound { removeLast(count - bound) }
        guard CapacityShrinking.isMostlyUnused(capacity, used: count, least: least) else { return }
        var copy: [Element] = []
        copy.reserveCapacity(count)
        copy += self
        self = copy
    }
}

extension Dictionary {
    mutating func releaseSpareCapacity(retaining least: Int) {
        guard CapacityShrinking.isMostlyUnused(capacity, used: count, least: least) else { return }
        var copy = Dictionary(minimumCapacity: count)
        for (key, value) in self { copy[key] = value }
        self = copy
    }
}

extension Set {
    mutating func releaseSpareCapacity(retaining least: Int) {
        guard CapacityShrinking.isMostlyUnused(capacity, used: count, least: least) else { return }
        var copy = Set(minimumCapacity: count)
        for element in self { copy.insert(element) }
        self = copy
    }
}

extension OrderedSet {
    mutating func releaseSpareCapacity(retaining least: Int) {
        guard CapacityShrinking.isMostlyUnused(elements.capacity, used: count, least: least) else { return }
        var copy = OrderedSet(minimumCapacity: count)
        for element in self { copy.append(element) }
        self = copy
    }
}

extension Deque {
    /// Releases the capacity of an empty deque. A nonempty one is still being drained.
    mutating func releaseSpareCapacityIfEmpty() { if isEmpty { self = [] } }
}

extension Dictionary {
    /// Removes and returns a value. Does not hash the key if the dictionary is empty, as many of the core nearly always
    /// are.
    @discardableResult
    mutating func removeUnlessEmpty(forKey key: Key) -> Value? { isEmpty ? nil : removeValue(forKey: key) }
}
