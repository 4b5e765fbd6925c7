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
        connected(id, token: token, user: principalNumber(user), isGateway: isGateway)
    }

    private mutating func connected(
        _ id: ClientID, token: SessionToken, user: Handle<Principal>, isGateway: Bool
    ) {
        guard clients.number(of: id) == nil else { return }
        clients.connected(id, token: token, generation: nextSerial(), user: user, isGateway: isGateway)
    }

    /// Handles the loss of a connection or of its process. The session ends, or is away until its lease ends.
    public mutating func clientLost(_ id: ClientID, now: Tick) {
        guard let client = clients.disconnected(id) else { return }
        clock = now
        if mayReturn(client) { leaveAside(client, now: now) } else { endSession(client, now: now) }
    }

    /// Starts the HELLO timeout of a connection at its first message that opens no session. Most clients send HELLO
    /// first, so an idle bus has no timer.
    private mutating func awaitGreeting(of id: ClientID) {
        guard let client = clients.number(of: id), clients[client].phase == .joining, !clients[client].isGreetingDue
        else {
            return
        }
        clients[client].isGreetingDue = true
        setTimer(clock.advanced(byMilliseconds: limits.greetingMilliseconds), .greeting(id))
    }

    /// Closes a connection that has not sent HELLO in time.
    mutating func greetingEnded(_ id: ClientID) {
        guard let client = clients.number(of: id), clients[client].phase == .joining else { return }
        actions.append(.client(.close(id, reason: "silent")))
    }

    /// Handles a message of a client.
    ///
    /// - Parameters:
    ///   - number: its number in the session; nil without one.
    ///   - body: body of a FETCH's request. The core owns it from here on.
    public mutating func clientSaid(
        _ message: ClientMessage, number: UInt64? = nil, body: RequestBody? = nil, by id: ClientID, now: Tick
    ) {
        defer { releaseUnused(body) }
        guard let client = clients.number(of: id) else { return }
        clock = now
        if clients[client].phase == .open { clients[client].heard += 1 }
        if case .hello(let hello) = message {
            helloReceived(hello, from: client)
            awaitGreeting(of: id)
            return
        }
        guard clients[client].phase == .open else {
            refuse(client, "hello-required", "say HELLO EAR/1 first", message)
            awaitGreeting(of: id)
            return
        }
        guard begin(message, number, of: client) else { return }
        if !clients[client].isAdministrator, let detail = Self.reservation(of: message) {
            refuse(client, "not-authorized", detail, message)
            return
        }
        guard !durables.load.hasRows || !mustAwaitRows(message, from: client) else {
            durables.load.messages[client] = DurableLoad.Waiting(message: message, body: body)
            return
        }
        carryOut(message, body, by: client, now: now)
    }

    /// Takes the number of a message. The broker carries out no message twice, so an old number is refused; that error
    /// names no message, because the one with this number has another answer.
    ///
    /// - Returns: false if the message is refused.
    private mutating func begin(
        _ message: ClientMessage, _ number: UInt64?, of client: Handle<ClientSession>
    ) -> Bool {
        guard clients[client].numbers.begin(number) else {
            refuse(client, "bad-message", Self.oldNumberDetail, message)
            return false
        }
        if number != nil, message.countsAsUnanswered, clients[client].numbers.pending >= limits.keptReplies {
            refuse(client, "limit", "\(limits.keptReplies) messages have no answer yet; wait for one", message)
            return false
        }
        return true
    }

    private static let oldNumberDetail = "numbers rise: the number is not above that of an earlier message"

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
        case .remove(let pattern): removalRequested(pattern, by: client, removedRows: removedRows, now: now)
        case .removeRequest(let handler, let request):
            removalRequested(handler, request, by: client, wasInTable: removedRows > 0)
        case .subscribe(let pattern): subscribe(client, to: pattern)
        case .unsubscribe(let pattern): unsubscribe(client, from: pattern, now: now)
        case .priority(let handler, let request, let priority):
            priorityRequested(handler, request, priority, by: client)
        case .cookies(let handler, let url, let fields): cookiesGiven(handler, url, fields, by: client)
        case .acknowledge(let sequence): acknowledged(sequence, by: client)
        case .query(let query, let page): reply(.answer(query, page), to: client)
        case .set(let setting): settingRequested(setting, by: client, now: now)
        case .read(let read): readRequested(read, by: client)
        case .take(let sequence): takeRequested(sequence, by: client)
        case .bye:
            let session = clients[client]
            let id = session.id
            _ = clients.disconnected(id)
            endSession(client, now: now)
            // The connection stays open for another HELLO. Its sequence numbers continue.
            connected(id, token: session.token, user: session.user, isGateway: session.isGateway)
            guard let client = clients.number(of: id) else { return }
            clients[client].deliveries = DeliveryWindow(after: session.deliveries.lastReceived)
            awaitGreeting(of: id)
        }
        if message.isAnsweredByOK, clients[client].numbers.current > 0 { reply(.message(.ok), to: client) }
    }

    /// Handles a message of a client that could not be decoded.
    public mutating func clientSaidNonsense(_ error: WireError, by id: ClientID, now: Tick) {
        guard let client = clients.number(of: id) else { return }
        clock = now
        if clients[client].phase == .open { clients[client].heard += 1 }
        var reply = ErrorReply(error)
        if clients[client].phase == .open, !clients[client].numbers.begin(error.number) {
            (reply.code, reply.detail) = ("bad-message", Self.oldNumberDetail)
        }
        self.reply(.message(.error(reply)), to: client)
        awaitGreeting(of: id)
    }

    /// Handles HELLO: begins or resumes a session, or replies with an error.
    private mutating func helloReceived(_ hello: Hello, from client: Handle<ClientSession>) {
        guard clients[client].phase == .joining else {
            refuse(client, "bad-message", "HELLO was said before on this connection", .hello(hello))
            return
        }
        guard hello.leaseMilliseconds == 0 || hello.client != nil else {
            refuse(client, "bad-message", "a lease is for a client that says its name", .hello(hello))
            return
        }
        guard hello.proof == nil || hello.principal != nil else {
            refuse(client, "bad-message", "a proof is for a HELLO that names its principal", .hello(hello))
            return
        }
        guard let identity = identity(of: hello, from: client) else {
            let detail =
                clients[client].isGateway
                ? "a connection of the gateway names the principal of a key, and proves it"
                : "only the gateway and the administrator name another principal"
            refuse(client, "not-authorized", detail, .hello(hello))
            return
        }
        clients[client].principal = identity.principal
        clients[client].isAdministrator = identity.isAdministrator
        var hello = hello
        if identity.mustPull { hello.isPulling = true }
        if let session = session(of: hello, for: identity) {
            takeOver(session, hello, by: client)
            return
        }
        clients[client].name = hello.client
        welcome(client, hello, isResumed: false)
    }

    /// Replies with an error that names the message.
    mutating func refuse(_ client: Handle<ClientSession>, _ code: String, _ detail: String, _ message: ClientMessage) {
        var reply = ErrorReply(code: code, detail: detail)
        switch message {
        case .hello: reply.verb = "HELLO"
        case .fetch(let fetch):
            reply.verb = "FETCH"
            reply.handler = fetch.handler
            reply.request = fetch.request
        case .retry(let handler, let request):
            reply.verb = "RETRY"
            reply.handler = handler
            reply.request = request
        case .remove: reply.verb = "REMOVE"
        case .removeRequest(let handler, let request):
            (reply.verb, reply.handler, reply.request) = ("REMOVE", handler, request)
        case .subscribe: reply.verb = "SUBSCRIBE"
        case .unsubscribe: reply.verb = "UNSUBSCRIBE"
        case .priority(let handler, let request, _):
            reply.verb = "PRIORITY"
            reply.handler = handler
            reply.request = request
        case .cookies: reply.verb = "COOKIES"
        case .acknowledge: reply.verb = "ACK"
        case .query: reply.verb = "QUERY"
        case .set: reply.verb = "SET"
        case .read(let read):
            reply.verb = "READ"
            switch read.body {
            case .terminal(let sequence): reply.sequence = sequence
            case .request(let handler, let request):
                reply.handler = handler
                reply.request = request
            }
        case .take(let sequence):
            reply.verb = "TAKE"
            reply.sequence = sequence
        case .bye: reply.verb = "BYE"
        }
        // A READ may be refused while another message is carried out.
        let number = message.canHaveNumber ? clients[client].numbers.take() : 0
        self.reply(.message(.error(reply)), to: client, answering: number)
    }

    // MARK: Subscriptions

    private mutating func subscribe(_ client: Handle<ClientSession>, to pattern: HandlerPattern) {
        guard handlers.subscriptionCount(of: client) < limits.subscriptionsPerClient else {
            refuse(client, "too-many-handlers", "unsubscribe from some first", .subscribe(pattern))
            return
        }
        guard mayShareSubscriptions(client) else {
            refuse(client, "quota", Self.subscriptionQuotaDetail, .subscribe(pattern))
            return
        }
        switch pattern {
        case .handler(let id): subscribe(client, toHandler: handlerNumber(key(id, of: client)))
        case .subtree(let id):
            let key = key(id, of: client)
            guard handlers.subscribe(client, toSubtree: key) else { return }
            countSubscriptions(1, of: client)
            for handler in handlers.matching(pattern, of: key.principal) { listenerCame(handler) }
        }
    }

    mutating func subscribe(_ client: Handle<ClientSession>, toHandler handler: Handle<HandlerEntry>) {
        guard handlers.subscribe(client, to: handler) else { return }
        countSubscriptions(1, of: client)
        listenerCame(handler)
    }

    private mutating func unsubscribe(_ client: Handle<ClientSession>, from pattern: HandlerPattern, now: Tick) {
        switch pattern {
        case .handler(let id):
            guard let handler = handlers.number(of: key(id, of: client)) else { return }
            unsubscribe(client, fromHandler: handler, now: now)
        case .subtree(let id):
            _ = unsubscribe(client, fromSubtree: key(id, of: client), now: now)
        }
    }

    mutating func unsubscribe(_ client: Handle<ClientSession>, fromHandler handler: Handle<HandlerEntry>, now: Tick) {
        guard handlers.unsubscribe(client, from: handler) else { return }
        countSubscriptions(-1, of: client)
        listenerLeft(handler, now: now)
        dropHandlerIfIdle(handler)
    }

    /// Ends a subscription to a subtree, if there is one. O(handlers in it).
    ///
    /// - Returns: number of handlers in it.
    mutating func unsubscribe(_ client: Handle<ClientSession>, fromSubtree key: HandlerKey, now: Tick) -> Int {
        guard handlers.unsubscribe(client, fromSubtree: key) else { return 0 }
        countSubscriptions(-1, of: client)
        let matching = handlers.matching(.subtree(key.id), of: key.principal)
        for handler in matching { listenerLeft(handler, now: now) }
        return matching.count
    }

    /// Starts the grace period of the handler's own requests when its last listener has left.
    private mutating func listenerLeft(_ handler: Handle<HandlerEntry>, now: Tick) {
        guard handlers[handler].ownRequests > 0, listeners(of: handler).isEmpty else { return }
        let absence = nextSerial()
        handlers.awaitListener(of: handler, serial: absence)
        let subject = Timer.Subject.abandoned(handler: handler, absence: absence)
        setTimer(now.advanced(byMilliseconds: limits.graceMilliseconds), subject)
    }

    /// Ends the grace period of a handler, and delivers everything that waited for a listener.
    private mutating func listenerCame(_ handler: Handle<HandlerEntry>) {
        handlers.listenerCame(handler)
        claimResults(of: handler)
    }

    /// Clients that listen to a handler, each once.
    @inline(__always)
    func listeners(of handler: Handle<HandlerEntry>) -> [Handle<ClientSession>] {
        clients.ended.isEmpty && !handlers.hasSubtreeSubscriptions
            ? handlers[handler].subscribers : Self.listeners(of: handler, handlers, clients)
    }

    /// The rare case of `listeners`. Not a method of the core, because its caller would copy the whole core.
    @inline(never)
    private static func listeners(
        of handler: Handle<HandlerEntry>, _ handlers: HandlerRegistry, _ clients: SessionTable
    ) -> [Handle<ClientSession>] {
        // A departed session may not have been unsubscribed from this handler yet.
        clients.withoutGone(handlers.subscribers(of: handler))
    }

    /// The same as `listeners`, for the end of each request. A mutating function copies no table.
    mutating func presentListeners(of handler: Handle<HandlerEntry>) -> [Handle<ClientSession>] {
        guard !clients.ended.isEmpty || handlers.hasSubtreeSubscriptions else { return handlers[handler].subscribers }
        return Self.listeners(of: handler, handlers, clients)
    }

    // MARK: Handlers

    /// A handler in the namespace of a client's principal.
    @inline(__always)
    func key(_ id: HandlerID, of client: Handle<ClientSession>) -> HandlerKey {
        HandlerKey(clients[client].principal, id)
    }

    /// The handler of a key, which is created if needed. The caller adds a reference or a subscriber next, or calls
    /// `dropHandlerIfIdle`.
    mutating func handlerNumber(_ key: HandlerKey) -> Handle<HandlerEntry> {
        if let handler = handlers.number(of: key) { return handler }
        let (handler, isFirstOfRoot) = handlers.add(key, of: principals.name(of: key.principal))
        if isFirstOfRoot { cookieJars.rootAdded(handlers.rootName(of: handler)) }
        return handler
    }

    /// Frees a handler without requests, waiting terminals, subscribers and unfinished removal.
    mutating func dropHandlerIfIdle(_ handler: Handle<HandlerEntry>) {
        if let root = handlers.dropIfIdle(handler) { keepJar(of: root) }
        if storedResults.hasClaims, !handlers.contains(handler) { storedResults.handlerFreed(handler) }
    }
}
