internal import EarshotWire

/// Rate limits: finds the limits of running attempts, and sends workers the shares of `RateShares`.
enum Rates {
    /// Returns the share of an attempt that is about to start, in bytes per second; nil without a limit. O(requests of
    /// the flight).
    static func attemptStarted(
        _ attempt: AttemptID, of flight: Handle<Flight>, at origin: Handle<OriginEntry>, now: MonotonicTime,
        in records: inout Records
    ) -> Int? {
        var limits = busAndOriginLimits(at: origin, in: &records)
        if let limit = largestHandlerLimit(of: flight, in: &records) { limits.append(limit) }
        guard !limits.isEmpty else { return nil }
        let before = records.rateShares.nextDivisionAt
        let rate = records.rateShares.addAttempt(attempt, limits, now: now)
        setDivisionTimer(unlessAlreadyAt: before, in: &records)
        return rate
    }

    /// Removes the share of an ended attempt.
    static func attemptEnded(_ attempt: AttemptID, now: MonotonicTime, in records: inout Records) {
        let before = records.rateShares.nextDivisionAt
        records.rateShares.removeAttempt(attempt, now: now)
        setDivisionTimer(unlessAlreadyAt: before, in: &records)
    }

    /// Divides the limits soon, if there are any.
    static func limitsChanged(now: MonotonicTime, in records: inout Records) {
        guard !records.rateShares.isEmpty || hasRateLimit(records.limits) else { return }
        let before = records.rateShares.nextDivisionAt
        records.rateShares.scheduleDivision(now: now)
        setDivisionTimer(unlessAlreadyAt: before, in: &records)
    }

    /// Divides the limits again, and sends changed shares to the workers.
    static func divideRates(now: MonotonicTime, in records: inout Records) {
        let before = records.rateShares.nextDivisionAt
        for change in records.rateShares.divideLimits(among: limitedAttempts(in: &records), now: now) {
            records.outbox.actions.append(
                .worker(.send(change.worker, .changeRate(change.attempt, bytesPerSecond: change.bytesPerSecond))))
        }
        setDivisionTimer(unlessAlreadyAt: before, in: &records)
    }

    /// Sets the timer of the next division, unless it has this time already.
    private static func setDivisionTimer(unlessAlreadyAt before: MonotonicTime?, in records: inout Records) {
        if let due = records.rateShares.nextDivisionAt, due != before {
            records.setTimer(at: due, for: .rateDivision(due))
        }
    }

    /// Whether a setting or a rule limits rates.
    private static func hasRateLimit(_ limits: CoreLimits) -> Bool {
        limits.maximumBytesPerSecond > 0
            || limits.originRules.rules.values.contains { $0.maximumBytesPerSecond ?? 0 > 0 }
    }

    /// Returns all running attempts of child workers, in a reproducible order. O(leases).
    private static func limitedAttempts(in records: inout Records) -> [RateShares.LimitedAttempt] {
        var members: [RateShares.LimitedAttempt] = []
        for worker in records.workers.indices where !records.workers[worker].isUserProvided {
            let id = records.workers[worker].id
            for (attempt, lease) in records.workers[worker].leasesInReproducibleOrder where !lease.isCancelling {
                var limits = Self.busAndOriginLimits(at: lease.origin, in: &records)
                if let flight = lease.flight,
                    let limit = handlerLimit(of: flight, runningAttempt: attempt, in: &records)
                {
                    limits.append(limit)
                }
                members.append(
                    RateShares.LimitedAttempt(
                        attempt: attempt, worker: id, limits: limits, receivedBytes: lease.receivedBytes))
            }
        }
        return members
    }

    /// Returns the limits of the bus and of an origin.
    private static func busAndOriginLimits(
        at origin: Handle<OriginEntry>, in records: inout Records
    ) -> [RateShares.GroupLimit] {
        var limits: [RateShares.GroupLimit] = []
        if records.limits.maximumBytesPerSecond > 0 {
            limits.append(.init(group: .allAttempts, bytesPerSecond: records.limits.maximumBytesPerSecond))
        }
        let rate = records.originGovernor.origins[origin].maximumBytesPerSecond
        if rate > 0 { limits.append(.init(group: .attemptsAtOrigin(origin), bytesPerSecond: rate)) }
        return limits
    }

    /// Returns the limit of the handlers of a running attempt; nil without one. A request that joins can raise the
    /// limit or lift it for good, but cannot slow an attempt without one.
    private static func handlerLimit(
        of flight: Handle<Flight>, runningAttempt attempt: AttemptID, in records: inout Records
    ) -> RateShares.GroupLimit? {
        guard records.rateShares.hasHandlerLimit(attempt) else { return nil }
        // The cancellation of a flight without requests may be deferred, and another request may join it.
        return records.flights.isAwaitedByRequest(flight)
            ? largestHandlerLimit(of: flight, in: &records) : records.rateShares.handlerLimit(of: attempt)
    }

    /// Returns the largest limit of the handlers with a request for the flight; nil if one has no limit.
    private static func largestHandlerLimit(
        of flight: Handle<Flight>, in records: inout Records
    ) -> RateShares.GroupLimit? {
        guard !records.flights[flight].isRevalidation else { return nil }
        var largest: RateShares.GroupLimit?
        var isUnlimited = false
        records.forEachInterest(of: flight) { records, interest in
            guard let rareOptions = records.requests[interest].rareOptions,
                let rate = records.requests[rareOptions].maximumBytesPerSecond
            else {
                isUnlimited = true
                return
            }
            if rate > largest?.bytesPerSecond ?? 0 {
                largest = RateShares.GroupLimit(
                    group: .attemptsForHandler(records.requests[interest].handler), bytesPerSecond: rate)
            }
        }
        return isUnlimited ? nil : largest
    }
}
