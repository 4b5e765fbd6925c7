internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Deadlines and silence of a job.
extension JobRun {
    /// When to ask for `overdue`.
    var deadline: LoopTime {
        let silence = lastByte.advanced(milliseconds: job.timeoutMilliseconds)
        switch phase {
        // The worker's own time, which no timeout of the request bounds.
        case .hashing, .sealing: return loop.now.advanced(milliseconds: job.timeoutMilliseconds)
        case .resolving: return min(silence, connectDeadline, totalDeadline ?? silence)
        // libcurl watches over the other two.
        case .transferring: return head.isComplete ? silence : min(silence, headDeadline ?? silence)
        }
    }

    /// Why the job has taken too long; nil if it has not.
    func overdue(_ now: LoopTime) -> Refusal? {
        guard deadline <= now else { return nil }
        switch phase {
        case .resolving where connectDeadline == deadline: return Refusal(.connectTimeout)
        case .transferring(let running) where !head.isComplete:
            if let headDeadline, headDeadline <= now {
                return Refusal(.timeout, "The header of the response did not end in time.")
            }
            // The kernel also knows of the bytes of a line that is not whole.
            guard let silent = running.silentMilliseconds, silent < job.timeoutMilliseconds else {
                return Refusal(.timeout)
            }
            if headBegan == nil { headBegan = now }
            lastByte = now.advanced(milliseconds: -silent)
            return nil
        case .hashing, .resolving, .transferring, .sealing: return Refusal(.timeout)
        }
    }

    /// By when the header of the response must be complete; nil before it has begun.
    private var headDeadline: LoopTime? {
        headBegan?.advanced(milliseconds: Limits.headTimeouts * job.timeoutMilliseconds)
    }

    /// Time left for connecting and in total; at least 1 ms, since libcurl reads 0 as no limit.
    func timeLeft(_ now: LoopTime) -> (connect: Duration, total: Duration?) {
        let least = Duration.milliseconds(1)
        return (max(connectDeadline.since(now), least), totalDeadline.map { max($0.since(now), least) })
    }

    private var connectDeadline: LoopTime { begun.advanced(milliseconds: job.connectMilliseconds) }

    private var totalDeadline: LoopTime? { job.totalMilliseconds.map { begun.advanced(milliseconds: $0) } }
}
