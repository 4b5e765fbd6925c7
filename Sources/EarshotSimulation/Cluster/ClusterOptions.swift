/// Parameters of one simulated cluster, which `earshot-lab cluster` and tests set.
public struct ClusterOptions: Sendable {
    /// Decides everything in the run.
    public var seed: UInt64
    /// Events before requests and faults stop.
    public var steps: Int
    /// Number of nodes; nil for 3 to 7, by the seed.
    public var nodeCount: Int?
    public var canary: ClusterCanary?
    /// Excluded faults.
    public var excludedFaults: Set<ClusterFault> = []
    /// Number of steps before a failure of which a repetition keeps a trace; 0 for no repetition.
    public var tracedSteps = 4_000
    /// First step of which the run keeps a trace.
    var firstTracedStep: Int?

    public init(seed: UInt64, steps: Int) {
        self.seed = seed
        self.steps = steps
    }
}

/// Kinds of faults in a simulated cluster.
public enum ClusterFault: String, CaseIterable, Hashable, Sendable {
    /// A node's connections to the engine break, in the middle of a batch. The node joins again at once.
    case cutConnection = "cut-connection"
    /// The engine is replaced by a copy that lacks the writes of up to a second.
    case failover
    /// The engine is unreachable for 3 to 12 s.
    case outage
    /// The engine loses all of its data.
    case flush
    /// A node cannot reach the engine.
    case enginePartition = "engine-partition"
    /// Two nodes cannot read bodies of each other.
    case nodePartition = "node-partition"
    case nodeDeath = "node-death"
    case workerDeath = "worker-death"
    /// The engine's clock jumps.
    case clockJump = "clock-jump"
    /// A node drains, leaves and begins again.
    case drain
    /// Calls, answers and notifications take up to a second for a while.
    case slowNetwork = "slow-network"
    /// Clients die, and ask again elsewhere.
    case clientDeath = "client-death"
    /// Some notifications never arrive.
    case lostNotifications = "lost-notices"
    /// Origins answer some requests with 429 or 503.
    case refusals
    /// Some transfers take many seconds.
    case longTransfers = "long-transfers"
    /// A node resolves no names for a while. No request of another node may fail for it.
    case nameResolutionOutage = "no-way-out"
}

/// Deliberate fault of the apparatus. A check must detect it.
public enum ClusterCanary: String, CaseIterable, Sendable {
    /// Some ends of attempts do not reach the engine.
    case losesCompletions = "loses-ends"
    /// Wants are not asserted again, and notifications are lost.
    case neverReassertsWants = "asserts-nothing"
    /// A node starts flights that another node runs.
    case startsWithoutGrant = "starts-without-grant"
    /// Results are delivered to other flights.
    case swapsResults = "exchanges-results"
    /// Withdrawals do not reach the engine.
    case losesWithdrawals = "drops-withdrawals"
    /// Nodes ignore notifications to abort attempts.
    case ignoresAborts = "ignores-aborts"
    /// The engine accepts the end of an attempt that has lost its flight.
    case acceptsStaleTokens = "accepts-stale-tokens"
    /// A node gives another body than the one that it holds, and the reader does not check it.
    case servesAnotherBody = "gives-another-body"
    /// The engine learns of too high limits.
    case ignoresLimits = "ignores-limits"
    /// Results answer requests that are younger.
    case answersWithOlderResults = "answers-earlier"
    /// The flights of dead nodes are never returned.
    case neverReapsDeadNodes = "reaps-nothing"
    /// Some terminals do not reach their clients.
    case losesTerminals = "loses-terminals"
    /// A shell does not release bodies.
    case leaksBodies = "keeps-bodies"

    /// Invariants of which it violates one first.
    public var invariants: Set<Int> {
        switch self {
        case .losesCompletions, .losesWithdrawals: [1, 4, 12]
        case .neverReassertsWants, .losesTerminals, .swapsResults, .servesAnotherBody, .answersWithOlderResults: [1]
        case .startsWithoutGrant: [3]
        case .ignoresAborts: [4]
        case .acceptsStaleTokens: [3, 9]
        case .ignoresLimits: [9]
        case .neverReapsDeadNodes, .leaksBodies: [12]
        }
    }
}
