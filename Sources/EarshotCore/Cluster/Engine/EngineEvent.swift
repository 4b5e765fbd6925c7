public import EarshotWire

/// Event from the engine, or from the connection to it.
public enum EngineEvent: Equatable, Sendable {
    // Connection and membership.

    /// This node is a member under an ID that was never used. Everything must be asserted again.
    case joined(NodeID, members: Int)
    /// Number of members with a lease, after each heartbeat.
    case members(Int)
    /// The membership ended. The fate of calls without an answer is unknown.
    case left(EngineFault)
    /// The engine works, but less safely than it could.
    case warning(EngineWarning)
    /// A shortcoming is gone.
    case remedied(EngineWarning)

    // Answers, in the order of the calls.

    case wantsAnswered([WantAnswer])
    /// - opensAfterMilliseconds: time until a paused origin opens; nil if none is paused.
    case flightsGranted([EngineGrant], opensAfterMilliseconds: Int?)
    case completionsAnswered([CompletionAnswer])
    case cooled(CoolDownNotice)
    case surveyed(EngineSurvey)

    // Notifications. One that is lost is harmless, because wants are asserted again.

    /// A flight waits that this node may take.
    case workWaits
    /// Notifications were lost, although their connection lasts.
    case messagesLost
    /// The result of a flight that this node wants.
    case resultReceived(ClusterKey, [UInt8])
    /// A flight has a result that no node has written, or one of an attempt that is not younger than the latest known.
    case unusableResult(ClusterKey)
    /// No node wants the flight of this attempt any longer.
    case attemptAborted(ClusterKey, FencingToken)
}

/// Answer to one want.
public struct WantAnswer: Equatable, Sendable {
    /// State of the flight.
    public enum State: Equatable, Sendable {
        case queued
        /// Another attempt runs.
        case running
        /// The attempt that this node runs has the flight.
        case held
        /// The attempt that this node runs has lost the flight to another one.
        case stale
        /// The flight ended after this node had begun to want it. The want is withdrawn.
        case ended([UInt8])
    }

    public var key: ClusterKey
    public var state: State

    public init(key: ClusterKey, state: State) {
        self.key = key
        self.state = state
    }
}

/// Permission to run one attempt.
public struct EngineGrant: Equatable, Sendable {
    public var key: ClusterKey
    public var token: FencingToken
    public var priority: PriorityClass
    /// Record of another node's flight; nil for a flight that this node wants.
    public var record: [UInt8]?

    public init(key: ClusterKey, token: FencingToken, priority: PriorityClass, record: [UInt8]?) {
        self.key = key
        self.token = token
        self.priority = priority
        self.record = record
    }
}

/// Answer to one completion.
public struct CompletionAnswer: Equatable, Sendable {
    public var key: ClusterKey
    public var token: FencingToken
    /// Whether the attempt had the flight. Otherwise the completion changed nothing.
    public var isCurrent: Bool

    public init(key: ClusterKey, token: FencingToken, isCurrent: Bool) {
        self.key = key
        self.token = token
        self.isCurrent = isCurrent
    }
}

/// Cool-down of an origin in the whole cluster.
public struct CoolDownNotice: Equatable, Sendable {
    public var origin: ClusterKey
    /// Rest of the pause; 0 if it is over.
    public var remainingMilliseconds: Int
    /// Refusals in a row.
    public var refusalsInRow: Int

    public init(origin: ClusterKey, remainingMilliseconds: Int, refusalsInRow: Int) {
        self.origin = origin
        self.remainingMilliseconds = remainingMilliseconds
        self.refusalsInRow = refusalsInRow
    }
}
