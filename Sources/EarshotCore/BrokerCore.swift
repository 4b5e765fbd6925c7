internal import DequeModule
internal import EarshotHTTP
public import EarshotWire
internal import HeapModule
internal import OrderedCollections

/// The broker's decisions: who wants what, what is fetched, by which worker, and who is told.
///
/// A value without I/O. The shell calls one method for each event, then `dispatch`, then carries out `takeActions()`.
/// Times come in with `now`, which never goes back; the next moment the core wants to be asked is `nextTimer`.
///
/// Questions that events ask all the time are inlined: for a call of a method that does not change the core the
/// compiler first copies all 1.8 KB of it aside.
///
/// The parts: a client's *requests* become *interests*; interests with the same key share a *flight*; the `FairQueue`
/// says which interest is next; a worker's *lease* holds the attempt; the *outcome* becomes a terminal for each
/// listener. `audit()` checks the invariants of ARCHITECTURE.md over all tables.
public struct BrokerCore {
    /// This life of the broker; names attempts.
    public let instance: BrokerInstance
    public internal(set) var limits: CoreLimits
    public internal(set) var ledger = Ledger()
    /// Seconds since 1970, set by the shell in each pass: what dates in `Retry-After` are held against.
    public var calendarSeconds: Int64 = 0
    /// Proof a worker must give to be trusted with http and https; nil if none is asked.
    let secret: String?
    /// What workers are told about bodies.
    var workerLimits: WorkerLimits
    /// What the limits were made of, and what else can be set.
    public internal(set) var settings: Settings
    /// Facilities of the shell. A variable only for tests.
    var facilities: Facilities
    /// What the supervisor last told of children that die soon after each start.
    public var childFailures: [ChildFailure] = []
    /// Folders and sockets that were lost, as the shell says.
    public var placeFaults: [PlaceFault] = []

    var generator: SplitMix
    var isDraining = false
    /// Whether assignment left work to the next pass.
    var isBehind = false
    var actions: [Action] = []
    var serial: UInt64 = 0
    var lastFlight: UInt64 = 0

    var interests = Slab<Interest>()
    var extras = Slab<Interest.Extras>()
    var flights = Slab<Flight>()
    var handlers = Slab<HandlerEntry>()
    var roots = Slab<RootEntry>()
    var clients = Slab<ClientSession>()

    /// Interests by handler and request ID, flights by key: the records hold the keys, so only their numbers are
    /// stored.
    var requestNumbers = NumberTable()
    var flightNumbers = NumberTable()
    var flightCounts = FlightCounts()
    /// When flights that back off are tried again.
    var pauses: [Int32: Tick] = [:]
    /// What flights have to do with the cache, if that is much.
    var cachePlans: [Int32: CachePlan] = [:]
    /// Flights of another cache mode than `default`.
    var modedFlights = 0
    /// Flights that the cache wants, and for which nobody else may wait, while they are queued.
    var revalidations: Deque<FlightName> = []
    /// Handlers that have their name, by that name; a handler being purged has given its name up.
    var handlerNumbers: [HandlerID: Int32] = [:]
    /// The same handlers in the byte order of their names.
    var handlerOrder = OrderedNumbers()
    var rootNumbers: [String: Int32] = [:]
    /// Cookies of roots without handlers.
    var idleJars = IdleJars()
    /// The live timer that ends the oldest of them; 0 for none.
    var jarTimer: UInt64 = 0
    /// Clients that are connected, by their connection.
    var clientNumbers: [ClientID: Int32] = [:]
    /// Clients that have a lease, be they connected or away.
    var tokenNumbers: [SessionToken: Int32] = [:]
    /// Clients that are away, in the order in which they went.
    var awayClients: OrderedSet<Int32> = []
    /// Clients subscribed to all handlers below a name.
    var subtreeSubscribers: [HandlerID: [Int32]] = [:]

    /// Interests by handler, by flight, by owner; flights by the flight they were redirected to.
    var handlerChains = Chains()
    var flightChains = Chains()
    var ownerChains = Chains()
    var parentChains = Chains()
    /// Durable requests whose outcomes are on the disk alone, by handler.
    var restingChains = Chains()

    var queue = FairQueue()
    /// Handlers being purged, by number, and by the name they had; owners that are gone.
    var purging: Deque<Int32> = []
    var purgedNumbers: [HandlerID: [Int32]] = [:]
    var departed: Deque<Int32> = []
    /// Running flights without requests whose cancellation waits for more messages, by number.
    var deferredCancellations: [Int32: DeferredCancellation] = [:]
    /// Requests of removed handlers that may still be purged in this pass.
    var purgeBudget: Int
    var timers = Heap<Timer>()
    /// Workers, their leases and slots.
    var workers: WorkerFleet
    /// Pools of workers by scheme.
    var pools: WorkerPools
    /// Concurrency limit, spacing and cool-down of every origin.
    var governor: OriginGovernor
    /// Partial bodies kept for resumption.
    var parts: PartStore
    /// Outcomes, terminals in the shell's file, and the spool files of both.
    var outcomes: OutcomeStore
    /// The time of the last event that told it.
    var clock = Tick(nanoseconds: .min)
    /// Attempts of earlier brokers, and the flights that adopt them.
    var adoption: AdoptionBook
    /// Bodies of requests that wait to be sent.
    var requestBodies = RequestBodies()
    /// Long heads of requests that have not ended.
    var requestHeads = RequestHeads()
    /// What durable requests have besides, by their numbers; those numbers by their names on the disk; the last of
    /// these.
    var durables: [Int32: DurableRecord] = [:]
    var durableNumbers: [DurableID: Int32] = [:]
    var lastDurable: UInt64 = 0
    /// Results to be read from the disk, and how many are being read.
    var claims: Deque<DurableID> = []
    var reads = 0
    /// Bytes of bodies on their way to the disk.
    var recordingBytes = 0

    /// - Parameters:
    ///   - secret: proof asked of workers; nil for none.
    ///   - workerLimits: sent to each worker; names this broker's instance.
    ///   - seed: of the jitter.
    public init(
        workerLimits: WorkerLimits, secret: String?, limits: CoreLimits = CoreLimits(),
        facilities: Facilities = Facilities(), seed: UInt64
    ) {
        instance = workerLimits.broker
        self.facilities = facilities
        self.workerLimits = workerLimits
        self.secret = secret
        self.limits = limits
        purgeBudget = limits.purgesPerPass
        workers = WorkerFleet(limits: WorkerFleet.Limits(limits))
        pools = WorkerPools(limits: WorkerPools.Limits(limits))
        governor = OriginGovernor(limits: OriginGovernor.Limits(limits))
        parts = PartStore(limits: PartStore.Limits(limits))
        adoption = AdoptionBook(limits: AdoptionBook.Limits(limits))
        outcomes = OutcomeStore(limits: OutcomeStore.Limits(limits))
        settings = Settings(limits)
        self.workerLimits = settings.applied(to: workerLimits)
        generator = SplitMix(seed: seed)
    }

    /// The actions asked for since the last call, in order.
    public mutating func takeActions() -> [Action] {
        guard !actions.isEmpty else { return [] }
        let taken = actions
        actions.removeAll(keepingCapacity: taken.count <= 4_096)
        return taken
    }

    /// When `timePassed` is to be called next; nil for never.
    public var nextTimer: Tick? { isBehind || isPurging ? Tick(nanoseconds: .min) : timers.min?.at }

    /// Asks the core something where it is. For a plain question to one that an object holds, the compiler first copies
    /// the references to all of its tables: asked three times a request that was a tenth of the broker's time.
    public mutating func lend<Answer>(_ ask: (borrowing BrokerCore) -> Answer) -> Answer { ask(self) }

    /// Whether a draining broker has nothing left to do: no attempt runs, and clients have acknowledged all terminals.
    public var isDrained: Bool { runningAttempts == 0 && awaitedDeliveries == 0 }

    /// Attempts that run or are being cancelled, without orphans.
    var runningAttempts: Int { workers.runningAttempts }

    /// Terminals not yet acknowledged or lost, those due to clients that are away left out: they may never come back.
    var awaitedDeliveries: Int {
        awayClients.reduce(ledger.deliveries.outstanding) { $0 - clients[$1].deliveries.count }
    }

    /// Whether a terminal or a flight needs a spool file, one that was released before included.
    public func needsFile(_ name: String) -> Bool { outcomes.needsFile(name) }

    mutating func nextSerial() -> UInt64 {
        serial += 1
        return serial
    }

    /// Who is away hears nothing: what matters is due to it as a terminal.
    mutating func say(_ message: BrokerMessage, to client: Int32) {
        guard !clients[client].isAway else { return }
        actions.append(.client(.send(clients[client].id, message)))
    }
}
