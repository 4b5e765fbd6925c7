internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Moments and deadlines of one job. Pure: the current time comes in as an argument.
struct JobClock {
    /// The part of a job that its time is spent on.
    enum Stage {
        /// Hashing of a file: the worker's own time, without a deadline.
        case ownWork
        /// Lookup of the host's addresses.
        case resolving
        /// Connecting, sending, and the response's header.
        case header
        case body
    }

    private let timeoutMilliseconds: Int
    private let connectMilliseconds: Int
    /// Nil for no limit.
    private let totalMilliseconds: Int?
    /// Arrival of the JOB.
    let started: LoopTime
    /// Start of the times to connect and in total.
    private var begun: LoopTime
    private var lastByte: LoopTime
    /// First line of the response's header; nil before it.
    private var headBegan: LoopTime?

    init(_ job: Job, now: LoopTime) {
        timeoutMilliseconds = job.timeoutMilliseconds
        connectMilliseconds = job.connectMilliseconds
        totalMilliseconds = job.totalMilliseconds
        started = now
        begun = now
        lastByte = now
    }

    /// Starts the times to connect and in total: the worker's own work is done.
    mutating func begin(now: LoopTime) {
        begun = now
        lastByte = now
    }

    /// Forgets the header of an earlier response to the same job.
    mutating func startOver() { headBegan = nil }

    mutating func receivedHeaderLine(now: LoopTime) {
        lastByte = now
        if headBegan == nil { headBegan = now }
    }

    mutating func receivedBody(now: LoopTime) { lastByte = now }

    /// Time at which to call `overdue`. libcurl keeps the times to connect and in total during a transfer.
    func deadline(_ stage: Stage, now: LoopTime) -> LoopTime {
        let silence = lastByte.advanced(milliseconds: timeoutMilliseconds)
        return switch stage {
        case .ownWork: now.advanced(milliseconds: timeoutMilliseconds)
        case .resolving: min(silence, connectDeadline, totalDeadline ?? silence)
        case .header: min(silence, headDeadline ?? silence)
        case .body: silence
        }
    }

    /// Returns the failure of a job that has passed a deadline; nil before it.
    ///
    /// - Parameter silentMilliseconds: Milliseconds since the connection last received bytes, as the kernel counts
    ///   them; nil without a connection. The kernel also sees the bytes of an incomplete header line.
    mutating func overdue(
        _ stage: Stage, now: LoopTime, silentMilliseconds: @autoclosure () -> Int?
    ) -> Refusal? {
        guard deadline(stage, now: now) <= now else { return nil }
        switch stage {
        case .resolving where connectDeadline == deadline(stage, now: now): return Refusal(.connectTimeout)
        case .header:
            if let headDeadline, headDeadline <= now {
                return Refusal(.timeout, "The header of the response did not end in time.")
            }
            guard let silent = silentMilliseconds(), silent < timeoutMilliseconds else { return Refusal(.timeout) }
            if headBegan == nil { headBegan = now }
            lastByte = now.advanced(milliseconds: -silent)
            return nil
        case .ownWork, .resolving, .body: return Refusal(.timeout)
        }
    }

    /// Returns the time left to connect and in total; at least 1 ms, since libcurl reads 0 as no limit.
    func timeLeft(now: LoopTime) -> (connect: Duration, total: Duration?) {
        let least = Duration.milliseconds(1)
        return (max(connectDeadline.since(now), least), totalDeadline.map { max($0.since(now), least) })
    }

    /// Milliseconds since the JOB arrived.
    func elapsedMilliseconds(now: LoopTime) -> Int { Int(now.since(started) / .milliseconds(1)) }

    private var connectDeadline: LoopTime { begun.advanced(milliseconds: connectMilliseconds) }

    private var totalDeadline: LoopTime? { totalMilliseconds.map { begun.advanced(milliseconds: $0) } }

    /// The end of the time for the response's header; nil before its first line.
    private var headDeadline: LoopTime? {
        headBegan?.advanced(milliseconds: Limits.headTimeouts * timeoutMilliseconds)
    }
}
