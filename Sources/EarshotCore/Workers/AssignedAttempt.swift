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
