/// Fixed-capacity memory in which each place holds a record or is empty.
///
/// The only type of the core with manual memory management. Each access checks that the place exists and holds a
/// record, so a wrong number traps like an index out of an array's bounds.
@safe final class RecordStorage<Element> {
    let capacity: Int
    private let records: UnsafeMutablePointer<Element>
    private let isTaken: UnsafeMutablePointer<Bool>

    init(capacity: Int) {
        self.capacity = capacity
        unsafe records = .allocate(capacity: capacity)
        unsafe isTaken = .allocate(capacity: capacity)
        unsafe isTaken.initialize(repeating: false, count: capacity)
    }

    deinit {
        for index in 0..<capacity where contains(index) { unsafe (records + index).deinitialize(count: 1) }
        unsafe records.deallocate()
        unsafe isTaken.deallocate()
    }

    func contains(_ index: Int) -> Bool { index >= 0 && index < capacity ? unsafe isTaken[index] : false }

    /// Stores a record at an empty place.
    func put(_ record: consuming Element, at index: Int) {
        precondition(index >= 0 && index < capacity, "there is no place \(index)")
        precondition(!contains(index), "record \(index) is in use")
        unsafe (records + index).initialize(to: record)
        unsafe isTaken[index] = true
    }

    /// Destroys the record at a place.
    func clear(_ index: Int) {
        precondition(contains(index), "record \(index) is removed twice")
        // The place counts as empty before the record's deinitializer runs.
        unsafe isTaken[index] = false
        unsafe (records + index).deinitialize(count: 1)
    }

    /// Removes and returns the record at a place.
    func take(_ index: Int) -> Element {
        precondition(contains(index), "record \(index) is removed twice")
        unsafe isTaken[index] = false
        return unsafe (records + index).move()
    }

    /// Accesses the record at a place.
    subscript(index: Int) -> Element {
        unsafeAddress { unsafe UnsafePointer(address(of: index)) }
        unsafeMutableAddress { unsafe address(of: index) }
    }

    /// Address of the record at a place. It is valid until the record is moved or removed.
    @inline(__always)
    func address(of index: Int) -> UnsafeMutablePointer<Element> {
        precondition(contains(index), "record is not in use")
        return unsafe records + index
    }

    /// Returns the empty places below `bound` in descending order.
    func freeIndices(below bound: Int) -> [Int32] {
        var places: [Int32] = []
        for index in stride(from: bound - 1, through: 0, by: -1) where !contains(index) { places.append(Int32(index)) }
        return places
    }

    /// Returns a storage with copies of the records.
    func copied() -> RecordStorage { copied(capacity: capacity) }

    /// Returns a storage with another capacity, which must suffice for all records. Moves the records, or copies them
    /// if another slab shares this storage.
    func resized(to capacity: Int, isShared: Bool) -> RecordStorage {
        guard !isShared else { return copied(capacity: capacity) }
        let resized = RecordStorage(capacity: capacity)
        for index in 0..<self.capacity where contains(index) {
            precondition(index < capacity, "record \(index) has no place among \(capacity)")
            unsafe (resized.records + index).moveInitialize(from: records + index, count: 1)
            unsafe resized.isTaken[index] = true
            unsafe isTaken[index] = false
        }
        return resized
    }

    private func copied(capacity other: Int) -> RecordStorage {
        let copy = RecordStorage(capacity: other)
        for index in 0..<capacity where contains(index) { copy.put(self[index], at: index) }
        return copy
    }
}
