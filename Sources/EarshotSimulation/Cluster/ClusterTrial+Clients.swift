internal import EarshotCore
internal import EarshotWire

/// Behaviour of the clients of the nodes: their connections, requests and removals.
extension ClusterTrial {
    /// Maximum number of open requests of one client.
    private static let maximumOpenRequests = 30

    mutating func clientBegins(_ node: Int, isWatcher: Bool) throws(Violation) {
        let id = ClientID(rawValue: nextNumber())
        let names = isWatcher ? [] : ["w/\(id.rawValue)", "h/\(id.rawValue)", "g/\(id.rawValue)"]
        nodes[node].clients[id] = ClusterNode.Client(
            handlers: names.compactMap { HandlerID($0) }, isWatcher: isWatcher)
        guard let watched = HandlerID("w") else { preconditionFailure("a valid name") }
        try runPass(node) { core, now in
            core.clientConnected(id, token: SessionToken(highBits: 7, lowBits: id.rawValue))
            core.clientMessageReceived(.hello(Hello(window: 16)), from: id, now: now)
            if isWatcher { core.clientMessageReceived(.subscribe(.subtree(watched)), from: id, now: now) }
        }
    }

    private func requesters(of node: Int) -> [ClientID] {
        nodes[node].clientsInOrder.filter { nodes[node].clients[$0]?.isWatcher == false }
    }

    mutating func clientsAct(_ node: Int, _ life: Int) throws(Violation) {
        guard isCurrentLife(node, life), !isEnding else { return }
        planEvent(drawNumber(20...160), .clientsAct(node: node, life: life))
        let requesters = self.requesters(of: node)
        guard !requesters.isEmpty else { return }
        let client = requesters[random.number(below: requesters.count)]
        switch random.number(below: 1_000) {
        case ..<600: try submit(drawNumber(0...ClusterCatalogue.keys - 1), by: client, node)
        case ..<700: try submit(drawNumber(ClusterCatalogue.rareKeys), by: client, node)
        case ..<800: try submitPopular(by: client, node)
        case ..<870: try changePriority(client, node)
        case ..<930: try cancel(client, node)
        case ..<950: try remove(client, node)
        case ..<954 where isEnabled(.clientDeath): try clientDies(client, node)
        default: break
        }
    }

    /// Asks for some keys that clients of other nodes ask for at the same time.
    private mutating func submitPopular(by client: ClientID, _ node: Int) throws(Violation) {
        let first = now / 2_000 * 7 % ClusterCatalogue.keys
        for key in first..<first + 4 { try submit(key % ClusterCatalogue.keys, by: client, node) }
    }

    private mutating func submit(_ key: Int, by client: ClientID, _ node: Int) throws(Violation) {
        guard let known = nodes[node].clients[client],
            expectations.openRequests(of: client).count < Self.maximumOpenRequests,
            nodes[node].drainsSince == nil || random.boolean(perMille: 100)
        else { return }
        let handler = known.handlers[random.number(below: known.handlers.count)]
        let id = expectations.nextRequestID()
        guard let request = RequestID("\(id)") else { preconditionFailure("a valid name") }
        let isWatched = handler.description.hasPrefix("w/")
        let watchers = nodes[node].clientsInOrder.filter { nodes[node].clients[$0]?.isWatcher == true }
        // Some requests have waited for a broker.
        let age = random.boolean(perMille: 100) ? drawNumber(1...4_000) : 0
        var expected = ClusterExpectations.Request(
            node: node, client: client, handler: handler, key: key, requestedAt: now - age, receivedAt: now,
            awaitingClients: Set([client] + (isWatched ? watchers : [])))
        var fetch = Fetch(handler: handler, request: request, url: ClusterCatalogue.url(of: key))
        fetch.options.priority = [.background, .normal, .normal, .high][random.number(below: 4)]
        fetch.options.retries = random.number(below: 3)
        fetch.options.ageMilliseconds = age
        switch random.number(below: 1_000) {
        case ..<40:
            fetch.httpFields = Array("authorization: Basic x".utf8)
            expected.isCredentialed = true
        case ..<80:
            fetch.options.method = "POST"
            fetch.options.coalesces = false
            expected.method = "POST"
        case ..<100:
            fetch.options.method = "HEAD"
            expected.method = "HEAD"
        case ..<200:
            fetch.options.maximumBodyBytes = [50, 300, 600][random.number(below: 3)]
            expected.maximumBodyBytes = fetch.options.maximumBodyBytes
        case ..<300:
            fetch.options.deadlineMilliseconds = drawNumber(50...5_000)
            expected.hasDeadline = true
        default: break
        }
        appendTrace("client \(client.rawValue) of node \(node) asks \(id) of key \(key) \(fetch.options.method)")
        expectations.recordRequest(id, expected)
        report.requestCount += 1
        try runPass(node) { core, now in core.clientMessageReceived(.fetch(fetch), from: client, now: now) }
    }

    private mutating func changePriority(_ client: ClientID, _ node: Int) throws(Violation) {
        guard let (handler, request) = openRequest(of: client) else { return }
        let priority = [PriorityClass.background, .normal, .high][random.number(below: 3)]
        try runPass(node) { core, now in
            core.clientMessageReceived(.setPriority(handler, request, priority), from: client, now: now)
        }
    }

    private mutating func openRequest(of client: ClientID) -> (HandlerID, RequestID)? {
        let open = expectations.openRequests(of: client)
        guard !open.isEmpty else { return nil }
        let id = open[random.number(below: open.count)]
        guard let request = expectations.requests[id], let name = RequestID("\(id)") else { return nil }
        return (request.handler, name)
    }

    private mutating func cancel(_ client: ClientID, _ node: Int) throws(Violation) {
        guard let (handler, request) = openRequest(of: client), let id = Int(request.description) else { return }
        appendTrace("client \(client.rawValue) of node \(node) cancels \(id)")
        expectations.recordRemovals([id])
        try runPass(node) { core, now in
            core.clientMessageReceived(.removeRequest(handler, request), from: client, now: now)
        }
    }

    private mutating func remove(_ client: ClientID, _ node: Int) throws(Violation) {
        guard let known = nodes[node].clients[client] else { return }
        let handler = known.handlers[random.number(below: known.handlers.count)]
        appendTrace("client \(client.rawValue) of node \(node) removes \(handler)")
        expectations.recordRemovals(expectations.openRequests(of: client, handler))
        try runPass(node) { core, now in
            core.clientMessageReceived(.removeHandlers(.handler(handler)), from: client, now: now)
        }
    }

    private mutating func clientDies(_ client: ClientID, _ node: Int) throws(Violation) {
        appendTrace("client \(client.rawValue) of node \(node) dies")
        nodes[node].clients[client] = nil
        let keys = expectations.recordClientLoss(client)
        if !keys.isEmpty { planEvent(drawNumber(10...1_000), .resubmit(keys)) }
        planEvent(drawNumber(10...500), .clientBegins(node: node, life: nodes[node].lifeNumber, isWatcher: false))
        try runPass(node) { core, now in core.clientLost(client, now: now) }
    }

    /// Requests of a client that is gone, at any node.
    mutating func resubmit(_ keys: [Int]) throws(Violation) {
        let live: [Int] = nodes.indices.filter {
            nodes[$0].isAlive && nodes[$0].drainsSince == nil && !self.requesters(of: $0).isEmpty
        }
        guard !live.isEmpty, !isEnding else { return }
        let node = live[random.number(below: live.count)]
        let requesters = self.requesters(of: node)
        let client = requesters[random.number(below: requesters.count)]
        for key in keys { try submit(key, by: client, node) }
    }
}
