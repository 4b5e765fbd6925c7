import EarshotWire

@testable import EarshotCore

/// A core that is a node of a cluster, whose engine is the test.
struct ClusterRig {
    var rig: CoreRig
    /// Calls to the engine of the last pass.
    var calls: [EngineCall] = []
    var lastToken: UInt64 = 100

    static let address = "10.0.0.1:5766"

    init(
        limits: CoreLimits = CoreLimits(), isMember: Bool = true, members: Int = 1, predecessor: NodeID? = nil
    ) {
        rig = CoreRig(
            limits: limits,
            cluster: ClusterServices(
                flightKey: { Self.key(1, $0) }, originKey: { Self.key(2, Array($0.utf8)) }, address: Self.address,
                broker: 77, members: members, predecessor: predecessor, start: MonotonicTime(nanoseconds: 0)))
        if isMember { engine(.joined(NodeID(7), members: 3)) }
    }

    private static func key(_ kind: UInt64, _ bytes: [UInt8]) -> ClusterKey {
        ClusterKey(high: kind, low: bytes.reduce(14_695_981_039_346_656_037) { ($0 ^ UInt64($1)) &* 1_099_511_628_211 })
    }

    /// Runs one pass, and keeps its actions and calls.
    mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
        rig.pass(body)
        calls = rig.core.takeEngineCalls(now: rig.now)
    }

    mutating func engine(_ event: EngineEvent) {
        let now = rig.now
        pass { $0.core.engineEventReceived(event, now: now) }
    }

    mutating func wait(milliseconds: Int) {
        rig.now = rig.now.advanced(byMilliseconds: milliseconds)
        pass()
    }

    /// Grants the flights of these wants to this node.
    mutating func grant(_ wants: [EngineWant], isOwn: Bool = true) {
        let grants = wants.map { want in
            lastToken += 1
            return EngineGrant(
                key: want.key, token: FencingToken(lastToken), priority: want.priority,
                record: isOwn ? nil : want.record)
        }
        engine(.flightsGranted(grants, opensAfterMilliseconds: nil))
    }

    // MARK: Calls of the last pass

    var wants: [EngineWant] {
        calls.flatMap { call -> [EngineWant] in if case .wantFlights(let wants) = call { wants } else { [] } }
    }

    var unwants: [ClusterKey] {
        calls.flatMap { call -> [ClusterKey] in if case .withdrawWants(let keys) = call { keys } else { [] } }
    }

    var ends: [EngineCompletion] {
        calls.flatMap { call -> [EngineCompletion] in if case .reportCompletions(let ends) = call { ends } else { [] } }
    }

    /// Slots of the questions for flights that this node wants itself.
    var wantedTakes: [Int] { calls.compactMap { if case .takeWantedFlights(let slots) = $0 { slots } else { nil } } }

    var takes: [Int] { calls.compactMap { if case .takeFlights(let slots, _) = $0 { slots } else { nil } } }

    /// Results of the last pass, as other nodes read them.
    var results: [SharedResult.Content?] {
        ends.map { end in
            guard case .result(let bytes) = end.outcome else { return nil }
            return SharedResult(bytes)?.content
        }
    }
}
