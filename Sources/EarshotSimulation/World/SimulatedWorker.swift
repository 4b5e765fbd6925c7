internal import EarshotCore
internal import EarshotWire

/// A worker's process, and the one that is started after it.
struct SimulatedWorker {
    var isAlive = false
    /// It takes nothing in and says nothing.
    var isHung = false
    /// It takes no more jobs and goes when its last transfer ends.
    var isRetiring = false
    var slots = 1
    var link: UInt64?
    /// Connections of this process the broker still counts with.
    var known: [UInt64] = []
    var transfers: [AttemptID: Job] = [:]
    /// Attempts of another broker.
    var foreign: [AttemptID] = []
    /// The attempt that ended last, to be told of again.
    var last: WorkerMessage?
}

/// An origin, which counts for itself.
struct SimulatedOrigin {
    var running = 0
}
