internal import EarshotCore
internal import EarshotWire

/// Deliberate faults between cores and engine. A run has at most one, which the checks must report.
extension ClusterTrial {
    /// The call that reaches the engine in place of this one; nil for none.
    mutating func replacedCall(_ call: EngineCall, _ node: Int) -> EngineCall? {
        switch (options.canary, call) {
        case (.losesEnds, .done): return random.perMille(50) ? nil : call
        case (.dropsWithdrawals, .unwant): return nil
        case (.assertsNothing, .want(let wants)):
            let fresh = wants.filter { $0.ageMilliseconds < 1_000 }
            return fresh.isEmpty ? nil : .want(fresh)
        case (.ignoresLimits, .want(let wants)):
            return .want(
                wants.map { want in
                    var want = want
                    want.origin.limit += 3
                    return want
                })
        case (.answersEarlier, .want(let wants)):
            return .want(
                wants.map { want in
                    var want = want
                    want.ageMilliseconds += 8_000
                    return want
                })
        case (.acceptsStaleTokens, .done(let ends)):
            if random.perMille(200) {
                plan(draw(50...600), .execute(node: node, link: nodes[node].link.number, .done(ends)))
            }
            return call
        default: return call
        }
    }

    /// The call that the engine carries out in place of this one.
    mutating func changedInEngine(_ call: EngineCall, _ node: Int) -> EngineCall {
        guard options.canary == .acceptsStaleTokens, case .done(let ends) = call else { return call }
        var own: [EngineCompletion] = []
        for var end in ends {
            if case .running(let runner, let token) = engine.flights[end.key]?.state, token != end.token {
                end.token = token
                if runner != nodes[node].link.id {
                    _ = engine.call(.done([end]), by: runner)
                    continue
                }
            }
            own.append(end)
        }
        return .done(own)
    }

    /// The event that reaches a core in place of this one; nil for none.
    mutating func replacedEvent(_ event: EngineEvent, _ node: Int) -> EngineEvent? {
        switch (options.canary, event) {
        case (.ignoresAborts, .aborted): return nil
        case (.exchangesResults, .result(_, let result)):
            guard random.perMille(200) else { return event }
            let others = engine.flights.filter {
                $0.value.wants.contains(nodes[node].link.id) && $0.value.lane == .shared
            }
            return others.keys.min { "\($0)" < "\($1)" }.map { .result($0, result) } ?? event
        case (.startsWithoutGrant, .wanted(let answers)):
            guard let answer = answers.first(where: { $0.state == .running }), random.perMille(100) else {
                return event
            }
            let grant = EngineGrant(key: answer.key, token: FencingToken(number()), priority: .normal, record: nil)
            plan(1, .deliver(node: node, link: nodes[node].link.number, .granted([grant], opensAfterMilliseconds: nil)))
            return event
        default: return event
        }
    }
}
