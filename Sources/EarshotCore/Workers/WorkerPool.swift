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
    package static let web = Slab<WorkerPool>.first

    /// Name of a pool of own workers: a scheme belongs to a principal.
    struct Key: Hashable {
        let scheme: String
        let principal: Handle<Principal>
    }

    /// The only scheme; nil for http and https.
    package let scheme: String?
    /// Principal whose requests it serves. The administrator's pools also serve principals without a pool of the scheme.
    package let principal: Handle<Principal>
    private(set) var phase: Phase
    /// Number of users' own workers that serve it.
    var workers = 0
    /// Whether a worker ever served it.
    var wasServed = false
    /// Number of origins with its schemes.
    var origins = 0
    /// Flights that lost their worker. They are queued, but start first.
    var returnedFlights: [FlightName] = []
    /// Suspects that wait for an empty worker, in order. May contain names of ended flights.
    var suspects: Deque<FlightName> = []
    /// Worker that runs suspects; nil without suspects.
    var quarantine: WorkerID?

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
