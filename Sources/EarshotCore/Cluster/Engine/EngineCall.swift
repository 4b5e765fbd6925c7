public import EarshotWire

/// Call to the engine: the coordinator that all nodes of a cluster share. Calls are carried out in order.
public enum EngineCall: Equatable, Sendable {
    /// Records that this node wants flights. Idempotent. At most `EngineLimits.batch` flights, here and below.
    case want([EngineWant])
    /// Withdraws wants.
    case unwant([ClusterKey])
    /// Asks for flights to fetch, at most `EngineLimits.batch`. With 0 the engine only wakes another node.
    ///
    /// - isOwnOnly: whether only flights that must stay on this node are wanted.
    case take(slots: Int, isOwnOnly: Bool = false)
    /// Asks for flights that this node wants itself, at most `EngineLimits.batch`.
    case takeWanted(slots: Int)
    /// Ends attempts of this node.
    case done([EngineCompletion])
    /// Reports that an origin refused a request.
    case cool(EngineRefusal)
    /// Asks for the members and the backlog.
    case survey
    /// Ends an earlier membership of this node, whose wants and attempts it has asserted under its present ID. The engine
    /// returns the others at once, before that lease expires.
    case retire(NodeID)
    /// Ends the membership: the engine returns all attempts and drops all wants of this node.
    case leave
}

extension EngineCall {
    /// Whether its answer may have flights that only other nodes want.
    var servesOtherNodes: Bool { if case .take(let slots, false) = self { slots > 0 } else { false } }
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
        /// A result of an attempt that ended without the engine this time ago. It is kept for wants that had begun before,
        /// unless the flight waits or runs.
        case kept([UInt8], ageMilliseconds: Int)
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
    /// Pause that the origin asked for; 0 for none.
    public var requestedMilliseconds: Int

    public init(origin: EngineOrigin, requestedMilliseconds: Int) {
        self.origin = origin
        self.requestedMilliseconds = requestedMilliseconds
    }
}

extension EngineOrigin {
    /// The same terms within the bounds of `EngineLimits`, as the engine applies them.
    public var bounded: EngineOrigin {
        EngineOrigin(
            key: key, limit: limit.clamped(to: EngineLimits.originLimits),
            spacingMilliseconds: spacingMilliseconds.clamped(to: EngineLimits.intervalMilliseconds))
    }
}

extension EngineRefusal {
    /// The same refusal within the bounds of `EngineLimits`, as the engine applies it.
    public var bounded: EngineRefusal {
        EngineRefusal(
            origin: origin.bounded,
            requestedMilliseconds: requestedMilliseconds.clamped(to: EngineLimits.intervalMilliseconds))
    }
}

extension EngineWant {
    /// Age within the bounds of `EngineLimits`, as the engine applies it.
    public var boundedAgeMilliseconds: Int { ageMilliseconds.clamped(to: EngineLimits.intervalMilliseconds) }
}

extension EngineCompletion {
    /// An age within the bounds of `EngineLimits`, as the engine applies it.
    public static func bounded(ageMilliseconds: Int) -> Int {
        ageMilliseconds.clamped(to: EngineLimits.intervalMilliseconds)
    }
}

extension Int {
    fileprivate func clamped(to range: ClosedRange<Int>) -> Int {
        Swift.min(Swift.max(self, range.lowerBound), range.upperBound)
    }
}
