/// Ends and length of one doubly linked list in a `Chains` table.
struct Chain: Equatable {
    @OptionalNumber fileprivate(set) var first: Int32? = nil
    @OptionalNumber fileprivate(set) var last: Int32? = nil
    fileprivate(set) var count: Int32 = 0

    var isEmpty: Bool { count == 0 }

    /// The only member; nil if the list has none or several.
    var onlyMember: Int32? { count == 1 ? first : nil }
}

/// Intrusive doubly linked lists of record numbers. Each record is in at most one list of a table. Append and removal
/// take O(1).
///
/// There is one table per purpose (the interests of a handler, of a flight, of a leaf), beside the slab of the records.
struct Chains {
    private struct Links {
        @OptionalNumber var previous: Int32? = nil
        @OptionalNumber var next: Int32? = nil
    }

    private var links: [Links] = []

    /// Makes `index` a valid record number.
    mutating func reserve(_ index: Int32) {
        while links.count <= Int(index) { links.append(Links()) }
    }

    /// Releases the entries of records from `bound` on, which must not exist.
    mutating func releaseRoom(beyond bound: Int, least: Int) { links.releaseRoom(beyond: bound, least: least) }

    mutating func append(_ index: Int32, to chain: inout Chain) {
        reserve(index)
        links[Int(index)] = Links(previous: chain.last, next: nil)
        if let last = chain.last { links[Int(last)].next = index } else { chain.first = index }
        chain.last = index
        chain.count += 1
    }

    mutating func prepend(_ index: Int32, to chain: inout Chain) {
        reserve(index)
        links[Int(index)] = Links(previous: nil, next: chain.first)
        if let first = chain.first { links[Int(first)].previous = index } else { chain.last = index }
        chain.first = index
        chain.count += 1
    }

    /// Removes `index`, which must be in `chain`.
    mutating func remove(_ index: Int32, from chain: inout Chain) {
        let own = links[Int(index)]
        if let previous = own.previous { links[Int(previous)].next = own.next } else { chain.first = own.next }
        if let next = own.next { links[Int(next)].previous = own.previous } else { chain.last = own.previous }
        links[Int(index)] = Links()
        chain.count -= 1
    }

    /// Moves the first member to the end: one turn of a round robin.
    mutating func rotate(_ chain: inout Chain) {
        guard chain.count > 1, let index = chain.first else { return }
        remove(index, from: &chain)
        append(index, to: &chain)
    }

    func next(after index: Int32) -> Int32? { links[Int(index)].next }

    /// Returns all members in order. O(count).
    func members(of chain: Chain) -> [Int32] {
        var members: [Int32] = []
        members.reserveCapacity(Int(chain.count))
        var next = chain.first
        while let index = next {
            members.append(index)
            next = links[Int(index)].next
        }
        return members
    }
}
