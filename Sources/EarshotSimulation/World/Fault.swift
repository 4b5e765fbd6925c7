/// Kinds of faults in a run; each run disables a random subset.
public enum Fault: String, CaseIterable, Hashable, Sendable {
    /// Clients' connections break. Messages in transit are lost in both directions, and the broker is notified later.
    case lostConnections = "lost-connections"
    /// Clients request leases and resume their sessions too early, in time or too late, some with a wrong token.
    case leases
    /// Clients read and acknowledge late.
    case slowReaders = "slow-readers"
    /// Sockets temporarily refuse terminals.
    case fullSockets = "full-sockets"
    /// Clients send malformed and inappropriate messages.
    case malformedClientMessages = "client-nonsense"
    /// REMOVE, `replace`, BYE.
    case removals
    /// Watchers: SUBSCRIBE and UNSUBSCRIBE for handlers and subtrees.
    case watchers
    /// Requests owned by their handler.
    case handlerOwnedRequests = "handler-owned"
    case deadlines
    /// Requests with size limits and expected digests.
    case sizeLimits = "size-limits"
    case workerCrashes = "worker-crashes"
    /// Workers stop responding until they are killed.
    case workerHangs = "worker-hangs"
    /// Workers' connections break while their processes continue.
    case lostWorkerConnections = "worker-cuts"
    /// Late, duplicate, foreign and wrong completions, and malformed messages.
    case wrongWorkerMessages = "lying-workers"
    case redirects
    /// Status 404, 410 and 500.
    case errorStatuses = "error-pages"
    /// Status 429 and 503.
    case throttling
    /// Broken connections, truncated bodies, unresolvable names.
    case brokenTransfers = "broken-transfers"
    /// Brokers are killed; workers and clients connect to the next one, and clients repeat their requests.
    case brokerDeaths = "broker-deaths"
    /// Limits of the running broker change.
    case limitChanges = "limit-changes"
    /// Users' workers, which serve one or more schemes of their own.
    case userWorkers = "own-workers"
    /// Clients act for several principals, which use equal names.
    case multiplePrincipals = "principals"
    /// The disk temporarily rejects writes: waiting bodies stay in memory and no body becomes a file. Occasionally a
    /// stored body is unreadable.
    case diskFaults = "disk-faults"
    /// Input that arrives together is processed in several passes.
    case splitPasses = "split-passes"
}
