/// Lines of one pool in the order of their turns: a binary heap that knows the positions of its members.
///
/// Each line has a *tag*, the serial number of its last turn, and the line with the lowest tag is next. A line that
/// returns from an obstacle keeps its tag, so that it precedes the lines that had turns meanwhile. A rotation without
/// memory would let one line meet a full origin each time, directly after another had filled it.
struct TurnOrder {
    private struct Turn {
        var tag: UInt64
        var line: Handle<FairQueue.Line>
    }

    private var turns: [Turn] = []
    /// Index in `turns` by line; nil for a line that is not in the order.
    private var positions = HandleArray<FairQueue.Line, Int?>()

    var count: Int { turns.count }

    /// The line with the next turn.
    var first: Handle<FairQueue.Line>? { turns.first?.line }

    func contains(_ line: Handle<FairQueue.Line>) -> Bool { position(of: line) != nil }

    /// Adds a line. O(log lines).
    mutating func insert(_ line: Handle<FairQueue.Line>, tag: UInt64) {
        positions.reserve(line, filler: nil)
        precondition(positions[line] == nil, "line \(line) has two turns")
        turns.append(Turn(tag: tag, line: line))
        rise(from: turns.count - 1)
    }

    /// Removes a line; no effect if it is not in the order. O(log lines).
    mutating func remove(_ line: Handle<FairQueue.Line>) {
        guard let gap = position(of: line) else { return }
        positions[line] = nil
        let last = turns.removeLast()
        guard gap < turns.count else { return }
        turns[gap] = last
        sink(from: gap)
        rise(from: gap)
    }

    /// Gives a line a later turn; no effect if it is not in the order. O(log lines).
    mutating func delay(_ line: Handle<FairQueue.Line>, tag: UInt64) {
        guard let position = position(of: line) else { return }
        turns[position].tag = tag
        // The usual case: the bus has one principal.
        if turns.count > 1 { sink(from: position) }
    }

    private func position(of line: Handle<FairQueue.Line>) -> Int? { positions.contains(line) ? positions[line] : nil }

    /// Moves a turn up to its place below an earlier one.
    private mutating func rise(from start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard turns[child].tag < turns[parent].tag else { break }
            turns.swapAt(child, parent)
            place(child)
            child = parent
        }
        place(child)
    }

    /// Moves a turn down to its place above later ones.
    private mutating func sink(from start: Int) {
        var parent = start
        while 2 * parent + 1 < turns.count {
            var child = 2 * parent + 1
            if child + 1 < turns.count, turns[child + 1].tag < turns[child].tag { child += 1 }
            guard turns[child].tag < turns[parent].tag else { break }
            turns.swapAt(parent, child)
            place(parent)
            parent = child
        }
        place(parent)
    }

    private mutating func place(_ index: Int) { positions[turns[index].line] = index }

    /// Returns a sentence for each violated invariant. O(lines).
    ///
    /// - Parameter tags: tags of the lines that must be in the order.
    func checkInvariants(tags: [Handle<FairQueue.Line>: UInt64]) -> [String] {
        var faults: [String] = []
        let own = Dictionary(turns.map { ($0.line, $0.tag) }) { first, _ in first }
        if own != tags || turns.count != tags.count { faults.append("4: the turns are \(own), not \(tags)") }
        if !turns.indices.allSatisfy({ positions[turns[$0].line] == $0 })
            || positions.handles.count(where: contains) != count
        {
            faults.append("4: a turn has another position")
        }
        let isOrdered = turns.indices.dropFirst().allSatisfy { turns[($0 - 1) / 2].tag <= turns[$0].tag }
        if !isOrdered { faults.append("4: a turn precedes an earlier one") }
        return faults
    }
}
