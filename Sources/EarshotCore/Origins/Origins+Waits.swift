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
