package import EarshotWire

/// Leases of one worker by attempt.
///
/// A slab of records and a table of their numbers. A lease is large: a dictionary would copy it at each access and move
/// all leases when it grows.
package struct LeaseTable: Sequence {
    private struct AttemptLease {
        let attempt: AttemptID
        var lease: WorkerLease
    }

    private var entries = Slab<AttemptLease>()
    private var handlesByAttempt = HandleTable<AttemptLease>()

    package var count: Int { entries.count }

    var isEmpty: Bool { entries.count == 0 }

    /// All leases in no particular order. O(leases).
    package var allLeases: [WorkerLease] { map(\.value) }

    func contains(_ attempt: AttemptID) -> Bool { handle(of: attempt) != nil }

    /// Purpose of an attempt's lease. Does not copy the lease.
    func leaseUse(of attempt: AttemptID) -> WorkerLease.LeaseUse? {
        handle(of: attempt).map { entries[$0].lease.leaseUse }
    }

    /// The flight that an attempt's lease serves.
    @inline(__always)
    func flight(of attempt: AttemptID) -> Handle<Flight>? { handle(of: attempt).flatMap { entries[$0].lease.flight } }

    /// Name of the resumable file of an attempt; nil if there is none. Called for each response, so it copies no lease.
    func resumableFile(of attempt: AttemptID) -> String? {
        guard let number = handle(of: attempt), entries[number].lease.partFile?.isResumable == true else { return nil }
        return entries[number].lease.partFile?.file
    }

    /// Setting has an effect only if the attempt has a lease and the value is not nil.
    package subscript(attempt: AttemptID) -> WorkerLease? {
        get {
            guard let number = handle(of: attempt) else { return nil }
            return entries[number].lease
        }
        set {
            guard let newValue, let number = handle(of: attempt) else { return }
            entries[number].lease = newValue
        }
    }

    /// Adds the lease of an attempt that has none.
    mutating func insert(_ lease: WorkerLease, of attempt: AttemptID) {
        handlesByAttempt.insert(entries.insert(AttemptLease(attempt: attempt, lease: lease)), Self.attemptHash(attempt))
    }

    /// - Returns: the removed lease; nil if there was none.
    @discardableResult
    mutating func remove(_ attempt: AttemptID) -> WorkerLease? {
        guard let number = handle(of: attempt) else { return nil }
        handlesByAttempt.remove(number, Self.attemptHash(attempt))
        return entries.removeReturning(number).lease
    }

    /// All leases in no particular order. O(leases).
    package func makeIterator() -> IndexingIterator<[(key: AttemptID, value: WorkerLease)]> {
        entries.indices.map { (entries[$0].attempt, entries[$0].lease) }.makeIterator()
    }

    private func handle(of attempt: AttemptID) -> Handle<AttemptLease>? {
        isEmpty
            ? nil : handlesByAttempt.findRecord(withHash: Self.attemptHash(attempt)) { entries[$0].attempt == attempt }
    }

    private static func attemptHash(_ attempt: AttemptID) -> UInt32 {
        NumberHash.hash(attempt.flight, attempt.broker.rawValue ^ UInt64(attempt.attempt))
    }
}
