internal import DequeModule
public import EarshotHTTP
public import EarshotWire
internal import HeapModule
internal import OrderedCollections

/// Decisions of the broker: which requests share a flight, the order of flights, their workers, and the receivers of
/// results.
///
/// A value without I/O. The shell calls one method per event, then `dispatch`, then carries out `takeActions()`, and
/// then calls `endPass`. Each event brings the time as `now`, which must not decrease; `nextTimer` is the time at which
/// the core needs the next call.
///
/// Each *request* of a client becomes an *interest*. Interests with the same key share a *flight*. The `FairQueue`
/// orders interests, a worker's *lease* holds the attempt, and the *outcome* becomes one terminal per subscriber.
/// `audit()` checks the invariants of ARCHITECTURE.md over all tables.
///
/// Queries in hot paths are inlined or mutating, because the compiler copies the whole core (3.8 KB) for a call of a
/// non-mutating method.
public struct BrokerCore {
    /// Times of the requests that this broker has ended.
    public internal(set) var requestTimes = RequestTimes()
    /// Number and bytes of the parts in the folder, as the shell last counted them.
    public var storedParts = (parts: 0, bytes: 0)
    /// Proof required of workers for http and https; nil if none is required.
    let workerSecret: String?
    /// Composes the answers to queries.
    let answering: Answering
    /// Latest report of the supervisor about children in a crash loop.
    public var childFailures: [ChildCrashLoop] = []
    /// Latest report of the supervisor about the HTTP door; nil without one.
    var doorReport: HTTPDoorState?
    /// Lost folders and sockets, reported by the shell.
    public var pathFaults: [PathFailure] = []

    /// Whether work was left to the next pass: assignments, refusals or doomed requests in the queue.
    var hasWorkForNextPass = false
    /// Whether a removal was left to this pass by the one before.
    var hadRemovalInLastPass = false
    /// Removals since the last call of `takeActions`.
    var newRemovals: [OvertakableRemoval] = []
    /// Removals whose actions the last call of `takeActions` returned.
    var answeredRemovals: [OvertakableRemoval] = []

    /// Tables of requests, flights, clients, workers and everything else.
    var records: Records

    public internal(set) var limits: CoreLimits {
        get { records.limits }
        set { records.limits = newValue }
    }

    public var ledger: Ledger { records.ledger }

    /// Identity of this life of the broker, part of the names of its attempts.
    public var brokerInstance: BrokerInstance { records.workerLimits.broker }

    /// Values and sources of all settings; `limits` is derived from them.
    public var settings: Settings { records.settings }

    /// Features of the shell.
    var shellFeatures: ShellFeatures {
        get { records.shellFeatures }
        set { records.shellFeatures = newValue }
    }

    /// Seconds since 1970, set by the shell in each pass. Compared with dates in `Retry-After` and with ages in the
    /// cache.
    public var unixTimeSeconds: Int64 {
        get { records.calendarSeconds }
        set { records.calendarSeconds = newValue }
    }

    /// Whether the folder of parts may contain a part. Set by the shell, which also sees the parts of other brokers.
    public var hasStoredParts: Bool {
        get { records.keptParts.mayHaveStoredParts }
        set { records.keptParts.mayHaveStoredParts = newValue }
    }

    /// The principal of a session, for the log of the shell; nil for the administrator.
    public func principal(of id: ClientID) -> PrincipalName? {
        guard let client = records.clients.handle(of: id) else { return nil }
        return records.principals.name(of: records.clients[client].principal)
    }

    /// - Parameters:
    ///   - workerLimits: limits sent to each worker, with the identity of this broker.
    ///   - secret: proof required of workers; nil for none.
    ///   - answering: composes the answers to queries: `Queries.answer` of EarshotQueries.
    ///   - cluster: services for a node of a cluster; nil for a broker on its own.
    ///   - seed: seed of the jitter and of names in the cache.
    public init(
        workerLimits: WorkerLimits, secret: String?, limits: CoreLimits = CoreLimits(),
        features: ShellFeatures = ShellFeatures(), answering: @escaping Answering, cluster: ClusterServices? = nil,
        seed: UInt64
    ) {
        self.workerSecret = secret
        self.answering = answering
        let settings = Settings(defaultsFrom: limits)
        let cluster = cluster.map { services in
            let book = ClusterBook(
                members: services.members, predecessor: services.predecessor, now: services.startTime)
            let health = ClusterHealth(address: services.address)
            return CopyOnWriteBox(ClusterState(services: services, book: book, health: health))
        }
        records = Records(
            settings: settings, limits: limits, workerLimits: settings.workerLimits(from: workerLimits),
            features: features, generator: SplitMix64Generator(seed: seed), cluster: cluster)
    }

    /// Returns the actions since the last call, in order, and removes them. Without any, returns the removals of files
    /// that nothing needs: an attempt that ends later in a pass, or a body from the cache, may have the same content.
    public mutating func takeActions() -> [Action] {
        guard !records.outbox.actions.isEmpty else {
            return records.outbox.spoolFilesToDelete.isEmpty ? [] : Spool.takeFileRemovals(in: &records)
        }
        let taken = records.outbox.actions
        records.outbox.actions.removeAll(keepingCapacity: taken.count <= 4_096)
        if !newRemovals.isEmpty || !answeredRemovals.isEmpty { (answeredRemovals, newRemovals) = (newRemovals, []) }
        return taken
    }

    /// Number of waiting actions plus number of all terminals that were due. A terminal for many subscribers adds one
    /// of each per subscriber, so half of the growth is its cost.
    public var pendingWorkCount: Int {
        mutating get { records.outbox.actions.count + records.ledger.deliveries.started }
    }

    /// Time at which `timePassed` must be called next; nil for never. The shell learns it from `endPass`.
    public var nextTimer: MonotonicTime? {
        if hasWorkForNextPass || hasPendingRemovals || records.bodyPulls.hasAnswerableReads
            || records.storedResults.hasDeferredResults || records.durables.loadState.hasRunnableMessages
            || records.queue.coolDownWaits.hasPendingChecks || isEndingRequests
        {
            return MonotonicTime(nanoseconds: .min)
        }
        guard records.clusterState != nil else { return records.outbox.timers.min?.dueAt }
        return [records.outbox.timers.min?.dueAt, Cluster.nextDeadline(in: records)].compactMap(\.self).min()
    }

    /// Whether a draining broker has nothing left to do: no attempt or removal runs, no message waits, and clients have
    /// acknowledged all terminals.
    public var isDrained: Bool {
        runningAttemptCount == 0 && awaitedDeliveryCount == 0 && records.activeClientRemovals.isEmpty
            && !isEndingRequests && records.durables.loadState.waitingMessages.isEmpty
            && (records.clusterState.map { $0.value.quotaCharges.isEmpty && $0.value.pulls.isEmpty } ?? true)
    }

    /// Number of attempts that run or are being cancelled.
    var runningAttemptCount: Int { records.workers.leaseCount }

    /// Number of terminals neither acknowledged nor lost, except those due to clients that are away: they may never
    /// return.
    var awaitedDeliveryCount: Int {
        records.clients.awaySessions.reduce(records.ledger.deliveries.outstanding) {
            $0 - records.clients[$1].deliveries.dueTerminalCount
        }
    }
}

/// Facts at the end of a pass.
public struct PassEnd: Equatable, Sendable {
    /// Time at which the core needs the next pass; nil for never.
    public let nextTimer: MonotonicTime?
    /// Whether much memory can be returned to the system: a large removal has ended, or a table is mostly empty.
    /// `releaseSpareCapacity` releases that of the tables.
    public let canReleaseMemory: Bool
    /// Number of workers of http and https that accept jobs.
    public var acceptingWorkerCount = 0
}

extension BrokerCore {
    /// Ends a pass, whose actions the shell has carried out.
    public mutating func endPass() -> PassEnd {
        let hasRemoved = hadRemovalInLastPass && !hasPendingRemovals
        hadRemovalInLastPass = hasPendingRemovals
        return PassEnd(
            nextTimer: nextTimer, canReleaseMemory: hasRemoved || hasReleasableCapacity,
            acceptingWorkerCount: acceptingWorkerCount)
    }
}

/// Features of the shell that the core may use.
public struct ShellFeatures: Sendable {
    /// Whether a supervisor keeps the workers, so that their number can be set.
    public var isSupervised = false
    /// Whether the supervisor runs a program for each request that ends. May change at any time.
    public var isReportingRequestEnds = false
    /// Whether the log has a line for each attempt. May change at any time.
    public var isLoggingAttempts = false
    /// Whether there is a cache.
    public var isCaching = false
    /// Whether durable requests are stored.
    public var isStoringDurableRequests = false
    /// Whether there is a folder of parts.
    public var isKeepingParts = false
    /// Encoder of internationalized host names in requests and redirects; without one they are malformed.
    public var hostNameEncoder: HostNameEncoder?
    /// Proof expected of the gateway; nil without a gateway: HELLO is refused if it has `proof`.
    public var gatewayProof: GatewayProof?
    /// Proof of the HTTP door; nil if there is none.
    var doorProof: GatewayProof?
    /// Principals of the keys of clients that the gateway accepts; nil if unknown. May change at any time.
    var validKeys: Set<PrincipalName>?
    /// List of public suffixes, for the domains of cookies.
    public var publicSuffixes = PublicSuffixes.unavailable

    public init() {}
}

/// Release of memory after a burst.
extension BrokerCore {
    /// Bytes reserved for a request that waits: growing tables need them while they are copied.
    private static let tableGrowthReserveBytes = 512

    /// Handles a change of the memory that this process may still use below the limits of the kernel. While little is
    /// left, the core accepts a request only if another one has ended.
    ///
    /// - Parameter bytes: available bytes; nil without a limit.
    public mutating func availableMemoryChanged(bytes: Int?) {
        let isShort =
            bytes.map { $0 < records.limits.memoryReserveBytes + records.requests.count * Self.tableGrowthReserveBytes }
            ?? false
        records.maximumRequestsWhileMemoryIsShort = isShort ? records.ledger.requests.pending : .max
    }

    /// Whether a table of records was large and is mostly empty, and its spare capacity has not been released.
    var hasReleasableCapacity: Bool {
        let least = CapacityShrinking.alwaysRetainedCapacity
        return records.requests.hasSpareCapacity(beyond: least) || records.flights.hasSpareCapacity(beyond: least)
            || records.handlers.hasSpareCapacity(beyond: least) || records.outcomes.hasSpareCapacity(beyond: least)
    }

    /// Releases the spare capacity of tables that are mostly empty. O(released capacity). The shell calls it some time
    /// after `endPass` has reported spare capacity, because an emptied table is often filled again.
    public mutating func releaseSpareCapacity() {
        releaseSpareCapacity(retaining: CapacityShrinking.alwaysRetainedCapacity)
    }

    /// - Parameter least: number of entries for which each table may keep capacity.
    mutating func releaseSpareCapacity(retaining least: Int) {
        records.requests.releaseSpareCapacity(retaining: least)
        records.flights.releaseSpareCapacity(beyond: records.requests.indexBound, retaining: least)
        records.outcomes.releaseSpareCapacity(retaining: least)
        records.handlers.releaseSpareCapacity(beyond: records.requests.indexBound, retaining: least)
        records.clients.releaseSpareCapacity(retaining: least)
        records.originGovernor.releaseSpareCapacity(retaining: least)
        records.queue.releaseSpareCapacity(beyond: records.requests.indexBound, retaining: least)
        releaseSpareCapacityOfNames(retaining: least)
        records.queuedRevalidations.releaseSpareCapacityIfEmpty()
        if records.outbox.timers.isEmpty { records.outbox.timers = [] }
    }

    private mutating func releaseSpareCapacityOfNames(retaining least: Int) {
        records.cachePlans.releaseSpareCapacity(retaining: least)
        records.keptParts.releaseSpareCapacity(retaining: least)
        records.durables.releaseSpareCapacity(retaining: least)
        records.quotaUse.releaseSpareCapacity(retaining: least)
    }
}
