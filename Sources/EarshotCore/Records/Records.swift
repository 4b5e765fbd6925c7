internal import DequeModule
internal import EarshotWire
internal import HeapModule
internal import OrderedCollections

/// All tables of the core in one value. Mechanisms receive it, change the tables, and return the next steps.
///
/// Records contain data, look-ups and small updates of several tables. They decide nothing, so none of their functions
/// returns a decision or receives the time.
package struct Records {
    /// Values and sources of all settings; `limits` is derived from them.
    package var settings: Settings
    package var limits: CoreLimits
    /// Maximum open requests while memory is short; `Int.max` otherwise.
    var maximumRequestsWhileMemoryIsShort = Int.max
    /// Limits that LIMITS announces to workers, and the identity of this broker.
    var workerLimits: WorkerLimits
    /// Features of the shell.
    var shellFeatures: ShellFeatures
    /// Source of jitter, and of names in the cache.
    var randomGenerator: SplitMix64Generator
    /// Whether no further transfers start.
    package var isDraining = false
    /// Seconds since 1970.
    package var calendarSeconds: Int64 = 0
    package var ledger = Ledger()
    /// Time of the latest event that carried a time.
    var latestEventTime = MonotonicTime(nanoseconds: .min)
    /// Latest serial of a session, a request or a timer.
    private var lastSerial: UInt64 = 0
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
    var lastCacheEntryID: CacheEntryID?
    /// Revalidations in phase `queued`, which start when slots are left over. May contain names of ended flights.
    var queuedRevalidations: Deque<FlightName> = []
    /// Handlers, their requests and subscribers, and the removals of handlers.
    package var handlers = HandlerRegistry()
    /// Removals of clients that are under way, in the order of their turns.
    var activeClientRemovals: OrderedDictionary<Handle<ClientSession>, ClientRemoval> = [:]
    /// Cookie jars by the first segment of handler names.
    package var cookieJars = CookieJars()

    package var queue = FairQueue()
    /// Workers, their leases and slots.
    package var workers: WorkerFleet
    /// Pools of workers by scheme.
    package var workerPools: WorkerPools
    /// Concurrency limit, spacing and cool-down of every origin.
    package var originGovernor: OriginGovernor
    /// Shares of running attempts in the rate limits.
    var rateShares = RateShares()
    /// Partial bodies kept for resumption.
    var keptParts = PartStore()
    /// READs of sessions with pulled bodies.
    var bodyPulls = PullTable()
    /// Outcomes, failures that wait without their requests, and spool files.
    package var outcomes: OutcomeStore
    /// Stored results that wait for room in the windows of their receivers.
    var storedResults = StoredResults()
    /// Durable requests.
    package var durables: DurableBook
    /// Use of the bus by each principal, and its quotas.
    package var quotaUse: QuotaBook
    /// State of a node of a cluster; nil for a broker on its own.
    package var clusterState: CopyOnWriteBox<ClusterState>?

    init(
        settings: Settings, limits: CoreLimits, workerLimits: WorkerLimits, features: ShellFeatures,
        generator: SplitMix64Generator, cluster: CopyOnWriteBox<ClusterState>?
    ) {
        self.settings = settings
        self.limits = limits
        self.workerLimits = workerLimits
        self.shellFeatures = features
        self.randomGenerator = generator
        workers = WorkerFleet(heartbeatLimits: WorkerFleet.HeartbeatLimits(limits))
        workerPools = WorkerPools(limits: WorkerPools.Limits(limits))
        originGovernor = OriginGovernor(limits: OriginGovernor.Limits(limits))
        outcomes = OutcomeStore(limits: OutcomeStore.Limits(limits))
        durables = DurableBook(limits: DurableBook.Limits(limits))
        quotaUse = QuotaBook(limits: limits.userQuotas)
        self.clusterState = cluster
    }

    mutating func nextSerial() -> UInt64 {
        lastSerial += 1
        return lastSerial
    }
}

/// Timers, and the check whether one is stale.
extension Records {
    /// Sets a timer. Stale timers are removed when timers outnumber their possible subjects by far, so the heap stays
    /// bounded.
    mutating func setTimer(at: MonotonicTime, for subject: CoreTimer.TimerEvent) {
        outbox.timers.insert(CoreTimer(dueAt: at, timerEvent: subject))
        let subjects =
            requests.count + handlers.count + flights.count + workers.count + originGovernor.origins.count
            + originGovernor.scopes.count + clients.count + workerPools.count
        guard outbox.timers.count > 1_024 + 4 * subjects else { return }
        outbox.timers = Heap(outbox.timers.unordered.filter { isTimerCurrent($0.timerEvent) })
    }

    /// Whether a timer is not stale. Timers without a serial or subject count as live.
    mutating func isTimerCurrent(_ subject: CoreTimer.TimerEvent) -> Bool {
        switch subject {
        case .requestDeadline(let interest), .coolDownWaitEnd(let interest), .nextProgressMessage(let interest):
            requests.resolve(interest).map { requests[$0].phase == .open } ?? false
        case .heldOutcomeGraceEnd(let interest):
            requests.resolve(interest).map { requests[$0].phase == .awaitingSubscriber } ?? false
        case .durableRequestExpiry(let interest, let timer): durables.isExpiryTimer(timer, of: interest)
        case .subscriberAbsenceEnd(let handler, let absence):
            handlers.contains(handler) && handlers[handler].subscriberAbsenceEpoch == absence
                && handlers[handler].isNamed
        case .backOffEnd(let name): flights.handle(of: name) != nil
        case .coolDownEnd(let scope, let serial): originGovernor.isCurrentCoolDownTimer(scope, serial: serial)
        case .originSpacingEnd(let origin, let pause): originGovernor.isCurrentSpacingTimer(origin, serial: pause)
        case .helloTimeout(let client): clients.handle(of: client).map { clients[$0].phase == .joining } ?? false
        case .sessionLeaseEnd(let client, let absence):
            clients.contains(client) && clients[client].disconnectEpoch == absence
        case .stallWatchEnd(let client, let stall):
            clients.contains(client) && clients[client].deliveries.stallWatch?.timerSerial == stall
        case .emptyPoolGraceEnd(let pool, let absence): workerPools.isCurrentAbsenceTimer(pool, serial: absence)
        case .earlierWorkersWaitEnd, .spoolRetry: true
        case .slowStartStep(let origin, let serial): originGovernor.isCurrentSlowStartTimer(origin, serial: serial)
        case .cookieJarExpiry(let serial): cookieJars.isCurrentTimer(serial)
        case .isolationEnd(let id): workers.handle(of: id).map { workers[$0].suspectIsolation != nil } ?? false
        case .heartbeatCheck(let id): workers.handle(of: id) != nil
        case .rateDivision(let due): rateShares.nextDivisionAt == due
        case .suspectWaitEnd(let name, let deaths):
            flights.handle(of: name)
                .map {
                    flights[$0].isSuspectedOfWorkerDeath && flights[redirectsAndFailuresOf: $0].workerDeaths == deaths
                } ?? false
        }
    }

    /// Sets the lease timer of a session that is away.
    mutating func setSessionLeaseTimer(at: MonotonicTime, of client: Handle<ClientSession>) {
        if let absence = clients[client].disconnectEpoch {
            setTimer(at: at, for: .sessionLeaseEnd(client: client, absence: absence))
        }
    }
}

/// Messages and other actions for the shell, timers, and spool files to delete.
struct Outbox {
    /// Actions in the order in which the shell carries them out.
    var actions: [Action] = []
    /// Spool files that have lost their last reference, and whose removal is no action yet.
    var spoolFilesToDelete: [String] = []
    var timers = Heap<CoreTimer>()

    mutating func appendAction(_ action: Action) { actions.append(action) }
}
