internal import EarshotWire
internal import OrderedCollections

/// Sessions that outlive their connection: a client that asked for a lease has that long to come back.
///
/// While it is away nothing of it is purged. It stays an owner and a subscriber, and its terminals become due to it;
/// none is on its way, so its window fills and holds back what only it wants. Who comes back with the session's token
/// gets all that was not acknowledged, in order and under the numbers it had. Between the terminals come the replies
/// that it did not receive, each in its place.
extension BrokerCore {
    // MARK: Events

    /// The session that a HELLO means to go on with. A token that is nobody's, or another client's, means none: whoever
    /// tries some learns nothing by it.
    func session(of hello: Hello) -> Int32? {
        guard let token = hello.token, let session = tokenNumbers[token], clients[session].name == hello.client,
            !clients[session].isClosing
        else { return nil }
        return session
    }

    /// Resumes a session over another connection, if its own is gone. If the session lacks replies that the client did
    /// not receive, the client gets a new one: it asks again for all that it wants. The old session stays away, so that
    /// transfers go on until they belong to the new one.
    mutating func takeOver(_ session: Int32, _ hello: Hello, by client: Int32) {
        guard clients[session].isAway else {
            refuse(client, "session-in-use", "the connection of this session stands", .hello(hello))
            return
        }
        guard clients[session].replies.resume(after: hello.replies) else {
            clients[client].name = hello.client
            welcome(client, hello, isResumed: false)
            return
        }
        let id = clients[client].id
        clients.remove(client)
        clientNumbers[id] = session
        clients[session].id = id
        awayClients.remove(session)
        clients[session].absence = 0
        welcome(session, hello, isResumed: true)
        sendDue(to: session)
        if !isClosed(session) { queue.clientOpened(session) }
    }

    /// A lease is over, or its client may be kept no longer.
    mutating func leaseEnded(_ client: Int32, _ absence: UInt64, now: Tick) {
        guard isLive(.lease(client: client, absence: absence)) else { return }
        endSession(client, now: now)
    }

    // MARK: Steps

    /// The answer to a HELLO, which opens a session, or opens it again.
    mutating func welcome(_ client: Int32, _ hello: Hello, isResumed: Bool) {
        clients[client].phase = .open
        clients[client].deliveries.attach(size: hello.window)
        // A REQ socket has no second connection that could prove to be the same program's.
        let lease = clients[client].isRequestReply ? 0 : hello.leaseMilliseconds
        clients[client].leaseMilliseconds = min(lease, WireLimits.leaseSeconds * 1_000)
        var welcome = Welcome(broker: instance, window: hello.window)
        if clients[client].leaseMilliseconds > 0 {
            tokenNumbers[clients[client].token] = client
            welcome.leaseMilliseconds = clients[client].leaseMilliseconds
            welcome.token = clients[client].token
        } else {
            tokenNumbers[clients[client].token] = nil
        }
        if isResumed { welcome.heard = clients[client].heard }
        if isResumed, hello.replies != nil { welcome.replies = clients[client].replies.count }
        if !workerLimits.spool.isEmpty { welcome.spool = workerLimits.spool }
        say(.welcome(welcome), to: client)
        if isDraining { say(.goodbye(reason: "draining"), to: client) }
    }

    /// Whether a session is kept when its connection goes: not one that is closed for reading too slowly.
    func mayReturn(_ client: Int32) -> Bool {
        clients[client].leaseMilliseconds > 0 && !clients[client].isClosing && limits.awayClients > 0
    }

    /// Keeps a session whose connection is gone; of too many the one that has been away longest ends.
    mutating func leaveAside(_ client: Int32, now: Tick) {
        clients[client].phase = .away
        clients[client].absence = nextSerial()
        clients[client].deliveries.detach()
        // A socket that was full held its work back; now its window does.
        if !isClosed(client) { queue.clientOpened(client) }
        awayClients.append(client)
        setTimer(now.advanced(byMilliseconds: clients[client].leaseMilliseconds), lease(of: client))
        // Only now: the end of the other one may be told to this one, which has no connection any more.
        if awayClients.count > limits.awayClients, let oldest = awayClients.first { endSession(oldest, now: now) }
    }

    /// Ends a session: all it wanted is purged, of very much a part in each pass.
    mutating func endSession(_ client: Int32, now: Tick) {
        awayClients.remove(client)
        clients[client].absence = 0
        if tokenNumbers[clients[client].token] == client { tokenNumbers[clients[client].token] = nil }
        dropSubtrees(of: client, now: now)
        withdrawPurges(from: client) { _ in true }
        depart(client, now: now)
    }

    // MARK: Replies

    /// Replies to a message of a client. A session with a lease keeps the reply for its next connection.
    mutating func reply(_ reply: Reply, to client: Int32) {
        guard clients[client].leaseMilliseconds > 0 || clients[client].replies.isBehind else {
            send(reply, to: client)
            return
        }
        clients[client].replies.append(reply, after: clients[client].deliveries.lastSequence)
        sendReplies(to: client)
        // A connected client that does not acknowledge what precedes so many replies has stopped reading.
        if clients[client].replies.trim(to: limits.keptReplies), !clients[client].isAway { close(client) }
    }

    /// Sends the replies that follow the terminals sent so far.
    mutating func sendReplies(to client: Int32) {
        guard !clients[client].isAway else { return }
        let sequence = clients[client].deliveries.lastSequence
        while let reply = clients[client].replies.next(after: sequence) { send(reply, to: client) }
    }

    private mutating func send(_ reply: Reply, to client: Int32) {
        switch reply {
        case .message(let message): say(message, to: client)
        case .answer(let query, let page): answer(query, page, to: client, now: clock)
        }
    }

    // MARK: Timers

    /// The timer of a session that is away.
    func lease(of client: Int32) -> Timer.Subject { .lease(client: client, absence: clients[client].absence) }
}
