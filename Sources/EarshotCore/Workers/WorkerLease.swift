internal import EarshotWire

/// Worker's hold on an attempt.
///
/// ```
///          started                     flight leaves
/// (none) ──────────→ serving flight ────────────────→ cancelling ──→ (none)
///    │                  ↑     │                          ↑
///    │ told by HOLDS    │     └── attempt ends ─→ (none) │
///    │                  │ adopted                        │
///    └─────────────→ orphan ─────────────────────────────┘
///                       │              given up
///                       └── attempt ends ─→ (none)
/// ```
///
/// Slot and origin stay taken until the worker confirms the end. `WorkerFleet` makes the transitions.
struct WorkerLease {
    /// Purpose of the attempt.
    enum Use: Equatable {
        /// Serves a flight, by number.
        case flight(Int32)
        /// Is an earlier broker's, and no flight of this one has adopted it.
        case orphan(FlightIdentity)
        /// Serves nothing: the worker was told to stop.
        case cancelling
    }

    let origin: Int32
    /// Whether it is of class `high`, which has reserved slots.
    let isHigh: Bool
    private(set) var use: Use
    let startedAt: Tick
    /// When the worker told this broker of it; nil for an attempt of this broker's own.
    var heldAt: Tick?
    /// Limit of decoded bytes in its JOB or HOLDS; nil for none.
    let allowedBytes: Int?
    /// The present limit, raises included.
    var maxBytes: Int?
    /// Decoded bytes received so far.
    var receivedBytes = 0
    /// Decoded bytes of the whole body; nil while unknown.
    var totalBytes: Int?
    /// File that the body grows in; nil before it is known.
    var part: GrowingPart?
    /// Bytes of that file that count as in the spool.
    var growingBytes = 0
    /// Whether its JOB named a part to resume.
    var isResuming = false
    /// Bytes in the file when the shell took it back.
    var keptBytes: Int?
    /// Request of the former flight of a lease being cancelled, if a later flight may resume its part.
    private(set) var abandoned: AbandonedFlight?

    init(origin: Int32, isHigh: Bool, use: Use, startedAt: Tick, maxBytes: Int?) {
        self.origin = origin
        self.isHigh = isHigh
        self.use = use
        self.startedAt = startedAt
        allowedBytes = maxBytes
        self.maxBytes = maxBytes
    }

    /// Number of the flight that it serves.
    var flight: Int32? { if case .flight(let flight) = use { flight } else { nil } }

    /// Identity of an orphan.
    var orphan: FlightIdentity? { if case .orphan(let identity) = use { identity } else { nil } }

    var isCancelling: Bool { if case .cancelling = use { true } else { false } }

    /// Whether the diagram has this transition of a lease that stays.
    static func isLegal(from: Use, to: Use) -> Bool {
        switch (from, to) {
        case (.orphan, .flight), (.orphan, .cancelling), (.flight, .cancelling): true
        case (.flight, .flight), (.cancelling, _), (_, .orphan): false
        }
    }

    /// Makes a transition that the diagram has.
    mutating func enter(_ use: Use, abandoned: AbandonedFlight? = nil) {
        precondition(Self.isLegal(from: self.use, to: use), "a lease goes from \(self.use) to \(use)")
        self.use = use
        self.abandoned = abandoned
    }
}
