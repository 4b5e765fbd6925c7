internal import EarshotWire

/// Clients: connections and their first message, numbers of messages, sessions that outlive their connections, handlers
/// and their subscribers.
enum Clients {
    // MARK: Connections

    /// Adds a connection, unless it is known.
    static func clientConnected(
        _ id: ClientID, token: SessionToken, user: Handle<Principal>, isGateway: Bool, in records: inout Records
    ) {
        guard records.clients.handle(of: id) == nil else { return }
        let generation = records.nextSerial()
        records.clients.addConnectedSession(id, token: token, generation: generation, user: user, isGateway: isGateway)
    }

    /// Starts the HELLO timeout of a connection at its first message that opens no session. Most clients send HELLO
    /// first, so an idle bus has no timer.
    static func startHelloTimeout(of id: ClientID, in records: inout Records) {
        guard let client = records.clients.handle(of: id), records.clients[client].phase == .joining,
            !records.clients[client].isHelloTimeoutRunning
        else {
            return
        }
        records.clients[client].isHelloTimeoutRunning = true
        records.setTimer(
            at: records.latestEventTime.advanced(byMilliseconds: records.limits.helloTimeoutMilliseconds),
            for: .helloTimeout(id))
    }

    /// Closes a connection that has not sent HELLO in time.
    static func helloTimedOut(_ id: ClientID, in records: inout Records) {
        guard let client = records.clients.handle(of: id), records.clients[client].phase == .joining else { return }
        records.outbox.actions.append(.client(.close(id, reason: "silent")))
    }

    /// Takes the number of a message. The broker carries out no message twice, so an old number is refused; that error
    /// names no message, because the one with this number has another answer.
    ///
    /// - Returns: the error to reply with; nil if the message is carried out.
    static func beginMessage(
        _ message: ClientMessage, _ number: UInt64?, of client: Handle<ClientSession>, in records: inout Records
    ) -> ErrorReply? {
        guard number != nil || records.clients[client].leaseMilliseconds == 0 || !message.canHaveNumber else {
            // So that the answer does not name an earlier message.
            _ = records.clients[client].messageNumbers.beginMessage(number: nil)
            return ErrorReply(
                code: "bad-message", detail: "this message needs a number, because the session has a lease")
        }
        guard records.clients[client].messageNumbers.beginMessage(number: number) else { return reusedNumberError }
        let most = records.limits.maximumRepliesPerLeasedSession
        if number != nil, message.countsAsUnanswered, records.clients[client].messageNumbers.pendingCount >= most {
            return ErrorReply(code: "limit", detail: "\(most) messages have no answer yet; wait for one")
        }
        return nil
    }

    /// Error for a number that was used.
    static var reusedNumberError: ErrorReply {
        ErrorReply(code: "bad-message", detail: "numbers rise: the number is not above that of an earlier message")
    }

    // MARK: Sessions with a lease

    /// The session that a HELLO resumes; nil without one. An unknown token, and a token of another principal or with
    /// other rights, are treated alike, so that guessing reveals nothing.
    ///
    /// - Parameter client: the new connection, with the principal and the rights of the HELLO.
    static func resumableSession(
        of hello: Hello, from client: Handle<ClientSession>, in records: inout Records
    ) -> Handle<ClientSession>? {
        guard let token = hello.token, let session = records.clients.handle(of: token),
            records.clients[session].principal == records.clients[client].principal,
            records.clients[session].isAdministrator == records.clients[client].isAdministrator,
            !records.clients[session].isCloseRequested
        else { return nil }
        return session
    }

    /// Prepares the replies that the next connection of a session lacks.
    ///
    /// - Returns: false if some are no longer kept, or if the client names a number that no message had.
    static func resumeReplies(of session: Handle<ClientSession>, _ hello: Hello, in records: inout Records) -> Bool {
        let next = records.clients[session].messageNumbers.lastNumber + 1
        let first = hello.firstUnansweredNumber ?? next
        return first <= next && records.clients[session].replies.prepareResumption(from: first)
    }

    /// Whether a session survives the loss of its connection. One closed for reading too slowly does not, nor one of a
    /// revoked key.
    static func canResume(_ client: Handle<ClientSession>, isRevoked: Bool, in records: inout Records) -> Bool {
        records.clients[client].leaseMilliseconds > 0 && !records.clients[client].isCloseRequested
            && records.limits.maximumDisconnectedSessions > 0 && !isRevoked
    }

    /// Suspends a session whose connection is lost.
    static func suspendSession(_ client: Handle<ClientSession>, now: MonotonicTime, in records: inout Records) {
        let absence = records.nextSerial()
        records.clients.suspend(client, absence: absence)
        records.clients[client].deliveries.detach()
        if !records.bodyPulls.isEmpty { records.bodyPulls.detachSession(client) }
        // A blocked socket stopped this client's transfers; from here on only its window does.
        if !records.clients[client].deliveries.isClosed { records.queue.unparkLanes(ofClient: client) }
        records.setSessionLeaseTimer(
            at: now.advanced(byMilliseconds: records.clients[client].leaseMilliseconds), of: client)
    }

    /// The session that ends to make room for an absent one: the one that has been away longest, of the same principal
    /// if that has more than a quarter of the places. So one principal cannot evict all sessions of another. Nil if
    /// there is room.
    static func sessionEvictedByAbsence(
        of client: Handle<ClientSession>, in records: inout Records
    ) -> Handle<ClientSession>? {
        guard records.clients.awaySessions.count > records.limits.maximumDisconnectedSessions else { return nil }
        let principal = records.clients[client].principal
        let own = records.clients.awaySessions.filter { records.clients[$0].principal == principal }
        return own.count > max(1, records.limits.maximumDisconnectedSessions / 4)
            ? own.first : records.clients.awaySessions.first
    }

    // MARK: Handlers

    /// The handler of a key, which is created if needed. The caller adds a reference or a subscriber next, or frees an
    /// idle one.
    static func findOrCreateHandler(for key: HandlerKey, in records: inout Records) -> Handle<HandlerEntry> {
        if let handler = records.handlers.handle(of: key) { return handler }
        let (handler, isFirstOfRoot) = records.handlers.addHandler(key, of: records.principals.name(of: key.principal))
        if isFirstOfRoot { records.cookieJars.activateJar(of: records.handlers.rootName(of: handler)) }
        return handler
    }

    /// Starts the grace period of the handler's own requests when its last subscriber has left.
    static func subscriberLeft(_ handler: Handle<HandlerEntry>, now: MonotonicTime, in records: inout Records) {
        guard records.handlers[handler].openHandlerOwnedRequests > 0, records.subscribers(of: handler).isEmpty else {
            return
        }
        let absence = records.nextSerial()
        records.handlers.beginSubscriberAbsence(of: handler, serial: absence)
        let subject = CoreTimer.TimerEvent.subscriberAbsenceEnd(handler: handler, absence: absence)
        records.setTimer(at: now.advanced(byMilliseconds: records.limits.subscriberGraceMilliseconds), for: subject)
    }
}
