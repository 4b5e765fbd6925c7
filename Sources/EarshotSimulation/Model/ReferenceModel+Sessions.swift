internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Sessions with a lease: the expected effects of disconnection, resumption and expiry.
extension ReferenceModel {
    func connected(_ id: ClientID) {
        let client = SessionRecord(id, token: Trial.token(of: id), connectedAt: now)
        connections[id] = client
        sessions[id] = client
    }

    func helloReceived(_ hello: Hello, by client: SessionRecord) {
        guard !client.isOpen else {
            expectedReplies[client.connection] = .error("bad-message")
            return
        }
        guard let token = hello.token,
            let session = sessions.values.first(where: {
                $0.leaseMilliseconds > 0 && $0.token == token
                    && $0.principal == hello.principal && !$0.isClosing
            })
        else {
            greet(client, hello, session: nil)
            return
        }
        guard session.isAway else {
            expectedReplies[client.connection] = .error("session-in-use")
            return
        }
        guard session.resume(from: hello.unanswered ?? session.lastNumber + 1) else {
            greet(client, hello, session: nil)
            return
        }
        sessions[client.id] = nil
        connections[client.connection] = session
        session.connection = client.connection
        session.awayUntil = nil
        awaySessions.removeAll { $0 === session }
        greet(session, hello, session: session)
    }

    private func greet(_ client: SessionRecord, _ hello: Hello, session: SessionRecord?) {
        client.isOpen = true
        client.number = 0
        client.principal = hello.principal
        client.window = hello.window
        client.leaseMilliseconds = min(hello.leaseMilliseconds, WireLimits.leaseSeconds * 1_000)
        expectedReplies[client.connection] = .welcome(
            lease: client.leaseMilliseconds, token: client.token, lastReceived: session?.lastNumber)
    }

    /// Queues the replies to this event behind replies that wait for terminals.
    func queueReplies() {
        for (id, expected) in expectedReplies {
            guard let client = connections[id], client.unsentReplies > 0 else { continue }
            if case .welcome = expected { continue }
            client.keepReply(expected, isSent: false)
            expectedReplies[id] = nil
        }
    }

    /// Checks a client's replies after an event: invariant 1. O(1).
    func judgeReplies(to id: ClientID) {
        guard let client = connections[id] else { return }
        if let next = client.nextReply, !client.isClosing {
            expect(
                next.place > client.lastSequence, 1, "client \(id.rawValue) is not sent its reply \(next.reply) again")
        }
        expect(
            client.unsentReplies <= limits.keptReplies || client.isClosing, 11,
            "\(client.unsentReplies) replies wait for client \(id.rawValue)")
        client.trimReplies(to: limits.keptReplies)
    }

    /// Handles a disconnection. Nothing of a client is removed before its lease expires: invariant 12.
    func clientLost(_ id: ClientID) {
        guard let client = connections.removeValue(forKey: id) else { return }
        blame = 12
        guard client.leaseMilliseconds > 0, !client.isClosing else {
            end(client)
            return
        }
        if awaySessions.count >= limits.awayClients {
            // A principal with more than a quarter of the places makes room itself.
            let own = awaySessions.filter { $0.principal == client.principal }
            let evicted = own.count + 1 > max(1, limits.awayClients / 4) ? own.first : awaySessions.first
            if let evicted { end(evicted) }
        }
        let until = now.advanced(byMilliseconds: client.leaseMilliseconds)
        client.leave(until: until)
        awaySessions.append(client)
        moments.insert(Moment(at: until, subject: .lease(client, until: until)))
    }

    /// Handles the core's decision to end a session: at once with its connection, or for a disconnected client at the
    /// next tick.
    func closed(_ id: ClientID) {
        guard let client = connections[id] ?? awaySessions.first(where: { $0.connection == id }) else { return }
        client.isClosing = true
        guard let until = client.awayUntil else { return }
        moments.insert(Moment(at: now.advanced(byNanoseconds: 1), subject: .lease(client, until: until)))
    }

    func leaseEnded(_ client: SessionRecord, until: Tick) {
        guard client.awayUntil == until else { return }
        blame = 12
        end(client)
    }
}
