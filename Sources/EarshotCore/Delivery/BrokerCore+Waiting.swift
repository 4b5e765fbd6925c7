internal import EarshotHTTP
internal import EarshotWire

/// Terminals and bodies moved out of memory, because they wait for a client with a full window or for a handler's first
/// listener.
///
/// A terminal in the shell's file is a `WaitingTerminal` in memory. Its deliveries hold that record instead of the
/// outcome and, once the ID is free, instead of the request's record.
extension BrokerCore {
    // MARK: Terminals

    /// Moves the newest waiting terminal of a client out of memory. It may stay if all waiting terminals, at the size
    /// of the heaviest, would fit into the bound.
    mutating func limitWaiting(_ interest: Handle<Interest>, for client: Handle<ClientSession>) {
        guard let outcome = interests[interest].outcome else { return }
        let waiting = clients[client].deliveries.waiting
        guard !outcomes.isSpoolFull else {
            // Clients with room in their windows get the result; this client is disconnected.
            if outcomes.mustSpill(outcome, waiting: waiting) { close(client) }
            return
        }
        let bytes = outcomes[outcome].memoryBytes
        guard !clients[client].deliveries.keepsLast(bytes: bytes, within: limits.waitingTerminalBytes) else { return }
        if isDurable(interest), !durables.hasResult(interest) {
            // The result is in memory only. If no client acknowledges it, it is written again.
            if outcomes.mustSpill(outcome, waiting: waiting) { spill(outcome) }
        } else {
            putAside(interest, for: client)
        }
    }

    /// Moves the newest terminal of a client into the file, once for all clients that wait for it.
    private mutating func putAside(_ interest: Handle<Interest>, for client: Handle<ClientSession>) {
        let number = outcomes.waitingNumber(of: interest) ?? keepWaiting(interest)
        outcomes.retainWaiting(number)
        let weight = weight(of: DueTerminal(interest: interest))
        let copy = DueTerminal(waiting: number)
        clients[client].deliveries.replaceLast(weight, by: copy, self.weight(of: copy))
        chargeWindow(of: client)
    }

    /// Writes a terminal into the file. A terminal that its record describes completely needs no place there.
    private mutating func keepWaiting(_ interest: Handle<Interest>) -> Handle<WaitingTerminal> {
        let record = interests[interest]
        let outcome = outcomes[outcomeNumber(of: interest)]
        let mark = RequestMark(record.request)
        handlers.retain(record.handler)
        if outcome.isBare, record.extras == nil, mark.request != nil {
            let bare = WaitingTerminal(
                request: mark, handler: record.handler, bytes: 0, failure: outcome.failure, isFiled: false)
            return outcomes.addWaiting(bare, of: interest, file: nil)
        }
        let (terminal, body) = terminal(of: interest, sequence: 0)
        let response = record.isWarm ? nil : outcome.response
        let name = namedFile(of: interest)
        // The shell copies any other body into its file.
        let isInline = name == nil && (body != nil || response?.file != nil)
        let file = name.map { WaitingBody(file: $0, bytes: response?.length ?? 0) }
        let bytes =
            Outcome.terminalBytes + (outcome.response?.fields.count ?? 0) + (isInline ? response?.length ?? 0 : 0)
        let waiting = WaitingTerminal(
            request: mark, handler: record.handler, bytes: UInt32(clamping: bytes), failure: outcome.failure,
            isFiled: file != nil)
        let number = outcomes.addWaiting(waiting, of: interest, file: file)
        let user = principals.name(of: handlers[record.handler].principal)
        actions.append(.spool(.keepWaiting(WaitingID(rawValue: number.number), terminal, body, user: user)))
        return number
    }

    /// Sends a waiting terminal: from the file, or made from its record.
    mutating func sendWaiting(_ number: Handle<WaitingTerminal>, _ sequence: UInt64, to client: Handle<ClientSession>) {
        let record = outcomes.waiting[number]
        guard !record.isInFile, let code = record.failure, let request = record.request.request else {
            let isPulled = !pulls.isEmpty && pulls.contains(client)
            let id = WaitingID(rawValue: number.number)
            actions.append(
                .client(.deliverWaiting(clients[client].id, sequence: sequence, id, isPulled: isPulled)))
            return
        }
        let failure = Terminal.Failure(code: code.rawValue, detail: code.sentence)
        var terminal = Terminal(
            handler: handlers[record.handler].id, request: request, sequence: sequence, outcome: .failed(failure))
        terminal.isDurable = record.interest.map { isDurable($0) } ?? false
        actions.append(.client(.deliver(clients[client].id, terminal, nil)))
    }

    /// Ends one delivery of a waiting terminal. The last one frees its record.
    mutating func settleWaiting(_ number: Handle<WaitingTerminal>, by client: Handle<ClientSession>) {
        let record = outcomes.waiting[number]
        if let freed = outcomes.releaseWaiting(number) {
            delete(freed)
            if record.isInFile { actions.append(.spool(.forgetWaiting(WaitingID(rawValue: number.number)))) }
            handlers.release(record.handler)
            dropHandlerIfIdle(record.handler)
        }
        if let interest = record.interest { settled(interest, record.failure, by: client) }
    }

    /// Releases the outcome of a request whose deliveries all wait in the file. Frees its record too if the ID is free.
    mutating func forgetIfAside(_ interest: Handle<Interest>) {
        guard let number = outcomes.waitingNumber(of: interest),
            interests[interest].outstanding == outcomes.waiting[number].holders
        else { return }
        if let outcome = takeOutcome(of: interest) { release(outcome) }
        guard !interests[interest].isListed else { return }
        outcomes.detachWaiting(number)
        forgetInterest(interest)
    }

    /// Stops spilling for a while: the shell could not write a terminal, and keeps it in memory.
    public mutating func waitingFailed(now: Tick) {
        noteFullSpool(now: now)
    }

    /// Closes a client whose terminal cannot be read back. It requests again after it has reconnected.
    public mutating func waitingLost(by id: ClientID) {
        guard let client = clients.number(of: id) else { return }
        close(client)
    }

    /// Stops spilling until the next attempt, `CoreLimits.spoolRetryMilliseconds` later.
    private mutating func noteFullSpool(now: Tick) {
        guard outcomes.noteFullSpool() else { return }
        setTimer(now.advanced(byMilliseconds: limits.spoolRetryMilliseconds), .spoolRetry)
    }

    // MARK: Bodies

    /// Moves the body of an outcome from memory into the spool, if it is in memory.
    mutating func spill(_ outcome: Handle<Outcome>) {
        if let (body, file) = outcomes.spill(outcome) { actions.append(.spool(.spill(body, file: file))) }
    }

    /// Stops spilling for a while: a body could not be written, and stays in memory. Until then a result that would
    /// have to leave memory fails.
    public mutating func spillFailed(_ body: BodyID, now: Tick) {
        noteFullSpool(now: now)
        delete(outcomes.unspill(body))
    }

    /// Returns a failure in place of a result that cannot be spilled; the result itself while the spool accepts bodies.
    mutating func lost(_ outcome: Handle<Outcome>) -> Handle<Outcome> {
        guard outcomes.isSpoolFull else { return outcome }
        return outcomes.insert(outcomes[outcome].replaced(by: .spoolFull))
    }
}
