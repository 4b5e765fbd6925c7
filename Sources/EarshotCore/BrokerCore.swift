internal import DequeModule
internal import EarshotHTTP
public import EarshotWire
internal import HeapModule
internal import OrderedCollections

/// Decisions of the broker: which requests share a flight, the order of flights, their workers, and the receivers of
/// results.
///
/// A value without I/O. The shell calls one method per event, then `dispatch`, then carries out `takeActions()`, and then
/// calls `endPass`. Each event brings the time as `now`, which must not decrease; `nextTimer` is the time at which the
/// core needs the next call.
///
/// Each *request* of a client becomes an *interest*. Interests with the same key share a *flight*. The `FairQueue`
/// orders interests, a worker's *lease* holds the attempt, and the *outcome* becomes one terminal per listener.
/// `audit()` checks the invariants of ARCHITECTURE.md over all tables.
///
/// Queries in hot paths are inlined, because the compiler copies the whole core (1.8 KB) for a call of a non-mutating
/// method.
public struct BrokerCore {
    /// Identity of this life of the broker, part of the names of its attempts.
    public let instance: BrokerInstance
    public internal(set) var limits: CoreLimits
    public internal(set) var ledger = Ledger()
    /// Times of the requests that this broker has ended.
    public internal(set) var times = RequestTimes()
    /// Seconds since 1970, set by the shell in each pass. Compared with dates in `Retry-After` and with ages in the
    /// cache.
    public var calendarSeconds: Int64 = 0
    /// Whether the folder of parts may have one. The shell knows what other brokers do there.
    public var hasStoredParts = false
    /// Number and bytes of the parts in the folder, as the shell last counted them.
    public var storedParts = (parts: 0, bytes: 0)
    /// Proof required of workers for http and https; nil if none is required.
    let secret: String?
    /// Limits that LIMITS announces to workers.
    var workerLimits: WorkerLimits
    /// Values and sources of all settings; `limits` is derived from them.
    public internal(set) var settings: Settings
    /// Facilities of the shell. A variable only for tests.
    var facilities: Facilities
    /// Latest report of the supervisor about children in a crash loop.
    public var childFailures: [ChildFailure] = []
    /// Maximum open requests while memory is short; `Int.max` otherwise.
    var requestsInMemory = Int.max
    /// Lost folders and sockets, reported by the shell.
    public var placeFaults: [PlaceFault] = []

    var generator: SplitMix
    var isDraining = false
    /// Whether work was left to the next pass: assignments, refusals or doomed requests in the queue.
    var isBehind = false
    /// Whether a removal was left to this pass by the one before.
    var wasRemoving = false
    var actions: [Action] = []
    /// Spool files that have lost their last reference, and whose removal is no action yet.
    var releasedFiles: [String] = []
    var serial: UInt64 = 0

    var interests = Slab<Interest>()
    var extras = Slab<Interest.Extras>()
    var flights = FlightTable()
    /// Authenticated identities of clients.
    var principals = PrincipalTable()
    /// Sessions of clients.
    var clients = SessionTable()

    /// Interests by handler and request ID. The table stores handles only, since the records hold the keys.
    var requestNumbers = HandleTable<Interest>()
    /// Cache state of flights with a pending read or validation, or with additional request fields.
    var cachePlans: [Handle<Flight>: CachePlan] = [:]
    /// Revalidations in phase `queued`, which start when slots are left over. May contain names of ended flights.
    var revalidations: Deque<FlightName> = []
    /// Identifier of the latest stored response; nil before the first.
    var lastCacheEntry: CacheEntryID?
    /// Handlers, their requests and subscribers, and the removals of handlers.
    var handlers = HandlerRegistry()
    /// Removals of clients that are under way, in the order of their turns.
    var removals: OrderedDictionary<Handle<ClientSession>, ClientRemoval> = [:]
    /// Removals since actions were taken last, and those among whose actions they are that were taken then.
    var newRemovals: [AnsweredRemoval] = []
    var answeredRemovals: [AnsweredRemoval] = []
    /// Cookie jars by the first segment of handler names.
    var cookieJars = CookieJars()
    /// Interests by owner.
    var ownerChains = Chains<Interest>()

    var queue = FairQueue()
    var timers = Heap<Timer>()
    /// Workers, their leases and slots.
    var workers: WorkerFleet
    /// Pools of workers by scheme.
    var pools: WorkerPools
    /// Concurrency limit, spacing and cool-down of every origin.
    var governor: OriginGovernor
    /// Shares of running attempts in the rate limits.
    var rates = RateBook()
    /// Partial bodies kept for resumption.
    var parts: PartStore
    /// READs of sessions with pulled bodies.
    var pulls = PullTable()
    /// Outcomes, failures that wait without their requests, and spool files.
    var outcomes: OutcomeStore
    /// Stored results that wait for room in the windows of their receivers.
    var storedResults = StoredResults()
    /// Time of the latest event that brought one.
    var clock = Tick(nanoseconds: .min)
    /// Bodies of requests that flights will send.
    var requestBodies = RequestBodies()
    /// Long heads of requests that have not ended.
    var requestHeads = RequestHeads()
    /// Durable requests.
    var durables: DurableBook
    /// Use of the bus by each principal, and its quotas.
    var quotas: QuotaBook
    /// State of a node of a cluster; nil for a broker on its own.
    var cluster: Indirect<ClusterState>?

    /// - Parameters:
    ///   - workerLimits: limits sent to each worker, with the identity of this broker.
    ///   - secret: proof required of workers; nil for none.
    ///   - cluster: facility of a node of a cluster; nil for a broker on its own.
    ///   - seed: seed of the jitter and of names in the cache.
    public init(
        workerLimits: WorkerLimits, secret: String?, limits: CoreLimits = CoreLimits(),
        facilities: Facilities = Facilities(), cluster: ClusterFacility? = nil, seed: UInt64
    ) {
        instance = workerLimits.broker
        self.facilities = facilities
        self.workerLimits = workerLimits
        self.secret = secret
        self.limits = limits
        workers = WorkerFleet(limits: WorkerFleet.Limits(limits))
        pools = WorkerPools(limits: WorkerPools.Limits(limits))
        governor = OriginGovernor(limits: OriginGovernor.Limits(limits))
        parts = PartStore(limit: limits.keptParts)
        outcomes = OutcomeStore(limits: OutcomeStore.Limits(limits))
        durables = DurableBook(limits: DurableBook.Limits(limits))
        quotas = QuotaBook(limits: limits.userQuotas)
        settings = Settings(limits)
        self.workerLimits = settings.applied(to: workerLimits)
        generator = SplitMix(seed: seed)
        self.cluster = cluster.map { facility in
            let book = ClusterBook(
                members: facility.members, predecessor: facility.predecessor, now: facility.start)
            let health = ClusterHealth(address: facility.address)
            return Indirect(ClusterState(facility: facility, book: book, health: health))
        }
    }

    /// Returns the actions since the last call, in order, and removes them. Without any, returns the removals of files
    /// that nothing needs: an attempt that ends later in a pass, or a body from the cache, may have the same content.
    public mutating func takeActions() -> [Action] {
        guard !actions.isEmpty else { return releasedFiles.isEmpty ? [] : takeReleases() }
        let taken = actions
        actions.removeAll(keepingCapacity: taken.count <= 4_096)
        if !newRemovals.isEmpty || !answeredRemovals.isEmpty { (answeredRemovals, newRemovals) = (newRemovals, []) }
        return taken
    }

    /// Time at which `timePassed` must be called next; nil for never. The shell learns it from `endPass`.
    public var nextTimer: Tick? {
        if isBehind || isRemoving || pulls.isBehind || storedResults.isBehind || durables.load.isBehind {
            return Tick(nanoseconds: .min)
        }
        guard cluster != nil else { return timers.min?.at }
        return [timers.min?.at, clusterDeadline].compactMap(\.self).min()
    }

    /// Whether a draining broker has nothing left to do: no attempt or removal runs, no message waits, and clients have
    /// acknowledged all terminals.
    public var isDrained: Bool {
        runningAttempts == 0 && awaitedDeliveries == 0 && removals.isEmpty && durables.load.messages.isEmpty
            && (cluster.map { $0.value.charges.isEmpty && $0.value.pulls.isEmpty } ?? true)
    }

    /// Number of attempts that run or are being cancelled.
    var runningAttempts: Int { workers.runningAttempts }

    /// Number of terminals neither acknowledged nor lost, except those due to clients that are away: they may never
    /// return.
    var awaitedDeliveries: Int {
        clients.away.reduce(ledger.deliveries.outstanding) { $0 - clients[$1].deliveries.count }
    }

    mutating func nextSerial() -> UInt64 {
        serial += 1
        return serial
    }

    /// Sends a message, unless the client is away. State that it must learn of waits as terminals.
    ///
    /// - Parameter number: number of the message that it answers; 0 for none.
    mutating func say(_ message: BrokerMessage, to client: Handle<ClientSession>, answering number: UInt64 = 0) {
        guard !clients[client].isAway else { return }
        let id = clients[client].id
        actions.append(.client(number == 0 ? .send(id, message) : .reply(id, message, json: nil, to: number)))
    }
}
