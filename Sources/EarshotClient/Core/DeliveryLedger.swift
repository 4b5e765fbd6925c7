internal import DequeModule

/// Terminals of one session: received, finished by the consumer, acknowledged.
///
/// Finishing costs O(log n) of the outstanding ones, which the window bounds; all other operations O(1).
struct DeliveryLedger {
    private struct Entry {
        let sequence: UInt64
        /// Nil for a malformed terminal whose request is illegible.
        let key: RequestKey?
        var isFinished = false
    }

    /// In the order of their numbers, from the first that is not acknowledged.
    private var entries = Deque<Entry>()
    private var lastReceived: UInt64 = 0
    private var lastAcknowledged: UInt64 = 0
    private var unacknowledgedSequences: [RequestKey: UInt64] = [:]

    /// Records a terminal.
    ///
    /// - Returns: false for a repetition.
    mutating func recordTerminal(_ sequence: UInt64, of key: RequestKey?) -> Bool {
        guard sequence > lastReceived else { return false }
        lastReceived = sequence
        entries.append(Entry(sequence: sequence, key: key))
        if let key { unacknowledgedSequences[key] = sequence }
        return true
    }

    /// Last acknowledged number; nil if there is none.
    var acknowledgedNumber: UInt64? { lastAcknowledged > 0 ? lastAcknowledged : nil }

    /// Returns the number of an unacknowledged terminal of `key`; nil if there is none. The ID is in use until the
    /// acknowledgement.
    func unacknowledgedSequence(of key: RequestKey) -> UInt64? { unacknowledgedSequences[key] }

    /// Finishes a terminal. Has no effect if it is not outstanding.
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

    /// Returns the number up to which all terminals are finished; nil if it has not grown.
    mutating func takeAcknowledgement() -> UInt64? {
        while let first = entries.first, first.isFinished {
            entries.removeFirst()
            lastAcknowledged = first.sequence
            if let key = first.key, let index = unacknowledgedSequences.index(forKey: key),
                unacknowledgedSequences.values[index] == first.sequence
            {
                unacknowledgedSequences.remove(at: index)
            }
            if entries.first?.isFinished != true { return lastAcknowledged }
        }
        return nil
    }
}
