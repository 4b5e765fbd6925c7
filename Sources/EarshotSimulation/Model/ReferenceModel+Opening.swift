internal import EarshotCore
internal import EarshotWire

/// Opening of a broker that follows a dead one: invariant 9 across its death.
extension ReferenceModel {
    /// Starts a new broker, which awaits these processes.
    func begins(awaiting processes: Set<Int32>, until: Tick, now: Tick) {
        (awaitedProcesses, killsAt) = (processes, until)
        hasPredecessor = true
        ownWorkersAwaitedUntil = now.advanced(byMilliseconds: Trial.ownWorkersMilliseconds)
        if processes.isEmpty { openedAt = now }
    }

    /// Whether transfers may start: each awaited process is ready or has ended.
    var isOpen: Bool { awaitedProcesses.isEmpty }

    /// Handles an awaited process that is ready or has ended.
    func stopAwaiting(_ process: Int32) {
        if awaitedProcesses.remove(process) != nil, awaitedProcesses.isEmpty { openedAt = now }
    }

    /// Checks that only a late process is killed.
    func killed(process: Int32) {
        expect(awaitedProcesses.contains(process) && now >= killsAt, 14, "process \(process) is killed and is not late")
    }

    /// Checks that an origin starts slowly. The limit is that of the earliest slow start.
    func checkSlowStart(of origin: OriginRecord) {
        guard hasPredecessor, !haveLimitsChanged, let openedAt else { return }
        let elapsed = now.milliseconds(since: openedAt)
        guard elapsed < limits.slowStartMilliseconds, origin.name.hasPrefix("http") else { return }
        let most = 1 << min(elapsed / 100, 20)
        expect(origin.running < most, 9, "\(origin.name) starts transfer \(origin.running + 1) in its slow start")
    }

    /// Whether the slow start may still hold transfers back.
    var mayStartSlowly: Bool {
        guard hasPredecessor else { return false }
        guard let openedAt else { return true }
        // Later origins need up to a second for their own.
        return now.milliseconds(since: openedAt) < limits.slowStartMilliseconds + 1_000
    }

    /// Returns the largest body size that the flight's requests permit; nil for no limit.
    func largestSize(of flight: FlightRecord) -> Int? {
        var largest: Int? = 0
        flight.forEachRequest { request in
            let limit = request.fetch.options.maxBytes
            largest = if let limit, let known = largest { max(known, limit) } else { nil }
        }
        return largest
    }
}
