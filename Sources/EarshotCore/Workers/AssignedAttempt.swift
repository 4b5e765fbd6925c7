public import EarshotWire

/// Assignment of an attempt, for the log.
public struct AssignedAttempt: Equatable, Sendable {
    public let attempt: AttemptID
    public let worker: WorkerID
    /// URL of its JOB, which may contain secrets.
    public let url: String
    /// Handler of the first request that needs the attempt; nil if none does. Other requests can join it.
    public let handler: HandlerID?
    /// ID of that request.
    public let request: RequestID?
}

extension BrokerCore {
    /// Starts or stops the log of attempts.
    public mutating func logAttempts(_ isLogging: Bool) { facilities.isLoggingAttempts = isLogging }

    /// Logs the assignment of an attempt. Not inlined, because few brokers log attempts.
    @inline(never)
    mutating func logAssignment(_ job: Job, of flight: Handle<Flight>, to worker: WorkerID) {
        let first = flights.firstInterest(of: flight)
        let assigned = AssignedAttempt(
            attempt: job.attempt, worker: worker, url: job.url,
            handler: first.map { handlers[interests[$0].handler].id }, request: first.map { interests[$0].request })
        actions.append(.log(.assigned(assigned)))
    }
}
