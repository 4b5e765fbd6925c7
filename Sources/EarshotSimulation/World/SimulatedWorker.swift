internal import EarshotCore
internal import EarshotWire

/// Worker process, and its successor after a restart.
struct SimulatedWorker {
    var isAlive = false
    /// Whether it neither reads nor sends.
    var isHung = false
    /// Whether it accepts no more jobs and exits after its last transfer.
    var isRetiring = false
    var slots = 1
    /// Schemes it serves; empty for the web.
    var schemes: [String] = []
    var link: UInt64?
    /// Connections of this process that the broker has not closed yet.
    var known: [UInt64] = []
    var transfers: [AttemptID: Job] = [:]
    /// Start times of the transfers.
    var starts: [AttemptID: Int64] = [:]
    /// Whether the broker has replied to its READY.
    var isWelcome = false
    /// Result of the last attempt, for sending it again.
    var last: WorkerMessage?
}

/// Origin with its own count of transfers.
struct SimulatedOrigin {
    var running = 0
}
