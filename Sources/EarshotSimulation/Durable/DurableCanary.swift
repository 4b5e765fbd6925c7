/// Deliberate fault of the simulated disk. The run must fail with the number of one of its invariants.
public enum DurableCanary: String, CaseIterable, Sendable {
    /// A request is confirmed as stored but is not stored.
    case unwritten
    /// A request is not deleted when it should be.
    case unforgotten
    /// A result is returned for another request.
    case exchanged
    /// A repeated request is deleted with its failure.
    case unkept
    /// Some requests of users belong to the administrator of the next broker.
    case disowned

    /// Invariants of which it violates one first.
    public var invariants: Set<Int> {
        switch self {
        case .unwritten, .exchanged, .unkept, .disowned: [1]
        // A request that reappears is delivered again, or accepted after its removal.
        case .unforgotten: [1, 2]
        }
    }
}
