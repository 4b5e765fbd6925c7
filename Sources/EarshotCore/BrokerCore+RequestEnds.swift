internal import EarshotHTTP
internal import EarshotWire

/// Ends of requests: what an outcome passes on its way to the listeners of one request.
extension BrokerCore {
    /// Ends an open request, which has left its flight, with an outcome. Without a listener the outcome is held, or
    /// written to disk for a durable request.
    ///
    /// - Parameter start: start of the transfer of a response; nil for a failure and for a response without a transfer.
    mutating func endRequest(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, transferStartedAt start: Tick? = nil, now: Tick
    ) {
        times.requestEnded(requestedAt: records.requests[interest].requestedAt, transferStartedAt: start, endedAt: now)
        if records.features.isReportingEnds { reportEnd(of: interest, outcome) }
        guard !records.isDurable(interest) else {
            record(interest, outcome)
            return
        }
        let listeners = records.listeners(of: records.requests[interest].handler)
        guard !listeners.isEmpty else {
            let waiting = records.handlers[records.requests[interest].handler].heldCount + 1
            let kept =
                records.outcomes.mustSpill(outcome, waiting: waiting)
                ? Delivery.spillable(outcome, in: &records) : outcome
            Delivery.holdOutcome(
                interest, Principals.withinQuota(kept, of: interest, receivers: 1, in: &records), now: now, in: &records
            )
            return
        }
        let kept =
            Delivery.mustWait(outcome, for: listeners, in: &records)
            ? Delivery.spillable(outcome, in: &records) : outcome
        let delivered = Principals.withinQuota(kept, of: interest, receivers: listeners.count, in: &records)
        accountOutcome(of: interest, delivered)
        publish(interest, delivered, to: listeners)
    }

    /// Starts or stops reports of the ends of requests.
    public mutating func reportEnds(_ isReporting: Bool) { records.features.isReportingEnds = isReporting }

    /// Reports the end of a request to the supervisor. Not inlined, because few buses have a program for it.
    @inline(never)
    mutating func reportEnd(of interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        let record = records.requests[interest]
        var ended = EndedRequest(handler: records.handlers[record.handler].id, request: record.request)
        ended.principal = records.principals.name(of: records.handlers[record.handler].principal)
        ended.failure = records.outcomes[outcome].failure?.rawValue
        if let response = records.outcomes[outcome].response {
            ended.status = response.status
            ended.length = response.length
            ended.sha256 = response.sha256
            ended.url = response.url
        }
        records.outbox.actions.append(.supervisor(.ended(ended)))
    }

    /// Counts a request as answered or failed in both ledgers.
    mutating func accountOutcome(of interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        let failure = records.outcomes[outcome].failure
        records.account(interest) { requests in
            if let failure { requests.failed[failure.rawValue, default: 0] += 1 } else { requests.answered += 1 }
        }
    }

    /// Returns an outcome with a file, if a request demands that and the body is in memory; otherwise the same outcome.
    /// `FAILED spool-full` stands for a file without room.
    ///
    /// - Returns: another outcome has one reference, which the caller releases.
    @inline(__always)
    mutating func outcomeInDemandedForm(_ outcome: Handle<Outcome>, for interest: Handle<Interest>) -> Handle<Outcome> {
        records.demandedForm(of: interest) == .file ? outcomeAsFile(outcome, for: interest) : outcome
    }

    private mutating func outcomeAsFile(_ outcome: Handle<Outcome>, for interest: Handle<Interest>) -> Handle<Outcome> {
        guard let file = Delivery.begin(fileOf: outcome, for: interest, in: &records) else { return outcome }
        return hasRoomInSpool()
            ? Delivery.complete(file, of: outcome, in: &records) : Delivery.fail(file, of: outcome, in: &records)
    }

    /// Frees a request's record and releases everything that it holds.
    mutating func freeRequest(_ interest: Handle<Interest>) {
        freeID(interest)
        let record = records.requests[interest]
        if let outcome = record.outcome { records.release(outcome) }
        if let number = record.extras, records.requests[number].fields != nil {
            records.releaseHead(of: .joined(interest))
        }
        records.requests.remove(interest)
        records.handlers.release(record.handler)
        dropHandlerIfIdle(record.handler)
    }
}
