internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Timestamps and deadlines of one job. Pure: the current time is an argument.
struct JobClock {
    /// The stage of a job, which determines its deadlines.
    enum Stage {
        /// Hashing of a file. It is the worker's own time and has no deadline.
        case hashingFile
        /// Address lookup of the host.
        case resolving
        /// Connecting, sending the request, and receiving the response's header.
        case receivingHeader
        case body
    }

    private let timeoutMilliseconds: Int
    private let connectTimeoutMilliseconds: Int
    /// Start of the connect timeout of the current connection.
    private var connectStartTime: LoopTime
    private var lastByteTime: LoopTime
    /// Time of the first line of the response's header, or of its trailer; nil before it, and within the body.
    private var headerStartTime: LoopTime?

    init(_ job: Job, now: LoopTime) {
        timeoutMilliseconds = job.timeoutMilliseconds
        connectTimeoutMilliseconds = job.connectTimeoutMilliseconds
        connectStartTime = now
        lastByteTime = now
    }

    /// Starts the connect timeout, after the worker's own work.
    mutating func startConnectTimeout(now: LoopTime) {
        connectStartTime = now
        lastByteTime = now
    }

    /// Starts the connect timeout of another connection for the same job.
    mutating func restartConnectTimeout(now: LoopTime) {
        connectStartTime = now
        lastByteTime = now
        headerStartTime = nil
    }

    mutating func receivedHeaderLine(now: LoopTime) {
        lastByteTime = now
        if headerStartTime == nil { headerStartTime = now }
    }

    mutating func receivedBody(now: LoopTime) {
        lastByteTime = now
        headerStartTime = nil
    }

    /// Returns the time of the next call of `overdueRefusal`. During a transfer libcurl enforces the connect timeout.
    func nextDeadline(_ stage: Stage, now: LoopTime) -> LoopTime {
        let silence = lastByteTime.advanced(milliseconds: timeoutMilliseconds)
        return switch stage {
        case .hashingFile: now.advanced(milliseconds: timeoutMilliseconds)
        case .resolving: min(silence, connectDeadline)
        case .receivingHeader, .body: min(silence, headerDeadline ?? silence)
        }
    }

    /// Returns the failure of a job that has passed a deadline; nil before it.
    ///
    /// - Parameter silentMilliseconds: Milliseconds since the connection last received bytes, according to the kernel;
    ///   nil without a connection. The kernel also counts the bytes of an incomplete header line.
    mutating func overdueRefusal(
        _ stage: Stage, now: LoopTime, silentMilliseconds: @autoclosure () -> Int?
    ) -> Refusal? {
        guard nextDeadline(stage, now: now) <= now else { return nil }
        switch stage {
        case .resolving where connectDeadline == nextDeadline(stage, now: now): return Refusal(.connectTimeout)
        case .receivingHeader:
            if isHeaderOverdue(now: now) { return Refusal(.timeout, "The header of the response did not end in time.") }
            guard let silent = silentMilliseconds(), silent < timeoutMilliseconds else { return Refusal(.timeout) }
            if headerStartTime == nil { headerStartTime = now }
            lastByteTime = now.advanced(milliseconds: -silent)
            return nil
        case .body where isHeaderOverdue(now: now):
            return Refusal(.timeout, "The trailer of the response did not end in time.")
        case .hashingFile, .resolving, .body: return Refusal(.timeout)
        }
    }

    /// Returns the time left of the connect timeout. At least 1 ms, because 0 selects libcurl's own.
    func remainingConnectTime(now: LoopTime) -> Duration { max(connectDeadline.since(now), .milliseconds(1)) }

    private var connectDeadline: LoopTime { connectStartTime.advanced(milliseconds: connectTimeoutMilliseconds) }

    private func isHeaderOverdue(now: LoopTime) -> Bool { headerDeadline.map { $0 <= now } ?? false }

    /// Deadline of the complete header or trailer; nil before its first line.
    private var headerDeadline: LoopTime? {
        headerStartTime?.advanced(milliseconds: Limits.headerTimeoutFactor * timeoutMilliseconds)
    }
}
