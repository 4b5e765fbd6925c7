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
    package let pool: Handle<WorkerPool>
    /// Start of its latest transfer.
    var startedAt = Tick(nanoseconds: .min)
    /// Worker of its latest transfer, whose connections may still be open.
    var lastWorker: WorkerID?
    /// Whether its latest body was so small that the transfer cost more than the bytes; false before the first one.
    private(set) var hasSmallBodies = false
    /// Concurrent transfers, including cancelled ones until their end is confirmed.
    package var running: Int32 = 0
    /// Number of them in classes below `high`.
    var transfersBelowHigh: Int32 = 0
    /// Open claims in the engine of the cluster.
    var claims: Int32 = 0
    /// Maximum number of transfers now: the limit, or more while transfers above a lowered limit drain.
    private(set) var ceiling: Int32 = 0
    /// Limit by the rules.
    private(set) var ruleLimit: Int32 = 0
    /// Limit by the rules, or a lower one during a slow start.
    package private(set) var limit: Int32 = 0
    package private(set) var spacingMilliseconds: Int32 = 0
    /// Whether transfers may use HTTP/2.
    private(set) var allowsHTTP2 = true
    /// Maximum rate of its transfers together, in bytes per second; 0 for no maximum.
    private(set) var rate = 0
    /// Number of its scopes.
    package var scopes: Int32 = 0
    /// Scope of requests without credentials.
    package var sharedScope: Handle<OriginScope>?
    /// Serial of the timer that ends the spacing after the last start; nil while there is none.
    var pause: UInt64?

    init(of url: FetchURL, nameHash: UInt32, pool: Handle<WorkerPool>) {
        name = url.originName
        self.nameHash = nameHash
        self.pool = pool
    }

    /// Parsed from the name at each call, since only rules and reports need it.
    package var origin: Origin {
        guard let origin = Origin(named: name) else { preconditionFailure("\(name) was an origin's name") }
        return origin
    }

    /// Whether its spacing lasts.
    package var isPaused: Bool { pause != nil }

    /// End of the spacing after the latest start.
    package var pauseEnd: Tick { startedAt.advanced(byMilliseconds: Int(spacingMilliseconds)) }

    /// Whether the record may be forgotten.
    var isIdle: Bool { scopes == 0 && running == 0 && !isPaused }

    /// Changes limit, spacing, HTTP/2 and rate. Transfers above a lowered limit continue.
    ///
    /// - Parameter isInSlowStart: whether the limit grows to the new one step by step.
    mutating func set(_ terms: Terms, isInSlowStart: Bool = false) {
        allowsHTTP2 = terms.allowsHTTP2
        rate = terms.rate
        ruleLimit = Int32(clamping: terms.limit)
        limit = isInSlowStart ? min(max(limit, 1), ruleLimit) : ruleLimit
        spacingMilliseconds = Int32(clamping: max(0, terms.spacingMilliseconds))
        ceiling = max(limit, running)
    }

    /// Counts a transfer that this broker starts.
    mutating func startTransfer(by worker: WorkerID, isHigh: Bool, now: Tick) {
        running += 1
        if !isHigh { transfersBelowHigh += 1 }
        lastWorker = worker
        startedAt = now
    }

    var isInSlowStart: Bool { limit < ruleLimit }

    /// Begins a slow start: one transfer at a time.
    mutating func beginSlowStart() {
        limit = min(1, ruleLimit)
        ceiling = max(limit, running)
    }

    /// Doubles the limit of a slow start, up to that of the rules.
    mutating func slowStartStep() {
        limit = limit > ruleLimit / 2 ? ruleLimit : limit * 2
        ceiling = max(limit, running)
    }

    /// - Parameter isSmall: whether the body was small; nil without a response.
    mutating func endTransfer(isHigh: Bool, isSmall: Bool?) {
        if let isSmall { hasSmallBodies = isSmall }
        running -= 1
        if !isHigh { transfersBelowHigh -= 1 }
        ceiling = max(limit, running)
    }

    /// Whether one more transfer of this class may start now. With a limit of 4 or more, one slot is reserved for
    /// `high`.
    package func admits(_ priority: PriorityClass) -> Bool {
        !isPaused && hasRoom(for: priority)
    }

    /// Open claims for each place of the limit, so that each node can fill an origin, and a full origin does not fill
    /// the window of a node.
    private static let claimsPerPlace: Int32 = 2

    /// Whether one more flight of this class may claim.
    func admitsClaim(_ priority: PriorityClass) -> Bool {
        let most = min(limit, .max / 4) * Self.claimsPerPlace
        return claims < (priority == .high ? most + most / 2 : most)
    }

    /// Whether the limit has room for one more transfer of this class, regardless of the spacing.
    package func hasRoom(for priority: PriorityClass) -> Bool {
        running < limit && (priority == .high || limit < 4 || transfersBelowHigh < limit - 1)
    }
}
