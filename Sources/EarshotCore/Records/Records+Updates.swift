internal import EarshotHTTP
internal import EarshotWire

/// Updates that keep several tables consistent: sending, and the release of outcomes, bodies and files.
extension Records {
    // MARK: Messages

    /// Sends a message, unless the client is away. State that it must learn of waits as terminals.
    ///
    /// - Parameter number: number of the message that it answers; 0 for none.
    mutating func sendMessage(
        _ message: BrokerMessage, to client: Handle<ClientSession>, answering number: UInt64 = 0
    ) {
        guard !clients[client].isAway else { return }
        let id = clients[client].id
        outbox.appendAction(
            .client(number == 0 ? .send(id, message) : .replyToNumberedMessage(id, message, json: nil, to: number)))
    }

    // MARK: Outcomes and files

    /// Takes the outcome from a request. The caller releases it.
    mutating func takeOutcome(of interest: Handle<Interest>) -> Handle<Outcome>? {
        let number = requests[interest].outcome
        requests[interest].outcome = nil
        return number
    }

    /// Releases a reference to an outcome.
    mutating func releaseOutcome(_ outcome: Handle<Outcome>) {
        if let freed = outcomes.releaseReference(to: outcome) { deleteFreedStorage(freed) }
    }

    /// Releases the body and files of a response that is not part of an outcome.
    mutating func releaseResponse(_ response: Outcome.Response) {
        deleteFreedStorage(outcomes.releaseUnownedResponse(response))
    }

    mutating func releaseSpoolFile(_ file: String) {
        if outcomes.releaseFile(file) { outbox.spoolFilesToDelete.append(file) }
    }

    mutating func deleteFreedStorage(_ freed: OutcomeStore.FreedStorage) {
        if let body = freed.body { outbox.appendAction(.spool(.releaseBody(body))) }
        outbox.spoolFilesToDelete += freed.files
    }

    /// Releases the body of a flight's request.
    mutating func releaseRequestBody(_ body: BodyID) {
        guard let released = requests.requestBodies.releaseBody(body) else { return }
        quotaUse.addSharedAmount(-released.byteCount, of: \.bodyBytes, by: released.principal)
        outbox.appendAction(.spool(.releaseBody(body)))
    }

    /// Releases a body that the core owns.
    mutating func releaseCachedBody(_ body: CachedBody) {
        switch body {
        case .missing: break
        case .inline(let id): outbox.appendAction(.spool(.releaseBody(id)))
        case .file(let name): releaseSpoolFile(name)
        }
    }

    /// Counts the head of a request, if it is long. `uncountRequestHead` ends that.
    mutating func countRequestHead(
        of request: HTTPRequest, for holder: RequestHeads.HeadHolder, of client: ClientID,
        by principal: Handle<Principal>
    ) {
        let bytes = RequestHeads.countedBytes(of: request)
        guard bytes > 0 else { return }
        requests.requestHeads.addHead(
            RequestHeads.CountedHead(byteCount: bytes, client: client, principal: principal), for: holder)
        quotaUse.addSharedAmount(bytes, of: \.headBytes, by: principal)
    }

    /// Counts the body of a request. The caller retains it for a flight next.
    mutating func countRequestBody(_ body: RequestBody, of client: ClientID, by principal: Handle<Principal>) {
        requests.requestBodies.addBody(body, of: client, by: principal)
        quotaUse.addSharedAmount(body.byteCount, of: \.bodyBytes, by: principal)
    }

    /// Releases the counted head of a holder, if it has one.
    mutating func uncountRequestHead(of holder: RequestHeads.HeadHolder) {
        guard let head = requests.requestHeads.removeHead(of: holder) else { return }
        quotaUse.addSharedAmount(-head.byteCount, of: \.headBytes, by: head.principal)
    }

    // MARK: Counts

    /// Charges the change of a client's window to its principal. Called after each change.
    @inline(__always)
    mutating func chargeDeliveryWindow(of client: Handle<ClientSession>) {
        let principal = clients[client].principal
        guard principal != PrincipalTable.administrator else { return }
        let (weight, charged) = (clients[client].deliveries.byteWeight, clients[client].chargedWeight)
        clients[client].chargedWeight = weight
        quotaUse.addSpoolBytes(weight.bodyBytes - charged.bodyBytes, of: principal)
        quotaUse.addMemoryBytes(weight.bytesInMemory - charged.bytesInMemory, of: principal)
        let count = clients[client].deliveries.dueTerminalCount
        quotaUse.addTerminals(count - clients[client].chargedTerminalCount, of: principal)
        clients[client].chargedTerminalCount = count
    }

    /// Charges the held outcome of a request to its principal.
    ///
    /// - Parameter sign: -1 to end the charge.
    mutating func chargeHeldOutcome(_ interest: Handle<Interest>, sign: Int = 1) {
        let (weight, principal) = (byteWeightOfHeldOutcome(of: interest), principal(of: interest))
        quotaUse.addSpoolBytes(sign * weight.bodyBytes, of: principal)
        quotaUse.addMemoryBytes(sign * weight.bytesInMemory, of: principal)
    }

    /// Counts the bytes of a durable request, or of its result, for its principal.
    mutating func chargeDurableBytes(_ interest: Handle<Interest>, request: Int? = nil, result: Int? = nil) {
        quotaUse.addSharedAmount(
            durables.updateByteCounts(request: request, result: result, of: interest), of: \.durableBytes,
            by: principal(of: interest))
    }

    /// Moves a request from pending to its result in both ledgers, and removes it from its owner's open requests.
    mutating func moveToResultCounts(_ interest: Handle<Interest>, _ change: (inout Ledger.Requests) -> Void) {
        let (handler, owner) = (requests[interest].handler, requests[interest].owner)
        ledger.requests.pending -= 1
        change(&ledger.requests)
        if let owner { requests.removeOpenRequest(interest, fromOwned: &clients[owner].ownedRequests) }
        quotaUse.addRequests(-1, of: handlers[handler].principal)
        handlers.requestEnded(of: handler, owner: owner, change)
    }
}
