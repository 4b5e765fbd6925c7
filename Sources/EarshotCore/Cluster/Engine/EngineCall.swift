public import EarshotWire

/// Call to the engine: the coordinator that all nodes of a cluster share. Calls are carried out in order.
public enum EngineCall: Equatable, Sendable {
    /// Records that this node wants flights. Idempotent. At most `EngineLimits.maximumFlightsPerCall` flights, here and
    /// below.
    case wantFlights([EngineWant])
    /// Withdraws wants.
    case withdrawWants([ClusterKey])
    /// Requests flights to fetch, at most `EngineLimits.maximumFlightsPerCall`. With 0 the engine only wakes another
    /// node.
    ///
    /// - isOwnOnly: whether only flights that must stay on this node are wanted.
    case takeFlights(slots: Int, isOwnOnly: Bool = false)
    /// Requests flights that this node wants itself, at most `EngineLimits.maximumFlightsPerCall`.
    case takeWantedFlights(slots: Int)
    /// Ends attempts of this node.
    case reportCompletions([EngineCompletion])
    /// Reports that an origin refused a request.
    case reportRefusal(EngineRefusal)
    /// Requests the members and the backlog.
    case survey
    /// Ends an earlier membership of this node, whose wants and attempts it has asserted under its present ID. The
    /// engine returns the others at once, before that lease expires.
    case retireMembership(NodeID)
    /// Ends the membership: the engine returns all attempts and drops all wants of this node.
    case leaveCluster
}

extension EngineCall {
    /// Whether its answer may have flights that only other nodes want.
    var servesOtherNodes: Bool { if case .takeFlights(let slots, false) = self { slots > 0 } else { false } }
}

/// One node's want of a flight.
public struct EngineWant: Equatable, Sendable {
    /// Nodes that may fetch a flight.
    public enum Lane: Equatable, Sendable, CaseIterable {
        /// Any node.
        case shared
        /// The node that wants it.
        case pinned
        /// The node that wants it, with credentials. Cool-downs of requests without credentials do not apply.
        case credentialed
    }

    public var key: ClusterKey
    public var origin: EngineOrigin
    public var lane: Lane
    public var priority: PriorityClass
    /// Time since this node began to want the flight. Only a result that is younger is an answer.
    public var ageMilliseconds: Int
    /// Attempt that this node runs and re-asserts; nil for other wants.
    public var token: FencingToken?
    /// Whether the attempt is for other nodes, so that this is no want of this node. Such an attempt has a token.
    public var isHosted: Bool
    /// `SharedRequest` for the node that fetches it; empty unless the lane is `shared`.
    public var record: [UInt8]

    public init(
        key: ClusterKey, origin: EngineOrigin, lane: Lane, priority: PriorityClass, ageMilliseconds: Int = 0,
        token: FencingToken? = nil, isHosted: Bool = false, record: [UInt8] = []
    ) {
        self.key = key
        self.origin = origin
        self.lane = lane
        self.priority = priority
        self.ageMilliseconds = ageMilliseconds
        self.token = token
        self.isHosted = isHosted
        self.record = record
    }
}

/// An origin and its terms, as this node's settings have them. The terms of the latest call apply.
public struct EngineOrigin: Hashable, Sendable {
    public var key: ClusterKey
    /// Maximum number of concurrent attempts in the cluster, at least 1.
    public var limit: Int
    /// Minimum time between two starts.
    public var spacingMilliseconds: Int

    public init(key: ClusterKey, limit: Int, spacingMilliseconds: Int) {
        self.key = key
        self.limit = limit
        self.spacingMilliseconds = spacingMilliseconds
    }
}

/// End of one attempt.
public struct EngineCompletion: Equatable, Sendable {
    /// Kinds of ends.
    public enum Outcome: Equatable, Sendable {
        /// A response or failure, for all nodes that want the flight.
        case result([UInt8])
        /// Cancelled, or returned to be fetched by another node.
        case released
        /// A result of an attempt that ended without the engine this time ago. It is kept for wants that had begun
        /// before, unless the flight waits or runs.
        case lateResult([UInt8], ageMilliseconds: Int)
    }

    public var key: ClusterKey
    public var token: FencingToken
    public var outcome: Outcome
    /// Whether the origin answered without refusing, which ends its cool-down.
    public var isAnswered: Bool

    public init(key: ClusterKey, token: FencingToken, outcome: Outcome, isAnswered: Bool) {
        self.key = key
        self.token = token
        self.outcome = outcome
        self.isAnswered = isAnswered
    }
}

/// Refusal of a request by its origin, with 429 or 503.
public struct EngineRefusal: Equatable, Sendable {
    public var origin: EngineOrigin
    /// Pause that the origin requested; 0 for none.
    public var requestedPauseMilliseconds: Int

    public init(origin: EngineOrigin, requestedMilliseconds: Int) {
        self.origin = origin
        self.requestedPauseMilliseconds = requestedMilliseconds
    }
}

extension EngineOrigin {
    /// The same terms within the bounds of `EngineLimits`, as the engine applies them.
    public var clampedToLimits: EngineOrigin {
        EngineOrigin(
            key: key, limit: limit.clamped(to: EngineLimits.originLimitRange),
            spacingMilliseconds: spacingMilliseconds.clamped(to: EngineLimits.intervalRangeMilliseconds))
    }
}

extension EngineRefusal {
    /// The same refusal within the bounds of `EngineLimits`, as the engine applies it.
    public var clampedToLimits: EngineRefusal {
        EngineRefusal(
            origin: origin.clampedToLimits,
            requestedMilliseconds: requestedPauseMilliseconds.clamped(to: EngineLimits.intervalRangeMilliseconds))
    }
}

extension EngineWant {
    /// Age within the bounds of `EngineLimits`, as the engine applies it.
    public var clampedAgeMilliseconds: Int { ageMilliseconds.clamped(to: EngineLimits.intervalRangeMilliseconds) }
}

extension EngineCompletion {
    /// An age within the bounds of `EngineLimits`, as the engine applies it.
    public static func clampedAge(milliseconds: Int) -> Int {
        milliseconds.clamped(to: EngineLimits.intervalRangeMilliseconds)
    }
}

extension Int {
    fileprivate func clamped(to range: ClosedRange<Int>) -> Int {
        Swift.min(Swift.max(self, range.lowerBound), range.upperBound)
    }
}

/// Bounds and times of the engine's calls, for the core and for `EarshotCluster`.
public enum EngineLimits {
    /// Maximum number of flights in one call, so that a script runs for less than a millisecond or two.
    public static let maximumFlightsPerCall = 64
    /// Maximum number of bytes of a record. A URL has at most 8 KiB, and so have the fields that may be shared.
    public static let maximumRecordBytes = 16_384
    /// Maximum number of bytes of a result. It has the header fields of a response and no body.
    public static let maximumResultBytes = 65_536
    /// Maximum number of bytes of the records or results in one call.
    public static let maximumCallBytes = 262_144
    /// Lease of a node. Its flights run elsewhere after its death and this time.
    public static let leaseMilliseconds = 3_000
    /// Interval of heartbeats: two may be lost.
    public static let heartbeatMilliseconds = 1_000
    /// Interval in which open wants and attempts are asserted again: twenty leases. A loss of data or of messages shows
    /// with the next heartbeats, and is followed by assertions at once.
    public static let assertionIntervalMilliseconds = 60_000
    /// The same for attempts that serve other nodes only: the answer shows whether a node still wants the flight.
    public static let hostedAssertionMilliseconds = 2_000
    /// Longest time between two requests for flights, while free slots wait.
    public static let pollIntervalMilliseconds = 2_000
    /// Time for which results are kept for wants that had begun before: from one to two of these times. So nodes with
    /// the same backlog in different orders fetch each URL once, also if the backlog takes minutes.
    public static let resultRetentionMilliseconds = 120_000
    /// The same while there are more than `shortenedRetentionThreshold` younger ones. Longer than a loss of messages
    /// stays unnoticed.
    public static let shortenedRetentionMilliseconds = 10_000
    /// Number of younger results that shortens the time of all.
    public static let shortenedRetentionThreshold = 50_000
    /// Time without an engine after which nodes fetch without coordination.
    public static let engineLossToleranceMilliseconds = 5_000
    /// First and longest pause of an origin's cool-down.
    public static let initialCoolDownMilliseconds = 1_000
    public static let maximumCoolDownMilliseconds = 60_000
    /// Concurrent attempts at one origin. Lua has exact integers to 2^53 only, and a larger limit limits nothing.
    public static let originLimitRange = 1...1_000_000
    /// Spacing of starts, pauses that origins request, and ages of wants: at most a day. A longer `Retry-After` helps
    /// no request, because its deadline passes before.
    public static let intervalRangeMilliseconds = 0...86_400_000
    /// Milliseconds of waiting that one class outweighs in the shared queue.
    public static let classAdvantageMilliseconds = 5_000
    /// Milliseconds by which a queued flight counts as older for a node that wants it itself: its body then stays
    /// there.
    public static let ownFlightAdvantageMilliseconds = 1_000
}
