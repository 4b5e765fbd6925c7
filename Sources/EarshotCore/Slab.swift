/// Records under small numbers that are used again: one allocation for many, four bytes to name one.
///
/// A record is looked at and changed where it lies. The records are a `RecordStorage` and not an array of optionals,
/// out of which each look at one field takes a copy of the whole record, with all that it refers to.
struct Slab<Element> {
    private var storage = RecordStorage<Element>(capacity: 0)
    private var free: [Int32] = []

    /// One more than the largest number in use or free.
    private(set) var bound = 0

    var count: Int { bound - free.count }

    /// O(1) amortised.
    mutating func insert(_ element: Element) -> Int32 {
        let isShared = !isKnownUniquelyReferenced(&storage)
        if bound == storage.capacity, free.isEmpty {
            storage = storage.grown(isShared: isShared)
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
