internal import EarshotCore
internal import EarshotWire

/// The network between nodes and the engine.
///
/// A node has one connection for calls, which keeps their order and that of the answers, and one for notifications. A
/// failure ends both. The node learns of it later, and joins again under another identity.
extension ClusterTrial {
    /// Maximum number of flights in one call. Less than that of the engine, so that more batches break.
    private static let maximumBatchFlights = 16
    /// Longest way of an answer of the engine, with the body that it names.
    private static let staleAnswerMilliseconds = 5_000

    func canReachEngine(_ node: Int) -> Bool { isEngineUp && !nodes[node].isCutOff && nodes[node].isAlive }

    // MARK: Membership

    mutating func connect(_ node: Int, _ life: Int) {
        guard isCurrentLife(node, life), !nodes[node].link.isUp else { return }
        guard canReachEngine(node) else { return planEvent(drawNumber(50...400), .connect(node: node, life: life)) }
        let id = NodeID(random.next())
        guard let (members, _) = renewLease(id, isJoin: true) else { preconditionFailure("\(id) is new") }
        nodes[node].link.connectionNumber += 1
        nodes[node].link.isUp = true
        nodes[node].link.id = id
        nodes[node].link.joinedAt = now
        (nodes[node].link.hasLostMessages, nodes[node].link.hasDetectedLoss) = (false, false)
        (nodes[node].link.sendBusyUntil, nodes[node].link.receiveBusyUntil) = (now, now)
        appendTrace("node \(node) joins as \(id)")
        sendAnswer(node, .joined(id, members: members))
        planEvent(EngineLimits.heartbeatMilliseconds, .heartbeat(node: node, link: nodes[node].link.connectionNumber))
    }

    /// Renews a lease. Once the engine has seen that its clock went back, only answers on their way may be older than they seem.
    private mutating func renewLease(_ id: NodeID, isJoin: Bool) -> (members: Int, expired: Int)? {
        if engine.hasClockGoneBack { clockWindowEnd = min(clockWindowEnd, now + Self.staleAnswerMilliseconds) }
        return engine.renew(id, isJoin: isJoin)
    }

    /// Ends the connections of a node. Calls and answers on their way are lost, and the node learns of it later.
    mutating func breakConnections(_ node: Int, detection: Int, _ fault: EngineFault = .connectionClosed) {
        guard nodes[node].link.isUp else { return }
        appendTrace("the connection of node \(node) breaks")
        nodes[node].link.isUp = false
        nodes[node].link.connectionNumber += 1
        recordEndedMembership(node)
        planEvent(detection, .deliver(node: node, link: nodes[node].link.connectionNumber, .left(fault)))
        planEvent(detection + drawNumber(50...300), .connect(node: node, life: nodes[node].lifeNumber))
    }

    /// Notes the end of a membership, of which nothing may be left after ten seconds.
    mutating func recordEndedMembership(_ node: Int) { endedMemberships.append((nodes[node].link.id, now + 10_000)) }

    mutating func heartbeat(_ node: Int, _ link: Int) throws(Violation) {
        guard nodes[node].link.connectionNumber == link, nodes[node].isAlive, nodes[node].link.isUp else { return }
        guard canReachEngine(node) else { return breakConnections(node, detection: 2_000, .timedOut) }
        let members = engine.nodes.count
        guard let (live, expired) = renewLease(nodes[node].link.id, isJoin: false) else {
            return breakConnections(node, detection: 1, .leaseLost)
        }
        var hasMore = expired > 0 && options.canary != .neverReapsDeadNodes
        while hasMore { hasMore = engine.reapDeadNode().hasMore }
        if live != members { sendAnswer(node, .members(live)) }
        // The reply to a PING that follows a heartbeat shows the loss.
        if nodes[node].link.hasDetectedLoss, options.canary != .neverReassertsWants { sendAnswer(node, .messagesLost) }
        nodes[node].link.hasDetectedLoss = nodes[node].link.hasLostMessages
        nodes[node].link.hasLostMessages = false
        sendNotifications()
        try checkEndedMemberships()
        recordUnwantedTransfers()
        try checkUnwantedTransfers()
        planEvent(EngineLimits.heartbeatMilliseconds, .heartbeat(node: node, link: link))
    }

    // MARK: Calls

    /// Sends the calls of a pass, one after the other.
    mutating func sendCalls(_ calls: [EngineCall], _ node: Int) {
        guard nodes[node].link.isUp else { return }
        for call in calls {
            if case .wantFlights(let wants) = call {
                for want in wants { nodes[node].wantedSinceByKey[want.key] = now - want.ageMilliseconds }
            }
            for part in Self.batches(of: call) {
                guard let part = callReachingEngine(part, node) else { continue }
                nodes[node].link.sendBusyUntil = max(
                    nodes[node].link.sendBusyUntil, now + drawNumber(1...maximumDelayMilliseconds))
                planEvent(
                    nodes[node].link.sendBusyUntil - now,
                    .execute(node: node, link: nodes[node].link.connectionNumber, part))
            }
        }
    }

    private static func batches(of call: EngineCall) -> [EngineCall] {
        func slices<Element>(_ all: [Element]) -> [[Element]] {
            stride(from: 0, to: all.count, by: maximumBatchFlights).map {
                Array(all[$0..<min($0 + maximumBatchFlights, all.count)])
            }
        }
        return switch call {
        case .wantFlights(let wants): slices(wants).map { .wantFlights($0) }
        case .withdrawWants(let keys): slices(keys).map { .withdrawWants($0) }
        case .reportCompletions(let ends): slices(ends).map { .reportCompletions($0) }
        case .takeFlights, .takeWantedFlights, .reportRefusal, .survey, .retireMembership, .leaveCluster: [call]
        }
    }

    mutating func execute(_ call: EngineCall, _ node: Int, _ link: Int) throws(Violation) {
        guard nodes[node].link.connectionNumber == link, nodes[node].link.isUp, canReachEngine(node) else { return }
        let call = callExecutedByEngine(call, node)
        if case .reportCompletions(let ends) = call { recordResultTimes(ends) }
        let answer = engine.call(call, by: nodes[node].link.id)
        appendTrace("engine: node \(node) \(Self.traceDescription(call)): \(Self.traceDescription(answer))")
        sendNotifications()
        switch answer {
        case .event(let event): self.sendAnswer(node, event)
        case .noReply: break
        case .leaseLost: breakConnections(node, detection: 1, .leaseLost)
        }
    }

    /// Sends an answer, in the order of the calls.
    private mutating func sendAnswer(_ node: Int, _ event: EngineEvent) {
        nodes[node].link.receiveBusyUntil = max(
            nodes[node].link.receiveBusyUntil, now + drawNumber(1...maximumDelayMilliseconds))
        planEvent(
            nodes[node].link.receiveBusyUntil - now,
            .deliver(node: node, link: nodes[node].link.connectionNumber, event))
    }

    /// Sends notifications, in any order. Some are lost.
    private mutating func sendNotifications() {
        let notices = engine.takeNotifications().map { ($0.node, $0.event, "\($0.node) \($0.event)") }
        // Sets of the engine have no order.
        for (id, event, _) in notices.sorted(by: { $0.2 < $1.2 }) {
            guard let node = nodes.firstIndex(where: { $0.link.id == id && $0.link.isUp }), canReachEngine(node) else {
                continue
            }
            if options.canary == .neverReassertsWants || isEnabled(.lostNotifications) && random.boolean(perMille: 30) {
                appendTrace("lost: \(Self.traceDescription(event)) to node \(node)")
                nodes[node].link.hasLostMessages = true
                continue
            }
            planEvent(
                drawNumber(1...2 * maximumDelayMilliseconds),
                .deliver(node: node, link: nodes[node].link.connectionNumber, event))
        }
    }

    mutating func deliver(_ event: EngineEvent, _ node: Int, _ link: Int) throws(Violation) {
        guard nodes[node].link.connectionNumber == link, nodes[node].isAlive else { return }
        guard let event = eventReachingCore(event, node) else { return }
        appendTrace("node \(node) hears \(Self.traceDescription(event))")
        recordLearnedResults(event, node)
        try runPass(node) { core, now in core.engineEventReceived(event, now: now) }
    }

    /// Notes the results of which a node learns. One that the engine had kept is for wants that had begun before it.
    private mutating func recordLearnedResults(_ event: EngineEvent, _ node: Int) {
        switch event {
        case .resultReceived(_, let bytes):
            if let content = ClusterCatalogue.Content(headerFields: bytes) {
                expectations.recordArrival(content.fetch, in: node, at: now)
            }
        case .wantsAnswered(let answers):
            for answer in answers {
                guard case .ended(let bytes) = answer.state,
                    let content = ClusterCatalogue.Content(headerFields: bytes),
                    let end = expectations.endTime(ofFetch: content.fetch),
                    let since = nodes[node].wantedSinceByKey[answer.key],
                    since <= end
                else { continue }
                expectations.recordArrival(content.fetch, in: node, at: now)
            }
        case .joined, .members, .left, .warning, .remedied, .flightsGranted, .completionsAnswered, .cooled, .surveyed,
            .workWaits,
            .messagesLost, .unusableResult, .attemptAborted:
            break
        }
    }

    /// Notes the times at which the engine learns of results.
    private mutating func recordResultTimes(_ ends: [EngineCompletion]) {
        for end in ends {
            let report: (bytes: [UInt8], age: Int)? =
                switch end.outcome {
                case .result(let result): (result, 0)
                case .lateResult(let result, let age): (result, age)
                case .released: nil
                }
            guard let report, let content = ClusterCatalogue.Content(headerFields: report.bytes) else { continue }
            expectations.recordFetchEnd(content.fetch, at: now - report.age)
        }
    }

    // MARK: Trace

    private static func traceDescription(_ call: EngineCall) -> String {
        switch call {
        case .wantFlights(let wants):
            "wants "
                + wants.map { want in
                    "\(shortDescription(want.key))\(want.lane == .shared ? "" : " \(want.lane)")"
                        + (want.token.map { " runs \($0)\(want.isHosted ? " for others" : "")" } ?? "")
                        + " age \(want.ageMilliseconds)"
                }.joined(separator: ", ")
        case .withdrawWants(let keys): "unwants " + keys.map { shortDescription($0) }.joined(separator: ", ")
        case .takeWantedFlights(let slots): "takes \(slots) wanted"
        case .takeFlights(let slots, let isOwnOnly): "takes \(slots)\(isOwnOnly ? " own" : "")"
        case .reportCompletions(let ends):
            "ends "
                + ends.map { end in
                    "\(shortDescription(end.key)) \(end.token)\(end.outcome == .released ? " released" : "")"
                }.joined(separator: ", ")
        case .reportRefusal(let refusal): "cools \(shortDescription(refusal.origin.key))"
        case .survey: "asks for members"
        case .retireMembership(let former): "retires \(former)"
        case .leaveCluster: "leaves"
        }
    }

    private static func traceDescription(_ answer: SimulatedEngine.Answer) -> String {
        switch answer {
        case .event(let event): traceDescription(event)
        case .noReply: "-"
        case .leaseLost: "lease lost"
        }
    }

    static func traceDescription(_ event: EngineEvent) -> String {
        switch event {
        case .wantsAnswered(let answers):
            answers.map { answer in
                let state = if case .ended = answer.state { "ended" } else { "\(answer.state)" }
                return "\(shortDescription(answer.key)) \(state)"
            }.joined(separator: ", ")
        case .flightsGranted(let grants, _):
            "grants "
                + grants.map { "\(shortDescription($0.key)) \($0.token)\($0.record == nil ? "" : " for others")" }
                .joined(separator: ", ")
        case .completionsAnswered(let answers):
            answers.map { "\(shortDescription($0.key)) \($0.isCurrent ? "current" : "stale")" }.joined(separator: ", ")
        case .resultReceived(let key, _): "result of \(shortDescription(key))"
        case .unusableResult(let key): "an unusable result of \(shortDescription(key))"
        case .attemptAborted(let key, let token): "no node wants \(shortDescription(key)) \(token)"
        case .joined, .members, .left, .warning, .remedied, .cooled, .surveyed, .workWaits, .messagesLost: "\(event)"
        }
    }

    static func shortDescription(_ key: ClusterKey) -> String { String("\(key)".suffix(10)) }
}
