internal import EarshotHTTP
internal import EarshotWire

/// Durable requests: on disk from before they are accepted until they are acknowledged or removed.
///
/// Each belongs to its handler. Its interest has three additional phases: `entering` while the request is being
/// written, `recording` while its outcome is being written, and `resting` while the outcome is on disk only.
extension BrokerCore {
    // MARK: Events

    /// The durable request with this ID; nil if it is gone. A doomed one is removed now: the reply to its removal was sent.
    mutating func liveInterest(_ id: DurableID) -> Handle<Interest>? {
        guard let interest = records.durables.handle(of: id) else { return nil }
        guard records.isDoomed(interest) else { return interest }
        removeRequest(interest)
        return nil
    }

    /// Accepts a request that has been written to disk.
    public mutating func durableStored(_ id: DurableID, now: Tick) {
        records.clock = now
        guard let interest = liveInterest(id), let entering = records.durables.entering(interest),
            let fetch = entering.fetch
        else { return }
        records.durables.requestStored(interest)
        records.releaseHead(of: .entering(interest))
        let requesters = Durable.liveRequesters(of: entering, in: &records)
        for requester in requesters { reply(.message(.accepted(fetch.handler, fetch.request)), to: requester) }
        Durable.setExpiry(of: interest, in: &records)
        begin(
            interest, fetch, of: requesters.first.map { records.clients[$0.client].id } ?? RequestHeads.noClient,
            now: now)
    }

    /// Refuses a request that could not be written: the durable storage is full, or the disk failed.
    public mutating func durableRefused(_ id: DurableID, isFull: Bool, now: Tick) {
        records.clock = now
        guard let interest = liveInterest(id), let entering = records.durables.entering(interest) else { return }
        Durable.forget(interest, in: &records)
        reject(
            interest, RequestRefusal(code: isFull ? .queueFull : .notStored),
            answering: Durable.liveRequesters(of: entering, in: &records))
    }

    /// Delivers an outcome after the attempt to write it.
    public mutating func durableRecorded(_ id: DurableID, isStored: Bool, now: Tick) {
        records.clock = now
        guard let interest = liveInterest(id), records.durables.isWriting(interest) else { return }
        records.durables.written(interest, isStored: isStored)
        if !isStored { records.chargeDurable(interest, result: 0) }
        publishRecorded(interest)
    }

    /// Delivers a result read from disk; nil if it is missing. The core takes ownership of a file.
    public mutating func durableRead(_ id: DurableID, _ content: DurableContent?, now: Tick) {
        records.clock = now
        if case .file(let file) = content?.body { records.outcomes.hold(file: file, bytes: 0, isShared: true) }
        let read = records.durables.readEnded(id)
        let listeners = read.map { records.listeners(of: records.requests[$0].handler) } ?? []
        guard let interest = read, !records.isDoomed(interest), !listeners.isEmpty else {
            if let content { records.drop(content.body) }
            return
        }
        Durable.takeFromRest(interest, in: &records)
        let number = records.outcomes.insert(Durable.outcome(of: content, for: interest, in: &records))
        records.outcomes.retain(number)
        defer { records.release(number) }
        publishFormed(interest, number, to: listeners)
    }

    /// Publishes an outcome in the form that the request demands.
    private mutating func publishFormed(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, to listeners: [Handle<ClientSession>]
    ) {
        let formed = outcomeInDemandedForm(outcome, for: interest)
        accountOutcome(of: interest, formed)
        publish(interest, formed, to: listeners)
        if formed != outcome { records.release(formed) }
    }

    // MARK: Acceptance

    /// Has a new request written to disk. The request is accepted after that.
    mutating func storeRequest(_ interest: Handle<Interest>, _ fetch: Fetch, by client: Handle<ClientSession>) {
        let requester = requester(client)
        // A request restored after a restart must not replace others again.
        var kept = fetch
        kept.options.replacesHandler = false
        let head = ClientMessage.fetch(kept).encoded()
        let request: HTTPRequest
        do throws(RequestRefusal) {
            request = try keepable(interest, fetch, by: records.clients[client].id)
            if let obstacle = Principals.obstacle(
                toDurable: head.count + DurableRecord.rowBytes, of: interest, in: &records)
            {
                throw obstacle
            }
        } catch {
            return reject(interest, error, answering: [LiveRequester(client: client, number: requester.number)])
        }
        let entering = DurableRecord.Entering(fetch, by: requester)
        let id = records.durables.insert(interest, acceptedAt: records.requests[interest].requestedAt, entering)
        records.requests[interest].enter(.entering)
        records.holdHead(
            of: request, for: .entering(interest), of: records.clients[client].id, by: records.principal(of: interest))
        records.chargeDurable(interest, request: head.count + DurableRecord.rowBytes)
        records.outbox.actions.append(
            .durable(
                .store(
                    id, records.principals.name(of: records.clients[client].principal),
                    acceptedAt: records.calendarSeconds,
                    head: head)))
    }

    /// Validates a durable request. Only safe methods are accepted, because a crash leaves it unknown whether a request
    /// was sent.
    private mutating func keepable(
        _ interest: Handle<Interest>, _ fetch: Fetch, by client: ClientID
    ) throws(RequestRefusal) -> HTTPRequest {
        guard records.features.isKeeping, records.settings[.durableSize] ?? 0 > 0 else {
            throw RequestRefusal(code: .notStored)
        }
        guard HTTPMethod(fetch.options.method)?.canCoalesce == true else {
            throw RequestRefusal(code: .unsupportedMethod)
        }
        if let refusal = Flights.refusal(of: interest, in: &records) { throw refusal }
        let request = try preparedRequest(fetch, for: records.requests[interest].handler)
        let bytes = RequestHeads.counted(request)
        if let obstacle = Principals.obstacle(
            toHead: bytes, of: client, by: records.principal(of: interest), in: &records)
        {
            throw obstacle
        }
        return request
    }

    /// Ends a request that is not accepted. The senders of the FETCH get a reply, and other subscribers a terminal.
    private mutating func reject(
        _ interest: Handle<Interest>, _ refusal: RequestRefusal, answering requesters: [LiveRequester]
    ) {
        let listeners = records.listeners(of: records.requests[interest].handler).filter { client in
            !requesters.contains { $0.client == client }
        }
        refuse(interest, refusal, to: requesters)
        let outcome = records.outcomes.insert(Outcome(failure: refusal.code, detail: refusal.detail))
        records.outcomes.retain(outcome)
        accountOutcome(of: interest, outcome)
        publish(interest, outcome, to: listeners)
        records.release(outcome)
    }

    /// Replies to its senders that the request was not accepted. Like ACCEPTED, this reply has no
    /// sequence number and needs no acknowledgement.
    mutating func refuse(_ interest: Handle<Interest>, _ refusal: RequestRefusal, to requesters: [LiveRequester]) {
        guard !requesters.isEmpty else { return }
        let record = records.requests[interest]
        let detail = refusal.detail ?? refusal.code.sentence
        let failure = Terminal.Failure(code: refusal.code.rawValue, detail: detail)
        let terminal = Terminal(
            handler: records.handlers[record.handler].id, request: record.request, sequence: 0,
            outcome: .failed(failure))
        for requester in requesters { reply(.message(.terminal(terminal)), to: requester) }
    }

    /// Replies to a repeated FETCH of a durable request, now or when it is on disk.
    mutating func durableFetchRepeated(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        guard records.isDurable(interest) else { return }
        if let entering = records.durables.entering(interest) {
            let requester = requester(client)
            Durable.add(requester, to: entering, in: &records)
        } else {
            reply(
                .message(
                    .accepted(
                        records.handlers[records.requests[interest].handler].id, records.requests[interest].request)),
                to: client)
        }
    }

    /// Queues or looks up a request that is on disk.
    mutating func begin(_ interest: Handle<Interest>, _ fetch: Fetch, of client: ClientID, now: Tick) {
        if let deadline = fetch.options.deadlineMilliseconds {
            let subject = Timer.Subject.deadline(records.requests.reference(to: interest))
            records.setTimer(records.requests[interest].requestedAt.advanced(byMilliseconds: deadline), subject)
        }
        do throws(RequestRefusal) {
            let request = try preparedRequest(fetch, for: records.requests[interest].handler)
            // A restored request is open from the start.
            if records.requests[interest].phase == .entering { records.requests[interest].enter(.open) }
            wait(interest, for: request, fetch.options, body: nil, of: client)
        } catch {
            let outcome = Outcome(failure: error.code, detail: error.detail, url: fetch.url)
            endRequest(interest, with: records.outcomes.insert(outcome), now: now)
        }
    }

    // MARK: Results

    /// Writes the outcome of a durable request to disk. Its listeners receive the outcome after that. Called by
    /// `endRequest`.
    mutating func record(_ interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        records.outcomes.retain(outcome)
        records.requests[interest].enter(.recording)
        records.requests[interest].outcome = outcome
        let (terminal, body) = Delivery.terminal(of: interest, sequence: 0, isStored: true, in: records)
        if !Durable.write(terminal, body, of: outcome, for: interest, in: &records) { publishRecorded(interest) }
    }

    /// Publishes an outcome to the listeners. Until one of them has room it waits on disk, or without listeners as a
    /// failure in memory if it was not stored.
    private mutating func publishRecorded(_ interest: Handle<Interest>) {
        let listeners = records.listeners(of: records.requests[interest].handler)
        guard let outcome = records.takeOutcome(of: interest) else { return }
        defer { records.release(outcome) }
        let isStored = records.durables.hasResult(interest)
        if !listeners.isEmpty,
            !isStored || Durable.isExpired(interest, in: &records) || listeners.contains(where: { records.hasRoom($0) })
        {
            publishFormed(interest, outcome, to: listeners)
        } else if isStored {
            leaveOnDisk(interest, isDue: !listeners.isEmpty)
        } else {
            // The request stays on disk, and the next broker may have room for its result.
            let failure = records.outcomes.insert(records.outcomes[outcome].replaced(by: .notStored))
            records.outcomes.retain(failure)
            records.requests[interest].enter(.held)
            records.requests[interest].outcome = failure
            records.handlers.outcomeHeld(of: records.requests[interest].handler)
        }
    }

    /// Takes back a terminal that no client has acknowledged. It waits for a listener again.
    ///
    /// - Parameter failure: its failure; nil for a result.
    mutating func returnUndelivered(_ interest: Handle<Interest>, after failure: FailureCode?) {
        Durable.reopen(interest, in: &records) { requests in
            guard let failure else {
                requests.answered -= 1
                return
            }
            let left = requests.failed[failure.rawValue, default: 1] - 1
            requests.failed[failure.rawValue] = left > 0 ? left : nil
        }
        let outcome = records.takeOutcome(of: interest)
        if records.durables.hasResult(interest) {
            leaveOnDisk(interest)
        } else if let outcome {
            record(interest, outcome)
        }
        if let outcome { records.release(outcome) }
    }

    /// Enters `resting`: the outcome is on disk only.
    ///
    /// - Parameter isDue: whether its present listeners have not received it.
    mutating func leaveOnDisk(_ interest: Handle<Interest>, isDue: Bool = false) {
        let handler = records.requests[interest].handler
        records.requests[interest].enter(.resting)
        records.handlers.addResting(interest, of: handler)
        Durable.countKept(interest, 1, in: &records)
        if Durable.isExpired(interest, in: &records) {
            orphan(interest)
        } else if isDue
            || records.listeners(of: handler).contains(where: { !Durable.keepsFailure(of: interest, $0, in: &records) })
        {
            Delivery.claimResult(interest, in: &records)
        }
    }

    // MARK: Expiry

    /// Ends a request after its retention time. Its listeners get a terminal; without listeners it counts as orphaned.
    mutating func expired(_ interest: Handle<Interest>, now: Tick) {
        guard !records.isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        let hasListeners = !records.listeners(of: records.requests[interest].handler).isEmpty
        switch records.requests[interest].phase {
        // Checked again when the write or delivery in progress ends.
        case .entering, .recording, .delivering: break
        case .open where hasListeners:
            endAlone(interest, .expired, now: now)
        case .held where hasListeners, .resting where hasListeners:
            // It waits for room in the window of a listener, which may leave.
            Durable.setExpiry(
                of: interest, at: now.advanced(byMilliseconds: records.limits.graceMilliseconds), in: &records)
        case .open, .held, .resting: orphan(interest)
        }
    }
}

/// RETRY: a durable request that has failed becomes pending again.
///
/// Its row stays on disk all the time: with the failure until that is deleted, and without a result afterwards. So a crash
/// at any moment leaves one of the two, and the new attempt starts after the deletion.
extension BrokerCore {
    /// Handles RETRY. A failure that a client has received is not repeated, because its acknowledgement may be on the way.
    mutating func retryRequested(_ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>) {
        guard let number = records.handlers.handle(of: records.key(handler, of: client)),
            let interest = records.listedInterest(request, of: number), records.isDurable(interest)
        else {
            refuse(client, "unknown-request", "there is no such durable request", .retry(handler, request))
            return
        }
        switch records.requests[interest].phase {
        case .entering, .open, .recording: durableFetchRepeated(interest, by: client)
        case .resting where records.durables.isUnread(interest) && records.durables.failure(of: interest) != nil:
            reopen(interest, by: client)
        case .resting, .held, .delivering:
            let detail = "the request has no failure on disk, or a subscriber receives it"
            refuse(client, "unknown-request", detail, .retry(handler, request))
        }
    }

    /// Deletes the failure of a resting request. No limit refuses this, because the request counts as pending already.
    private mutating func reopen(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        Durable.takeFromRest(interest, in: &records)
        records.requests[interest].enter(.entering)
        guard let id = records.durables.reopen(interest, DurableRecord.Entering(nil, by: requester(client))) else {
            preconditionFailure("request \(interest) is on disk and not in the book")
        }
        records.outbox.actions.append(.durable(.reopen(id, acceptedAt: records.calendarSeconds)))
    }

    /// Starts a repeated request, whose failure was deleted.
    ///
    /// - Parameter head: the FETCH of the request; nil if the deletion failed, so that the failure waits again.
    public mutating func durableReopened(_ id: DurableID, _ head: [UInt8]?, now: Tick) {
        records.clock = now
        guard let interest = liveInterest(id), let entering = records.durables.entering(interest) else { return }
        let requesters = Durable.liveRequesters(of: entering, in: &records)
        guard let head, case .fetch(let fetch)? = try? ClientMessage(head: head) else {
            records.durables.reopenFailed(interest)
            refuse(interest, RequestRefusal(code: .notStored), to: requesters)
            leaveOnDisk(interest)
            return
        }
        if let file = records.durables.reopened(interest, acceptedAt: now) { records.releaseFile(file) }
        records.chargeDurable(interest, result: 0)
        Durable.resetAttempts(interest, now: now, in: &records)
        for requester in requesters { reply(.message(.accepted(fetch.handler, fetch.request)), to: requester) }
        Durable.setExpiry(of: interest, in: &records)
        begin(interest, fetch, of: RequestHeads.noClient, now: now)
    }
}
