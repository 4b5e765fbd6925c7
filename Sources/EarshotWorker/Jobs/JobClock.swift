internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Timestamps and deadlines of one job. Pure: the current time is an argument.
struct JobClock {
    /// The stage of a job, which determines its deadlines.
    enum Stage {
        /// Hashing of a file. It is the worker's own time and has no deadline.
        case ownWork
        /// Address lookup of the host.
        case resolving
        /// Connecting, sending the request, and receiving the response's header.
        case header
        case body
    }

    private let timeoutMilliseconds: Int
    private let connectMilliseconds: Int
    /// Start of the connect timeout of the current connection.
    private var connectBegan: LoopTime
    private var lastByte: LoopTime
    /// Time of the first line of the response's header, or of its trailer; nil before it, and within the body.
    private var headBegan: LoopTime?

    init(_ job: Job, now: LoopTime) {
        timeoutMilliseconds = job.timeoutMilliseconds
        connectMilliseconds = job.connectMilliseconds
        connectBegan = now
        lastByte = now
    }

    /// Starts the connect timeout, after the worker's own work.
    mutating func begin(now: LoopTime) {
        connectBegan = now
        lastByte = now
    }

    /// Starts the connect timeout of another connection for the same job.
    mutating func startOver(now: LoopTime) {
        connectBegan = now
        lastByte = now
        headBegan = nil
    }

    mutating func receivedHeaderLine(now: LoopTime) {
        lastByte = now
        if headBegan == nil { headBegan = now }
    }

    mutating func receivedBody(now: LoopTime) {
        lastByte = now
        headBegan = nil
    }

    /// Returns the time of the next call of `overdueRefusal`. During a transfer libcurl enforces the connect timeout.
    func deadline(_ stage: Stage, now: LoopTime) -> LoopTime {
        let silence = lastByte.advanced(milliseconds: timeoutMilliseconds)
        return switch stage {
        case .ownWork: now.advanced(milliseconds: timeoutMilliseconds)
        case .resolving: min(silence, connectDeadline)
        case .header, .body: min(silence, headDeadline ?? silence)
        }
    }

    /// Returns the failure of a job that has passed a deadline; nil before it.
    ///
    /// - Parameter silentMilliseconds: Milliseconds since the connection last received bytes, according to the kernel;
    ///   nil without a connection. The kernel also counts the bytes of an incomplete header line.
    mutating func overdueRefusal(
        _ stage: Stage, now: LoopTime, silentMilliseconds: @autoclosure () -> Int?
    ) -> Refusal? {
        guard deadline(stage, now: now) <= now else { return nil }
        switch stage {
        case .resolving where connectDeadline == deadline(stage, now: now): return Refusal(.connectTimeout)
        case .header:
            if isHeadOverdue(now) { return Refusal(.timeout, "The header of the response did not end in time.") }
            guard let silent = silentMilliseconds(), silent < timeoutMilliseconds else { return Refusal(.timeout) }
            if headBegan == nil { headBegan = now }
            lastByte = now.advanced(milliseconds: -silent)
            return nil
        case .body where isHeadOverdue(now):
            return Refusal(.timeout, "The trailer of the response did not end in time.")
        case .ownWork, .resolving, .body: return Refusal(.timeout)
        }
    }

    /// Returns the time left of the connect timeout. At least 1 ms, because 0 selects libcurl's own.
    func connectTimeLeft(now: LoopTime) -> Duration { max(connectDeadline.since(now), .milliseconds(1)) }

    private var connectDeadline: LoopTime { connectBegan.advanced(milliseconds: connectMilliseconds) }

    private func isHeadOverdue(_ now: LoopTime) -> Bool { headDeadline.map { $0 <= now } ?? false }

    /// Deadline of the complete header or trailer; nil before its first line.
    private var headDeadline: LoopTime? {
        headBegan?.advanced(milliseconds: Limits.headTimeouts * timeoutMilliseconds)
    }
}
