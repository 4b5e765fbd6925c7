internal import EarshotHTTP
internal import EarshotWire

/// Durable requests: their records, results and retention times, and the messages that await replies.
enum Durable {
    // MARK: Acceptance

    /// Messages that await the reply to a request in phase `entering`. Empty in any other.
    ///
    /// - Parameter remover: client whose messages without numbers get no reply, because it removes the request.
    static func waitingRequesters(
        of interest: Handle<Interest>, except remover: ClientID?, in records: inout Records
    ) -> [LiveRequester] {
        guard let entering = records.durables.entering(interest) else { return [] }
        return liveRequesters(of: entering, in: &records).filter {
            $0.number > 0 || records.clients[$0.client].id != remover
        }
    }

    /// Messages of live sessions that await the reply, including sessions that are away.
    static func liveRequesters(of entering: DurableRecord.Entering, in records: inout Records) -> [LiveRequester] {
        entering.requesters.compactMap { liveRequester($0, in: &records) }
    }

    private static func liveRequester(_ requester: Requester, in records: inout Records) -> LiveRequester? {
        guard let client = records.clients.resolve(requester.session), !records.clients[client].isGone else {
            return nil
        }
        return LiveRequester(client: client, number: requester.number)
    }

    /// Adds a message to those that await the reply.
    static func add(_ requester: Requester, to entering: DurableRecord.Entering, in records: inout Records) {
        guard requester.number > 0 || !entering.requesters.contains(requester) else { return }
        // Without ended sessions the list is bounded by the clients and their unanswered numbers, however slow the disk is.
        entering.requesters = entering.requesters.filter { liveRequester($0, in: &records) != nil } + [requester]
    }

    /// Forgets the earlier attempts of a request. Its times count from now, and timers of the earlier ones are stale.
    static func resetAttempts(_ interest: Handle<Interest>, now: Tick, in records: inout Records) {
        records.requests[interest].requestedAt = now
        records.requests[interest].generation = records.nextSerial()
        records.requests[interest].isShared = false
        if let number = records.requests[interest].extras { records.requests[number].redirects = [] }
    }

    // MARK: Results

    /// Has the outcome of a request written to disk.
    ///
    /// - Parameters:
    ///   - terminal: the message with the outcome.
    ///   - body: body of the message in memory.
    /// - Returns: false if there is no room.
    static func write(
        _ terminal: Terminal, _ body: BodyID?, of outcome: Handle<Outcome>, for interest: Handle<Interest>,
        in records: inout Records
    ) -> Bool {
        let response = records.outcomes[outcome].response
        let file = records.requests[interest].isWarm ? nil : response?.file
        let hasBody = body != nil || file != nil
        let bytes = hasBody ? response?.length ?? 0 : 0
        let summary = DurableSummary(
            failure: records.outcomes[outcome].failure, status: response?.status,
            attempts: records.outcomes[outcome].attempts,
            url: response?.url ?? records.outcomes[outcome].url)
        let head = BrokerMessage.terminal(terminal.withoutFile()).encoded()
        guard records.hasRoomForDurable(bytes + head.count, of: interest),
            let id = records.durables.beginWriting(interest, bytes: file == nil ? bytes : 0, summary)
        else {
            return false
        }
        records.chargeDurable(interest, result: bytes + head.count)
        if let file { records.outcomes.shareFile(file) }
        let result = DurableResult(
            head: head, length: bytes, sha256: hasBody ? response?.sha256 : nil,
            body: body, file: file)
        records.outbox.actions.append(.durable(.storeResult(id, result)))
        return true
    }

    /// The outcome read from disk, as it was when it was written; a failure if it cannot be decoded.
    static func outcome(
        of content: DurableContent?, for interest: Handle<Interest>, in records: inout Records
    ) -> Outcome {
        let record = records.requests[interest]
        guard let content, case .terminal(let terminal)? = try? BrokerMessage(head: content.head) else {
            return Outcome(failure: .notStored, url: records.durables.records[interest]?.summary?.url)
        }
        var response: Outcome.Response?
        if let stored = terminal.response {
            let begun = record.requestedAt.advanced(byMilliseconds: stored.queuedMilliseconds)
            let ended = record.requestedAt.advanced(byMilliseconds: stored.elapsedMilliseconds)
            response = Outcome.Response(
                status: 0, url: stored.url, length: min(stored.length, WireLimits.bodyBytes), sha256: stored.sha256,
                body: Outcome.Body(content.body), fields: stored.httpFields, startedAt: begun, endedAt: ended,
                resumedBytes: stored.resumedBytes, source: stored.source)
        }
        switch terminal.outcome {
        case .result(let status, let stored):
            response?.status = status
            return Outcome(response: response, attempts: stored.attempts)
        case .failed(let failure):
            response?.status = failure.status ?? 0
            return Outcome(
                failure: FailureCode(rawValue: failure.code) ?? .internalError, detail: failure.detail,
                url: failure.url, response: response, attempts: failure.attempts)
        }
    }

    /// Reverses `account` for a request that belongs to its handler.
    static func reopen(
        _ interest: Handle<Interest>, in records: inout Records, _ change: (inout Ledger.Requests) -> Void
    ) {
        let handler = records.requests[interest].handler
        records.ledger.requests.pending += 1
        change(&records.ledger.requests)
        records.quotas.requests(1, of: records.handlers[handler].principal)
        records.handlers.requestReopened(of: handler, change)
    }

    /// Whether a request has a failure on disk that stays after the acknowledgement of this client.
    static func keepsFailure(
        of interest: Handle<Interest>, _ client: Handle<ClientSession>, in records: inout Records
    ) -> Bool {
        records.clients[client].keepsFailures && records.durables.failure(of: interest) != nil
    }

    /// Leaves `resting` for `recording`, before another phase is entered.
    static func takeFromRest(_ interest: Handle<Interest>, in records: inout Records) {
        countKept(interest, -1, in: &records)
        records.handlers.endRest(interest, of: records.requests[interest].handler)
        records.requests[interest].enter(.recording)
    }

    /// Counts a pending request whose failure is kept on disk.
    static func countKept(_ interest: Handle<Interest>, _ change: Int, in records: inout Records) {
        guard records.durables.failure(of: interest) != nil else { return }
        records.ledger.requests.kept += change
        records.handlers.failureKept(change, of: records.requests[interest].handler)
    }

    // MARK: Ends

    /// Deletes a request from disk when its ID is free. No effect on other requests.
    static func forget(_ interest: Handle<Interest>, in records: inout Records) {
        guard records.isDurable(interest), let record = takeRecord(of: interest, in: &records) else { return }
        records.outbox.actions.append(.durable(.forget(record.id)))
    }

    /// Releases what the interest holds in a durable phase. The caller enters the next phase.
    static func releaseStored(_ interest: Handle<Interest>, in records: inout Records) {
        if records.requests[interest].phase == .resting { takeFromRest(interest, in: &records) }
        if let outcome = records.takeOutcome(of: interest) { records.release(outcome) }
    }

    /// Removes the durable state of a request, with everything that it holds.
    private static func takeRecord(of interest: Handle<Interest>, in records: inout Records) -> DurableRecord? {
        records.releaseHead(of: .entering(interest))
        records.chargeDurable(interest, request: 0, result: 0)
        if records.requests[interest].phase == .resting { takeFromRest(interest, in: &records) }
        guard let record = records.durables.remove(interest) else { return nil }
        if let file = record.file { records.releaseFile(file) }
        return record
    }

    // MARK: Expiry

    /// Sets the timer for the end of the retention time. An earlier one becomes stale.
    ///
    /// - Parameter later: a later time; nil for the end of the retention time.
    static func setExpiry(of interest: Handle<Interest>, at later: Tick? = nil, in records: inout Records) {
        guard records.durables.contains(interest) else { return }
        let timer = records.nextSerial()
        guard let end = records.durables.setExpiryTimer(timer, of: interest) else { return }
        records.setTimer(later ?? end, .expired(interest: interest, timer: timer))
    }

    /// Sets new expiry timers after a change of the retention time. O(durable requests).
    static func resetExpiries(in records: inout Records) {
        for interest in records.durables.records.keys.sorted() { setExpiry(of: interest, in: &records) }
    }

    static func isExpired(_ interest: Handle<Interest>, in records: inout Records) -> Bool {
        records.durables.expiry(of: interest).map { $0 <= records.clock } ?? false
    }
}
