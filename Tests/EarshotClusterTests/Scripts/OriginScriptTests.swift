import EarshotCore
import EarshotWire
import RESP
import Testing

@testable import EarshotCluster

/// The scripts against a real server: limits, spacing, cool-downs and lanes of origins.
@Suite struct OriginScriptTests {
    private let server: RedisServer
    private let a: ScriptEngine
    private let b: ScriptEngine

    init() throws {
        server = try RedisServer()
        a = try ScriptEngine(server, node: 0xa)
        b = try ScriptEngine(server, node: 0xb)
    }

    @Test func `the limit of an origin holds over all nodes, and an end makes room`() throws {
        _ = try a.want((1...5).map { .make($0, limit: 2) })
        _ = try b.want([.make(9, origin: 2, limit: 1)])
        #expect(try a.take(1).map(\.key) == [.flight(1)])
        let others = try b.take()
        #expect(Set(others.map(\.key)) == [.flight(2), .flight(9)])
        #expect(try a.take() == [])
        let ended = try #require(others.first { $0.key == .flight(2) })
        #expect(try b.done([ended.completed(), ended.completed()]) == [true, false])
        #expect(try a.take().map(\.key) == [.flight(3)])
        #expect(try b.take() == [])
    }

    @Test func `terms beyond the bounds are cut`() throws {
        _ = try a.want([.make(1, limit: .max, spacing: .max)])
        _ = try a.want([.make(2, origin: 2, limit: -5, spacing: -5), .make(3, origin: 2, limit: 0)])
        #expect(try a.take().count == 2)
        let (grants, wait) = try a.takeAndWait()
        #expect(grants == [] && wait == nil)
        let requested = EngineRefusal(origin: .make(3, limit: .max), requestedMilliseconds: .max)
        guard case .cooled(let notice) = try a.call(.reportRefusal(requested)) else { return #expect(Bool(false)) }
        #expect(notice.remainingMilliseconds == EngineLimits.intervalRangeMilliseconds.upperBound)
    }

    @Test func `a lowered limit ends no attempt, and a raised one admits more at once`() throws {
        _ = try a.want((1...4).map { .make($0, limit: 2) })
        let grants = try a.take()
        _ = try a.want([.make(5, limit: 1)])
        #expect(try a.done([grants[0].completed()]) == [true])
        #expect(try a.take() == [])
        #expect(try a.done([grants[1].completed()]) == [true])
        #expect(try a.take().count == 1)
        _ = try a.want([.make(5, limit: 3)])
        #expect(try a.take().count == 2)
    }

    @Test func `one full origin does not hold up another`() throws {
        _ = try a.want((1...60).map { EngineWant.make($0, origin: 1, limit: 1, .high) } + [.make(200, origin: 2, .low)])
        #expect(Set(try b.take().map(\.key)) == [.flight(1), .flight(200)])
    }

    @Test func `starts keep the spacing, and an idle node learns when to ask`() throws {
        _ = try a.want((1...3).map { .make($0, spacing: 40) })
        let before = try time()
        let first = try b.takeAndWait()
        #expect(first.grants.count == 1)
        let wait = try #require(first.wait)
        #expect((1...40).contains(wait))
        var starts = 1
        while starts < 3 {
            if try !b.take().isEmpty { starts += 1 }
        }
        #expect(try time() - before >= 80)
    }

    /// The engine's time in milliseconds.
    private func time() throws -> Int {
        let parts = try a.connection.send("TIME").elements?.compactMap(\.text).compactMap { Int($0) } ?? []
        return parts[0] * 1_000 + parts[1] / 1_000
    }

    private func cool(_ engine: ScriptEngine, requested: Int = 0, origin: UInt64 = 1) throws -> CoolDownNotice {
        let refusal = EngineRefusal(origin: .make(origin), requestedMilliseconds: requested)
        guard case .cooled(let notice) = try engine.call(.reportRefusal(refusal)) else {
            throw ServerConnection.Failure(text: "no answer")
        }
        return notice
    }

    @Test func `a refusal pauses an origin for all nodes, which are notified`() throws {
        _ = try a.want([.make(1), .make(2)])
        let grant = try a.take(1)[0]
        let notice = try cool(a, requested: 60_000)
        #expect(notice.refusalsInRow == 1 && notice.remainingMilliseconds == 60_000)
        #expect(try b.notices() == [.cooled(notice)])
        #expect(try a.done([grant.completed("429", isAnswered: false)]) == [true])
        let (grants, wait) = try b.takeAndWait()
        #expect(grants == [])
        #expect((1...60_000).contains(try #require(wait)))
    }

    @Test func `refusals of attempts that ran together are one, and a longer wish of the origin extends the pause`()
        throws
    {
        #expect(try cool(a, requested: 600_000).refusalsInRow == 1)
        #expect(try cool(b).refusalsInRow == 1)
        let requested = try cool(a, requested: 1_200_000)
        #expect(requested.refusalsInRow == 1 && requested.remainingMilliseconds == 1_200_000)
        #expect(try cool(b, requested: 5_000).remainingMilliseconds > 600_000)
    }

    @Test func `pauses double, and the first attempt afterwards is alone until the origin answers`() throws {
        #expect(try cool(a, requested: 1).remainingMilliseconds == 1_000)
        try endCoolDown()
        #expect(try cool(a).remainingMilliseconds == 2_000)
        try endCoolDown()
        #expect(try cool(a).remainingMilliseconds == 4_000)
        try endCoolDown()
        _ = try a.want([.make(1), .make(2), .make(3)])
        var probe = try a.take()
        #expect(probe.count == 1)
        #expect(try b.take() == [])
        #expect(try a.done([probe[0].completed("timeout", isAnswered: false)]) == [true])
        probe = try a.take()
        #expect(probe.count == 1)
        #expect(try a.done([probe[0].completed()]) == [true])
        _ = try a.want([.make(4)])
        #expect(try a.take().count == 2)
        #expect(try cool(a).refusalsInRow == 1)
    }

    /// Sets the end of the cool-down to the past, where a test would wait otherwise.
    private func endCoolDown() throws {
        let id = "\(EngineOrigin.make().key)"
        let key = "{test}:2:o:\(id)"
        let active = try a.field("o", id)
        let text = try active ?? a.connection.send("GET", key).text
        var words = try #require(text).split(separator: " ", omittingEmptySubsequences: false)
        words[6] = "1"
        if active == nil {
            try a.connection.send("SET", key, words.joined(separator: " "))
        } else {
            try a.connection.send("HSET", "{test}:2:o", id, words.joined(separator: " "))
        }
    }

    @Test func `an answer to an attempt from before the last refusal ends no cool-down`() throws {
        _ = try a.want((1...4).map { .make($0) })
        let early = try a.take(2)
        _ = try cool(b, requested: 60_000)
        #expect(try a.done([early[0].completed()]) == [true])
        // A second refusal of an attempt that ran at the same time.
        _ = try cool(b)
        #expect(try a.done([early[1].completed()]) == [true])
        try endCoolDown()
        _ = try a.want([.make(5)])
        let probe = try a.take()
        #expect(probe.count == 1)
        #expect(try a.take() == [])
        #expect(try a.done(probe.map { $0.completed() }) == [true])
        #expect(try a.take().count == 2)
        #expect(try cool(a).refusalsInRow == 1)
    }

    @Test func `a flight of one node is taken by it alone, and counts towards the limit`() throws {
        _ = try a.want([.make(1, limit: 2, lane: .pinned), .make(2, limit: 2, lane: .credentialed)])
        _ = try b.want([.make(3, limit: 2)])
        #expect(try b.take().map(\.key) == [.flight(3)])
        let own = try a.take()
        #expect(own.count == 1)
        #expect(own[0].record == nil)
        _ = try a.done([own[0].completed()])
        #expect(try a.take().count == 1)
    }

    @Test func `a cool-down does not hold up requests with credentials`() throws {
        _ = try cool(b, requested: 60_000)
        _ = try a.want([.make(1), .make(2, lane: .pinned), .make(3, lane: .credentialed)])
        #expect(try a.take().map(\.key) == [.flight(3)])
    }

    @Test func `room for a flight of one node wakes it`() throws {
        _ = try b.want([.make(1, limit: 1)])
        let grant = try b.take()[0]
        _ = try a.want([.make(2, limit: 1, lane: .pinned)])
        #expect(try a.take() == [])
        _ = try b.done([grant.completed()])
        #expect(try a.notices() == [.workWaits])
        #expect(try a.take().map(\.key) == [.flight(2)])
    }

    @Test func `a flight of one node follows it to its next ID`() throws {
        _ = try a.want([.make(1, limit: 1, lane: .pinned), .make(2, limit: 1, lane: .credentialed)])
        let again = try ScriptEngine(server, node: 0xd)
        _ = try again.want([.make(1, limit: 1, lane: .pinned), .make(2, limit: 1, lane: .credentialed)])
        #expect(try again.reap(a.node) == [2, 0])
        let first = try again.take()
        #expect(first.map(\.key) == [.flight(1)])
        _ = try again.done(first.map { $0.completed() })
        #expect(try again.take().map(\.key) == [.flight(2)])
    }

    @Test func `an end twice in one call counts once`() throws {
        _ = try b.want([.make(1, limit: 2, lane: .pinned), .make(2, limit: 2), .make(3, limit: 2), .make(4, limit: 2)])
        let grant = try b.take()[0]
        #expect(try b.done([grant.completed(), grant.completed()]) == [true, false])
        #expect(try b.take().count == 1)
    }

    @Test func `a result of a flight of one node is kept for no other`() throws {
        _ = try a.want([.make(1, lane: .credentialed)])
        _ = try a.done(try a.take().map { $0.completed("secret") })
        #expect(try b.want([.make(1, age: 60_000)]) == [.queued])
    }
}
