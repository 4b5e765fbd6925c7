/// Records in the order of keys that the records hold: a B-tree of two levels.
///
/// The table stores no key, so an entry costs 4 to 16 bytes. A search takes a predicate that is true for all records
/// before the wanted position and false for all others; it costs O(log n) calls. An insertion or removal moves at most
/// one block and, rarely, the list of blocks.
package struct OrderedHandles<Record> {
    /// Position of a handle, or the end. Insertion and removal invalidate it.
    package struct Position: Equatable {
        fileprivate var blockIndex: Int
        fileprivate var offsetInBlock: Int
    }

    /// Maximum handles in a block: 1 KiB, whose move takes about as long as one comparison of keys.
    static var blockCapacity: Int { 256 }

    /// No block is empty.
    private var blocks: [[Handle<Record>]] = []
    private(set) var count = 0

    var startPosition: Position { Position(blockIndex: 0, offsetInBlock: 0) }

    /// The handle at a position; nil at the end.
    package subscript(position: Position) -> Handle<Record>? {
        position.blockIndex < blocks.count ? blocks[position.blockIndex][position.offsetInBlock] : nil
    }

    package func position(after position: Position) -> Position {
        position.offsetInBlock + 1 < blocks[position.blockIndex].count
            ? Position(blockIndex: position.blockIndex, offsetInBlock: position.offsetInBlock + 1)
            : Position(blockIndex: position.blockIndex + 1, offsetInBlock: 0)
    }

    /// Returns the position of the first handle for which `precedes` is false, or the end.
    package func firstPosition(notPreceding precedes: (Handle<Record>) -> Bool) -> Position {
        var (low, high) = (0, blocks.count)
        while low < high {
            let middle = (low + high) / 2
            if precedes(blocks[middle][blocks[middle].count - 1]) { low = middle + 1 } else { high = middle }
        }
        guard low < blocks.count else { return Position(blockIndex: low, offsetInBlock: 0) }
        let block = low
        (low, high) = (0, blocks[block].count - 1)
        while low < high {
            let middle = (low + high) / 2
            if precedes(blocks[block][middle]) { low = middle + 1 } else { high = middle }
        }
        return Position(blockIndex: block, offsetInBlock: low)
    }

    /// Returns the handles from `position` on, up to the first for which `belongs` is false.
    ///
    /// - Parameter limit: maximum number of handles.
    func handles(
        from position: Position, limit: Int = .max, while belongs: (Handle<Record>) -> Bool
    ) -> [Handle<Record>] {
        var handles: [Handle<Record>] = []
        var next = position
        while handles.count < limit, let handle = self[next], belongs(handle) {
            handles.append(handle)
            next = self.position(after: next)
        }
        return handles
    }

    /// Inserts a handle before the one at `position`.
    mutating func insert(_ handle: Handle<Record>, at position: Position) {
        count += 1
        var (block, offset) = (position.blockIndex, position.offsetInBlock)
        if block == blocks.count {
            // Past the last handle: the usual position of ascending keys.
            guard let last = blocks.last, last.count < Self.blockCapacity else {
                blocks.append([handle])
                return
            }
            (block, offset) = (block - 1, last.count)
        } else if blocks[block].count == Self.blockCapacity {
            let half = Self.blockCapacity / 2
            blocks.insert(Array(blocks[block][half...]), at: block + 1)
            blocks[block].removeSubrange(half...)
            if offset > half { (block, offset) = (block + 1, offset - half) }
        }
        blocks[block].insert(handle, at: offset)
    }

    /// Removes the handle at `position`, which must not be the end.
    mutating func remove(at position: Position) {
        count -= 1
        let block = position.blockIndex
        blocks[block].remove(at: position.offsetInBlock)
        guard blocks[block].count < Self.blockCapacity / 4 else { return }
        guard !blocks[block].isEmpty else {
            blocks.remove(at: block)
            return
        }
        // Merges two small neighbours, leaving room for insertions. Blocks stay at least a quarter full on average.
        guard block + 1 < blocks.count, blocks[block].count + blocks[block + 1].count <= Self.blockCapacity / 2 else {
            return
        }
        blocks[block] += blocks[block + 1]
        blocks.remove(at: block + 1)
    }

    /// Description of a violated invariant; nil if all hold.
    var invariantViolation: String? {
        if blocks.contains(where: { $0.isEmpty || $0.count > Self.blockCapacity }) {
            return "a block is empty or too long"
        }
        let sum = blocks.reduce(0) { $0 + $1.count }
        return sum == count ? nil : "\(sum) records are counted as \(count)"
    }
}
