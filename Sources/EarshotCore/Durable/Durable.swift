internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Durable requests: their records, results and retention times, and the messages that await replies.
enum Durable {
    // MARK: Acceptance

    /// Messages that await the reply to a request in phase `awaitingDurableAcceptance`. Empty in any other phase.
    ///
    /// - Parameter remover: client whose messages without numbers get no reply, because it removes the request.
    static func requestersAwaitingReply(
        of interest: Handle<Interest>, except remover: ClientID?, in records: inout Records
    ) -> [LiveRequester] {
        guard let unaccepted = records.durables.unacceptedRequest(interest) else { return [] }
        return liveRequesters(of: unaccepted, in: &records).filter {
            $0.number > 0 || records.clients[$0.client].id != remover
        }
    }

    /// Messages of live sessions that await the reply, including sessions that are away.
    static func liveRequesters(
        of unaccepted: DurableRecord.UnacceptedRequest, in records: inout Records
    ) -> [LiveRequester] {
        unaccepted.requesters.compactMap { liveRequester($0, in: &records) }
    }

    private static func liveRequester(_ requester: Requester, in records: inout Records) -> LiveRequester? {
        guard let client = records.clients.resolve(requester.session), !records.clients[client].hasEnded else {
            return nil
        }
        return LiveRequester(client: client, number: requester.number)
    }

    /// Adds a message to those that await the reply.
    static func addRequester(
        _ requester: Requester, to unaccepted: DurableRecord.UnacceptedRequest, in records: inout Records
    ) {
        guard requester.number > 0 || !unaccepted.requesters.contains(requester) else { return }
        // Without ended sessions, the clients and their unanswered numbers bound the list, however slow the disk is.
        unaccepted.requesters = unaccepted.requesters.filter { liveRequester($0, in: &records) != nil } + [requester]
    }

    /// Discards the earlier attempts of a request. Its times count from now, and timers of the earlier ones are stale.
    static func resetAttempts(_ interest: Handle<Interest>, now: MonotonicTime, in records: inout Records) {
        records.requests[interest].requestedAt = now
        records.requests[interest].generation = records.nextSerial()
        records.requests[interest].joinedExistingFlight = false
        if let number = records.requests[interest].rareOptions { records.requests[number].followedRedirects = [] }
    }

    // MARK: Results

    /// Has the outcome of a request written to disk.
    ///
    /// - Parameters:
    ///   - terminal: the message with the outcome.
    ///   - body: body of the message in memory.
    /// - Returns: false if there is no room.
    static func writeOutcome(
        _ terminal: Terminal, _ body: BodyID?, of outcome: Handle<Outcome>, for interest: Handle<Interest>,
        in records: inout Records
    ) -> Bool {
        let response = records.outcomes[outcome].response
        let file = records.requests[interest].usesWarmDelivery ? nil : response?.bodyFile
        let hasBody = body != nil || file != nil
        let bytes = hasBody ? response?.bodyLength ?? 0 : 0
        let summary = DurableSummary(
            failure: records.outcomes[outcome].failure, status: response?.status,
            attempts: records.outcomes[outcome].attempts, url: response?.url ?? records.outcomes[outcome].url)
        let head = BrokerMessage.terminal(terminal.withoutFile()).encoded()
        guard records.hasRoomForDurableBytes(bytes + head.count, of: interest),
            let id = records.durables.beginWritingResult(interest, bytes: file == nil ? bytes : 0, summary)
        else {
            return false
        }
        records.chargeDurableBytes(interest, result: bytes + head.count)
        if let file { records.outcomes.markFileShared(file) }
        let result = DurableResult(
            terminalHead: head, bodyLength: bytes, sha256: hasBody ? response?.sha256 : nil, body: body, file: file)
        records.outbox.actions.append(.durable(.storeResult(id, result)))
        return true
    }

    /// The outcome read from disk, as it was when it was written; a failure if it cannot be decoded.
    static func storedOutcome(
        of content: DurableOutcome?, for interest: Handle<Interest>, in records: inout Records
    ) -> Outcome {
        let record = records.requests[interest]
        guard let content, case .terminal(let terminal)? = try? BrokerMessage(head: content.terminalHead) else {
            return Outcome(failure: .notStored, url: records.durables.records[interest]?.summary?.url)
        }
        var response: Outcome.Response?
        if let stored = terminal.response {
            let begun = record.requestedAt.advanced(byMilliseconds: stored.queuedMilliseconds)
            let ended = record.requestedAt.advanced(byMilliseconds: stored.elapsedMilliseconds)
            response = Outcome.Response(
                status: 0, url: stored.url, bodyLength: min(stored.bodyByteCount, WireLimits.responseBodyBytes),
                sha256: stored.sha256, body: Outcome.Body(content.body), headerFields: stored.httpFields,
                startedAt: begun, endedAt: ended, resumedBytes: stored.resumedBytes, cacheSource: stored.source)
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

    /// Reverses `Records.moveToResultCounts` for a request that belongs to its handler.
    static func reopenAccountedRequest(
        _ interest: Handle<Interest>, in records: inout Records, _ change: (inout Ledger.Requests) -> Void
    ) {
        let handler = records.requests[interest].handler
        records.ledger.requests.pending += 1
        change(&records.ledger.requests)
        records.quotaUse.addRequests(1, of: records.handlers[handler].principal)
        records.handlers.requestReopened(of: handler, change)
    }

    /// Whether a request has a failure on disk that stays after the acknowledgement of this client.
    static func retainsFailureAfterAck(
        of interest: Handle<Interest>, _ client: Handle<ClientSession>, in records: inout Records
    ) -> Bool {
        records.clients[client].keepsFailuresOnDisk && records.durables.storedFailure(of: interest) != nil
    }

    /// Leaves `outcomeOnlyOnDisk` for `writingOutcome`, before the request enters another phase.
    static func leaveOutcomeOnlyOnDisk(_ interest: Handle<Interest>, in records: inout Records) {
        countPendingWithStoredFailure(interest, -1, in: &records)
        records.handlers.removeDurableAwaitingSubscriber(interest, of: records.requests[interest].handler)
        records.requests[interest].enter(.writingOutcome)
    }

    /// Counts a pending request whose failure is kept on disk; -1 subtracts it. No effect on other requests.
    static func countPendingWithStoredFailure(_ interest: Handle<Interest>, _ change: Int, in records: inout Records) {
        guard records.durables.storedFailure(of: interest) != nil else { return }
        records.ledger.requests.keptFailures += change
        records.handlers.countStoredFailures(change, of: records.requests[interest].handler)
    }

    // MARK: Ends

    /// Deletes a request from disk when its ID is free. No effect on other requests.
    static func deleteFromDiskIfDurable(_ interest: Handle<Interest>, in records: inout Records) {
        guard records.isDurable(interest), let record = removeRecordAndResources(of: interest, in: &records) else {
            return
        }
        records.outbox.actions.append(.durable(.deleteRequest(record.id)))
    }

    /// Releases the outcome that a request holds in a durable phase. The caller enters the next phase.
    static func releaseDurableResources(_ interest: Handle<Interest>, in records: inout Records) {
        if records.requests[interest].phase == .outcomeOnlyOnDisk { leaveOutcomeOnlyOnDisk(interest, in: &records) }
        if let outcome = records.takeOutcome(of: interest) { records.releaseOutcome(outcome) }
    }

    /// Removes the durable state of a request, with everything that it holds.
    private static func removeRecordAndResources(
        of interest: Handle<Interest>, in records: inout Records
    ) -> DurableRecord? {
        records.uncountRequestHead(of: .durableRequest(interest))
        records.chargeDurableBytes(interest, request: 0, result: 0)
        if records.requests[interest].phase == .outcomeOnlyOnDisk { leaveOutcomeOnlyOnDisk(interest, in: &records) }
        guard let record = records.durables.remove(interest) else { return nil }
        if let file = record.file { records.releaseSpoolFile(file) }
        return record
    }

    // MARK: Expiry

    /// Sets the timer for the end of the retention time. An earlier one becomes stale.
    ///
    /// - Parameter later: a later time; nil for the end of the retention time.
    static func setExpiry(of interest: Handle<Interest>, at later: MonotonicTime? = nil, in records: inout Records) {
        guard records.durables.contains(interest) else { return }
        let timer = records.nextSerial()
        guard let end = records.durables.setExpiryTimer(timer, of: interest) else { return }
        records.setTimer(at: later ?? end, for: .durableRequestExpiry(interest: interest, timer: timer))
    }

    /// Sets new expiry timers after a change of the retention time. O(durable requests).
    static func resetExpiries(in records: inout Records) {
        for interest in records.durables.records.keys.sorted() { setExpiry(of: interest, in: &records) }
    }

    static func isExpired(_ interest: Handle<Interest>, in records: inout Records) -> Bool {
        records.durables.expiry(of: interest).map { $0 <= records.latestEventTime } ?? false
    }
}

/// Rows of earlier brokers: the scans of their table, and the messages that wait for them.
extension Durable {
    /// Whether a message must wait until rows of the table are loaded or deleted.
    static func mustAwaitRows(
        _ message: ClientMessage, from client: Handle<ClientSession>, in records: inout Records
    ) -> Bool {
        if records.durables.loadState.isLoadingAll { return DurableLoad.needsRowsLoaded(message) }
        return userWhoseRowsAreRemoved(by: message, of: client, in: &records) != nil
    }

    /// The user whose rows in the table a message may remove; nil if it removes none.
    static func userWhoseRowsAreRemoved(
        by message: ClientMessage, of client: Handle<ClientSession>, in records: inout Records
    ) -> PrincipalName? {
        guard let name = records.principals.name(of: records.clients[client].principal),
            records.durables.loadState.unloadedRowsByUser[name] != nil,
            DurableLoad.Removal(message) != nil
        else { return nil }
        return name
    }

    /// Begins to read the rows after one, which is nil for the first.
    static func beginScan(_ scan: DurableLoad.Scan, after id: DurableID?, in records: inout Records) {
        records.durables.loadState.scan = scan
        records.outbox.actions.append(.durable(.readRows(after: id, of: scan.principal)))
    }

    /// Handles the end of the table.
    static func endScan(in records: inout Records) {
        switch records.durables.loadState.scan {
        case .allRows?, nil: break
        case .unloadedRows(let name)?: records.durables.loadState.unloadedRowsByUser[name] = nil
        case .rowsToRemove(let scan)?:
            if !scan.hasRemainingRows { records.durables.loadState.unloadedRowsByUser[scan.principal] = nil }
            if let client = records.clients.resolve(scan.client) {
                records.durables.loadState.waitingMessages[client]?.deletedRowCount = scan.deletedRowCount
            }
        }
        records.durables.loadState.scan = nil
        guard records.durables.loadState.unloadedRowsByUser.isEmpty else { return }
        for file in records.durables.loadState.heldSpoolFiles { records.releaseSpoolFile(file) }
        records.durables.loadState.heldSpoolFiles = []
    }

    /// Whether the quota of a user admits another row of this size.
    static func quotaAdmitsRow(bytes: Int, of user: PrincipalName, in records: inout Records) -> Bool {
        records.principals.handle(of: user).map { records.quotaUse.admitsDurableRow(bytes, of: $0) } ?? true
    }

    /// Whether to read rows that a quota left in the table: the first has room, and half of the quota is free. So not
    /// every end of a request reads the table.
    static func mayLoadRow(
        _ leftover: DurableLoad.UnloadedRows, of user: PrincipalName, in records: inout Records
    ) -> Bool {
        guard let principal = records.principals.handle(of: user) else { return true }
        let most = records.quotaUse.limits.durableBytes
        return records.quotaUse.admitsDurableRow(leftover.firstRowBytes, of: principal)
            && (most == 0 || records.quotaUse.currentUse(by: principal).durableBytes <= most / 2)
    }
}
