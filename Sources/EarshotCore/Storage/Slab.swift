/// Slab allocator with index reuse: many records in one allocation, each named by four bytes.
///
/// Records are accessed in place. They are in a `RecordStorage` because access to a field in an array of optionals
/// copies the whole record and retains its references.
struct Slab<Element> {
    private var storage = RecordStorage<Element>(capacity: 0)
    private var free: [Int32] = []

    /// One more than the largest number in use or in the free list.
    private(set) var bound = 0
    /// Number of records below which ``releaseRoom(least:)`` may succeed: a quarter of the capacity, or half of the
    /// records at the last call.
    private var spareCount = 0

    var count: Int { bound - free.count }

    /// Number of records that fit in the allocated memory.
    var capacity: Int { storage.capacity }

    /// Adds a record and returns its number. O(1) amortised.
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

    /// Destroys a record. The number must be in use.
    mutating func remove(_ index: Int32) {
        makeUnique()
        storage.clear(Int(index))
        free.append(index)
    }

    /// Removes and returns a record without a copy. The number must be in use.
    mutating func take(_ index: Int32) -> Element {
        makeUnique()
        free.append(index)
        return storage.take(Int(index))
    }

    /// Whether most of the capacity is unused and no release was tried yet.
    func hasSpareRoom(least: Int) -> Bool { count < spareCount && storage.capacity > least }

    /// Releases the spare capacity after the last record, if it is large. Numbers in use stay, and the lowest free ones
    /// are reused first, so that the spare capacity after the last record grows. O(capacity).
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

    /// Accesses a record in place. The number must be in use.
    subscript(index: Int32) -> Element {
        _read { yield storage[Int(index)] }
        _modify {
            makeUnique()
            yield &storage[Int(index)]
        }
    }

    /// All numbers in use, for audits and reports. O(bound).
    var indices: [Int32] { (0..<Int32(bound)).filter { contains($0) } }

    private mutating func makeUnique() {
        if !isKnownUniquelyReferenced(&storage) { storage = storage.copied() }
    }
}
