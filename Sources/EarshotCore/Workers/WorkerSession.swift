package import EarshotWire

/// One connected worker.
///
/// ```
///             READY              DRAIN, announced departure, or disconnection
/// joining ───────────────→ ready ───────────────────────────────────→ draining
///    └──── READY to a draining broker ───────────────────────────────────↑
/// ```
///
/// A lost worker is removed in any phase. `WorkerFleet` makes the transitions.
package struct WorkerSession {
    package enum Phase: String, CaseIterable {
        /// Connected, without an accepted READY.
        case joining
        case ready
        /// Ends its transfers and gets no new ones.
        case draining
    }

    /// Attempt that runs alone because earlier workers of its flight died.
    struct Isolation {
        let attempt: AttemptID
        /// End of the time in which the worker gets no other work.
        let endsAt: MonotonicTime
        /// Time of the PING after `endsAt`; nil before.
        var pingedAt: MonotonicTime?
    }

    let id: WorkerID
    /// Process at the other end, by the kernel; a gateway for a worker of another machine. Nil if unknown.
    let peerProcess: Int32?
    package private(set) var phase = Phase.joining
    package var workerProcessID = 0
    /// Principal whose requests it gets; those of a worker of the administrator see `WorkerPools`.
    package var principal = PrincipalTable.administrator
    /// The pools that it serves.
    package var pools: [Handle<WorkerPool>] = []
    /// Concurrent transfers that the worker last offered.
    private(set) var offeredSlots = 0
    /// Concurrent transfers in its last LIMITS; nil if the worker decides.
    private(set) var slotLimit: Int?
    /// Maximum number of leases: its slots or, after a reduction of the slots, the leases that have not drained yet.
    private(set) var maximumLeases = 0
    /// Leases by attempt.
    package var leases = LeaseTable()
    /// Number of leases being cancelled.
    package var cancellingLeaseCount = 0
    /// Number of leases of classes below `high`.
    var belowHighLeaseCount = 0
    /// The suspect that it runs alone; nil if it accepts other work.
    var suspectIsolation: Isolation?
    /// Whether it is reserved for suspects until the last one is cleared.
    var isReservedForSuspects = false
    var lastMessageAt: MonotonicTime
    /// Whether a gateway made the connection, so that READY must prove its principal.
    let isGateway: Bool
    /// Whether a user's own worker accepts DRAIN.
    var acceptsDrain = false
    /// Whether it supports HTTP/2.
    package var speaksHTTP2 = false
    /// Parts of its sandbox that took effect; nil without a SANDBOX.
    package var effectiveSandboxParts: SandboxParts?
    /// Whether its heartbeat timer runs.
    var isHeartbeatTimerRunning = false
    /// Time of a PING without an answer; nil if there is none.
    var unansweredPingAt: MonotonicTime?

    init(id: WorkerID, process: Int32? = nil, isGateway: Bool = false, now: MonotonicTime) {
        self.id = id
        self.peerProcess = process
        self.isGateway = isGateway
        lastMessageAt = now
    }

    /// Leases in a reproducible order.
    var leasesInReproducibleOrder: [(key: AttemptID, value: WorkerLease)] {
        leases.sorted { left, right in
            (left.value.flight?.slabIndex ?? .min, left.key.flight, left.key.broker.rawValue)
                < (right.value.flight?.slabIndex ?? .min, right.key.flight, right.key.broker.rawValue)
        }
    }

    /// Whether it is a user's own worker: it serves neither http nor https, and may be any program.
    package var isUserProvided: Bool { !pools.contains(WorkerPool.webPoolHandle) }

    /// Whether the gateway relays it from another machine: it has no files.
    var isRemote: Bool { principal != PrincipalTable.administrator }

    /// Whether it has no transfers.
    var hasNoTransfers: Bool { leases.isEmpty }

    package var usableSlots: Int { min(offeredSlots, slotLimit ?? offeredSlots) }

    /// Sets the slots that the worker offers. A worker without pools has none.
    mutating func setOfferedSlots(_ slots: Int) {
        offeredSlots = pools.isEmpty ? 0 : slots
        updateMaximumLeases()
    }

    mutating func setSlotLimit(_ slots: Int?) {
        slotLimit = slots
        updateMaximumLeases()
    }

    /// Updates the ceiling after a change of the slots or the end of a lease, so that leases above the slots drain.
    mutating func updateMaximumLeases() { maximumLeases = max(usableSlots, leases.count) }

    /// Whether the diagram has this transition.
    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.joining, .ready), (.joining, .draining), (.ready, .draining): true
        case (_, .joining), (.ready, .ready), (.draining, _): false
        }
    }

    /// Makes a transition of the diagram.
    mutating func enter(_ phase: Phase) {
        precondition(
            Self.isLegal(from: self.phase, to: phase), "worker \(workerProcessID) goes from \(self.phase) to \(phase)")
        self.phase = phase
    }
}
