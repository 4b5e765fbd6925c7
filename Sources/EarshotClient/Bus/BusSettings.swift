/// Parameters of ``Bus/connect(to:application:patience:lease:bodies:)``.
struct BusSettings: Sendable {
    let broker: BrokerChoice
    /// Maximum time without a broker; nil for no limit.
    let patience: Duration?
    /// Lease; zero for none, nil for that of the connection's kind.
    let lease: Duration?
    /// Way of the bodies that the broker has in files.
    let bodies: BodyAccess
}
