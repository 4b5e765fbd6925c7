internal import EarshotHTTP
internal import EarshotWire

/// Events of deliveries: acknowledgements, sockets, bodies. `Delivery` decides; its results concern other mechanisms.
extension BrokerCore {
    // MARK: Events

    /// Handles an ACK: the client has all terminals up to this sequence number.
    mutating func acknowledged(_ sequence: UInt64, by client: Handle<ClientSession>) {
        // An earlier connection may have received terminals that were not sent over this one yet.
        guard sequence <= records.clients[client].deliveries.lastReceived else {
            refuse(client, "bad-message", "ACK names a terminal that was not sent", .acknowledge(sequence))
            return
        }
        guard sequence > records.clients[client].deliveries.acknowledged else { return }
        let wasClosed = records.clients[client].deliveries.isClosed
        while let due = Delivery.takeAcknowledged(upTo: sequence, of: client, in: &records) {
            // A request without an owner belongs to all subscribers: the first acknowledgement frees its ID.
            if let interest = records.record(of: due), records.requests[interest].owner == nil,
                !Durable.keepsFailure(of: interest, client, in: &records)
            {
                freeID(interest)
            }
            apply(Delivery.end(due, by: client, in: &records))
        }
        records.chargeWindow(of: client)
        if !records.pulls.isEmpty { records.pulls.acknowledged(sequence, by: client) }
        sendDue(to: client)
        if wasClosed, !records.clients[client].deliveries.isClosed { records.queue.clientOpened(client) }
    }

    /// Blocks the window at a terminal that the socket did not take, until `clientWritable`.
    public mutating func deliveryRefused(_ sequence: UInt64, by id: ClientID) {
        guard let client = records.clients.handle(of: id) else { return }
        records.clients[client].deliveries.refuse(sequence)
        if !answeredRemovals.isEmpty { withdrawRefused(of: client) }
    }

    /// Resumes delivery after the socket became writable: missed progress first, then terminals.
    public mutating func clientWritable(_ id: ClientID) {
        guard let client = records.clients.handle(of: id) else { return }
        sendMissedProgress(to: client)
        if !records.pulls.isEmpty { records.pulls.unblock(client) }
        guard records.clients[client].deliveries.unblock() else { return }
        sendDue(to: client)
        if !records.clients[client].deliveries.isClosed { records.queue.clientOpened(client) }
    }

    /// Stops spilling for a while: a body could not be written, and stays in memory. Until then a result that would
    /// have to leave memory fails.
    public mutating func spillFailed(_ body: BodyID, now: Tick) { Delivery.spillFailed(body, now: now, in: &records) }

    /// Handles READ.
    mutating func readRequested(_ message: BodyRead, by client: Handle<ClientSession>) {
        if let refusal = Delivery.read(message, by: client, in: &records) { refuse(message, refusal, of: client) }
    }

    /// Answers a READ with a DATA that refuses it. Unlike an ERROR it names the READ.
    private mutating func refuse(_ read: BodyRead, _ refusal: Delivery.Refusal, of client: Handle<ClientSession>) {
        var data = BodyData(read.body, offset: read.offset)
        (data.error, data.detail) = (refusal.code, refusal.detail)
        reply(.message(.data(data)), to: client, answering: 0)
    }

    /// Handles a DATA that the socket did not take. Reading continues at `clientWritable`.
    public mutating func pieceRefused(_ piece: BodyPiece, by id: ClientID) {
        guard let client = records.clients.handle(of: id) else { return }
        records.pulls.refuse(piece.read, of: client)
    }

    /// Handles a file without the expected bytes.
    public mutating func pieceLost(_ piece: BodyPiece, by id: ClientID, now: Tick) {
        guard let client = records.clients.handle(of: id), records.pulls.contains(client) else { return }
        records.clock = now
        guard let refusal = Delivery.pieceLost(piece, by: client, in: &records) else { return }
        refuse(piece.read.message, refusal, of: client)
    }

    /// Begins a TAKE with the file that its sender may own; nil if there is none. The shell renames the file if it has
    /// one link, and reports that by `fileTaken`. Without a rename the answer says that the client must copy.
    public mutating func fileToTake(_ sequence: UInt64, by id: ClientID) -> FileToTake? {
        guard let client = records.clients.handle(of: id) else { return nil }
        return Delivery.fileToTake(sequence, by: client, in: &records)
    }

    /// Handles the rename of a file that its receiver owns from here on.
    public mutating func fileTaken(_ taken: FileToTake) {
        records.outcomes.renameFile(of: taken.outcome, to: taken.newName)
    }

    /// Answers TAKE.
    mutating func takeRequested(_ sequence: UInt64, by client: Handle<ClientSession>) {
        guard let answer = Delivery.endTake(sequence, by: client, in: &records) else {
            refuse(client, "unknown-body", "no such terminal with a file waits for an ACK", .take(sequence))
            return
        }
        reply(.message(answer), to: client)
    }

    // MARK: Steps

    /// Queues the terminal of an accounted request for these clients, and sends it as far as their windows allow.
    /// Without clients the request is freed.
    mutating func publish(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, to listeners: [Handle<ClientSession>]
    ) {
        Delivery.begin(interest, with: outcome, for: listeners, in: &records)
        guard !listeners.isEmpty else {
            freeRequest(interest)
            return
        }
        for client in listeners {
            sendDue(to: client)
            Delivery.countIfWaiting(interest, for: client, in: &records)
        }
        freeIfCompact(interest)
    }

    /// Sends `FAILED … removed` to these clients, and frees the request if there are none.
    mutating func publishRemoval(of interest: Handle<Interest>, to listeners: [Handle<ClientSession>]) {
        guard !listeners.isEmpty else {
            records.requests[interest].enter(.delivering)
            freeRequest(interest)
            return
        }
        publish(interest, records.outcomes.insert(Outcome(failure: .removed)), to: listeners)
    }

    /// Delivers a terminal to one more client.
    mutating func deliver(_ interest: Handle<Interest>, to client: Handle<ClientSession>) {
        Delivery.append(interest, for: client, in: &records)
        sendDue(to: client)
        Delivery.countIfWaiting(interest, for: client, in: &records)
        freeIfCompact(interest)
    }

    /// Sends due terminals while the window is open, and the replies between them.
    mutating func sendDue(to client: Handle<ClientSession>) {
        while Delivery.sendDue(to: client, in: &records) { sendReplies(to: client) }
    }

    /// Carries out the consequences of the end of a delivery. The owner's delivery frees the ID, even if other clients
    /// have not acknowledged theirs.
    mutating func apply(_ ended: Delivery.Ended) {
        if let handler = ended.handler { dropHandlerIfIdle(handler) }
        guard let interest = ended.request else { return }
        if ended.wasOwners { freeID(interest) }
        guard ended.wasLast else {
            freeIfCompact(interest)
            return
        }
        if records.isDurable(interest), !records.isDoomed(interest) {
            returnUndelivered(interest, after: ended.failure)
        } else {
            freeRequest(interest)
        }
    }

    /// Frees the record of a request whose deliveries are all owed failures, if its ID is free.
    mutating func freeIfCompact(_ interest: Handle<Interest>) {
        if Delivery.releaseIfCompact(interest, in: &records) { freeRequest(interest) }
    }

    /// Returns a sentence for each violated invariant.
    func auditPulls() -> [String] {
        records.pulls.checkInvariants()
            + records.pulls.sessions.filter { !records.clients.contains($0) }.map {
                "12: session \($0) has ended and pulls bodies"
            }
    }
}
