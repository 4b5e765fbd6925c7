/// Ends and length of one doubly linked list in a `Chains` table.
struct Chain: Equatable {
    /// -1 if the list is empty.
    fileprivate(set) var first: Int32 = -1
    fileprivate(set) var last: Int32 = -1
    fileprivate(set) var count: Int32 = 0

    var isEmpty: Bool { count == 0 }

    /// The first member; nil if the list is empty.
    var firstMember: Int32? { first >= 0 ? first : nil }

    /// The only member; nil if the list has none or several.
    var onlyMember: Int32? { count == 1 ? first : nil }
}

/// Intrusive doubly linked lists of record numbers. Each record is in at most one list of a table. Append and removal
/// take O(1).
///
/// There is one table per purpose (the interests of a handler, of a flight, of a leaf), beside the slab of the records.
struct Chains {
    private struct Links {
        var previous: Int32 = -1
        var next: Int32 = -1
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
        links[Int(index)] = Links(previous: chain.last, next: -1)
        if chain.last >= 0 { links[Int(chain.last)].next = index } else { chain.first = index }
        chain.last = index
        chain.count += 1
    }

    mutating func prepend(_ index: Int32, to chain: inout Chain) {
        reserve(index)
        links[Int(index)] = Links(previous: -1, next: chain.first)
        if chain.first >= 0 { links[Int(chain.first)].previous = index } else { chain.last = index }
        chain.first = index
        chain.count += 1
    }

    /// Removes `index`, which must be in `chain`.
    mutating func remove(_ index: Int32, from chain: inout Chain) {
        let own = links[Int(index)]
        if own.previous >= 0 { links[Int(own.previous)].next = own.next } else { chain.first = own.next }
        if own.next >= 0 { links[Int(own.next)].previous = own.previous } else { chain.last = own.previous }
        links[Int(index)] = Links()
        chain.count -= 1
    }

    /// Moves the first member to the end: one turn of a round robin.
    mutating func rotate(_ chain: inout Chain) {
        guard chain.count > 1 else { return }
        let index = chain.first
        remove(index, from: &chain)
        append(index, to: &chain)
    }

    func next(after index: Int32) -> Int32 { links[Int(index)].next }

    /// Returns all members in order. O(count).
    func members(of chain: Chain) -> [Int32] {
        var members: [Int32] = []
        members.reserveCapacity(Int(chain.count))
        var index = chain.first
        while index >= 0 {
            members.append(index)
            index = links[Int(index)].next
        }
        return members
    }
}
