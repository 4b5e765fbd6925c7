import EarshotCore
import EarshotWire
import RESP
import Testing

@testable import EarshotCluster

/// The scripts `want`, `take`, `done` and `unwant` against a real server: order, joining and fencing.
@Suite struct QueueScriptTests {
    private let server: RedisServer
    private let a: ScriptEngine
    private let b: ScriptEngine

    init() throws {
        server = try RedisServer()
        a = try ScriptEngine(server, node: 0xa)
        b = try ScriptEngine(server, node: 0xb)
    }

    @Test func `flights are taken by class, then by age`() throws {
        #expect(try a.want([.make(9), .make(1, .low), .make(4, .high)]) == [.queued, .queued, .queued])
        try awaitMillisecond()
        #expect(try a.want([.make(3), .make(2, .high)]) == [.queued, .queued])
        #expect(try b.take(3).map(\.key) == [.flight(4), .flight(2), .flight(9)])
        #expect(try b.take().map(\.key) == [.flight(3), .flight(1)])
        #expect(try b.take() == [])
    }

    @Test func `a node that works for itself alone gets its own wants, and is not woken`() throws {
        _ = try a.want([.make(1), .make(2)])
        _ = try b.want([.make(2), .make(3, lane: .pinned)])
        guard case .flightsGranted(let grants, _) = try b.call(.takeWantedFlights(slots: 8)) else { throw Unexpected() }
        #expect(Set(grants.map(\.key)) == [.flight(2), .flight(3)])
        #expect(grants.allSatisfy { $0.record == nil })
        #expect(try b.call(.takeWantedFlights(slots: 8)) == .flightsGranted([], opensAfterMilliseconds: nil))
        #expect(try a.connection.send("ZCARD", "{test}:2:idle") == .integer(0))
        #expect(try a.take().map(\.key) == [.flight(1)])
    }

    private struct Unexpected: Error {}

    /// Awaits that the engine's clock moves on, so that later flights are younger.
    private func awaitMillisecond() throws {
        func time() throws -> [Int] {
            let parts = try a.connection.send("TIME").elements?.compactMap(\.text).compactMap { Int($0) } ?? []
            return [parts[0], parts[1] / 1_000]
        }
        let start = try time()
        while try time() == start {}
    }

    @Test func `a class outweighs five seconds of waiting`() throws {
        _ = try a.want([.make(1, .background), .make(2, .high)])
        let scores = try ([1, 2] as [UInt64]).map { number in
            try a.connection.send(
                "ZSCORE", "{test}:2:q:\(EngineOrigin.make().key)/", "\(ClusterKey.flight(number))"
            ).text.flatMap { Int($0) }
        }
        let first = try #require(scores[0])
        #expect(scores[1] == first - 3 * EngineLimits.classAdvantageMilliseconds)
    }

    // MARK: Own flights

    private func score(_ number: UInt64) throws -> Int? {
        try a.connection.send("ZSCORE", queue, "\(ClusterKey.flight(number))").text.flatMap { Int($0) }
    }

    private let queue = "{test}:2:q:\(EngineOrigin.make().key)/"

    @Test func `a node takes its own flights before older ones of others`() throws {
        _ = try a.want([.make(1), .make(2)])
        _ = try b.want([.make(3), .make(4)])
        for number in [1, 2] as [UInt64] { try setScore(of: number, try #require(try score(3)) - 1, node: a) }
        #expect(try b.take(3).map(\.key) == [.flight(3), .flight(4), .flight(1)])
        #expect(try a.take(3).map(\.key) == [.flight(2)])
        #expect(try a.keys().contains { $0.hasPrefix("q:") || $0 == "ready:" } == false)
    }

    @Test(arguments: [0, 1] as [UInt64])
    func `a flight of another node goes first if it is older by more than a second`(more: UInt64) throws {
        _ = try a.want([.make(1)])
        _ = try b.want([.make(2)])
        let older = try #require(try score(2)) - EngineLimits.ownFlightAdvantageMilliseconds - Int(more)
        try a.connection.send("ZADD", queue, String(older), "\(ClusterKey.flight(1))")
        #expect(try b.take(1).map(\.key) == [.flight(2 - more)])
    }

    @Test func `a higher class of another node goes before own flights`() throws {
        _ = try b.want([.make(1)])
        _ = try a.want([.make(2, .high)])
        #expect(try b.take(1).map(\.key) == [.flight(2)])
    }

    @Test func `an own flight at another origin goes first`() throws {
        _ = try a.want([.make(1, origin: 1), .make(2, origin: 2)])
        try awaitMillisecond()
        _ = try b.want([.make(3, origin: 2)])
        #expect(try b.take(2).map(\.key) == [.flight(3), .flight(1)])
    }

    @Test func `an own flight is found behind many others, and their order remains`() throws {
        let others = (1...40 as ClosedRange<UInt64>)
        _ = try a.want(others.map { .make($0) })
        _ = try b.want([.make(41)])
        _ = try a.want((42...60).map { .make($0) })
        #expect(try b.take(1).map(\.key) == [.flight(41)])
        let ready = try a.connection.send("ZSCORE", "{test}:2:ready:", "\(EngineOrigin.make().key)").text
        #expect(try ready.flatMap { Int($0) } == score(1))
        let rest = try (0..<8).flatMap { _ in try b.take(8) }
        #expect(rest.map(\.key) == [others, 42...60].joined().map { .flight($0) })
        #expect(try shares() == [])
    }

    @Test func `a flight leaves the shares of all nodes with its queue`() throws {
        _ = try a.want((1...5).map { .make($0) })
        _ = try b.want((1...6).map { .make($0) })
        #expect(try shares().count == 2)
        _ = try b.call(.withdrawWants([.flight(1), .flight(6)]))
        _ = try b.want([.make(2, .high)])
        #expect(try b.take(1).map(\.key) == [.flight(2)])
        #expect(try a.want([.make(3, token: FencingToken(1))]) == [.held])
        let grants = try a.take(2)
        #expect(grants.map(\.key) == [.flight(1), .flight(4)])
        #expect(try b.take(2).map(\.key) == [.flight(5)])
        #expect(try shares() == [])
        // A flight that its node returns is in both again.
        #expect(try a.done([grants[1].released()]) == [true])
        #expect(try shares().count == 2)
        #expect(try b.take(2).map(\.key) == [.flight(4)])
        #expect(try shares() == [])
    }

    @Test func `a dead node has no share`() throws {
        _ = try a.want([.make(1), .make(2)])
        _ = try b.want([.make(1)])
        _ = try b.run(.reap, ["\(a.node)", "64"])
        #expect(try shares().count == 1)
        #expect(try b.take(2).map(\.key) == [.flight(1)])
        #expect(try shares() == [])
    }

    private func shares() throws -> [String] { try a.keys().filter { $0.hasPrefix("h:") }.sorted() }

    @Test func `the limit of an origin holds for own flights`() throws {
        _ = try a.want([.make(1, limit: 2), .make(2, limit: 2), .make(3, limit: 2)])
        _ = try b.want([.make(4, limit: 2), .make(5, limit: 2), .make(6, limit: 2)])
        for number in 1...3 as ClosedRange<UInt64> {
            try setScore(of: number, try #require(try score(4)) - 1, node: a)
        }
        #expect(try b.take(6).map(\.key) == [.flight(4), .flight(5)])
        #expect(try a.take(6) == [])
    }

    // MARK: Turns

    /// Gives a flight that node `b` wants another score.
    private func setScore(of number: UInt64, _ score: Int, node: ScriptEngine? = nil) throws {
        for table in [queue, "{test}:2:h:\((node ?? b).node)"] {
            try a.connection.send("ZADD", table, "XX", String(score), "\(ClusterKey.flight(number))")
        }
    }

    /// Node `a` runs two flights at an origin with a limit of two and wants others. Node `b` waits with one.
    private func fullOrigin() throws -> [EngineGrant] {
        _ = try a.want((1...4).map { .make($0, limit: 2) })
        let grants = try a.take(2)
        #expect(grants.count == 2)
        _ = try b.want([.make(5, limit: 2)])
        #expect(try b.take(8) == [])
        return grants
    }

    private func grants(_ events: [EngineEvent]) -> [ClusterKey] {
        events.flatMap { if case .flightsGranted(let grants, _) = $0 { grants.map(\.key) } else { [ClusterKey]() } }
    }

    @Test func `a place at a full origin is left to the waiting node with an older flight`() throws {
        let running = try fullOrigin()
        try setScore(of: 5, try #require(try score(3)) - 100)
        let events = try a.calls([.reportCompletions([running[0].completed()]), .takeFlights(slots: 1)])
        #expect(grants(events) == [])
        #expect(
            events.contains { if case .flightsGranted(_, let opens?) = $0 { opens <= 20 } else { false } },
            "asks again soon")
        #expect(try b.notices() == [.workWaits])
        #expect(try b.take(8).map(\.key) == [.flight(5)])
        #expect(
            grants(try a.calls([.reportCompletions([running[1].completed()]), .takeFlights(slots: 1)])) == [.flight(3)])
    }

    @Test func `a place that a waiting node does not take goes to the node that left it`() throws {
        let running = try fullOrigin()
        try setScore(of: 5, try #require(try score(3)) - 100)
        #expect(grants(try a.calls([.reportCompletions([running[0].completed()]), .takeFlights(slots: 1)])) == [])
        #expect(try a.take(1).map(\.key) == [.flight(3)])
    }

    @Test func `a node keeps its place if the waiting node has no older flight there`() throws {
        let running = try fullOrigin()
        try setScore(of: 5, try #require(try score(3)))
        #expect(
            grants(try a.calls([.reportCompletions([running[0].completed()]), .takeFlights(slots: 1)])) == [.flight(3)])
        #expect(try b.notices() == [])
    }

    @Test func `an idle node with its own flight gets it before a helper does`() throws {
        _ = try a.want([.make(1, limit: 1)])
        let running = try a.take(1)
        _ = try b.want([.make(5, limit: 1)])
        #expect(try b.take(8) == [])
        #expect(grants(try a.calls([.reportCompletions([running[0].completed()]), .takeFlights(slots: 4)])) == [])
        #expect(try b.notices() == [.workWaits])
        #expect(try b.take(8).map(\.key) == [.flight(5)])
    }

    @Test func `a flight that stays on a waiting node has its turn at a full origin`() throws {
        _ = try a.want((1...3).map { .make($0, limit: 1) })
        let running = try a.take(1)
        _ = try b.want([.make(5, limit: 1, lane: .pinned)])
        #expect(try b.take(8) == [])
        let lane = "{test}:2:q:\(EngineOrigin.make().key)/\(b.node)"
        let older = try #require(try score(2)) - 100
        try a.connection.send("ZADD", lane, "XX", String(older), "\(ClusterKey.flight(5))")
        #expect(grants(try a.calls([.reportCompletions([running[0].completed()]), .takeFlights(slots: 1)])) == [])
        #expect(try b.take(8).map(\.key) == [.flight(5)])
    }

    // MARK: Promotion and results

    @Test func `a queued flight is promoted with its age, and never demoted`() throws {
        _ = try a.want([.make(1)])
        _ = try a.want([.make(2)])
        #expect(try b.want([.make(1, .high), .make(2, .background)]) == [.queued, .queued])
        let grants = try b.take()
        #expect(grants.map(\.key) == [.flight(1), .flight(2)])
        #expect(grants.map(\.priority) == [.high, .normal])
    }

    @Test func `the record goes to a node that does not want the flight itself`() throws {
        _ = try a.want([.make(1), .make(2)])
        _ = try b.want([.make(2)])
        #expect(try b.take().map(\.record) == [nil, Array("record 1".utf8)])
    }

    @Test func `a want of a running flight joins it, and gets its result`() throws {
        _ = try a.want([.make(1)])
        let grant = try #require(try a.take().first)
        #expect(try b.want([.make(1)]) == [.running])
        #expect(try b.take() == [])
        #expect(try a.done([grant.completed("body")]) == [true])
        #expect(try b.notices() == [.resultReceived(.flight(1), Array("body".utf8))])
        #expect(try a.notices() == [])
    }

    @Test func `an end by another node, with another token, or twice changes nothing`() throws {
        _ = try a.want([.make(1)])
        let grant = try #require(try a.take().first)
        var other = grant
        other.token = FencingToken(1)
        #expect(try b.done([grant.completed()]) == [false])
        #expect(try a.done([other.completed()]) == [false])
        #expect(try b.want([.make(1)]) == [.running])
        #expect(try a.done([grant.completed(), grant.completed()]) == [true, false])
    }

    @Test func `tokens grow, also when the clock goes back`() throws {
        _ = try a.want([.make(1), .make(2)])
        let first = try a.take(1)
        try a.connection.send("SET", "{test}:2:token", "9000000000000000")
        let second = try a.take(1)
        #expect(first[0].token < second[0].token)
        #expect(second[0].token.description == "9000000000000001")
    }

    @Test func `a withdrawn want removes queued work with the last node alone`() throws {
        _ = try a.want([.make(1)])
        _ = try b.want([.make(1)])
        _ = try a.call(.withdrawWants([.flight(1), .flight(7)]))
        #expect(try b.take(0) == [])
        #expect(try a.keys().contains("f:\(ClusterKey.flight(1))"))
        _ = try b.call(.withdrawWants([.flight(1)]))
        #expect(try a.take() == [])
        #expect(try !a.keys().contains("f:\(ClusterKey.flight(1))"))
    }

    @Test func `the node that runs an unwanted flight is told to abort it, and a new want gets a new attempt`() throws {
        _ = try a.want([.make(1)])
        let grant = try #require(try b.take().first)
        _ = try a.call(.withdrawWants([.flight(1)]))
        #expect(try b.notices() == [.attemptAborted(.flight(1), grant.token)])
        #expect(try a.want([.make(1)]) == [.running])
        #expect(try b.done([grant.released()]) == [true])
        let next = try #require(try b.take().first)
        #expect(next.key == .flight(1) && next.token > grant.token)
        _ = try a.call(.withdrawWants([.flight(1)]))
        #expect(try b.done([next.released()]) == [true])
        #expect(try a.take() == [])
    }

    @Test func `a node that withdraws the flight that it runs learns whether others want it`() throws {
        _ = try a.want([.make(1), .make(2), .make(3, lane: .pinned)])
        _ = try b.want([.make(2)])
        let grants = try a.take()
        _ = try a.call(.withdrawWants([.flight(1), .flight(2), .flight(3)]))
        #expect(try a.notices() == [.attemptAborted(.flight(1), grants[0].token)])
        #expect(try a.done(grants.map { $0.completed() }) == [true, true, true])
        #expect(try b.notices() == [.resultReceived(.flight(2), Array("result".utf8))])
    }

    @Test func `a flight that its node returns is queued again with its age`() throws {
        _ = try a.want([.make(1)])
        let grant = try #require(try b.take().first)
        _ = try a.want([.make(2)])
        #expect(try b.done([grant.released()]) == [true])
        #expect(try a.take().map(\.key) == [.flight(1), .flight(2)])
    }

    @Test func `a result is kept for wants that began before it, and not for later ones`() throws {
        _ = try a.want([.make(1)])
        let grant = try #require(try a.take().first)
        _ = try a.done([grant.completed("kept")])
        #expect(try b.want([.make(1, age: 60_000)]) == [.ended(Array("kept".utf8))])
        #expect(try b.take() == [])
        #expect(try a.field("d", "\(ClusterKey.flight(1))")?.hasSuffix("\nkept") == true)
        // A want that began now is a new flight, as soon as the clock has moved on by a millisecond.
        var state = try b.want([.make(1)])
        while state != [WantAnswer.State.queued] { state = try b.want([.make(1)]) }
        #expect(try b.take().map(\.key) == [.flight(1)])
    }

    @Test func `a result without the engine is kept for older wants, unless the flight waits`() throws {
        func kept(_ result: String, age: Int) -> EngineCompletion {
            EngineCompletion(
                key: .flight(1), token: FencingToken(5), outcome: .lateResult(Array(result.utf8), ageMilliseconds: age),
                isAnswered: false)
        }
        #expect(try a.done([kept("x", age: 10_000)]) == [true])
        #expect(try a.done([kept("older", age: 20_000)]) == [false])
        #expect(try b.want([.make(1, age: 60_000)]) == [.ended(Array("x".utf8))])
        #expect(try b.want([.make(1, age: 5_000)]) == [.queued])
        #expect(try a.done([kept("y", age: 0)]) == [false])
        #expect(try b.take().map(\.key) == [.flight(1)])
    }

    @Test func `calls repeated after a lost answer change nothing`() throws {
        let wants = [EngineWant.make(1), .make(2)]
        #expect(try a.want(wants) == [.queued, .queued])
        #expect(try a.want(wants) == [.queued, .queued])
        let grants = try a.take(1)
        #expect(try a.want(wants) == [.running, .queued])
        _ = try a.call(.withdrawWants([.flight(2)]))
        _ = try a.call(.withdrawWants([.flight(2)]))
        #expect(try a.done([grants[0].completed()]) == [true])
        #expect(try a.done([grants[0].completed()]) == [false])
    }

    @Test func `a queued key without a record is skipped, and the flights behind it are taken`() throws {
        _ = try a.want([.make(1), .make(2, origin: 2), .make(3, origin: 2)])
        try a.connection.send("HDEL", "{test}:2:f", "\(ClusterKey.flight(1))", "\(ClusterKey.flight(2))")
        let (grants, wait) = try b.takeAndWait(2)
        #expect(grants == [])
        // The node asks again at once.
        #expect(wait == 0)
        #expect(try b.take(2).map(\.key) == [.flight(3)])
        #expect(try b.take(2) == [])
        #expect(try a.want([.make(1)]) == [.queued])
        #expect(try b.take(2).map(\.key) == [.flight(1)])
        // Neither counts towards the limits of the origins.
        #expect(try a.field("o", "\(EngineOrigin.make(2).key)")?.hasPrefix("100 0 1 ") == true)
    }

    @Test func `all queues and records of a flood of lost keys are removed in bounded steps`() throws {
        for start in stride(from: 1 as UInt64, to: 301, by: 50) {
            _ = try a.want((start..<start + 50).map { .make($0, origin: $0 % 3) })
        }
        try a.connection.send("DEL", "{test}:2:f")
        var calls = 0
        while case (_, 0?) = try a.takeAndWait() { calls += 1 }
        #expect((5...6).contains(calls))
        #expect(try a.keys().filter { $0.hasPrefix("q:") || $0 == "ready:" || $0.hasPrefix("o:") } == [])
    }

    @Test(arguments: ["q:\(EngineOrigin.make().key)/", "o"])
    func `a queue or origin that was deleted is made again by assertions`(table: String) throws {
        let wants = [EngineWant.make(1), .make(2), .make(3, lane: .pinned)]
        _ = try a.want(wants)
        try a.connection.send("DEL", "{test}:2:\(table)")
        if table != "o" { #expect(try b.take() == []) }
        #expect(try a.want(wants) == [.queued, .queued, .queued])
        let grants = try a.take()
        #expect(Set(grants.map(\.key)) == [.flight(1), .flight(2), .flight(3)], "\(grants)")
        #expect(try a.keys().contains("ready:") == false)
    }

    @Test func `tokens of 1 and 16 digits are asserted, and the engine's own are not above them`() throws {
        let tokens = ["1", "999999999999999", "9007199254740991"].compactMap { FencingToken($0) }
        for (number, token) in zip(1..., tokens) {
            #expect(try a.want([.make(UInt64(number), token: token)]) == [.held])
            #expect(try a.want([.make(UInt64(number), token: token)]) == [.held])
        }
        _ = try a.want([.make(4)])
        let grant = try a.take()[0]
        #expect(grant.token > FencingToken(FencingToken.uncoordinated.upperBound))
        #expect(grant.token < tokens[2])
        let ends = zip(1..., tokens).map { number, token in
            EngineCompletion(
                key: .flight(UInt64(number)), token: token, outcome: .result([]), isAnswered: true)
        }
        #expect(try a.done(ends) == [true, true, true])
    }

    @Test func `an idle node is woken for work that another node does not take`() throws {
        #expect(try b.take(4) == [])
        _ = try a.want([.make(1), .make(2)])
        #expect(try b.notices() == [])
        #expect(try a.take(1).count == 1)
        #expect(try b.notices() == [.workWaits])
        #expect(try b.take(4).count == 1)
        // Not idle until it asks again, and nothing is left.
        #expect(try a.take(0) == [])
        #expect(try b.notices() == [])
    }

    @Test func `a node that leaves work wakes another one, and stays idle itself`() throws {
        for round in 0..<20 as Range<UInt64> {
            #expect(try b.take(4) == [])
            let flights = (1...6).map { ClusterKey.flight(round * 10 + $0) }
            _ = try a.want((1...6).map { .make(round * 10 + $0) })
            for key in flights { try a.connection.send("HDEL", "{test}:2:f", "\(key)") }
            // `a` is idle, and keys are left behind those that have no record.
            #expect(try a.take(4) == [])
            #expect(try b.notices() == [.workWaits])
            #expect(try a.notices() == [])
            #expect(try a.connection.send("ZSCORE", "{test}:2:idle", "\(a.node)").text != nil)
            #expect(try a.take(4) == [])
        }
    }

    @Test func `after the last flight only the members and short memories remain`() throws {
        _ = try a.want(
            (1...40).map { EngineWant.make($0, origin: $0 % 7) } + [
                .make(50, lane: .pinned), .make(51, lane: .credentialed),
            ])
        _ = try b.want((20...49).map { .make($0, origin: $0 % 7) })
        _ = try b.call(.withdrawWants((41...49).map { .flight($0) }))
        let grants = try a.take()
        #expect(grants.count == 42)
        _ = try a.done(grants.map { $0.completed() })
        let results = (1...40 as ClosedRange<UInt64>).map { "d:\(ClusterKey.flight($0))" }
        #expect(
            try a.keys() == Set(results).union(["nodes", "i:\(a.node)", "i:\(b.node)", "token", "idle"]))
    }

    @Test func `results leave together after one to two lives of their table`() throws {
        func end(_ number: UInt64) throws {
            _ = try a.want([.make(number)])
            _ = try a.done(try a.take().map { $0.completed("\(number)") })
        }
        func answers(_ numbers: [UInt64]) throws -> [WantAnswer.State] {
            let answers = try b.want(numbers.map { .make($0, age: 60_000) })
            _ = try b.call(.withdrawWants(numbers.map { .flight($0) }))
            return answers
        }
        func ended(_ number: UInt64) -> WantAnswer.State { .ended(Array("\(number)".utf8)) }

        try end(1)
        _ = try a.renew(results: [60_000, 60_000, 0])
        #expect(try a.keys().contains("e:") == false)
        // Old or numerous results go to the second table, and from there away.
        _ = try a.renew(results: [0, 60_000, 50_000])
        try end(2)
        #expect(try answers([1, 2]) == [ended(1), ended(2)])
        _ = try a.renew(results: [60_000, 0, 1])
        try end(3)
        #expect(try answers([1, 2, 3]) == [.queued, ended(2), ended(3)])
        _ = try a.renew(results: [60_000, 0, 2])
        #expect(try answers([2, 3]) == [ended(2), ended(3)])
        _ = try a.renew(results: [0, 0, 0])
        #expect(try answers([2, 3]) == [.queued, ended(3)])
        #expect(try a.lastingKeys() == [])
    }

    @Test func `a younger want finds no result of the second table`() throws {
        _ = try a.want([.make(1)])
        _ = try a.done(try a.take().map { $0.completed("old") })
        _ = try a.renew(results: [0, 0, 0])
        #expect(try b.want([.make(1, age: 60_000)]) == [.ended(Array("old".utf8))])
        var state = try b.want([.make(1, age: 1)])
        while state != [WantAnswer.State.queued] { state = try b.want([.make(1, age: 1)]) }
    }
}
