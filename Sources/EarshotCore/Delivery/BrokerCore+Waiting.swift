internal import EarshotHTTP
internal import EarshotWire

/// Terminals that wait for a client with a full window, and bodies that leave memory because they wait for one, or for
/// a handler's first listener.
///
/// A failure without a response becomes an `OwedFailure`. Its deliveries hold that record instead of the outcome and,
/// once the ID is free, instead of the request's record. All other terminals keep both.
extension BrokerCore {
    // MARK: Terminals

    /// Counts the newest terminal of a client, which waits, and moves its body out of memory if too many such bodies
    /// wait. Disconnects a client to which more is due than the bounds allow.
    mutating func countWaiting(_ interest: Handle<Interest>, for client: Handle<ClientSession>) {
        // Without an outcome the newest entry is an owed failure.
        if let outcome = interests[interest].outcome {
            // The failure of a durable request that is not on disk is written again if no client acknowledges it.
            if outcomes[outcome].response == nil, !isDurable(interest) || durables.hasResult(interest) {
                let number = outcomes.owedNumber(of: interest) ?? addOwed(interest, outcome)
                outcomes.retainOwed(number)
                let owed = DueTerminal(owed: number)
                clients[client].deliveries.countLast(
                    as: owed, weight(of: owed), counted(outcomes.owed[number].outcome))
            } else {
                if outcomes.mustSpill(outcome, waiting: clients[client].deliveries.waiting) {
                    // Clients with room in their windows get the result; this client is disconnected.
                    if outcomes.isSpoolFull { close(client) } else { spill(outcome) }
                }
                clients[client].deliveries.countLast(
                    as: DueTerminal(counted: interest), DeliveryWindow.Weight(), counted(outcome))
            }
        }
        closeIfOverdue(client)
    }

    private mutating func addOwed(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>
    ) -> Handle<OwedFailure> {
        let record = interests[interest]
        handlers.retain(record.handler)
        let tag = record.extras.flatMap { extras[$0].tag }
        return outcomes.addOwed(record.request, of: interest, record.handler, outcome: outcome, tag: tag)
    }

    /// Outcome that counts towards the bounds of each window in which it waits.
    @inline(__always)
    func counted(_ outcome: Handle<Outcome>) -> DeliveryWindow.CountedOutcome {
        DeliveryWindow.CountedOutcome(
            outcome: outcome, fieldBytes: outcomes[outcome].response?.fields.count ?? 0)
    }

    /// The outcome of a due terminal if it counts towards the bounds of the window; nil otherwise.
    @inline(__always)
    func counted(_ due: DueTerminal) -> DeliveryWindow.CountedOutcome? {
        switch due.kind {
        case .counted(let interest): counted(outcomeNumber(of: interest))
        case .owed(let number): counted(outcomes.owed[number].outcome)
        case .uncounted, .withdrawn: nil
        }
    }

    /// Disconnects a client to which more is due than the bounds allow.
    @inline(__always)
    mutating func closeIfOverdue(_ client: Handle<ClientSession>) {
        if clients[client].deliveries.isOverdue(DeliveryWindow.Bounds(limits)) { close(client) }
    }

    // MARK: Owed failures

    /// The terminal of an owed failure.
    func terminal(ofOwed number: Handle<OwedFailure>, sequence: UInt64) -> Terminal {
        let record = outcomes.owed[number]
        let outcome = outcomes[record.outcome]
        guard let code = outcome.failure else { preconditionFailure("owed failure \(number) has no code") }
        let extras = outcomes.owedExtras[number]
        var failure = Terminal.Failure(code: code.rawValue, detail: outcome.detail ?? code.sentence)
        failure.attempts = outcome.attempts
        failure.retryAfterSeconds = outcome.retryAfterSeconds
        failure.url = extras?.url
        return Terminal(
            handler: handlers[record.handler].id, request: record.request, sequence: sequence, tag: extras?.tag,
            isDurable: record.interest.map { isDurable($0) } ?? false, outcome: .failed(failure))
    }

    /// Ends one delivery of an owed failure. The last one frees its record.
    mutating func deliveryEnded(ofOwed number: Handle<OwedFailure>, by client: Handle<ClientSession>) {
        let record = outcomes.owed[number]
        let failure = outcomes[record.outcome].failure
        if outcomes.releaseOwed(number) {
            release(record.outcome)
            handlers.release(record.handler)
            dropHandlerIfIdle(record.handler)
        }
        if let interest = record.interest { settled(interest, failure, by: client) }
    }

    /// Releases the outcome of a request whose deliveries are all owed failures. Frees its record too if the ID is free.
    mutating func freeIfOwed(_ interest: Handle<Interest>) {
        guard let number = outcomes.owedNumber(of: interest),
            interests[interest].outstanding == outcomes.owed[number].holders
        else { return }
        if let outcome = takeOutcome(of: interest) { release(outcome) }
        guard !interests[interest].isListed else { return }
        outcomes.detachOwed(number)
        forgetInterest(interest)
    }

    // MARK: Bodies

    /// Moves the body of an outcome from memory into the spool, if it is in memory.
    mutating func spill(_ outcome: Handle<Outcome>) {
        if let (body, file) = outcomes.spill(outcome) { actions.append(.spool(.spill(body, file: file))) }
    }

    /// Stops spilling for a while: a body could not be written, and stays in memory. Until then a result that would
    /// have to leave memory fails.
    public mutating func spillFailed(_ body: BodyID, now: Tick) {
        if outcomes.noteFullSpool() {
            setTimer(now.advanced(byMilliseconds: limits.spoolRetryMilliseconds), .spoolRetry)
        }
        delete(outcomes.unspill(body))
    }

    /// Returns a failure in place of a result that cannot be spilled; the result itself while the spool accepts bodies.
    mutating func lost(_ outcome: Handle<Outcome>) -> Handle<Outcome> {
        guard outcomes.isSpoolFull else { return outcome }
        return outcomes.insert(outcomes[outcome].replaced(by: .spoolFull))
    }
}
