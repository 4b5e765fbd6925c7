internal import EarshotCore
internal import EarshotWire

/// Deliberate faults between cores and engine. A run has at most one, which the checks must report.
extension ClusterTrial {
    /// The call that reaches the engine in place of this one; nil for none.
    mutating func callReachingEngine(_ call: EngineCall, _ node: Int) -> EngineCall? {
        switch (options.canary, call) {
        case (.losesCompletions, .reportCompletions): return random.boolean(perMille: 50) ? nil : call
        case (.losesWithdrawals, .withdrawWants): return nil
        case (.neverReassertsWants, .wantFlights(let wants)):
            let fresh = wants.filter { $0.ageMilliseconds < 1_000 }
            return fresh.isEmpty ? nil : .wantFlights(fresh)
        case (.ignoresLimits, .wantFlights(let wants)):
            return .wantFlights(
                wants.map { want in
                    var want = want
                    want.origin.limit += 3
                    return want
                })
        case (.answersWithOlderResults, .wantFlights(let wants)):
            return .wantFlights(
                wants.map { want in
                    var want = want
                    want.ageMilliseconds += 8_000
                    return want
                })
        case (.acceptsStaleTokens, .reportCompletions(let ends)):
            if random.boolean(perMille: 200) {
                planEvent(
                    drawNumber(50...600),
                    .execute(node: node, link: nodes[node].link.connectionNumber, .reportCompletions(ends)))
            }
            return call
        default: return call
        }
    }

    /// The call that the engine carries out in place of this one.
    mutating func callExecutedByEngine(_ call: EngineCall, _ node: Int) -> EngineCall {
        guard options.canary == .acceptsStaleTokens, case .reportCompletions(let ends) = call else { return call }
        var own: [EngineCompletion] = []
        for var end in ends {
            if case .running(let runner, let token) = engine.flights[end.key]?.state, token != end.token {
                end.token = token
                if runner != nodes[node].link.id {
                    _ = engine.call(.reportCompletions([end]), by: runner)
                    continue
                }
            }
            own.append(end)
        }
        return .reportCompletions(own)
    }

    /// The event that reaches a core in place of this one; nil for none.
    mutating func eventReachingCore(_ event: EngineEvent, _ node: Int) -> EngineEvent? {
        switch (options.canary, event) {
        case (.ignoresAborts, .attemptAborted): return nil
        case (.swapsResults, .resultReceived(_, let result)):
            guard random.boolean(perMille: 200) else { return event }
            let others = engine.flights.filter {
                $0.value.wantingNodes.contains(nodes[node].link.id) && $0.value.lane == .anyNode
            }
            return others.keys.min { "\($0)" < "\($1)" }.map { .resultReceived($0, result) } ?? event
        case (.startsWithoutGrant, .wantsAnswered(let answers)):
            guard let answer = answers.first(where: { $0.state == .running }), random.boolean(perMille: 100) else {
                return event
            }
            let grant = EngineGrant(key: answer.key, token: FencingToken(nextNumber()), priority: .normal, record: nil)
            planEvent(
                1,
                .deliver(
                    node: node, link: nodes[node].link.connectionNumber,
                    .flightsGranted([grant], opensAfterMilliseconds: nil)))
            return event
        default: return event
        }
    }
}
