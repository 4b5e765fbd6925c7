internal import EarshotHTTP

/// Origins: events of transfers, timers and settings for `OriginGovernor`, and their effects on the queue, the timers
/// and the pools.
enum Origins {
    /// Returns the scope of a request, created if needed. The caller adds a flight to it next.
    static func originScope(
        of request: HTTPRequest, for pool: Handle<WorkerPool>, in records: inout Records
    ) -> Handle<OriginScope> {
        let origin = originEntry(of: request.url, for: pool, in: &records)
        return records.originGovernor.scope(CredentialRule.standard.trustScope(of: request), at: origin)
    }

    /// Returns the origin of a URL, created if needed. Equal URLs of two pools of own workers have two origins.
    private static func originEntry(
        of url: FetchURL, for pool: Handle<WorkerPool>, in records: inout Records
    ) -> Handle<OriginEntry> {
        var hash = UInt32(truncatingIfNeeded: url.originHash)
        if pool != WorkerPool.webPoolHandle {
            hash = NumberHash.hash(UInt64(hash), UInt64(UInt32(bitPattern: pool.recordNumber)))
        }
        if let origin = records.originGovernor.origin(of: url, in: pool, hash: hash) { return origin }
        var entry = OriginEntry(of: url, nameHash: hash, pool: pool)
        entry.setTerms(effectiveTerms(for: entry, by: records.limits.originRules, records.clusterState))
        records.workerPools.incrementOriginCount(of: pool)
        let (origin, step) = records.originGovernor.addOrigin(entry, now: records.latestEventTime)
        setSlowStartTimer(step, in: &records)
        return origin
    }

    /// Reports the end of a flight to its scope, which may be forgotten with its origin.
    static func flightLeft(_ scope: Handle<OriginScope>, in records: inout Records) {
        originRemovedFromPool(records.originGovernor.flightLeft(scope), in: &records)
    }

    /// Moves a flight to another scope.
    static func moveFlight(_ flight: Handle<Flight>, to scope: Handle<OriginScope>, in records: inout Records) {
        records.originGovernor.flightJoined(scope)
        let former = records.flights[flight].originScope
        records.flights[flight].originScope = scope
        flightLeft(former, in: &records)
    }

    /// Reports to the pool of a forgotten origin that it has one origin less.
    private static func originRemovedFromPool(_ pool: Handle<WorkerPool>?, in records: inout Records) {
        if let pool { records.workerPools.decrementOriginCount(of: pool) }
    }

    // MARK: Transfers

    /// Counts the transfer of a flight that starts.
    static func transferStarted(
        of flight: Handle<Flight>, at origin: Handle<OriginEntry>, by worker: WorkerID, isHigh: Bool,
        now: MonotonicTime, in records: inout Records
    ) {
        let pause = records.originGovernor.startTransfer(at: origin, by: worker, isHigh: isHigh, now: now)
        setPauseTimer(pause, of: origin, in: &records)
        let scope = records.flights[flight].originScope
        if records.originGovernor.probeStarted(scope, records.flights[flight].id) {
            scheduleWaitChecks(for: scope, in: &records)
        }
    }

    /// Releases a transfer, however it ended.
    static func transferEnded(
        at origin: Handle<OriginEntry>, isHigh: Bool, bodyBytes: Int? = nil, in records: inout Records
    ) {
        let isSmall = bodyBytes.map { $0 <= records.limits.maximumSmallBodyBytes }
        let pool = records.originGovernor.endTransfer(at: origin, isHigh: isHigh, isSmall: isSmall)
        records.queue.unparkLanes(ofOrigin: origin)
        originRemovedFromPool(pool, in: &records)
    }

    // MARK: Terms

    /// Returns the terms of an origin by the current rules. A node without its engine has a part of each limit.
    static func effectiveTerms(
        for entry: OriginEntry, by rules: OriginRules, _ cluster: CopyOnWriteBox<ClusterState>?
    ) -> OriginEntry.Terms {
        var terms = rules.terms(for: entry)
        if let cluster, entry.workerPool == WorkerPool.webPoolHandle {
            terms.limit = cluster.value.book.localLimit(of: terms.limit)
        }
        return terms
    }

    /// Applies the current rules to every origin. O(origins).
    static func applyRules(now: MonotonicTime, in records: inout Records) {
        for origin in records.originGovernor.origins.indices {
            let terms = effectiveTerms(
                for: records.originGovernor.origins[origin], by: records.limits.originRules, records.clusterState)
            let (pause, pool) = records.originGovernor.setTerms(terms, of: origin, now: now)
            setPauseTimer(pause, of: origin, in: &records)
            records.queue.unparkLanes(ofOrigin: origin)
            originRemovedFromPool(pool, in: &records)
        }
    }

    /// Sets the timer that ends a spacing.
    private static func setPauseTimer(
        _ pause: OriginGovernor.Pause?, of origin: Handle<OriginEntry>, in records: inout Records
    ) {
        if let pause {
            records.setTimer(at: pause.endsAt, for: .originSpacingEnd(origin: origin, pause: pause.timerSerial))
        }
    }

    /// Ends the spacing of an origin.
    static func pauseEnded(at origin: Handle<OriginEntry>, in records: inout Records) {
        let pool = records.originGovernor.pauseEnded(at: origin)
        records.queue.unparkLanes(ofOrigin: origin)
        originRemovedFromPool(pool, in: &records)
    }

    // MARK: Slow start

    /// Begins the slow start of a broker that follows one that died.
    static func openSlowStart(now: MonotonicTime, in records: inout Records) {
        for step in records.originGovernor.beginSlowStartSteps(now: now) { setSlowStartTimer(step, in: &records) }
    }

    static func slowStartStep(of origin: Handle<OriginEntry>, now: MonotonicTime, in records: inout Records) {
        setSlowStartTimer(records.originGovernor.slowStartStep(of: origin, now: now), in: &records)
        records.queue.unparkLanes(ofOrigin: origin)
    }

    /// Sets the timer of the next step of a slow start.
    private static func setSlowStartTimer(_ step: OriginGovernor.SlowStartStep?, in records: inout Records) {
        if let step {
            records.setTimer(at: step.dueAt, for: .slowStartStep(origin: step.origin, serial: step.timerSerial))
        }
    }

    // MARK: Cool-downs

    /// Begins or prolongs a cool-down after a response with status 429 or 503.
    static func beginCoolDown(
        _ scope: Handle<OriginScope>, retryAfter: RetryAfter?, now: MonotonicTime, in records: inout Records
    ) {
        let begun = records.originGovernor.beginCoolDown(
            scope, retryAfter: retryAfter, using: &records.randomGenerator, now: now)
        guard let start = begun else { return }
        records.ledger.flights.originCoolDowns += 1
        records.setTimer(at: start.endsAt, for: .coolDownEnd(scope: scope, serial: start.timerSerial))
        if start.isRefusing { records.queue.unparkLanes(ofScope: scope) }
        scheduleWaitChecks(for: scope, in: &records)
    }

    /// Ends the pause of a cool-down; one probe may start.
    static func coolDownPauseEnded(_ scope: Handle<OriginScope>, in records: inout Records) {
        let pool = records.originGovernor.coolDownEnded(scope)
        records.queue.unparkLanes(ofScope: scope)
        originRemovedFromPool(pool, in: &records)
    }

    /// Ends the cool-downs that exceeded the former limit. One probe may start at each of these origins.
    static func endCoolDownRefusals(in records: inout Records) {
        for scope in records.originGovernor.refusingScopes { coolDownPauseEnded(scope, in: &records) }
    }

    /// Handles the end of a flight or of its attempt, which may be the probe of a cool-down.
    static func probeEnded(_ flight: Handle<Flight>, isAnswered: Bool, in records: inout Records) {
        let scope = records.flights[flight].originScope
        guard records.originGovernor.probeEnded(scope, records.flights[flight].id, isAnswered: isAnswered) else {
            return
        }
        records.queue.unparkLanes(ofScope: scope)
    }

    /// Returns the failure of a flight, or of one of its requests, whose origin requested a pause above the limit. The
    /// detail names the remaining seconds.
    static func coolDownFailure(
        of flight: Handle<Flight>, until: MonotonicTime, now: MonotonicTime, in records: inout Records
    ) -> Outcome {
        // The end of a probe is not known.
        let seconds = max(1, (until.milliseconds(since: now) + 999) / 1_000)
        let detail = "The server requested a cool-down for another \(seconds) s."
        return Outcome(
            failure: .originCoolingDown, coolDownSeconds: UInt32(clamping: seconds), detail: detail,
            url: records.flights[flight].url.description, attempts: Int(records.flights[flight].assignedAttemptCount))
    }
}

/// Requests that wait for a cool-down for a limited time.
extension Origins {
    /// Schedules checks of the queued requests of a scope whose waits are limited. Called when its cool-down or its
    /// probe begins.
    static func scheduleWaitChecks(for scope: Handle<OriginScope>, in records: inout Records) {
        if !records.queue.coolDownWaits.isEmpty {
            records.queue.coolDownWaits.scheduleChecks(of: scope, since: records.latestEventTime)
        }
    }

    /// Checks one slice of such requests. Called once per pass, before the timers.
    static func checkNextSliceOfWaits(in records: inout Records) {
        for _ in 0..<max(records.limits.maximumCoolDownWaitChecksPerPass, 1) {
            guard let check = records.queue.coolDownWaits.popPendingCheck() else { return }
            beginCoolDownWait(check.interest, for: check.scope, since: check.eventAt, in: &records)
        }
    }

    /// Begins the wait of a queued request for a cool-down, if there is one. If the cool-down outlasts the longest wait
    /// that the request allows, a timer ends the request in this pass. Otherwise the timer fires when that wait ends.
    static func beginCoolDownWait(
        _ interest: Handle<Interest>, for scope: Handle<OriginScope>, since start: MonotonicTime,
        in records: inout Records
    ) {
        guard let coolDown = records.originGovernor.scopes[scope].coolDown,
            let end = records.originGovernor.coolDownEnd(of: scope, now: records.latestEventTime),
            let number = records.requests[interest].rareOptions
        else { return }
        let known = records.requests[number].coolDownWaitDeadline(in: coolDown)
        if known == nil { records.requests[number].coolDownWaitStartedAt = start }
        guard let last = known ?? records.requests[number].coolDownWaitDeadline(in: coolDown),
            known == nil || end > last
        else {
            return
        }
        records.setTimer(
            at: end > last ? records.latestEventTime : last,
            for: .coolDownWaitEnd(records.requests.reference(to: interest)))
    }

    /// Checks a request at the end of the longest wait that it allows.
    ///
    /// - Returns: its failure; nil if it continues, because no cool-down lasts longer than that.
    static func coolDownWaitEnded(
        _ interest: Handle<Interest>, now: MonotonicTime, in records: inout Records
    ) -> Outcome? {
        guard records.queue.contains(interest), let number = records.requests[interest].rareOptions else { return nil }
        let flight = records.lastRedirectedFlight(ofOpen: interest)
        let scope = records.flights[flight].originScope
        guard let coolDown = records.originGovernor.scopes[scope].coolDown,
            let last = records.requests[number].coolDownWaitDeadline(in: coolDown),
            let end = records.originGovernor.coolDownEnd(of: scope, now: now), end > last
        else { return nil }
        return coolDownFailure(of: flight, until: end, now: now, in: &records)
    }
}
