internal import EarshotWire

/// A worker's leases by their attempts.
///
/// Records in a slab, and their numbers by a cheap hash: a lease is large, and a dictionary of them would copy it for
/// each look and move all of them when it grows.
struct LeaseTable: Sequence {
    private struct Entry {
        let attempt: AttemptID
        var lease: WorkerLease
    }

    private var entries = Slab<Entry>()
    private var numbers = NumberTable()

    var count: Int { entries.count }

    var isEmpty: Bool { entries.count == 0 }

    /// In no order.
    var values: [WorkerLease] { map(\.value) }

    func contains(_ attempt: AttemptID) -> Bool { number(of: attempt) != nil }

    /// Purpose of an attempt's lease, without a copy of the lease.
    @inline(__always)
    func use(of attempt: AttemptID) -> WorkerLease.Use? { number(of: attempt).map { entries[$0].lease.use } }

    /// Number of the flight that an attempt's lease serves.
    @inline(__always)
    func flight(of attempt: AttemptID) -> Int32? { number(of: attempt).flatMap { entries[$0].lease.flight } }

    /// Changes only what is there.
    subscript(attempt: AttemptID) -> WorkerLease? {
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
    mutating func insert(_ lease: WorkerLease, of attempt: AttemptID) {
        numbers.insert(entries.insert(Entry(attempt: attempt, lease: lease)), Self.hash(attempt))
    }

    /// - Returns: what was there.
    @discardableResult
    mutating func remove(_ attempt: AttemptID) -> WorkerLease? {
        guard let number = number(of: attempt) else { return nil }
        numbers.remove(number, Self.hash(attempt))
        return entries.take(number).lease
    }

    /// In no order.
    func makeIterator() -> IndexingIterator<[(key: AttemptID, value: WorkerLease)]> {
        entries.indices.map { (entries[$0].attempt, entries[$0].lease) }.makeIterator()
    }

    private func number(of attempt: AttemptID) -> Int32? {
        isEmpty ? nil : numbers.find(Self.hash(attempt)) { entries[$0].attempt == attempt }
    }

    private static func hash(_ attempt: AttemptID) -> UInt32 {
        NumberHash.of(attempt.flight, attempt.broker.rawValue ^ UInt64(attempt.attempt))
    }
}
