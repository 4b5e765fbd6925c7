/// Records under small numbers that are used again: one allocation for many, four bytes to name one.
struct Slab<Element> {
    private var records: [Element?] = []
    private var free: [Int32] = []

    var count: Int { records.count - free.count }

    /// One more than the largest number in use or free.
    var bound: Int { records.count }

    /// O(1) amortised.
    mutating func insert(_ element: Element) -> Int32 {
        if let index = free.popLast() {
            records[Int(index)] = element
            return index
        }
        records.append(element)
        return Int32(records.count - 1)
    }

    /// The number must be in use.
    mutating func remove(_ index: Int32) {
        precondition(records[Int(index)] != nil, "record \(index) is removed twice")
        records[Int(index)] = nil
        free.append(index)
    }

    func contains(_ index: Int32) -> Bool {
        index >= 0 && Int(index) < records.count && records[Int(index)] != nil
    }

    /// The number must be in use.
    subscript(index: Int32) -> Element {
        get {
            guard let record = records[Int(index)] else { preconditionFailure("record \(index) is not in use") }
            return record
        }
        _modify {
            precondition(records[Int(index)] != nil, "record \(index) is not in use")
            yield &records[Int(index)]!
        }
    }

    /// Goes through all records in use, without a list of them. O(bound).
    func forEach(_ body: (Int32, Element) -> Void) {
        for index in records.indices {
            if let record = records[index] { body(Int32(index), record) }
        }
    }

    /// All numbers in use, for audits and reports. O(bound).
    var indices: [Int32] { (0..<Int32(records.count)).filter { records[Int($0)] != nil } }
}
