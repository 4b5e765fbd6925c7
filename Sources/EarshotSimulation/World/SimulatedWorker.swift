internal import EarshotCore
internal import EarshotWire

/// A worker's process, and the one that is started after it.
struct SimulatedWorker {
    var isAlive = false
    /// It takes nothing in and says nothing.
    var isHung = false
    /// It takes no more jobs and goes when its last transfer ends.
    var isRetiring = false
    /// It is of a version that tells of nothing it holds.
    var isOld = false
    var slots = 1
    /// What it serves; none for the web.
    var schemes: [String] = []
    var link: UInt64?
    /// Connections of this process the broker still counts with.
    var known: [UInt64] = []
    var transfers: [AttemptID: Job] = [:]
    /// When each began.
    var starts: [AttemptID: Int64] = [:]
    /// Whether the broker has answered its READY.
    var isWelcome = false
    /// What ended since no broker was there to be told, oldest first.
    var untold: [Untold] = []
    /// Attempts of another broker.
    var foreign: [AttemptID] = []
    /// The attempt that ended last, to be told of again.
    var last: WorkerMessage?
}

/// How a transfer ended that no broker knows of yet.
struct Untold {
    var job: Job
    var terminal: WorkerMessage
}

/// An origin, which counts for itself.
struct SimulatedOrigin {
    var running = 0
}
