internal import EarshotHTTP
internal import EarshotWire

/// Everything that the core has only as a node of a cluster.
package struct ClusterState {
    /// Body of a flight that this node reads from another one.
    struct Pull {
        let bodyAddress: BodyAddress
        let response: SharedResult.Response
        let receivedAt: MonotonicTime
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
        /// Time of the latest one, until the flight is claimed again. A younger result is an answer, even of a node
        /// that missed the same body.
        var receivedAt: MonotonicTime?
    }

    package let services: ClusterServices
    package var book: ClusterBook
    package var health: ClusterHealth
    package var heldResults = HeldResults()
    var pulls: [Handle<Flight>: Pull] = [:]
    /// Flights with useless results: the body could not be read, or the failure may be that of its node.
    var uselessResults: [Handle<Flight>: UselessResults] = [:]
    /// Address policies of other nodes, for flights that run here for them.
    var hostedAddressPolicies: [Handle<Flight>: String] = [:]
    var quotaCharges: [Handle<Flight>: Charge] = [:]
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
    var isUncoordinatedStartUnreported = false
    /// Shortcomings that the engine has now.
    package var warnings: [EngineWarning] = []

    /// Useless results after which this node fetches the URL itself.
    static let maximumUselessResults = 2
    /// Maximum number of origins whose notices are recognized: as many as a node has in its tables at a time.
    static let maximumOriginNames = 65_536
}

/// Work of a node for and through its cluster, since its start.
public struct ClusterCounts: Equatable, Sendable {
    /// Flights that the engine let this node run.
    public var grantedFlights = 0
    /// Of these, flights that only other nodes wanted.
    public var hostedFlights = 0
    /// Results of other nodes.
    public var receivedResults = 0
    /// Bodies read from other nodes, and their bytes.
    public var pulledBodies = 0
    public var pulledBytes = 0
    /// Bodies that could not be read.
    public var missedBodies = 0
    /// Bodies that other nodes read from this one.
    public var servedBodies = 0
    /// Attempts that ran without the engine.
    public var uncoordinatedAttempts = 0
    /// Ends of memberships.
    public var membershipLosses = 0

    public init() {}
}

/// Facility of the shell for a node of a cluster: codes with the cluster's secret, and the node's address.
public struct ClusterServices: Sendable {
    /// Key of a shared flight, from the bytes that distinguish it from others.
    public var flightKey: @Sendable ([UInt8]) -> ClusterKey
    /// Key of an origin, from its name.
    public var originKey: @Sendable (String) -> ClusterKey
    /// Numeric address and port at which other nodes read bodies of this one.
    public var address: String
    /// Random number of this broker, for the keys of flights that stay here.
    public var brokerNonce: UInt64
    /// Number of nodes in the settings.
    public var members: Int
    /// Latest ID of an earlier process of this node.
    public var predecessor: NodeID?
    /// Time of the node's start.
    public var startTime: MonotonicTime

    public init(
        flightKey: @escaping @Sendable ([UInt8]) -> ClusterKey, originKey: @escaping @Sendable (String) -> ClusterKey,
        address: String, broker: UInt64, members: Int = 1, predecessor: NodeID? = nil, start: MonotonicTime
    ) {
        self.flightKey = flightKey
        self.originKey = originKey
        self.address = address
        self.brokerNonce = broker
        self.members = members
        self.predecessor = predecessor
        self.startTime = start
    }
}

/// Name of a flight or of an origin in the engine: 128 bits, 32 lower-case hexadecimal digits.
///
/// For a shared flight and for each origin it is a code with the cluster's secret, from which nothing can be recovered.
/// For a flight that stays on its node it is a random number of the broker and the flight's number.
public struct ClusterKey: Hashable, Sendable, CustomStringConvertible {
    private let high: UInt64
    private let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Key of a flight that stays on its node. It outlives the node's ID.
    public init(broker: UInt64, flight: UInt64) {
        self.init(high: broker, low: flight)
    }

    /// Whether it is the key of a flight that stays on the node with this broker.
    func isPinned(to broker: UInt64) -> Bool { high == broker }

    /// Nil if `text` is not 32 lower-case hexadecimal digits.
    public init?(_ text: some StringProtocol) {
        guard let pair = Hexadecimal.parse128Bits(text) else { return nil }
        self.init(high: pair.high, low: pair.low)
    }

    public var description: String { Hexadecimal.text(high) + Hexadecimal.text(low) }
}

/// Work that an event of the cluster causes in the core: `Cluster` returns it, and `BrokerCore+Cluster` carries it out.
enum ClusterEffect: Equatable {
    /// The flight may start here.
    case startFlight(LocalFlight)
    /// The flight, which waits for its own slot or runs, serves other nodes too.
    case flightHosted(LocalFlight)
    /// An attempt for other nodes may start here. The record is a `SharedRequest`. The core calls
    /// `ClusterBook.addHostedClaim`, or `releaseGrant` for a record that cannot be used.
    case hostAttempt(ClusterKey, FencingToken, record: [UInt8], PriorityClass)
    /// The attempt of another node ended.
    case resultReceived(LocalFlight, [UInt8])
    /// No other node wants the flight any longer.
    case abortAttempt(LocalFlight)
    /// The flight returns to the local queue, without a claim.
    case requeueFlight(LocalFlight)
    case coolDown(CoolDownNotice)
    /// The node began or ceased to fetch without the engine.
    case coordinationChanged(isCoordinated: Bool)
}

/// Flight of this core, which may end before its claim.
package struct LocalFlight: Hashable, CustomStringConvertible {
    let reference: GenerationalHandle<Flight>

    package init(_ reference: GenerationalHandle<Flight>) { self.reference = reference }

    var id: UInt64 { reference.generation }

    var name: FlightName { FlightName(reference: reference) }

    package var description: String { "flight \(id)" }
}

/// Event of a flight or an attempt that the cluster observes.
enum FlightEvent {
    /// An origin refuses requests, and may name the length of a pause.
    case originRefused(Handle<Flight>, retryAfter: RetryAfter?)
    /// An attempt has ended with a response whose body no node needs.
    case redirected(Handle<Flight>, Outcome.Response)
    /// An attempt has ended with this outcome, also if another one follows. `allowed` is the size limit that its body
    /// exceeded.
    case attemptConcluded(Handle<Flight>, Handle<Outcome>, allowed: Int?)
    /// Other nodes may not have the response.
    case responseWithheld(Handle<Flight>)
    /// An attempt is being cancelled.
    case attemptCancelled(Handle<Flight>, AttemptID)
    /// A worker has confirmed the end of an attempt, or has died.
    case attemptEnded(AttemptID)
    /// The flight ends, or waits without requests for the end of its deferred cancellation.
    case flightUnneeded(Handle<Flight>)
}
