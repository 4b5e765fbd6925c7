/// Counters of requests and deliveries by outcome (invariant 10).
///
/// Both balance at any moment: `submitted = answered + failed + removed + orphaned + pending` and `due = acknowledged +
/// lost + outstanding`.
public struct Ledger: Equatable, Sendable {
    /// Counters of requests, of one handler or in total.
    public struct Requests: Equatable, Sendable {
        /// Submitted requests. A repetition of an open request does not count.
        public var submitted = 0
        /// Requests that ended in RESULT.
        public var answered = 0
        /// Requests that ended in FAILED, by code.
        public var failed: [String: Int] = [:]
        /// Requests removed by REMOVE, BYE or their owner's death.
        public var removed = 0
        /// Requests that ended without a subscriber.
        public var orphaned = 0
        /// Requests that have not ended.
        public var pending = 0
        /// Those of `pending` that have failed, and whose failures are kept on disk.
        public var keptFailures = 0

        public init() {}

        /// Total of FAILED with any code.
        public var failedCount: Int { failed.values.reduce(0, +) }

        public var isBalanced: Bool { submitted == answered + failedCount + removed + orphaned + pending }
    }

    /// Counters of terminals on their way to clients.
    public struct Deliveries: Equatable, Sendable {
        /// Started deliveries: one per terminal and subscriber.
        public var started = 0
        /// Acknowledged deliveries.
        public var acknowledged = 0
        /// Deliveries lost with their subscriber or withdrawn by its removal of the handler.
        public var lost = 0
        /// Deliveries neither acknowledged nor lost.
        public var outstanding = 0

        public init() {}

        public var isBalanced: Bool { started == acknowledged + lost + outstanding }
    }

    /// Counters of flights and attempts.
    public struct Flights: Equatable, Sendable {
        /// Flights created.
        public var started = 0
        /// Requests coalesced into an existing flight.
        public var joinedRequests = 0
        /// Attempts assigned to workers.
        public var assignedAttempts = 0
        /// Running attempts cancelled because their flight had no interests left.
        public var cancelled = 0
        /// Decoded body bytes of the responses that ended flights, without those from the cache.
        public var responseBodyBytes = 0
        /// Body bytes received after the CANCEL of their attempt. Bytes received earlier may be resumed and do not
        /// count.
        public var bytesAfterCancel = 0
        /// Attempts repeated after a failure.
        public var retriedAttempts = 0
        /// Attempts lost with their worker.
        public var lostAttempts = 0
        /// Cool-downs of origins.
        public var originCoolDowns = 0
        /// Stale completions, which are dropped.
        public var staleCompletions = 0

        public init() {}
    }

    /// Counters of the cache.
    public struct Cache: Equatable, Sendable {
        /// Flights with a lookup.
        public var lookups = 0
        /// Responses used without a request to the server, including stale ones.
        public var usedResponses = 0
        /// Responses that a server confirmed as unchanged.
        public var validatedResponses = 0
        /// Responses passed to the cache for storage.
        public var storedResponses = 0

        public init() {}
    }

    /// Counters of parts that outlived their flights.
    public struct Parts: Equatable, Sendable {
        /// Parts passed to the folder of parts.
        public var storedParts = 0
        /// Parts taken from it for an attempt, and their bytes.
        public var resumedParts = 0
        public var resumedBytes = 0

        public init() {}
    }

    public var requests = Requests()
    public var deliveries = Deliveries()
    public var flights = Flights()
    public var cache = Cache()
    public var parts = Parts()

    public init() {}

    public var isBalanced: Bool { requests.isBalanced && deliveries.isBalanced }
}
