internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Sessions that outlive their connections.
extension ReferenceModel {
    func connected(_ id: ClientID, isRequestReply: Bool) {
        let client = SessionRecord(
            id, isRequestReply: isRequestReply, token: Trial.token(of: id), connectedAt: now)
        connections[id] = client
        sessions[id] = client
    }

    func helloSaid(_ hello: Hello, by client: SessionRecord) {
        guard !client.isOpen, !client.isRequestReply || hello.window == nil,
            hello.leaseMilliseconds == 0 || hello.client != nil
        else {
            reply = (client.connection, .error("bad-message"))
            return
        }
        guard !client.isRequestReply, let token = hello.token,
            let session = sessions.values.first(where: {
                $0.leaseMilliseconds > 0 && $0.token == token && $0.name == hello.client && !$0.isClosing
            })
        else {
            client.name = hello.client
            greet(client, hello, heard: nil)
            return
        }
        guard session.isAway else {
            reply = (client.connection, .error("session-in-use"))
            return
        }
        sessions[client.id] = nil
        connections[client.connection] = session
        session.connection = client.connection
        session.awayUntil = nil
        away.removeAll { $0 === session }
        greet(session, hello, heard: session.heard)
    }

    private func greet(_ client: SessionRecord, _ hello: Hello, heard: UInt64?) {
        client.isOpen = true
        client.window = hello.window
        let lease = min(hello.leaseMilliseconds, WireLimits.leaseSeconds * 1_000)
        client.leaseMilliseconds = client.isRequestReply ? 0 : lease
        reply = (
            client.connection, .welcome(lease: client.leaseMilliseconds, token: client.token, heard: heard)
        )
    }

    /// Nothing of a client is purged before its lease is over: invariant 12.
    func clientLost(_ id: ClientID) {
        guard let client = connections.removeValue(forKey: id) else { return }
        blame = 12
        guard client.leaseMilliseconds > 0, !client.isClosing else {
            end(client)
            return
        }
        if away.count >= limits.awayClients, let oldest = away.first { end(oldest) }
        let until = now.advanced(byMilliseconds: client.leaseMilliseconds)
        client.leave(until: until)
        away.append(client)
        moments.insert(Moment(at: until, subject: .lease(client, until: until)))
    }

    /// The core gives a client up: a connected one with its connection, one that is away when time has passed.
    func closed(_ id: ClientID) {
        guard let client = connections[id] ?? away.first(where: { $0.connection == id }) else { return }
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
