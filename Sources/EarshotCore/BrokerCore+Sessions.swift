internal import DequeModule
internal import EarshotWire
internal import OrderedCollections

/// Sessions with a lease: they outlive their connection for the time of the lease, so that the client can resume them.
///
/// While a session is away nothing of it is removed. It stays an owner and a subscriber, and terminals become due to it.
/// They fill its window, whose backpressure then stops transfers that only this client requested. A connection that
/// presents the session's token resumes it. It gets all unacknowledged terminals, in order and with their former
/// sequence numbers. The replies that the client did not receive are sent between them, each in its place.
extension BrokerCore {
    // MARK: Events

    /// Resumes a session over another connection, if its own is lost. If replies that the client did not receive are no
    /// longer kept, the client gets a new session and requests again. The old session stays away, so that its transfers
    /// run on until the new session owns their requests.
    mutating func takeOver(_ session: Handle<ClientSession>, _ hello: Hello, by client: Handle<ClientSession>) {
        guard records.clients[session].isAway else {
            refuse(client, "session-in-use", "the connection of this session stands", .hello(hello))
            return
        }
        guard Clients.resumeReplies(of: session, hello, in: &records) else {
            welcome(client, hello, isResumed: false)
            return
        }
        records.clients.resume(session, over: client)
        welcome(session, hello, isResumed: true)
        sendDue(to: session)
        if !records.clients[session].deliveries.isClosed { records.queue.clientOpened(session) }
    }

    // MARK: Steps

    /// Opens or resumes a session and sends WELCOME.
    mutating func welcome(_ client: Handle<ClientSession>, _ hello: Hello, isResumed: Bool) {
        records.clients.open(client, leaseMilliseconds: min(hello.leaseMilliseconds, WireLimits.leaseSeconds * 1_000))
        records.clients[client].deliveries.attach(size: hello.window)
        Delivery.setPulling(hello, of: client, in: &records)
        records.clients[client].keepsFailures = hello.keepsFailures
        var welcome = Welcome(broker: instance, window: hello.window)
        welcome.isPulling = hello.isPulling
        if hello.isPulling { welcome.readsOther = records.pulls.source(of: client) != nil }
        if records.clients[client].leaseMilliseconds > 0 {
            welcome.leaseMilliseconds = records.clients[client].leaseMilliseconds
            welcome.token = records.clients[client].token
        }
        if isResumed { welcome.lastReceived = records.clients[client].numbers.lastNumber }
        if !records.workerLimits.spool.isEmpty, !hello.isPulling { welcome.spool = records.workerLimits.spool }
        records.send(.welcome(welcome), to: client)
        if records.isDraining { records.send(.goodbye(reason: "draining"), to: client) }
    }

    // MARK: Replies

    /// Replies to the present message of a client.
    mutating func reply(_ reply: ClientReply, to client: Handle<ClientSession>) {
        self.reply(reply, to: client, answering: records.clients[client].numbers.take())
    }

    /// Replies to an earlier message.
    mutating func reply(_ reply: ClientReply, to requester: LiveRequester) {
        records.clients[requester.client].numbers.answered(requester.number)
        self.reply(reply, to: requester.client, answering: requester.number)
    }

    /// The present message of a client, which is answered later.
    mutating func requester(_ client: Handle<ClientSession>) -> Requester {
        Requester(
            session: records.clients.reference(to: client), number: records.clients[client].numbers.takeForLater())
    }

    /// Replies to a message. A session with a lease keeps the reply for its next connection.
    ///
    /// - Parameter handle: number of the message; 0 for one without.
    mutating func reply(_ reply: ClientReply, to client: Handle<ClientSession>, answering number: UInt64) {
        guard records.clients[client].leaseMilliseconds > 0 || records.clients[client].replies.isBehind else {
            send(reply, to: client, answering: number)
            return
        }
        let sequence = records.clients[client].deliveries.lastSequence
        records.clients[client].replies.append(reply, answering: number, after: sequence)
        sendReplies(to: client)
        // A connected client that leaves the terminals before so many replies unacknowledged has stopped reading.
        if records.clients[client].replies.trim(to: records.limits.keptReplies), !records.clients[client].isAway {
            Delivery.disconnect(client, in: &records)
        }
    }

    /// Sends the replies whose preceding terminals have been sent.
    mutating func sendReplies(to client: Handle<ClientSession>) {
        guard !records.clients[client].isAway else { return }
        let sequence = records.clients[client].deliveries.lastSequence
        while let (reply, number) = records.clients[client].replies.next(after: sequence) {
            send(reply, to: client, answering: number)
        }
    }

    private mutating func send(_ reply: ClientReply, to client: Handle<ClientSession>, answering number: UInt64) {
        switch reply {
        case .message(let message): records.send(message, to: client, answering: number)
        case .answer(let query, let page): answer(query, page, to: client, answering: number)
        }
    }
}

/// The end of sessions: of clients that said BYE, were lost, or did not return in the time of their lease. The protocol
/// promises no moment for it, so many requests are removed in slices. They are doomed until then.
extension BrokerCore {
    /// Ends a session: its requests, subscriptions and terminals are removed, in slices if there are many.
    mutating func endSession(_ client: Handle<ClientSession>, now: Tick) {
        if let removal = records.removals.removeValue(forKey: client) { releaseUnused(removal.body) }
        if let waiting = records.durables.load.messages.removeValue(forKey: client) { releaseUnused(waiting.body) }
        records.clients.endLease(of: client)
        if !records.pulls.isEmpty { records.pulls.remove(client) }
        for handler in records.handlers.removing { withdraw(client, fromRemovalOf: handler) }
        records.clients[client].deliveries.end()
        var budget = max(records.limits.departuresPerPass, 1)
        if Int(records.clients[client].ownedRequests.count) > budget {
            removeRunning(of: client) { core, interest in core.records.requests[interest].owner == client }
        }
        remove(client, &budget, now: now)
        if budget > 0 { records.clients.remove(client) } else { records.clients.depart(client) }
    }

    /// Removes one slice of ended sessions. Called once per pass.
    mutating func removeEndedSessions(now: Tick) {
        var budget = max(records.limits.departuresPerPass, 1)
        while budget > 0, let client = records.clients.ended.first {
            remove(client, &budget, now: now)
            guard budget > 0 else { break }
            records.clients.removeDeparted()
        }
    }

    /// Removes one slice of an ended session. Subscriptions go first, so that no terminal becomes due to it. Budget
    /// that is left means that nothing of the session is left.
    private mutating func remove(_ client: Handle<ClientSession>, _ budget: inout Int, now: Tick) {
        while budget > 0, let subtree = records.handlers.lastSubtree(of: client) {
            budget -= max(1, unsubscribe(client, fromSubtree: subtree, now: now))
        }
        while budget > 0, let handler = records.handlers.anyHandler(of: client) {
            unsubscribe(client, fromHandler: handler, now: now)
            budget -= 1
        }
        while budget > 0, let due = records.clients[client].deliveries.entries.first {
            records.clients[client].deliveries.removeFirst(records.weight(of: due), counting: records.counted(due))
            records.chargeWindow(of: client)
            apply(Delivery.lose(due, by: client, in: &records))
            budget -= 1
        }
        while budget > 0, let interest = records.clients[client].ownedRequests.first {
            removeRequest(interest, by: client)
            budget -= 1
        }
    }
}
