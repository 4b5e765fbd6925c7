import EarshotCore
import EarshotLoop
import RESP
import Testing

@testable import EarshotCluster

/// How sentinels lead a session to its primary.
extension EngineSessionTests {
    // Valid literals.
    private static let sentinels = [EngineAddress("127.0.0.1:26379")!, EngineAddress("127.0.0.1:26380")!]
    private static let address = Reply.array([.bulkString(Array("127.0.0.1".utf8)), .bulkString(Array("6379".utf8))])

    private func found(_ rig: inout Rig) {
        _ = rig.start()
        _ = rig.open(.sentinel)
        #expect(opened(rig.receive(Self.address, .sentinel)) == [Self.server, Self.server])
        _ = rig.receive(.array([.bulkString(Array("subscribe".utf8)), .bulkString([]), .integer(1)]), .sentinel)
    }

    private func switched(_ text: String) -> Reply {
        .array([
            .bulkString(Array("message".utf8)), .bulkString(Array("+switch-master".utf8)),
            .bulkString(Array(text.utf8)),
        ])
    }

    @Test func `a sentinel names the primary, and its change moves the node at once`() {
        var rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
        #expect(rig.start() == [.open(.sentinel, Self.sentinels[0])])
        #expect(
            commands(rig.open(.sentinel), .sentinel) == [
                ["SENTINEL", "get-master-addr-by-name", "bus"], ["SUBSCRIBE", "+switch-master"],
            ])
        rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
        found(&rig)
        _ = rig.greet()
        _ = rig.receive(Rig.lease(1))
        #expect(rig.session.phase == .joined)
        #expect(rig.receive(switched("other 127.0.0.1 6379 127.0.0.1 6380"), .sentinel) == [])
        #expect(rig.receive(switched("bus 127.0.0.1 1 127.0.0.1 6379"), .sentinel) == [])
        let actions = rig.receive(switched("bus 127.0.0.1 6379 127.0.0.1 6380"), .sentinel)
        #expect(faults(actions) == [.notPrimary])
        #expect(opened(actions) == [Self.other, Self.other])
    }

    @Test func `a change during a pause ends the pause`() {
        var rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
        found(&rig)
        _ = rig.close(.scripts)
        #expect(
            opened(rig.receive(switched("bus 127.0.0.1 6379 127.0.0.1 6380"), .sentinel)) == [Self.other, Self.other])
        #expect(rig.session.phase == .connecting)
    }

    @Test func `a sentinel that is lost, slow or ignorant is replaced by the next`() {
        for event in 0..<4 {
            var rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
            _ = rig.start()
            let actions: [EngineAction]
            switch event {
            case 0: actions = rig.close(.sentinel, .unreachable("refused"))
            case 1: actions = rig.passTime()
            case 2:
                _ = rig.open(.sentinel)
                actions = rig.receive(.null, .sentinel)
            default:
                _ = rig.open(.sentinel)
                actions = rig.receive(.integer(1), .sentinel)
            }
            #expect(faults(actions) == [.noPrimary])
            #expect(opened(rig.passTime()) == [Self.sentinels[1]])
        }
    }

    @Test func `a member replaces a lost sentinel without leaving`() {
        var rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
        found(&rig)
        _ = rig.greet()
        _ = rig.receive(Rig.lease(1))
        #expect(faults(rig.close(.sentinel)) == [])
        #expect(opened(rig.passTime()) == [Self.sentinels[1]])
        #expect(rig.session.phase == .joined)
        _ = rig.open(.sentinel)
        #expect(rig.receive(Self.address, .sentinel) == [])
    }

    @Test func `a sentinel may name the primary by its host name`() throws {
        var rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
        _ = rig.start()
        _ = rig.open(.sentinel)
        let name = Reply.array([.bulkString(Array("redis.example".utf8)), .bulkString(Array("6379".utf8))])
        let address = try #require(EngineAddress("redis.example:6379"))
        #expect(opened(rig.receive(name, .sentinel)) == [address, address])
    }

    @Test func `a watching connection to a sentinel that does not answer is replaced`() {
        var rig = Rig(.sentinels(Self.sentinels, primary: "bus"))
        found(&rig)
        _ = rig.greet()
        _ = rig.receive(Rig.lease(1))
        let pong = Reply.array([.bulkString(Array("pong".utf8)), .bulkString([])])
        func beat() -> [[String]] {
            let actions = rig.passTime()
            rig.answer(actions)
            return commands(actions, .sentinel)
        }
        #expect(beat() == [["PING"]])
        #expect(rig.receive(pong, .sentinel) == [])
        #expect(beat() == [["PING"]])
        // No answer within two seconds.
        var replacements: [EngineAddress] = []
        for _ in 0..<6 {
            let actions = rig.passTime()
            #expect(faults(actions) == [])
            replacements += opened(actions)
            rig.answer(actions)
        }
        #expect(replacements.first == Self.sentinels[1])
        #expect(rig.session.phase == .joined)
    }

    @Test func `a sentinel's wrong password is named`() {
        var rig = Rig(.sentinels(Self.sentinels, primary: "bus"), login: .init(user: nil, password: "x"))
        _ = rig.start()
        _ = rig.open(.sentinel)
        #expect(faults(rig.receive(.error("WRONGPASS"), .sentinel)) == [.accessDenied])
    }
}
