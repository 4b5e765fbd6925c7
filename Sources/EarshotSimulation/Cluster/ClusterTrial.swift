internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Several nodes with their workers and clients around one engine, on fake time.
///
/// Each node has a `BrokerCore`. The trial is its shell and its peers: it carries out actions and calls, after delays that
/// the seed decides. `ClusterExpectations` has the expected terminals, and `ClusterTrial+Checks` the other checks.
///
/// Some faults permit duplicate fetches for a while: a *window*. Transfers that run or begin in a window are excused
/// from the checks of keys and limits until they end.
struct ClusterTrial {
    /// Steps between two audits of the core that acted.
    static let auditPeriod = 50
    /// Maximum time for a request without deadline, in milliseconds. Cool-downs last up to a minute.
    static let answerMilliseconds = 300_000

    let options: ClusterOptions
    var random: SeededGenerator
    var now = 0
    var step = 0
    private var plannedEntries = Heap<ClusterEntry>()
    private var lastEntrySerial = 0
    var nodes: [ClusterNode] = []
    var engine = SimulatedEngine(clockMicroseconds: 0)
    /// Difference of the engine's clock, which is a calendar's.
    var engineClockOffsetMilliseconds = 1_750_000_000_000
    var isEngineUp = true
    /// Copies of the engine, one for each tenth of the last second.
    var snapshots: [(time: Int, engine: SimulatedEngine)] = []
    var expectations = ClusterExpectations()
    /// Pairs of nodes, the smaller number first, that cannot reach each other.
    var partitionedNodePairs: Set<[Int]> = []
    /// End of the window in which more attempts than one of a key are permitted.
    var duplicatesWindowEnd = 0
    /// Time until which results may seem younger than they are.
    var clockWindowEnd = 0
    /// Memberships that ended, and the times at which nothing of them may be left.
    var endedMemberships: [(node: NodeID, due: Int)] = []
    var maximumDelayMilliseconds = 15
    /// Mean time between faults.
    let meanFaultIntervalMilliseconds: Int
    /// Whether requests and faults have stopped.
    var isEnding = false
    var report = ClusterReport()
    private(set) var trace: [String] = []
    var lastNumber: UInt64 = 0
    var lastFetchNumber = 0
    /// Step of the latest audit.
    var lastAuditStep = 0
    /// Transfers that began in the present pass.
    var startedTransfers: [(node: Int, worker: WorkerID, attempt: AttemptID)] = []

    init(_ options: ClusterOptions) {
        self.options = options
        random = SeededGenerator(seed: options.seed)
        meanFaultIntervalMilliseconds = [500, 2_000, 6_000, 15_000][random.number(below: 4)]
        let count = options.nodeCount ?? 3 + random.number(below: 5)
        report.nodeCount = count
        for number in 0..<count {
            nodes.append(ClusterNode(nodeNumber: number, lifeNumber: 1, seed: random.next(), now: currentTick))
            startNode(number)
        }
        planEvent(1_000 + random.number(below: 4_000), .injectFault)
        planEvent(5_000, .workersFail)
    }

    // MARK: Time

    var currentTick: MonotonicTime { MonotonicTime(nanoseconds: Int64(now) * 1_000_000) }

    mutating func planEvent(_ delay: Int, _ plannedEvent: PlannedClusterEvent) {
        lastEntrySerial += 1
        plannedEntries.insert(ClusterEntry(time: now + delay, serial: lastEntrySerial, plannedEvent: plannedEvent))
    }

    /// A number from the range.
    mutating func drawNumber(_ range: ClosedRange<Int>) -> Int {
        range.lowerBound + random.number(below: range.upperBound - range.lowerBound + 1)
    }

    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    func isEnabled(_ fault: ClusterFault) -> Bool { !isEnding && !options.excludedFaults.contains(fault) }

    /// Keeps a line of the trace.
    mutating func appendTrace(_ line: @autoclosure () -> String) {
        guard let first = options.firstTracedStep, step >= first else { return }
        trace.append("\(now) \(line())")
    }

    // MARK: Run

    /// Runs with requests and faults, then without both until nothing is left.
    mutating func run() throws(Violation) {
        while step < options.steps { try executeNextEvent() }
        try finish()
        report.fakeSeconds = now / 1_000
    }

    /// Lets the next thing happen.
    mutating func executeNextEvent() throws(Violation) {
        guard let entry = plannedEntries.popMin() else { preconditionFailure("heartbeats never end") }
        now = max(now, entry.time)
        step += 1
        engine.clockMicroseconds = (now + engineClockOffsetMilliseconds) * 1_000
        if isEnabled(.failover), snapshots.last.map({ now - $0.time >= 100 }) ?? true {
            snapshots.append((now, engine))
            if snapshots.count > 10 { snapshots.removeFirst() }
        }
        try handle(entry.plannedEvent)
        if step.isMultiple(of: 2_000) { try checkRequestAges() }
    }

    private mutating func handle(_ plannedEvent: PlannedClusterEvent) throws(Violation) {
        switch plannedEvent {
        case .execute(let node, let link, let call): try execute(call, node, link)
        case .deliver(let node, let link, let event): try deliver(event, node, link)
        case .connect(let node, let life): connect(node, life)
        case .heartbeat(let node, let link): try heartbeat(node, link)
        case .engineRecovers:
            appendTrace("the engine is up")
            isEngineUp = true
        case .wake(let node, let life):
            guard isCurrentLife(node, life), let wake = nodes[node].wakeTime, wake <= now else { return }
            nodes[node].wakeTime = nil
            try runPass(node) { _, _ in }
        case .begin(let node, let life): if nodes[node].lifeNumber == life, !nodes[node].isAlive { restartNode(node) }
        case .workerBegins(let node, let life, let isPuller): try workerBegins(node, life, isPuller: isPuller)
        case .transferEnds(let node, let life, let worker, let attempt):
            try transferEnds(node, life, worker, attempt)
        case .cancelConfirmed(let node, let life, let worker, let attempt):
            try cancelConfirmed(node, life, worker, attempt)
        case .pullBegins(let node, let life, let worker, let attempt): try pullBegins(node, life, worker, attempt)
        case .pullEnds(let node, let life, let worker, let attempt, let content, let length, let code):
            try pullEnds(node, life, worker, attempt, content, length, code)
        case .clientsAct(let node, let life): try clientsAct(node, life)
        case .clientBegins(let node, let life, let isWatcher):
            if isCurrentLife(node, life) { try clientBegins(node, isWatcher: isWatcher) }
        case .acknowledge(let node, let life, let client, let sequence):
            guard isCurrentLife(node, life) else { return }
            try runPass(node) { core, now in core.clientMessageReceived(.acknowledge(sequence), from: client, now: now)
            }
        case .resubmit(let keys): try resubmit(keys)
        case .injectFault: try injectFault()
        case .workersFail: try injectWorkerFault()
        case .heal(let node): nodes[node].isCutOff = false
        case .healPair(let first, let second): partitionedNodePairs.remove([first, second])
        case .networkRecovers: maximumDelayMilliseconds = 15
        }
    }

    func isCurrentLife(_ node: Int, _ life: Int) -> Bool { nodes[node].isAlive && nodes[node].lifeNumber == life }
}

/// Something that will happen in a simulated cluster.
enum PlannedClusterEvent {
    // Engine.
    case execute(node: Int, link: Int, EngineCall)
    case deliver(node: Int, link: Int, EngineEvent)
    case connect(node: Int, life: Int)
    case heartbeat(node: Int, link: Int)
    case engineRecovers
    // Nodes.
    case wake(node: Int, life: Int)
    case begin(node: Int, life: Int)
    // Workers.
    case workerBegins(node: Int, life: Int, isPuller: Bool)
    case transferEnds(node: Int, life: Int, WorkerID, AttemptID)
    case cancelConfirmed(node: Int, life: Int, WorkerID, AttemptID)
    case pullBegins(node: Int, life: Int, WorkerID, AttemptID)
    case pullEnds(node: Int, life: Int, WorkerID, AttemptID, ClusterCatalogue.Content?, Int, String)
    // Clients.
    case clientsAct(node: Int, life: Int)
    case clientBegins(node: Int, life: Int, isWatcher: Bool)
    case acknowledge(node: Int, life: Int, ClientID, UInt64)
    case resubmit([Int])
    // Faults.
    case injectFault
    case workersFail
    case heal(node: Int)
    case healPair(Int, Int)
    case networkRecovers
}

/// A happening with its time, for a heap. Those of one time happen in the order in which they were planned.
struct ClusterEntry: Comparable {
    let time: Int
    let serial: Int
    let plannedEvent: PlannedClusterEvent

    static func == (left: ClusterEntry, right: ClusterEntry) -> Bool { left.serial == right.serial }

    static func < (left: ClusterEntry, right: ClusterEntry) -> Bool {
        (left.time, left.serial) < (right.time, right.serial)
    }
}
