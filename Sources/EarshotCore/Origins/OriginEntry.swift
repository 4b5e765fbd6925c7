package import EarshotHTTP
package import EarshotWire

/// One origin: its transfers, over all workers, and the earliest next start.
package struct OriginEntry {
    /// Values of the rules for one origin.
    typealias Terms = (limit: Int, spacingMilliseconds: Int, allowsHTTP2: Bool, rate: Int)

    /// Key in the governor's table, in the form of `FetchURL.originName`.
    let name: String
    let nameHash: UInt32
    /// The pool whose workers fetch its URLs.
    package let workerPool: Handle<WorkerPool>
    /// Start of its latest transfer.
    var startedAt = MonotonicTime(nanoseconds: .min)
    /// Worker of its latest transfer, whose connections may still be open.
    var latestWorker: WorkerID?
    /// Whether its latest body was so small that the transfer cost more than the bytes; false before the first one.
    private(set) var hadSmallLatestBody = false
    /// Concurrent transfers, including cancelled ones until their end is confirmed.
    package var runningTransferCount: Int32 = 0
    /// Number of them in classes below `high`.
    var belowHighTransferCount: Int32 = 0
    /// Open claims in the engine of the cluster.
    var openClaimCount: Int32 = 0
    /// Maximum number of transfers now: the limit, or more while transfers above a lowered limit drain.
    private(set) var currentTransferLimit: Int32 = 0
    /// Limit by the rules.
    private(set) var transferLimitByRules: Int32 = 0
    /// Limit by the rules, or a lower one during a slow start.
    package private(set) var transferLimit: Int32 = 0
    package private(set) var spacingMilliseconds: Int32 = 0
    /// Whether transfers may use HTTP/2.
    private(set) var allowsHTTP2 = true
    /// Maximum rate of its transfers together, in bytes per second; 0 for no maximum.
    private(set) var maximumBytesPerSecond = 0
    /// Number of its scopes.
    package var scopeCount: Int32 = 0
    /// Scope of requests without credentials.
    package var sharedScope: Handle<OriginScope>?
    /// Serial of the timer that ends the spacing after the last start; nil while there is none.
    var spacingTimerSerial: UInt64?

    init(of url: FetchURL, nameHash: UInt32, pool: Handle<WorkerPool>) {
        name = url.originName
        self.nameHash = nameHash
        workerPool = pool
    }

    /// Parsed from the name at each call, since only rules and reports need it.
    package var origin: Origin {
        guard let origin = Origin(named: name) else { preconditionFailure("\(name) was an origin's name") }
        return origin
    }

    /// Whether its spacing has not ended.
    package var isInSpacingPause: Bool { spacingTimerSerial != nil }

    /// End of the spacing after the latest start.
    package var pauseEnd: MonotonicTime { startedAt.advanced(byMilliseconds: Int(spacingMilliseconds)) }

    /// Whether the record may be forgotten.
    var isIdle: Bool { scopeCount == 0 && runningTransferCount == 0 && !isInSpacingPause }

    /// Changes limit, spacing, HTTP/2 and rate. Transfers above a lowered limit continue.
    ///
    /// - Parameter isInSlowStart: whether the limit grows to the new one step by step.
    mutating func setTerms(_ terms: Terms, isInSlowStart: Bool = false) {
        allowsHTTP2 = terms.allowsHTTP2
        maximumBytesPerSecond = terms.rate
        transferLimitByRules = Int32(clamping: terms.limit)
        transferLimit = isInSlowStart ? min(max(transferLimit, 1), transferLimitByRules) : transferLimitByRules
        spacingMilliseconds = Int32(clamping: max(0, terms.spacingMilliseconds))
        currentTransferLimit = max(transferLimit, runningTransferCount)
    }

    /// Counts a transfer that this broker starts.
    mutating func startTransfer(by worker: WorkerID, isHigh: Bool, now: MonotonicTime) {
        runningTransferCount += 1
        if !isHigh { belowHighTransferCount += 1 }
        latestWorker = worker
        startedAt = now
    }

    var isInSlowStart: Bool { transferLimit < transferLimitByRules }

    /// Begins a slow start: one transfer at a time.
    mutating func beginSlowStart() {
        transferLimit = min(1, transferLimitByRules)
        currentTransferLimit = max(transferLimit, runningTransferCount)
    }

    /// Doubles the limit of a slow start, up to that of the rules.
    mutating func slowStartStep() {
        transferLimit = transferLimit > transferLimitByRules / 2 ? transferLimitByRules : transferLimit * 2
        currentTransferLimit = max(transferLimit, runningTransferCount)
    }

    /// - Parameter isSmall: whether the body was small; nil without a response.
    mutating func endTransfer(isHigh: Bool, isSmall: Bool?) {
        if let isSmall { hadSmallLatestBody = isSmall }
        runningTransferCount -= 1
        if !isHigh { belowHighTransferCount -= 1 }
        currentTransferLimit = max(transferLimit, runningTransferCount)
    }

    /// Whether one more transfer of this class may start now. With a limit of 4 or more, one slot is reserved for
    /// `high`.
    package func admitsTransfer(_ priority: PriorityClass) -> Bool {
        !isInSpacingPause && hasTransferSlot(for: priority)
    }

    /// Open claims for each slot of the limit, so that each node can fill an origin, and a full origin does not fill
    /// the window of a node.
    private static let openClaimsPerTransferSlot: Int32 = 2

    /// Whether one more flight of this class may claim.
    func admitsClaim(_ priority: PriorityClass) -> Bool {
        let most = min(transferLimit, .max / 4) * Self.openClaimsPerTransferSlot
        return openClaimCount < (priority == .high ? most + most / 2 : most)
    }

    /// Whether the limit has room for one more transfer of this class, regardless of the spacing.
    package func hasTransferSlot(for priority: PriorityClass) -> Bool {
        runningTransferCount < transferLimit
            && (priority == .high || transferLimit < 4 || belowHighTransferCount < transferLimit - 1)
    }
}

/// Pause of an origin that answered 429, or 503 with `Retry-After`, or 503 for several URLs in a row.
/// `OriginGovernor.beginCoolDown` decides its length. `responseReceived` of `BrokerCore+Flights.swift` detects the
/// refusals.
///
/// ```
///               refused                   time over              transfer starts
///  (open) ────────────────→ cooling   ───────────────→ due ──────────────────────→ probing
///    ↑                      refusing                    ↑                             │
///    │                      ↑  refused, in any phase    └── no answer ────────────────┤
///    └───────────────────── │ ─────────────────────────────────── answered ───────────┘
/// ```
package struct CoolDown {
    package enum Phase: Equatable {
        /// No transfer starts; requests wait.
        case cooling(until: MonotonicTime)
        /// The requested pause exceeds the limit. Requests fail at once, so that their clients can decide.
        case refusing(until: MonotonicTime)
        /// One transfer may start, as a probe.
        case due
        /// The probe runs.
        case probing(flight: UInt64)

        var pauseEnd: MonotonicTime? {
            switch self {
            case .cooling(let until), .refusing(let until): until
            case .due, .probing: nil
            }
        }
    }

    var phase: Phase
    /// Start of the first of the cool-downs without an answer between them.
    let firstStartedAt: MonotonicTime
    /// Number of refusals in a row.
    var consecutiveRefusals: Int
    /// Distinguishes the timer of this cool-down from those of earlier ones.
    var timerSerial: UInt64
    /// Flight of the latest probe. It waits behind the others, so that no request uses up its retries for all.
    var latestProbeFlightID: UInt64?

    /// End of the pause; nil outside `cooling` and `refusing`.
    package var pauseEnd: MonotonicTime? { phase.pauseEnd }

    /// Whether the diagram has this transition; nil is the phase `open`.
    static func isLegal(from: Phase?, to: Phase?) -> Bool {
        let isProbing = if case .probing = from { true } else { false }
        return switch to {
        case .cooling, .refusing: true
        case .due: isProbing || from?.pauseEnd != nil
        case .probing: from == .due
        case nil: isProbing
        }
    }

    /// Pauses after refusals in a row. They have jitter, so that clients refused together do not return together.
    static let refusalBackoff = Backoff(initialMilliseconds: 1_000, maximumMilliseconds: 60_000)
}
