internal import EarshotHTTP

/// Origins: events of transfers, timers and settings for `OriginGovernor`, and their effects on the queue, the timers and the
/// pools.
enum Origins {
    /// Scope of a request, created if needed. The caller adds a flight to it next.
    static func scope(
        of request: HTTPRequest, for pool: Handle<WorkerPool>, in records: inout Records
    ) -> Handle<OriginScope> {
        let origin = origin(of: request.url, for: pool, in: &records)
        return records.governor.scope(CredentialRule.standard.scope(of: request), at: origin)
    }

    /// Origin of a URL, created if needed. Equal URLs of two pools of own workers have two origins.
    private static func origin(
        of url: FetchURL, for pool: Handle<WorkerPool>, in records: inout Records
    ) -> Handle<OriginEntry> {
        var hash = UInt32(truncatingIfNeeded: url.originHash)
        if pool != WorkerPool.web { hash = NumberHash.of(UInt64(hash), UInt64(UInt32(bitPattern: pool.number))) }
        if let origin = records.governor.origin(of: url, in: pool, hash: hash) { return origin }
        var entry = OriginEntry(of: url, nameHash: hash, pool: pool)
        entry.set(terms(for: entry, by: records.limits.origins, records.cluster))
        records.pools.originAdded(to: pool)
        let (origin, step) = records.governor.add(entry, now: records.clock)
        setTimer(step, in: &records)
        return origin
    }

    /// Reports the end of a flight to its scope, which may be forgotten with its origin.
    static func flightLeft(_ scope: Handle<OriginScope>, in records: inout Records) {
        originForgotten(records.governor.flightLeft(scope), in: &records)
    }

    /// Moves a flight to another scope.
    static func move(_ flight: Handle<Flight>, to scope: Handle<OriginScope>, in records: inout Records) {
        records.governor.flightJoined(scope)
        let former = records.flights[flight].scope
        records.flights[flight].scope = scope
        flightLeft(former, in: &records)
    }

    /// Reports to the pool of a forgotten origin that it has one origin less.
    private static func originForgotten(_ pool: Handle<WorkerPool>?, in records: inout Records) {
        if let pool { records.pools.originForgotten(by: pool) }
    }

    // MARK: Transfers

    /// Counts the transfer of a flight that starts.
    static func transferStarted(
        of flight: Handle<Flight>, at origin: Handle<OriginEntry>, by worker: WorkerID, isHigh: Bool, now: Tick,
        in records: inout Records
    ) {
        let pause = records.governor.startTransfer(at: origin, by: worker, isHigh: isHigh, now: now)
        setTimer(pause, of: origin, in: &records)
        let scope = records.flights[flight].scope
        if records.governor.probeStarted(scope, records.flights[flight].id) { checkWaits(for: scope, in: &records) }
    }

    /// Releases a transfer, however it ended.
    static func transferEnded(
        at origin: Handle<OriginEntry>, isHigh: Bool, bodyBytes: Int? = nil, in records: inout Records
    ) {
        let isSmall = bodyBytes.map { $0 <= records.limits.smallBodyBytes }
        let pool = records.governor.endTransfer(at: origin, isHigh: isHigh, isSmall: isSmall)
        records.queue.originOpened(origin)
        originForgotten(pool, in: &records)
    }

    // MARK: Terms

    /// Terms of an origin by the current rules. A node without its engine has a part of each limit.
    static func terms(
        for entry: OriginEntry, by rules: OriginRules, _ cluster: Indirect<ClusterState>?
    ) -> OriginEntry.Terms {
        var terms = rules.terms(for: entry)
        if let cluster, entry.pool == WorkerPool.web {
            terms.limit = cluster.value.book.localLimit(of: terms.limit)
        }
        return terms
    }

    /// Applies the current rules to every origin. O(origins).
    static func applyRules(now: Tick, in records: inout Records) {
        for origin in records.governor.origins.indices {
            let terms = terms(for: records.governor.origins[origin], by: records.limits.origins, records.cluster)
            let (pause, pool) = records.governor.setTerms(terms, of: origin, now: now)
            setTimer(pause, of: origin, in: &records)
            records.queue.originOpened(origin)
            originForgotten(pool, in: &records)
        }
    }

    /// Sets the timer that ends a spacing.
    private static func setTimer(
        _ pause: OriginGovernor.Pause?, of origin: Handle<OriginEntry>, in records: inout Records
    ) {
        if let pause { records.setTimer(pause.end, .paused(origin: origin, pause: pause.serial)) }
    }

    /// Ends the spacing of an origin.
    static func pauseEnded(at origin: Handle<OriginEntry>, in records: inout Records) {
        let pool = records.governor.pauseEnded(at: origin)
        records.queue.originOpened(origin)
        originForgotten(pool, in: &records)
    }

    // MARK: Slow start

    /// Begins the slow start of a broker that follows one that died.
    static func openSlowStart(now: Tick, in records: inout Records) {
        for step in records.governor.openSlowStart(now: now) { setTimer(step, in: &records) }
    }

    static func slowStartStep(of origin: Handle<OriginEntry>, now: Tick, in records: inout Records) {
        setTimer(records.governor.slowStartStep(of: origin, now: now), in: &records)
        records.queue.originOpened(origin)
    }

    /// Sets the timer of the next step of a slow start.
    private static func setTimer(_ step: OriginGovernor.SlowStartStep?, in records: inout Records) {
        if let step { records.setTimer(step.at, .slowStart(origin: step.origin, serial: step.serial)) }
    }

    // MARK: Cool-downs

    /// Begins or prolongs a cool-down after a response with status 429 or 503.
    static func cool(_ scope: Handle<OriginScope>, retryAfter: RetryAfter?, now: Tick, in records: inout Records) {
        guard let start = records.governor.cool(scope, retryAfter: retryAfter, using: &records.generator, now: now)
        else {
            return
        }
        records.ledger.flights.coolDowns += 1
        records.setTimer(start.end, .cooled(scope: scope, serial: start.serial))
        if start.isRefusing { records.queue.scopeOpened(scope) }
        checkWaits(for: scope, in: &records)
    }

    /// Ends the pause of a cool-down; one probe may start.
    static func cooled(_ scope: Handle<OriginScope>, in records: inout Records) {
        let pool = records.governor.coolDownEnded(scope)
        records.queue.scopeOpened(scope)
        originForgotten(pool, in: &records)
    }

    /// Ends the cool-downs that exceeded the former limit. One probe may start at each of these origins.
    static func endRefusals(in records: inout Records) {
        for scope in records.governor.refusingScopes { cooled(scope, in: &records) }
    }

    /// Reports the end of a flight, or of its attempt, to the cool-down that it may be the probe of.
    static func probeEnded(_ flight: Handle<Flight>, isAnswered: Bool, in records: inout Records) {
        let scope = records.flights[flight].scope
        guard records.governor.probeEnded(scope, records.flights[flight].id, isAnswered: isAnswered) else { return }
        records.queue.scopeOpened(scope)
    }

    /// Failure of a flight, or of one of its requests, whose origin requested a pause above the limit. The detail names the
    /// remaining seconds.
    static func failure(of flight: Handle<Flight>, until: Tick, now: Tick, in records: inout Records) -> Outcome {
        // The end of a probe is not known.
        let seconds = max(1, (until.milliseconds(since: now) + 999) / 1_000)
        let detail = "The server requested a cool-down for another \(seconds) s."
        let (url, attempts) = (records.flights[flight].url.description, Int(records.flights[flight].attempts))
        return Outcome(
            failure: .originCooling, coolDownSeconds: UInt32(clamping: seconds), detail: detail, url: url,
            attempts: attempts)
    }
}

/// Requests that wait for a cool-down for a limited time.
extension Origins {
    /// Has the queued requests of a scope checked that do not wait long for its cool-down, or for its probe, which begins
    /// now.
    static func checkWaits(for scope: Handle<OriginScope>, in records: inout Records) {
        if !records.queue.coolDownWaits.isEmpty { records.queue.coolDownWaits.check(scope, since: records.clock) }
    }

    /// Checks one slice of such requests. Called once per pass, before the timers.
    static func continueWaits(in records: inout Records) {
        for _ in 0..<max(records.limits.coolDownWaitsPerPass, 1) {
            guard let turn = records.queue.coolDownWaits.takeTurn() else { return }
            wait(turn.interest, for: turn.scope, since: turn.since, in: &records)
        }
    }

    /// Begins the wait of a queued request for a cool-down, if there is one. If the request does not wait for so long,
    /// a timer ends it in this pass, otherwise at the end of the time that it waits.
    static func wait(
        _ interest: Handle<Interest>, for scope: Handle<OriginScope>, since start: Tick, in records: inout Records
    ) {
        guard let coolDown = records.governor.scopes[scope].coolDown,
            let end = records.governor.coolDownEnd(of: scope, now: records.clock),
            let number = records.requests[interest].extras
        else { return }
        let known = records.requests[number].waitEnd(in: coolDown)
        if known == nil { records.requests[number].waitStart = start }
        guard let last = known ?? records.requests[number].waitEnd(in: coolDown), known == nil || end > last else {
            return
        }
        records.setTimer(end > last ? records.clock : last, .coolDownWait(records.requests.reference(to: interest)))
    }

    /// Checks a request at the end of its time.
    ///
    /// - Returns: its failure; nil if it may go on, because its wait is not longer than the request allows.
    static func waitEnded(_ interest: Handle<Interest>, now: Tick, in records: inout Records) -> Outcome? {
        guard records.queue.contains(interest), let number = records.requests[interest].extras else { return nil }
        let flight = records.leaf(ofOpen: interest)
        let scope = records.flights[flight].scope
        guard let coolDown = records.governor.scopes[scope].coolDown,
            let last = records.requests[number].waitEnd(in: coolDown),
            let end = records.governor.coolDownEnd(of: scope, now: now), end > last
        else { return nil }
        return failure(of: flight, until: end, now: now, in: &records)
    }
}
