internal import EarshotWire

/// Timer of the core. A timer is stale, and has no effect, once its subject is gone; the generation, serial or epoch in
/// it shows that.
struct CoreTimer: Comparable {
    enum TimerEvent: Equatable {
        /// Deadline of a request.
        case requestDeadline(GenerationalHandle<Interest>)
        /// End of a request's wait for a cool-down.
        case coolDownWaitEnd(GenerationalHandle<Interest>)
        /// Time of a request's next PROGRESS.
        case nextProgressMessage(GenerationalHandle<Interest>)
        /// End of the grace period of a held outcome.
        case heldOutcomeGraceEnd(GenerationalHandle<Interest>)
        /// End of the grace period of a handler's own requests without a subscriber.
        case subscriberAbsenceEnd(handler: Handle<HandlerEntry>, absence: UInt64)
        /// HELLO timeout of a connection.
        case helloTimeout(ClientID)
        /// End of the lease of a session that is away.
        case sessionLeaseEnd(client: Handle<ClientSession>, absence: UInt64)
        /// End of a watch over a client with many bytes due.
        case stallWatchEnd(client: Handle<ClientSession>, stall: UInt64)
        /// Expiry of the oldest idle cookie jar.
        case cookieJarExpiry(serial: UInt64)
        /// Expiry of a durable request.
        case durableRequestExpiry(interest: Handle<Interest>, timer: UInt64)
        /// End of a flight's back-off.
        case backOffEnd(FlightName)
        /// End of the spacing between two starts at an origin.
        case originSpacingEnd(origin: Handle<OriginEntry>, pause: UInt64)
        /// End of an origin's cool-down.
        case coolDownEnd(scope: Handle<OriginScope>, serial: UInt64)
        /// Next attempt to spill into a spool that was full.
        case spoolRetry
        /// End of the time for which a pool without workers waits for one.
        case emptyPoolGraceEnd(pool: Handle<WorkerPool>, absence: UInt64)
        /// End of the time in which workers of an earlier broker may report.
        case earlierWorkersWaitEnd
        /// Next step of an origin's slow start.
        case slowStartStep(origin: Handle<OriginEntry>, serial: UInt64)
        /// End of a suspect's isolation at this worker.
        case isolationEnd(WorkerID)
        /// End of a suspect's wait for an empty worker, unless another worker has died with it since.
        case suspectWaitEnd(FlightName, deaths: UInt8)
        /// Heartbeat check of a worker.
        case heartbeatCheck(WorkerID)
        /// Division of the rate limits, unless it has another time now.
        case rateDivision(MonotonicTime)
    }

    var dueAt: MonotonicTime
    var timerEvent: TimerEvent

    static func < (left: CoreTimer, right: CoreTimer) -> Bool { left.dueAt < right.dueAt }
}

/// Time on the shell's monotonic clock, in nanoseconds from an arbitrary origin.
public struct MonotonicTime: Comparable, Hashable, Sendable {
    public var nanoseconds: Int64

    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    // All results saturate, because durations come from peers and from disk.

    /// The time `milliseconds` later; earlier for a negative number.
    public func advanced(byMilliseconds milliseconds: Int) -> MonotonicTime {
        let (duration, isOverflow) = Int64(clamping: milliseconds).multipliedReportingOverflow(by: 1_000_000)
        return advanced(byNanoseconds: isOverflow ? milliseconds < 0 ? .min : .max : duration)
    }

    /// The time `duration` nanoseconds later; earlier for a negative number.
    public func advanced(byNanoseconds duration: Int64) -> MonotonicTime {
        let (sum, isOverflow) = nanoseconds.addingReportingOverflow(duration)
        return MonotonicTime(nanoseconds: isOverflow ? duration < 0 ? .min : .max : sum)
    }

    /// Whole milliseconds from `earlier` to this time; 0 if `earlier` is later.
    public func milliseconds(since earlier: MonotonicTime) -> Int {
        let (duration, isOverflow) = nanoseconds.subtractingReportingOverflow(earlier.nanoseconds)
        guard earlier < self else { return 0 }
        return Int((isOverflow ? .max : duration) / 1_000_000)
    }

    public static func < (left: MonotonicTime, right: MonotonicTime) -> Bool { left.nanoseconds < right.nanoseconds }
}
