internal import DequeModule

/// Workers that serve the same schemes: http and https, or one scheme registered by users' own workers. Holds the lists
/// of flights that run before the queue.
///
/// ```
///            worker registers           last worker leaves          time over
/// (absent) ───────────────────→ served ────────────────────→ awaited ────────→ closed ─→ (absent)
///    │                             ↑                           │ ↑                │ no origins
///    │                             └─── worker registers ──────┴─│────────────────┤
///    └───────────────────────────────────────────────────────────┴────────────────┘
///                  request comes while own workers of an earlier broker are awaited
/// ```
///
/// The pool of http and https is always `served`, even without workers. `WorkerPools` makes the transitions.
struct WorkerPool {
    enum Phase: Equatable {
        case served
        /// Has no workers. The timer with this serial closes it.
        case awaited(serial: UInt64)
        /// Had no workers for so long that its requests fail.
        case closed
    }

    /// Number of the pool of http and https.
    static let web: Int32 = 0

    /// Its scheme; nil for http and https.
    let scheme: String?
    private(set) var phase: Phase
    /// Users' own workers that serve it.
    var workers = 0
    /// Origins of its schemes.
    var origins = 0
    /// Flights whose worker was lost: they wait in the queue, but start first.
    var returned: [FlightName] = []
    /// Suspects that wait for an empty worker, in order; among them names of flights that ended.
    var suspects: Deque<FlightName> = []
    /// The worker that runs suspects alone; nil without suspects.
    var quarantine: WorkerID?

    /// - Parameter scheme: nil for http and https.
    init(scheme: String?) {
        self.scheme = scheme
        phase = scheme == nil ? .served : .closed
    }

    var isClosed: Bool { if case .closed = phase { true } else { false } }

    /// Whether the diagram has this transition.
    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.served, .awaited), (.awaited, .served), (.awaited, .closed), (.closed, .served), (.closed, .awaited):
            true
        case (.served, .served), (.served, .closed), (.awaited, .awaited), (.closed, .closed): false
        }
    }

    /// Makes a transition that the diagram has.
    mutating func enter(_ phase: Phase) {
        precondition(
            scheme != nil && Self.isLegal(from: self.phase, to: phase),
            "the pool of \(scheme ?? "http") goes from \(self.phase) to \(phase)")
        self.phase = phase
    }
}
