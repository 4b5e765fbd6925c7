internal import EarshotWire

/// Rate limits: finds the limits of running attempts, and sends workers the shares of `RateBook`.
enum Rates {
    /// Returns the share of an attempt that is about to start, in bytes per second; nil without a limit. O(requests of
    /// the flight).
    static func attemptStarted(
        _ attempt: AttemptID, of flight: Handle<Flight>, at origin: Handle<OriginEntry>, now: Tick,
        in records: inout Records
    ) -> Int? {
        var limits = limits(at: origin, in: &records)
        if let limit = handlerLimit(of: flight, in: &records) { limits.append(limit) }
        guard !limits.isEmpty else { return nil }
        let before = records.rates.nextDivision
        let rate = records.rates.started(attempt, limits, now: now)
        setTimer(unless: before, in: &records)
        return rate
    }

    /// Removes the share of an ended attempt.
    static func attemptEnded(_ attempt: AttemptID, now: Tick, in records: inout Records) {
        let before = records.rates.nextDivision
        records.rates.ended(attempt, now: now)
        setTimer(unless: before, in: &records)
    }

    /// Divides the limits soon, if there are any.
    static func limitsChanged(now: Tick, in records: inout Records) {
        guard !records.rates.isEmpty || hasLimit(records.limits) else { return }
        let before = records.rates.nextDivision
        records.rates.scheduleDivision(now: now)
        setTimer(unless: before, in: &records)
    }

    /// Divides the limits again, and sends changed shares to the workers.
    static func divide(now: Tick, in records: inout Records) {
        let before = records.rates.nextDivision
        for change in records.rates.divide(among: members(in: &records), now: now) {
            records.outbox.actions.append(
                .worker(.send(change.worker, .rate(change.attempt, bytesPerSecond: change.rate))))
        }
        setTimer(unless: before, in: &records)
    }

    /// Sets the timer of the next division, unless it has this time already.
    private static func setTimer(unless before: Tick?, in records: inout Records) {
        if let due = records.rates.nextDivision, due != before { records.setTimer(due, .rates(due)) }
    }

    /// Whether a setting or a rule limits rates.
    private static func hasLimit(_ limits: CoreLimits) -> Bool {
        limits.rate > 0 || limits.origins.rules.values.contains { $0.rate ?? 0 > 0 }
    }

    /// All running attempts of child workers, in a reproducible order. O(leases).
    private static func members(in records: inout Records) -> [RateBook.Member] {
        var members: [RateBook.Member] = []
        for worker in records.workers.indices where !records.workers[worker].isOwn {
            let id = records.workers[worker].id
            for (attempt, lease) in records.workers[worker].leasesInOrder where !lease.isCancelling {
                var limits = Self.limits(at: lease.origin, in: &records)
                if let flight = lease.flight, let limit = handlerLimit(of: flight, running: attempt, in: &records) {
                    limits.append(limit)
                }
                members.append(
                    RateBook.Member(attempt: attempt, worker: id, limits: limits, receivedBytes: lease.receivedBytes))
            }
        }
        return members
    }

    /// Limits of the bus and of an origin.
    private static func limits(at origin: Handle<OriginEntry>, in records: inout Records) -> [RateBook.Limit] {
        var limits: [RateBook.Limit] = []
        if records.limits.rate > 0 { limits.append(.init(group: .bus, rate: records.limits.rate)) }
        let rate = records.governor.origins[origin].rate
        if rate > 0 { limits.append(.init(group: .origin(origin), rate: rate)) }
        return limits
    }

    /// Limit of the handlers of a running attempt; nil without one. A request that joins can raise or lift it for good,
    /// and cannot slow an attempt without one.
    private static func handlerLimit(of flight: Handle<Flight>, running attempt: AttemptID, in records: inout Records)
        -> RateBook.Limit?
    {
        guard records.rates.mayFollowHandler(attempt) else { return nil }
        // The cancellation of a flight without requests may be deferred, and another request may join it.
        return records.flights.isAwaited(flight)
            ? handlerLimit(of: flight, in: &records) : records.rates.handlerLimit(of: attempt)
    }

    /// Largest limit of the handlers with a request for the flight; nil if one has no limit.
    private static func handlerLimit(of flight: Handle<Flight>, in records: inout Records) -> RateBook.Limit? {
        guard !records.flights[flight].isRevalidation else { return nil }
        var largest: RateBook.Limit?
        var isUnlimited = false
        records.forEachInterest(of: flight) { records, interest in
            guard let extras = records.requests[interest].extras,
                let rate = records.requests[extras].limitRate
            else {
                isUnlimited = true
                return
            }
            if rate > largest?.rate ?? 0 {
                largest = RateBook.Limit(group: .handler(records.requests[interest].handler), rate: rate)
            }
        }
        return isUnlimited ? nil : largest
    }
}
