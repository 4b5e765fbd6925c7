internal import EarshotHTTP
internal import EarshotWire

/// Delivery: an outcome becomes one terminal per subscriber, which is kept until its acknowledgement.
///
/// The functions change the records and call no other mechanism. They return what must follow: that a reply precedes
/// the next terminal, that a delivery has ended, or that nothing needs the record of a request any more.
enum Delivery {
    /// A delivery that has ended: its terminal was acknowledged, withdrawn or lost.
    struct EndedDelivery {
        /// Request of the terminal; nil if its record was freed.
        var request: Handle<Interest>?
        /// Failure of the terminal; nil for a result.
        var failure: FailureCode?
        /// Whether the receiver owned the request, whose ID becomes free.
        var wasRequestOwner = false
        /// Whether it was the last delivery of the request.
        var wasLastDelivery = false
        /// Handler of a freed failure, which may be idle; nil if none was freed.
        var handler: Handle<HandlerEntry>?
    }

    // MARK: Terminals

    /// Adds the terminals of a request that has ended to the windows of its subscribers. `sendDueTerminals` sends them.
    static func beginDelivery(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, for subscribers: [Handle<ClientSession>],
        in records: inout Records
    ) {
        records.requests[interest].enter(.delivering)
        records.requests[interest].outcome = outcome
        records.outcomes.addReference(to: outcome)
        // An owner that is not subscribed has nothing to acknowledge.
        if let owner = records.requests[interest].owner, !subscribers.contains(owner) {
            records.requests[interest].owner = nil
        }
        for client in subscribers { appendTerminal(interest, for: client, in: &records) }
    }

    /// Appends a terminal to the window of a client, without sending it.
    static func appendTerminal(
        _ interest: Handle<Interest>, for client: Handle<ClientSession>, in records: inout Records
    ) {
        if records.requests[interest].outcome == nil, let number = records.outcomes.compactFailureHandle(of: interest) {
            records.outcomes.retainCompactFailure(number)
            let due = DueTerminal(compact: number)
            records.clients[client].deliveries.append(
                due, records.byteWeight(of: due),
                counting: records.countedOutcome(records.outcomes.compactFailures[number].outcome))
        } else {
            let due = DueTerminal(uncounted: interest)
            records.clients[client].deliveries.append(due, records.byteWeight(of: due))
        }
        records.chargeDeliveryWindow(of: client)
        watchForStall(client, in: &records)
        records.requests[interest].outstandingDeliveryCount += 1
        records.ledger.deliveries.started += 1
        records.ledger.deliveries.outstanding += 1
    }

    /// Whether a terminal is due to a client. O(terminals due to it).
    static func isTerminalDue(
        _ interest: Handle<Interest>, to client: Handle<ClientSession>, in records: inout Records
    ) -> Bool {
        let window = records.clients[client].deliveries
        if window.contains(DueTerminal(uncounted: interest)) || window.contains(DueTerminal(counted: interest)) {
            return true
        }
        return records.outcomes.compactFailureHandle(of: interest).map { window.contains(DueTerminal(compact: $0)) }
            ?? false
    }

    /// Sends due terminals while the window is open, up to a reply. Disconnects a client with too many due.
    ///
    /// - Returns: whether a reply precedes the next terminal. After sending it the caller continues.
    static func sendDueTerminals(to client: Handle<ClientSession>, in records: inout Records) -> Bool {
        while true {
            if records.clients[client].replies.hasWaitingReply, isReplyNext(to: client, in: &records) { return true }
            guard let (due, sequence) = records.clients[client].deliveries.popNextToSend() else { break }
            switch due.kind {
            case .uncountedTerminal(let interest), .countedTerminal(let interest):
                let (terminal, body) = terminalMessage(of: interest, sequence: sequence, in: records)
                if body == nil { recordFileReader(client, ofFileOf: due, in: &records) }
                // Two calls, so that the usual case does not copy the terminal.
                if records.bodyPulls.isEmpty {
                    records.outbox.appendAction(.client(.deliverTerminal(records.clients[client].id, terminal, body)))
                } else {
                    let pulled = terminalForPulling(terminal, to: client, in: &records)
                    records.outbox.appendAction(.client(.deliverTerminal(records.clients[client].id, pulled, body)))
                }
            case .compactFailure(let number):
                let terminal = terminalMessage(ofCompactFailure: number, sequence: sequence, in: &records)
                records.outbox.appendAction(.client(.deliverTerminal(records.clients[client].id, terminal, nil)))
            case .withdrawn: continue
            }
        }
        disconnectIfOverdue(client, in: &records)
        return false
    }

    private static func isReplyNext(to client: Handle<ClientSession>, in records: inout Records) -> Bool {
        guard !records.clients[client].isAway else { return false }
        let sequence = records.clients[client].deliveries.lastSequence
        return records.clients[client].replies.isReplyNext(after: sequence)
    }

    // MARK: Ends of deliveries

    /// Takes the first terminal from the window of a client, if this sequence number acknowledges it. The caller
    /// ends its delivery with `endDelivery`.
    static func popAcknowledgedTerminal(
        upTo sequence: UInt64, of client: Handle<ClientSession>, in records: inout Records
    ) -> DueTerminal? {
        guard let due = records.clients[client].deliveries.firstTerminal(acknowledgedBy: sequence) else { return nil }
        records.clients[client].deliveries.removeFirst(
            records.byteWeight(of: due), counting: records.countedOutcome(ofDue: due))
        records.ledger.deliveries.acknowledged += 1
        return due
    }

    /// Ends the delivery of a terminal that has left a window.
    static func endDelivery(
        _ due: DueTerminal, by client: Handle<ClientSession>, in records: inout Records
    ) -> EndedDelivery {
        records.ledger.deliveries.outstanding -= 1
        var ended = EndedDelivery()
        switch due.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest):
            ended.request = interest
            ended.failure = records.outcomes[records.outcome(of: interest)].failure
        case .compactFailure(let number):
            let failure = records.outcomes.compactFailures[number]
            ended.request = failure.interest
            ended.failure = records.outcomes[failure.outcome].failure
            if records.outcomes.releaseCompactFailure(number) {
                records.releaseOutcome(failure.outcome)
                records.handlers.releaseHandler(failure.handler)
                ended.handler = failure.handler
            }
        case .withdrawn: preconditionFailure("a withdrawn terminal ends twice")
        }
        guard let interest = ended.request else { return ended }
        records.requests[interest].outstandingDeliveryCount -= 1
        if records.requests[interest].owner == client {
            records.requests[interest].owner = nil
            ended.wasRequestOwner = true
        }
        ended.wasLastDelivery = records.requests[interest].outstandingDeliveryCount == 0
        return ended
    }

    /// Ends the delivery of a terminal that a client does not receive, because the client left or withdrew it.
    static func endUndeliveredTerminal(
        _ due: DueTerminal, by client: Handle<ClientSession>, in records: inout Records
    ) -> EndedDelivery {
        records.ledger.deliveries.lost += 1
        return endDelivery(due, by: client, in: &records)
    }

    // MARK: Waiting terminals

    /// Counts the newest terminal of a client if it waits, and moves its body out of memory if too many such bodies
    /// wait. Disconnects a client to which more is due than the bounds allow.
    static func countTerminalIfUnsent(
        _ interest: Handle<Interest>, for client: Handle<ClientSession>, in records: inout Records
    ) {
        if records.clients[client].deliveries.unsentCount > 0 {
            countUnsentTerminal(interest, for: client, in: &records)
        }
    }

    private static func countUnsentTerminal(
        _ interest: Handle<Interest>, for client: Handle<ClientSession>, in records: inout Records
    ) {
        // Without an outcome the newest entry is a compact failure.
        if let outcome = records.requests[interest].outcome {
            // The failure of a durable request that is not on disk is written again if no client acknowledges it.
            if records.outcomes[outcome].response == nil,
                !records.isDurable(interest) || records.durables.hasResult(interest)
            {
                let number =
                    records.outcomes.compactFailureHandle(of: interest)
                    ?? addCompactFailure(interest, outcome, in: &records)
                records.outcomes.retainCompactFailure(number)
                let compact = DueTerminal(compact: number)
                records.clients[client].deliveries.replaceLast(
                    with: compact, records.byteWeight(of: compact),
                    records.countedOutcome(records.outcomes.compactFailures[number].outcome))
            } else {
                if records.outcomes.mustSpillBody(outcome, waiting: records.clients[client].deliveries.unsentCount) {
                    // Clients with room in their windows get the result; this client is disconnected.
                    if records.outcomes.isSpoolFull {
                        disconnect(client, in: &records)
                    } else {
                        spillBody(outcome, in: &records)
                    }
                }
                records.clients[client].deliveries.replaceLast(
                    with: DueTerminal(counted: interest), DeliveryWindow.ByteWeight(), records.countedOutcome(outcome))
            }
        }
        disconnectIfOverdue(client, in: &records)
    }

    private static func addCompactFailure(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, in records: inout Records
    ) -> Handle<CompactFailure> {
        let record = records.requests[interest]
        records.handlers.retainHandler(record.handler)
        return records.outcomes.addCompactFailure(record.request, of: interest, record.handler, outcome: outcome)
    }

    /// Releases the outcome of a request whose deliveries are all compact failures.
    ///
    /// - Returns: whether its ID is free, so that nothing needs its record any more.
    static func releaseIfCompactFailure(_ interest: Handle<Interest>, in records: inout Records) -> Bool {
        guard let number = records.outcomes.compactFailureHandle(of: interest),
            records.requests[interest].outstandingDeliveryCount
                == records.outcomes.compactFailures[number].referenceCount
        else { return false }
        if let outcome = records.takeOutcome(of: interest) { records.releaseOutcome(outcome) }
        guard !records.requests[interest].isRequestIDTaken else { return false }
        records.outcomes.detachCompactFailure(number)
        return true
    }
}
