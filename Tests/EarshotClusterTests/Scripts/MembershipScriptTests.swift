import EarshotCore
import EarshotWire
import RESP
import Testing

@testable import EarshotCluster

/// The scripts `renew` and `reap` against a real server, and re-assertion after a loss of data.
@Suite struct MembershipScriptTests {
    private let server: RedisServer
    private let a: ScriptEngine

    init() throws {
        server = try RedisServer()
        a = try ScriptEngine(server, node: 0xa)
    }

    @Test func `a node without a lease is refused`() throws {
        let other = try ScriptEngine(server, node: 0xc, lease: nil)
        let lost = "LOST the node has no lease; join again under another ID"
        for call in [
            EngineCall.wantFlights([.make(1)]), .takeFlights(slots: 1),
            .reportRefusal(EngineRefusal(origin: .make(), requestedMilliseconds: 0)),
        ] {
            #expect(throws: ServerConnection.Failure(text: lost)) { try other.call(call) }
        }
        #expect(throws: ServerConnection.Failure(text: lost)) { try other.renew() }
        #expect(try a.keys() == ["nodes", "i:\(a.node)"])
    }

    @Test func `members with another version or secret are refused while one lives`() throws {
        let other = try ScriptEngine(server, node: 0xc, lease: nil)
        #expect(throws: ServerConnection.Failure(text: "VERSION 1 x")) { try other.renew(isJoin: true, version: "2 x") }
        #expect(throws: ServerConnection.Failure(text: "VERSION 1 x")) { try other.renew(isJoin: true, version: "1 y") }
        #expect(try other.renew(isJoin: true) == [2, 0])
        let life = try a.connection.send("PTTL", "{test}:version").number ?? 0
        #expect((200_000...240_000).contains(life))
    }

    @Test func `another version or secret may follow as soon as the last member has left`() throws {
        let other = try ScriptEngine(server, node: 0xc, lease: nil)
        let last = try ScriptEngine(server, node: 0xb)
        _ = try a.call(.leaveCluster)
        #expect(throws: ServerConnection.Failure(text: "VERSION 1 x")) { try other.renew(isJoin: true, version: "1 y") }
        _ = try last.call(.leaveCluster)
        #expect(try other.renew(isJoin: true, version: "1 y") == [1, 0])
    }

    @Test func `a heartbeat has the numbers of calls and messages of its node`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        #expect(try b.counts() == [0, 0])
        _ = try b.take()
        _ = try a.want([.make(1), .make(2)])
        _ = try a.take(1)
        #expect(try b.counts() == [1, 1])
        #expect(try a.counts() == [2, 0])
        // Neither is counted for a node that is gone.
        _ = try b.call(.leaveCluster)
        #expect(try a.connection.send("ZCARD", "{test}:2:counts") == .integer(2))
        try a.connection.send("DEL", "{test}:2:counts")
        _ = try a.take(1)
        #expect(try a.counts() == [-1, -1])
    }

    @Test(arguments: ["f", "o", "ready:", "paused", "n:000000000000000a"])
    func `after the loss of a table all nodes join again`(table: String) throws {
        let b = try ScriptEngine(server, node: 0xb)
        try a.connection.send("DEL", "{test}:2:\(table)")
        #expect(throws: ServerConnection.Failure.self) { try a.renew() }
        #expect(throws: ServerConnection.Failure.self) { try b.renew() }
        #expect(try a.renew(isJoin: true) == [1, 0])
        #expect(try b.renew(isJoin: true) == [2, 0])
        #expect(try a.renew() == [2, 0])
    }

    /// Makes a lease end now, where a test would wait otherwise.
    private func expire(_ node: NodeID) throws {
        try a.connection.send("ZADD", "{test}:2:nodes", "1", "\(node)")
    }

    @Test func `attempts of a dead node return with their age, and its wants are dropped`() throws {
        let dead = try ScriptEngine(server, node: 0xb)
        _ = try a.want((1...4).map { .make($0, limit: 4) })
        #expect(try dead.take().count == 4)
        _ = try dead.want((5...8).map { .make($0, limit: 4) })
        _ = try a.want([.make(9, limit: 4)])
        try expire(dead.node)
        #expect(try a.renew() == [1, 1])
        #expect(try a.reap() == [8, 0])
        #expect(try a.renew() == [1, 0])
        #expect(try a.take(3).map(\.key) == [.flight(1), .flight(2), .flight(3)])
        #expect(try a.take().map(\.key) == [.flight(4)])
        let keys = try a.keys()
        #expect(!keys.contains { $0.hasSuffix("\(dead.node)") })
        #expect(keys.filter { $0.hasPrefix("f:") }.count == 5)
    }

    @Test func `a node that was reaped is refused, and so are its ends of attempts`() throws {
        let slow = try ScriptEngine(server, node: 0xb)
        _ = try a.want([.make(1)])
        let grant = try slow.take()[0]
        try expire(slow.node)
        _ = try a.reap()
        #expect(try slow.done([grant.completed()]) == [false])
        #expect(throws: ServerConnection.Failure.self) { try slow.want([.make(2)]) }
        #expect(throws: ServerConnection.Failure.self) { try slow.renew() }
        #expect(try a.take().map(\.key) == [.flight(1)])
    }

    @Test func `a heartbeat before the reaper saves an expired lease`() throws {
        let slow = try ScriptEngine(server, node: 0xb)
        _ = try slow.want([.make(1)])
        try expire(slow.node)
        #expect(try slow.renew() == [2, 0])
        #expect(try a.reap() == [0, 0])
        #expect(try slow.take().count == 1)
    }

    @Test func `a large node is reaped in bounded steps, and is no member from the first on`() throws {
        let dead = try ScriptEngine(server, node: 0xb)
        for start in stride(from: 1 as UInt64, to: 151, by: 50) {
            _ = try dead.want((start..<start + 50).map { .make($0) })
        }
        try expire(dead.node)
        #expect(try a.reap() == [64, 1])
        #expect(throws: ServerConnection.Failure.self) { try dead.renew() }
        #expect(throws: ServerConnection.Failure.self) { try dead.renew(isJoin: true) }
        #expect(try a.reap() == [64, 1])
        #expect(try a.reap() == [22, 0])
        #expect(try a.take() == [])
        #expect(try a.keys().filter { $0.hasPrefix("f:") } == [])
    }

    @Test func `two dead nodes are reaped one after the other`() throws {
        for number in [0xb, 0xc] as [UInt64] {
            let dead = try ScriptEngine(server, node: number)
            _ = try dead.want([.make(number)])
            try expire(dead.node)
        }
        #expect(try a.renew() == [1, 2])
        #expect(try a.reap() == [1, 1])
        #expect(try a.reap() == [1, 0])
    }

    @Test func `a dead node's wants of running flights abort them, unless others want them`() throws {
        let dead = try ScriptEngine(server, node: 0xb)
        let other = try ScriptEngine(server, node: 0xc)
        _ = try dead.want([.make(1), .make(2)])
        _ = try other.want([.make(2)])
        let grants = try a.take()
        try expire(dead.node)
        _ = try a.reap()
        #expect(try a.notices() == [.attemptAborted(.flight(1), grants[0].token)])
        #expect(try a.done(grants.map { $0.completed() }) == [true, true])
        #expect(try other.notices().count == 1)
    }

    @Test func `a node that leaves hands over at once`() throws {
        let leaving = try ScriptEngine(server, node: 0xb)
        _ = try a.want([.make(1)])
        _ = try a.take(0)
        #expect(try leaving.take().count == 1)
        _ = try leaving.want([.make(2)])
        _ = try leaving.call(.leaveCluster)
        #expect(try a.take().map(\.key) == [.flight(1)])
        #expect(try a.renew() == [1, 0])
    }

    @Test func `an idle node is woken for the flights of a dead one`() throws {
        let idle = try ScriptEngine(server, node: 0xb)
        let dead = try ScriptEngine(server, node: 0xc)
        _ = try a.want([.make(1)])
        #expect(try dead.take().count == 1)
        #expect(try idle.take() == [])
        try expire(dead.node)
        _ = try a.reap()
        #expect(try idle.notices() == [.workWaits])
    }

    @Test func `flights of a dead node alone leave nothing behind`() throws {
        let dead = try ScriptEngine(server, node: 0xb)
        _ = try dead.want([.make(1, lane: .pinned), .make(2, lane: .credentialed), .make(3)])
        #expect(try dead.take(1).count == 1)
        try expire(dead.node)
        #expect(try a.reap() == [3, 0])
        #expect(try a.keys() == ["nodes", "i:\(a.node)", "token"])
    }

    // MARK: Expiry

    @Test func `all keys expire, also those of a node that died between two heartbeats`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        _ = try a.want(
            (1...9).map { .make($0, origin: $0 % 4, limit: 3, spacing: Int($0 % 2)) }
                + [.make(20, lane: .pinned), .make(21, lane: .credentialed), .make(22, origin: 9, limit: 1)])
        _ = try b.want([.make(23, lane: .pinned), .make(1)])
        let grants = try b.take(3)
        _ = try a.take(2)
        _ = try b.take()
        _ = try b.call(.reportRefusal(EngineRefusal(origin: .make(2), requestedMilliseconds: 0)))
        _ = try b.call(.reportRefusal(EngineRefusal(origin: .make(77), requestedMilliseconds: 0)))
        _ = try b.done([grants[0].completed(), grants[1].released()])
        #expect(try a.lastingKeys() == [])
        _ = try b.call(.leaveCluster)
        #expect(try a.lastingKeys() == [])
    }

    @Test func `heartbeats prolong the tables, and assertions the queues`() throws {
        _ = try a.want([.make(1)])
        let tables = ["nodes", "f", "o", "ready:", "paused", "token", "n:\(a.node)", "i:\(a.node)"]
        try a.connection.send("SET", "{test}:2:token", "1")
        let queue = "{test}:2:q:\(EngineOrigin.make().key)/"
        for name in tables { try a.connection.send("PEXPIRE", "{test}:2:\(name)", "100000") }
        _ = try a.renew()
        for name in tables {
            #expect((500_000...1_200_000).contains(try a.connection.send("PTTL", "{test}:2:\(name)").number ?? 0))
        }
        // The text of the origin has the time until which its queues last.
        let id = "\(EngineOrigin.make().key)"
        var words = try #require(try a.field("o", id)).split(separator: " ").map(String.init)
        words[4] = String((Int(words[4]) ?? 0) - 2_000_000)
        try a.connection.send("HSET", "{test}:2:o", id, words.joined(separator: " "))
        try a.connection.send("PEXPIRE", queue, "1600000")
        _ = try a.want([.make(1)])
        #expect(try a.connection.send("PTTL", queue).number ?? 0 > 3_000_000)
    }

    @Test func `the first member after the death of all starts with empty tables`() throws {
        _ = try a.want((1...3).map { .make($0, limit: 1) })
        _ = try a.take()
        // The tables of `a` expired; its queue has not yet.
        try a.connection.send("DEL", "{test}:2:nodes")
        let next = try ScriptEngine(server, node: 0xc)
        #expect(try next.keys().isSuperset(of: ["nodes", "i:\(next.node)"]))
        #expect(try next.keys().filter { $0.hasPrefix("f:") || $0.hasPrefix("o:") } == [])
        #expect(try next.want([.make(7, limit: 1)]) == [.queued])
        var grants = try next.take()
        while grants.isEmpty { grants = try next.take() }
        #expect(grants.map(\.key) == [.flight(7)])
    }

    @Test func `a node that leaves with many flights is reaped by the others`() throws {
        let leaving = try ScriptEngine(server, node: 0xb)
        for start in stride(from: 1 as UInt64, to: 151, by: 50) {
            _ = try leaving.want((start..<start + 50).map { .make($0) })
        }
        _ = try leaving.call(.leaveCluster)
        #expect(try a.renew() == [1, 1])
        #expect(try a.reap() == [64, 1])
        #expect(try a.reap() == [22, 0])
        #expect(try a.renew() == [1, 0])
    }

    // MARK: Clock

    @Test func `after the clock went back a dead node expires with a lease of now`() throws {
        let dead = try ScriptEngine(server, node: 0xb)
        let late = Int(try a.connection.send("ZSCORE", "{test}:2:nodes", "\(dead.node)").text ?? "") ?? 0
        try a.connection.send("ZADD", "{test}:2:nodes", String(late + 3_600_000), "\(dead.node)")
        _ = try a.renew(lease: 3_000)
        let score = Int(try a.connection.send("ZSCORE", "{test}:2:nodes", "\(dead.node)").text ?? "") ?? 0
        #expect(score < late)
    }

    @Test func `after the clock went back pauses keep their length`() throws {
        _ = try a.want([.make(1, spacing: 50), .make(2, spacing: 50)])
        _ = try a.done(try a.take(1).map { $0.completed(isAnswered: false) })
        _ = try a.call(.reportRefusal(EngineRefusal(origin: .make(), requestedMilliseconds: 60_000)))
        let id = "\(EngineOrigin.make().key)"
        var words = try #require(try a.field("o", id)).split(separator: " ").map(String.init)
        // Earliest next start, end and beginning of the cool-down.
        for index in [3, 6, 9] { words[index] = String((Int(words[index]) ?? 0) + 3_600_000) }
        try a.connection.send("HSET", "{test}:2:o", id, words.joined(separator: " "))
        try a.connection.send("ZADD", "{test}:2:paused", words[6], id)
        #expect(try #require(try a.takeAndWait().wait) > 3_000_000)
        _ = try a.want([.make(2, spacing: 50)])
        #expect((1...60_000).contains(try #require(try a.takeAndWait().wait)))
    }

    @Test func `after the clock went back no result is left`() throws {
        func set(latest change: Int) throws {
            _ = try a.renew()
            var stamp = try #require(try a.field("d", "")).split(separator: " ").compactMap { Int($0) }
            try #require(stamp.count == 2)
            stamp[1] += change
            try a.connection.send("HSET", "{test}:2:d", "", "\(stamp[0]) \(stamp[1])")
        }
        _ = try a.want([.make(1)])
        _ = try a.done(try a.take().map { $0.completed("old") })
        try set(latest: -1_000)
        _ = try a.renew()
        #expect(try a.want([.make(1, age: 60_000)]) == [.ended(Array("old".utf8))])
        try set(latest: 3_600_000)
        _ = try a.renew()
        #expect(try a.want([.make(1, age: 60_000)]) == [.queued])
    }

    // MARK: Loss of data

    @Test func `wants and attempts asserted after a loss of all data are the state again`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        _ = try a.want([.make(1, limit: 2), .make(2, limit: 2)])
        let grant = try a.take(1)[0]
        #expect(try b.take(1).count == 1)
        try a.connection.send("FLUSHALL")
        #expect(throws: ServerConnection.Failure.self) { try a.want([.make(1)]) }
        _ = try a.renew(isJoin: true)
        #expect(
            try a.want([.make(1, limit: 2, token: grant.token), .make(2, limit: 2), .make(3, limit: 2)]) == [
                .held, .queued, .queued,
            ])
        // The attempt of `b` was not asserted, so its flight runs once more: a duplicate, and no loss.
        #expect(try a.take().count == 1)
        #expect(try a.done([grant.completed()]) == [true])
        #expect(try a.take().count == 1)
    }

    @Test func `an attempt moves to the ID under which its node joined again`() throws {
        _ = try a.want([.make(1)])
        let grant = try a.take()[0]
        let again = try ScriptEngine(server, node: 0xd)
        #expect(try again.want([.make(1, token: grant.token)]) == [.held])
        try expire(a.node)
        #expect(try again.reap() == [1, 0])
        #expect(try a.done([grant.completed()]) == [false])
        #expect(try again.done([grant.completed()]) == [true])
    }

    @Test func `an attempt that was returned to the queue is held again, unless another runs`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        _ = try a.want([.make(1), .make(2)])
        let grants = try b.take()
        let again = try ScriptEngine(server, node: 0xd)
        try expire(b.node)
        _ = try a.reap()
        #expect(try a.take(1).map(\.key) == [.flight(1)])
        #expect(
            try again.want([.make(1, token: grants[0].token), .make(2, token: grants[1].token)]) == [.stale, .held])
        #expect(try a.take() == [])
        #expect(try again.done(grants.map { $0.completed() }) == [false, true])
    }

    @Test func `an attempt for others that is asserted is no want of its node`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        _ = try a.want([.make(1), .make(2)])
        let grants = try b.take()
        let again = try ScriptEngine(server, node: 0xd)
        let hosted = grants.map { grant in
            EngineWant(
                key: grant.key, origin: .make(), lane: .shared, priority: .normal, token: grant.token, isHosted: true)
        }
        #expect(try again.want(hosted) == [.held, .held])
        try expire(b.node)
        #expect(try again.reap() == [2, 0])
        _ = try a.call(.withdrawWants([.flight(1)]))
        #expect(try again.notices() == [.attemptAborted(.flight(1), grants[0].token)])
        #expect(try again.done([grants[0].released(), grants[1].completed("x")]) == [true, true])
        #expect(try a.notices() == [.resultReceived(.flight(2), Array("x".utf8))])
        #expect(try a.take() == [])
    }

    @Test func `an assertion of an attempt that nothing changed writes only the number of calls`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        _ = try b.want([.make(2)])
        _ = try a.want([.make(1)])
        let grants = try a.take()
        let wants = grants.map { grant in
            var want = EngineWant.make(1, token: grant.token)
            want.key = grant.key
            want.isHosted = grant.record != nil
            return want
        }
        func changes() throws -> Int {
            let info = try a.connection.send("INFO", "persistence").text ?? ""
            let line = info.split(whereSeparator: \.isNewline).first { $0.hasPrefix("rdb_changes_since_last_save:") }
            return try #require(line.flatMap { Int($0.drop { $0 != ":" }.dropFirst()) })
        }
        let before = try changes()
        #expect(try a.want(wants) == [.held, .held])
        #expect(try changes() == before + 1)
        #expect(try a.notices() == [])
    }

    @Test func `an asserted attempt that no node wants is aborted, unless its flight is young`() throws {
        let b = try ScriptEngine(server, node: 0xb)
        let token = FencingToken(5)
        let hosted = EngineWant(
            key: .flight(1), origin: .make(), lane: .shared, priority: .normal, token: token, isHosted: true)
        // After a loss of data other nodes have not asserted their wants yet.
        for _ in 0..<2 { #expect(try b.want([hosted]) == [.held]) }
        #expect(try b.notices() == [])
        let name = "\(ClusterKey.flight(1))"
        let text = try #require(try b.field("f", name))
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        // Old, and of a clock that went back since.
        for change in [-6_000, 3_600_000] {
            let arrival = String((Int(words[3]) ?? 0) + change)
            try b.connection.send("HSET", "{test}:2:f", name, text.replacing(words[3], with: arrival))
            #expect(try b.want([hosted]) == [.held])
            #expect(try b.notices() == [.attemptAborted(.flight(1), token)])
        }
        _ = try a.want([.make(1)])
        #expect(try b.want([hosted]) == [.held])
        #expect(try b.notices() == [])
    }

    @Test func `scripts that the server forgot are unknown, and their text works`() throws {
        let command = try a.command(try #require(EngineBatch.batches(of: [.takeFlights(slots: 1)]).first))
        try a.connection.send("SCRIPT", "FLUSH")
        let reply = try a.connection.send(command)
        #expect(reply == .error("NOSCRIPT No matching script. Please use EVAL."))
    }
}
