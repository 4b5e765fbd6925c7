internal import EarshotHTTP
internal import EarshotWire

/// Ends of requests: the way of an outcome to the subscribers of one request.
extension BrokerCore {
    /// Ends an open request, which has left its flight, with an outcome. Without a subscriber the outcome is held, or
    /// written to disk for a durable request.
    ///
    /// - Parameter start: start of the transfer of a response; nil for a failure and for a response without a transfer.
    mutating func endRequest(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, transferStartedAt start: MonotonicTime? = nil,
        now: MonotonicTime
    ) {
        requestTimes.requestEnded(
            requestedAt: records.requests[interest].requestedAt, transferStartedAt: start, endedAt: now)
        if records.shellFeatures.isReportingRequestEnds { reportRequestEnd(of: interest, outcome) }
        guard !records.isDurable(interest) else {
            storeOutcome(of: interest, outcome)
            return
        }
        let subscribers = records.subscribers(of: records.requests[interest].handler)
        guard !subscribers.isEmpty else {
            let waiting = records.handlers[records.requests[interest].handler].heldOutcomeCount + 1
            let kept =
                records.outcomes.mustSpillBody(outcome, waiting: waiting)
                ? Delivery.outcomeAcceptedForSpill(outcome, in: &records) : outcome
            let held = Principals.outcomeWithinQuota(kept, of: interest, receivers: 1, in: &records)
            Delivery.holdOutcomeUntilSubscriber(interest, held, now: now, in: &records)
            return
        }
        let kept =
            Delivery.mustSpillForSubscribers(outcome, for: subscribers, in: &records)
            ? Delivery.outcomeAcceptedForSpill(outcome, in: &records) : outcome
        let delivered = Principals.outcomeWithinQuota(kept, of: interest, receivers: subscribers.count, in: &records)
        countOutcome(of: interest, delivered)
        publishTerminal(of: interest, delivered, to: subscribers)
    }

    /// Starts or stops reports of the ends of requests.
    public mutating func setReportsRequestEnds(_ isReporting: Bool) {
        records.shellFeatures.isReportingRequestEnds = isReporting
    }

    /// Reports the end of a request to the supervisor. Not inlined, because few buses have a program for it.
    @inline(never)
    mutating func reportRequestEnd(of interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        let record = records.requests[interest]
        var ended = EndedRequest(handler: records.handlers[record.handler].id, request: record.request)
        ended.principal = records.principals.name(of: records.handlers[record.handler].principal)
        ended.failure = records.outcomes[outcome].failure?.rawValue
        if let response = records.outcomes[outcome].response {
            ended.status = response.status
            ended.bodyLength = response.bodyLength
            ended.sha256 = response.sha256
            ended.url = response.url
        }
        records.outbox.actions.append(.supervisor(.requestEnded(ended)))
    }

    /// Counts a request as answered or failed in both ledgers.
    mutating func countOutcome(of interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        let failure = records.outcomes[outcome].failure
        records.moveToResultCounts(interest) { requests in
            if let failure { requests.failed[failure.rawValue, default: 0] += 1 } else { requests.answered += 1 }
        }
    }

    /// Returns an outcome with a file, if a request demands that and the body is in memory; otherwise the same outcome.
    /// If the spool has no room for the file, the outcome is `FAILED spool-full`.
    ///
    /// - Returns: the outcome. One that differs from `outcome` has one reference, which the caller releases.
    @inline(__always)
    mutating func outcomeInDemandedForm(_ outcome: Handle<Outcome>, for interest: Handle<Interest>) -> Handle<Outcome> {
        records.demandedBodyForm(of: interest) == .file ? outcomeAsFile(outcome, for: interest) : outcome
    }

    private mutating func outcomeAsFile(_ outcome: Handle<Outcome>, for interest: Handle<Interest>) -> Handle<Outcome> {
        guard let file = Delivery.reserveDemandedFile(of: outcome, for: interest, in: &records) else { return outcome }
        return makeRoomInSpool()
            ? Delivery.outcomeWithDemandedFile(file, of: outcome, in: &records)
            : Delivery.releaseDemandedFile(file, of: outcome, in: &records)
    }

    /// Frees a request's record and releases everything that it holds.
    mutating func freeRequest(_ interest: Handle<Interest>) {
        freeRequestID(of: interest)
        let record = records.requests[interest]
        if let outcome = record.outcome { records.releaseOutcome(outcome) }
        if let number = record.rareOptions, records.requests[number].ownHeaderFields != nil {
            records.uncountRequestHead(of: .joinedRequest(interest))
        }
        records.requests.removeInterest(interest)
        records.handlers.releaseHandler(record.handler)
        removeHandlerIfIdle(record.handler)
    }
}
