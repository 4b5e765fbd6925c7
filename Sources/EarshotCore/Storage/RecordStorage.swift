/// Memory for records of one type: at each place there is one, or nothing.
///
/// The one type of the core that keeps memory by hand. Each access first looks whether the place is there and holds a
/// record, so a wrong number traps as one out of an array's bounds does.
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

    @inline(__always)
    func contains(_ index: Int) -> Bool { index >= 0 && index < capacity ? unsafe isTaken[index] : false }

    /// Puts a record where there is none.
    func put(_ record: consuming Element, at index: Int) {
        precondition(index >= 0 && index < capacity, "there is no place \(index)")
        precondition(!contains(index), "record \(index) is in use")
        unsafe (records + index).initialize(to: record)
        unsafe isTaken[index] = true
    }

    /// Ends the record that is there.
    func clear(_ index: Int) {
        precondition(contains(index), "record \(index) is removed twice")
        // Whatever its end brings about, it is not there any more.
        unsafe isTaken[index] = false
        unsafe (records + index).deinitialize(count: 1)
    }

    /// Removes the record that is there and returns it.
    func take(_ index: Int) -> Element {
        precondition(contains(index), "record \(index) is removed twice")
        unsafe isTaken[index] = false
        return unsafe (records + index).move()
    }

    /// The record that is there.
    subscript(index: Int) -> Element {
        @inline(__always) unsafeAddress {
            precondition(contains(index), "record is not in use")
            return unsafe UnsafePointer(records + index)
        }
        @inline(__always) unsafeMutableAddress {
            precondition(contains(index), "record is not in use")
            return unsafe records + index
        }
    }

    /// The places below `bound` without a record, the highest first.
    func freePlaces(below bound: Int) -> [Int32] {
        var places: [Int32] = []
        for index in stride(from: bound - 1, through: 0, by: -1) where !contains(index) { places.append(Int32(index)) }
        return places
    }

    /// A storage of its own with copies of the records.
    func copied() -> RecordStorage { copied(capacity: capacity) }

    /// A storage with another number of places, enough for all records. They move into it, unless somebody else has
    /// this one, too.
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
