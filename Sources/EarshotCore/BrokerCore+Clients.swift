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
        let user = Principals.addPrincipal(user, in: &records)
        Clients.clientConnected(id, token: token, user: user, isGateway: isGateway, in: &records)
    }

    /// Handles the loss of a connection or of its process. The session ends, or is away until its lease ends.
    public mutating func clientLost(_ id: ClientID, now: MonotonicTime) {
        guard let client = records.clients.removeConnection(id) else { return }
        records.latestEventTime = now
        let isRevoked = Principals.isRevoked(client, in: &records)
        guard Clients.canResume(client, isRevoked: isRevoked, in: &records) else {
            endSession(client, now: now)
            return
        }
        Clients.suspendSession(client, now: now, in: &records)
        // Last, because the other session's end may send messages to this client, which must be away by then.
        if let evicted = Clients.sessionEvictedByAbsence(of: client, in: &records) { endSession(evicted, now: now) }
    }

    /// Handles a message of a client.
    ///
    /// - Parameters:
    ///   - number: its number in the session; nil without one.
    ///   - body: body of a FETCH's request. The core owns it from here on.
    public mutating func clientMessageReceived(
        _ message: ClientMessage, number: UInt64? = nil, body: RequestBody? = nil, from id: ClientID, now: MonotonicTime
    ) {
        defer { releaseUnusedBody(body) }
        guard let client = records.clients.handle(of: id) else { return }
        records.latestEventTime = now
        if records.clients[client].phase == .open { records.clients[client].receivedMessageCount += 1 }
        if case .hello(let hello) = message {
            helloReceived(hello, from: client)
            Clients.startHelloTimeout(of: id, in: &records)
            return
        }
        guard records.clients[client].phase == .open else {
            // The session has no numbers yet. The reply names the number of the refused message.
            let error = ErrorReply(code: "hello-required", detail: "send HELLO EAR/1 first")
            reply(.message(.error(error)), to: client, toMessageNumber: number ?? 0)
            Clients.startHelloTimeout(of: id, in: &records)
            return
        }
        if let error = Clients.beginMessage(message, number, of: client, in: &records) {
            refuseMessage(of: client, error: error, message)
            return
        }
        if !records.clients[client].isAdministrator, let detail = Principals.administratorOnlyDetail(of: message) {
            refuseMessage(of: client, code: "not-authorized", detail: detail, message)
            return
        }
        guard !records.durables.loadState.hasRows || !Durable.mustAwaitRows(message, from: client, in: &records) else {
            let waiting = DurableLoad.WaitingMessage(message: message, body: body)
            records.durables.loadState.waitingMessages[client] = waiting
            return
        }
        executeMessage(message, body, by: client, now: now)
    }

    /// Carries out a message of an open session.
    ///
    /// - Parameter removedRows: number of durable requests that the message has removed before they were loaded.
    mutating func executeMessage(
        _ message: ClientMessage, _ body: RequestBody?, by client: Handle<ClientSession>, removedRows: Int = 0,
        now: MonotonicTime
    ) {
        switch message {
        case .hello: break
        case .fetch(let fetch): fetchRequested(fetch, body, by: client, now: now)
        case .retry(let handler, let request): retryRequested(handler, request, by: client)
        case .removeHandlers(let pattern):
            performRemoval(ClientRemoval(pattern, removedOpenRequestCount: removedRows), by: client, now: now)
        case .removeRequest(let handler, let request):
            removalRequested(handler, request, by: client, wasInTable: removedRows > 0)
        case .subscribe(let pattern):
            subscribe(client, to: pattern)
            confirmCurrentMessage(of: client)
        case .unsubscribe(let pattern):
            unsubscribe(client, from: pattern, now: now)
            confirmCurrentMessage(of: client)
        case .setPriority(let handler, let request, let priority):
            priorityRequested(handler, request, priority, by: client)
            confirmCurrentMessage(of: client)
        case .storeCookies(let handler, let url, let fields):
            if let error = Cookies.storeUserCookies(fields, for: url, handler, by: client, in: &records) {
                refuseMessage(of: client, error: error, message)
            }
            confirmCurrentMessage(of: client)
        case .acknowledge(let sequence): terminalsAcknowledged(upTo: sequence, by: client)
        case .query(let query, let page): replyToCurrentMessage(.queryAnswer(query, page), to: client)
        case .changeSetting(let setting): settingChangeRequested(setting, by: client, now: now)
        case .readBody(let read): bodyReadRequested(read, by: client)
        case .takeFile(let sequence): fileTakeRequested(sequence, by: client)
        case .bye:
            let session = records.clients[client]
            let id = session.id
            _ = records.clients.removeConnection(id)
            endSession(client, now: now)
            // The connection stays open for another HELLO. Its sequence numbers continue.
            Clients.clientConnected(
                id, token: session.token, user: session.user, isGateway: session.isGateway, in: &records)
            guard let client = records.clients.handle(of: id) else { return }
            records.clients[client].deliveries = DeliveryWindow(afterSequence: session.deliveries.highestSentSequence)
            Clients.startHelloTimeout(of: id, in: &records)
        }
    }

    /// Confirms that the present message was carried out, if it has a number and no other reply.
    mutating func confirmCurrentMessage(of client: Handle<ClientSession>) {
        if records.clients[client].messageNumbers.currentNumber > 0 { replyToCurrentMessage(.message(.ok), to: client) }
    }

    /// Handles a message of a client that could not be decoded.
    public mutating func malformedClientMessageReceived(_ error: WireError, from id: ClientID, now: MonotonicTime) {
        guard let client = records.clients.handle(of: id) else { return }
        records.latestEventTime = now
        var (refusal, number) = (ErrorReply(error), error.messageNumber ?? 0)
        if records.clients[client].phase == .open {
            records.clients[client].receivedMessageCount += 1
            if !records.clients[client].messageNumbers.beginMessage(number: error.messageNumber) {
                refusal = Clients.reusedNumberError
            }
            number = records.clients[client].messageNumbers.takeCurrentNumber()
        }
        reply(.message(.error(refusal)), to: client, toMessageNumber: number)
        Clients.startHelloTimeout(of: id, in: &records)
    }

    /// Handles HELLO: begins or resumes a session, or replies with an error.
    private mutating func helloReceived(_ hello: Hello, from client: Handle<ClientSession>) {
        guard records.clients[client].phase == .joining else {
            refuseMessage(
                of: client, code: "bad-message", detail: "HELLO was already sent on this connection", .hello(hello))
            return
        }
        guard hello.proof == nil || hello.principal != nil || hello.hasUserRights else {
            refuseMessage(
                of: client, code: "bad-message", detail: "a proof is for a HELLO that names its principal",
                .hello(hello))
            return
        }
        guard let identity = Principals.identity(of: hello, from: client, in: &records) else {
            let detail =
                records.clients[client].isGateway
                ? "a connection of the gateway names the principal of a key, and proves it"
                : "only the gateway and the administrator name another principal"
            refuseMessage(of: client, code: "not-authorized", detail: detail, .hello(hello))
            return
        }
        records.clients[client].principal = identity.principal
        records.clients[client].isAdministrator = identity.isAdministrator
        var hello = hello
        if identity.mustPullBodies { hello.pullsBodies = true }
        if let session = Clients.resumableSession(of: hello, from: client, in: &records) {
            takeOverSession(session, hello, by: client)
            return
        }
        openOrResumeSession(client, hello, isResumed: false)
    }

    /// Replies to a message with an error.
    mutating func refuseMessage(
        of client: Handle<ClientSession>, code: String, detail: String, _ message: ClientMessage
    ) {
        refuseMessage(of: client, error: ErrorReply(code: code, detail: detail), message)
    }

    mutating func refuseMessage(of client: Handle<ClientSession>, error: ErrorReply, _ message: ClientMessage) {
        // The present number may be that of an earlier FETCH.
        let number = message.canHaveNumber ? records.clients[client].messageNumbers.takeCurrentNumber() : 0
        reply(.message(.error(error)), to: client, toMessageNumber: number)
    }

    // MARK: Subscriptions

    private mutating func subscribe(_ client: Handle<ClientSession>, to pattern: HandlerPattern) {
        if let error = Principals.subscriptionError(of: client, in: &records) {
            return refuseMessage(of: client, error: error, .subscribe(pattern))
        }
        switch pattern {
        case .handler(let id):
            let key = records.handlerKey(id, of: client)
            subscribe(client, toHandler: Clients.findOrCreateHandler(for: key, in: &records))
        case .subtree(let id):
            let key = records.handlerKey(id, of: client)
            guard records.handlers.subscribe(client, toSubtree: key) else { return }
            Principals.countSubscriptions(1, of: client, in: &records)
            for handler in records.handlers.handlers(matching: pattern, of: key.principal) {
                subscriberAdded(to: handler)
            }
        }
    }

    mutating func subscribe(_ client: Handle<ClientSession>, toHandler handler: Handle<HandlerEntry>) {
        guard records.handlers.subscribe(client, to: handler) else { return }
        Principals.countSubscriptions(1, of: client, in: &records)
        subscriberAdded(to: handler)
    }

    private mutating func unsubscribe(
        _ client: Handle<ClientSession>, from pattern: HandlerPattern, now: MonotonicTime
    ) {
        switch pattern {
        case .handler(let id):
            guard let handler = records.handlers.handle(of: records.handlerKey(id, of: client)) else { return }
            unsubscribe(client, fromHandler: handler, now: now)
        case .subtree(let id):
            _ = unsubscribe(client, fromSubtree: records.handlerKey(id, of: client), now: now)
        }
    }

    mutating func unsubscribe(
        _ client: Handle<ClientSession>, fromHandler handler: Handle<HandlerEntry>, now: MonotonicTime
    ) {
        guard records.handlers.unsubscribe(client, from: handler) else { return }
        Principals.countSubscriptions(-1, of: client, in: &records)
        Clients.subscriberLeft(handler, now: now, in: &records)
        removeHandlerIfIdle(handler)
    }

    /// Ends a subscription to a subtree, if there is one. O(handlers in it).
    ///
    /// - Returns: number of handlers in it.
    mutating func unsubscribe(_ client: Handle<ClientSession>, fromSubtree key: HandlerKey, now: MonotonicTime) -> Int {
        guard records.handlers.unsubscribe(client, fromSubtree: key) else { return 0 }
        Principals.countSubscriptions(-1, of: client, in: &records)
        let matching = records.handlers.handlers(matching: .subtree(key.id), of: key.principal)
        for handler in matching { Clients.subscriberLeft(handler, now: now, in: &records) }
        return matching.count
    }

    /// Ends the grace period of a handler, and delivers everything that waited for a subscriber.
    private mutating func subscriberAdded(to handler: Handle<HandlerEntry>) {
        records.handlers.endSubscriberAbsence(handler)
        claimStoredResults(of: handler)
    }

    // MARK: Handlers

    /// Frees a handler without requests, waiting terminals, subscribers and unfinished removal.
    mutating func removeHandlerIfIdle(_ handler: Handle<HandlerEntry>) {
        if let root = records.handlers.freeIfIdle(handler) { Cookies.rootRemoved(root, in: &records) }
        if records.storedResults.hasClaims, !records.handlers.contains(handler) {
            records.storedResults.removeClaims(ofFreed: handler)
        }
    }
}
