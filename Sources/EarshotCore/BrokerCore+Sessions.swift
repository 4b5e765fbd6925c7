internal import DequeModule
internal import EarshotWire
internal import OrderedCollections

/// Sessions with a lease: they outlive their connection for the time of the lease, so that the client can resume them.
///
/// While a session is away, nothing of it is removed. It stays an owner and a subscriber, and terminals become due to
/// it. They fill its window, whose backpressure then stops transfers that only this client requested. A connection that
/// presents the session's token resumes it. It gets all unacknowledged terminals, in order and with their former
/// sequence numbers. The replies that the client did not receive are sent between them, each in its place.
extension BrokerCore {
    // MARK: Events

    /// Resumes a session over another connection, if its own is lost. If replies that the client did not receive are no
    /// longer kept, the client gets a new session and requests again. The old session stays away, so that its transfers
    /// run on until the new session owns their requests.
    mutating func takeOverSession(_ session: Handle<ClientSession>, _ hello: Hello, by client: Handle<ClientSession>) {
        guard records.clients[session].isAway else {
            refuseMessage(
                of: client, code: "session-in-use", detail: "the connection of this session stands", .hello(hello))
            return
        }
        guard Clients.resumeReplies(of: session, hello, in: &records) else {
            openOrResumeSession(client, hello, isResumed: false)
            return
        }
        records.clients.resume(session, over: client)
        openOrResumeSession(session, hello, isResumed: true)
        sendDueTerminals(to: session)
        if !records.clients[session].deliveries.isClosed { records.queue.unparkLanes(ofClient: session) }
    }

    // MARK: Steps

    /// Opens or resumes a session and sends WELCOME.
    mutating func openOrResumeSession(_ client: Handle<ClientSession>, _ hello: Hello, isResumed: Bool) {
        records.clients.open(client, leaseMilliseconds: min(hello.leaseMilliseconds, WireLimits.leaseSeconds * 1_000))
        records.clients[client].deliveries.attach(size: hello.window)
        Delivery.configureBodyPulling(hello, of: client, in: &records)
        records.clients[client].keepsFailuresOnDisk = hello.keepsFailures
        var welcome = Welcome(broker: brokerInstance, window: hello.window)
        welcome.pullsBodies = hello.pullsBodies
        if hello.pullsBodies { welcome.readsOtherSession = records.bodyPulls.sourceSession(of: client) != nil }
        if records.clients[client].leaseMilliseconds > 0 {
            welcome.leaseMilliseconds = records.clients[client].leaseMilliseconds
            welcome.token = records.clients[client].token
        }
        if isResumed { welcome.lastReceivedNumber = records.clients[client].messageNumbers.lastNumber }
        if !records.workerLimits.spoolPath.isEmpty, !hello.pullsBodies {
            welcome.spoolPath = records.workerLimits.spoolPath
        }
        records.sendMessage(.welcome(welcome), to: client)
        if records.isDraining { records.sendMessage(.goodbye(reason: "draining"), to: client) }
    }

    // MARK: Replies

    /// Replies to the present message of a client.
    mutating func replyToCurrentMessage(_ reply: ClientReply, to client: Handle<ClientSession>) {
        self.reply(reply, to: client, toMessageNumber: records.clients[client].messageNumbers.takeCurrentNumber())
    }

    /// Replies to an earlier message.
    mutating func replyToEarlierMessage(_ reply: ClientReply, to requester: LiveRequester) {
        records.clients[requester.client].messageNumbers.deferredNumberAnswered(requester.number)
        self.reply(reply, to: requester.client, toMessageNumber: requester.number)
    }

    /// Defers the reply to the present message of a client. Returns its requester, for `replyToEarlierMessage`.
    mutating func deferReply(to client: Handle<ClientSession>) -> Requester {
        Requester(
            session: records.clients.reference(to: client),
            number: records.clients[client].messageNumbers.deferCurrentNumber())
    }

    /// Replies to a message. A session with a lease keeps the reply for its next connection.
    ///
    /// - Parameter number: number of the message; 0 for one without.
    mutating func reply(_ reply: ClientReply, to client: Handle<ClientSession>, toMessageNumber number: UInt64) {
        guard records.clients[client].leaseMilliseconds > 0 || records.clients[client].replies.hasWaitingReply else {
            sendReply(reply, to: client, answering: number)
            return
        }
        let sequence = records.clients[client].deliveries.lastSequence
        records.clients[client].replies.append(reply, answering: number, after: sequence)
        sendReplies(to: client)
        // A connected client has stopped reading if it leaves the terminals before so many replies unacknowledged.
        if records.clients[client].replies.discardOldest(beyond: records.limits.maximumRepliesPerLeasedSession),
            !records.clients[client].isAway
        {
            Delivery.disconnect(client, in: &records)
        }
    }

    /// Sends the replies whose preceding terminals have been sent.
    mutating func sendReplies(to client: Handle<ClientSession>) {
        guard !records.clients[client].isAway else { return }
        let sequence = records.clients[client].deliveries.lastSequence
        while let (reply, number) = records.clients[client].replies.takeNextReply(after: sequence) {
            sendReply(reply, to: client, answering: number)
        }
    }

    private mutating func sendReply(_ reply: ClientReply, to client: Handle<ClientSession>, answering number: UInt64) {
        switch reply {
        case .message(let message): records.sendMessage(message, to: client, answering: number)
        case .queryAnswer(let query, let page): answerQuery(query, page, to: client, answering: number)
        }
    }
}

/// The end of sessions: of clients that sent BYE, were lost, or did not return in the time of their lease. The protocol
/// promises no moment for it, so many requests are removed in slices. They are doomed until then.
extension BrokerCore {
    /// Ends a session: its requests, subscriptions and terminals are removed, in slices if there are many.
    mutating func endSession(_ client: Handle<ClientSession>, now: MonotonicTime) {
        if let removal = records.activeClientRemovals.removeValue(forKey: client) { releaseUnusedBody(removal.body) }
        if let waiting = records.durables.loadState.waitingMessages.removeValue(forKey: client) {
            releaseUnusedBody(waiting.body)
        }
        records.clients.endLease(of: client)
        if !records.bodyPulls.isEmpty { records.bodyPulls.removeSession(client) }
        for handler in records.handlers.handlersBeingRemoved { withdrawTerminals(for: client, fromRemovalOf: handler) }
        records.clients[client].deliveries.end()
        var budget = max(records.limits.maximumSessionCleanupsPerPass, 1)
        if Int(records.clients[client].ownedRequests.count) > budget {
            removeRunningRequests(of: client) { core, interest in core.records.requests[interest].owner == client }
        }
        removeSessionSlice(client, &budget, now: now)
        if budget > 0 { records.clients.remove(client) } else { records.clients.enqueueForRemoval(client) }
    }

    /// Removes one slice of ended sessions. Called once per pass.
    mutating func removeEndedSessions(now: MonotonicTime) {
        var budget = max(records.limits.maximumSessionCleanupsPerPass, 1)
        while budget > 0, let client = records.clients.endedSessions.first {
            removeSessionSlice(client, &budget, now: now)
            guard budget > 0 else { break }
            records.clients.removeFirstEndedSession()
        }
    }

    /// Removes one slice of an ended session. Subscriptions go first, so that no terminal becomes due to it. If budget
    /// remains, nothing of the session is left.
    private mutating func removeSessionSlice(_ client: Handle<ClientSession>, _ budget: inout Int, now: MonotonicTime) {
        while budget > 0, let subtree = records.handlers.newestSubtree(of: client) {
            budget -= max(1, unsubscribe(client, fromSubtree: subtree, now: now))
        }
        while budget > 0, let handler = records.handlers.anySubscribedHandler(of: client) {
            unsubscribe(client, fromHandler: handler, now: now)
            budget -= 1
        }
        while budget > 0, let due = records.clients[client].deliveries.dueTerminals.first {
            records.clients[client].deliveries.removeFirst(
                records.byteWeight(of: due), counting: records.countedOutcome(ofDue: due))
            records.chargeDeliveryWindow(of: client)
            deliveryEnded(Delivery.endUndeliveredTerminal(due, by: client, in: &records))
            budget -= 1
        }
        while budget > 0, let interest = records.clients[client].ownedRequests.first {
            removeRequest(interest, by: client)
            budget -= 1
        }
    }
}
