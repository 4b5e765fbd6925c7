internal import EarshotHTTP
internal import EarshotWire

/// Everything that the core has only as a node of a cluster.
package struct ClusterState {
    /// Body of a flight that this node reads from another one.
    struct Pull {
        let place: BodyAddress
        let response: SharedResult.Response
        let receivedAt: Tick
    }

    /// Use of a quota and of an origin's share of the window by an open claim.
    struct Charge {
        let principal: Handle<Principal>
        let origin: Handle<OriginEntry>
    }

    /// Useless results of other nodes for a flight.
    struct UselessResults {
        var count = 0
        /// Addresses of nodes whose bodies could not be read.
        var avoidedAddresses: [String] = []
        /// Time of the latest one, until the flight is claimed again: a younger result of a node that missed the same body, too,
        /// is an answer.
        var receivedAt: Tick?
    }

    package let services: ClusterServices
    package var book: ClusterBook
    package var health: ClusterHealth
    package var heldResults = HeldResults()
    var pulls: [Handle<Flight>: Pull] = [:]
    /// Flights with useless results: the body could not be read, or the failure may be that of its node.
    var uselessResults: [Handle<Flight>: UselessResults] = [:]
    /// Address policies of other nodes, for flights that run here for them.
    var foreignPolicies: [Handle<Flight>: String] = [:]
    var charges: [Handle<Flight>: Charge] = [:]
    /// Names of origins by their keys, for notices of cool-downs.
    var originNames: [ClusterKey: String] = [:]
    package var counts = ClusterCounts()
    /// Identity of the present or the latest membership.
    package var node: NodeID?
    /// Reason for the end of the latest membership; nil while there is one.
    package var engineFault: EngineFault?
    /// Whether the shell awaits answers of the engine, and makes no call before.
    var isEngineBusy = false
    /// Whether the mode without the engine has begun, and the shell does not know it.
    var hasUncoordinatedStart = false
    /// Shortcomings that the engine has now.
    package var warnings: [EngineWarning] = []

    /// Useless results after which this node fetches the URL itself.
    static let mostUselessResults = 2
    /// Maximum number of origins whose notices are recognized: as many as a node has in its tables at a time.
    static let mostOriginNames = 65_536
}

/// Work of a node for and through its cluster, since its start.
public struct ClusterCounts: Equatable, Sendable {
    /// Flights that the engine let this node run.
    public var granted = 0
    /// Of these, flights that only other nodes wanted.
    public var hosted = 0
    /// Results of other nodes.
    public var results = 0
    /// Bodies read from other nodes, and their bytes.
    public var pulled = 0
    public var pulledBytes = 0
    /// Bodies that could not be read.
    public var missed = 0
    /// Bodies given to other nodes.
    public var served = 0
    /// Attempts that ran without the engine.
    public var uncoordinated = 0
    /// Ends of memberships.
    public var losses = 0

    public init() {}
}

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
