internal import EarshotCore
internal import EarshotWire

/// Faults, and the windows after them.
///
/// | fault | window |
/// | --- | --- |
/// | a connection breaks | none; if it had broken shortly before, the node may fetch without the engine |
/// | failover, outage, partition | until the engine is reachable, and `convergenceMilliseconds` |
/// | FLUSHALL, clock | `convergenceMilliseconds` |
/// | death of a node, of a worker, of a client; drain; pairs of nodes; slow network; lost notifications; no way out | none |
extension ClusterTrial {
    /// Time in which nodes notice the end of their membership, join again, and assert everything, and in which leases
    /// of earlier memberships expire.
    private static let convergenceMilliseconds = 6_000

    mutating func injectFault() throws(Violation) {
        guard !isEnding else { return }
        plan(random.perMille(300) ? draw(100...1_000) : draw(100...2 * faultMilliseconds), .fault)
        let node = random.below(nodes.count)
        let faults = ClusterFault.allCases.filter { has($0) }
        guard !faults.isEmpty else { return }
        let fault = faults[random.below(faults.count)]
        report.faults[fault.rawValue, default: 0] += 1
        note("fault: \(fault.rawValue) of node \(node)")
        switch fault {
        case .cutConnection:
            if now - nodes[node].link.joinedAt < 11_000 { open(windowUntil: now + Self.convergenceMilliseconds) }
            breakConnections(node, detection: draw(1...100))
        case .failover: failOver()
        case .outage:
            let length = draw(3_000...12_000)
            stopEngine(for: length)
            for number in nodes.indices { breakConnections(number, detection: draw(1...2_000)) }
        case .flush:
            open(windowUntil: now + Self.convergenceMilliseconds)
            engine = SimulatedEngine(microseconds: engine.microseconds)
            snapshots = []
        case .enginePartition:
            let length = draw(500...9_000)
            open(windowUntil: now + length + Self.convergenceMilliseconds)
            nodes[node].isCutOff = true
            plan(length, .heal(node: node))
            breakConnections(node, detection: 2_000, .timedOut)
        case .nodePartition:
            let other = (node + 1 + random.below(nodes.count - 1)) % nodes.count
            separated.insert([min(node, other), max(node, other)])
            plan(draw(1_000...20_000), .healPair(min(node, other), max(node, other)))
        case .nodeDeath:
            guard nodes[node].isAlive else { return }
            try die(node, restartsAfter: draw(100...8_000))
        case .clockJump: jump()
        case .drain: try drain(node)
        case .slowNetwork:
            longestDelay = draw(100...1_000)
            plan(draw(500...3_000), .networkRecovers)
        case .noWayOut: nodes[node].noWayOutUntil = now + draw(1_000...20_000)
        case .workerDeath, .clientDeath, .lostNotices, .refusals, .longTransfers: break
        }
    }

    /// Kills one worker from time to time.
    mutating func injectWorkerFault() throws(Violation) {
        guard !isEnding else { return }
        plan(draw(1_000...15_000), .workersFail)
        let node = random.below(nodes.count)
        guard has(.workerDeath), nodes[node].isAlive else { return }
        let workers = nodes[node].workersInOrder
        guard !workers.isEmpty else { return }
        try workerDies(node, workers[random.below(workers.count)])
    }

    /// Permits duplicates until then, also to transfers that run now.
    private mutating func open(windowUntil end: Int) {
        windowEnd = max(windowEnd, end)
        for node in nodes.indices {
            for worker in nodes[node].workers.keys {
                for attempt in nodes[node].workers[worker]?.transfers.keys.map({ $0 }) ?? [] {
                    nodes[node].workers[worker]?.transfers[attempt]?.isExcluded = true
                }
            }
        }
        for index in retired.indices { retired[index].due = max(retired[index].due, end + 10_000) }
    }

    private mutating func stopEngine(for length: Int) {
        open(windowUntil: now + length + Self.convergenceMilliseconds)
        guard isEngineUp else { return }
        isEngineUp = false
        plan(length, .engineUp)
    }

    private mutating func failOver() {
        let length = draw(1_000...3_000)
        if !snapshots.isEmpty {
            let former = snapshots[random.below(snapshots.count)].engine
            let microseconds = engine.microseconds
            engine = former
            engine.microseconds = microseconds
            _ = engine.takeNotifications()
            // Memberships that the copy still has.
            for node in former.nodes.keys.sorted(by: { $0.description < $1.description })
            where !nodes.contains(where: { $0.link.isUp && $0.link.id == node }) {
                retired.append((node, now + length + 10_000))
            }
        }
        snapshots = []
        stopEngine(for: length)
        for number in nodes.indices { breakConnections(number, detection: draw(1...2_000)) }
    }

    private mutating func jump() {
        let jump = random.perMille(500) ? draw(10...10_000) : -draw(10...10_000)
        note("the engine's clock jumps by \(jump) ms")
        engineOffset += jump
        engine.microseconds = (now + engineOffset) * 1_000
        open(windowUntil: now + Self.convergenceMilliseconds)
        clockWindowEnd = max(clockWindowEnd, now + abs(jump) + 15_000)
        snapshots = []
        guard jump < 0 else { return }
        for index in retired.indices { retired[index].due = max(retired[index].due, now - jump + 10_000) }
    }

    /// Drains a node. It leaves when nothing is left to do, or after a while.
    private mutating func drain(_ node: Int) throws(Violation) {
        guard nodes[node].isAlive, nodes[node].drainsSince == nil,
            nodes.count(where: { $0.isAlive && $0.drainsSince == nil }) > 1
        else { return }
        nodes[node].drainsSince = now
        try pass(node) { core, _ in core.drain() }
    }

    /// Ends nodes that have drained.
    mutating func endDrained() throws(Violation) {
        for node in nodes.indices {
            guard nodes[node].isAlive, let since = nodes[node].drainsSince else { continue }
            guard nodes[node].core.isDrained || now - since > 60_000 else { continue }
            if nodes[node].link.isUp, reaches(node) { _ = engine.call(.leave, by: nodes[node].link.id) }
            try die(node, restartsAfter: draw(100...3_000))
        }
    }
}
