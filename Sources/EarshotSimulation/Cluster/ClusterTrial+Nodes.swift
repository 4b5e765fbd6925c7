internal import EarshotCore
internal import EarshotWire

/// The shells of the nodes: they start and end cores, and give them events.
extension ClusterTrial {
    // MARK: Life

    /// Begins the life of a node with a fresh core.
    mutating func begin(_ node: Int) {
        let life = nodes[node].life
        for _ in 0..<1 + random.below(2) { plan(draw(1...100), .workerBegins(node: node, life: life, isPuller: false)) }
        plan(draw(1...100), .workerBegins(node: node, life: life, isPuller: true))
        plan(1, .clientBegins(node: node, life: life, isWatcher: true))
        for _ in 0..<2 { plan(draw(1...50), .clientBegins(node: node, life: life, isWatcher: false)) }
        plan(draw(50...150), .clientsAct(node: node, life: life))
        plan(draw(1...50), .connect(node: node, life: life))
        plan(5, .wake(node: node, life: life))
        nodes[node].wake = now
    }

    mutating func restart(_ node: Int) {
        var link = nodes[node].link
        link.isUp = false
        link.number += 1
        let isCutOff = nodes[node].isCutOff
        // The folder with the ID may be gone, too.
        let predecessor = random.perMille(500) ? link.id : nil
        nodes[node] = ClusterNode(
            number: node, life: nodes[node].life + 1, seed: random.next(), predecessor: predecessor, now: tick)
        nodes[node].link = link
        nodes[node].isCutOff = isCutOff
        note("node \(node) begins")
        begin(node)
    }

    /// Ends the process of a node. Its clients ask again.
    mutating func die(_ node: Int, restartsAfter delay: Int) throws(Violation) {
        note("node \(node) dies")
        let keys = nodes[node].clientsInOrder.flatMap { expectations.clientGone($0) }
        nodes[node].isAlive = false
        if nodes[node].link.isUp { retire(node) }
        nodes[node].link.isUp = false
        nodes[node].link.number += 1
        for worker in nodes[node].workersInOrder {
            if let lost = nodes[node].workers.removeValue(forKey: worker) { try closeReaders(of: lost) }
        }
        if !keys.isEmpty { plan(draw(100...2_000), .resubmit(keys)) }
        plan(delay, .begin(node: node, life: nodes[node].life))
    }

    // MARK: Passes

    /// Runs a pass of a core: an event, due timers, assignment, actions, and calls to the engine.
    mutating func pass(_ node: Int, _ event: (inout BrokerCore, Tick) -> Void) throws(Violation) {
        event(&nodes[node].core, tick)
        nodes[node].core.timePassed(now: tick)
        nodes[node].core.dispatch(now: tick)
        try carryOut(node)
        let calls = nodes[node].core.takeEngineCalls(now: tick)
        send(calls, node)
        try carryOut(node)
        try checkBegun()
        if step - lastAudit >= Self.auditPeriod {
            lastAudit = step
            try audit(node)
        }
        guard let next = nodes[node].core.nextTimer else { return }
        let time = Int((next.nanoseconds + 999_999) / 1_000_000)
        nodes[node].spins = time <= now ? nodes[node].spins + 1 : 0
        guard nodes[node].spins < 1_000 else { throw Violation(11, "node \(node) asks for pass after pass") }
        // A pass takes a millisecond.
        let wake = max(time, now + 1)
        guard nodes[node].wake.map({ wake < $0 }) ?? true else { return }
        nodes[node].wake = wake
        plan(wake - now, .wake(node: node, life: nodes[node].life))
    }

    func audit(_ node: Int) throws(Violation) {
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
        case .client(.deliver(let client, let terminal, let body)):
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
        case .worker(.send(let worker, let message)): receives(message, worker, node)
        case .worker(.sendJob(let worker, let job, _)), .worker(.resumeJob(let worker, let job, _)):
            receives(.job(job), worker, node)
        case .worker(.kill(let worker)), .worker(.close(let worker)):
            throw Violation(12, "node \(node) ends worker \(worker.rawValue), which works")
        case .spool(.releaseBody(let body)):
            if options.canary == .keepsBodies, random.perMille(100) { return }
            guard nodes[node].bodies.removeValue(forKey: body) != nil else {
                throw Violation(12, "node \(node) releases body \(body.rawValue), which it does not have")
            }
        case .client(.answer), .client(.reply), .client(.sendPiece), .spool, .cache, .durable, .supervisor,
            .log:
            throw Violation(0, "node \(node) has an action that this simulation lacks: \(action)")
        }
    }

    private mutating func deliver(
        _ terminal: Terminal, _ body: BodyID?, to client: ClientID, _ node: Int
    ) throws(Violation) {
        var content: ClusterCatalogue.Content?
        if let body {
            guard let held = nodes[node].bodies[body] else {
                throw Violation(12, "node \(node) delivers body \(body.rawValue), which it does not have")
            }
            content = held
        }
        if nodes[node].readers[client] != nil { return readerReceives(terminal, content, client, node) }
        guard nodes[node].clients[client] != nil else { return }
        plan(
            draw(1...30), .acknowledge(node: node, life: nodes[node].life, client, terminal.sequence))
        if options.canary == .losesTerminals, random.perMille(20) { return }
        note("client \(client.rawValue) of node \(node) gets \(terminal.request) \(ClusterExpectations.text(terminal))")
        if try expectations.delivered(
            terminal, content, to: client, isDraining: nodes[node].drainsSince != nil,
            noWayOutUntil: nodes[node].noWayOutUntil, now: now, clockWindowEnd: clockWindowEnd)
        {
            report.answered += 1
        }
    }
}
