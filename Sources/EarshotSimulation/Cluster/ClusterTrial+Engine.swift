internal import EarshotCore
internal import EarshotWire

/// The network between nodes and the engine.
///
/// A node has one connection for calls, which keeps their order and that of the answers, and one for notifications. A
/// failure ends both. The node learns of it later, and joins again under another identity.
extension ClusterTrial {
    /// Maximum number of flights in one call. Less than that of the engine, so that more batches break.
    private static let batch = 16
    /// Longest way of an answer of the engine, with the body that it names.
    private static let staleAnswerMilliseconds = 5_000

    func reaches(_ node: Int) -> Bool { isEngineUp && !nodes[node].isCutOff && nodes[node].isAlive }

    // MARK: Membership

    mutating func connect(_ node: Int, _ life: Int) {
        guard isLive(node, life), !nodes[node].link.isUp else { return }
        guard reaches(node) else { return plan(draw(50...400), .connect(node: node, life: life)) }
        let id = NodeID(random.next())
        guard let (members, _) = renew(id, isJoin: true) else { preconditionFailure("\(id) is new") }
        nodes[node].link.number += 1
        nodes[node].link.isUp = true
        nodes[node].link.id = id
        nodes[node].link.joinedAt = now
        (nodes[node].link.lostMessages, nodes[node].link.knownLoss) = (false, false)
        (nodes[node].link.lastSent, nodes[node].link.lastReceived) = (now, now)
        note("node \(node) joins as \(id)")
        answer(node, .joined(id, members: members))
        plan(EngineLimits.heartbeatMilliseconds, .heartbeat(node: node, link: nodes[node].link.number))
    }

    /// Renews a lease. Once the engine has seen that its clock went back, only answers on their way may be older than they seem.
    private mutating func renew(_ id: NodeID, isJoin: Bool) -> (members: Int, expired: Int)? {
        if engine.hasClockGoneBack { clockWindowEnd = min(clockWindowEnd, now + Self.staleAnswerMilliseconds) }
        return engine.renew(id, isJoin: isJoin)
    }

    /// Ends the connections of a node. Calls and answers on their way are lost, and the node learns of it later.
    mutating func breakConnections(_ node: Int, detection: Int, _ fault: EngineFault = .closed) {
        guard nodes[node].link.isUp else { return }
        note("the connection of node \(node) breaks")
        nodes[node].link.isUp = false
        nodes[node].link.number += 1
        retire(node)
        plan(detection, .deliver(node: node, link: nodes[node].link.number, .left(fault)))
        plan(detection + draw(50...300), .connect(node: node, life: nodes[node].life))
    }

    /// Notes the end of a membership, of which nothing may be left after ten seconds.
    mutating func retire(_ node: Int) { retired.append((nodes[node].link.id, now + 10_000)) }

    mutating func heartbeat(_ node: Int, _ link: Int) throws(Violation) {
        guard nodes[node].link.number == link, nodes[node].isAlive, nodes[node].link.isUp else { return }
        guard reaches(node) else { return breakConnections(node, detection: 2_000, .timedOut) }
        let members = engine.nodes.count
        guard let (live, expired) = renew(nodes[node].link.id, isJoin: false) else {
            return breakConnections(node, detection: 1, .leaseLost)
        }
        var hasMore = expired > 0 && options.canary != .reapsNothing
        while hasMore { hasMore = engine.reap().hasMore }
        if live != members { answer(node, .members(live)) }
        // The reply to a PING that follows a heartbeat shows the loss.
        if nodes[node].link.knownLoss, options.canary != .assertsNothing { answer(node, .messagesLost) }
        nodes[node].link.knownLoss = nodes[node].link.lostMessages
        nodes[node].link.lostMessages = false
        sendNotices()
        try checkDeadNodes()
        checkUnwanted()
        try checkUnwantedTransfers()
        plan(EngineLimits.heartbeatMilliseconds, .heartbeat(node: node, link: link))
    }

    // MARK: Calls

    /// Sends the calls of a pass, one after the other.
    mutating func send(_ calls: [EngineCall], _ node: Int) {
        guard nodes[node].link.isUp else { return }
        for call in calls {
            if case .want(let wants) = call {
                for want in wants { nodes[node].wantedSince[want.key] = now - want.ageMilliseconds }
            }
            for part in Self.parts(of: call) {
                guard let part = replacedCall(part, node) else { continue }
                nodes[node].link.lastSent = max(nodes[node].link.lastSent, now + draw(1...longestDelay))
                plan(
                    nodes[node].link.lastSent - now,
                    .execute(node: node, link: nodes[node].link.number, part))
            }
        }
    }

    private static func parts(of call: EngineCall) -> [EngineCall] {
        func slices<Element>(_ all: [Element]) -> [[Element]] {
            stride(from: 0, to: all.count, by: batch).map { Array(all[$0..<min($0 + batch, all.count)]) }
        }
        return switch call {
        case .want(let wants): slices(wants).map { .want($0) }
        case .unwant(let keys): slices(keys).map { .unwant($0) }
        case .done(let ends): slices(ends).map { .done($0) }
        case .take, .takeWanted, .cool, .survey, .retire, .leave: [call]
        }
    }

    mutating func execute(_ call: EngineCall, _ node: Int, _ link: Int) throws(Violation) {
        guard nodes[node].link.number == link, nodes[node].link.isUp, reaches(node) else { return }
        let call = changedInEngine(call, node)
        if case .done(let ends) = call { published(ends) }
        let answer = engine.call(call, by: nodes[node].link.id)
        note("engine: node \(node) \(Self.text(call)): \(Self.text(answer))")
        sendNotices()
        switch answer {
        case .event(let event): self.answer(node, event)
        case .silent: break
        case .lost: breakConnections(node, detection: 1, .leaseLost)
        }
    }

    /// Sends an answer, in the order of the calls.
    private mutating func answer(_ node: Int, _ event: EngineEvent) {
        nodes[node].link.lastReceived = max(nodes[node].link.lastReceived, now + draw(1...longestDelay))
        plan(
            nodes[node].link.lastReceived - now, .deliver(node: node, link: nodes[node].link.number, event))
    }

    /// Sends notifications, in any order. Some are lost.
    private mutating func sendNotices() {
        let notices = engine.takeNotifications().map { ($0.node, $0.event, "\($0.node) \($0.event)") }
        // Sets of the engine have no order.
        for (id, event, _) in notices.sorted(by: { $0.2 < $1.2 }) {
            guard let node = nodes.firstIndex(where: { $0.link.id == id && $0.link.isUp }), reaches(node) else {
                continue
            }
            if options.canary == .assertsNothing || has(.lostNotices) && random.perMille(30) {
                note("lost: \(Self.text(event)) to node \(node)")
                nodes[node].link.lostMessages = true
                continue
            }
            plan(draw(1...2 * longestDelay), .deliver(node: node, link: nodes[node].link.number, event))
        }
    }

    mutating func deliver(_ event: EngineEvent, _ node: Int, _ link: Int) throws(Violation) {
        guard nodes[node].link.number == link, nodes[node].isAlive else { return }
        guard let event = replacedEvent(event, node) else { return }
        note("node \(node) hears \(Self.text(event))")
        learn(event, node)
        try pass(node) { core, now in core.received(event, now: now) }
    }

    /// Notes the results of which a node learns. One that the engine had kept is for wants that had begun before it.
    private mutating func learn(_ event: EngineEvent, _ node: Int) {
        switch event {
        case .result(_, let bytes):
            if let content = ClusterCatalogue.Content(fields: bytes) {
                expectations.arrived(content.fetch, in: node, at: now)
            }
        case .wanted(let answers):
            for answer in answers {
                guard case .ended(let bytes) = answer.state, let content = ClusterCatalogue.Content(fields: bytes),
                    let end = expectations.end(of: content.fetch), let since = nodes[node].wantedSince[answer.key],
                    since <= end
                else { continue }
                expectations.arrived(content.fetch, in: node, at: now)
            }
        case .joined, .members, .left, .warning, .remedied, .granted, .ended, .cooled, .surveyed, .workWaits,
            .messagesLost, .unusable, .aborted:
            break
        }
    }

    /// Notes the times at which the engine learns of results.
    private mutating func published(_ ends: [EngineCompletion]) {
        for end in ends {
            let report: (bytes: [UInt8], age: Int)? =
                switch end.outcome {
                case .result(let result): (result, 0)
                case .kept(let result, let age): (result, age)
                case .released: nil
                }
            guard let report, let content = ClusterCatalogue.Content(fields: report.bytes) else { continue }
            expectations.ended(content.fetch, at: now - report.age)
        }
    }

    // MARK: Trace

    private static func text(_ call: EngineCall) -> String {
        switch call {
        case .want(let wants):
            "wants "
                + wants.map { want in
                    "\(shortText(want.key))\(want.lane == .shared ? "" : " \(want.lane)")"
                        + (want.token.map { " runs \($0)\(want.isHosted ? " for others" : "")" } ?? "")
                        + " age \(want.ageMilliseconds)"
                }.joined(separator: ", ")
        case .unwant(let keys): "unwants " + keys.map { shortText($0) }.joined(separator: ", ")
        case .takeWanted(let slots): "takes \(slots) wanted"
        case .take(let slots, let isOwnOnly): "takes \(slots)\(isOwnOnly ? " own" : "")"
        case .done(let ends):
            "ends "
                + ends.map { end in
                    "\(shortText(end.key)) \(end.token)\(end.outcome == .released ? " released" : "")"
                }.joined(separator: ", ")
        case .cool(let refusal): "cools \(shortText(refusal.origin.key))"
        case .survey: "asks for members"
        case .retire(let former): "retires \(former)"
        case .leave: "leaves"
        }
    }

    private static func text(_ answer: SimulatedEngine.Answer) -> String {
        switch answer {
        case .event(let event): text(event)
        case .silent: "-"
        case .lost: "lease lost"
        }
    }

    static func text(_ event: EngineEvent) -> String {
        switch event {
        case .wanted(let answers):
            answers.map { answer in
                let state = if case .ended = answer.state { "ended" } else { "\(answer.state)" }
                return "\(shortText(answer.key)) \(state)"
            }.joined(separator: ", ")
        case .granted(let grants, _):
            "grants "
                + grants.map { "\(shortText($0.key)) \($0.token)\($0.record == nil ? "" : " for others")" }
                .joined(separator: ", ")
        case .ended(let answers):
            answers.map { "\(shortText($0.key)) \($0.isCurrent ? "current" : "stale")" }.joined(separator: ", ")
        case .result(let key, _): "result of \(shortText(key))"
        case .unusable(let key): "an unusable result of \(shortText(key))"
        case .aborted(let key, let token): "no node wants \(shortText(key)) \(token)"
        case .joined, .members, .left, .warning, .remedied, .cooled, .surveyed, .workWaits, .messagesLost: "\(event)"
        }
    }

    static func shortText(_ key: ClusterKey) -> String { String("\(key)".suffix(10)) }
}
