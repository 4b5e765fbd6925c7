/// A fault of the simulated disk, put there on purpose: the run has to fail with this invariant's number.
public enum DurableCanary: String, CaseIterable, Sendable {
    /// A request is said to be on the disk, and is not.
    case unwritten
    /// What is to be forgotten stays.
    case unforgotten
    /// A result comes back as another request's.
    case exchanged

    /// The invariant it breaks.
    public var invariant: Int { 1 }
}
