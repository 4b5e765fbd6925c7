/// Slab allocator with reuse of places: many records in one allocation, each with a handle of four bytes.
///
/// Records are accessed in place. They are in a `RecordStorage` because access to a field in an array of optionals
/// copies the whole record and retains its references.
package struct Slab<Element> {
    private var storage = RecordStorage<Element>(capacity: 0)
    private var freeIndexList: [Int32] = []

    /// Handle of the first record of an empty slab.
    static var firstHandle: Handle<Element> { Handle(indexInSlab: 0) }

    /// One more than the last place in use or in the free list.
    package private(set) var bound = 0
    /// Number of records below which ``releaseSpareCapacity(retaining:)`` may succeed: a quarter of the capacity, or half
    /// of the records at the last call.
    private var shrinkThresholdCount = 0

    var count: Int { bound - freeIndexList.count }

    /// Number of records that fit in the allocated memory.
    var capacity: Int { storage.capacity }

    /// Adds a record. O(1) amortised.
    mutating func insert(_ element: consuming Element) -> Handle<Element> {
        let isShared = !isKnownUniquelyReferenced(&storage)
        if bound == storage.capacity, freeIndexList.isEmpty {
            storage = storage.resized(to: max(8, storage.capacity * 2), isShared: isShared)
            shrinkThresholdCount = storage.capacity / 4
        } else if isShared {
            storage = storage.copy()
        }
        let place = freeIndexList.popLast() ?? Int32(bound)
        if Int(place) == bound { bound += 1 }
        storage.insertRecord(element, at: Int(place))
        return Handle(indexInSlab: place)
    }

    /// Destroys a record, which must exist.
    mutating func destroy(_ record: Handle<Element>) {
        makeStorageUnique()
        storage.destroyRecord(at: record.slabIndex)
        freeIndexList.append(record.recordNumber)
    }

    /// Removes and returns a record without a copy. It must exist.
    mutating func removeReturning(_ record: Handle<Element>) -> Element {
        makeStorageUnique()
        freeIndexList.append(record.recordNumber)
        return storage.removeRecord(at: record.slabIndex)
    }

    /// Whether most of the capacity is unused and no release was tried yet.
    func hasSpareCapacity(beyond: Int) -> Bool { count < shrinkThresholdCount && storage.capacity > beyond }

    /// Releases the spare capacity after the last record, if it is large. Records keep their places, and the lowest
    /// free ones are reused first, so that the spare capacity after the last record grows. O(capacity).
    mutating func releaseSpareCapacity(retaining least: Int) {
        guard CapacityShrinking.isMostlyUnused(storage.capacity, used: count, least: least) else { return }
        while bound > 0, !storage.hasRecord(at: bound - 1) { bound -= 1 }
        freeIndexList = storage.freeIndices(below: bound)
        if CapacityShrinking.isMostlyUnused(storage.capacity, used: bound, least: least) {
            let isShared = !isKnownUniquelyReferenced(&storage)
            storage = storage.resized(to: bound, isShared: isShared)
        }
        shrinkThresholdCount = min(storage.capacity / 4, count / 2)
    }

    func contains(_ record: Handle<Element>) -> Bool { storage.hasRecord(at: record.slabIndex) }

    /// Returns the handle of the record at a place; nil if there is none.
    package func handle(atIndex place: Int) -> Handle<Element>? {
        storage.hasRecord(at: place) ? Handle(slabIndex: place) : nil
    }

    /// Accesses a record in place. It must exist.
    package subscript(record: Handle<Element>) -> Element {
        _read { yield storage[record.slabIndex] }
        _modify {
            makeStorageUnique()
            yield &storage[record.slabIndex]
        }
    }

    /// Address of a record, which must exist, for the addressor of a component that contains this slab.
    @inline(__always)
    func address(of record: Handle<Element>) -> UnsafePointer<Element> {
        unsafe UnsafePointer(storage.recordAddress(at: record.slabIndex))
    }

    /// Address of a record, which must exist, to change it.
    @inline(__always)
    mutating func mutableAddress(of record: Handle<Element>) -> UnsafeMutablePointer<Element> {
        makeStorageUnique()
        return unsafe storage.recordAddress(at: record.slabIndex)
    }

    /// Handles of all records, for audits and reports. O(bound).
    var indices: [Handle<Element>] { (0..<bound).compactMap { handle(atIndex: $0) } }

    private mutating func makeStorageUnique() {
        if !isKnownUniquelyReferenced(&storage) { storage = storage.copy() }
    }
}
