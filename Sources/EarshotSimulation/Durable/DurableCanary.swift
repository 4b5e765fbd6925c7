/// Deliberate fault of the simulated disk. The run must fail with its invariant's number.
public enum DurableCanary: String, CaseIterable, Sendable {
    /// A request is confirmed as stored but is not stored.
    case unwritten
    /// A request is not deleted when it should be.
    case unforgotten
    /// A result is returned for another request.
    case exchanged
    /// A repeated request is deleted with its failure.
    case unkept

    /// Invariant that it violates.
    public var invariant: Int { 1 }
}
