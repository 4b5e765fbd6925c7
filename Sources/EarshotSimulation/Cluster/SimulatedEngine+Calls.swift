public import EarshotCore

/// Calls of the nodes to the engine, with the meaning of its Lua scripts.
extension SimulatedEngine {
    /// Answer of a script.
    public enum Answer: Equatable, Sendable {
        case event(EngineEvent)
        /// Done; the core needs no answer.
        case noReply
        /// The node has no lease.
        case leaseLost
    }

    /// Carries out a call of a node.
    public mutating func call(_ call: EngineCall, by node: NodeID) -> Answer {
        switch call {
        case .wantFlights(let wants): isMember(node) ? assertWants(wants, node) : .leaseLost
        case .withdrawWants(let keys): withdrawWants(keys, node)
        case .takeFlights(let slots, let isOwnOnly):
            isMember(node) ? grantFlights(slots, isOwnOnly: isOwnOnly, node) : .leaseLost
        case .takeWantedFlights(let slots): isMember(node) ? grantFlights(slots, isWantedOnly: true, node) : .leaseLost
        case .reportCompletions(let completions): completeAttempts(completions, node)
        case .reportRefusal(let refusal): isMember(node) ? recordRefusal(refusal, node) : .leaseLost
        case .survey: isMember(node) ? .event(.surveyed(survey)) : .leaseLost
        case .retireMembership(let former): endMembership(former)
        case .leaveCluster: endMembership(node)
        }
    }

    private var survey: EngineSurvey {
        let members = nodes.sorted { ($0.value, $0.key.description) < ($1.value, $1.key.description) }.map {
            node, end in
            EngineSurvey.Member(
                node: node, leaseMilliseconds: max(0, end - now), flights: flightKeysByNode[node]?.count ?? 0,
                description: "")
        }
        return EngineSurvey(
            flights: flights.count, origins: origins.values.count { $0.runningTransfers > 0 || !$0.lanes.isEmpty },
            pausedOrigins: pausedOrigins.count, members: members)
    }

    private mutating func endMembership(_ node: NodeID) -> Answer {
        _ = reapDeadNode(leaving: node)
        return .noReply
    }

    // MARK: Want

    private mutating func assertWants(_ wants: [EngineWant], _ node: NodeID) -> Answer {
        // The script reads the origins of the wants before their terms, and those of the flights afterwards.
        var changed = shortenPauses(wants.map(\.origin.key))
        var terms: [ClusterKey: Origin] = [:]
        var seen: Set<EngineOrigin> = []
        for requested in wants.map(\.origin.clampedToLimits) where seen.insert(requested).inserted {
            let known = origin(requested.key)
            var origin = terms[requested.key] ?? known ?? Origin(limit: 1, spacingMilliseconds: 0)
            if origin.limit != requested.limit || origin.spacingMilliseconds != requested.spacingMilliseconds {
                origin.limit = requested.limit
                origin.spacingMilliseconds = requested.spacingMilliseconds
                if known != nil { changed.markChanged(requested.key) }
            }
            terms[requested.key] = origin
        }
        for (key, origin) in terms { origins[key] = origin }
        let others = wants.compactMap { flights[$0.key]?.origin }.filter { terms[$0] == nil }
        changed.merge(shortenPauses(others)) { $0 || $1 }
        var answers: [WantAnswer] = []
        var best: [(origin: ClusterKey, lane: Lane, score: Int)] = []
        for want in wants {
            answers.append(WantAnswer(key: want.key, state: wantState(of: want, node, &changed, &best)))
        }
        for (key, lane, score) in best where changed[key] == nil {
            guard let origin = origins[key], let time = nextStartTime(origin, lane) else { continue }
            if time <= now {
                let name = laneName(key, lane)
                readyLanesByNode[lane.node, default: [:]][name] = min(readyLanesByNode[lane.node]?[name] ?? .max, score)
            } else {
                pausedOrigins[key] = min(pausedOrigins[key] ?? .max, time)
            }
        }
        for key in terms.keys where changed[key] == nil {
            if let origin = origins[key] { saveOrigin(key, origin) }
        }
        updateOrigins(changed, caller: node)
        return .event(.wantsAnswered(answers))
    }

    private mutating func wantState(
        of want: EngineWant, _ node: NodeID, _ changed: inout [ClusterKey: Bool],
        _ best: inout [(origin: ClusterKey, lane: Lane, score: Int)]
    ) -> WantAnswer.State {
        let lane =
            switch want.lane {
            case .shared: Lane.anyNode
            case .pinned: Lane(node: node, isCredentialed: false)
            case .credentialed: Lane(node: node, isCredentialed: true)
            }
        guard var flight = flights[want.key] else {
            if let (time, result) = results[want.key], time + EngineLimits.resultRetentionMilliseconds > now,
                want.token == nil,
                time <= now, time > now - want.clampedAgeMilliseconds
            {
                return .ended(result)
            }
            var flight = Flight(
                state: .queued, origin: want.origin.key, lane: lane, priority: want.priority, arrivalMilliseconds: now,
                wantingNodes: want.isHosted ? [] : [node], record: want.record)
            flightKeysByNode[node, default: []].insert(want.key)
            if let token = want.token {
                flight.state = .running(node, token)
                origins[flight.origin]?.runningTransfers += 1
                changed.markChanged(flight.origin)
            } else {
                if origins[flight.origin]?.lanes.contains(lane) == false { origins[flight.origin]?.lanes.append(lane) }
                best.append((flight.origin, lane, flight.score))
            }
            flights[want.key] = flight
            return want.token == nil ? .queued : .held
        }
        if !want.isHosted, !flight.wantingNodes.contains(node) {
            flight.wantingNodes.append(node)
            flightKeysByNode[node, default: []].insert(want.key)
        }
        if lane != .anyNode, lane != flight.lane {
            // Its node has joined under another ID.
            if flight.state == .queued {
                if origins[flight.origin]?.lanes.contains(lane) == false { origins[flight.origin]?.lanes.append(lane) }
                changed.markChanged(flight.origin)
            }
            flight.lane = lane
        }
        let state: WantAnswer.State
        switch (flight.state, want.token) {
        case (.queued, nil): state = .queued
        case (.running, nil): state = .running
        case (.queued, let token?):
            flight.state = .running(node, token)
            flightKeysByNode[node, default: []].insert(want.key)
            origins[flight.origin]?.runningTransfers += 1
            changed.markChanged(flight.origin)
            state = .held
        case (.running(let runner, let present), let token?) where present == token || !isMember(runner):
            flight.state = .running(node, token)
            flightKeysByNode[node, default: []].insert(want.key)
            // The notification may be lost. After a loss of data, nodes that want the flight need time to join.
            let isYoung =
                flight.arrivalMilliseconds <= now
                && now < flight.arrivalMilliseconds + EngineLimits.engineLossToleranceMilliseconds
            if flight.wantingNodes.isEmpty, !isYoung {
                notify(node, .attemptAborted(want.key, token))
            }
            state = .held
        case (.running, _): state = .stale
        }
        if want.priority > flight.priority {
            flight.priority = want.priority
            if flight.state == .queued { best.append((flight.origin, flight.lane, flight.score)) }
        }
        flights[want.key] = flight
        return state
    }

    private mutating func withdrawWants(_ keys: [ClusterKey], _ node: NodeID) -> Answer {
        var changed: [ClusterKey: Bool] = [:]
        for key in keys {
            guard var flight = flights[key], flight.wantingNodes.contains(node) else { continue }
            flight.wantingNodes.removeAll { $0 == node }
            flights[key] = flight
            switch flight.state {
            case .running(let runner, let token):
                if runner != node { flightKeysByNode[node]?.remove(key) }
                if flight.wantingNodes.isEmpty, runner != node || flight.lane == .anyNode {
                    notify(runner, .attemptAborted(key, token))
                }
            case .queued:
                flightKeysByNode[node]?.remove(key)
                guard flight.wantingNodes.isEmpty else { continue }
                changed.merge(shortenPauses([flight.origin])) { $0 || $1 }
                flights[key] = nil
                changed.markChanged(flight.origin)
            }
        }
        updateOrigins(changed, caller: node)
        return .noReply
    }

    // MARK: Take

    private struct OpenLane {
        struct Head {
            let key: ClusterKey
            let score: Int
            /// Whether the node wants it itself, or it stays on the node.
            var isOwn: Bool

            var rank: Int { isOwn ? score - EngineLimits.ownFlightAdvantageMilliseconds : score }
        }

        let origin: ClusterKey
        let lane: Lane
        /// Flights that were not taken.
        var queue: [Head]
        var takenCount = 0
        var isClosed = false
        /// Whether the node takes only flights that it wants itself.
        let isWantedOnly: Bool

        /// The next flight; nil if the lane is closed or empty.
        var nextFlight: Head? {
            guard !isClosed, let oldest = queue.first else { return nil }
            if isWantedOnly { return queue.first(where: \.isOwn) }
            return queue.first { $0.isOwn && $0.rank <= oldest.rank } ?? oldest
        }

        mutating func takeNextFlight() -> ClusterKey {
            guard let key = nextFlight?.key else { preconditionFailure("the lane has no next flight") }
            queue.removeAll { $0.key == key }
            takenCount += 1
            return key
        }
    }

    private mutating func grantFlights(
        _ most: Int, isOwnOnly: Bool = false, isWantedOnly: Bool = false, _ node: NodeID
    ) -> Answer {
        let due = pausedOrigins.filter { $0.value <= now }.map { Rank(score: $0.value, name: "\($0.key)") }.sorted()
            .prefix(32)
        let dueKeys = due.compactMap { ClusterKey($0.name) }
        var cut = shortenPauses(dueKeys)
        for key in dueKeys {
            if origin(key) == nil { pausedOrigins[key] = nil }
            updateOrigin(key, caller: node, wasPaused: true)
        }
        var lanes: [OpenLane] = []
        if most > 0 {
            for owner in isOwnOnly ? [node] : [nil, node] as [NodeID?] {
                let members = (readyLanesByNode[owner] ?? [:]).map { Rank(score: $0.value, name: $0.key) }.sorted()
                    .prefix(most)
                cut.merge(shortenPauses(members.compactMap { ClusterKey($0.name.prefix(32)) })) { $0 || $1 }
                for rank in members {
                    guard let key = ClusterKey(rank.name.prefix(32)) else { continue }
                    let lane = Lane(node: owner, isCredentialed: rank.name.count > 32)
                    let queue = queuedFlights(key, lane).map { OpenLane.Head(key: $0, score: $1, isOwn: owner != nil) }
                    lanes.append(OpenLane(origin: key, lane: lane, queue: queue, isWantedOnly: isWantedOnly))
                }
            }
        }
        markWantedFlights(most, &lanes, node)
        let turn = idleNodeWithTurn(lanes, node)
        let (jobs, touched) = chooseFlights(most, &lanes, leaving: turn?.origin)
        let grants = jobs.map { startFlight($0, node) }
        var full = Set(cut.keys)
        for lane in lanes where touched.contains(lane.origin) {
            guard let origin = origins[lane.origin] else { continue }
            let time = nextStartTime(origin, lane.lane)
            if lanes.contains(where: { $0.origin == lane.origin && $0.isClosed }) || time == nil || (time ?? 0) > now {
                full.insert(lane.origin)
            }
        }
        for lane in lanes where lane.takenCount > 0 && !full.contains(lane.origin) {
            let name = laneName(lane.origin, lane.lane)
            if let head = lane.queue.first {
                readyLanesByNode[lane.lane.node, default: [:]][name] = head.score
            } else {
                readyLanesByNode[lane.lane.node]?[name] = nil
                origins[lane.origin]?.lanes.removeAll { $0 == lane.lane }
            }
        }
        for key in touched where !full.contains(key) {
            if let origin = origins[key] { saveOrigin(key, origin) }
        }
        for key in full { updateOrigin(key, caller: node, wasPaused: dueKeys.contains(key) || cut[key] == true) }
        idleTimes[node] = jobs.count < most && !isOwnOnly && !isWantedOnly ? now : nil
        if let turn { wakeNode(turn.node) } else { wakeIdleNode(node) }
        var opens = pausedOrigins.values.min().map { max(0, $0 - now) }
        if turn != nil { opens = min(opens ?? Self.reservedPlaceMilliseconds, Self.reservedPlaceMilliseconds) }
        return .event(.flightsGranted(grants, opensAfterMilliseconds: opens))
    }

    /// Marks flights that the node wants itself: as many as it may take, among the first four times that number.
    private func markWantedFlights(_ most: Int, _ lanes: inout [OpenLane], _ node: NodeID) {
        let places = Dictionary(
            uniqueKeysWithValues: lanes.indices.filter { lanes[$0].lane == .anyNode }.map { (lanes[$0].origin, $0) })
        let share = queuedFlightsWanted(of: node)
        var (found, looked) = (0, 0)
        while !places.isEmpty, found < most, looked < min(4 * most, share.count) {
            for flight in share[looked..<min(looked + most, share.count)] {
                guard let place = places[flight.origin],
                    let index = lanes[place].queue.firstIndex(where: { $0.key == flight.key })
                else { continue }
                lanes[place].queue[index].isOwn = true
                found += 1
            }
            looked += most
        }
    }

    /// Constants of `take.lua` for turns.
    private static let turnAdvantageMilliseconds = 20
    private static let reservedPlaceMilliseconds = 20
    private static let examinedIdleNodes = 5
    private static let examinedFlightsPerNode = 4

    /// The idle node that has the turn at an origin, where the caller leaves it a place: its first flight is older than that
    /// of the caller, which may start.
    private func idleNodeWithTurn(_ lanes: [OpenLane], _ node: NodeID) -> (node: NodeID, origin: ClusterKey)? {
        var bounds: [ClusterKey: Int] = [:]
        for lane in lanes {
            guard let next = lane.nextFlight else { continue }
            let bound = next.isOwn ? next.score - Self.turnAdvantageMilliseconds : next.score + 1
            bounds[lane.origin] = min(bounds[lane.origin] ?? bound, bound)
        }
        guard !bounds.isEmpty else { return nil }
        var best: (node: NodeID, origin: ClusterKey, score: Int)?
        for other in idleNodesInOrder.reversed().prefix(Self.examinedIdleNodes) where other != node {
            let members = (readyLanesByNode[other] ?? [:]).map { Rank(score: $0.value, name: $0.key) }.sorted()
            let firsts = members.prefix(Self.examinedFlightsPerNode).compactMap { rank in
                ClusterKey(rank.name.prefix(32)).map { (origin: $0, score: rank.score) }
            }
            for first in firsts
                + queuedFlightsWanted(of: other).prefix(Self.examinedFlightsPerNode).map({ ($0.origin, $0.score) })
            {
                guard let bound = bounds[first.origin], first.score < bound,
                    best.map({ first.score < $0.score }) ?? true
                else { continue }
                best = (other, first.origin, first.score)
            }
        }
        return best.map { ($0.node, $0.origin) }
    }

    /// Queued flights that any node may start and that this one wants, the next one first.
    private func queuedFlightsWanted(of node: NodeID) -> [(score: Int, key: ClusterKey, origin: ClusterKey)] {
        flights.filter {
            $0.value.lane == .anyNode && $0.value.state == .queued && $0.value.wantingNodes.contains(node)
        }
        .map { (score: $0.value.score, key: $0.key, origin: $0.value.origin) }
        .sorted { $0.score == $1.score ? $0.key.description < $1.key.description : $0.score < $1.score }
    }

    /// Takes the flights with the lowest ranks while their origins have room. One place stays free at an origin that the
    /// caller leaves to another node.
    private mutating func chooseFlights(
        _ most: Int, _ lanes: inout [OpenLane], leaving left: ClusterKey?
    ) -> (jobs: [ClusterKey], touched: Set<ClusterKey>) {
        if let left { origins[left]?.runningTransfers += 1 }
        defer { if let left { origins[left]?.runningTransfers -= 1 } }
        var jobs: [ClusterKey] = []
        var touched: Set<ClusterKey> = []
        while jobs.count < most {
            var next: Int?
            for index in lanes.indices {
                guard let rank = lanes[index].nextFlight?.rank else { continue }
                if let best = next.flatMap({ lanes[$0].nextFlight?.rank }), best <= rank { continue }
                next = index
            }
            guard let next else { break }
            let key = lanes[next].origin
            guard var origin = origins[key] else { break }
            touched.insert(key)
            // With a spacing there is one place.
            let isOpen = key != left || origin.spacingMilliseconds == 0
            if isOpen, let time = nextStartTime(origin, lanes[next].lane), time <= now {
                jobs.append(lanes[next].takeNextFlight())
                origin.runningTransfers += 1
                if origin.spacingMilliseconds > 0 { origin.nextStart = now + origin.spacingMilliseconds }
                origins[key] = origin
            } else {
                lanes[next].isClosed = true
            }
        }
        return (jobs, touched)
    }

    private mutating func startFlight(_ key: ClusterKey, _ node: NodeID) -> EngineGrant {
        guard var flight = flights[key] else { preconditionFailure("\(key) was taken and does not exist") }
        let token = nextToken()
        flight.state = .running(node, token)
        flights[key] = flight
        flightKeysByNode[node, default: []].insert(key)
        let isOwn = flight.wantingNodes.contains(node)
        return EngineGrant(key: key, token: token, priority: flight.priority, record: isOwn ? nil : flight.record)
    }

    // MARK: Done and cool

    private mutating func completeAttempts(_ completions: [EngineCompletion], _ node: NodeID) -> Answer {
        var answers: [CompletionAnswer] = []
        var changed = shortenPauses(completions.compactMap { flights[$0.key]?.origin })
        for completion in completions {
            let key = completion.key
            if case .lateResult(let result, let age) = completion.outcome {
                let isKept = keepResult(result, of: key, ageMilliseconds: age, node)
                answers.append(CompletionAnswer(key: key, token: completion.token, isCurrent: isKept))
                continue
            }
            let isCurrent = flights[key]?.state == .running(node, completion.token)
            answers.append(CompletionAnswer(key: key, token: completion.token, isCurrent: isCurrent))
            guard isCurrent, let flight = flights[key] else { continue }
            var origin = origin(flight.origin) ?? Origin(limit: 1, spacingMilliseconds: 0)
            if origin.lanes.contains(where: { nextStartTime(origin, $0) == nil }) { changed.markChanged(flight.origin) }
            origin.runningTransfers = max(0, origin.runningTransfers - 1)
            if completion.isAnswered, origin.refusalsInRow > 0,
                completion.token > FencingToken(max(1, origin.refusalToken))
            {
                origin.refusalsInRow = 0
                changed.markChanged(flight.origin)
            }
            origins[flight.origin] = origin
            switch completion.outcome {
            case .result(let result):
                for wanting in flight.wantingNodes {
                    flightKeysByNode[wanting]?.remove(key)
                    if wanting != node { notify(wanting, .resultReceived(key, result)) }
                }
                flights[key] = nil
                if flight.lane == .anyNode { results[key] = (now, result) }
            case .lateResult: preconditionFailure("a kept result ends no attempt")
            case .released:
                if flight.wantingNodes.isEmpty {
                    flights[key] = nil
                } else {
                    requeue(key, flight)
                    changed.markChanged(flight.origin)
                }
            }
            if !flight.wantingNodes.contains(node) { flightKeysByNode[node]?.remove(key) }
            if changed[flight.origin] == nil, let origin = origins[flight.origin] { saveOrigin(flight.origin, origin) }
        }
        updateOrigins(changed, caller: node)
        return .event(.completionsAnswered(answers))
    }

    /// Keeps the result of an attempt that ended without the engine, unless the flight waits or runs or a younger one is
    /// known.
    private mutating func keepResult(
        _ result: [UInt8], of key: ClusterKey, ageMilliseconds: Int, _ node: NodeID
    ) -> Bool {
        let time = now - EngineCompletion.clampedAge(milliseconds: ageMilliseconds)
        guard flights[key] == nil, isMember(node), results[key].map({ $0.time < time }) ?? true else { return false }
        results[key] = (time, result)
        return true
    }

    private mutating func recordRefusal(_ requested: EngineRefusal, _ node: NodeID) -> Answer {
        let refusal = requested.clampedToLimits
        let key = refusal.origin.key
        _ = shortenPauses([key])
        var origin =
            origin(key) ?? Origin(limit: refusal.origin.limit, spacingMilliseconds: refusal.origin.spacingMilliseconds)
        lastToken = max(lastToken, UInt64(clockMicroseconds))
        origin.refusalToken = lastToken
        if origin.coolDownEnd <= now || refusal.requestedPauseMilliseconds > 0 {
            if origin.coolDownEnd <= now { origin.refusalsInRow += 1 }
            let doubled = EngineLimits.initialCoolDownMilliseconds << min(origin.refusalsInRow - 1, 30)
            let pause = min(EngineLimits.maximumCoolDownMilliseconds, doubled)
            let end = now + max(pause, refusal.requestedPauseMilliseconds)
            if end > origin.coolDownEnd {
                origin.coolDownEnd = end
                origin.coolDownStart = now
                let notice = CoolDownNotice(
                    origin: key, remainingMilliseconds: end - now, refusalsInRow: origin.refusalsInRow)
                for other in nodes.keys where other != node { notify(other, .cooled(notice)) }
            }
        }
        origins[key] = origin
        origins[key]?.expiry = nil
        updateOrigin(key, caller: node, wasPaused: true)
        let rest = max(0, origin.coolDownEnd - now)
        return .event(
            .cooled(CoolDownNotice(origin: key, remainingMilliseconds: rest, refusalsInRow: origin.refusalsInRow)))
    }
}
