/// Lines of one pool in the order of their turns: a binary heap that knows the positions of its members.
///
/// Each line has a *tag*, the serial number of its last turn, and the line with the lowest tag is next. A line that
/// returns from an obstacle keeps its tag, so that it precedes the lines that had turns meanwhile. A rotation without
/// memory would let one line meet a full origin each time, directly after another had filled it.
struct PrincipalTurnHeap {
    private struct Turn {
        var lastTurnSerial: UInt64
        var principalQueue: Handle<FairQueue.PrincipalQueue>
    }

    private var turns: [Turn] = []
    /// Index in `turns` by line; nil for a line that is not in the order.
    private var heapIndexByLine = HandleArray<FairQueue.PrincipalQueue, Int?>()

    var count: Int { turns.count }

    /// The line with the next turn.
    var first: Handle<FairQueue.PrincipalQueue>? { turns.first?.principalQueue }

    func contains(_ line: Handle<FairQueue.PrincipalQueue>) -> Bool { heapIndex(of: line) != nil }

    /// Adds a line. O(log lines).
    mutating func insert(_ line: Handle<FairQueue.PrincipalQueue>, tag: UInt64) {
        heapIndexByLine.extendIfNeeded(to: line, filler: nil)
        precondition(heapIndexByLine[line] == nil, "line \(line) has two turns")
        turns.append(Turn(lastTurnSerial: tag, principalQueue: line))
        siftUp(from: turns.count - 1)
    }

    /// Removes a line; no effect if it is not in the order. O(log lines).
    mutating func remove(_ line: Handle<FairQueue.PrincipalQueue>) {
        guard let gap = heapIndex(of: line) else { return }
        heapIndexByLine[line] = nil
        let last = turns.removeLast()
        guard gap < turns.count else { return }
        turns[gap] = last
        siftDown(from: gap)
        siftUp(from: gap)
    }

    /// Raises the tag of a line, so that its turn is later; no effect if it is not in the order. O(log lines).
    mutating func increaseTag(of line: Handle<FairQueue.PrincipalQueue>, to: UInt64) {
        guard let position = heapIndex(of: line) else { return }
        turns[position].lastTurnSerial = to
        // The usual case: the bus has one principal.
        if turns.count > 1 { siftDown(from: position) }
    }

    private func heapIndex(of line: Handle<FairQueue.PrincipalQueue>) -> Int? {
        heapIndexByLine.contains(line) ? heapIndexByLine[line] : nil
    }

    /// Moves a turn up to its position below an earlier one.
    private mutating func siftUp(from start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard turns[child].lastTurnSerial < turns[parent].lastTurnSerial else { break }
            turns.swapAt(child, parent)
            recordPosition(at: child)
            child = parent
        }
        recordPosition(at: child)
    }

    /// Moves a turn down to its position above later ones.
    private mutating func siftDown(from start: Int) {
        var parent = start
        while 2 * parent + 1 < turns.count {
            var child = 2 * parent + 1
            if child + 1 < turns.count, turns[child + 1].lastTurnSerial < turns[child].lastTurnSerial { child += 1 }
            guard turns[child].lastTurnSerial < turns[parent].lastTurnSerial else { break }
            turns.swapAt(parent, child)
            recordPosition(at: parent)
            parent = child
        }
        recordPosition(at: parent)
    }

    private mutating func recordPosition(at index: Int) { heapIndexByLine[turns[index].principalQueue] = index }

    /// Returns a sentence for each violated invariant. O(lines).
    ///
    /// - Parameter tags: tags of the lines that must be in the order.
    func checkInvariants(tags: [Handle<FairQueue.PrincipalQueue>: UInt64]) -> [String] {
        var faults: [String] = []
        let own = Dictionary(turns.map { ($0.principalQueue, $0.lastTurnSerial) }) { first, _ in first }
        if own != tags || turns.count != tags.count { faults.append("4: the turns are \(own), not \(tags)") }
        if !turns.indices.allSatisfy({ heapIndexByLine[turns[$0].principalQueue] == $0 })
            || heapIndexByLine.handles.count(where: contains) != count
        {
            faults.append("4: a turn has another position")
        }
        let isOrdered = turns.indices.dropFirst().allSatisfy {
            turns[($0 - 1) / 2].lastTurnSerial <= turns[$0].lastTurnSerial
        }
        if !isOrdered { faults.append("4: a turn precedes an earlier one") }
        return faults
    }
}
