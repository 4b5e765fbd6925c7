/// Doubly linked lists of records. Each record is in at most one list of a table. Append and removal take O(1).
///
/// There is one table per purpose (the interests of a handler, of a flight, of a leaf), beside the slab of the records.
struct LinkedLists<Record> {
    private struct Links {
        @OptionalHandle var previous: Handle<Record>? = nil
        @OptionalHandle var next: Handle<Record>? = nil
    }

    private var linksByRecord: [Links] = []

    /// Makes room for the links of a record.
    private mutating func reserveLinks(for record: Handle<Record>) {
        while linksByRecord.count <= record.slabIndex { linksByRecord.append(Links()) }
    }

    /// Releases the entries of records from `bound` on, which must not exist.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        linksByRecord.releaseSpareCapacity(beyond: bound, retaining: least)
    }

    mutating func append(_ record: Handle<Record>, to chain: inout LinkedList<Record>) {
        reserveLinks(for: record)
        linksByRecord[record.slabIndex] = Links(previous: chain.last, next: nil)
        if let last = chain.last { linksByRecord[last.slabIndex].next = record } else { chain.first = record }
        chain.last = record
        chain.count += 1
    }

    mutating func prepend(_ record: Handle<Record>, to chain: inout LinkedList<Record>) {
        reserveLinks(for: record)
        linksByRecord[record.slabIndex] = Links(previous: nil, next: chain.first)
        if let first = chain.first { linksByRecord[first.slabIndex].previous = record } else { chain.last = record }
        chain.first = record
        chain.count += 1
    }

    /// Removes `record`, which must be in `chain`.
    mutating func remove(_ record: Handle<Record>, from chain: inout LinkedList<Record>) {
        let own = linksByRecord[record.slabIndex]
        if let previous = own.previous {
            linksByRecord[previous.slabIndex].next = own.next
        } else {
            chain.first = own.next
        }
        if let next = own.next {
            linksByRecord[next.slabIndex].previous = own.previous
        } else {
            chain.last = own.previous
        }
        linksByRecord[record.slabIndex] = Links()
        chain.count -= 1
    }

    /// Moves the first member to the end: one turn of a round robin.
    mutating func rotate(_ chain: inout LinkedList<Record>) {
        guard chain.count > 1, let record = chain.first else { return }
        remove(record, from: &chain)
        append(record, to: &chain)
    }

    /// Whether a record is in `chain`. It must be in no other list of the table.
    func contains(_ record: Handle<Record>, in chain: LinkedList<Record>) -> Bool {
        chain.first == record
            || record.slabIndex < linksByRecord.count && linksByRecord[record.slabIndex].previous != nil
    }

    func next(after record: Handle<Record>) -> Handle<Record>? { linksByRecord[record.slabIndex].next }

    /// Returns all members in order. O(count).
    func members(of chain: LinkedList<Record>) -> [Handle<Record>] {
        var members: [Handle<Record>] = []
        members.reserveCapacity(Int(chain.count))
        var next = chain.first
        while let record = next {
            members.append(record)
            next = linksByRecord[record.slabIndex].next
        }
        return members
    }
}

/// Ends and length of one doubly linked list in a `LinkedLists` table.
package struct LinkedList<Record>: Equatable {
    @OptionalHandle fileprivate(set) var first: Handle<Record>? = nil
    @OptionalHandle fileprivate(set) var last: Handle<Record>? = nil
    package fileprivate(set) var count: Int32 = 0

    var isEmpty: Bool { count == 0 }

    /// The only member; nil if the list has none or several.
    var onlyMember: Handle<Record>? { count == 1 ? first : nil }
}
