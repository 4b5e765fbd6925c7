import EarshotCore
import EarshotLoop
import EarshotWire
import RESP
import Testing

@testable import EarshotCluster
@testable import EarshotSimulation

/// Random histories of calls, carried out by the Lua scripts in a real server and by `SimulatedEngine`. All answers and
/// notifications must be equal. A second cluster in the server gets each call of a batch alone, and its tables must be
/// those of the first, but for the numbers of calls.
@Suite struct EngineEquivalenceTests {
    /// A server whose scripts read the time from a key, and the simulated engine.
    private final class Pair {
        let connection: ServerConnection
        let listener: ServerConnection
        let names: EngineNames
        let single: EngineNames
        var simulated = SimulatedEngine(clockMicroseconds: 1_700_000_000_000_000)
        private var digests: [EngineScript: String] = [:]
        private var history: [String] = []
        private var batchCount = 0

        init(_ server: RedisServer, cluster: String) throws {
            names = EngineNames(cluster: cluster)
            single = EngineNames(cluster: "single")
            connection = try ServerConnection(.unixSocket(path: server.socket))
            listener = try ServerConnection(.unixSocket(path: server.socket))
            try listener.send("PSUBSCRIBE", "\(names.prefix)c:*")
            simulated.remembersOrigins = true
            for script in EngineScript.allCases {
                var text = String(decoding: script.scriptText, as: UTF8.self)
                for (real, fake) in [
                    ("redis.call('TIME')", "{redis.call('GET', P .. 's'), redis.call('GET', P .. 'u')}"),
                    ("'PX', rest", "'PX', 100000000"),
                ] {
                    try #require(text.contains(real))
                    text = text.replacing(real, with: fake)
                }
                digests[script] = try connection.send("SCRIPT", "LOAD", text).text
            }
            try pass(microseconds: 0)
        }

        func pass(microseconds: Int) throws {
            simulated.clockMicroseconds += microseconds
            let time = simulated.clockMicroseconds
            for prefix in [names.prefix, single.prefix] {
                try connection.send("SET", "\(prefix)s", String(time / 1_000_000))
                try connection.send("SET", "\(prefix)u", String(time % 1_000_000))
            }
        }

        func run(_ script: EngineScript, in names: EngineNames, _ fill: (inout Command) -> Void) throws -> Reply {
            var command = Command("EVALSHA", digests[script] ?? "", "2", names.prefix, names.version)
            fill(&command)
            return try connection.send(command)
        }

        /// Runs a script in both clusters. Returns the reply of the first.
        func run(_ script: EngineScript, _ fill: (inout Command) -> Void) throws -> Reply {
            _ = try run(script, in: single, fill)
            return try run(script, in: names, fill)
        }

        /// All tables of a cluster, but for the numbers of calls.
        private func tables(_ names: EngineNames) throws -> [String: [String]] {
            var tables: [String: [String]] = [:]
            for key in try connection.send("KEYS", "\(names.prefix)*").elements?.compactMap(\.text) ?? [] {
                let name = String(key.dropFirst(names.prefix.count))
                let reply =
                    switch try connection.send("TYPE", key) {
                    case .status("hash"): try connection.send("HGETALL", key)
                    case .status("zset"): try connection.send("ZRANGE", key, "0", "-1", "WITHSCORES")
                    case .status("set"): try connection.send("SMEMBERS", key)
                    default: try connection.send("MGET", key)
                    }
                if name != "counts" { tables[name] = reply.elements?.compactMap(\.text).sorted() }
            }
            return tables
        }

        /// Makes calls in both: in the server with one batch, in the simulation one by one. Returns the events; nil if
        /// the node has lost its lease.
        @discardableResult
        func call(_ calls: [EngineCall], _ node: NodeID) throws -> [EngineEvent]? {
            for call in calls { history.append("\(simulated.clockMicroseconds) \(node) \(call)") }
            let batches = EngineBatch.batches(of: calls)
            guard let batch = batches.first else { return [] }
            try #require(batches.count == 1)
            let reply = try run(batch.script, in: names) { batch.appendArguments(to: &$0, node: node) }
            for call in EngineBatch.each(calls) {
                let reply = try run(call.script, in: single) { call.appendArguments(to: &$0, node: node) }
                if case .error = reply { break }
            }
            // Reading them takes longer than all else, and a difference stays.
            batchCount += 1
            if batchCount.isMultiple(of: 5) {
                let (all, each) = (try tables(names), try tables(single))
                try #require(all == each, "\(history.suffix(12).joined(separator: "\n"))")
            }
            var events: [EngineEvent]?
            if case .error(let text) = reply {
                try #require(text.hasPrefix("LOST"), "\(text)")
            } else {
                let answers: [EngineEvent] = try #require(batch.events(forReply: reply), "\(reply)")
                events = answers
            }
            var expected: [EngineEvent]? = []
            for call in batch.calls where expected != nil {
                switch simulated.call(call, by: node) {
                case .leaseLost: expected = nil
                case .noReply: break
                case .event(let event): expected?.append(event)
                }
            }
            try #require(events == expected, "\(history.suffix(12).joined(separator: "\n"))")
            try compareNotices()
            return events
        }

        func renew(_ node: NodeID, isJoin: Bool) throws -> Bool {
            history.append("\(simulated.clockMicroseconds) \(node) renew \(isJoin)")
            let reply = try run(.renew) { command in
                for word in ["\(node)", "3000", isJoin ? "1" : "0", "1 x", "", "120000", "10000", "50000"] {
                    command.append(word)
                }
            }
            let expected = simulated.renew(node, isJoin: isJoin)
            let numbers = reply.elements?.compactMap(\.number).prefix(2).map { $0 }
            try #require(
                numbers == expected.map { [$0.members, $0.expired] }, "\(history.suffix(12).joined(separator: "\n"))")
            return expected != nil
        }

        func reap() throws {
            history.append("\(simulated.clockMicroseconds) reap")
            let reply = try run(.reap) { command in
                command.append("")
                command.append("1000")
            }
            let expected = simulated.reapDeadNode()
            try #require(
                reply.elements?.compactMap(\.number) == [expected.count, expected.hasMore ? 1 : 0],
                "\(history.suffix(12).joined(separator: "\n"))")
            try compareNotices()
        }

        private func compareNotices() throws {
            try connection.send("PUBLISH", "\(names.prefix)c:end", "")
            var real: [String] = []
            while let parts = try listener.next().elements, let channel = parts[2].text, !channel.hasSuffix(":end") {
                guard case .bulkString(let message) = parts[3] else { continue }
                let events = try #require(EngineNotification.events(message))
                for event in events where event != .workWaits { real.append("\(channel.suffix(16)) \(event)") }
            }
            let expected = simulated.takeNotifications().filter { $0.event != .workWaits }
            try #require(
                real.sorted() == expected.map { "\($0.node) \($0.event)" }.sorted(),
                "\(history.suffix(12).joined(separator: "\n"))")
        }
    }

    /// One node of a history: what it runs, and its present ID.
    private struct Node {
        var id: NodeID
        /// Part of the keys of flights that stay on it.
        let broker: UInt64
        var grants: [EngineGrant] = []
    }

    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func `scripts and simulation give the same answers`(seed: UInt64) throws {
        try compare(seed: seed, most: 1)
    }

    @Test(arguments: 101...104 as ClosedRange<UInt64>)
    func `several calls of a batch give the answers of one after the other`(seed: UInt64) throws {
        try compare(seed: seed, most: 6)
    }

    @Test(arguments: 201...203 as ClosedRange<UInt64>)
    func `scripts and simulation choose the same flights of long queues`(seed: UInt64) throws {
        let server = try RedisServer()
        let pair = try Pair(server, cluster: "test")
        var generator = SplitMix64Generator(seed: seed)
        let nodes = (1...3 as ClosedRange<UInt64>).map { NodeID($0) }
        for node in nodes { _ = try pair.renew(node, isJoin: true) }
        let origins = (1...UInt64.random(in: 1...7, using: &generator)).map { EngineOrigin.make($0, limit: 40) }
        var grants: [NodeID: [EngineGrant]] = [:]
        var starts = 0
        for _ in 0..<120 {
            let node = nodes[Int.random(in: 0..<3, using: &generator)]
            switch Int.random(in: 0..<6, using: &generator) {
            case 0, 1:
                let first = UInt64.random(in: 0..<600, using: &generator)
                let count = UInt64.random(in: 1...50, using: &generator)
                let wants = (first..<first + count).map { (number: UInt64) -> EngineWant in
                    let origin = origins[Int(number % UInt64(origins.count))]
                    return EngineWant(
                        key: .flight(number), origin: origin, lane: .shared,
                        priority: number % 10 == 0 ? .high : .normal)
                }
                try pair.call([.wantFlights(wants)], node)
            case 2, 3:
                let slots = [1, 3, 20, 64].randomElement(using: &generator) ?? 1
                for case .flightsGranted(let taken, _) in try pair.call([.takeFlights(slots: slots)], node) ?? [] {
                    grants[node, default: []] += taken
                    starts += taken.count
                }
            case 4:
                try pair.call(
                    [.reportCompletions((grants.removeValue(forKey: node) ?? []).prefix(64).map { $0.completed() })],
                    node)
            default: try pair.pass(microseconds: [1_000, 30_000, 400_000].randomElement(using: &generator) ?? 1)
            }
        }
        #expect(starts > 100)
    }

    /// - Parameter most: Number of calls in a batch.
    private func compare(seed: UInt64, most: Int) throws {
        let server = try RedisServer()
        let pair = try Pair(server, cluster: "test")
        var generator = SplitMix64Generator(seed: seed)
        var nextID: UInt64 = 1
        var nodes: [Node] = []
        for _ in 0..<3 {
            nodes.append(Node(id: NodeID(nextID), broker: 0x100 + nextID))
            nextID += 1
        }
        for node in nodes { _ = try pair.renew(node.id, isJoin: true) }
        var starts = 0
        for _ in 0..<1_000 {
            let index = Int.random(in: 0..<nodes.count, using: &generator)
            switch Int.random(in: 0..<25, using: &generator) {
            case 0..<20:
                let calls = (0..<Int.random(in: 1...most, using: &generator)).map { _ in
                    call(of: &nodes[index], &generator)
                }
                for case .flightsGranted(let grants, _) in try pair.call(calls, nodes[index].id) ?? [] {
                    nodes[index].grants += grants
                    starts += grants.count
                }
            case 20:
                let isKnown = try pair.renew(nodes[index].id, isJoin: Bool.random(using: &generator))
                // A node that was reaped joins under another ID, and asserts the attempts that it runs.
                if !isKnown || Int.random(in: 0..<4, using: &generator) == 0 {
                    nodes[index].id = NodeID(nextID)
                    nextID += 1
                    _ = try pair.renew(nodes[index].id, isJoin: true)
                    try pair.call([.wantFlights(assertions(nodes[index], &generator))], nodes[index].id)
                }
            case 21: try pair.reap()
            case 23:
                // Running attempts are asserted again and again.
                let wants = assertions(nodes[index], &generator)
                try pair.call([.wantFlights(wants)], nodes[index].id)
            case 22 where Int.random(in: 0..<10, using: &generator) == 0:
                try pair.call([.leaveCluster], nodes[index].id)
            default:
                // The clock goes back now and then.
                let forward = [1, 900, 20_000, 450_000, 1_700_000]
                let steps = forward + forward + [-600_000, -5_000_000]
                try pair.pass(microseconds: steps.randomElement(using: &generator) ?? 1)
            }
        }
        #expect(starts > 20)
    }

    private func call(of node: inout Node, _ generator: inout SplitMix64Generator) -> EngineCall {
        switch Int.random(in: 0..<20, using: &generator) {
        case 0..<7: return .wantFlights(wants(node, &generator))
        case 7..<9: return .withdrawWants(keys(node, &generator))
        case 9..<13: return .takeFlights(slots: Int.random(in: 0...4, using: &generator))
        case 13: return .takeWantedFlights(slots: Int.random(in: 0...4, using: &generator))
        case 14..<19: return .reportCompletions(ends(&node, &generator) + kept(&generator))
        default:
            let origin = origins[Int.random(in: 0..<origins.count, using: &generator)]
            let requested = [0, 0, 700, 3_000].randomElement(using: &generator) ?? 0
            return .reportRefusal(EngineRefusal(origin: origin, requestedMilliseconds: requested))
        }
    }

    /// Results of attempts without the engine: none, or one.
    private func kept(_ generator: inout SplitMix64Generator) -> [EngineCompletion] {
        guard Int.random(in: 0..<3, using: &generator) == 0 else { return [] }
        let number = UInt64.random(in: 0..<9, using: &generator)
        let age = [0, 50, 3_000].randomElement(using: &generator) ?? 0
        return [
            EngineCompletion(
                key: .flight(number), token: FencingToken(7),
                outcome: .lateResult([UInt8(number)], ageMilliseconds: age),
                isAnswered: false)
        ]
    }

    private let origins = [
        EngineOrigin.make(1, limit: 2), .make(2, limit: 3, spacing: 30), .make(3, limit: 1), .make(3, limit: 2),
    ]

    private func want(
        _ number: UInt64, _ generator: inout SplitMix64Generator, lane: EngineWant.Lane = .shared,
        token: FencingToken? = nil
    ) -> EngineWant {
        // Each flight has one origin; the third one has terms that nodes disagree about.
        let index = Int(number % 3)
        let origin = origins[index == 2 && Bool.random(using: &generator) ? 3 : index]
        return EngineWant(
            key: .flight(number), origin: origin, lane: lane,
            priority: PriorityClass.allCases.randomElement(using: &generator) ?? .normal,
            ageMilliseconds: [0, 50, 4_000].randomElement(using: &generator) ?? 0, token: token,
            isHosted: token != nil && Bool.random(using: &generator), record: [UInt8(number)])
    }

    private func wants(_ node: Node, _ generator: inout SplitMix64Generator) -> [EngineWant] {
        // No flight twice in one call, as in a book.
        var numbers: Set<UInt64> = []
        return (0..<Int.random(in: 1...4, using: &generator)).compactMap { _ in
            let number = UInt64.random(in: 0..<9, using: &generator)
            guard numbers.insert(number).inserted else { return nil }
            let lane = EngineWant.Lane.allCases.randomElement(using: &generator) ?? .shared
            guard number < 2, lane != .shared else { return want(number, &generator) }
            var want = want(number, &generator, lane: lane)
            want.key = ClusterKey(broker: node.broker, flight: number)
            return want
        }
    }

    private func keys(_ node: Node, _ generator: inout SplitMix64Generator) -> [ClusterKey] {
        let number = UInt64.random(in: 0..<9, using: &generator)
        return [.flight(number), ClusterKey(broker: node.broker, flight: number % 2)]
    }

    private func ends(_ node: inout Node, _ generator: inout SplitMix64Generator) -> [EngineCompletion] {
        var ends: [EngineCompletion] = []
        for _ in 0..<Int.random(in: 1...3, using: &generator) {
            guard !node.grants.isEmpty else { break }
            let index = Int.random(in: 0..<node.grants.count, using: &generator)
            // An end is sometimes sent twice.
            let grant =
                Int.random(in: 0..<8, using: &generator) == 0 ? node.grants[index] : node.grants.remove(at: index)
            let isReleased = Int.random(in: 0..<4, using: &generator) == 0
            ends.append(
                isReleased
                    ? grant.released()
                    : grant.completed("\(grant.token)", isAnswered: Bool.random(using: &generator)))
        }
        return ends
    }

    private func assertions(_ node: Node, _ generator: inout SplitMix64Generator) -> [EngineWant] {
        var keys: Set<ClusterKey> = []
        return node.grants.filter { keys.insert($0.key).inserted }.compactMap { grant in
            guard let number = (0..<9 as Range<UInt64>).first(where: { .flight($0) == grant.key }) else { return nil }
            return want(number, &generator, token: grant.token)
        }
    }
}

extension EngineBatch {
    /// A batch for each call.
    fileprivate static func each(_ calls: [EngineCall]) -> [EngineBatch] { calls.flatMap { batches(of: [$0]) } }
}
