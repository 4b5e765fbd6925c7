internal import EarshotCore
internal import EarshotWire

/// The shells of the nodes: they start and end cores, and give them events.
extension ClusterTrial {
    // MARK: Life

    /// Begins the life of a node with a fresh core.
    mutating func startNode(_ node: Int) {
        let life = nodes[node].lifeNumber
        for _ in 0..<1 + random.number(below: 2) {
            planEvent(drawNumber(1...100), .workerBegins(node: node, life: life, isPuller: false))
        }
        planEvent(drawNumber(1...100), .workerBegins(node: node, life: life, isPuller: true))
        planEvent(1, .clientBegins(node: node, life: life, isWatcher: true))
        for _ in 0..<2 { planEvent(drawNumber(1...50), .clientBegins(node: node, life: life, isWatcher: false)) }
        planEvent(drawNumber(50...150), .clientsAct(node: node, life: life))
        planEvent(drawNumber(1...50), .connect(node: node, life: life))
        planEvent(5, .wake(node: node, life: life))
        nodes[node].wakeTime = now
    }

    mutating func restartNode(_ node: Int) {
        var link = nodes[node].link
        link.isUp = false
        link.connectionNumber += 1
        let isCutOff = nodes[node].isCutOff
        // The folder with the ID may be gone, too.
        let predecessor = random.boolean(perMille: 500) ? link.id : nil
        nodes[node] = ClusterNode(
            nodeNumber: node, lifeNumber: nodes[node].lifeNumber + 1, seed: random.next(), predecessor: predecessor,
            now: currentTick)
        nodes[node].link = link
        nodes[node].isCutOff = isCutOff
        appendTrace("node \(node) begins")
        startNode(node)
    }

    /// Ends the process of a node. Its clients ask again.
    mutating func killNode(_ node: Int, restartsAfter delay: Int) throws(Violation) {
        appendTrace("node \(node) dies")
        let keys = nodes[node].clientsInOrder.flatMap { expectations.recordClientLoss($0) }
        nodes[node].isAlive = false
        if nodes[node].link.isUp { recordEndedMembership(node) }
        nodes[node].link.isUp = false
        nodes[node].link.connectionNumber += 1
        for worker in nodes[node].workersInOrder {
            if let lost = nodes[node].workers.removeValue(forKey: worker) { try closeReaders(of: lost) }
        }
        if !keys.isEmpty { planEvent(drawNumber(100...2_000), .resubmit(keys)) }
        planEvent(delay, .begin(node: node, life: nodes[node].lifeNumber))
    }

    // MARK: Passes

    /// Runs a pass of a core: an event, due timers, assignment, actions, and calls to the engine.
    mutating func runPass(_ node: Int, _ event: (inout BrokerCore, MonotonicTime) -> Void) throws(Violation) {
        event(&nodes[node].core, currentTick)
        nodes[node].core.timePassed(now: currentTick)
        nodes[node].core.dispatch(now: currentTick)
        try carryOut(node)
        let calls = nodes[node].core.takeEngineCalls(now: currentTick)
        sendCalls(calls, node)
        try carryOut(node)
        try checkStartedTransfers()
        if step - lastAuditStep >= Self.auditPeriod {
            lastAuditStep = step
            try auditCore(node)
        }
        guard let next = nodes[node].core.nextTimer else { return }
        let time = Int((next.nanoseconds + 999_999) / 1_000_000)
        nodes[node].consecutiveImmediatePasses = time <= now ? nodes[node].consecutiveImmediatePasses + 1 : 0
        guard nodes[node].consecutiveImmediatePasses < 1_000 else {
            throw Violation(11, "node \(node) asks for pass after pass")
        }
        // A pass takes a millisecond.
        let wake = max(time, now + 1)
        guard nodes[node].wakeTime.map({ wake < $0 }) ?? true else { return }
        nodes[node].wakeTime = wake
        planEvent(wake - now, .wake(node: node, life: nodes[node].lifeNumber))
    }

    func auditCore(_ node: Int) throws(Violation) {
        if let fault = nodes[node].core.audit().first { throw Violation(audit: "\(fault) (node \(node))") }
    }

    private mutating func carryOut(_ node: Int) throws(Violation) {
        while true {
            let actions = nodes[node].core.takeActions()
            guard !actions.isEmpty else { return }
            for action in actions { try carryOut(action, node) }
        }
    }

    private mutating func carryOut(_ action: Action, _ node: Int) throws(Violation) {
        switch action {
        case .client(.deliverTerminal(let client, let terminal, let body)):
            try deliver(terminal, body, to: client, node)
        case .client(.send(_, .terminal(let terminal))):
            throw Violation(1, "node \(node) refuses \(terminal.handler) \(terminal.request): \(terminal.outcome)")
        case .client(.close(let client, let reason)):
            throw Violation(1, "node \(node) closes the connection of client \(client.rawValue): \(reason)")
        case .client(.send(let client, .error(let error))):
            // A request may end while a message about it is on its way.
            guard error.code == "unknown-request" else {
                throw Violation(1, "node \(node) tells client \(client.rawValue) \(error.code)")
            }
        case .client(.send): break
        case .worker(.send(let worker, let message)): workerReceives(message, worker, node)
        case .worker(.sendJob(let worker, let job, _)), .worker(.resumeJob(let worker, let job, _)):
            workerReceives(.job(job), worker, node)
        case .worker(.kill(let worker)), .worker(.close(let worker)):
            throw Violation(12, "node \(node) ends worker \(worker.rawValue), which works")
        case .spool(.releaseBody(let body)):
            if options.canary == .leaksBodies, random.boolean(perMille: 100) { return }
            guard nodes[node].heldBodies.removeValue(forKey: body) != nil else {
                throw Violation(12, "node \(node) releases body \(body.rawValue), which it does not have")
            }
        case .client(.answerQuery), .client(.replyToNumberedMessage), .client(.sendBodyPiece), .spool, .cache, .durable,
            .supervisor,
            .log:
            throw Violation(0, "node \(node) has an action that this simulation lacks: \(action)")
        }
    }

    private mutating func deliver(
        _ terminal: Terminal, _ body: BodyID?, to client: ClientID, _ node: Int
    ) throws(Violation) {
        var content: ClusterCatalogue.Content?
        if let body {
            guard let held = nodes[node].heldBodies[body] else {
                throw Violation(12, "node \(node) delivers body \(body.rawValue), which it does not have")
            }
            content = held
        }
        if nodes[node].readers[client] != nil { return readerReceives(terminal, content, client, node) }
        guard nodes[node].clients[client] != nil else { return }
        planEvent(
            drawNumber(1...30), .acknowledge(node: node, life: nodes[node].lifeNumber, client, terminal.sequence))
        if options.canary == .losesTerminals, random.boolean(perMille: 20) { return }
        appendTrace(
            "client \(client.rawValue) of node \(node) gets \(terminal.request) \(ClusterExpectations.description(terminal))"
        )
        if try expectations.checkTerminal(
            terminal, content, to: client, isDraining: nodes[node].drainsSince != nil,
            noWayOutUntil: nodes[node].nameResolutionOutageEnd, now: now, clockWindowEnd: clockWindowEnd)
        {
            report.answeredRequests += 1
        }
    }
}
