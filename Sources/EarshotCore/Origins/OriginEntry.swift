internal import EarshotHTTP
internal import EarshotWire

/// One origin: how many transfers it has, over all workers, and when the next may start.
struct OriginEntry {
    /// Terms that the rules give an origin.
    typealias Terms = (limit: Int, spacingMilliseconds: Int, allowsHTTP2: Bool)

    /// What it is found by, as `FetchURL.originName` says, and its hash in the table.
    let name: String
    let nameHash: UInt32
    /// Whose workers fetch its URLs.
    let pool: Int32
    /// When its last transfer was started.
    var startedAt = Tick(nanoseconds: .min)
    /// The worker that got it: its connections may still be open.
    var lastWorker: WorkerID?
    /// Transfers at once, cancelled ones included until their end is confirmed.
    var running: Int32 = 0
    /// Those of lower classes than `high`.
    var lower: Int32 = 0
    /// Most transfers there may be now: its limit, or what ran when that was lowered and has not ended since.
    private(set) var ceiling: Int32 = 0
    private(set) var limit: Int32 = 0
    private(set) var spacingMilliseconds: Int32 = 0
    /// Whether HTTP/2 may be spoken with it.
    private(set) var allowsHTTP2 = true
    /// Scopes that name it.
    var scopes: Int32 = 0
    /// Scope of requests without credentials.
    var sharedScope: Int32?
    /// Serial of the timer that ends the spacing after the last start; nil while there is none.
    var pause: UInt64?

    init(of url: FetchURL, nameHash: UInt32, pool: Int32) {
        name = url.originName
        self.nameHash = nameHash
        self.pool = pool
    }

    /// Made of its name anew each time: only rules and reports ask for it.
    var origin: Origin {
        guard let origin = Origin(named: name) else { preconditionFailure("\(name) was an origin's name") }
        return origin
    }

    /// Whether the time after its last start is not over.
    var isPaused: Bool { pause != nil }

    /// When the time after its last start is over.
    var pauseEnd: Tick { startedAt.advanced(byMilliseconds: Int(spacingMilliseconds)) }

    /// Whether nothing of it has to be remembered.
    var isIdle: Bool { scopes == 0 && running == 0 && !isPaused }

    /// Takes other terms; what runs over a lower limit goes on.
    mutating func set(_ terms: Terms) {
        allowsHTTP2 = terms.allowsHTTP2
        limit = Int32(clamping: terms.limit)
        spacingMilliseconds = Int32(clamping: max(0, terms.spacingMilliseconds))
        ceiling = max(limit, running)
    }

    /// Counts a transfer that this broker starts.
    mutating func startTransfer(by worker: WorkerID, isHigh: Bool, now: Tick) {
        running += 1
        if !isHigh { lower += 1 }
        lastWorker = worker
        startedAt = now
    }

    /// One more transfer is there that this broker did not start, be it over the limit.
    mutating func takeTransfer(startedAt start: Tick) {
        running += 1
        lower += 1
        startedAt = max(startedAt, start)
        ceiling = max(limit, running)
    }

    mutating func endTransfer(isHigh: Bool) {
        running -= 1
        if !isHigh { lower -= 1 }
        ceiling = max(limit, running)
    }

    /// Whether one more transfer of this class may start: one slot of four or more is kept for `high`.
    func admits(_ priority: PriorityClass) -> Bool {
        !isPaused && hasRoom(for: priority)
    }

    /// Whether the limit has room for one more transfer of this class.
    func hasRoom(for priority: PriorityClass) -> Bool {
        running < limit && (priority == .high || limit < 4 || lower < limit - 1)
    }
}
