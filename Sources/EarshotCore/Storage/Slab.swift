/// Records under small numbers that are used again: one allocation for many, four bytes to name one.
///
/// A record is looked at and changed where it lies. The records are a `RecordStorage` and not an array of optionals,
/// out of which each look at one field takes a copy of the whole record, with all that it refers to.
struct Slab<Element> {
    private var storage = RecordStorage<Element>(capacity: 0)
    private var free: [Int32] = []

    /// One more than the largest number in use or free.
    private(set) var bound = 0
    /// Records below which ``releaseRoom(least:)`` is worth another try: a quarter of the room, or half of those that
    /// were left by the last try.
    private var spareCount = 0

    var count: Int { bound - free.count }

    /// Records that fit in the memory it has.
    var capacity: Int { storage.capacity }

    /// O(1) amortised.
    mutating func insert(_ element: Element) -> Int32 {
        let isShared = !isKnownUniquelyReferenced(&storage)
        if bound == storage.capacity, free.isEmpty {
            storage = storage.resized(to: max(8, storage.capacity * 2), isShared: isShared)
            spareCount = storage.capacity / 4
        } else if isShared {
            storage = storage.copied()
        }
        let index = free.popLast() ?? Int32(bound)
        if Int(index) == bound { bound += 1 }
        storage.put(element, at: Int(index))
        return index
    }

    /// The number must be in use.
    mutating func remove(_ index: Int32) {
        makeUnique()
        storage.clear(Int(index))
        free.append(index)
    }

    /// Removes a record and returns it, without a copy. The number must be in use.
    mutating func take(_ index: Int32) -> Element {
        makeUnique()
        free.append(index)
        return storage.take(Int(index))
    }

    /// Whether most of the room is unused, and nobody tried to release it yet.
    func hasSpareRoom(least: Int) -> Bool { count < spareCount && storage.capacity > least }

    /// Releases the room behind the last record, if it is much. Numbers in use stay, and the lowest free ones are used
    /// next, so that the room behind the last record grows. O(capacity).
    mutating func releaseRoom(least: Int) {
        guard SpareRoom.isMuch(storage.capacity, used: count, least: least) else { return }
        while bound > 0, !storage.contains(bound - 1) { bound -= 1 }
        free = storage.freePlaces(below: bound)
        if SpareRoom.isMuch(storage.capacity, used: bound, least: least) {
            let isShared = !isKnownUniquelyReferenced(&storage)
            storage = storage.resized(to: bound, isShared: isShared)
        }
        spareCount = min(storage.capacity / 4, count / 2)
    }

    func contains(_ index: Int32) -> Bool { storage.contains(Int(index)) }

    /// The number must be in use.
    subscript(index: Int32) -> Element {
        @inline(__always) _read { yield storage[Int(index)] }
        @inline(__always) _modify {
            makeUnique()
            yield &storage[Int(index)]
        }
    }

    /// All numbers in use, for audits and reports. O(bound).
    var indices: [Int32] { (0..<Int32(bound)).filter { contains($0) } }

    @inline(__always)
    private mutating func makeUnique() {
        if !isKnownUniquelyReferenced(&storage) { storage = storage.copied() }
    }
}
