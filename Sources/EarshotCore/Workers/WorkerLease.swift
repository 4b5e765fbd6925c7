public import EarshotWire

/// Lease of an attempt by a worker.
///
/// ```
///          started                     flight leaves
/// (none) ──────────→ serving flight ────────────────→ cancelling ──→ (none)
///                          │
///                          └── attempt ends ─→ (none)
/// ```
///
/// The slot and the origin's place stay taken until the worker confirms the end. `WorkerFleet` makes the transitions.
package struct WorkerLease {
    /// Purpose of an attempt.
    enum LeaseUse: Equatable {
        /// Serves the flight with this handle.
        case servingFlight(Handle<Flight>)
        /// Serves no flight: the worker got a CANCEL.
        case cancelling
    }

    package let origin: Handle<OriginEntry>
    /// Whether the attempt has class `high`, which has reserved slots.
    let isHighPriority: Bool
    private(set) var leaseUse: LeaseUse
    /// Principal that the slot is charged to; the administrator for a revalidation.
    var principal = PrincipalTable.administrator
    let startedAt: MonotonicTime
    /// Limit of decoded bytes in its JOB; nil for no limit.
    let jobMaximumBytes: Int?
    /// Current limit, after raises; nil for no limit.
    var currentMaximumBytes: Int?
    /// Decoded bytes received so far.
    package var receivedBytes = 0
    /// Decoded bytes of the whole body; nil while unknown.
    var wholeBodyBytes: Int?
    /// File into which the worker writes the body; nil until it is known.
    var partFile: GrowingPart?
    /// Bytes of that file that count towards the spool.
    var countedPartFileBytes = 0
    /// Number of bytes of the part that its JOB named; 0 without one.
    package var resumedBytes = 0
    /// Size of the file when the shell renamed it; nil before.
    var renamedFileBytes: Int?
    /// Request of the former flight, if a later flight may resume the part of this cancelled attempt.
    private(set) var cancelledFlight: CancelledAttemptFlight?

    /// The flight that the attempt serves.
    package var flight: Handle<Flight>? { if case .servingFlight(let flight) = leaseUse { flight } else { nil } }

    var isCancelling: Bool { if case .cancelling = leaseUse { true } else { false } }

    /// Whether the diagram has this transition between two uses.
    static func isLegal(from: LeaseUse, to: LeaseUse) -> Bool {
        switch (from, to) {
        case (.servingFlight, .cancelling): true
        case (.servingFlight, .servingFlight), (.cancelling, _): false
        }
    }

    /// Makes a transition of the diagram.
    mutating func enter(_ use: LeaseUse, cancelledFlight: CancelledAttemptFlight? = nil) {
        precondition(Self.isLegal(from: self.leaseUse, to: use), "a lease goes from \(self.leaseUse) to \(use)")
        self.leaseUse = use
        self.cancelledFlight = cancelledFlight
    }
}

extension WorkerLease {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    init(origin: Handle<OriginEntry>, isHigh: Bool, use: LeaseUse, startedAt: MonotonicTime, maximumBodyBytes: Int?) {
        self.init(
            origin: origin, isHighPriority: isHigh, leaseUse: use, startedAt: startedAt,
            jobMaximumBytes: maximumBodyBytes,
            currentMaximumBytes: maximumBodyBytes)
    }
}

/// Assignment of an attempt, for the log.
public struct AttemptAssignment: Equatable, Sendable {
    public let attempt: AttemptID
    public let worker: WorkerID
    /// URL of its JOB, which may contain secrets.
    public let url: String
    /// Handler of the first request that needs the attempt; nil if none does. Other requests can join it.
    public let handler: HandlerID?
    /// ID of that request.
    public let request: RequestID?
}
