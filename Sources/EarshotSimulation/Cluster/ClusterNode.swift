internal import EarshotCore
internal import EarshotQueries
internal import EarshotWire

/// One node of a simulated cluster: its core, the state of its shell, and its peers.
struct ClusterNode {
    /// Transfer of a web worker.
    struct Transfer {
        let job: Job
        let key: Int
        let startedAt: Int
        /// Whether it began, or ran, while faults permit more attempts than one of a key and more than the limit of an
        /// origin.
        var isExemptFromLimits: Bool
        var isCancelled = false
        /// Since when no request waits for it; nil if one does.
        var unwantedSince: Int?
    }

    /// Body that a worker reads from another node.
    struct Pull {
        let job: Job
        let holderNode: Int
        /// The session at the other node, in this life of it; nil before it is open.
        var readerSession: (client: ClientID, life: Int)?
    }

    struct Worker {
        let slots: Int
        let isPuller: Bool
        var transfers: [AttemptID: Transfer] = [:]
        var pulls: [AttemptID: Pull] = [:]
    }

    struct Client {
        let handlers: [HandlerID]
        /// Whether it only listens to requests of others.
        let isWatcher: Bool
    }

    /// Reader of a body in another node.
    struct Reader {
        let node: Int
        let worker: WorkerID
        let attempt: AttemptID
    }

    let nodeNumber: Int
    var core: BrokerCore
    /// Counts the processes of this node. An event for an earlier one is dropped.
    var lifeNumber: Int
    var isAlive = true
    var isCutOff = false
    /// End of the latest time in which it resolves no names.
    var nameResolutionOutageEnd = 0
    var drainsSince: Int?
    var workers: [WorkerID: Worker] = [:]
    var clients: [ClientID: Client] = [:]
    var readers: [ClientID: Reader] = [:]
    /// Bodies in the shell's memory.
    var heldBodies: [BodyID: ClusterCatalogue.Content] = [:]
    /// Times since which it wants flights, as its latest wants say.
    var wantedSinceByKey: [ClusterKey: Int] = [:]
    /// Time of the next planned call of the core.
    var wakeTime: Int?
    /// Passes in a row after which the core asked for another one at once.
    var consecutiveImmediatePasses = 0
    /// Connection to the engine.
    var link = EngineLink()

    struct EngineLink {
        var connectionNumber = 0
        var isUp = false
        /// Identity of the present membership, or of the latest one.
        var id = NodeID(0)
        var joinedAt = 0
        /// Whether messages were lost since the latest heartbeat, and before it.
        var hasLostMessages = false
        var hasDetectedLoss = false
        /// Times until which the connection is busy in each direction, so that order is kept.
        var sendBusyUntil = 0
        var receiveBusyUntil = 0
    }

    static func address(of number: Int) -> String { "10.0.0.\(number + 1):5766" }

    /// - Parameter predecessor: ID of the membership of its earlier process, if it knows that.
    init(nodeNumber: Int, lifeNumber: Int, seed: UInt64, predecessor: NodeID? = nil, now: MonotonicTime) {
        self.nodeNumber = nodeNumber
        self.lifeNumber = lifeNumber
        var limits = CoreLimits()
        limits.originRules = ClusterCatalogue.originRules
        limits.subscriberGraceMilliseconds = 2_000
        limits.maximumWaitingBodyBytes = 1 << 24
        let workerLimits = WorkerLimits(
            broker: BrokerInstance(rawValue: UInt64(nodeNumber + 1) << 32 | UInt64(lifeNumber)), spoolPath: "/spool")
        let cluster = ClusterServices(
            flightKey: { ClusterKey(high: 1, low: Self.fnv1aHash($0)) },
            originKey: { ClusterKey(high: 2, low: Self.fnv1aHash(Array($0.utf8))) },
            address: Self.address(of: nodeNumber), broker: UInt64(nodeNumber + 1) << 32 | UInt64(lifeNumber),
            predecessor: predecessor, start: now)
        core = BrokerCore(
            workerLimits: workerLimits, secret: nil, limits: limits, answering: Queries.answer, cluster: cluster,
            seed: seed)
        core.awaitOwnWorkers(until: now.advanced(byMilliseconds: 10_000))
    }

    /// FNV-1a: simulated inputs do not collide deliberately.
    static func fnv1aHash(_ bytes: [UInt8]) -> UInt64 {
        bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }

    /// Workers in a fixed order.
    var workersInOrder: [WorkerID] { workers.keys.sorted { $0.rawValue < $1.rawValue } }

    var clientsInOrder: [ClientID] { clients.keys.sorted { $0.rawValue < $1.rawValue } }

    static func sortedAttempts<Value>(_ attempts: [AttemptID: Value]) -> [AttemptID] {
        attempts.keys.sorted { ($0.flight, $0.attempt) < ($1.flight, $1.attempt) }
    }
}
