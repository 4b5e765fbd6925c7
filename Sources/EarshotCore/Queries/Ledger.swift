/// The two ledgers of invariant 10: where every request and every delivery went.
///
/// They balance at any moment: `submitted = answered + failed + removed + orphaned + pending` and
/// `due = acknowledged + lost + outstanding`.
public struct Ledger: Equatable, Sendable {
    /// Requests, of one handler or of all.
    public struct Requests: Equatable, Sendable {
        /// Asked for; asking again for an open request does not count.
        public var submitted = 0
        /// Ended in RESULT.
        public var answered = 0
        /// Ended in FAILED, by code.
        public var failed: [String: Int] = [:]
        /// Ended by CANCEL, REMOVE, BYE or their owner's death.
        public var removed = 0
        /// Ended because nobody listened.
        public var orphaned = 0
        /// Not ended.
        public var pending = 0

        public init() {}

        /// FAILED of all codes.
        public var failures: Int { failed.values.reduce(0, +) }

        public var isBalanced: Bool { submitted == answered + failures + removed + orphaned + pending }
    }

    /// Terminals on their way to connections.
    public struct Deliveries: Equatable, Sendable {
        /// Begun: one for each listener of each terminal.
        public var due = 0
        /// Acknowledged, or taken by the socket of a client without a window.
        public var acknowledged = 0
        /// Gone with their subscriber, or withdrawn by its own removal.
        public var lost = 0
        /// Neither acknowledged nor lost yet.
        public var outstanding = 0

        public init() {}

        public var isBalanced: Bool { due == acknowledged + lost + outstanding }
    }

    /// What became of flights and attempts.
    public struct Flights: Equatable, Sendable {
        /// Flights begun.
        public var started = 0
        /// Requests that joined one.
        public var joined = 0
        /// Attempts given to workers.
        public var assigned = 0
        /// Attempts of earlier brokers that flights went on with, ended ones included.
        public var adopted = 0
        /// Running attempts cut off because nobody wanted them any more.
        public var cancelled = 0
        /// Bytes of bodies that they brought all the same, after the worker could have known; those that were written
        /// before may serve who comes back.
        public var unwantedBytes = 0
        /// Attempts tried again after a failure.
        public var retried = 0
        /// Attempts lost with their worker.
        public var lost = 0
        /// Times an origin asked to be left alone.
        public var coolDowns = 0
        /// Completions that were nobody's current attempt: dropped.
        public var stale = 0

        public init() {}
    }

    /// What flights had to do with the cache.
    public struct Cache: Equatable, Sendable {
        /// Flights that asked it.
        public var asked = 0
        /// Answers used without asking a server, stale ones included.
        public var used = 0
        /// Answers that a server said are unchanged.
        public var validated = 0
        /// Answers given to it to keep.
        public var stored = 0

        public init() {}
    }

    public var requests = Requests()
    public var deliveries = Deliveries()
    public var flights = Flights()
    public var cache = Cache()

    public init() {}

    public var isBalanced: Bool { requests.isBalanced && deliveries.isBalanced }
}
