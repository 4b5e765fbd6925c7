internal import DequeModule

/// The terminals of one connection: which came, which their consumer is done with, how far they can be acknowledged.
///
/// Finishing is O(log n) of those outstanding, which the window bounds; all else is O(1).
struct DeliveryLedger {
    private struct Entry {
        let sequence: UInt64
        let key: RequestKey
        var isFinished = false
    }

    /// In the order of their numbers, from the first that cannot be acknowledged yet.
    private var entries = Deque<Entry>()
    private var lastReceived: UInt64 = 0
    private var lastAcknowledged: UInt64 = 0
    private var sequences: [RequestKey: UInt64] = [:]

    /// Notes a terminal.
    ///
    /// - Returns: false if it came before.
    mutating func receive(_ sequence: UInt64, of key: RequestKey) -> Bool {
        guard sequence > lastReceived else { return false }
        lastReceived = sequence
        entries.append(Entry(sequence: sequence, key: key))
        sequences[key] = sequence
        return true
    }

    /// The number up to which all was acknowledged; nil if nothing was.
    var acknowledged: UInt64? { lastAcknowledged > 0 ? lastAcknowledged : nil }

    /// The number under which `key`'s terminal is not acknowledged yet: its ID is not free until it is.
    func unacknowledged(_ key: RequestKey) -> UInt64? { sequences[key] }

    /// Nothing happens for one that is not outstanding.
    mutating func finish(_ sequence: UInt64) {
        guard let first = entries.first, sequence >= first.sequence else { return }
        var (low, high) = (0, entries.count)
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].sequence < sequence { low = middle + 1 } else { high = middle }
        }
        guard low < entries.count, entries[low].sequence == sequence else { return }
        entries[low].isFinished = true
    }

    /// The number up to which all can be acknowledged now, if that is news.
    mutating func takeAcknowledgement() -> UInt64? {
        while let first = entries.first, first.isFinished {
            entries.removeFirst()
            lastAcknowledged = first.sequence
            if let place = sequences.index(forKey: first.key), sequences.values[place] == first.sequence {
                sequences.remove(at: place)
            }
            if entries.first?.isFinished != true { return lastAcknowledged }
        }
        return nil
    }
}
