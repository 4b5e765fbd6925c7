internal import EarshotWire

/// A worker's leases by their attempts.
///
/// Records in a slab, and their numbers by a cheap hash: a lease is large, and a dictionary of them would copy it for
/// each look and move all of them when it grows.
struct LeaseTable: Sequence {
    private struct Entry {
        let attempt: AttemptID
        var lease: WorkerSession.Lease
    }

    private var entries = Slab<Entry>()
    private var numbers = NumberTable()

    var count: Int { entries.count }

    var isEmpty: Bool { entries.count == 0 }

    /// In no order.
    var values: [WorkerSession.Lease] { map(\.value) }

    func contains(_ attempt: AttemptID) -> Bool { number(of: attempt) != nil }

    /// Changes only what is there.
    subscript(attempt: AttemptID) -> WorkerSession.Lease? {
        get {
            guard let number = number(of: attempt) else { return nil }
            return entries[number].lease
        }
        set {
            guard let newValue, let number = number(of: attempt) else { return }
            entries[number].lease = newValue
        }
    }

    /// The attempt must have none.
    mutating func insert(_ lease: WorkerSession.Lease, of attempt: AttemptID) {
        numbers.insert(entries.insert(Entry(attempt: attempt, lease: lease)), Self.hash(attempt))
    }

    /// - Returns: what was there.
    @discardableResult
    mutating func remove(_ attempt: AttemptID) -> WorkerSession.Lease? {
        guard let number = number(of: attempt) else { return nil }
        numbers.remove(number, Self.hash(attempt))
        return entries.take(number).lease
    }

    /// In no order.
    func makeIterator() -> IndexingIterator<[(key: AttemptID, value: WorkerSession.Lease)]> {
        entries.indices.map { (entries[$0].attempt, entries[$0].lease) }.makeIterator()
    }

    private func number(of attempt: AttemptID) -> Int32? {
        isEmpty ? nil : numbers.find(Self.hash(attempt)) { entries[$0].attempt == attempt }
    }

    private static func hash(_ attempt: AttemptID) -> UInt32 {
        NumberHash.of(attempt.flight, attempt.broker.rawValue ^ UInt64(attempt.attempt))
    }
}
