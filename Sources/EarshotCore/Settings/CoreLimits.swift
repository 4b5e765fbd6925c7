/// Bounds and times of the core, with the reason for each default.
public struct CoreLimits: Equatable, Sendable {
    /// Whether new requests are accepted. An administrator closes admission before a planned end of the bus.
    public var acceptsNewRequests = true
    /// Maximum open requests of all clients. The design target is one million; twice that is a runaway program.
    public var maximumOpenRequests = 2_000_000
    /// Memory below the limits of the kernel that requests leave to terminals, bodies and connections, in bytes.
    public var memoryReserveBytes = 32 << 20
    /// Maximum open requests of one client: as many as one program plausibly plans.
    public var maximumOpenRequestsPerClient = 1_000_000
    /// Maximum open requests of one user: a quarter of those of all. 0 for no maximum, as for the other quotas.
    public var maximumOpenRequestsPerUser = 500_000
    /// Maximum transfers of one user. The settings make it a quarter of all slots.
    public var maximumTransfersPerUser = 0
    /// Maximum bytes of bodies that one user has not acknowledged: a quarter of the spool, so that no user fills it
    /// alone.
    public var maximumSpoolBytesPerUser = 2_560 << 20
    /// Maximum bytes in memory of the results that one user has not acknowledged: a quarter of a gibibyte.
    public var maximumMemoryBytesPerUser = 256 << 20
    /// Maximum length of a body that counts as in memory, in bytes: the default of `inline-bytes`.
    var maximumInMemoryBodyBytes = 64 << 10
    /// Maximum bytes of durable requests and results of one user: a quarter of the store, for the same reason.
    public var maximumDurableBytesPerUser = 256 << 20
    /// Maximum subscriptions of one client: ten times the design target for handlers.
    public var maximumSubscriptionsPerClient = 100_000
    /// Maximum subscriptions of all clients together: some 250 MB. One user has a quarter, as many as one client.
    public var maximumSubscriptions = 400_000
    /// Maximum open requests of one handler: the plan of one view, list or crawl.
    public var maximumOpenRequestsPerHandler = 1_000_000
    /// Concurrency limits and spacing of origins.
    public var originRules = OriginRules()
    /// Maximum rate of all transfers together, in bytes per second; 0 for no maximum.
    public var maximumBytesPerSecond = 0
    /// Maximum bytes of inline bodies that wait for one client's window, or for the first subscriber of a handler,
    /// assuming bodies of equal size. Bodies beyond that are spilled.
    public var maximumWaitingBodyBytes = 1 << 20
    /// Number of terminals that may wait for one client's window before stored results wait where they are. More than
    /// arrive while a client handles the terminals of its window; about a mebibyte of records without bodies.
    public var maximumWaitingTerminals = 1_000
    /// Maximum number of claimed results delivered in one step: a few milliseconds of work.
    public var maximumDeliveredClaimsPerPass = 1_000
    /// Maximum body of one request, in bytes: a form or an API call. Larger ones do not belong in an in-memory queue.
    public var maximumRequestBodyBytes = 1 << 20
    /// Maximum bytes of the bodies of one client's open requests.
    public var maximumRequestBodyBytesPerClient = 32 << 20
    /// Maximum bytes of the bodies of all open requests.
    public var maximumTotalRequestBodyBytes = 256 << 20
    /// Maximum bytes of long heads of one client's open requests: URL and header fields beyond
    /// `RequestHeads.uncountedBytesPerHead` each. The same bound as for bodies.
    public var maximumRequestHeadBytesPerClient = 32 << 20
    /// Maximum bytes of long heads of all open requests.
    public var maximumTotalRequestHeadBytes = 256 << 20
    /// Size at which a page of a QUERY table is full, in bytes: some hundred entries, a fraction of a millisecond's
    /// work.
    public var maximumQueryPageBytes = 32 << 10
    /// Maximum number of requests examined for one page of QUERY requests: a fraction of a millisecond's work even if
    /// the filter admits none of them.
    public var maximumExaminedRequestsPerPage = 10_000
    /// Maximum bytes of all cookie jars, of which there is one per root that uses cookies. One user has a quarter, in
    /// which the largest jar fits. Beyond it the jars that have been without handlers for longest are evicted.
    public var maximumTotalCookieBytes = 64 << 20
    /// Time for which a jar without handlers is kept: until a script runs its next command, or a user types one.
    public var idleCookieJarMilliseconds = 600_000
    /// Maximum number of disconnected clients kept for their lease. Beyond it the one with the longest absence is
    /// removed. Each can have as many terminals due as a connected one.
    public var maximumDisconnectedSessions = 256
    /// Maximum replies kept for the resumption of a session with a lease: more than a program has open questions. Each
    /// has two names and a sentence, less than 1 KiB.
    public var maximumRepliesPerLeasedSession = 256
    /// Maximum number of READs answered in one pass: a mebibyte, a fraction of a millisecond from memory and few
    /// milliseconds from a disk.
    public var maximumBodyReadsPerPass = 4
    /// Time for a new connection to send HELLO, which a program does at once.
    public var helloTimeoutMilliseconds = 10_000
    /// Number of URLs in a row that answer 503 without `Retry-After` before their origin cools down. More than the dead
    /// entries that stand together in a list, and an outage reaches it with its first answers.
    public var coolDownURLThreshold = 16
    /// Time for which a terminal waits for a subscriber, and a handler's own requests wait for a new one.
    public var subscriberGraceMilliseconds = 10_000
    /// Time for which a durable request is kept after its acceptance. A client that is away for longer, such
    /// as on a holiday of more than a week, is unlikely to return.
    public var durableRetentionMilliseconds = 7 * 86_400_000
    /// Maximum bytes of durable results being written to disk; further results are not stored. Bounds the memory that a
    /// slow disk costs.
    public var maximumDurableWritingBytes = 256 << 20
    /// Maximum number of durable results read from disk at once, for clients that claim them.
    public var maximumConcurrentDurableReads = 64
    /// Pause after a failed write into the spool. Free disk space seldom returns sooner.
    public var spoolRetryMilliseconds = 1_000
    /// Silence of a worker with transfers after which it gets a PING.
    public var silenceBeforePingMilliseconds = 5_000
    /// Silence after the PING after which the worker is killed or disconnected: long enough for a machine that swaps.
    public var pingTimeoutMilliseconds = 10_000
    /// Maximum number of a client's messages for which the cancellation of an abandoned flight is deferred: more than
    /// the rows that a list moves in one step.
    public var maximumCancellationDeferralMessages = 512
    /// Number of worker deaths after which a flight is a suspect and runs alone. A single death has no consequence, so
    /// that a killed worker delays nothing.
    public var workerDeathsBeforeSuspicion = 2
    /// Number of worker deaths after which a flight is poisonous in any case: a bound for a flight that kills late.
    public var maximumWorkerDeathsPerFlight = 10
    /// Time for which a suspect runs alone; doubled for each further death. Most crashes come with the first bytes, and
    /// 64 suspects need 6.4 s at most.
    public var baseIsolationMilliseconds = 100
    /// Time for which a suspect waits for an empty worker before it runs with other flights: the maximum for which a
    /// bus with one worker starts no other work.
    public var maximumSuspectWaitMilliseconds = 10_000

    func isolationMilliseconds(deaths: UInt8) -> Int {
        baseIsolationMilliseconds << max(0, Int(deaths) - workerDeathsBeforeSuspicion)
    }

    /// Maximum bytes of bodies in the spool: referenced files, parts, and growing files as reported. Enough for several
    /// films.
    public var maximumSpoolBytes = 10 << 30
    /// Maximum number of interrupted bodies kept for the next attempts of their flights: as many as may fail at once.
    public var maximumKeptParts = 1_000
    /// Minimum bytes of a partial body that outlives its flight. Smaller ones are as quick to fetch again.
    public var minimumKeptPartBytes = 1 << 20
    /// Maximum bytes of a partial body that outlives its flight, and of all of them together. Enough for most files.
    public var maximumKeptPartBytes = 1 << 30
    /// Minimum distance of two checkpoints in bytes, as workers make them.
    public var minimumCheckpointDistanceBytes = 16 << 20
    /// Time after the opening of a broker that follows a dead one in which a new origin has a slow start. Clients
    /// repeat their requests when they are connected, which takes a busy program some seconds.
    public var slowStartPeriodMilliseconds = 10_000
    /// Maximum interval of a worker's PROGRESS messages; costs nothing for short transfers.
    public var progressIntervalMilliseconds = 250
    /// Maximum interval of PROGRESS messages for a body that a client reads while it grows.
    public var streamingIntervalMilliseconds = 50
    /// Maximum number of a client's requests whose refused PROGRESS is repeated when its socket is writable. The others
    /// receive their next regular PROGRESS.
    public var maximumRetriedProgressPerClient = 1_000
    /// Maximum cool-down that a server may request. Requests to a server that demands more fail at once.
    public var maximumCoolDownMilliseconds = 600_000
    /// Maximum number of requests to such a server that fail in one pass: a few milliseconds of work.
    public var maximumCoolDownRefusalsPerPass = 1_000
    /// Maximum number of queued requests with `wait-ms` that are checked in one pass after a change of their cool-down:
    /// a fraction of a millisecond of work.
    public var maximumCoolDownWaitChecksPerPass = 1_000
    /// Maximum number of requests of removed handlers that are removed in one pass: half a millisecond of work with
    /// cold caches.
    public var maximumRequestRemovalsPerPass = 200
    /// Maximum number of requests of one flight that end in one pass: a millisecond of work.
    public var maximumFlightRequestEndsPerPass = 200
    /// Maximum number of terminals waiting for a client that are checked in one pass for those of its removed requests:
    /// up to a millisecond of work.
    public var maximumWithdrawalChecksPerPass = 2_000
    /// Maximum number of requests, subscriptions and terminals of ended sessions removed in one pass, and of the
    /// handlers of a removed subtree and their requests.
    public var maximumSessionCleanupsPerPass = 200
    /// Maximum number of messages carried out in one pass that have waited for durable requests to be loaded: each may
    /// list a table.
    public var maximumResumedMessagesPerPass = 16
    /// Maximum number of timers handled in one pass: half a millisecond of work.
    public var maximumTimersPerPass = 200
    /// Maximum number of cool-downs kept for origins without requests. Each takes a few hundred bytes, and the server
    /// chooses its duration.
    public var maximumCoolDownOnlyScopes = 10_000
    /// Maximum number of stale responses that wait for revalidation. Beyond it the next use of the response revalidates
    /// it.
    public var maximumQueuedRevalidations = 1_000
    /// Maximum number of queued revalidations visited in one pass, since their origins may be full.
    public var maximumRevalidationsPerPass = 16
    /// Time to connect to an origin.
    public var connectTimeoutMilliseconds = 10_000
    /// Number of free slots by which another worker must exceed the one with open connections to an origin to get its
    /// next transfer. More than the transfers of an origin by default, so that their answers come in few, larger
    /// passes. Few enough that many transfers of one origin are shared by all workers.
    var freeSlotLeadToSwitchWorker = 8
    /// Length of a body that takes a worker about as long as the rest of its transfer, in bytes.
    var maximumSmallBodyBytes = 32 << 10
    /// Maximum number of pools: one for http and https, and one per scheme that users' own workers serve, or served
    /// within `emptyPoolGraceMilliseconds`.
    public var maximumWorkerPools = 64
    /// Maximum number of workers on other machines. The choice of a worker visits all of them.
    public var maximumRemoteWorkers = 64
    /// Divisor of `maximumRemoteWorkers` that yields the maximum of one principal.
    var remoteWorkerShareDivisor = 4
    /// Time for which requests wait for a worker of a scheme after its last one left: enough to restart a crashed one.
    public var emptyPoolGraceMilliseconds = 10_000
    /// Maximum hops of a redirect chain; the Fetch standard allows 20, common clients 5 to 10.
    public var maximumRedirectHops = 10
    /// Maximum number of terminals due to one client. A client with more does not read, and is disconnected. A failure
    /// without a response takes 37 bytes, more with a long ID, so that a removal may leave a client as many as one
    /// handler has requests.
    public var maximumDueTerminalsPerClient = 1_000_000
    /// Maximum number of terminals due to all clients of one user. Beyond it those of them that do not read are
    /// disconnected. As many as four clients may have, about 150 MB.
    public var maximumDueTerminalsPerUser = 4_000_000
    /// Maximum number of different outcomes that wait for one client's window. A client with more is disconnected. Each
    /// takes about a kibibyte with the record of its request, and stored results wait elsewhere.
    public var maximumDueOutcomesPerClient = 20_000
    /// Maximum bytes in memory of header fields, URLs and tags of the terminals that wait for one client's window. A
    /// client with more is disconnected.
    public var maximumDueHeaderBytesPerClient = 256 << 20
    /// Maximum bytes of bodies due to a client that acknowledges nothing for `maximumStallMilliseconds`:
    /// a tenth of the spool, which all clients share.
    public var maximumStalledBodyBytesPerClient = 1 << 30
    /// Maximum stall of a client with more than `maximumStalledBodyBytesPerClient`. Ten minutes suffice for a program
    /// in a debugger or on a slow disk.
    public var maximumStallMilliseconds = 600_000

    public init() {}
}
