internal import EarshotWire

/// One connected worker.
///
/// ```
///             READY                 DRAIN, its retreat or disconnection
/// joining ───────────────→ ready ───────────────────────────────────→ draining
///    └──── READY to a draining broker ───────────────────────────────────↑
/// ```
///
/// A worker that is lost is removed from any phase. `WorkerFleet` makes the transitions.
struct WorkerSession {
    enum Phase: String, CaseIterable {
        /// Connected; its READY was not accepted yet.
        case joining
        case ready
        /// Ends its transfers and gets no new ones.
        case draining
    }

    /// Attempt that runs alone because earlier workers of its flight died.
    struct Isolation {
        let attempt: AttemptID
        /// End of the time in which the worker gets no other work.
        let end: Tick
        /// When the worker was asked for a sign of life after `end`; nil before.
        var askedAt: Tick?
    }

    let id: WorkerID
    private(set) var phase = Phase.joining
    var pid = 0
    /// Numbers of the pools that it serves.
    var pools: [Int32] = []
    /// Concurrent transfers that it last offered.
    private(set) var offered = 0
    /// Concurrent transfers that it was told to run; nil if it decides.
    private(set) var wish: Int?
    /// Maximum number of leases: its slots, or the leases that it had when they became fewer and has not ended since.
    private(set) var ceiling = 0
    /// Leases by attempt. Adopted attempts and orphans have names of an earlier broker.
    var leases = LeaseTable()
    /// Attempts of earlier brokers that it holds and has not described, or has to stop. They take slots until they end.
    var foreign: Set<AttemptID> = []
    /// Those of them whose HOLDS is awaited. Until it comes the worker gets no work, which could be its own transfer
    /// again.
    var untold: Set<AttemptID> = []
    /// Number of leases being cancelled.
    var cancelling = 0
    /// Number of leases of lower classes than `high`.
    var lower = 0
    /// The suspect that it runs alone; nil for a worker that takes other work.
    var isolation: Isolation?
    /// Whether it runs suspects, and takes no other work until the last of them is cleared.
    var isQuarantine = false
    var lastHeard: Tick
    /// Whether it wants DRAIN although it is a user's own.
    var hearsDrain = false
    /// Whether it can speak HTTP/2.
    var speaksHTTP2 = false
    /// Whether its heartbeat timer runs.
    var isWatched = false
    /// When it was asked for a sign of life; nil when none is due.
    var askedAt: Tick?

    init(id: WorkerID, now: Tick) {
        self.id = id
        lastHeard = now
    }

    /// Leases in an order that is the same in each run.
    var leasesInOrder: [(key: AttemptID, value: WorkerLease)] {
        leases.sorted { left, right in
            (left.value.flight ?? -1, left.key.flight, left.key.broker.rawValue)
                < (right.value.flight ?? -1, right.key.flight, right.key.broker.rawValue)
        }
    }

    /// Whether it is a user's own worker: it serves neither http nor https, and may be any program.
    @inline(__always)
    var isOwn: Bool { !pools.contains(WorkerPool.web) }

    /// Whether it runs no transfer.
    var isEmpty: Bool { leases.isEmpty && foreign.isEmpty }

    @inline(__always)
    var slots: Int { min(offered, wish ?? offered) }

    @inline(__always)
    var freeSlots: Int {
        isQuarantine || phase != .ready ? 0 : unusedSlots
    }

    /// Slots without a transfer, for suspects too.
    @inline(__always)
    var unusedSlots: Int { untold.isEmpty ? max(0, slots - leases.count - foreign.count) : 0 }

    /// Sets the number of transfers that it offers. A worker without pools has no slots.
    mutating func offers(_ slots: Int) {
        offered = pools.isEmpty ? 0 : slots
        lowerCeiling()
    }

    mutating func wishFor(_ slots: Int?) {
        wish = slots
        lowerCeiling()
    }

    /// Updates the ceiling after a change of the slots and after the end of a lease: leases above the slots drain.
    mutating func lowerCeiling() { ceiling = max(slots, leases.count) }

    /// Whether the diagram has this transition.
    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.joining, .ready), (.joining, .draining), (.ready, .draining): true
        case (_, .joining), (.ready, .ready), (.draining, _): false
        }
    }

    /// Makes a transition that the diagram has.
    mutating func enter(_ phase: Phase) {
        precondition(Self.isLegal(from: self.phase, to: phase), "worker \(pid) goes from \(self.phase) to \(phase)")
        self.phase = phase
    }
}
