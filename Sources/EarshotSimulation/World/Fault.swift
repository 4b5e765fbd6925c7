/// Kinds of trouble a run may have; each run has a random subset of them switched off.
public enum Fault: String, CaseIterable, Hashable, Sendable {
    /// Connections of clients break; what was under way is lost both ways, and the broker hears of it later.
    case lostConnections = "lost-connections"
    /// Clients ask for leases: they come back to their sessions, too soon, in time or too late, some with a wrong
    /// token.
    case leases
    /// Clients read late and acknowledge late.
    case slowReaders = "slow-readers"
    /// Sockets refuse terminals for a while.
    case fullSockets = "full-sockets"
    /// Clients send bytes that are no message, and messages that make no sense.
    case clientNonsense = "client-nonsense"
    /// CANCEL, REMOVE, `replace`, BYE.
    case removals
    /// Watchers: SUBSCRIBE and UNSUBSCRIBE, handlers and subtrees.
    case watchers
    /// Requests that belong to their handler.
    case handlerOwned = "handler-owned"
    case deadlines
    /// Requests with limits on size and expected digests.
    case sizeLimits = "size-limits"
    case workerCrashes = "worker-crashes"
    /// Workers that stop answering, until they are killed.
    case workerHangs = "worker-hangs"
    /// Connections of workers break while their processes live on.
    case workerCuts = "worker-cuts"
    /// Late, duplicate, foreign and wrong completions, and bytes that are no message.
    case lyingWorkers = "lying-workers"
    /// Workers that hold attempts of an earlier broker.
    case foreignHolds = "foreign-holds"
    case redirects
    /// 404, 410 and 500.
    case errorPages = "error-pages"
    /// 429 and 503.
    case throttling
    /// Broken connections, truncated bodies, names that do not resolve.
    case brokenTransfers = "broken-transfers"
    /// Brokers die; the next one finds the workers, and clients ask it again.
    case brokerDeaths = "broker-deaths"
    /// Limits of the broker change while it runs.
    case limitChanges = "limit-changes"
    /// Users' own workers, which serve schemes of their own, some several at once.
    case ownWorkers = "own-workers"
    /// The disk takes nothing for a while, so that what is to wait stays in memory and no body becomes a file; now and
    /// then what was written cannot be read back.
    case diskFaults = "disk-faults"
    /// What comes together is told in several passes.
    case splitPasses = "split-passes"
}
