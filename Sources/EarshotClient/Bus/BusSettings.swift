/// Parameters of ``Bus/connect(to:application:patience:lease:)``.
struct BusSettings: Sendable {
    let broker: BrokerChoice
    /// Maximum time without a broker; nil for no limit.
    let patience: Duration?
    /// Lease; zero for none.
    let lease: Duration
}
