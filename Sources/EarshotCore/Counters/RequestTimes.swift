/// Histograms of the times of requests and transfers that have ended.
public struct RequestTimes: Sendable {
    /// Time from a request to the start of the attempt with its response; 0 for a request that joined a running one.
    /// Requests without a response from a transfer are not counted.
    public internal(set) var wait = DurationHistogram()
    /// Time of an attempt whose response ended a flight. Counted once for all requests that share the flight.
    public internal(set) var transfer = DurationHistogram()
    /// Time from a request to its outcome, of every request that ended in one.
    public internal(set) var total = DurationHistogram()

    public init() {}

    /// Counts the total time of a request, and its wait if its response has a transfer.
    ///
    /// Not inlined: an access to the array of a histogram would copy the whole core in the caller.
    @inline(never)
    mutating func requestEnded(requestedAt: Tick, transferStartedAt: Tick?, endedAt: Tick) {
        total.observe(from: requestedAt, to: endedAt)
        if let transferStartedAt { wait.observe(from: requestedAt, to: transferStartedAt) }
    }
}
