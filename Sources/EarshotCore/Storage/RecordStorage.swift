/// Fixed-capacity memory in which each place holds a record or is empty.
///
/// The only type of the core with manual memory management. Each access checks that the place exists and holds a
/// record, so a wrong number traps like an index out of an array's bounds.
@safe final class RecordStorage<Element> {
    let capacity: Int
    private let records: UnsafeMutablePointer<Element>
    private let isOccupied: UnsafeMutablePointer<Bool>

    init(capacity: Int) {
        self.capacity = capacity
        unsafe records = .allocate(capacity: capacity)
        unsafe isOccupied = .allocate(capacity: capacity)
        unsafe isOccupied.initialize(repeating: false, count: capacity)
    }

    deinit {
        for index in 0..<capacity where hasRecord(at: index) { unsafe (records + index).deinitialize(count: 1) }
        unsafe records.deallocate()
        unsafe isOccupied.deallocate()
    }

    func hasRecord(at index: Int) -> Bool { index >= 0 && index < capacity ? unsafe isOccupied[index] : false }

    /// Stores a record at an empty place.
    func insertRecord(_ record: consuming Element, at index: Int) {
        precondition(index >= 0 && index < capacity, "there is no place \(index)")
        precondition(!hasRecord(at: index), "record \(index) is in use")
        unsafe (records + index).initialize(to: record)
        unsafe isOccupied[index] = true
    }

    /// Destroys the record at a place.
    func destroyRecord(at index: Int) {
        precondition(hasRecord(at: index), "record \(index) is removed twice")
        // The place counts as empty before the record's deinitializer runs.
        unsafe isOccupied[index] = false
        unsafe (records + index).deinitialize(count: 1)
    }

    /// Removes and returns the record at a place.
    func removeRecord(at index: Int) -> Element {
        precondition(hasRecord(at: index), "record \(index) is removed twice")
        unsafe isOccupied[index] = false
        return unsafe (records + index).move()
    }

    /// Accesses the record at a place.
    subscript(index: Int) -> Element {
        unsafeAddress { unsafe UnsafePointer(recordAddress(at: index)) }
        unsafeMutableAddress { unsafe recordAddress(at: index) }
    }

    /// Address of the record at a place. It is valid until the record is moved or removed.
    @inline(__always)
    func recordAddress(at index: Int) -> UnsafeMutablePointer<Element> {
        precondition(hasRecord(at: index), "record is not in use")
        return unsafe records + index
    }

    /// Returns the empty places below `bound` in descending order.
    func freeIndices(below bound: Int) -> [Int32] {
        var places: [Int32] = []
        for index in stride(from: bound - 1, through: 0, by: -1) where !hasRecord(at: index) {
            places.append(Int32(index))
        }
        return places
    }

    /// Returns a storage with copies of the records.
    func copy() -> RecordStorage { copy(capacity: capacity) }

    /// Returns a storage with another capacity, which must suffice for all records. Moves the records, or copies them
    /// if another slab shares this storage.
    func resized(to capacity: Int, isShared: Bool) -> RecordStorage {
        guard !isShared else { return copy(capacity: capacity) }
        let resized = RecordStorage(capacity: capacity)
        for index in 0..<self.capacity where hasRecord(at: index) {
            precondition(index < capacity, "record \(index) has no place among \(capacity)")
            unsafe (resized.records + index).moveInitialize(from: records + index, count: 1)
            unsafe resized.isOccupied[index] = true
            unsafe isOccupied[index] = false
        }
        return resized
    }

    private func copy(capacity other: Int) -> RecordStorage {
        let copy = RecordStorage(capacity: other)
        for index in 0..<capacity where hasRecord(at: index) { copy.insertRecord(self[index], at: index) }
        return copy
    }
}

/// Value behind one reference, which is copied when it is changed while shared.
///
/// For a large part of the core that few buses have: the core's own size stays that of a reference.
package struct CopyOnWriteBox<Value> {
    private final class Storage {
        var value: Value

        init(_ value: Value) { self.value = value }
    }

    private var storage: Storage

    init(_ value: Value) { storage = Storage(value) }

    package var value: Value {
        _read { yield storage.value }
        _modify {
            if !isKnownUniquelyReferenced(&storage) { storage = Storage(storage.value) }
            yield &storage.value
        }
    }
}
