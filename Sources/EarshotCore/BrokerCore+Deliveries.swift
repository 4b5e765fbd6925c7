internal import EarshotHTTP
internal import EarshotWire

/// Events of deliveries: acknowledgements, sockets, bodies. `Delivery` decides, and these methods apply its results to
/// requests, handlers and the queue.
extension BrokerCore {
    // MARK: Events

    /// Handles an ACK: the client has all terminals up to this sequence number.
    mutating func terminalsAcknowledged(upTo sequence: UInt64, by client: Handle<ClientSession>) {
        // An earlier connection may have received terminals that were not sent over this one yet.
        guard sequence <= records.clients[client].deliveries.highestSentSequence else {
            refuseMessage(
                of: client, code: "bad-message", detail: "ACK names a terminal that was not sent",
                .acknowledge(sequence))
            return
        }
        guard sequence > records.clients[client].deliveries.lastAcknowledgedSequence else { return }
        let wasClosed = records.clients[client].deliveries.isClosed
        while let due = Delivery.popAcknowledgedTerminal(upTo: sequence, of: client, in: &records) {
            // A request without an owner belongs to all subscribers: the first acknowledgement frees its ID.
            if let interest = records.interest(ofDue: due), records.requests[interest].owner == nil,
                !Durable.retainsFailureAfterAck(of: interest, client, in: &records)
            {
                freeRequestID(of: interest)
            }
            deliveryEnded(Delivery.endDelivery(due, by: client, in: &records))
        }
        records.chargeDeliveryWindow(of: client)
        if !records.bodyPulls.isEmpty { records.bodyPulls.terminalAcknowledged(sequence, by: client) }
        sendDueTerminals(to: client)
        if wasClosed, !records.clients[client].deliveries.isClosed { records.queue.unparkLanes(ofClient: client) }
    }

    /// Blocks the window at a terminal that the socket did not take, until `clientSocketWritable`.
    public mutating func socketRefusedTerminal(_ sequence: UInt64, by id: ClientID) {
        guard let client = records.clients.handle(of: id) else { return }
        records.clients[client].deliveries.blockAtUnsent(sequence: sequence)
        if !answeredRemovals.isEmpty { withdrawRefusedTerminals(of: client) }
    }

    /// Resumes delivery after the socket became writable: missed progress first, then terminals.
    public mutating func clientSocketWritable(_ id: ClientID) {
        guard let client = records.clients.handle(of: id) else { return }
        sendMissedProgress(to: client)
        if !records.bodyPulls.isEmpty { records.bodyPulls.unblock(client) }
        guard records.clients[client].deliveries.unblock() else { return }
        sendDueTerminals(to: client)
        if !records.clients[client].deliveries.isClosed { records.queue.unparkLanes(ofClient: client) }
    }

    /// Stops spilling for a while: a body could not be written, and stays in memory. Until then a result that would
    /// have to leave memory fails.
    public mutating func bodySpillFailed(_ body: BodyID, now: MonotonicTime) {
        Delivery.bodySpillFailed(body, now: now, in: &records)
    }

    /// Handles READ.
    mutating func bodyReadRequested(_ message: BodyRead, by client: Handle<ClientSession>) {
        if let refusal = Delivery.acceptRead(message, by: client, in: &records) {
            refuseRead(message, refusal, of: client)
        }
    }

    /// Answers a READ with a DATA that refuses it. Unlike an ERROR it names the READ.
    private mutating func refuseRead(
        _ read: BodyRead, _ refusal: Delivery.ReadRefusal, of client: Handle<ClientSession>
    ) {
        var data = BodyData(read.body, offset: read.offset)
        (data.errorCode, data.detail) = (refusal.code, refusal.detail)
        reply(.message(.bodyData(data)), to: client, toMessageNumber: 0)
    }

    /// Handles a DATA that the socket did not take. Reading continues at `clientSocketWritable`.
    public mutating func socketRefusedPiece(_ piece: BodyPiece, by id: ClientID) {
        guard let client = records.clients.handle(of: id) else { return }
        records.bodyPulls.restoreUnsentRead(piece.read, of: client)
    }

    /// Handles a file without the expected bytes.
    public mutating func bodyPieceUnreadable(_ piece: BodyPiece, by id: ClientID, now: MonotonicTime) {
        guard let client = records.clients.handle(of: id), records.bodyPulls.contains(client) else { return }
        records.latestEventTime = now
        guard let refusal = Delivery.bodyPieceUnreadable(piece, by: client, in: &records) else { return }
        refuseRead(piece.read.message, refusal, of: client)
    }

    /// Begins a TAKE with the file that its sender may own; nil if there is none. The shell renames the file if it has
    /// one link, and reports that by `fileTaken`. Without a rename, the answer requires the client to copy the file.
    public mutating func beginFileTake(_ sequence: UInt64, by id: ClientID) -> FileRenameForTake? {
        guard let client = records.clients.handle(of: id) else { return nil }
        return Delivery.fileOwnableByTake(sequence, by: client, in: &records)
    }

    /// Handles the rename of a file that its receiver owns from here on.
    public mutating func fileTaken(_ taken: FileRenameForTake) {
        records.outcomes.renameFile(of: taken.outcome, to: taken.newName)
    }

    /// Answers TAKE.
    mutating func fileTakeRequested(_ sequence: UInt64, by client: Handle<ClientSession>) {
        guard let answer = Delivery.completeTake(sequence, by: client, in: &records) else {
            refuseMessage(
                of: client, code: "unknown-body", detail: "no such terminal with a file waits for an ACK",
                .takeFile(sequence))
            return
        }
        replyToCurrentMessage(.message(answer), to: client)
    }

    // MARK: Steps

    /// Queues the terminal of an accounted request for these clients, and sends it as far as their windows allow.
    /// Without clients the request is freed.
    mutating func publishTerminal(
        of interest: Handle<Interest>, _ outcome: Handle<Outcome>, to subscribers: [Handle<ClientSession>]
    ) {
        Delivery.beginDelivery(interest, with: outcome, for: subscribers, in: &records)
        guard !subscribers.isEmpty else {
            freeRequest(interest)
            return
        }
        for client in subscribers {
            sendDueTerminals(to: client)
            Delivery.countTerminalIfUnsent(interest, for: client, in: &records)
        }
        freeRequestIfOnlyFailuresDue(interest)
    }

    /// Sends `FAILED … removed` to these clients, and frees the request if there are none.
    mutating func publishRemoval(of interest: Handle<Interest>, to subscribers: [Handle<ClientSession>]) {
        guard !subscribers.isEmpty else {
            records.requests[interest].enter(.delivering)
            freeRequest(interest)
            return
        }
        publishTerminal(of: interest, records.outcomes.insert(Outcome(failure: .handlerRemoved)), to: subscribers)
    }

    /// Delivers a terminal to one more client.
    mutating func deliverTerminal(of interest: Handle<Interest>, to client: Handle<ClientSession>) {
        Delivery.appendTerminal(interest, for: client, in: &records)
        sendDueTerminals(to: client)
        Delivery.countTerminalIfUnsent(interest, for: client, in: &records)
        freeRequestIfOnlyFailuresDue(interest)
    }

    /// Sends due terminals while the window is open, and the replies between them.
    mutating func sendDueTerminals(to client: Handle<ClientSession>) {
        while Delivery.sendDueTerminals(to: client, in: &records) { sendReplies(to: client) }
    }

    /// Carries out the consequences of the end of a delivery. The owner's delivery frees the ID, even if other clients
    /// have not acknowledged theirs.
    mutating func deliveryEnded(_ ended: Delivery.EndedDelivery) {
        if let handler = ended.handler { removeHandlerIfIdle(handler) }
        guard let interest = ended.request else { return }
        if ended.wasRequestOwner { freeRequestID(of: interest) }
        guard ended.wasLastDelivery else {
            freeRequestIfOnlyFailuresDue(interest)
            return
        }
        if records.isDurable(interest), !records.isAwaitingRemoval(interest) {
            holdUnacknowledgedTerminal(of: interest, after: ended.failure)
        } else {
            freeRequest(interest)
        }
    }

    /// Frees the record of a request if its ID is free and all its deliveries are compact failures.
    mutating func freeRequestIfOnlyFailuresDue(_ interest: Handle<Interest>) {
        if Delivery.releaseIfCompactFailure(interest, in: &records) { freeRequest(interest) }
    }

    /// Returns a sentence for each violated invariant.
    func auditPulls() -> [String] {
        records.bodyPulls.checkInvariants()
            + records.bodyPulls.sessions.filter { !records.clients.contains($0) }.map {
                "12: session \($0) has ended and pulls bodies"
            }
    }
}
