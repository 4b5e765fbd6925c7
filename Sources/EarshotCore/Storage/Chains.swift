/// The ends of one doubly linked chain in a `Chains` table.
struct Chain: Equatable {
    /// -1 when empty.
    fileprivate(set) var first: Int32 = -1
    fileprivate(set) var last: Int32 = -1
    fileprivate(set) var count: Int32 = 0

    var isEmpty: Bool { count == 0 }

    /// Nil when empty.
    var firstMember: Int32? { first >= 0 ? first : nil }

    /// Nil unless it is one.
    var onlyMember: Int32? { count == 1 ? first : nil }
}

/// Links of records that are each in at most one chain of this table: O(1) append and removal from the middle.
///
/// A table per purpose (a handler's interests, a flight's, a leaf's), beside the slab that holds the records.
struct Chains {
    private struct Links {
        var previous: Int32 = -1
        var next: Int32 = -1
    }

    private var links: [Links] = []

    /// Room for records below `bound`.
    mutating func reserve(_ index: Int32) {
        while links.count <= Int(index) { links.append(Links()) }
    }

    /// Releases the room of records from `bound` on, none of which exists.
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

    /// `index` must be in `chain`.
    mutating func remove(_ index: Int32, from chain: inout Chain) {
        let own = links[Int(index)]
        if own.previous >= 0 { links[Int(own.previous)].next = own.next } else { chain.first = own.next }
        if own.next >= 0 { links[Int(own.next)].previous = own.previous } else { chain.last = own.previous }
        links[Int(index)] = Links()
        chain.count -= 1
    }

    /// Moves the first record to the end: one turn of a round robin.
    mutating func rotate(_ chain: inout Chain) {
        guard chain.count > 1 else { return }
        let index = chain.first
        remove(index, from: &chain)
        append(index, to: &chain)
    }

    func next(after index: Int32) -> Int32 { links[Int(index)].next }

    /// All records of a chain in order. O(count).
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
