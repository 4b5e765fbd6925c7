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
        guard session.resumeReplies(from: hello.firstUnansweredNumber ?? session.lastNumber + 1) else {
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
        client.currentMessageNumber = 0
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
    func checkReplies(to id: ClientID) {
        guard let client = connections[id] else { return }
        if let next = client.nextReply, !client.isClosing {
            expect(
                next.precedingSequence > client.lastSequence, 1,
                "client \(id.rawValue) is not sent its reply \(next.reply) again")
        }
        expect(
            client.unsentReplies <= limits.maximumRepliesPerLeasedSession || client.isClosing, 11,
            "\(client.unsentReplies) replies wait for client \(id.rawValue)")
        client.trimReplies(to: limits.maximumRepliesPerLeasedSession)
    }

    /// Handles a disconnection. Nothing of a client is removed before its lease expires: invariant 12.
    func clientLost(_ id: ClientID) {
        guard let client = connections.removeValue(forKey: id) else { return }
        ledgerInvariant = 12
        guard client.leaseMilliseconds > 0, !client.isClosing else {
            endSession(client)
            return
        }
        if awaySessions.count >= limits.maximumDisconnectedSessions {
            // A principal with more than a quarter of the places makes room itself.
            let own = awaySessions.filter { $0.principal == client.principal }
            let evicted =
                own.count + 1 > max(1, limits.maximumDisconnectedSessions / 4) ? own.first : awaySessions.first
            if let evicted { endSession(evicted) }
        }
        let until = now.advanced(byMilliseconds: client.leaseMilliseconds)
        client.disconnect(until: until)
        awaySessions.append(client)
        timers.insert(ModelTimer(dueAt: until, subject: .lease(client, until: until)))
    }

    /// Handles the core's decision to end a session: at once with its connection, or for a disconnected client at the
    /// next tick.
    func recordSessionClosing(_ id: ClientID) {
        guard let client = connections[id] ?? awaySessions.first(where: { $0.connection == id }) else { return }
        client.isClosing = true
        guard let until = client.awayUntil else { return }
        timers.insert(ModelTimer(dueAt: now.advanced(byNanoseconds: 1), subject: .lease(client, until: until)))
    }

    func sessionLeaseExpired(_ client: SessionRecord, until: MonotonicTime) {
        guard client.awayUntil == until else { return }
        ledgerInvariant = 12
        endSession(client)
    }
}

/// Opening of a broker that follows a dead one: invariant 9 across its death.
extension ReferenceModel {
    /// Starts a new broker, which awaits these processes.
    func brokerBegins(awaiting processes: Set<Int32>, until: MonotonicTime, now: MonotonicTime) {
        (awaitedProcesses, earliestProcessKill) = (processes, until)
        hasPredecessor = true
        userWorkersAwaitedUntil = now.advanced(byMilliseconds: Trial.userWorkerWaitMilliseconds)
        if processes.isEmpty { transfersAllowedAt = now }
    }

    /// Whether transfers may start: each awaited process is ready or has ended.
    var mayStartTransfers: Bool { awaitedProcesses.isEmpty }

    /// Handles an awaited process that is ready or has ended.
    func stopAwaitingProcess(_ process: Int32) {
        if awaitedProcesses.remove(process) != nil, awaitedProcesses.isEmpty { transfersAllowedAt = now }
    }

    /// Checks that only a late process is killed.
    func checkProcessKill(process: Int32) {
        expect(
            awaitedProcesses.contains(process) && now >= earliestProcessKill, 14,
            "process \(process) is killed and is not late")
    }

    /// Checks that an origin starts slowly. The limit is that of the earliest slow start.
    func checkSlowStart(of origin: OriginRecord) {
        guard hasPredecessor, !haveLimitsChanged, let transfersAllowedAt else { return }
        let elapsed = now.milliseconds(since: transfersAllowedAt)
        guard elapsed < limits.slowStartPeriodMilliseconds, origin.name.hasPrefix("http") else { return }
        let most = 1 << min(elapsed / 100, 20)
        expect(
            origin.runningTransfers < most, 9,
            "\(origin.name) starts transfer \(origin.runningTransfers + 1) in its slow start")
    }

    /// Whether the slow start may still hold transfers back.
    var mayStartSlowly: Bool {
        guard hasPredecessor else { return false }
        guard let transfersAllowedAt else { return true }
        // Later origins need up to a second for their own.
        return now.milliseconds(since: transfersAllowedAt) < limits.slowStartPeriodMilliseconds + 1_000
    }

    /// Returns the largest body size that the flight's requests permit; nil for no limit.
    func largestSize(of flight: FlightRecord) -> Int? {
        var largest: Int? = 0
        flight.forEachRequest { request in
            let limit = request.fetch.options.maximumBodyBytes
            largest = if let limit, let known = largest { max(known, limit) } else { nil }
        }
        return largest
    }
}
