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

    /// The session that a HELLO resumes; nil without one. An unknown token, and a token of another client or
    /// principal, or with other rights, are treated alike, so that guessing reveals nothing.
    func session(of hello: Hello, for identity: Identity) -> Handle<ClientSession>? {
        guard let token = hello.token, let session = clients.number(of: token), clients[session].name == hello.client,
            clients[session].principal == identity.principal,
            clients[session].isAdministrator == identity.isAdministrator, !clients[session].isClosing
        else { return nil }
        return session
    }

    /// Resumes a session over another connection, if its own is lost. If replies that the client did not receive are no
    /// longer kept, the client gets a new session and requests again. The old session stays away, so that its transfers
    /// run on until the new session owns their requests.
    mutating func takeOver(_ session: Handle<ClientSession>, _ hello: Hello, by client: Handle<ClientSession>) {
        guard clients[session].isAway else {
            refuse(client, "session-in-use", "the connection of this session stands", .hello(hello))
            return
        }
        guard resumeReplies(of: session, hello) else {
            clients[client].name = hello.client
            welcome(client, hello, isResumed: false)
            return
        }
        clients.resume(session, over: client)
        welcome(session, hello, isResumed: true)
        sendDue(to: session)
        if !isClosed(session) { queue.clientOpened(session) }
    }

    /// Prepares the replies that the next connection of a session lacks.
    ///
    /// - Returns: false if some are no longer kept, or if the client names a number that there was not.
    private mutating func resumeReplies(of session: Handle<ClientSession>, _ hello: Hello) -> Bool {
        let next = clients[session].numbers.last + 1
        let first = hello.unanswered ?? next
        return first <= next && clients[session].replies.resume(from: first)
    }

    /// Ends a session when its lease is over, or when it was closed while away.
    mutating func leaseEnded(_ client: Handle<ClientSession>, _ absence: UInt64, now: Tick) {
        guard isLive(.lease(client: client, absence: absence)) else { return }
        endSession(client, now: now)
    }

    // MARK: Steps

    /// Opens or resumes a session and sends WELCOME.
    mutating func welcome(_ client: Handle<ClientSession>, _ hello: Hello, isResumed: Bool) {
        clients.open(client, leaseMilliseconds: min(hello.leaseMilliseconds, WireLimits.leaseSeconds * 1_000))
        clients[client].deliveries.attach(size: hello.window)
        setPulling(hello, of: client)
        clients[client].keepsFailures = hello.keepsFailures
        var welcome = Welcome(broker: instance, window: hello.window)
        welcome.isPulling = hello.isPulling
        if hello.isPulling { welcome.readsOther = pulls.source(of: client) != nil }
        if clients[client].leaseMilliseconds > 0 {
            welcome.leaseMilliseconds = clients[client].leaseMilliseconds
            welcome.token = clients[client].token
        }
        if isResumed { welcome.heard = clients[client].numbers.last }
        if !workerLimits.spool.isEmpty, !hello.isPulling { welcome.spool = workerLimits.spool }
        say(.welcome(welcome), to: client)
        if isDraining { say(.goodbye(reason: "draining"), to: client) }
    }

    /// Whether a session survives the loss of its connection. One closed for reading too slowly does not, nor one of a
    /// revoked key.
    func mayReturn(_ client: Handle<ClientSession>) -> Bool {
        clients[client].leaseMilliseconds > 0 && !clients[client].isClosing && limits.awayClients > 0
            && !isRevoked(client)
    }

    /// Keeps a session whose connection is lost. Above the limit another session ends.
    mutating func leaveAside(_ client: Handle<ClientSession>, now: Tick) {
        clients.leaveAside(client, absence: nextSerial())
        clients[client].deliveries.detach()
        if !pulls.isEmpty { pulls.detach(client) }
        // A blocked socket stopped this client's transfers; from here on only its window does.
        if !isClosed(client) { queue.clientOpened(client) }
        setLeaseTimer(now.advanced(byMilliseconds: clients[client].leaseMilliseconds), of: client)
        // Last, because the other session's end may send messages to this client, which must be away by then.
        if clients.away.count > limits.awayClients, let evicted = evictedByAbsence(of: client) {
            endSession(evicted, now: now)
        }
    }

    /// The session that ends to make room for an absent one: the one that has been away longest, of the same principal if
    /// that has more than a quarter of the places. So one principal cannot evict all sessions of another.
    private func evictedByAbsence(of client: Handle<ClientSession>) -> Handle<ClientSession>? {
        let principal = clients[client].principal
        let own = clients.away.filter { clients[$0].principal == principal }
        return own.count > max(1, limits.awayClients / 4) ? own.first : clients.away.first
    }

    // MARK: Replies

    /// Replies to the present message of a client.
    mutating func reply(_ reply: Reply, to client: Handle<ClientSession>) {
        self.reply(reply, to: client, answering: clients[client].numbers.take())
    }

    /// Replies to an earlier message.
    mutating func reply(_ reply: Reply, to asker: LiveAsker) {
        clients[asker.client].numbers.answered(asker.number)
        self.reply(reply, to: asker.client, answering: asker.number)
    }

    /// The present message of a client, which is answered later.
    mutating func asker(_ client: Handle<ClientSession>) -> Asker {
        Asker(session: clients.reference(to: client), number: clients[client].numbers.takeForLater())
    }

    /// Replies to a message. A session with a lease keeps the reply for its next connection.
    ///
    /// - Parameter number: number of the message; 0 for one without.
    mutating func reply(_ reply: Reply, to client: Handle<ClientSession>, answering number: UInt64) {
        guard clients[client].leaseMilliseconds > 0 || clients[client].replies.isBehind else {
            send(reply, to: client, answering: number)
            return
        }
        let sequence = clients[client].deliveries.lastSequence
        clients[client].replies.append(reply, answering: number, after: sequence)
        sendReplies(to: client)
        // A connected client that leaves the terminals before so many replies unacknowledged has stopped reading.
        if clients[client].replies.trim(to: limits.keptReplies), !clients[client].isAway { close(client) }
    }

    /// Sends the replies whose preceding terminals have been sent.
    mutating func sendReplies(to client: Handle<ClientSession>) {
        guard !clients[client].isAway else { return }
        let sequence = clients[client].deliveries.lastSequence
        while let (reply, number) = clients[client].replies.next(after: sequence) {
            send(reply, to: client, answering: number)
        }
    }

    private mutating func send(_ reply: Reply, to client: Handle<ClientSession>, answering number: UInt64) {
        switch reply {
        case .message(let message): say(message, to: client, answering: number)
        case .answer(let query, let page): answer(query, page, to: client, answering: number, now: clock)
        }
    }

    // MARK: Timers

    /// Sets the lease timer of a session that is away.
    mutating func setLeaseTimer(_ at: Tick, of client: Handle<ClientSession>) {
        if let absence = clients[client].absence { setTimer(at, .lease(client: client, absence: absence)) }
    }
}
