internal import EarshotCore
internal import EarshotWire

/// Workers that read bodies from other nodes, as clients of those.
extension ClusterTrial {
    private func isSeparated(_ node: Int, _ other: Int) -> Bool {
        separated.contains([min(node, other), max(node, other)]) || !nodes[other].isAlive
    }

    /// Opens a session at the node that has the body, and requests it.
    mutating func pullBegins(_ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID) throws(Violation) {
        guard isLive(node, life), let pull = nodes[node].workers[worker]?.pulls[attempt] else { return }
        let holder = pull.holder
        guard !isSeparated(node, holder) else {
            return plan(draw(10...200), .pullEnds(node: node, life: life, worker, attempt, nil, 0, "connect-failed"))
        }
        let client = ClientID(rawValue: number())
        let session = (client: client, life: nodes[holder].life)
        nodes[node].workers[worker]?.pulls[attempt]?.session = session
        nodes[holder].readers[client] = ClusterNode.Reader(node: node, worker: worker, attempt: attempt)
        // All readers of a node are one principal, so their handlers have different names.
        guard let handler = HandlerID("pull/\(client.rawValue)"), let request = RequestID("1") else {
            preconditionFailure("valid names")
        }
        let user = PrincipalName("node:\(node)")
        let fetch = Fetch(handler: handler, request: request, url: pull.job.url)
        try pass(holder) { core, now in
            core.clientConnected(
                client, token: SessionToken(high: 8, low: client.rawValue), user: user)
            core.received(.hello(Hello(window: 16)), from: client, now: now)
            core.received(.fetch(fetch), from: client, now: now)
        }
    }

    /// Handles the terminal of a request for a body.
    mutating func readerReceives(
        _ terminal: Terminal, _ content: ClusterCatalogue.Content?, _ client: ClientID, _ node: Int
    ) {
        guard let reader = nodes[node].readers[client] else { return }
        let life = nodes[reader.node].life
        switch terminal.outcome {
        case .result(_, let response):
            plan(
                draw(1...60),
                .pullEnds(
                    node: reader.node, life: life, reader.worker, reader.attempt, content, response.length, "reset"))
        case .failed(let failure):
            plan(
                draw(1...20),
                .pullEnds(node: reader.node, life: life, reader.worker, reader.attempt, nil, 0, failure.code))
        }
    }

    /// Reports a body, or that there is none.
    mutating func pullEnds(
        _ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID, _ content: ClusterCatalogue.Content?,
        _ length: Int, _ code: String
    ) throws(Violation) {
        guard isLive(node, life), let pull = nodes[node].workers[worker]?.pulls.removeValue(forKey: attempt) else {
            return
        }
        var message = WorkerMessage.failed(attempt, code: code, detail: nil, receivedBytes: 0)
        var body: BodyID?
        // A node that restarted meanwhile has closed the session.
        let isWhole = pull.session.map { nodes[pull.holder].life == $0.life } ?? false
        if let content, isWhole, !isSeparated(node, pull.holder) {
            var completion = Completion(attempt: attempt, status: 200)
            completion.length = length
            completion.sha256 = content.sha256
            message = .done(completion)
            let id = BodyID(rawValue: number())
            nodes[node].bodies[id] = otherContent(content)
            body = id
            report.pulls += 1
            expectations.arrived(content.fetch, in: node, at: now)
        }
        note("node \(node) has read \(pull.job.url): \(Self.text(message))")
        try closeReader(of: pull)
        try pass(node) { [body, message] core, now in core.received(message, body: body, from: worker, now: now) }
    }

    /// Another body than the one that the node has, with the canary.
    private mutating func otherContent(_ content: ClusterCatalogue.Content) -> ClusterCatalogue.Content {
        guard options.canary == .servesAnotherBody, random.perMille(50) else { return content }
        return ClusterCatalogue.Content(key: content.key + 1, fetch: content.fetch)
    }

    mutating func closeReaders(of worker: ClusterNode.Worker) throws(Violation) {
        for attempt in ClusterNode.inOrder(worker.pulls) {
            if let pull = worker.pulls[attempt] { try closeReader(of: pull) }
        }
    }

    /// Ends the session at the other node.
    mutating func closeReader(of pull: ClusterNode.Pull) throws(Violation) {
        guard let (client, life) = pull.session, isLive(pull.holder, life),
            nodes[pull.holder].readers.removeValue(forKey: client) != nil
        else { return }
        try pass(pull.holder) { core, now in core.clientLost(client, now: now) }
    }
}
