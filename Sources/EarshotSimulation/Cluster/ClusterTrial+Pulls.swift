internal import EarshotCore
internal import EarshotWire

/// Workers that read bodies from other nodes, as clients of those.
extension ClusterTrial {
    private func isPartitioned(_ node: Int, _ other: Int) -> Bool {
        partitionedNodePairs.contains([min(node, other), max(node, other)]) || !nodes[other].isAlive
    }

    /// Opens a session at the node that has the body, and requests it.
    mutating func pullBegins(_ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID) throws(Violation) {
        guard isCurrentLife(node, life), let pull = nodes[node].workers[worker]?.pulls[attempt] else { return }
        let holder = pull.holderNode
        guard !isPartitioned(node, holder) else {
            return planEvent(
                drawNumber(10...200), .pullEnds(node: node, life: life, worker, attempt, nil, 0, "connect-failed"))
        }
        let client = ClientID(rawValue: nextNumber())
        let session = (client: client, life: nodes[holder].lifeNumber)
        nodes[node].workers[worker]?.pulls[attempt]?.readerSession = session
        nodes[holder].readers[client] = ClusterNode.Reader(node: node, worker: worker, attempt: attempt)
        // All readers of a node are one principal, so their handlers have different names.
        guard let handler = HandlerID("pull/\(client.rawValue)"), let request = RequestID("1") else {
            preconditionFailure("valid names")
        }
        let user = PrincipalName("node:\(node)")
        let fetch = Fetch(handler: handler, request: request, url: pull.job.url)
        try runPass(holder) { core, now in
            core.clientConnected(
                client, token: SessionToken(highBits: 8, lowBits: client.rawValue), user: user)
            core.clientMessageReceived(.hello(Hello(window: 16)), from: client, now: now)
            core.clientMessageReceived(.fetch(fetch), from: client, now: now)
        }
    }

    /// Handles the terminal of a request for a body.
    mutating func readerReceives(
        _ terminal: Terminal, _ content: ClusterCatalogue.Content?, _ client: ClientID, _ node: Int
    ) {
        guard let reader = nodes[node].readers[client] else { return }
        let life = nodes[reader.node].lifeNumber
        switch terminal.outcome {
        case .result(_, let response):
            planEvent(
                drawNumber(1...60),
                .pullEnds(
                    node: reader.node, life: life, reader.worker, reader.attempt, content, response.bodyByteCount,
                    "reset"))
        case .failed(let failure):
            planEvent(
                drawNumber(1...20),
                .pullEnds(node: reader.node, life: life, reader.worker, reader.attempt, nil, 0, failure.code))
        }
    }

    /// Reports a body, or that there is none.
    mutating func pullEnds(
        _ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID, _ content: ClusterCatalogue.Content?,
        _ length: Int, _ code: String
    ) throws(Violation) {
        guard isCurrentLife(node, life), let pull = nodes[node].workers[worker]?.pulls.removeValue(forKey: attempt)
        else {
            return
        }
        var message = WorkerMessage.failed(attempt, code: code, detail: nil, receivedBytes: 0)
        var body: BodyID?
        // A node that restarted meanwhile has closed the session.
        let isWhole = pull.readerSession.map { nodes[pull.holderNode].lifeNumber == $0.life } ?? false
        if let content, isWhole, !isPartitioned(node, pull.holderNode) {
            var completion = Completion(attempt: attempt, status: 200)
            completion.bodyByteCount = length
            completion.sha256 = content.sha256
            message = .completed(completion)
            let id = BodyID(rawValue: nextNumber())
            nodes[node].heldBodies[id] = corruptedContent(content)
            body = id
            report.pulledBodies += 1
            expectations.recordArrival(content.fetch, in: node, at: now)
        }
        appendTrace("node \(node) has read \(pull.job.url): \(Self.traceDescription(message))")
        try closeReader(of: pull)
        try runPass(node) { [body, message] core, now in
            core.workerMessageReceived(message, body: body, from: worker, now: now)
        }
    }

    /// Another body than the one that the node has, with the canary.
    private mutating func corruptedContent(_ content: ClusterCatalogue.Content) -> ClusterCatalogue.Content {
        guard options.canary == .servesAnotherBody, random.boolean(perMille: 50) else { return content }
        return ClusterCatalogue.Content(key: content.key + 1, fetch: content.fetch)
    }

    mutating func closeReaders(of worker: ClusterNode.Worker) throws(Violation) {
        for attempt in ClusterNode.sortedAttempts(worker.pulls) {
            if let pull = worker.pulls[attempt] { try closeReader(of: pull) }
        }
    }

    /// Ends the session at the other node.
    mutating func closeReader(of pull: ClusterNode.Pull) throws(Violation) {
        guard let (client, life) = pull.readerSession, isCurrentLife(pull.holderNode, life),
            nodes[pull.holderNode].readers.removeValue(forKey: client) != nil
        else { return }
        try runPass(pull.holderNode) { core, now in core.clientLost(client, now: now) }
    }
}
