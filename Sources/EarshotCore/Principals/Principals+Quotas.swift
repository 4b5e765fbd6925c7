internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Quotas of principals: counts of their use, checks before more is used, and the lanes that a freed quota unparks.
extension Principals {
    // MARK: Transfers

    /// Releases the bytes and the slot of a lease that has ended.
    static func transferEnded(_ lease: borrowing WorkerLease, in records: inout Records) {
        records.outcomes.growingFilesGrew(by: -lease.countedPartFileBytes)
        let principal = lease.principal
        guard principal != PrincipalTable.administrator else { return }
        records.quotaUse.addSpoolBytes(-lease.countedPartFileBytes, of: principal)
        if records.quotaUse.transferEnded(by: principal) { records.queue.unparkLanes(ofPrincipal: principal) }
    }

    /// Applies changed quotas.
    static func quotaLimitsChanged(in records: inout Records) {
        for principal in records.quotaUse.setLimits(records.limits.userQuotas) {
            records.queue.unparkLanes(ofPrincipal: principal)
        }
    }

    /// Counts the bytes and the slot of a lease that begins.
    static func transferStarted(_ lease: borrowing WorkerLease, in records: inout Records) {
        records.outcomes.growingFilesGrew(by: lease.countedPartFileBytes)
        let principal = lease.principal
        guard principal != PrincipalTable.administrator else { return }
        records.quotaUse.transferStarted(by: principal)
        records.quotaUse.addSpoolBytes(lease.countedPartFileBytes, of: principal)
    }

    // MARK: Bodies

    /// Returns a failure in place of an outcome whose response exceeds a quota of the request's principal; otherwise
    /// the outcome itself.
    ///
    /// - Parameter receivers: number of terminals with the response.
    static func outcomeWithinQuota(
        _ outcome: Handle<Outcome>, of interest: Handle<Interest>, receivers: Int, in records: inout Records
    ) -> Handle<Outcome> {
        let principal = records.principal(of: interest)
        guard principal != PrincipalTable.administrator, let response = records.outcomes[outcome].response else {
            return outcome
        }
        let isWarm = records.requests[interest].usesWarmDelivery
        let inMemory = DeliveryWindow.ByteWeight(
            response, isWarm: isWarm, memoryBodyBytes: records.limits.maximumInMemoryBodyBytes
        ).bytesInMemory
        // Workers report the length.
        let bytes = (isWarm ? 0 : response.bodyLength).multipliedReportingOverflow(by: receivers)
        let fitsSpool =
            response.bodyLength == 0
            || !bytes.overflow && records.quotaUse.hasRoomInSpool(for: bytes.partialValue, of: principal)
        if fitsSpool, records.quotaUse.hasRoomInMemory(inMemory * receivers, of: principal) { return outcome }
        let detail = fitsSpool ? QuotaRefusalText.memoryFull : QuotaRefusalText.spoolFull
        return records.outcomes.insert(records.outcomes[outcome].replacedByFailure(.quotaExceeded, detail: detail))
    }

    /// Whether a running transfer must end because its principal is at the quota of bytes. One that serves other
    /// principals too continues, and each request is judged at its end.
    static func exceedsSpoolByteQuota(_ lease: borrowing WorkerLease, in records: inout Records) -> Bool {
        let principal = lease.principal
        guard !records.quotaUse.hasRoomInSpool(for: 0, of: principal), let flight = lease.flight else { return false }
        var servesSingleRequest = true
        records.forEachInterest(of: flight) { records, interest in
            servesSingleRequest = servesSingleRequest && records.principal(of: interest) == principal
        }
        return servesSingleRequest
    }

    // MARK: Shared amounts

    /// Returns the refusal of a head with this many counted bytes; nil if a request may hold it.
    static func quotaRefusal(
        ofHead bytes: Int, of client: ClientID, by principal: Handle<Principal>, in records: inout Records
    ) -> RequestRefusal? {
        guard bytes > 0 else { return nil }
        return quotaRefusal(
            bytes, besides: records.requests.requestHeads.countedBytes(ofClient: client),
            within: records.limits.maximumRequestHeadBytesPerClient, \.headBytes, by: principal,
            all: records.limits.maximumTotalRequestHeadBytes, in: &records)
    }

    /// Returns the refusal of a body of this length; nil if a request may hold it.
    static func quotaRefusal(
        ofBody bytes: Int, of client: ClientID, by principal: Handle<Principal>, in records: inout Records
    ) -> RequestRefusal? {
        quotaRefusal(
            bytes, besides: records.requests.requestBodies.byteCount(of: client),
            within: records.limits.maximumRequestBodyBytesPerClient, \.bodyBytes, by: principal,
            all: records.limits.maximumTotalRequestBodyBytes, in: &records)
    }

    /// - Parameters:
    ///   - own: bytes that the client has already, of at most `most`.
    ///   - all: bound of all clients together.
    private static func quotaRefusal(
        _ bytes: Int, besides own: Int, within most: Int, _ kind: KeyPath<QuotaBook.ResourceAmounts, Int>,
        by principal: Handle<Principal>, all: Int, in records: inout Records
    ) -> RequestRefusal? {
        guard own + bytes <= most else { return RequestRefusal(code: .queueFull) }
        guard !records.quotaUse.admitsSharedAmount(bytes, of: kind, for: principal, within: all) else { return nil }
        return principal == PrincipalTable.administrator
            ? RequestRefusal(code: .queueFull)
            : RequestRefusal(code: .quotaExceeded, detail: QuotaRefusalText.requestMemoryFull)
    }

    /// Returns the error for another subscription of a client; nil if neither its own bound nor the quota is reached.
    static func subscriptionError(of client: Handle<ClientSession>, in records: inout Records) -> ErrorReply? {
        guard records.handlers.subscriptionCount(of: client) < records.limits.maximumSubscriptionsPerClient else {
            return ErrorReply(code: "too-many-handlers", detail: "unsubscribe from some first")
        }
        let isWithinQuota = records.quotaUse.admitsSharedAmount(
            1, of: \.subscriptions, for: records.clients[client].principal, within: records.limits.maximumSubscriptions)
        return isWithinQuota ? nil : ErrorReply(code: "quota", detail: QuotaRefusalText.tooManySubscriptions)
    }

    /// Counts additional subscriptions of a client. A negative number subtracts.
    static func countSubscriptions(_ change: Int, of client: Handle<ClientSession>, in records: inout Records) {
        records.quotaUse.addSharedAmount(change, of: \.subscriptions, by: records.clients[client].principal)
    }

    // MARK: Durable requests

    /// Returns the refusal of a new durable request with this many bytes; nil if it may be written. A user with
    /// requests that are not loaded is above the quota.
    static func quotaRefusal(
        ofDurable bytes: Int, of interest: Handle<Interest>, in records: inout Records
    ) -> RequestRefusal? {
        let principal = records.principal(of: interest)
        let name = records.principals.name(of: principal)
        let hasUnloadedRows = name.map { records.durables.loadState.unloadedRowsByUser[$0] != nil } ?? false
        guard hasUnloadedRows || !records.hasRoomForDurableBytes(bytes, of: interest) else { return nil }
        return principal == PrincipalTable.administrator
            ? RequestRefusal(code: .queueFull)
            : RequestRefusal(code: .quotaExceeded, detail: QuotaRefusalText.durableStorageFull)
    }
}
