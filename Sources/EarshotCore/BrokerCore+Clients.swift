public import EarshotWire
internal import OrderedCollections

/// Connections of clients, dispatch of their messages, and their subscriptions.
extension BrokerCore {
    /// Adds a connection that was not seen before.
    ///
    /// - Parameters:
    ///   - token: unique and unguessable; authorizes another connection to resume the session, if it gets a lease.
    ///   - user: principal of the local user at the other end; nil for the administrator, that is, the user that runs
    ///     the broker, and root.
    ///   - isGateway: whether the process at the other end is a gateway, each of whose sessions proves its principal.
    public mutating func clientConnected(
        _ id: ClientID, token: SessionToken, user: PrincipalName? = nil, isGateway: Bool = false
    ) {
        let user = Principals.add(user, in: &records)
        Clients.connected(id, token: token, user: user, isGateway: isGateway, in: &records)
    }

    /// Handles the loss of a connection or of its process. The session ends, or is away until its lease ends.
    public mutating func clientLost(_ id: ClientID, now: Tick) {
        guard let client = records.clients.disconnected(id) else { return }
        records.clock = now
        let isRevoked = Principals.isRevoked(client, in: &records)
        guard Clients.mayReturn(client, isRevoked: isRevoked, in: &records) else {
            endSession(client, now: now)
            return
        }
        Clients.suspend(client, now: now, in: &records)
        // Last, because the other session's end may send messages to this client, which must be away by then.
        if let evicted = Clients.evictedByAbsence(of: client, in: &records) { endSession(evicted, now: now) }
    }

    /// Handles a message of a client.
    ///
    /// - Parameters:
    ///   - handle: its number in the session; nil without one.
    ///   - body: body of a FETCH's request. The core owns it from here on.
    public mutating func received(
        _ message: ClientMessage, number: UInt64? = nil, body: RequestBody? = nil, from id: ClientID, now: Tick
    ) {
        defer { releaseUnused(body) }
        guard let client = records.clients.handle(of: id) else { return }
        records.clock = now
        if records.clients[client].phase == .open { records.clients[client].receivedMessages += 1 }
        if case .hello(let hello) = message {
            helloReceived(hello, from: client)
            Clients.awaitGreeting(of: id, in: &records)
            return
        }
        guard records.clients[client].phase == .open else {
            // There are no numbers yet; the client learns the message that was not carried out.
            let error = ErrorReply(code: "hello-required", detail: "send HELLO EAR/1 first")
            reply(.message(.error(error)), to: client, answering: number ?? 0)
            Clients.awaitGreeting(of: id, in: &records)
            return
        }
        if let error = Clients.begin(message, number, of: client, in: &records) {
            refuse(client, error, message)
            return
        }
        if !records.clients[client].isAdministrator, let detail = Principals.reservation(of: message) {
            refuse(client, "not-authorized", detail, message)
            return
        }
        guard !records.durables.load.hasRows || !Durable.mustAwaitRows(message, from: client, in: &records) else {
            records.durables.load.messages[client] = DurableLoad.Waiting(message: message, body: body)
            return
        }
        carryOut(message, body, by: client, now: now)
    }

    /// Carries out a message of an open session.
    ///
    /// - Parameter removedRows: number of durable requests that it has removed and that were not loaded.
    mutating func carryOut(
        _ message: ClientMessage, _ body: RequestBody?, by client: Handle<ClientSession>, removedRows: Int = 0,
        now: Tick
    ) {
        switch message {
        case .hello: break
        case .fetch(let fetch): fetchRequested(fetch, body, by: client, now: now)
        case .retry(let handler, let request): retryRequested(handler, request, by: client)
        case .remove(let pattern):
            carryOut(ClientRemoval(pattern, count: removedRows), by: client, now: now)
        case .removeRequest(let handler, let request):
            removalRequested(handler, request, by: client, wasInTable: removedRows > 0)
        case .subscribe(let pattern):
            subscribe(client, to: pattern)
            confirm(client)
        case .unsubscribe(let pattern):
            unsubscribe(client, from: pattern, now: now)
            confirm(client)
        case .priority(let handler, let request, let priority):
            priorityRequested(handler, request, priority, by: client)
            confirm(client)
        case .cookies(let handler, let url, let fields):
            if let error = Cookies.store(fields, for: url, handler, by: client, in: &records) {
                refuse(client, error, message)
            }
            confirm(client)
        case .acknowledge(let sequence): acknowledged(sequence, by: client)
        case .query(let query, let page): reply(.answer(query, page), to: client)
        case .set(let setting): settingRequested(setting, by: client, now: now)
        case .read(let read): readRequested(read, by: client)
        case .take(let sequence): takeRequested(sequence, by: client)
        case .bye:
            let session = records.clients[client]
            let id = session.id
            _ = records.clients.disconnected(id)
            endSession(client, now: now)
            // The connection stays open for another HELLO. Its sequence numbers continue.
            Clients.connected(
                id, token: session.token, user: session.user, isGateway: session.isGateway, in: &records)
            guard let client = records.clients.handle(of: id) else { return }
            records.clients[client].deliveries = DeliveryWindow(after: session.deliveries.lastReceived)
            Clients.awaitGreeting(of: id, in: &records)
        }
    }

    /// Replies to the present message that it was carried out, if it has a number and no other reply.
    mutating func confirm(_ client: Handle<ClientSession>) {
        if records.clients[client].numbers.currentNumber > 0 { reply(.message(.ok), to: client) }
    }

    /// Handles a message of a client that could not be decoded.
    public mutating func receivedMalformed(_ error: WireError, from id: ClientID, now: Tick) {
        guard let client = records.clients.handle(of: id) else { return }
        records.clock = now
        var (refusal, number) = (ErrorReply(error), error.number ?? 0)
        if records.clients[client].phase == .open {
            records.clients[client].receivedMessages += 1
            if !records.clients[client].numbers.begin(error.number) { refusal = Clients.oldNumber }
            number = records.clients[client].numbers.take()
        }
        reply(.message(.error(refusal)), to: client, answering: number)
        Clients.awaitGreeting(of: id, in: &records)
    }

    /// Handles HELLO: begins or resumes a session, or replies with an error.
    private mutating func helloReceived(_ hello: Hello, from client: Handle<ClientSession>) {
        guard records.clients[client].phase == .joining else {
            refuse(client, "bad-message", "HELLO was said before on this connection", .hello(hello))
            return
        }
        guard hello.proof == nil || hello.principal != nil || hello.hasUserRights else {
            refuse(client, "bad-message", "a proof is for a HELLO that names its principal", .hello(hello))
            return
        }
        guard let identity = Principals.identity(of: hello, from: client, in: &records) else {
            let detail =
                records.clients[client].isGateway
                ? "a connection of the gateway names the principal of a key, and proves it"
                : "only the gateway and the administrator name another principal"
            refuse(client, "not-authorized", detail, .hello(hello))
            return
        }
        records.clients[client].principal = identity.principal
        records.clients[client].isAdministrator = identity.isAdministrator
        var hello = hello
        if identity.mustPull { hello.isPulling = true }
        if let session = Clients.session(of: hello, from: client, in: &records) {
            takeOver(session, hello, by: client)
            return
        }
        welcome(client, hello, isResumed: false)
    }

    /// Replies to a message with an error.
    mutating func refuse(_ client: Handle<ClientSession>, _ code: String, _ detail: String, _ message: ClientMessage) {
        refuse(client, ErrorReply(code: code, detail: detail), message)
    }

    mutating func refuse(_ client: Handle<ClientSession>, _ error: ErrorReply, _ message: ClientMessage) {
        // The present number may be that of an earlier FETCH.
        let number = message.canHaveNumber ? records.clients[client].numbers.take() : 0
        reply(.message(.error(error)), to: client, answering: number)
    }

    // MARK: Subscriptions

    private mutating func subscribe(_ client: Handle<ClientSession>, to pattern: HandlerPattern) {
        if let error = Principals.objection(toSubscriptionOf: client, in: &records) {
            return refuse(client, error, .subscribe(pattern))
        }
        switch pattern {
        case .handler(let id):
            subscribe(client, toHandler: Clients.handler(of: records.key(id, of: client), in: &records))
        case .subtree(let id):
            let key = records.key(id, of: client)
            guard records.handlers.subscribe(client, toSubtree: key) else { return }
            Principals.countSubscriptions(1, of: client, in: &records)
            for handler in records.handlers.matching(pattern, of: key.principal) { listenerCame(handler) }
        }
    }

    mutating func subscribe(_ client: Handle<ClientSession>, toHandler handler: Handle<HandlerEntry>) {
        guard records.handlers.subscribe(client, to: handler) else { return }
        Principals.countSubscriptions(1, of: client, in: &records)
        listenerCame(handler)
    }

    private mutating func unsubscribe(_ client: Handle<ClientSession>, from pattern: HandlerPattern, now: Tick) {
        switch pattern {
        case .handler(let id):
            guard let handler = records.handlers.handle(of: records.key(id, of: client)) else { return }
            unsubscribe(client, fromHandler: handler, now: now)
        case .subtree(let id):
            _ = unsubscribe(client, fromSubtree: records.key(id, of: client), now: now)
        }
    }

    mutating func unsubscribe(_ client: Handle<ClientSession>, fromHandler handler: Handle<HandlerEntry>, now: Tick) {
        guard records.handlers.unsubscribe(client, from: handler) else { return }
        Principals.countSubscriptions(-1, of: client, in: &records)
        Clients.listenerLeft(handler, now: now, in: &records)
        dropHandlerIfIdle(handler)
    }

    /// Ends a subscription to a subtree, if there is one. O(handlers in it).
    ///
    /// - Returns: number of handlers in it.
    mutating func unsubscribe(_ client: Handle<ClientSession>, fromSubtree key: HandlerKey, now: Tick) -> Int {
        guard records.handlers.unsubscribe(client, fromSubtree: key) else { return 0 }
        Principals.countSubscriptions(-1, of: client, in: &records)
        let matching = records.handlers.matching(.subtree(key.id), of: key.principal)
        for handler in matching { Clients.listenerLeft(handler, now: now, in: &records) }
        return matching.count
    }

    /// Ends the grace period of a handler, and delivers everything that waited for a listener.
    private mutating func listenerCame(_ handler: Handle<HandlerEntry>) {
        records.handlers.listenerCame(handler)
        claimResults(of: handler)
    }

    // MARK: Handlers

    /// Frees a handler without requests, waiting terminals, subscribers and unfinished removal.
    mutating func dropHandlerIfIdle(_ handler: Handle<HandlerEntry>) {
        if let root = records.handlers.dropIfIdle(handler) { Cookies.rootRemoved(root, in: &records) }
        if records.storedResults.hasClaims, !records.handlers.contains(handler) {
            records.storedResults.handlerFreed(handler)
        }
    }
}
