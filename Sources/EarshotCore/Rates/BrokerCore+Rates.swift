internal import EarshotWire

/// Rate limits: finds the limits of running attempts, and sends workers the shares of `RateBook`.
extension BrokerCore {
    /// Returns the share of an attempt that is about to start, in bytes per second; nil without a limit. O(requests of
    /// the flight).
    mutating func firstRate(
        of flight: Handle<Flight>, _ attempt: AttemptID, at origin: Handle<OriginEntry>, now: Tick
    ) -> Int? {
        var limits = rateLimits(at: origin)
        if let limit = handlerRate(of: flight) { limits.append(limit) }
        guard !limits.isEmpty else { return nil }
        let before = rates.due
        let rate = rates.started(attempt, limits, now: now)
        setRateTimer(unless: before)
        return rate
    }

    /// Removes the share of an ended attempt.
    mutating func rateEnded(_ attempt: AttemptID, now: Tick) {
        let before = rates.due
        rates.ended(attempt, now: now)
        setRateTimer(unless: before)
    }

    /// Divides the limits soon, if there are any.
    mutating func ratesChanged(now: Tick) {
        guard !rates.isEmpty || limitsRates else { return }
        let before = rates.due
        rates.changed(now: now)
        setRateTimer(unless: before)
    }

    /// Divides the limits again, and sends changed shares to the workers.
    mutating func divideRates(now: Tick) {
        let before = rates.due
        for change in rates.divide(among: rateMembers(), now: now) {
            actions.append(.worker(.send(change.worker, .rate(change.attempt, bytesPerSecond: change.rate))))
        }
        setRateTimer(unless: before)
    }

    /// Sets the timer of the next division, unless it has this time already.
    private mutating func setRateTimer(unless before: Tick?) {
        if let due = rates.due, due != before { setTimer(due, .rates(due)) }
    }

    /// Whether a setting or a rule limits rates.
    private var limitsRates: Bool {
        limits.rate > 0 || limits.origins.rules.values.contains { $0.rate ?? 0 > 0 }
    }

    /// All running attempts of child workers, in a reproducible order. O(leases).
    private mutating func rateMembers() -> [RateBook.Member] {
        var members: [RateBook.Member] = []
        for worker in workers.indices where !workers[worker].isOwn {
            let id = workers[worker].id
            for (attempt, lease) in workers[worker].leasesInOrder where !lease.isCancelling {
                var limits = rateLimits(at: lease.origin)
                if let flight = lease.flight, let limit = handlerRate(of: flight, running: attempt) {
                    limits.append(limit)
                }
                members.append(
                    RateBook.Member(attempt: attempt, worker: id, limits: limits, receivedBytes: lease.receivedBytes))
            }
        }
        return members
    }

    /// Limits of the bus and of an origin.
    private func rateLimits(at origin: Handle<OriginEntry>) -> [RateBook.Limit] {
        var limits: [RateBook.Limit] = []
        if self.limits.rate > 0 { limits.append(.init(group: .bus, rate: self.limits.rate)) }
        let rate = governor.origins[origin].rate
        if rate > 0 { limits.append(.init(group: .origin(origin), rate: rate)) }
        return limits
    }

    /// Limit of the handlers of a running attempt; nil without one. A request that joins can raise or lift it for good,
    /// and cannot slow an attempt without one.
    private mutating func handlerRate(of flight: Handle<Flight>, running attempt: AttemptID) -> RateBook.Limit? {
        guard rates.mayFollowHandler(attempt) else { return nil }
        // The cancellation of a flight without requests may be deferred, and another request may join it.
        return flights[flight].isAwaited ? handlerRate(of: flight) : rates.handlerLimit(of: attempt)
    }

    /// Largest limit of the handlers with a request for the flight; nil if one has no limit.
    private mutating func handlerRate(of flight: Handle<Flight>) -> RateBook.Limit? {
        guard !flights[flight].isRevalidation else { return nil }
        var largest: RateBook.Limit?
        var isUnlimited = false
        forEachInterest(of: flight) { core, interest in
            guard let extras = core.interests[interest].extras, let rate = core.extras[extras].limitRate else {
                isUnlimited = true
                return
            }
            if rate > largest?.rate ?? 0 {
                largest = RateBook.Limit(group: .handler(core.interests[interest].handler), rate: rate)
            }
        }
        return isUnlimited ? nil : largest
    }
}
