internal import EarshotHTTP

/// Origins: passes events to `OriginGovernor` and carries out their effects on the queue, the timers and the pools.
extension BrokerCore {
    /// Scope of a request, created if needed. The caller adds a flight to it next.
    mutating func scopeNumber(of request: HTTPRequest, in pool: Handle<WorkerPool>) -> Handle<OriginScope> {
        let origin = originNumber(of: request.url, in: pool)
        return governor.scope(CredentialRule.standard.scope(of: request), at: origin)
    }

    /// Origin of a URL, created if needed. Equal URLs of two pools of own workers have two origins.
    mutating func originNumber(of url: FetchURL, in pool: Handle<WorkerPool>) -> Handle<OriginEntry> {
        var hash = UInt32(truncatingIfNeeded: url.originHash)
        if pool != WorkerPool.web { hash = NumberHash.of(UInt64(hash), UInt64(UInt32(bitPattern: pool.number))) }
        if let origin = governor.origin(of: url, in: pool, hash: hash) { return origin }
        var entry = OriginEntry(of: url, nameHash: hash, pool: pool)
        entry.set(terms(for: entry))
        pools.originAdded(to: pool)
        let (origin, step) = governor.add(entry, now: clock)
        setTimer(step)
        return origin
    }

    @inline(__always)
    func origin(of flight: Handle<Flight>) -> Handle<OriginEntry> { governor.scopes[flights[flight].scope].origin }

    /// Releases a transfer, however it ended.
    mutating func endTransfer(at origin: Handle<OriginEntry>, isHigh: Bool, bodyBytes: Int? = nil) {
        let forgotten = governor.endTransfer(at: origin, isHigh: isHigh, bodyBytes: bodyBytes)
        queue.originOpened(origin)
        leave(forgotten)
    }

    /// Reports to the pool of a forgotten origin that it has one origin less.
    mutating func leave(_ pool: Handle<WorkerPool>?) {
        if let pool { pools.originForgotten(by: pool) }
    }

    // MARK: Terms

    /// Terms of an origin by the current rules. A node without its engine has a part of each limit.
    func terms(for entry: OriginEntry) -> OriginEntry.Terms {
        var terms = limits.origins.terms(for: entry)
        if let cluster, entry.pool == WorkerPool.web { terms.limit = cluster.value.book.localLimit(of: terms.limit) }
        return terms
    }

    /// Applies the current rules to every origin. O(origins).
    mutating func applyOriginRules(now: Tick) {
        for origin in governor.origins.indices {
            let terms = terms(for: governor.origins[origin])
            let (pause, forgotten) = governor.setTerms(terms, of: origin, now: now)
            setTimer(pause, of: origin)
            queue.originOpened(origin)
            leave(forgotten)
        }
    }

    /// Sets the timer that ends a spacing.
    mutating func setTimer(_ pause: OriginGovernor.Pause?, of origin: Handle<OriginEntry>) {
        if let pause { setTimer(pause.end, .paused(origin: origin, pause: pause.serial)) }
    }

    /// Ends the spacing of an origin.
    mutating func pauseEnded(at origin: Handle<OriginEntry>) {
        let forgotten = governor.pauseEnded(at: origin)
        queue.originOpened(origin)
        leave(forgotten)
    }

    // MARK: Slow start

    /// Sets the timer of the next step of a slow start.
    mutating func setTimer(_ step: OriginGovernor.SlowStartStep?) {
        if let step { setTimer(step.at, .slowStart(origin: step.origin, serial: step.serial)) }
    }

    mutating func slowStartStep(of origin: Handle<OriginEntry>, now: Tick) {
        setTimer(governor.slowStartStep(of: origin, now: now))
        queue.originOpened(origin)
    }

    // MARK: Cool-downs

    /// Begins or prolongs a cool-down after a response with status 429 or 503.
    mutating func cool(_ scope: Handle<OriginScope>, asked: RetryAfter?, now: Tick) {
        guard let start = governor.cool(scope, asked: asked, using: &generator, now: now) else { return }
        ledger.flights.coolDowns += 1
        setTimer(start.end, .cooled(scope: scope, serial: start.serial))
        if start.isRefusing { queue.scopeOpened(scope) }
        waitForCoolDown(of: scope)
    }

    /// Ends the pause of a cool-down; one probe may start.
    mutating func cooled(_ scope: Handle<OriginScope>) {
        let forgotten = governor.coolDownEnded(scope)
        queue.scopeOpened(scope)
        leave(forgotten)
    }

    /// Ends the cool-downs that exceeded the former limit. One probe may start at each of these origins.
    mutating func endRefusals() {
        for scope in governor.refusingScopes { cooled(scope) }
    }

    /// Fails a flight whose origin requested a pause above the limit. The failure's detail names the remaining seconds.
    mutating func failCooling(_ flight: Handle<Flight>, until: Tick, now: Tick) {
        end(flight, Self.coolingOutcome(until: until, attempts: Int(flights[flight].attempts), now: now), now: now)
    }

    private static func coolingOutcome(until: Tick, attempts: Int, now: Tick) -> Outcome {
        // The end of a probe is not known.
        let seconds = max(1, (until.milliseconds(since: now) + 999) / 1_000)
        return Outcome(
            failure: .originCooling, coolDownSeconds: UInt32(clamping: seconds),
            detail: "The server requested a cool-down for another \(seconds) s.", attempts: attempts)
    }

    // MARK: Limited waits for cool-downs

    /// Queued requests of a scope whose waits for a cool-down are limited, in a fixed order, which timers take.
    private func impatientInterests(of scope: Handle<OriginScope>) -> [Handle<Interest>] {
        queue.impatient[scope]?.sorted() ?? []
    }

    /// Begins the waits of queued requests for a cool-down, or for its probe, that begins now.
    mutating func waitForCoolDown(of scope: Handle<OriginScope>) {
        for interest in impatientInterests(of: scope) { waitForCoolDown(interest, of: scope) }
    }

    /// Begins the wait of a queued request for a cool-down, if there is one. If the request does not wait for so long,
    /// a timer ends it in this pass, otherwise at the end of the time that it waits.
    mutating func waitForCoolDown(_ interest: Handle<Interest>, of scope: Handle<OriginScope>) {
        guard let number = interests[interest].extras, let limit = extras[number].waitMilliseconds,
            let end = governor.coolDownEnd(of: scope, now: clock)
        else { return }
        let last = extras[number].waitEnd ?? clock.advanced(byMilliseconds: limit)
        let isNew = extras[number].waitEnd == nil
        extras[number].waitEnd = last
        guard isNew || end > last else { return }
        setTimer(end > last ? clock : last, .coolDownWait(interests.reference(to: interest)))
    }

    /// Ends a request whose wait for a cool-down is, or will be, longer than the request allows.
    mutating func coolDownWaitEnded(_ interest: Handle<Interest>, now: Tick) {
        guard queue.contains(interest), let number = interests[interest].extras, let last = extras[number].waitEnd,
            let end = governor.coolDownEnd(of: flights[leaf(ofOpen: interest)].scope, now: now), end > last
        else { return }
        let attempts = Int(flights[leaf(ofOpen: interest)].attempts)
        endAlone(interest, Self.coolingOutcome(until: end, attempts: attempts, now: now), now: now)
    }

    /// Reports the end of a flight, or of its attempt, to the cool-down that it may be the probe of.
    mutating func probeEnded(_ flight: Handle<Flight>, isAnswered: Bool) {
        let scope = flights[flight].scope
        guard governor.probeEnded(scope, flights[flight].id, isAnswered: isAnswered) else { return }
        if isAnswered {
            for interest in impatientInterests(of: scope) {
                if let number = interests[interest].extras { extras[number].waitEnd = nil }
            }
        }
        queue.scopeOpened(scope)
    }
}
