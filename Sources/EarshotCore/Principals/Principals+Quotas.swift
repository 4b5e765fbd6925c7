internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Quotas of principals: counting at the places where the tables change, and the ends of obstacles.
extension Principals {
    // MARK: Transfers

    /// Releases the bytes and the slot of a lease that has ended.
    static func transferEnded(_ lease: borrowing WorkerLease, in records: inout Records) {
        records.outcomes.filesGrew(by: -lease.growingBytes)
        let principal = lease.principal
        guard principal != PrincipalTable.administrator else { return }
        records.quotas.spoolBytes(-lease.growingBytes, of: principal)
        if records.quotas.transferEnded(by: principal) { records.queue.quotaOpened(principal) }
    }

    /// Applies changed quotas.
    static func limitsChanged(in records: inout Records) {
        for principal in records.quotas.setLimits(records.limits.userQuotas) { records.queue.quotaOpened(principal) }
    }

    /// Counts the bytes and the slot of a lease that begins.
    static func transferStarted(_ lease: borrowing WorkerLease, in records: inout Records) {
        records.outcomes.filesGrew(by: lease.growingBytes)
        let principal = lease.principal
        guard principal != PrincipalTable.administrator else { return }
        records.quotas.transferStarted(by: principal)
        records.quotas.spoolBytes(lease.growingBytes, of: principal)
    }

    // MARK: Bodies

    /// Returns a failure in place of an outcome whose response exceeds a quota of the request's principal; otherwise the
    /// outcome itself.
    ///
    /// - Parameter receivers: number of terminals with the response.
    static func withinQuota(
        _ outcome: Handle<Outcome>, of interest: Handle<Interest>, receivers: Int, in records: inout Records
    ) -> Handle<Outcome> {
        let principal = records.principal(of: interest)
        guard principal != PrincipalTable.administrator, let response = records.outcomes[outcome].response else {
            return outcome
        }
        let isWarm = records.requests[interest].isWarm
        let inMemory = DeliveryWindow.Weight(
            response, isWarm: isWarm, memoryBodyBytes: records.limits.memoryBodyBytes
        ).inMemory
        // Workers report the length.
        let bytes = (isWarm ? 0 : response.length).multipliedReportingOverflow(by: receivers)
        let fitsSpool =
            response.length == 0
            || !bytes.overflow && records.quotas.hasRoomInSpool(for: bytes.partialValue, of: principal)
        if fitsSpool, records.quotas.hasRoomInMemory(inMemory * receivers, of: principal) { return outcome }
        let detail = fitsSpool ? QuotaDetail.memory : QuotaDetail.spool
        return records.outcomes.insert(records.outcomes[outcome].replaced(by: .quota, detail: detail))
    }

    /// Whether a running transfer must end because its principal is at the quota of bytes. One that serves other
    /// principals too continues, and each request is judged at its end.
    static func exceedsQuota(_ lease: borrowing WorkerLease, in records: inout Records) -> Bool {
        let principal = lease.principal
        guard !records.quotas.hasRoomInSpool(for: 0, of: principal), let flight = lease.flight else { return false }
        var isAlone = true
        records.forEachInterest(of: flight) { records, interest in
            isAlone = isAlone && records.principal(of: interest) == principal
        }
        return isAlone
    }

    // MARK: What has a bound for all together

    /// Returns why a request may not hold a head with this many counted bytes; nil if it may.
    static func obstacle(
        toHead bytes: Int, of client: ClientID, by principal: Handle<Principal>, in records: inout Records
    ) -> RequestRefusal? {
        guard bytes > 0 else { return nil }
        return obstacle(
            bytes, besides: records.requests.heads.bytes(of: client), within: records.limits.requestHeadBytesPerClient,
            \.headBytes, by: principal, all: records.limits.requestHeadBytesOfAll, in: &records)
    }

    /// Returns why a request may not hold a body of this length; nil if it may.
    static func obstacle(
        toBody bytes: Int, of client: ClientID, by principal: Handle<Principal>, in records: inout Records
    ) -> RequestRefusal? {
        obstacle(
            bytes, besides: records.requests.bodies.bytes(of: client), within: records.limits.requestBodyBytesPerClient,
            \.bodyBytes,
            by: principal, all: records.limits.requestBodyBytesOfAll, in: &records)
    }

    /// - Parameters:
    ///   - own: bytes that the client has already, of at most `most`.
    ///   - all: bound of all clients together.
    private static func obstacle(
        _ bytes: Int, besides own: Int, within most: Int, _ kind: KeyPath<QuotaBook.Amounts, Int>,
        by principal: Handle<Principal>, all: Int, in records: inout Records
    ) -> RequestRefusal? {
        guard own + bytes <= most else { return RequestRefusal(code: .queueFull) }
        guard !records.quotas.admits(bytes, of: kind, for: principal, within: all) else { return nil }
        return principal == PrincipalTable.administrator
            ? RequestRefusal(code: .queueFull) : RequestRefusal(code: .quota, detail: QuotaDetail.message)
    }

    /// The error about another subscription of a client; nil if it may have one more, of its own and of those of all.
    static func objection(
        toSubscriptionOf client: Handle<ClientSession>, in records: inout Records
    ) -> ErrorReply? {
        guard records.handlers.subscriptionCount(of: client) < records.limits.subscriptionsPerClient else {
            return ErrorReply(code: "too-many-handlers", detail: "unsubscribe from some first")
        }
        let isWithinQuota = records.quotas.admits(
            1, of: \.subscriptions, for: records.clients[client].principal, within: records.limits.subscriptions)
        return isWithinQuota ? nil : ErrorReply(code: "quota", detail: QuotaDetail.subscription)
    }

    /// Counts subscriptions that a client has more. A negative number subtracts.
    static func countSubscriptions(_ change: Int, of client: Handle<ClientSession>, in records: inout Records) {
        records.quotas.share(change, of: \.subscriptions, by: records.clients[client].principal)
    }

    // MARK: Durable requests

    /// Returns why a new durable request with this many bytes is refused; nil if it may be written. A user with requests
    /// that are not loaded is above the quota.
    static func obstacle(
        toDurable bytes: Int, of interest: Handle<Interest>, in records: inout Records
    ) -> RequestRefusal? {
        let principal = records.principal(of: interest)
        let hasLeftover =
            records.principals.name(of: principal).map { records.durables.load.leftovers[$0] != nil } ?? false
        guard hasLeftover || !records.hasRoomForDurable(bytes, of: interest) else { return nil }
        return principal == PrincipalTable.administrator
            ? RequestRefusal(code: .queueFull) : RequestRefusal(code: .quota, detail: QuotaDetail.durable)
    }
}
