public import EarshotCore

/// Statistics of a run without violations.
public struct Report: Sendable {
    /// Number of events passed to the core.
    public var steps: Int
    /// Ledgers of earlier brokers, in order.
    public var earlier: [Ledger]
    /// Ledger of the last broker.
    public var ledger: Ledger
    public var fakeSeconds: Int
    /// Enabled faults.
    public var faults: Set<Fault>
}

/// Violated invariant, and the number of events before it.
public struct Failure: Error, Sendable, Equatable {
    public var violation: Violation
    public var step: Int
}
