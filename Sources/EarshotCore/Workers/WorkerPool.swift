internal import DequeModule

/// Workers that serve the same schemes: http and https, or one scheme of one principal's own workers. Also lists the
/// flights that start before the queue.
///
/// ```
///            worker registers           last worker leaves          timeout
/// (absent) ───────────────────→ served ────────────────────→ awaited ────────→ closed ─→ (absent)
///    │                             ↑                           │ ↑                │ no origins
///    │                             └─── worker registers ──────┴─│────────────────┤
///    └───────────────────────────────────────────────────────────┴────────────────┘
///                  request arrives while own workers of an earlier broker are awaited
/// ```
///
/// The pool of http and https is always `served`, even without workers. `WorkerPools` makes the transitions.
package struct WorkerPool {
    enum Phase: Equatable {
        case served
        /// Without workers. The timer with this serial closes the pool.
        case awaited(serial: UInt64)
        /// Without workers for too long: its requests fail.
        case closed
    }

    /// The pool of http and https.
    package static let webPoolHandle = Slab<WorkerPool>.firstHandle

    /// Name of a pool of own workers: a scheme belongs to a principal.
    struct Key: Hashable {
        let scheme: String
        let principal: Handle<Principal>
    }

    /// The only scheme; nil for http and https.
    package let scheme: String?
    /// Principal whose requests it serves. The administrator's pools also serve principals without a pool of the
    /// scheme.
    package let principal: Handle<Principal>
    private(set) var phase: Phase
    /// Number of users' own workers that serve it.
    var ownWorkerCount = 0
    /// Whether a worker ever served it.
    var hasEverHadWorker = false
    /// Number of origins with its schemes.
    var originCount = 0
    /// Flights that lost their worker. They are queued, but start first.
    var flightsWithLostWorker: [FlightName] = []
    /// Suspects that wait for an empty worker, in order. May contain names of ended flights.
    var suspectFlights: Deque<FlightName> = []
    /// Worker that runs suspects; nil without suspects.
    var quarantineWorker: WorkerID?

    /// The pool of http and https.
    init() {
        scheme = nil
        principal = PrincipalTable.administrator
        phase = .served
    }

    /// A pool of own workers.
    init(_ key: Key) {
        scheme = key.scheme
        principal = key.principal
        phase = .closed
    }

    /// Name of a pool of own workers; nil for http and https.
    var key: Key? { scheme.map { Key(scheme: $0, principal: principal) } }

    var isClosed: Bool { if case .closed = phase { true } else { false } }

    /// Whether the diagram has this transition.
    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.served, .awaited), (.awaited, .served), (.awaited, .closed), (.closed, .served), (.closed, .awaited):
            true
        case (.served, .served), (.served, .closed), (.awaited, .awaited), (.closed, .closed): false
        }
    }

    /// Makes a transition of the diagram.
    mutating func enter(_ phase: Phase) {
        precondition(
            scheme != nil && Self.isLegal(from: self.phase, to: phase),
            "the pool of \(scheme ?? "http") goes from \(self.phase) to \(phase)")
        self.phase = phase
    }
}

/// Sums of the slots of ready workers, which `WorkerFleet` keeps: whether all classes may start, or only `high`.
package struct PoolSlotCounts {
    package private(set) var totalSlots = 0
    package private(set) var freeSlots = 0
    /// Slots taken by classes below `high`.
    private(set) var slotsTakenBelowHigh = 0

    /// Slots reserved for class `high`: a quarter, rounded down.
    package var slotsReservedForHigh: Int { totalSlots / 4 }

    /// Whether only class `high` may start. Lower classes are limited by the slots that they occupy, not by the free
    /// ones. Otherwise `high`, which takes each freed slot first, would starve them.
    package var onlyHighMayStart: Bool { slotsTakenBelowHigh >= totalSlots - slotsReservedForHigh }

    /// Adds the slots of a ready worker.
    mutating func addWorkerSlots(total: Int, free: Int, belowHigh: Int) {
        totalSlots += total
        self.freeSlots += free
        slotsTakenBelowHigh += belowHigh
    }
}
