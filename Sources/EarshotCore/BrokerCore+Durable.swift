internal import EarshotHTTP
internal import EarshotWire

/// Durable requests: on disk from before they are accepted until they are acknowledged or removed.
///
/// Each belongs to its handler. Its interest has three additional phases: `awaitingDurableAcceptance` while the request
/// is being written, `writingOutcome` while its outcome is being written, and `outcomeOnlyOnDisk` while the outcome is
/// on disk only.
extension BrokerCore {
    // MARK: Events

    /// Returns the durable request with this ID; nil if it is gone. Removes a doomed one, because the reply to its
    /// removal was sent.
    mutating func liveDurableInterest(_ id: DurableID) -> Handle<Interest>? {
        guard let interest = records.durables.handle(of: id) else { return nil }
        guard records.isAwaitingRemoval(interest) else { return interest }
        removeRequest(interest)
        return nil
    }

    /// Accepts a request that has been written to disk.
    public mutating func durableRequestStored(_ id: DurableID, now: MonotonicTime) {
        records.latestEventTime = now
        guard let interest = liveDurableInterest(id), let unaccepted = records.durables.unacceptedRequest(interest),
            let fetch = unaccepted.fetch
        else { return }
        records.durables.requestStored(interest)
        records.uncountRequestHead(of: .durableRequest(interest))
        let requesters = Durable.liveRequesters(of: unaccepted, in: &records)
        for requester in requesters {
            replyToEarlierMessage(.message(.fetchAccepted(fetch.handler, fetch.request)), to: requester)
        }
        Durable.setExpiry(of: interest, in: &records)
        beginStoredRequest(
            interest, fetch, of: requesters.first.map { records.clients[$0.client].id } ?? RequestHeads.noClientID,
            now: now)
    }

    /// Refuses a request that could not be written: the durable storage is full, or the disk failed.
    public mutating func durableRequestStoreFailed(_ id: DurableID, isFull: Bool, now: MonotonicTime) {
        records.latestEventTime = now
        guard let interest = liveDurableInterest(id), let unaccepted = records.durables.unacceptedRequest(interest)
        else { return }
        Durable.deleteFromDiskIfDurable(interest, in: &records)
        rejectDurableRequest(
            interest, RequestRefusal(code: isFull ? .queueFull : .notStored),
            answering: Durable.liveRequesters(of: unaccepted, in: &records))
    }

    /// Delivers an outcome after the attempt to write it.
    public mutating func durableOutcomeWritten(_ id: DurableID, isStored: Bool, now: MonotonicTime) {
        records.latestEventTime = now
        guard let interest = liveDurableInterest(id), records.durables.isWriting(interest) else { return }
        records.durables.resultWriteEnded(interest, isStored: isStored)
        if !isStored { records.chargeDurableBytes(interest, result: 0) }
        publishStoredOutcome(of: interest)
    }

    /// Delivers a result read from disk; nil if it is missing. The core takes ownership of a file.
    public mutating func durableResultRead(_ id: DurableID, _ content: DurableOutcome?, now: MonotonicTime) {
        records.latestEventTime = now
        if case .file(let file) = content?.body { records.outcomes.retainFile(file, bytes: 0, isShared: true) }
        let read = records.durables.resultReadEnded(id)
        let subscribers = read.map { records.subscribers(of: records.requests[$0].handler) } ?? []
        guard let interest = read, !records.isAwaitingRemoval(interest), !subscribers.isEmpty else {
            if let content { records.releaseCachedBody(content.body) }
            return
        }
        Durable.leaveOutcomeOnlyOnDisk(interest, in: &records)
        let number = records.outcomes.insert(Durable.storedOutcome(of: content, for: interest, in: &records))
        records.outcomes.addReference(to: number)
        defer { records.releaseOutcome(number) }
        publishInDemandedForm(interest, number, to: subscribers)
    }

    /// Publishes an outcome in the form that the request demands.
    private mutating func publishInDemandedForm(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, to subscribers: [Handle<ClientSession>]
    ) {
        let formed = outcomeInDemandedForm(outcome, for: interest)
        countOutcome(of: interest, formed)
        publishTerminal(of: interest, formed, to: subscribers)
        if formed != outcome { records.releaseOutcome(formed) }
    }

    // MARK: Acceptance

    /// Has a new request written to disk. The request is accepted after that.
    mutating func storeRequest(_ interest: Handle<Interest>, _ fetch: Fetch, by client: Handle<ClientSession>) {
        let requester = deferReply(to: client)
        // A request restored after a restart must not replace others again.
        var kept = fetch
        kept.options.replacesHandler = false
        let head = ClientMessage.fetch(kept).encoded()
        let request: HTTPRequest
        do throws(RequestRefusal) {
            request = try validatedDurableRequest(interest, fetch, by: records.clients[client].id)
            if let refusal = Principals.quotaRefusal(
                ofDurable: head.count + DurableRecord.rowOverheadBytes, of: interest, in: &records)
            {
                throw refusal
            }
        } catch {
            return rejectDurableRequest(
                interest, error, answering: [LiveRequester(client: client, number: requester.number)])
        }
        let unaccepted = DurableRecord.UnacceptedRequest(fetch, by: requester)
        let id = records.durables.insertRequest(
            interest, acceptedAt: records.requests[interest].requestedAt, unaccepted)
        records.requests[interest].enter(.awaitingDurableAcceptance)
        records.countRequestHead(
            of: request, for: .durableRequest(interest), of: records.clients[client].id,
            by: records.principal(of: interest))
        records.chargeDurableBytes(interest, request: head.count + DurableRecord.rowOverheadBytes)
        let principal = records.principals.name(of: records.clients[client].principal)
        records.outbox.actions.append(
            .durable(.storeRequest(id, principal, acceptedAt: records.calendarSeconds, head: head)))
    }

    /// Validates a durable request. Only safe methods are accepted, because a crash leaves it unknown whether a request
    /// was sent.
    private mutating func validatedDurableRequest(
        _ interest: Handle<Interest>, _ fetch: Fetch, by client: ClientID
    ) throws(RequestRefusal) -> HTTPRequest {
        guard records.shellFeatures.isStoringDurableRequests, records.settings[.durableSize] ?? 0 > 0 else {
            throw RequestRefusal(code: .notStored)
        }
        guard HTTPMethod(fetch.options.method)?.canCoalesce == true else {
            throw RequestRefusal(code: .unsupportedMethod)
        }
        if let refusal = Flights.admissionRefusal(of: interest, in: &records) { throw refusal }
        let request = try preparedRequest(fetch, for: records.requests[interest].handler)
        let bytes = RequestHeads.countedBytes(of: request)
        if let refusal = Principals.quotaRefusal(
            ofHead: bytes, of: client, by: records.principal(of: interest), in: &records)
        {
            throw refusal
        }
        return request
    }

    /// Ends a request that is not accepted. The senders of the FETCH get a reply, and other subscribers a terminal.
    private mutating func rejectDurableRequest(
        _ interest: Handle<Interest>, _ refusal: RequestRefusal, answering requesters: [LiveRequester]
    ) {
        let subscribers = records.subscribers(of: records.requests[interest].handler).filter { client in
            !requesters.contains { $0.client == client }
        }
        sendRefusal(of: interest, refusal, to: requesters)
        let outcome = records.outcomes.insert(Outcome(failure: refusal.code, detail: refusal.detail))
        records.outcomes.addReference(to: outcome)
        countOutcome(of: interest, outcome)
        publishTerminal(of: interest, outcome, to: subscribers)
        records.releaseOutcome(outcome)
    }

    /// Sends the senders of a FETCH the reply that the request was not accepted. Like ACCEPTED, this reply has no
    /// sequence number and needs no acknowledgement.
    mutating func sendRefusal(
        of interest: Handle<Interest>, _ refusal: RequestRefusal, to requesters: [LiveRequester]
    ) {
        guard !requesters.isEmpty else { return }
        let record = records.requests[interest]
        let detail = refusal.detail ?? refusal.code.userMessage
        let failure = Terminal.Failure(code: refusal.code.rawValue, detail: detail)
        let terminal = Terminal(
            handler: records.handlers[record.handler].id, request: record.request, sequence: 0,
            outcome: .failed(failure))
        for requester in requesters { replyToEarlierMessage(.message(.terminal(terminal)), to: requester) }
    }

    /// Replies to a repeated FETCH of a durable request, now or when it is on disk.
    mutating func durableFetchRepeated(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        guard records.isDurable(interest) else { return }
        if let unaccepted = records.durables.unacceptedRequest(interest) {
            let requester = deferReply(to: client)
            Durable.addRequester(requester, to: unaccepted, in: &records)
        } else {
            let record = records.requests[interest]
            let handler = records.handlers[record.handler].id
            replyToCurrentMessage(.message(.fetchAccepted(handler, record.request)), to: client)
        }
    }

    /// Queues or looks up a request that is on disk.
    mutating func beginStoredRequest(
        _ interest: Handle<Interest>, _ fetch: Fetch, of client: ClientID, now: MonotonicTime
    ) {
        if let deadline = fetch.options.deadlineMilliseconds {
            let subject = CoreTimer.TimerEvent.requestDeadline(records.requests.reference(to: interest))
            records.setTimer(
                at: records.requests[interest].requestedAt.advanced(byMilliseconds: deadline), for: subject)
        }
        do throws(RequestRefusal) {
            let request = try preparedRequest(fetch, for: records.requests[interest].handler)
            // A restored request is open from the start.
            if records.requests[interest].phase == .awaitingDurableAcceptance {
                records.requests[interest].enter(.open)
            }
            attachToFlight(interest, for: request, fetch.options, body: nil, of: client)
        } catch {
            let outcome = Outcome(failure: error.code, detail: error.detail, url: fetch.url)
            endRequest(interest, with: records.outcomes.insert(outcome), now: now)
        }
    }

    // MARK: Results

    /// Writes the outcome of a durable request to disk. Its subscribers receive the outcome after that. Called by
    /// `endRequest`.
    mutating func storeOutcome(of interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        records.outcomes.addReference(to: outcome)
        records.requests[interest].enter(.writingOutcome)
        records.requests[interest].outcome = outcome
        let (terminal, body) = Delivery.terminalMessage(of: interest, sequence: 0, isStored: true, in: records)
        if !Durable.writeOutcome(terminal, body, of: outcome, for: interest, in: &records) {
            publishStoredOutcome(of: interest)
        }
    }

    /// Publishes an outcome to the subscribers. A stored outcome waits on disk until one of them has room. One that was
    /// not stored waits, without subscribers, in memory as a failure.
    private mutating func publishStoredOutcome(of interest: Handle<Interest>) {
        let subscribers = records.subscribers(of: records.requests[interest].handler)
        guard let outcome = records.takeOutcome(of: interest) else { return }
        defer { records.releaseOutcome(outcome) }
        let isStored = records.durables.hasResult(interest)
        if !subscribers.isEmpty,
            !isStored || Durable.isExpired(interest, in: &records)
                || subscribers.contains(where: { records.hasRoomForStoredResult($0) })
        {
            publishInDemandedForm(interest, outcome, to: subscribers)
        } else if isStored {
            keepOutcomeOnDisk(of: interest, isDue: !subscribers.isEmpty)
        } else {
            // The request stays on disk, and the next broker may have room for its result.
            let failure = records.outcomes.insert(records.outcomes[outcome].replacedByFailure(.notStored))
            records.outcomes.addReference(to: failure)
            records.requests[interest].enter(.awaitingSubscriber)
            records.requests[interest].outcome = failure
            records.handlers.countHeldOutcome(of: records.requests[interest].handler)
        }
    }

    /// Holds a terminal that no client has acknowledged until a subscriber comes.
    ///
    /// - Parameter failure: its failure; nil for a result.
    mutating func holdUnacknowledgedTerminal(of interest: Handle<Interest>, after failure: FailureCode?) {
        Durable.reopenAccountedRequest(interest, in: &records) { requests in
            guard let failure else {
                requests.answered -= 1
                return
            }
            let left = requests.failed[failure.rawValue, default: 1] - 1
            requests.failed[failure.rawValue] = left > 0 ? left : nil
        }
        let outcome = records.takeOutcome(of: interest)
        if records.durables.hasResult(interest) {
            keepOutcomeOnDisk(of: interest)
        } else if let outcome {
            storeOutcome(of: interest, outcome)
        }
        if let outcome { records.releaseOutcome(outcome) }
    }

    /// Enters `outcomeOnlyOnDisk`.
    ///
    /// - Parameter isDue: whether its present subscribers have not received it.
    mutating func keepOutcomeOnDisk(of interest: Handle<Interest>, isDue: Bool = false) {
        let handler = records.requests[interest].handler
        records.requests[interest].enter(.outcomeOnlyOnDisk)
        records.handlers.addDurableAwaitingSubscriber(interest, of: handler)
        Durable.countPendingWithStoredFailure(interest, 1, in: &records)
        if Durable.isExpired(interest, in: &records) {
            endOrphanedRequest(interest)
        } else if isDue
            || records.subscribers(of: handler).contains(where: {
                !Durable.retainsFailureAfterAck(of: interest, $0, in: &records)
            })
        {
            Delivery.claimStoredResult(interest, in: &records)
        }
    }

    // MARK: Expiry

    /// Ends a request after its retention time. Its subscribers get a terminal; without subscribers it counts as orphaned.
    mutating func requestRetentionExpired(_ interest: Handle<Interest>, now: MonotonicTime) {
        guard !records.isAwaitingRemoval(interest) else {
            removeRequest(interest)
            return
        }
        let hasSubscribers = !records.subscribers(of: records.requests[interest].handler).isEmpty
        switch records.requests[interest].phase {
        // Checked again when the write or delivery in progress ends.
        case .awaitingDurableAcceptance, .writingOutcome, .delivering: break
        case .open where hasSubscribers:
            endSingleRequest(interest, .retentionExpired, now: now)
        case .awaitingSubscriber where hasSubscribers, .outcomeOnlyOnDisk where hasSubscribers:
            // It waits for room in the window of a subscriber, which may leave.
            Durable.setExpiry(
                of: interest, at: now.advanced(byMilliseconds: records.limits.subscriberGraceMilliseconds), in: &records
            )
        case .open, .awaitingSubscriber, .outcomeOnlyOnDisk: endOrphanedRequest(interest)
        }
    }
}

/// RETRY: a durable request that has failed becomes pending again.
///
/// Its row stays on disk all the time: with the failure until that is deleted, and without a result afterwards. So a
/// crash at any moment leaves one of the two, and the new attempt starts after the deletion.
extension BrokerCore {
    /// Handles RETRY. A request whose failure a client has received is not repeated, because the acknowledgement may be
    /// on the way.
    mutating func retryRequested(_ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>) {
        guard let number = records.handlers.handle(of: records.handlerKey(handler, of: client)),
            let interest = records.interestHoldingID(request, of: number), records.isDurable(interest)
        else {
            refuseMessage(
                of: client, code: "unknown-request", detail: "there is no such durable request",
                .retry(handler, request))
            return
        }
        switch records.requests[interest].phase {
        case .awaitingDurableAcceptance, .open, .writingOutcome: durableFetchRepeated(interest, by: client)
        case .outcomeOnlyOnDisk
        where records.durables.hasUnreadResult(interest) && records.durables.storedFailure(of: interest) != nil:
            reopenDurableRequest(interest, by: client)
        case .outcomeOnlyOnDisk, .awaitingSubscriber, .delivering:
            let detail = "the request has no failure on disk, or a subscriber receives it"
            refuseMessage(of: client, code: "unknown-request", detail: detail, .retry(handler, request))
        }
    }

    /// Deletes the failure of a request in `outcomeOnlyOnDisk`. No limit refuses this, because the request counts as
    /// pending already.
    private mutating func reopenDurableRequest(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        Durable.leaveOutcomeOnlyOnDisk(interest, in: &records)
        records.requests[interest].enter(.awaitingDurableAcceptance)
        guard
            let id = records.durables.beginReopening(
                interest, DurableRecord.UnacceptedRequest(nil, by: deferReply(to: client)))
        else {
            preconditionFailure("request \(interest) is on disk and not in the book")
        }
        records.outbox.actions.append(.durable(.reopenRequest(id, acceptedAt: records.calendarSeconds)))
    }

    /// Starts a repeated request, whose failure was deleted.
    ///
    /// - Parameter head: the FETCH of the request; nil if the deletion failed. The failure then waits again.
    public mutating func durableRequestReopened(_ id: DurableID, _ head: [UInt8]?, now: MonotonicTime) {
        records.latestEventTime = now
        guard let interest = liveDurableInterest(id), let unaccepted = records.durables.unacceptedRequest(interest)
        else { return }
        let requesters = Durable.liveRequesters(of: unaccepted, in: &records)
        guard let head, case .fetch(let fetch)? = try? ClientMessage(head: head) else {
            records.durables.reopeningFailed(interest)
            sendRefusal(of: interest, RequestRefusal(code: .notStored), to: requesters)
            keepOutcomeOnDisk(of: interest)
            return
        }
        if let file = records.durables.reopeningSucceeded(interest, acceptedAt: now) { records.releaseSpoolFile(file) }
        records.chargeDurableBytes(interest, result: 0)
        Durable.resetAttempts(interest, now: now, in: &records)
        for requester in requesters {
            replyToEarlierMessage(.message(.fetchAccepted(fetch.handler, fetch.request)), to: requester)
        }
        Durable.setExpiry(of: interest, in: &records)
        beginStoredRequest(interest, fetch, of: RequestHeads.noClientID, now: now)
    }
}
