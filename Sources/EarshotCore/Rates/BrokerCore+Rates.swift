internal import EarshotWire

/// Rate limits: finds the limits of running attempts, and sends workers the shares of `RateBook`.
extension BrokerCore {
    /// Returns the share of an attempt that is about to start, in bytes per second; nil without a limit.
    mutating func firstRate(of flight: Int32, _ attempt: AttemptID, at origin: Int32, now: Tick) -> Int? {
        let limits = rateLimits(of: flight, at: origin)
        guard !limits.isEmpty else { return nil }
        let members = rateMembers(inOrder: false).filter { $0.attempt != attempt }
        let counts = limits.map { limit in
            members.count { member in member.limits.contains { $0.group == limit.group } }
        }
        let before = rates.due
        let rate = rates.started(attempt, limits, counts: counts, now: now)
        setRateTimer(unless: before)
        return rate
    }

    /// Divides the limits soon, if there are any.
    mutating func ratesChanged(now: Tick) {
        guard !rates.isEmpty || limitsRates else { return }
        divideSoon(now: now)
    }

    /// Divides the limits soon, even if no attempt is limited yet.
    mutating func divideSoon(now: Tick) {
        let before = rates.due
        rates.changed(now: now)
        setRateTimer(unless: before)
    }

    /// Divides the limits again, and sends changed shares to the workers.
    mutating func divideRates(now: Tick) {
        let before = rates.due
        for change in rates.divide(among: rateMembers(inOrder: true), now: now) {
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

    /// All running attempts of flights at child workers. O(leases).
    ///
    /// - Parameter inOrder: whether the order is reproducible.
    private mutating func rateMembers(inOrder: Bool) -> [RateBook.Member] {
        var members: [RateBook.Member] = []
        for worker in workers.indices where !workers[worker].isOwn {
            let id = workers[worker].id
            let leases = inOrder ? workers[worker].leasesInOrder : Array(workers[worker].leases)
            for (attempt, lease) in leases {
                guard let flight = lease.flight else { continue }
                members.append(
                    RateBook.Member(
                        attempt: attempt, worker: id, limits: rateLimits(of: flight, at: lease.origin),
                        receivedBytes: lease.receivedBytes))
            }
        }
        return members
    }

    /// Limits that apply to a flight. A flight with an unlimited request has no handler's limit.
    private mutating func rateLimits(of flight: Int32, at origin: Int32) -> [RateBook.Limit] {
        var limits: [RateBook.Limit] = []
        if self.limits.rate > 0 { limits.append(.init(group: .bus, rate: self.limits.rate)) }
        let rate = governor.origins[origin].rate
        if rate > 0 { limits.append(.init(group: .origin(origin), rate: rate)) }
        if !flights[flight].isRevalidation, let limit = handlerRate(of: flight) { limits.append(limit) }
        return limits
    }

    /// Largest limit of the handlers with a request for the flight; nil if one has no limit.
    private mutating func handlerRate(of flight: Int32) -> RateBook.Limit? {
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
