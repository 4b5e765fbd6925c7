/// Record numbers in the order of keys that the records hold: a B-tree of two levels.
///
/// The table stores no key, so an entry costs 4 to 16 bytes. A search takes a predicate that is true for all numbers
/// before the wanted position and false for all others; it costs O(log n) calls. An insertion or removal moves at most
/// one block and, rarely, the list of blocks.
struct OrderedNumbers {
    /// Position of a number, or the end. Insertion and removal invalidate it.
    struct Position: Equatable {
        fileprivate var block: Int
        fileprivate var offset: Int
    }

    /// Maximum numbers in a block: 1 KiB, whose move takes about as long as one comparison of keys.
    static let blockCapacity = 256

    /// No block is empty.
    private var blocks: [[Int32]] = []
    private(set) var count = 0

    var start: Position { Position(block: 0, offset: 0) }

    /// The number at a position; nil at the end.
    subscript(position: Position) -> Int32? {
        position.block < blocks.count ? blocks[position.block][position.offset] : nil
    }

    func position(after position: Position) -> Position {
        position.offset + 1 < blocks[position.block].count
            ? Position(block: position.block, offset: position.offset + 1)
            : Position(block: position.block + 1, offset: 0)
    }

    /// Returns the position of the first number for which `precedes` is false, or the end.
    func firstPosition(notPreceding precedes: (Int32) -> Bool) -> Position {
        var (low, high) = (0, blocks.count)
        while low < high {
            let middle = (low + high) / 2
            if precedes(blocks[middle][blocks[middle].count - 1]) { low = middle + 1 } else { high = middle }
        }
        guard low < blocks.count else { return Position(block: low, offset: 0) }
        let block = low
        (low, high) = (0, blocks[block].count - 1)
        while low < high {
            let middle = (low + high) / 2
            if precedes(blocks[block][middle]) { low = middle + 1 } else { high = middle }
        }
        return Position(block: block, offset: low)
    }

    /// Returns the numbers from `position` on, up to the first for which `belongs` is false.
    func numbers(from position: Position, while belongs: (Int32) -> Bool) -> [Int32] {
        var numbers: [Int32] = []
        var next = position
        while let number = self[next], belongs(number) {
            numbers.append(number)
            next = self.position(after: next)
        }
        return numbers
    }

    /// Inserts a number before the one at `position`.
    mutating func insert(_ number: Int32, at position: Position) {
        count += 1
        var (block, offset) = (position.block, position.offset)
        if block == blocks.count {
            // Past the last number: the usual position of ascending keys.
            guard let last = blocks.last, last.count < Self.blockCapacity else {
                blocks.append([number])
                return
            }
            (block, offset) = (block - 1, last.count)
        } else if blocks[block].count == Self.blockCapacity {
            let half = Self.blockCapacity / 2
            blocks.insert(Array(blocks[block][half...]), at: block + 1)
            blocks[block].removeSubrange(half...)
            if offset > half { (block, offset) = (block + 1, offset - half) }
        }
        blocks[block].insert(number, at: offset)
    }

    /// Removes the number at `position`, which must not be the end.
    mutating func remove(at position: Position) {
        count -= 1
        let block = position.block
        blocks[block].remove(at: position.offset)
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
    var fault: String? {
        if blocks.contains(where: { $0.isEmpty || $0.count > Self.blockCapacity }) {
            return "a block is empty or too long"
        }
        let sum = blocks.reduce(0) { $0 + $1.count }
        return sum == count ? nil : "\(sum) numbers are counted as \(count)"
    }
}
