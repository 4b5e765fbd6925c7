public import EarshotCore

/// What happened in a run that broke no invariant.
public struct Report: Sendable {
    /// Events the core was told.
    public var steps: Int
    /// The ledgers of brokers that died on the way, in their order.
    public var earlier: [Ledger]
    /// That of the last broker.
    public var ledger: Ledger
    public var fakeSeconds: Int
    /// Faults that were switched on.
    public var faults: Set<Fault>
}

/// The invariant that did not hold, and after how many events.
public struct Failure: Error, Sendable, Equatable {
    public var violation: Violation
    public var step: Int
}
