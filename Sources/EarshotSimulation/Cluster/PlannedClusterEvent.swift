internal import EarshotCore
internal import EarshotWire

/// Something that will happen in a simulated cluster.
enum PlannedClusterEvent {
    // Engine.
    case execute(node: Int, link: Int, EngineCall)
    case deliver(node: Int, link: Int, EngineEvent)
    case connect(node: Int, life: Int)
    case heartbeat(node: Int, link: Int)
    case engineUp
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
    case fault
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
