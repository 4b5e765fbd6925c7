internal import EarshotHTTP
internal import EarshotWire

/// Delivery: an outcome becomes one terminal per listener, which is kept until its acknowledgement.
///
/// The functions change the records and call no other mechanism. They return what must follow: that a reply precedes
/// the next terminal, that a delivery has ended, or that nothing needs the record of a request any more.
enum Delivery {
    /// A delivery that has ended: its terminal was acknowledged, withdrawn or lost.
    struct Ended {
        /// Request of the terminal; nil if its record was freed.
        var request: Handle<Interest>?
        /// Failure of the terminal; nil for a result.
        var failure: FailureCode?
        /// Whether the receiver owned the request, whose ID becomes free.
        var wasOwners = false
        /// Whether it was the last delivery of the request.
        var wasLast = false
        /// Handler of a freed failure, which may be idle; nil if none was freed.
        var handler: Handle<HandlerEntry>?
    }

    // MARK: Terminals

    /// Adds the terminals of a request that has ended to the windows of its listeners. `sendDue` sends them.
    static func begin(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, for listeners: [Handle<ClientSession>],
        in records: inout Records
    ) {
        records.requests[interest].enter(.delivering)
        records.requests[interest].outcome = outcome
        records.outcomes.retain(outcome)
        // An owner that is not subscribed has nothing to acknowledge.
        if let owner = records.requests[interest].owner, !listeners.contains(owner) {
            records.requests[interest].owner = nil
        }
        for client in listeners { append(interest, for: client, in: &records) }
    }

    /// Appends a terminal to the window of a client, without sending it.
    static func append(
        _ interest: Handle<Interest>, for client: Handle<ClientSession>, in records: inout Records
    ) {
        if records.requests[interest].outcome == nil, let number = records.outcomes.compactNumber(of: interest) {
            records.outcomes.retainCompact(number)
            let due = DueTerminal(compact: number)
            records.clients[client].deliveries.append(
                due, records.weight(of: due), counting: records.counted(records.outcomes.compact[number].outcome))
        } else {
            let due = DueTerminal(uncounted: interest)
            records.clients[client].deliveries.append(due, records.weight(of: due))
        }
        records.chargeWindow(of: client)
        watchForStall(client, in: &records)
        records.requests[interest].outstanding += 1
        records.ledger.deliveries.due += 1
        records.ledger.deliveries.outstanding += 1
    }

    /// Whether a terminal is due to a client. O(terminals due to it).
    static func isDue(
        _ interest: Handle<Interest>, to client: Handle<ClientSession>, in records: inout Records
    ) -> Bool {
        let window = records.clients[client].deliveries
        if window.contains(DueTerminal(uncounted: interest)) || window.contains(DueTerminal(counted: interest)) {
            return true
        }
        return records.outcomes.compactNumber(of: interest).map { window.contains(DueTerminal(compact: $0)) } ?? false
    }

    /// Sends due terminals while the window is open, up to a reply. Disconnects a client with too many due.
    ///
    /// - Returns: whether a reply precedes the next terminal. After sending it the caller continues.
    static func sendDue(to client: Handle<ClientSession>, in records: inout Records) -> Bool {
        while true {
            if records.clients[client].replies.isBehind, isReplyNext(to: client, in: &records) { return true }
            guard let (due, sequence) = records.clients[client].deliveries.take() else { break }
            switch due.kind {
            case .uncounted(let interest), .counted(let interest):
                let (terminal, body) = terminal(of: interest, sequence: sequence, in: records)
                if body == nil { noteReader(client, ofFileOf: due, in: &records) }
                // Two calls, so that the usual case does not copy the terminal.
                if records.pulls.isEmpty {
                    records.outbox.append(.client(.deliver(records.clients[client].id, terminal, body)))
                } else {
                    let pulled = pulled(terminal, to: client, in: &records)
                    records.outbox.append(.client(.deliver(records.clients[client].id, pulled, body)))
                }
            case .compact(let number):
                let terminal = terminal(ofCompact: number, sequence: sequence, in: &records)
                records.outbox.append(.client(.deliver(records.clients[client].id, terminal, nil)))
            case .withdrawn: continue
            }
        }
        disconnectIfOverdue(client, in: &records)
        return false
    }

    private static func isReplyNext(to client: Handle<ClientSession>, in records: inout Records) -> Bool {
        guard !records.clients[client].isAway else { return false }
        let sequence = records.clients[client].deliveries.lastSequence
        return records.clients[client].replies.isNext(after: sequence)
    }

    // MARK: Ends of deliveries

    /// Takes the first terminal from the window of a client, if this sequence number acknowledges it. `end` ends its
    /// delivery.
    static func takeAcknowledged(
        upTo sequence: UInt64, of client: Handle<ClientSession>, in records: inout Records
    ) -> DueTerminal? {
        guard let due = records.clients[client].deliveries.first(upTo: sequence) else { return nil }
        records.clients[client].deliveries.removeFirst(records.weight(of: due), counting: records.counted(due))
        records.ledger.deliveries.acknowledged += 1
        return due
    }

    /// Ends the delivery of a terminal that has left a window.
    static func end(
        _ due: DueTerminal, by client: Handle<ClientSession>, in records: inout Records
    ) -> Ended {
        records.ledger.deliveries.outstanding -= 1
        var ended = Ended()
        switch due.kind {
        case .uncounted(let interest), .counted(let interest):
            ended.request = interest
            ended.failure = records.outcomes[records.outcome(of: interest)].failure
        case .compact(let number):
            let failure = records.outcomes.compact[number]
            ended.request = failure.interest
            ended.failure = records.outcomes[failure.outcome].failure
            if records.outcomes.releaseCompact(number) {
                records.release(failure.outcome)
                records.handlers.release(failure.handler)
                ended.handler = failure.handler
            }
        case .withdrawn: preconditionFailure("a withdrawn terminal ends twice")
        }
        guard let interest = ended.request else { return ended }
        records.requests[interest].outstanding -= 1
        if records.requests[interest].owner == client {
            records.requests[interest].owner = nil
            ended.wasOwners = true
        }
        ended.wasLast = records.requests[interest].outstanding == 0
        return ended
    }

    /// Ends the delivery of a terminal that a client does not receive, because the client left or withdrew it.
    static func lose(
        _ due: DueTerminal, by client: Handle<ClientSession>, in records: inout Records
    ) -> Ended {
        records.ledger.deliveries.lost += 1
        return end(due, by: client, in: &records)
    }

    // MARK: Waiting terminals

    /// Counts the newest terminal of a client if it waits, and moves its body out of memory if too many such bodies
    /// wait. Disconnects a client to which more is due than the bounds allow.
    static func countIfWaiting(
        _ interest: Handle<Interest>, for client: Handle<ClientSession>, in records: inout Records
    ) {
        if records.clients[client].deliveries.waiting > 0 { countWaiting(interest, for: client, in: &records) }
    }

    private static func countWaiting(
        _ interest: Handle<Interest>, for client: Handle<ClientSession>, in records: inout Records
    ) {
        // Without an outcome the newest entry is an owed failure.
        if let outcome = records.requests[interest].outcome {
            // The failure of a durable request that is not on disk is written again if no client acknowledges it.
            if records.outcomes[outcome].response == nil,
                !records.isDurable(interest) || records.durables.hasResult(interest)
            {
                let number =
                    records.outcomes.compactNumber(of: interest) ?? addCompact(interest, outcome, in: &records)
                records.outcomes.retainCompact(number)
                let compact = DueTerminal(compact: number)
                records.clients[client].deliveries.countLast(
                    as: compact, records.weight(of: compact), records.counted(records.outcomes.compact[number].outcome))
            } else {
                if records.outcomes.mustSpill(outcome, waiting: records.clients[client].deliveries.waiting) {
                    // Clients with room in their windows get the result; this client is disconnected.
                    if records.outcomes.isSpoolFull {
                        disconnect(client, in: &records)
                    } else {
                        spill(outcome, in: &records)
                    }
                }
                records.clients[client].deliveries.countLast(
                    as: DueTerminal(counted: interest), DeliveryWindow.Weight(), records.counted(outcome))
            }
        }
        disconnectIfOverdue(client, in: &records)
    }

    private static func addCompact(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, in records: inout Records
    ) -> Handle<CompactFailure> {
        let record = records.requests[interest]
        records.handlers.retain(record.handler)
        return records.outcomes.addCompact(record.request, of: interest, record.handler, outcome: outcome)
    }

    /// Releases the outcome of a request whose deliveries are all owed failures.
    ///
    /// - Returns: whether its ID is free, so that nothing needs its record any more.
    static func releaseIfCompact(_ interest: Handle<Interest>, in records: inout Records) -> Bool {
        guard let number = records.outcomes.compactNumber(of: interest),
            records.requests[interest].outstanding == records.outcomes.compact[number].holders
        else { return false }
        if let outcome = records.takeOutcome(of: interest) { records.release(outcome) }
        guard !records.requests[interest].isListed else { return false }
        records.outcomes.detachCompact(number)
        return true
    }
}
