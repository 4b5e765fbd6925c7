internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Quotas of principals: counting at the places where the tables change, and the ends of obstacles.
extension BrokerCore {
    /// Principal of the handler of a request.
    @inline(__always)
    func principal(of interest: Handle<Interest>) -> Handle<Principal> {
        handlers[interests[interest].handler].principal
    }

    /// Principal of the oldest request of a flight; the administrator for one without requests.
    func firstPrincipal(of flight: Handle<Flight>) -> Handle<Principal> {
        flights.firstInterest(of: flight).map { principal(of: $0) } ?? PrincipalTable.administrator
    }

    // MARK: Transfers

    /// Releases the bytes and the slot of a lease that has ended.
    mutating func releaseUse(of lease: borrowing WorkerLease) {
        outcomes.filesGrew(by: -lease.growingBytes)
        let principal = lease.principal
        guard principal != PrincipalTable.administrator else { return }
        quotas.spoolBytes(-lease.growingBytes, of: principal)
        if quotas.transferEnded(by: principal) { queue.quotaOpened(principal) }
    }

    /// Applies changed quotas.
    mutating func quotasChanged() {
        for principal in quotas.setLimits(limits.userQuotas) { queue.quotaOpened(principal) }
    }

    // MARK: Bodies

    /// Charges the change of a client's window to its principal. Called after each change.
    @inline(__always)
    mutating func chargeWindow(of client: Handle<ClientSession>) {
        let principal = clients[client].principal
        guard principal != PrincipalTable.administrator else { return }
        let (weight, charged) = (clients[client].deliveries.weight, clients[client].charged)
        clients[client].charged = weight
        quotas.spoolBytes(weight.bodies - charged.bodies, of: principal)
        quotas.memoryBodyBytes(weight.inMemory - charged.inMemory, of: principal)
    }

    /// Bytes that a request charges to its principal while its outcome is held.
    func heldBytes(of interest: Handle<Interest>) -> Int {
        guard let outcome = interests[interest].outcome, !interests[interest].isWarm else { return 0 }
        return outcomes[outcome].response?.length ?? 0
    }

    /// Returns a failure in place of an outcome whose body exceeds the quota of the request's principal; otherwise the
    /// outcome itself.
    ///
    /// - Parameter receivers: number of terminals with the body.
    mutating func withinQuota(
        _ outcome: Handle<Outcome>, of interest: Handle<Interest>, receivers: Int
    ) -> Handle<Outcome> {
        let principal = principal(of: interest)
        guard principal != PrincipalTable.administrator, !interests[interest].isWarm,
            let response = outcomes[outcome].response, response.length > 0
        else { return outcome }
        // Workers report the length.
        let bytes = response.length.multipliedReportingOverflow(by: receivers)
        if !bytes.overflow, quotas.hasRoomInSpool(for: bytes.partialValue, of: principal) {
            let isInMemory = response.length <= CoreLimits.memoryBodyBytes
            if !isInMemory || quotas.hasRoomInMemory(bytes.partialValue, of: principal) { return outcome }
            return outcomes.insert(outcomes[outcome].replaced(by: .quota, detail: Self.memoryQuotaDetail))
        }
        return outcomes.insert(outcomes[outcome].replaced(by: .quota, detail: Self.spoolQuotaDetail))
    }

    /// Whether a running transfer must end because its principal is at the quota of bytes. One that serves other
    /// principals too continues, and each request is judged at its end.
    mutating func exceedsQuota(_ lease: borrowing WorkerLease) -> Bool {
        let principal = lease.principal
        guard !quotas.hasRoomInSpool(for: 0, of: principal), let flight = lease.flight else { return false }
        var isAlone = true
        forEachInterest(of: flight) { core, interest in isAlone = isAlone && core.principal(of: interest) == principal }
        return isAlone
    }

    /// Sentence of a failure at the quota of bytes.
    static let spoolQuotaDetail =
        "The bodies that this user has not acknowledged reach the setting spool-per-user; acknowledge some of them."
    static let memoryQuotaDetail =
        "This user has not acknowledged 256 MiB of bodies of at most 64 KiB, which are in memory; acknowledge some of them."

    // MARK: What has a bound for all together

    /// Returns why a request may not hold a head with this many counted bytes; nil if it may.
    @inline(__always)
    func obstacle(toHead bytes: Int, of client: ClientID, by principal: Handle<Principal>) -> Refusal? {
        guard bytes > 0 else { return nil }
        return obstacle(
            bytes, besides: requestHeads.bytes(of: client), within: limits.requestHeadBytesPerClient, \.headBytes,
            by: principal, all: limits.requestHeadBytesOfAll)
    }

    /// Returns why a request may not hold a body of this length; nil if it may.
    func obstacle(toBody bytes: Int, of client: ClientID, by principal: Handle<Principal>) -> Refusal? {
        obstacle(
            bytes, besides: requestBodies.bytes(of: client), within: limits.requestBodyBytesPerClient, \.bodyBytes,
            by: principal, all: limits.requestBodyBytesOfAll)
    }

    /// - Parameters:
    ///   - own: bytes that the client has already, of at most `most`.
    ///   - all: bound of all clients together.
    private func obstacle(
        _ bytes: Int, besides own: Int, within most: Int, _ kind: KeyPath<QuotaBook.Amounts, Int>,
        by principal: Handle<Principal>, all: Int
    ) -> Refusal? {
        guard own + bytes <= most else { return Refusal(code: .queueFull) }
        guard !quotas.admits(bytes, of: kind, for: principal, within: all) else { return nil }
        return principal == PrincipalTable.administrator
            ? Refusal(code: .queueFull) : Refusal(code: .quota, detail: Self.messageQuotaDetail)
    }

    /// Counts the head of a request, if it is long. `releaseHead` ends that.
    mutating func holdHead(
        of request: HTTPRequest, for holder: RequestHeads.Holder, of client: ClientID, by principal: Handle<Principal>
    ) {
        let bytes = RequestHeads.counted(request)
        guard bytes > 0 else { return }
        requestHeads.add(RequestHeads.Entry(byteCount: bytes, client: client, principal: principal), for: holder)
        quotas.share(bytes, of: \.headBytes, by: principal)
    }

    mutating func releaseHead(of holder: RequestHeads.Holder) {
        guard let head = requestHeads.remove(holder) else { return }
        quotas.share(-head.byteCount, of: \.headBytes, by: head.principal)
    }

    /// Counts the body of a request. The caller retains it for a flight next.
    mutating func hold(_ body: RequestBody, of client: ClientID, by principal: Handle<Principal>) {
        requestBodies.add(body, of: client, by: principal)
        quotas.share(body.byteCount, of: \.bodyBytes, by: principal)
    }

    /// Releases the body of a flight's request.
    mutating func release(_ body: BodyID) {
        guard let released = requestBodies.release(body) else { return }
        quotas.share(-released.byteCount, of: \.bodyBytes, by: released.principal)
        actions.append(.spool(.releaseBody(body)))
    }

    /// Whether a client may have another subscription of those of all.
    func mayShareSubscriptions(_ client: Handle<ClientSession>) -> Bool {
        quotas.admits(
            1, of: \.subscriptions, for: clients[client].principal, within: limits.subscriptions)
    }

    /// Counts subscriptions that a client has more. A negative number subtracts.
    mutating func countSubscriptions(_ change: Int, of client: Handle<ClientSession>) {
        quotas.share(change, of: \.subscriptions, by: clients[client].principal)
    }

    /// Sentences of refusals by `quota`.
    static let messageQuotaDetail =
        "The heads or bodies of this user's open requests take a quarter of their memory; wait for some of them."
    static let requestQuotaDetail =
        "This user has as many open requests as the setting requests-per-user permits; wait for some, or remove some."
    static let durableQuotaDetail =
        "This user's durable requests and results reach the setting durable-per-user; acknowledge some of them."
    static let subscriptionQuotaDetail = "this user has a quarter of all subscriptions; unsubscribe from some first"
    static let cookieQuotaDetail =
        "the cookie jars of this user take a quarter of their memory; remove the handlers of a root, or wait for cookie-time"

    // MARK: Durable requests

    /// Bytes of a durable request beside its head and its body: those that the store counts for a row.
    static let durableRowBytes = 256

    /// Counts the bytes of a durable request, or of its result, for its principal.
    mutating func chargeDurable(_ interest: Handle<Interest>, request: Int? = nil, result: Int? = nil) {
        quotas.share(
            durables.setBytes(request: request, result: result, of: interest), of: \.durableBytes,
            by: principal(of: interest))
    }

    /// Whether the principal of a request may have this many durable bytes more. The administrator leaves the last
    /// quarter of the store to other users, if there are any.
    func hasRoomForDurable(_ bytes: Int, of interest: Handle<Interest>) -> Bool {
        quotas.hasRoomForDurable(bytes, of: principal(of: interest), within: settings[.durableSize] ?? 0)
    }

    /// Returns why a new durable request with this many bytes is refused; nil if it may be written. A user with requests
    /// that are not loaded is above the quota.
    func obstacle(toDurable bytes: Int, of interest: Handle<Interest>) -> Refusal? {
        let principal = principal(of: interest)
        let hasLeftover = principals.name(of: principal).map { durables.load.leftovers[$0] != nil } ?? false
        guard hasLeftover || !hasRoomForDurable(bytes, of: interest) else { return nil }
        return principal == PrincipalTable.administrator
            ? Refusal(code: .queueFull) : Refusal(code: .quota, detail: Self.durableQuotaDetail)
    }

    // MARK: Checks

    /// Returns a sentence for each violated invariant of the quotas. Linear in all tables.
    func auditQuotas() -> [String] {
        var uses: [Handle<Principal>: QuotaBook.Use] = [:]
        for handler in handlers.indices {
            uses[handlers[handler].principal, default: .init()].requests += handlers[handler].requests.pending
        }
        for worker in workers.indices {
            for lease in workers[worker].leases.values {
                uses[lease.principal, default: .init()].transfers += 1
                uses[lease.principal, default: .init()].spoolBytes += lease.growingBytes
            }
        }
        for charge in cluster.map({ Array($0.value.charges.values) }) ?? [] {
            uses[charge.principal, default: .init()].transfers += 1
        }
        for client in clients.indices {
            let principal = clients[client].principal
            uses[principal, default: .init()].spoolBytes += clients[client].deliveries.weight.bodies
            uses[principal, default: .init()].memoryBodyBytes += clients[client].deliveries.weight.inMemory
            uses[principal, default: .init()].subscriptions += handlers.subscriptionCount(of: client)
        }
        for head in requestHeads.all { uses[head.principal, default: .init()].headBytes += head.byteCount }
        for body in requestBodies.all { uses[body.principal, default: .init()].bodyBytes += body.byteCount }
        for (principal, bytes) in cookieJars.bytesByPrincipal { uses[principal, default: .init()].cookieBytes += bytes }
        for interest in interests.indices {
            if interests[interest].phase == .held {
                uses[principal(of: interest), default: .init()].spoolBytes += heldBytes(of: interest)
            }
            if let record = durables.records[interest] {
                uses[principal(of: interest), default: .init()].durableBytes += record.requestBytes + record.resultBytes
            }
        }
        return quotas.checkInvariants(expected: uses)
    }
}
