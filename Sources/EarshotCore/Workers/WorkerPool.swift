internal import DequeModule

/// Workers that fetch the same kind of URLs, and what waits for them: http and https, or one scheme that somebody's own
/// workers have registered.
struct WorkerPool {
    /// Of http and https; it is always there.
    static let web: Int32 = 0

    /// Its scheme; nil for http and https.
    let scheme: String?
    /// Workers that serve it.
    var workers = 0
    /// Origins whose URLs are its affair.
    var origins = 0
    /// The present time without workers, for the timer that closes it; 0 while it has some.
    var absence: UInt64 = 0
    /// Whether its workers have been gone for so long that what waits for them fails.
    var isClosed = false
    /// Flights whose worker was lost: they wait in the queue, but are looked at first.
    var returned: [FlightName] = []
    /// Suspects that wait for an empty worker, in order; among them names of flights that ended.
    var suspects: Deque<FlightName> = []
    /// The worker that runs suspects alone; nil without suspects.
    var quarantine: WorkerID?
}
