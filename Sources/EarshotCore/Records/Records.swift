internal import DequeModule
internal import EarshotWire
internal import OrderedCollections

/// All tables of the core in one value. Mechanisms receive it, change the tables, and return what follows.
///
/// Records contain data, look-ups and small updates of several tables. They decide nothing, so none of their functions
/// returns a decision or receives the time.
package struct Records {
    /// Values and sources of all settings; `limits` is derived from them.
    package var settings: Settings
    package var limits: CoreLimits
    /// Maximum open requests while memory is short; `Int.max` otherwise.
    var requestsInMemory = Int.max
    /// Limits that LIMITS announces to workers, and the identity of this broker.
    var workerLimits: WorkerLimits
    /// Facilities of the shell.
    var features: ShellFeatures
    /// Source of jitter, and of names in the cache.
    var generator: SplitMix
    /// Whether no further transfers start.
    package var isDraining = false
    /// Seconds since 1970.
    package var calendarSeconds: Int64 = 0
    package var ledger = Ledger()
    /// Time of the latest event that brought one.
    var clock = Tick(nanoseconds: .min)
    /// Latest serial of a session, a request or a timer.
    private var serial: UInt64 = 0
    /// Messages, timers and deletions of files.
    var outbox = Outbox()

    /// Requests with their heads and bodies.
    package var requests = RequestBook()
    package var flights = FlightTable()
    /// Authenticated identities of clients.
    package var principals = PrincipalTable()
    /// Sessions of clients.
    package var clients = SessionTable()

    /// Cache state of flights with a pending read or validation, or with additional request fields.
    package var cachePlans: [Handle<Flight>: CachePlan] = [:]
    /// Identifier of the latest stored response; nil before the first.
    var lastCacheEntry: CacheEntryID?
    /// Revalidations in phase `queued`, which start when slots are left over. May contain names of ended flights.
    var revalidations: Deque<FlightName> = []
    /// Handlers, their requests and subscribers, and the removals of handlers.
    package var handlers = HandlerRegistry()
    /// Removals of clients that are under way, in the order of their turns.
    var removals: OrderedDictionary<Handle<ClientSession>, ClientRemoval> = [:]
    /// Cookie jars by the first segment of handler names.
    package var cookieJars = CookieJars()

    package var queue = FairQueue()
    /// Workers, their leases and slots.
    package var workers: WorkerFleet
    /// Pools of workers by scheme.
    package var pools: WorkerPools
    /// Concurrency limit, spacing and cool-down of every origin.
    package var governor: OriginGovernor
    /// Shares of running attempts in the rate limits.
    var rates = RateBook()
    /// Partial bodies kept for resumption.
    var parts = PartStore()
    /// READs of sessions with pulled bodies.
    var pulls = PullTable()
    /// Outcomes, failures that wait without their requests, and spool files.
    package var outcomes: OutcomeStore
    /// Stored results that wait for room in the windows of their receivers.
    var storedResults = StoredResults()
    /// Durable requests.
    package var durables: DurableBook
    /// Use of the bus by each principal, and its quotas.
    package var quotas: QuotaBook
    /// State of a node of a cluster; nil for a broker on its own.
    package var cluster: Indirect<ClusterState>?

    init(
        settings: Settings, limits: CoreLimits, workerLimits: WorkerLimits, features: ShellFeatures,
        generator: SplitMix, cluster: Indirect<ClusterState>?
    ) {
        self.settings = settings
        self.limits = limits
        self.workerLimits = workerLimits
        self.features = features
        self.generator = generator
        workers = WorkerFleet(limits: WorkerFleet.Limits(limits))
        pools = WorkerPools(limits: WorkerPools.Limits(limits))
        governor = OriginGovernor(limits: OriginGovernor.Limits(limits))
        outcomes = OutcomeStore(limits: OutcomeStore.Limits(limits))
        durables = DurableBook(limits: DurableBook.Limits(limits))
        quotas = QuotaBook(limits: limits.userQuotas)
        self.cluster = cluster
    }

    mutating func nextSerial() -> UInt64 {
        serial += 1
        return serial
    }
}
