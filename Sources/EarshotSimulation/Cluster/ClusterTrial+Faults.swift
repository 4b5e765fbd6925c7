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
        planEvent(
            random.boolean(perMille: 300)
                ? drawNumber(100...1_000) : drawNumber(100...2 * meanFaultIntervalMilliseconds), .injectFault)
        let node = random.number(below: nodes.count)
        let faults = ClusterFault.allCases.filter { isEnabled($0) }
        guard !faults.isEmpty else { return }
        let fault = faults[random.number(below: faults.count)]
        report.faults[fault.rawValue, default: 0] += 1
        appendTrace("fault: \(fault.rawValue) of node \(node)")
        switch fault {
        case .cutConnection:
            if now - nodes[node].link.joinedAt < 11_000 { permitDuplicates(until: now + Self.convergenceMilliseconds) }
            breakConnections(node, detection: drawNumber(1...100))
        case .failover: failOver()
        case .outage:
            let length = drawNumber(3_000...12_000)
            stopEngine(for: length)
            for number in nodes.indices { breakConnections(number, detection: drawNumber(1...2_000)) }
        case .flush:
            permitDuplicates(until: now + Self.convergenceMilliseconds)
            engine = SimulatedEngine(clockMicroseconds: engine.clockMicroseconds)
            snapshots = []
        case .enginePartition:
            let length = drawNumber(500...9_000)
            permitDuplicates(until: now + length + Self.convergenceMilliseconds)
            nodes[node].isCutOff = true
            planEvent(length, .heal(node: node))
            breakConnections(node, detection: 2_000, .timedOut)
        case .nodePartition:
            let other = (node + 1 + random.number(below: nodes.count - 1)) % nodes.count
            partitionedNodePairs.insert([min(node, other), max(node, other)])
            planEvent(drawNumber(1_000...20_000), .healPair(min(node, other), max(node, other)))
        case .nodeDeath:
            guard nodes[node].isAlive else { return }
            try killNode(node, restartsAfter: drawNumber(100...8_000))
        case .clockJump: jumpEngineClock()
        case .drain: try drain(node)
        case .slowNetwork:
            maximumDelayMilliseconds = drawNumber(100...1_000)
            planEvent(drawNumber(500...3_000), .networkRecovers)
        case .nameResolutionOutage: nodes[node].nameResolutionOutageEnd = now + drawNumber(1_000...20_000)
        case .workerDeath, .clientDeath, .lostNotifications, .refusals, .longTransfers: break
        }
    }

    /// Kills one worker from time to time.
    mutating func injectWorkerFault() throws(Violation) {
        guard !isEnding else { return }
        planEvent(drawNumber(1_000...15_000), .workersFail)
        let node = random.number(below: nodes.count)
        guard isEnabled(.workerDeath), nodes[node].isAlive else { return }
        let workers = nodes[node].workersInOrder
        guard !workers.isEmpty else { return }
        try workerDies(node, workers[random.number(below: workers.count)])
    }

    /// Permits duplicates until then, also to transfers that run now.
    private mutating func permitDuplicates(until end: Int) {
        duplicatesWindowEnd = max(duplicatesWindowEnd, end)
        for node in nodes.indices {
            for worker in nodes[node].workers.keys {
                for attempt in nodes[node].workers[worker]?.transfers.keys.map({ $0 }) ?? [] {
                    nodes[node].workers[worker]?.transfers[attempt]?.isExemptFromLimits = true
                }
            }
        }
        for index in endedMemberships.indices {
            endedMemberships[index].due = max(endedMemberships[index].due, end + 10_000)
        }
    }

    private mutating func stopEngine(for length: Int) {
        permitDuplicates(until: now + length + Self.convergenceMilliseconds)
        guard isEngineUp else { return }
        isEngineUp = false
        planEvent(length, .engineRecovers)
    }

    private mutating func failOver() {
        let length = drawNumber(1_000...3_000)
        if !snapshots.isEmpty {
            let former = snapshots[random.number(below: snapshots.count)].engine
            let microseconds = engine.clockMicroseconds
            engine = former
            engine.clockMicroseconds = microseconds
            _ = engine.takeNotifications()
            // Memberships that the copy still has.
            for node in former.nodes.keys.sorted(by: { $0.description < $1.description })
            where !nodes.contains(where: { $0.link.isUp && $0.link.id == node }) {
                endedMemberships.append((node, now + length + 10_000))
            }
        }
        snapshots = []
        stopEngine(for: length)
        for number in nodes.indices { breakConnections(number, detection: drawNumber(1...2_000)) }
    }

    private mutating func jumpEngineClock() {
        let jump = random.boolean(perMille: 500) ? drawNumber(10...10_000) : -drawNumber(10...10_000)
        appendTrace("the engine's clock jumps by \(jump) ms")
        engineClockOffsetMilliseconds += jump
        engine.clockMicroseconds = (now + engineClockOffsetMilliseconds) * 1_000
        permitDuplicates(until: now + Self.convergenceMilliseconds)
        clockWindowEnd = max(clockWindowEnd, now + abs(jump) + 15_000)
        snapshots = []
        guard jump < 0 else { return }
        for index in endedMemberships.indices {
            endedMemberships[index].due = max(endedMemberships[index].due, now - jump + 10_000)
        }
    }

    /// Drains a node. It leaves when nothing is left to do, or after a while.
    private mutating func drain(_ node: Int) throws(Violation) {
        guard nodes[node].isAlive, nodes[node].drainsSince == nil,
            nodes.count(where: { $0.isAlive && $0.drainsSince == nil }) > 1
        else { return }
        nodes[node].drainsSince = now
        try runPass(node) { core, _ in core.beginDraining() }
    }

    /// Ends nodes that have drained.
    mutating func endDrainedNodes() throws(Violation) {
        for node in nodes.indices {
            guard nodes[node].isAlive, let since = nodes[node].drainsSince else { continue }
            guard nodes[node].core.isDrained || now - since > 60_000 else { continue }
            if nodes[node].link.isUp, canReachEngine(node) { _ = engine.call(.leaveCluster, by: nodes[node].link.id) }
            try killNode(node, restartsAfter: drawNumber(100...3_000))
        }
    }
}
