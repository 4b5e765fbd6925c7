internal import EarshotCore
internal import EarshotWire

/// Behaviour of the clients of the nodes: their connections, requests and removals.
extension ClusterTrial {
    /// Maximum number of open requests of one client.
    private static let mostOpen = 30

    mutating func clientBegins(_ node: Int, isWatcher: Bool) throws(Violation) {
        let id = ClientID(rawValue: number())
        let names = isWatcher ? [] : ["w/\(id.rawValue)", "h/\(id.rawValue)", "g/\(id.rawValue)"]
        nodes[node].clients[id] = ClusterNode.Client(
            handlers: names.compactMap { HandlerID($0) }, isWatcher: isWatcher)
        guard let watched = HandlerID("w") else { preconditionFailure("a valid name") }
        try pass(node) { core, now in
            core.clientConnected(id, token: SessionToken(high: 7, low: id.rawValue))
            core.received(.hello(Hello(window: 16)), from: id, now: now)
            if isWatcher { core.received(.subscribe(.subtree(watched)), from: id, now: now) }
        }
    }

    private func requesters(of node: Int) -> [ClientID] {
        nodes[node].clientsInOrder.filter { nodes[node].clients[$0]?.isWatcher == false }
    }

    mutating func clientsAct(_ node: Int, _ life: Int) throws(Violation) {
        guard isLive(node, life), !isEnding else { return }
        plan(draw(20...160), .clientsAct(node: node, life: life))
        let requesters = self.requesters(of: node)
        guard !requesters.isEmpty else { return }
        let client = requesters[random.below(requesters.count)]
        switch random.below(1_000) {
        case ..<600: try submit(draw(0...ClusterCatalogue.keys - 1), by: client, node)
        case ..<700: try submit(draw(ClusterCatalogue.rareKeys), by: client, node)
        case ..<800: try submitPopular(by: client, node)
        case ..<870: try changePriority(client, node)
        case ..<930: try cancel(client, node)
        case ..<950: try remove(client, node)
        case ..<954 where has(.clientDeath): try clientDies(client, node)
        default: break
        }
    }

    /// Asks for some keys that clients of other nodes ask for at the same time.
    private mutating func submitPopular(by client: ClientID, _ node: Int) throws(Violation) {
        let first = now / 2_000 * 7 % ClusterCatalogue.keys
        for key in first..<first + 4 { try submit(key % ClusterCatalogue.keys, by: client, node) }
    }

    private mutating func submit(_ key: Int, by client: ClientID, _ node: Int) throws(Violation) {
        guard let known = nodes[node].clients[client], expectations.open(of: client).count < Self.mostOpen,
            nodes[node].drainsSince == nil || random.perMille(100)
        else { return }
        let handler = known.handlers[random.below(known.handlers.count)]
        let id = expectations.nextID()
        guard let request = RequestID("\(id)") else { preconditionFailure("a valid name") }
        let isWatched = handler.description.hasPrefix("w/")
        let watchers = nodes[node].clientsInOrder.filter { nodes[node].clients[$0]?.isWatcher == true }
        var expected = ClusterExpectations.Request(
            node: node, client: client, handler: handler, key: key, requestedAt: now,
            awaiting: Set([client] + (isWatched ? watchers : [])))
        var fetch = Fetch(handler: handler, request: request, url: ClusterCatalogue.url(of: key))
        fetch.options.priority = [.background, .normal, .normal, .high][random.below(4)]
        fetch.options.retries = random.below(3)
        switch random.below(1_000) {
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
            fetch.options.maxBytes = [50, 300, 600][random.below(3)]
            expected.maxBytes = fetch.options.maxBytes
        case ..<300:
            fetch.options.deadlineMilliseconds = draw(50...5_000)
            expected.hasDeadline = true
        default: break
        }
        note("client \(client.rawValue) of node \(node) asks \(id) of key \(key) \(fetch.options.method)")
        expectations.requested(id, expected)
        report.requests += 1
        try pass(node) { core, now in core.received(.fetch(fetch), from: client, now: now) }
    }

    private mutating func changePriority(_ client: ClientID, _ node: Int) throws(Violation) {
        guard let (handler, request) = openRequest(of: client) else { return }
        let priority = [PriorityClass.background, .normal, .high][random.below(3)]
        try pass(node) { core, now in core.received(.priority(handler, request, priority), from: client, now: now) }
    }

    private mutating func openRequest(of client: ClientID) -> (HandlerID, RequestID)? {
        let open = expectations.open(of: client)
        guard !open.isEmpty else { return nil }
        let id = open[random.below(open.count)]
        guard let request = expectations.requests[id], let name = RequestID("\(id)") else { return nil }
        return (request.handler, name)
    }

    private mutating func cancel(_ client: ClientID, _ node: Int) throws(Violation) {
        guard let (handler, request) = openRequest(of: client), let id = Int(request.description) else { return }
        note("client \(client.rawValue) of node \(node) cancels \(id)")
        expectations.requestsRemoved([id])
        try pass(node) { core, now in core.received(.removeRequest(handler, request), from: client, now: now) }
    }

    private mutating func remove(_ client: ClientID, _ node: Int) throws(Violation) {
        guard let known = nodes[node].clients[client] else { return }
        let handler = known.handlers[random.below(known.handlers.count)]
        note("client \(client.rawValue) of node \(node) removes \(handler)")
        expectations.requestsRemoved(expectations.open(of: client, handler))
        try pass(node) { core, now in core.received(.remove(.handler(handler)), from: client, now: now) }
    }

    private mutating func clientDies(_ client: ClientID, _ node: Int) throws(Violation) {
        note("client \(client.rawValue) of node \(node) dies")
        nodes[node].clients[client] = nil
        let keys = expectations.clientGone(client)
        if !keys.isEmpty { plan(draw(10...1_000), .resubmit(keys)) }
        plan(draw(10...500), .clientBegins(node: node, life: nodes[node].life, isWatcher: false))
        try pass(node) { core, now in core.clientLost(client, now: now) }
    }

    /// Requests of a client that is gone, at any node.
    mutating func resubmit(_ keys: [Int]) throws(Violation) {
        let live: [Int] = nodes.indices.filter {
            nodes[$0].isAlive && nodes[$0].drainsSince == nil && !self.requesters(of: $0).isEmpty
        }
        guard !live.isEmpty, !isEnding else { return }
        let node = live[random.below(live.count)]
        let requesters = self.requesters(of: node)
        let client = requesters[random.below(requesters.count)]
        for key in keys { try submit(key, by: client, node) }
    }
}
