/// Slab allocator with reuse of places: many records in one allocation, each with a handle of four bytes.
///
/// Records are accessed in place. They are in a `RecordStorage` because access to a field in an array of optionals
/// copies the whole record and retains its references.
package struct Slab<Element> {
    private var storage = RecordStorage<Element>(capacity: 0)
    private var free: [Int32] = []

    /// Handle of the first record of an empty slab.
    static var first: Handle<Element> { Handle(place: 0) }

    /// One more than the last place in use or in the free list.
    package private(set) var bound = 0
    /// Number of records below which ``releaseRoom(least:)`` may succeed: a quarter of the capacity, or half of the
    /// records at the last call.
    private var spareCount = 0

    var count: Int { bound - free.count }

    /// Number of records that fit in the allocated memory.
    var capacity: Int { storage.capacity }

    /// Adds a record. O(1) amortised.
    mutating func insert(_ element: consuming Element) -> Handle<Element> {
        let isShared = !isKnownUniquelyReferenced(&storage)
        if bound == storage.capacity, free.isEmpty {
            storage = storage.resized(to: max(8, storage.capacity * 2), isShared: isShared)
            spareCount = storage.capacity / 4
        } else if isShared {
            storage = storage.copied()
        }
        let place = free.popLast() ?? Int32(bound)
        if Int(place) == bound { bound += 1 }
        storage.put(element, at: Int(place))
        return Handle(place: place)
    }

    /// Destroys a record, which must exist.
    mutating func remove(_ record: Handle<Element>) {
        makeUnique()
        storage.clear(record.index)
        free.append(record.number)
    }

    /// Removes and returns a record without a copy. It must exist.
    mutating func take(_ record: Handle<Element>) -> Element {
        makeUnique()
        free.append(record.number)
        return storage.take(record.index)
    }

    /// Whether most of the capacity is unused and no release was tried yet.
    func canShrink(least: Int) -> Bool { count < spareCount && storage.capacity > least }

    /// Releases the spare capacity after the last record, if it is large. Records keep their places, and the lowest free ones
    /// are reused first, so that the spare capacity after the last record grows. O(capacity).
    mutating func releaseRoom(least: Int) {
        guard Shrinking.isMuch(storage.capacity, used: count, least: least) else { return }
        while bound > 0, !storage.contains(bound - 1) { bound -= 1 }
        free = storage.freeIndices(below: bound)
        if Shrinking.isMuch(storage.capacity, used: bound, least: least) {
            let isShared = !isKnownUniquelyReferenced(&storage)
            storage = storage.resized(to: bound, isShared: isShared)
        }
        spareCount = min(storage.capacity / 4, count / 2)
    }

    func contains(_ record: Handle<Element>) -> Bool { storage.contains(record.index) }

    /// Returns the handle of the record at a place; nil if there is none.
    package func handle(at place: Int) -> Handle<Element>? { storage.contains(place) ? Handle(index: place) : nil }

    /// Accesses a record in place. It must exist.
    package subscript(record: Handle<Element>) -> Element {
        _read { yield storage[record.index] }
        _modify {
            makeUnique()
            yield &storage[record.index]
        }
    }

    /// Address of a record, which must exist, for the addressor of a component that contains this slab.
    @inline(__always)
    func address(of record: Handle<Element>) -> UnsafePointer<Element> {
        unsafe UnsafePointer(storage.address(of: record.index))
    }

    /// Address of a record, which must exist, to change it.
    @inline(__always)
    mutating func mutableAddress(of record: Handle<Element>) -> UnsafeMutablePointer<Element> {
        makeUnique()
        return unsafe storage.address(of: record.index)
    }

    /// Handles of all records, for audits and reports. O(bound).
    var indices: [Handle<Element>] { (0..<bound).compactMap { handle(at: $0) } }

    private mutating func makeUnique() {
        if !isKnownUniquelyReferenced(&storage) { storage = storage.copied() }
    }
}
