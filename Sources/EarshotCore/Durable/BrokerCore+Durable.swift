internal import EarshotHTTP
internal import EarshotWire

/// Durable requests: on disk from before they are accepted until they are acknowledged or removed.
///
/// Each belongs to its handler. Its interest has three additional phases: `entering` while the request is being
/// written, `recording` while its outcome is being written, and `resting` while the outcome is on disk only.
extension BrokerCore {
    // MARK: Events

    /// Accepts a request that has been written to disk.
    public mutating func durableStored(_ id: DurableID, now: Tick) {
        clock = now
        guard let interest = durables.number(of: id), let entering = durables.entering(interest),
            let fetch = entering.fetch
        else { return }
        // The reply to its removal was sent, so it is not accepted any more.
        guard !isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        durables.stored(interest)
        releaseHead(of: .entering(interest))
        let askers = liveAskers(of: entering)
        for asker in askers { reply(.message(.accepted(fetch.handler, fetch.request)), to: asker) }
        setExpiry(of: interest)
        begin(interest, fetch, of: askers.first.map { clients[$0.client].id } ?? RequestHeads.nobody, now: now)
    }

    /// Refuses a request that could not be written: the durable storage is full, or the disk failed.
    public mutating func durableRefused(_ id: DurableID, isFull: Bool, now: Tick) {
        clock = now
        guard let interest = durables.number(of: id), let entering = durables.entering(interest) else { return }
        guard !isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        forgetDurable(interest)
        turnAway(interest, Refusal(code: isFull ? .queueFull : .notStored), telling: liveAskers(of: entering))
    }

    /// Delivers an outcome after the attempt to write it.
    public mutating func durableRecorded(_ id: DurableID, isStored: Bool, now: Tick) {
        clock = now
        guard let interest = durables.number(of: id), durables.isWriting(interest) else { return }
        guard !isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        durables.written(interest, isStored: isStored)
        if !isStored { chargeDurable(interest, result: 0) }
        publishRecorded(interest)
    }

    /// Delivers a result read from disk; nil if it is missing. The core takes ownership of a file.
    public mutating func durableRead(_ id: DurableID, _ content: DurableContent?, now: Tick) {
        clock = now
        if case .file(let file) = content?.body { outcomes.hold(file: file, bytes: 0, isShared: true) }
        publishRead(id, content)
    }

    private mutating func publishRead(_ id: DurableID, _ content: DurableContent?) {
        guard let interest = durables.readEnded(id), !isDoomed(interest) else {
            if let content { drop(content.body) }
            return
        }
        let listeners = listeners(of: interests[interest].handler)
        guard !listeners.isEmpty else {
            if let content { drop(content.body) }
            return
        }
        takeFromRest(interest)
        let number = outcomes.insert(outcome(of: content, for: interest))
        outcomes.retain(number)
        defer { release(number) }
        publishFormed(interest, number, to: listeners)
    }

    /// Publishes an outcome in the form that the request demands.
    private mutating func publishFormed(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, to listeners: [Handle<ClientSession>]
    ) {
        let formed = formed(outcome, for: interest)
        accountOutcome(of: interest, formed)
        publish(interest, formed, to: listeners)
        if formed != outcome { release(formed) }
    }

    // MARK: Acceptance

    /// Has a new request written to disk. The request is accepted after that.
    mutating func keep(_ interest: Handle<Interest>, _ fetch: Fetch, by client: Handle<ClientSession>) {
        let asker = asker(client)
        let request: HTTPRequest
        do throws(Refusal) {
            request = try keepable(interest, fetch, by: clients[client].id)
        } catch {
            turnAway(interest, error, telling: [LiveAsker(client: client, number: asker.number)])
            return
        }
        // A request restored after a restart must not replace others again.
        var kept = fetch
        kept.options.replacesHandler = false
        let head = ClientMessage.fetch(kept).encoded()
        if let obstacle = obstacle(toDurable: head.count + Self.durableRowBytes, of: interest) {
            turnAway(interest, obstacle, telling: [LiveAsker(client: client, number: asker.number)])
            return
        }
        let entering = DurableRecord.Entering(fetch, by: asker)
        let id = durables.insert(interest, acceptedAt: interests[interest].askedAt, entering)
        interests[interest].enter(.entering)
        holdHead(of: request, for: .entering(interest), of: clients[client].id, by: principal(of: interest))
        chargeDurable(interest, request: head.count + Self.durableRowBytes)
        actions.append(
            .durable(
                .store(
                    id, principals.name(of: clients[client].principal), acceptedAt: calendarSeconds,
                    head: head)))
    }

    /// Validates a durable request. Only safe methods are accepted, because a crash leaves it unknown whether a request
    /// was sent.
    private mutating func keepable(
        _ interest: Handle<Interest>, _ fetch: Fetch, by client: ClientID
    ) throws(Refusal) -> HTTPRequest {
        guard facilities.isKeeping, settings[.durableSize] ?? 0 > 0 else { throw Refusal(code: .notStored) }
        guard HTTPMethod(fetch.options.method)?.canCoalesce == true else { throw Refusal(code: .unsupportedMethod) }
        if let refusal = refusal(of: interest) { throw refusal }
        let request = try prepared(fetch, for: interests[interest].handler)
        let bytes = RequestHeads.counted(request)
        if let obstacle = obstacle(toHead: bytes, of: client, by: principal(of: interest)) { throw obstacle }
        return request
    }

    /// Ends a request that is not accepted. The senders of the FETCH get a reply, and other subscribers a terminal.
    private mutating func turnAway(
        _ interest: Handle<Interest>, _ refusal: Refusal, telling askers: [LiveAsker]
    ) {
        let listeners = listeners(of: interests[interest].handler).filter { client in
            !askers.contains { $0.client == client }
        }
        refuse(interest, refusal, to: askers)
        let outcome = outcomes.insert(Outcome(failure: refusal.code, detail: refusal.detail))
        outcomes.retain(outcome)
        accountOutcome(of: interest, outcome)
        publish(interest, outcome, to: listeners)
        release(outcome)
    }

    /// Replies to its senders that the request was not accepted. Like ACCEPTED, this reply has no
    /// sequence number and needs no acknowledgement.
    mutating func refuse(_ interest: Handle<Interest>, _ refusal: Refusal, to askers: [LiveAsker]) {
        guard !askers.isEmpty else { return }
        let record = interests[interest]
        let tag = record.extras.flatMap { extras[$0].tag }
        let detail = refusal.detail ?? refusal.code.sentence
        let failure = Terminal.Failure(code: refusal.code.rawValue, detail: detail)
        let terminal = Terminal(
            handler: handlers[record.handler].id, request: record.request, sequence: 0, tag: tag,
            outcome: .failed(failure))
        for asker in askers { reply(.message(.terminal(terminal)), to: asker) }
    }

    /// Messages that await the reply to a request in phase `entering`. Called for no other phase, since the call copies
    /// the references to all tables.
    ///
    /// - Parameter remover: client whose messages without numbers get no reply, because it removes the request.
    func waitingAskers(of interest: Handle<Interest>, except remover: ClientID?) -> [LiveAsker] {
        guard let entering = durables.entering(interest) else { return [] }
        return liveAskers(of: entering).filter { $0.number > 0 || clients[$0.client].id != remover }
    }

    /// Messages of live sessions that await the reply, including sessions that are away.
    func liveAskers(of entering: DurableRecord.Entering) -> [LiveAsker] {
        entering.askers.compactMap { live($0) }
    }

    private func live(_ asker: Asker) -> LiveAsker? {
        guard let client = clients.resolve(asker.session), !clients[client].isGone else { return nil }
        return LiveAsker(client: client, number: asker.number)
    }

    /// Replies to a repeated FETCH of a durable request, now or when it is on disk.
    mutating func askedAgainDurably(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        guard isDurable(interest) else { return }
        if let entering = durables.entering(interest) {
            awaitReply(to: entering, client)
        } else {
            reply(
                .message(.accepted(handlers[interests[interest].handler].id, interests[interest].request)), to: client)
        }
    }

    /// Adds a client to those that await the reply.
    mutating func awaitReply(to entering: DurableRecord.Entering, _ client: Handle<ClientSession>) {
        let asker = asker(client)
        guard asker.number > 0 || !entering.askers.contains(asker) else { return }
        // Without ended sessions the list is bounded by the clients and their unanswered numbers, however slow the disk is.
        entering.askers = entering.askers.filter { live($0) != nil } + [asker]
    }

    /// Queues or looks up a request that is on disk.
    mutating func begin(_ interest: Handle<Interest>, _ fetch: Fetch, of client: ClientID, now: Tick) {
        if let deadline = fetch.options.deadlineMilliseconds {
            let subject = Timer.Subject.deadline(interests.reference(to: interest))
            setTimer(interests[interest].askedAt.advanced(byMilliseconds: deadline), subject)
        }
        do throws(Refusal) {
            let request = try prepared(fetch, for: interests[interest].handler)
            // A restored request is open from the start.
            if interests[interest].phase == .entering { interests[interest].enter(.open) }
            wait(interest, for: request, fetch.options, body: nil, of: client)
        } catch {
            let outcome = Outcome(failure: error.code, detail: error.detail, url: fetch.url)
            settle(interest, with: outcomes.insert(outcome), now: now)
        }
    }

    // MARK: Results

    /// Writes the outcome of a durable request to disk. Its listeners receive the outcome after that. Called by
    /// `settle`.
    mutating func record(_ interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        outcomes.retain(outcome)
        interests[interest].enter(.recording)
        interests[interest].outcome = outcome
        let (terminal, body) = terminal(of: interest, sequence: 0)
        let response = outcomes[outcome].response
        let file = interests[interest].isWarm ? nil : response?.file
        let hasBody = body != nil || file != nil
        let bytes = hasBody ? response?.length ?? 0 : 0
        let summary = DurableSummary(
            failure: outcomes[outcome].failure, status: response?.status, attempts: outcomes[outcome].attempts,
            url: response?.url ?? outcomes[outcome].url)
        let head = BrokerMessage.terminal(terminal.withoutFile()).encoded()
        guard hasRoomForDurable(bytes + head.count, of: interest),
            let id = durables.beginWriting(interest, bytes: file == nil ? bytes : 0, summary)
        else {
            publishRecorded(interest)
            return
        }
        chargeDurable(interest, result: bytes + head.count)
        if let file { outcomes.shareFile(file) }
        let result = DurableResult(
            head: head, length: bytes, sha256: hasBody ? response?.sha256 : nil,
            body: body, file: file)
        actions.append(.durable(.storeResult(id, result)))
    }

    /// Publishes an outcome to the listeners. Until one of them has room it waits on disk, or without listeners as a
    /// failure in memory if it was not stored.
    private mutating func publishRecorded(_ interest: Handle<Interest>) {
        let listeners = listeners(of: interests[interest].handler)
        guard let outcome = takeOutcome(of: interest) else { return }
        defer { release(outcome) }
        let isStored = durables.hasResult(interest)
        if !listeners.isEmpty, !isStored || isExpired(interest) || listeners.contains(where: { hasRoom($0) }) {
            publishFormed(interest, outcome, to: listeners)
        } else if isStored {
            rest(interest, isDue: !listeners.isEmpty)
        } else {
            // The request stays on disk, and the next broker may have room for its result.
            let failure = outcomes.insert(outcomes[outcome].replaced(by: .notStored))
            outcomes.retain(failure)
            interests[interest].enter(.held)
            interests[interest].outcome = failure
            handlers.outcomeHeld(of: interests[interest].handler)
        }
    }

    /// Takes back a terminal that no client has acknowledged. It waits for a listener again.
    ///
    /// - Parameter failure: its failure; nil for a result.
    mutating func takeBack(_ interest: Handle<Interest>, after failure: FailureCode?) {
        reopen(interest) { requests in
            guard let failure else {
                requests.answered -= 1
                return
            }
            let left = requests.failed[failure.rawValue, default: 1] - 1
            requests.failed[failure.rawValue] = left > 0 ? left : nil
        }
        let outcome = takeOutcome(of: interest)
        if durables.hasResult(interest) {
            rest(interest)
        } else if let outcome {
            record(interest, outcome)
        }
        if let outcome { release(outcome) }
    }

    /// Reverses `account` for a request that belongs to its handler.
    private mutating func reopen(_ interest: Handle<Interest>, _ change: (inout Ledger.Requests) -> Void) {
        let handler = interests[interest].handler
        ledger.requests.pending += 1
        change(&ledger.requests)
        quotas.requests(1, of: handlers[handler].principal)
        handlers.requestReopened(of: handler, change)
    }

    /// Enters `resting`: the outcome is on disk only.
    ///
    /// - Parameter isDue: whether its present listeners have not received it.
    mutating func rest(_ interest: Handle<Interest>, isDue: Bool = false) {
        let handler = interests[interest].handler
        interests[interest].enter(.resting)
        handlers.rest(interest, of: handler)
        countKept(interest, 1)
        if isExpired(interest) {
            orphan(interest)
        } else if isDue || listeners(of: handler).contains(where: { !keepsFailure(of: interest, $0) }) {
            claimResult(interest)
        }
    }

    /// Whether a request has a failure on disk that stays after the acknowledgement of this client.
    func keepsFailure(of interest: Handle<Interest>, _ client: Handle<ClientSession>) -> Bool {
        clients[client].keepsFailures && durables.failure(of: interest) != nil
    }

    /// Leaves `resting` for `recording`, before another phase is entered.
    mutating func takeFromRest(_ interest: Handle<Interest>) {
        countKept(interest, -1)
        handlers.endRest(interest, of: interests[interest].handler)
        interests[interest].enter(.recording)
    }

    /// Counts a pending request whose failure is kept on disk.
    private mutating func countKept(_ interest: Handle<Interest>, _ change: Int) {
        guard durables.failure(of: interest) != nil else { return }
        ledger.requests.kept += change
        handlers.failureKept(change, of: interests[interest].handler)
    }

    /// The outcome read from disk, as it was when it was written; a failure if it cannot be decoded.
    private func outcome(of content: DurableContent?, for interest: Handle<Interest>) -> Outcome {
        let record = interests[interest]
        guard let content, case .terminal(let terminal)? = try? BrokerMessage(head: content.head) else {
            return Outcome(failure: .notStored, url: durables.records[interest]?.summary?.url)
        }
        var response: Outcome.Response?
        if let told = terminal.response {
            let begun = record.askedAt.advanced(byMilliseconds: told.queuedMilliseconds)
            let ended = record.askedAt.advanced(byMilliseconds: told.elapsedMilliseconds)
            response = Outcome.Response(
                status: 0, url: told.url, length: min(told.length, WireLimits.bodyBytes), sha256: told.sha256,
                file: nil, body: nil,
                fields: told.httpFields, startedAt: begun, endedAt: ended, resumedBytes: told.resumedBytes,
                source: told.source)
            switch content.body {
            case .missing: break
            case .inline(let body): response?.body = body
            case .file(let file): response?.file = file
            }
        }
        switch terminal.outcome {
        case .result(let status, let told):
            response?.status = status
            return Outcome(response: response, attempts: told.attempts)
        case .failed(let failure):
            response?.status = failure.status ?? 0
            return Outcome(
                failure: FailureCode(rawValue: failure.code) ?? .internalError, detail: failure.detail,
                url: failure.url, response: response, attempts: failure.attempts)
        }
    }

    // MARK: Ends

    func isDurable(_ interest: Handle<Interest>) -> Bool { durables.contains(interest) }

    /// Deletes a request from disk when its ID is free. No effect on other requests.
    mutating func forgetDurable(_ interest: Handle<Interest>) {
        guard isDurable(interest), let record = takeRecord(of: interest) else { return }
        actions.append(.durable(.forget(record.id)))
    }

    /// Releases what the interest holds in a durable phase. The caller enters the next phase.
    mutating func releaseStored(_ interest: Handle<Interest>) {
        if interests[interest].phase == .resting { takeFromRest(interest) }
        if let outcome = takeOutcome(of: interest) { release(outcome) }
    }

    /// Removes the durable state of a request, with everything that it holds.
    private mutating func takeRecord(of interest: Handle<Interest>) -> DurableRecord? {
        releaseHead(of: .entering(interest))
        chargeDurable(interest, request: 0, result: 0)
        if interests[interest].phase == .resting { takeFromRest(interest) }
        guard let record = durables.remove(interest) else { return nil }
        if let file = record.file { releaseFile(file) }
        return record
    }

    // MARK: Expiry

    /// Sets the timer for the end of the retention time. An earlier one becomes stale.
    ///
    /// - Parameter later: a later time; nil for the end of the retention time.
    mutating func setExpiry(of interest: Handle<Interest>, at later: Tick? = nil) {
        guard durables.contains(interest) else { return }
        let timer = nextSerial()
        guard let end = durables.setExpiryTimer(timer, of: interest) else { return }
        setTimer(later ?? end, .expired(interest: interest, timer: timer))
    }

    /// Sets new expiry timers after a change of the retention time. O(durable requests).
    mutating func resetExpiries() {
        for interest in durables.records.keys.sorted() { setExpiry(of: interest) }
    }

    private func isExpired(_ interest: Handle<Interest>) -> Bool {
        durables.expiry(of: interest).map { $0 <= clock } ?? false
    }

    /// Ends a request after its retention time. Its listeners get a terminal; without listeners it counts as orphaned.
    mutating func expired(_ interest: Handle<Interest>, now: Tick) {
        guard !isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        let hasListeners = !listeners(of: interests[interest].handler).isEmpty
        switch interests[interest].phase {
        // Checked again when the write or delivery in progress ends.
        case .entering, .recording, .delivering: break
        case .open where hasListeners:
            endAlone(interest, .expired, now: now)
        case .held where hasListeners, .resting where hasListeners:
            // It waits for room in the window of a listener, which may leave.
            setExpiry(of: interest, at: now.advanced(byMilliseconds: limits.graceMilliseconds))
        case .open, .held, .resting: orphan(interest)
        }
    }
}
