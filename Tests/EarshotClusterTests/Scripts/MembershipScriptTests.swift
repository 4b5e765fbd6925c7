import EarshotCore
import EarshotWire
import Hiredis
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
        let stranger = try ScriptEngine(server, node: 0xc, lease: nil)
        let lost = "LOST the node has no lease; join again under another ID"
        for call in [
            EngineCall.want([.make(1)]), .take(slots: 1),
            .cool(EngineRefusal(origin: .make(), askedMilliseconds: 0)),
        ] {
            #expect(throws: ServerConnection.Failure(text: lost)) { try stranger.call(call) }
        }
        #expect(throws: ServerConnection.Failure(text: lost)) { try stranger.renew() }
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

    /// Makes a lease end now, where a test would wait otherwise.
    private func expire(_ node: NodeID) throws {
        try a.connection.send("ZADD", "{test}:1:nodes", "1", "\(node)")
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
        #expect(try a.notices() == [.aborted(.flight(1), grants[0].token)])
        #expect(try a.done(grants.map { $0.completed() }) == [true, true])
        #expect(try other.notices().count == 1)
    }

    @Test func `a node that leaves hands over at once`() throws {
        let leaving = try ScriptEngine(server, node: 0xb)
        _ = try a.want([.make(1)])
        _ = try a.take(0)
        #expect(try leaving.take().count == 1)
        _ = try leaving.want([.make(2)])
        _ = try leaving.call(.leave)
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
        _ = try a.call(.unwant([.flight(1)]))
        #expect(try again.notices() == [.aborted(.flight(1), grants[0].token)])
        #expect(try again.done([grants[0].released(), grants[1].completed("x")]) == [true, true])
        #expect(try a.notices() == [.result(.flight(2), Array("x".utf8))])
        #expect(try a.take() == [])
    }

    @Test func `scripts that the server forgot are unknown, and their text works`() throws {
        let command = try a.command(.take(slots: 1))
        try a.connection.send("SCRIPT", "FLUSH")
        let reply = try a.connection.send(command)
        #expect(reply == .error("NOSCRIPT No matching script. Please use EVAL."))
    }
}
