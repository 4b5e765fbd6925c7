internal import DequeModule
internal import EarshotWire
internal import HeapModule
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

/// Timers, and the subjects that they still have.
extension Records {
    /// Sets a timer. Stale timers are removed when timers outnumber their possible subjects by far, so the heap stays
    /// bounded.
    mutating func setTimer(_ at: Tick, _ subject: Timer.Subject) {
        outbox.timers.insert(Timer(at: at, subject: subject))
        let subjects =
            requests.count + handlers.count + flights.count + workers.count + governor.origins.count
            + governor.scopes.count + clients.count + pools.count
        guard outbox.timers.count > 1_024 + 4 * subjects else { return }
        outbox.timers = Heap(outbox.timers.unordered.filter { isLive($0.subject) })
    }

    /// Whether a timer is not stale. Timers without a serial or subject count as live.
    mutating func isLive(_ subject: Timer.Subject) -> Bool {
        switch subject {
        case .deadline(let interest), .coolDownWait(let interest), .progress(let interest):
            requests.resolve(interest).map { requests[$0].phase == .open } ?? false
        case .grace(let interest): requests.resolve(interest).map { requests[$0].phase == .held } ?? false
        case .expired(let interest, let timer): durables.isExpiryTimer(timer, of: interest)
        case .abandoned(let handler, let absence):
            handlers.contains(handler) && handlers[handler].absenceEpoch == absence && handlers[handler].isNamed
        case .retry(let name): flights.handle(of: name) != nil
        case .cooled(let scope, let serial): governor.isCooling(scope, serial: serial)
        case .paused(let origin, let pause): governor.isPaused(origin, serial: pause)
        case .greeting(let client): clients.handle(of: client).map { clients[$0].phase == .joining } ?? false
        case .lease(let client, let absence): clients.contains(client) && clients[client].absenceEpoch == absence
        case .stalled(let client, let stall):
            clients.contains(client) && clients[client].deliveries.watch?.serial == stall
        case .poolEmpty(let pool, let absence): pools.isAwaited(pool, serial: absence)
        case .opening, .spoolRetry: true
        case .slowStart(let origin, let serial): governor.isInSlowStart(origin, serial: serial)
        case .jars(let serial): cookieJars.isAwaited(serial)
        case .isolation(let id): workers.handle(of: id).map { workers[$0].isolation != nil } ?? false
        case .heartbeat(let id): workers.handle(of: id) != nil
        case .rates(let due): rates.nextDivision == due
        case .suspicion(let name, let deaths):
            flights.handle(of: name).map { flights[$0].isSuspect && flights[extras: $0].workerDeaths == deaths }
                ?? false
        }
    }

    /// Sets the lease timer of a session that is away.
    mutating func setLeaseTimer(_ at: Tick, of client: Handle<ClientSession>) {
        if let absence = clients[client].absenceEpoch { setTimer(at, .lease(client: client, absence: absence)) }
    }
}

/// Messages and other actions for the shell, timers, and spool files to delete.
struct Outbox {
    /// Actions in the order in which the shell carries them out.
    var actions: [Action] = []
    /// Spool files that have lost their last reference, and whose removal is no action yet.
    var releasedFiles: [String] = []
    var timers = Heap<Timer>()

    mutating func append(_ action: Action) { actions.append(action) }
}
