public import EarshotCluster

/// Membership of a broker in a cluster: it is one node of several.
public struct ClusterMembership: Sendable {
    /// Engine of the cluster.
    public let engine: EngineOptions
    /// Address at which the gateway of this node serves bodies to the others: `ADDRESS:PORT`, that of IPv6 in brackets.
    public let place: String
    /// Number of nodes in the settings.
    public let members: Int
    /// Version of the program, which is compared with that of the other nodes.
    public var version = ""

    public init(engine: EngineOptions, place: String, members: Int) {
        self.engine = engine
        self.place = place
        self.members = members
    }
}
