internal import EarshotCore
internal import EarshotWire

/// Checks of the whole cluster: of transfers during a run, and of everything at its end.
extension ClusterTrial {
    /// Maximum time for which a transfer goes on that no request waits for: two assertions, and the delays of a slow
    /// network.
    private static let maximumUnwantedMilliseconds = 8_000
    /// Maximum time from the last request to the end of the last one.
    private static let maximumCompletionMilliseconds = 300_000
    /// Maximum time after that in which everything is forgotten: a cool-down of a minute, remembered for another one.
    private static let maximumCleanupMilliseconds = 2 * EngineLimits.resultRetentionMilliseconds + 15_000

    /// Checks transfers that began in this pass: no key runs in two nodes, and no origin exceeds its limit.
    mutating func checkStartedTransfers() throws(Violation) {
        guard !startedTransfers.isEmpty else { return }
        defer { startedTransfers = [] }
        for (node, worker, attempt) in startedTransfers {
            guard let transfer = nodes[node].workers[worker]?.transfers[attempt] else { continue }
            var running = 0
            for other in nodes.indices where nodes[other].isAlive {
                for (_, worker) in nodes[other].workers {
                    for (_, against) in worker.transfers {
                        if isSameSharedFlight(transfer, against), other != node {
                            guard transfer.isExemptFromLimits || against.isExemptFromLimits else {
                                throw Violation(3, "key \(transfer.key) runs in nodes \(node) and \(other)")
                            }
                            report.duplicateFetches += 1
                        }
                        if ClusterCatalogue.origin(of: against.key) == ClusterCatalogue.origin(of: transfer.key),
                            !against.isExemptFromLimits
                        {
                            running += 1
                        }
                    }
                }
            }
            let origin = ClusterCatalogue.origin(of: transfer.key)
            guard transfer.isExemptFromLimits || running <= ClusterCatalogue.originLimits[origin] else {
                throw Violation(9, "origin \(origin) runs \(running)")
            }
        }
    }

    /// Whether two transfers are of one shared flight.
    private func isSameSharedFlight(_ one: ClusterNode.Transfer, _ other: ClusterNode.Transfer) -> Bool {
        one.key == other.key && one.job.method == other.job.method && one.job.redirectMode == other.job.redirectMode
            && isOfSharedFlight(one) && isOfSharedFlight(other)
    }

    /// Whether the flight of a transfer is not one that stays on its node.
    private func isOfSharedFlight(_ transfer: ClusterNode.Transfer) -> Bool {
        let attempt = transfer.job.attempt
        return engine.flights[ClusterKey(broker: attempt.broker.rawValue, flight: attempt.flight)] == nil
            && transfer.job.method != "POST" && transfer.job.httpFields.isEmpty
    }

    /// Notes since when transfers have no request.
    mutating func recordUnwantedTransfers() {
        for node in nodes.indices where nodes[node].isAlive {
            for worker in nodes[node].workersInOrder {
                for attempt in nodes[node].workers[worker]?.transfers.keys.map({ $0 }) ?? [] {
                    guard let transfer = nodes[node].workers[worker]?.transfers[attempt] else { continue }
                    let isWanted =
                        expectations.openRequestCounts[transfer.key] != nil
                        || ClusterCatalogue.sources(of: transfer.key).contains {
                            expectations.openRequestCounts[$0] != nil
                        }
                    let since = isWanted || now < duplicatesWindowEnd ? nil : transfer.unwantedSince ?? now
                    nodes[node].workers[worker]?.transfers[attempt]?.unwantedSince = since
                }
            }
        }
    }

    /// Checks that no transfer goes on for long without a request.
    mutating func checkUnwantedTransfers() throws(Violation) {
        for node in nodes where node.isAlive {
            for (_, worker) in node.workers {
                for (attempt, transfer) in worker.transfers {
                    guard let since = transfer.unwantedSince, now - since > Self.maximumUnwantedMilliseconds else {
                        continue
                    }
                    throw Violation(4, "node \(node.nodeNumber) runs \(attempt) of key \(transfer.key) for no request")
                }
            }
        }
    }

    /// Checks that nothing of an ended membership is left.
    mutating func checkEndedMemberships() throws(Violation) {
        try endDrainedNodes()
        guard endedMemberships.contains(where: { $0.due < now }) else { return }
        let due = endedMemberships.filter { $0.due < now }.map(\.node)
        endedMemberships.removeAll { $0.due < now }
        guard isEngineUp else {
            endedMemberships += due.map { ($0, now + 10_000) }
            return
        }
        for id in due {
            guard engine.nodes[id] == nil else {
                throw Violation(12, "the engine has the lease of \(id), which is gone")
            }
            guard engine.flightKeysByNode[id] == nil else {
                throw Violation(12, "the engine has flights of \(id), which is gone")
            }
            for (key, flight) in engine.flights {
                var isLeft = flight.wantingNodes.contains(id) || flight.lane.node == id
                if case .running(id, _) = flight.state { isLeft = true }
                if isLeft {
                    throw Violation(12, "flight \(Self.shortDescription(key)) belongs to \(id), which is gone")
                }
            }
        }
    }

    /// Checks that no request waits for too long.
    mutating func checkRequestAges() throws(Violation) {
        guard let (id, request) = expectations.oldestRequest(before: now - Self.answerMilliseconds) else { return }
        throw Violation(
            1, "request \(id) of key \(request.key) in node \(request.node) has no end since \(request.receivedAt)",
            kind: "no end")
    }

    // MARK: End

    /// Lets everything end without requests and faults, and checks that nothing is left.
    mutating func finish() throws(Violation) {
        isEnding = true
        isEngineUp = true
        partitionedNodePairs = []
        maximumDelayMilliseconds = 15
        for node in nodes.indices { nodes[node].isCutOff = false }
        appendTrace("requests and faults end")
        let end = now + Self.maximumCompletionMilliseconds
        while !expectations.requests.isEmpty || !nodes.allSatisfy(\.isAlive) {
            try executeNextEvent()
            guard now < end else {
                try checkRequestAges()
                let left = expectations.requests.keys.sorted().prefix(3).map { "\($0)" }.joined(separator: ", ")
                throw Violation(1, "requests \(left) have no end", kind: "no end")
            }
        }
        for node in nodes.indices {
            for client in nodes[node].clientsInOrder {
                try runPass(node) { core, now in core.clientLost(client, now: now) }
            }
            nodes[node].clients = [:]
        }
        let quiet = now + Self.maximumCleanupMilliseconds
        while now < quiet { try executeNextEvent() }
        try checkFinalState()
    }

    private mutating func checkFinalState() throws(Violation) {
        for node in nodes.indices {
            try auditCore(node)
            let transfers = nodes[node].workers.values.reduce(0) { $0 + $1.transfers.count + $1.pulls.count }
            guard transfers == 0 else { throw Violation(12, "node \(node) runs \(transfers) transfers at the end") }
            guard nodes[node].heldBodies.isEmpty else {
                throw Violation(
                    12, "node \(node) has \(nodes[node].heldBodies.count) bodies at the end", kind: "bodies")
            }
            guard nodes[node].core.isIdle else {
                throw Violation(
                    12, "the core of node \(node) is not idle: \(nodes[node].core.ledger)", kind: "not idle")
            }
        }
        guard engine.flights.isEmpty else {
            throw Violation(12, "the engine has \(engine.flights.count) flights at the end", kind: "flights")
        }
        let running = engine.origins.values.reduce(0) { $0 + $1.runningTransfers }
        guard running == 0 else { throw Violation(9, "\(running) attempts count at origins and run nowhere") }
        if let (node, keys) = engine.flightKeysByNode.first(where: { !$0.value.isEmpty }) {
            throw Violation(12, "the engine has \(keys.count) relations of \(node) at the end", kind: "relations")
        }
        guard engine.nodes.count == nodes.count else {
            throw Violation(12, "the engine has \(engine.nodes.count) leases at the end", kind: "leases")
        }
        guard engine.readyLanesByNode.values.allSatisfy(\.isEmpty), engine.pausedOrigins.isEmpty else {
            throw Violation(12, "the engine has origins that wait at the end", kind: "origins")
        }
    }
}
