/// Facility of the shell for a node of a cluster: codes with the cluster's secret, and the node's address.
public struct ClusterServices: Sendable {
    /// Key of a shared flight, from the bytes that tell it from others.
    public var flightKey: @Sendable ([UInt8]) -> ClusterKey
    /// Key of an origin, from its name.
    public var originKey: @Sendable (String) -> ClusterKey
    /// Numeric address and port at which other nodes read bodies of this one.
    public var address: String
    /// Random number of this broker, for the keys of flights that stay here.
    public var broker: UInt64
    /// Number of nodes in the settings.
    public var members: Int
    /// Latest ID of an earlier process of this node.
    public var predecessor: NodeID?
    /// Time of the node's start.
    public var start: Tick

    public init(
        flightKey: @escaping @Sendable ([UInt8]) -> ClusterKey, originKey: @escaping @Sendable (String) -> ClusterKey,
        address: String, broker: UInt64, members: Int = 1, predecessor: NodeID? = nil,
        start: Tick
    ) {
        self.flightKey = flightKey
        self.originKey = originKey
        self.address = address
        self.broker = broker
        self.members = members
        self.predecessor = predecessor
        self.start = start
    }
}
