/// What a bus is told when it connects.
struct BusSettings: Sendable {
    let broker: BrokerChoice
    /// Nil for ever.
    let patience: Duration?
    /// Zero for none.
    let lease: Duration
}
