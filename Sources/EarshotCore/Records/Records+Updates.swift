internal import EarshotHTTP
internal import EarshotWire

/// Updates that keep several tables in accordance: sending, and the release of outcomes, bodies and files.
extension Records {
    // MARK: Messages

    /// Sends a message, unless the client is away. State that it must learn of waits as terminals.
    ///
    /// - Parameter handle: number of the message that it answers; 0 for none.
    mutating func send(_ message: BrokerMessage, to client: Handle<ClientSession>, answering number: UInt64 = 0) {
        guard !clients[client].isAway else { return }
        let id = clients[client].id
        outbox.append(.client(number == 0 ? .send(id, message) : .reply(id, message, json: nil, to: number)))
    }

    // MARK: Outcomes and files

    /// Takes the outcome from a request. The caller releases it.
    mutating func takeOutcome(of interest: Handle<Interest>) -> Handle<Outcome>? {
        let number = requests[interest].outcome
        requests[interest].outcome = nil
        return number
    }

    /// Releases a reference to an outcome.
    mutating func release(_ outcome: Handle<Outcome>) {
        if let freed = outcomes.release(outcome) { delete(freed) }
    }

    /// Releases the body and files of a response that is not part of an outcome.
    mutating func drop(_ response: Outcome.Response) { delete(outcomes.release(response)) }

    mutating func releaseFile(_ file: String) {
        if outcomes.release(file: file) { outbox.releasedFiles.append(file) }
    }

    mutating func delete(_ freed: OutcomeStore.Freed) {
        if let body = freed.body { outbox.append(.spool(.releaseBody(body))) }
        outbox.releasedFiles += freed.files
    }

    /// Releases the body of a flight's request.
    mutating func release(_ body: BodyID) {
        guard let released = requests.bodies.release(body) else { return }
        quotas.share(-released.byteCount, of: \.bodyBytes, by: released.principal)
        outbox.append(.spool(.releaseBody(body)))
    }

    /// Releases a body that the core owns.
    mutating func drop(_ body: CachedBody) {
        switch body {
        case .missing: break
        case .inline(let id): outbox.append(.spool(.releaseBody(id)))
        case .file(let name): releaseFile(name)
        }
    }

    /// Counts the head of a request, if it is long. `releaseHead` ends that.
    mutating func holdHead(
        of request: HTTPRequest, for holder: RequestHeads.Holder, of client: ClientID, by principal: Handle<Principal>
    ) {
        let bytes = RequestHeads.counted(request)
        guard bytes > 0 else { return }
        requests.heads.add(
            RequestHeads.Entry(byteCount: bytes, client: client, principal: principal), for: holder)
        quotas.share(bytes, of: \.headBytes, by: principal)
    }

    /// Counts the body of a request. The caller retains it for a flight next.
    mutating func countBody(_ body: RequestBody, of client: ClientID, by principal: Handle<Principal>) {
        requests.bodies.add(body, of: client, by: principal)
        quotas.share(body.byteCount, of: \.bodyBytes, by: principal)
    }

    /// Releases the counted head of a holder, if it has one.
    mutating func releaseHead(of holder: RequestHeads.Holder) {
        guard let head = requests.heads.remove(holder) else { return }
        quotas.share(-head.byteCount, of: \.headBytes, by: head.principal)
    }

    // MARK: Counts

    /// Charges the change of a client's window to its principal. Called after each change.
    @inline(__always)
    mutating func chargeWindow(of client: Handle<ClientSession>) {
        let principal = clients[client].principal
        guard principal != PrincipalTable.administrator else { return }
        let (weight, charged) = (clients[client].deliveries.weight, clients[client].chargedWeight)
        clients[client].chargedWeight = weight
        quotas.spoolBytes(weight.bodies - charged.bodies, of: principal)
        quotas.memoryBytes(weight.inMemory - charged.inMemory, of: principal)
        let count = clients[client].deliveries.count
        quotas.terminals(count - clients[client].chargedTerminals, of: principal)
        clients[client].chargedTerminals = count
    }

    /// Charges the held outcome of a request to its principal.
    ///
    /// - Parameter sign: -1 to end that.
    mutating func chargeHeld(_ interest: Handle<Interest>, _ sign: Int = 1) {
        let (weight, principal) = (heldWeight(of: interest), principal(of: interest))
        quotas.spoolBytes(sign * weight.bodies, of: principal)
        quotas.memoryBytes(sign * weight.inMemory, of: principal)
    }

    /// Counts the bytes of a durable request, or of its result, for its principal.
    mutating func chargeDurable(_ interest: Handle<Interest>, request: Int? = nil, result: Int? = nil) {
        quotas.share(
            durables.setBytes(request: request, result: result, of: interest), of: \.durableBytes,
            by: principal(of: interest))
    }

    /// Moves a request from pending to its result in both ledgers, and removes it from its owner's open requests.
    mutating func account(_ interest: Handle<Interest>, _ change: (inout Ledger.Requests) -> Void) {
        let (handler, owner) = (requests[interest].handler, requests[interest].owner)
        ledger.requests.pending -= 1
        change(&ledger.requests)
        if let owner { requests.removeOwned(interest, from: &clients[owner].ownedRequests) }
        quotas.requests(-1, of: handlers[handler].principal)
        handlers.requestEnded(of: handler, owner: owner, change)
    }
}
