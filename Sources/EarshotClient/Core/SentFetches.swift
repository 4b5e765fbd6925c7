internal import DequeModule
internal import EarshotWire

/// Requests of the FETCHes of a session by their numbers, because an ERROR names only the number.
struct SentFetches {
    /// Maximum number of entries without an open request that are kept when there are few requests.
    static let spare = 64

    /// In rising order of the numbers.
    private var entries = Deque<(number: UInt64, key: RequestKey)>()

    var count: Int { entries.count }

    mutating func add(_ key: RequestKey, number: UInt64) { entries.append((number, key)) }

    /// Returns the request of a number. O(log n).
    func key(of number: UInt64) -> RequestKey? {
        var (low, high) = (entries.startIndex, entries.endIndex)
        while low < high {
            let middle = low + (high - low) / 2
            if entries[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low < entries.endIndex && entries[low].number == number ? entries[low].key : nil
    }

    /// Removes entries. O(n).
    mutating func removeAll(where isRemoved: (UInt64, RequestKey) -> Bool) {
        entries.removeAll { isRemoved($0.number, $0.key) }
    }

    /// Resumes a session in which the broker knows the messages up to a number. Later ones get new numbers.
    mutating func resume(after number: UInt64) {
        while let last = entries.last, last.number > number { entries.removeLast() }
    }
}
