import EarshotCore
import EarshotLoop
import RESP
import Testing

@testable import EarshotCluster

/// Decisions of the session: phases, faults, pauses and batches, without a server.
@Suite struct EngineSessionTests {
    typealias Rig = SessionRig

    // Valid literals.
    static let server = SessionRig.server
    static let other = EngineAddress("127.0.0.1:6380")!

    func faults(_ actions: [EngineAction]) -> [EngineFault] {
        actions.compactMap { if case .report(.left(let fault)) = $0 { fault } else { nil } }
    }

    func commands(_ actions: [EngineAction], _ link: EngineLink = .scripts) -> [[String]] {
        actions.compactMap { if case .send(link, let command) = $0 { command.words } else { nil } }
    }

    func opened(_ actions: [EngineAction]) -> [EngineAddress] {
        actions.compactMap { if case .open(_, let address) = $0 { address } else { nil } }
    }

    @Test func `a node connects, greets, joins and reports its ID`() throws {
        var rig = Rig(login: .init(user: "bus", password: "word"))
        #expect(rig.start() == [.open(.scripts, Self.server), .open(.notifications, Self.server)])
        let greeting = commands(rig.open(.scripts))
        #expect(greeting[0] == ["AUTH", "bus", "word"])
        #expect(greeting[1] == ["INFO", "replication"])
        #expect(greeting[2] == ["INFO", "memory"])
        #expect(
            greeting.dropFirst(3).map { $0[0...1] }
                == Array(repeating: ["SCRIPT", "LOAD"], count: EngineScript.allCases.count))
        let node = rig.session.nodeID
        #expect(
            commands(rig.open(.notifications), .notifications) == [
                ["AUTH", "bus", "word"], ["SUBSCRIBE", "{test}:2:c:\(node)"],
            ])
        rig = Rig()
        #expect(commands(rig.start()) == [])
        let join = commands(rig.greet())
        #expect(join.count == 1)
        #expect(join[0].prefix(5) == ["EVALSHA", "digest", "2", "{test}:2:", "{test}:version"])
        #expect(rig.receive(Rig.lease(3)) == [.report(.joined(rig.session.nodeID, members: 3))])
        #expect(rig.session.phase == .joined)
    }

    @Test func `calls before the membership are dropped, and later ones leave in few bounded batches`() {
        var rig = Rig()
        _ = rig.start()
        #expect(rig.submit(.takeFlights(slots: 3)) == [])
        rig = Rig()
        _ = rig.join()
        // A batch has a name and a number of arguments for each call.
        #expect(
            commands(rig.submit(.withdrawWants((1...150).map { .flight($0) }), .takeFlights(slots: 64))).map(\.count)
                == [6 + 2 + 64 + 2 + 64 + 2 + 22, 6 + 2 + 2])
        #expect(
            commands(rig.submit(.takeFlights(slots: 1), .survey, .takeFlights(slots: 1))).map(\.count) == [10, 6, 10])
        var want = EngineWant.make(1)
        want.record = [UInt8](repeating: 0, count: 100_000)
        #expect(rig.submit(.wantFlights([want, want, want, want, want])).count == 3)
        #expect(rig.submit(.wantFlights([])) == [])
    }

    @Test(
        "an error of the server ends the membership with its reason",
        arguments: [
            ("READONLY You can't write against a read only replica.", EngineFault.notPrimary),
            ("LOADING Redis is loading the dataset in memory", .loadingData),
            ("NOPERM this user has no permissions to run the 'publish' command", .notPermitted("publish")),
            ("NOPERM this user has no permissions to access one of the keys", .notPermitted("keys")),
            ("NOAUTH Authentication required.", .accessDenied),
            ("NOREPLICAS Not enough good replicas to write.", .refusesWrites("NOREPLICAS")),
            ("OOM command not allowed when used memory > 'maxmemory'.", .refusesWrites("OOM")),
            ("MISCONF Redis is configured to save", .refusesWrites("MISCONF")),
            ("MASTERDOWN Link with MASTER is down", .loadingData),
            ("LOST the node has no lease", .leaseLost),
            ("BUSY Redis is busy running a script", .serverError("BUSY")),
            ("", .serverError("")),
        ])
    func serverError(text: String, fault: EngineFault) {
        var rig = Rig()
        _ = rig.join()
        _ = rig.submit(.takeFlights(slots: 1))
        let actions = rig.receive(.error(text))
        #expect(faults(actions) == [fault])
        #expect(actions.prefix(2) == [.close(.scripts), .close(.notifications)])
        #expect("\(rig.session.phase)".hasPrefix("backingOff"))
    }

    @Test func `a wrong password is a fault for an operator, which is tried again rarely`() {
        for text in ["WRONGPASS invalid username-password pair", "ERR AUTH <password> called without any password"] {
            var rig = Rig(login: .init(user: nil, password: "x"))
            _ = rig.start()
            _ = rig.open(.scripts)
            #expect(faults(rig.receive(.error(text))) == [.accessDenied])
            let rest = (rig.session.deadline ?? rig.now).milliseconds(since: rig.now)
            #expect((1_000...2_000).contains(rest))
        }
    }

    @Test func `a new password is tried at once, and costs no membership`() {
        var rig = Rig(login: .init(user: "bus", password: "old"))
        _ = rig.start()
        _ = rig.open(.scripts)
        #expect(faults(rig.receive(.error("WRONGPASS"))) == [.accessDenied])
        let new = EngineOptions.Login(user: "bus", password: "new")
        rig.session.useLogin(new, ofSentinels: nil, now: rig.now)
        #expect(opened(rig.session.takeActions()) == [Self.server, Self.server])
        #expect(commands(rig.open(.scripts)).first == ["AUTH", "bus", "new"])
        var member = Rig()
        _ = member.join()
        member.session.useLogin(new, ofSentinels: nil, now: member.now)
        #expect(member.session.takeActions() == [])
        #expect(member.session.phase == .joined)
    }

    @Test(
        "a reply of another form ends the membership",
        arguments: [
            Reply.null, .integer(1), .status("OK"), .array([]), .array([.integer(-1), .null]), .bulkString([1]),
        ])
    func unexpectedReply(reply: Reply) {
        var rig = Rig()
        _ = rig.join()
        _ = rig.submit(.takeFlights(slots: 1))
        #expect(faults(rig.receive(reply)) == [.malformedReply])
        rig = Rig()
        _ = rig.join()
        #expect(faults(rig.receive(reply)) == [.malformedReply])
        rig = Rig()
        _ = rig.join()
        #expect(faults(rig.receive(reply, .notifications)) == [.malformedReply])
        rig = Rig()
        _ = rig.start()
        _ = rig.open(.scripts)
        #expect(faults(rig.receive(reply)) == [.malformedReply])
    }

    @Test func `a replica is no engine`() {
        var rig = Rig()
        _ = rig.start()
        _ = rig.open(.scripts)
        #expect(faults(rig.receive(.bulkString(Array("role:slave\r\nconnected_slaves:0\r\n".utf8)))) == [.notPrimary])
    }

    @Test func `a primary that writes without its replicas is a warning`() {
        for (lines, warnings) in [
            ("role:master\r\nconnected_slaves:2\r\n", 1), ("role:master\r\nconnected_slaves:0\r\n", 0),
            ("role:master\r\nconnected_slaves:2\r\nmin_slaves_good_slaves:2\r\n", 0),
        ] {
            var rig = Rig()
            _ = rig.start()
            _ = rig.open(.scripts)
            let actions = rig.receive(.bulkString(Array(lines.utf8)))
            #expect(actions == Array(repeating: .report(.warning(.writesWithoutReplicas)), count: warnings))
        }
        // A member asks again, since replicas and settings change.
        var later = Rig()
        _ = later.join()
        let question = EngineAction.send(.scripts, Command("INFO", "replication"))
        func look(_ lines: String) -> [EngineAction] {
            while true {
                let beat = later.passTime()
                later.answer(beat.filter { $0 != question }, members: 3)
                if beat.contains(question) { return later.receive(.bulkString(Array(lines.utf8))) }
            }
        }
        let unsafe = "role:master\r\nconnected_slaves:2\r\n"
        #expect(look(unsafe) == [.report(.warning(.writesWithoutReplicas))])
        #expect(look(unsafe) == [])
        #expect(look(unsafe + "min_slaves_good_slaves:2\r\n") == [.report(.remedied(.writesWithoutReplicas))])
        #expect(faults(look("role:slave\r\nconnected_slaves:0\r\n")) == [.notPrimary])
        var rig = Rig()
        _ = rig.start()
        _ = rig.open(.scripts)
        #expect(
            rig.receive(.error("NOPERM this user has no permissions to run the 'info' command")) == [
                .report(.warning(.roleUnknown))
            ])
    }

    @Test func `another version or secret of the cluster is named`() {
        for (text, fault) in [("VERSION 1 aa", EngineFault.scriptVersionMismatch), ("VERSION 2 aa", .secretMismatch)] {
            var rig = Rig()
            _ = rig.start()
            _ = rig.greet()
            #expect(faults(rig.receive(.error(text))) == [fault])
            #expect(fault.needsOperator)
        }
    }

    @Test func `a script that the server forgot is sent as text, once`() {
        var rig = Rig()
        _ = rig.join()
        _ = rig.submit(.takeFlights(slots: 1))
        let again = commands(rig.receive(.error("NOSCRIPT No matching script.")))
        #expect(again.count == 1 && again[0][0] == "EVAL" && again[0][1].contains("free slots"))
        #expect(faults(rig.receive(.error("NOSCRIPT No matching script."))) == [.serverError("NOSCRIPT")])
    }

    @Test func `heartbeats renew the lease and reap the dead`() {
        var rig = Rig()
        _ = rig.join()
        let beat = rig.passTime()
        #expect(rig.now == MonotonicTime(nanoseconds: 1_000_000_000))
        #expect(commands(beat).count == 2 && commands(beat, .notifications) == [["PING"]])
        #expect(rig.receive(.array([.bulkString(Array("pong".utf8)), .bulkString([])]), .notifications) == [])
        let reap = rig.receive(Rig.lease(2, expired: 1))
        #expect(reap.first == .report(.members(2)))
        #expect(commands(reap).count == 1)
        #expect(rig.receive(Rig.memory) == [])
        #expect(commands(rig.receive(.array([.integer(64), .integer(1)]))).count == 1)
        #expect(rig.receive(.array([.integer(3), .integer(0)])) == [])
    }

    @Test func `a change of the node's description is reported at once, and only by a member`() throws {
        var rig = Rig()
        rig.session.setDescription("before", now: rig.now)
        #expect(rig.session.deadline == nil)
        _ = rig.join()
        rig.session.setDescription("before", now: rig.now)
        #expect(try #require(rig.session.deadline) > rig.now)
        rig.session.setDescription("after", now: rig.now)
        let now = rig.now
        let beat = commands(rig.passTime())
        #expect(rig.now == now && beat.first?.contains("after") == true)
    }

    @Test(arguments: [(0, [EngineFault.leaseLost]), (1, []), (2, [.leaseLost])])
    func `an engine with another number of calls has lost data, and is joined again`(
        calls: Int, expected: [EngineFault]
    ) {
        var rig = Rig()
        _ = rig.join()
        _ = rig.submit(.takeFlights(slots: 1))
        #expect(faults(rig.receive(.array([.array([.integer(-1)])]))) == [])
        _ = rig.passTime()
        #expect(faults(rig.receive(Rig.lease(3, calls: calls))) == expected)
    }

    @Test(arguments: [true, false])
    func `a message that does not arrive before the reply to the next PING is lost`(isLost: Bool) {
        let pong = Reply.array([.bulkString(Array("pong".utf8)), .bulkString([])])
        var rig = Rig()
        _ = rig.join()
        func beat(messages: Int) -> [EngineAction] {
            let queriesMemory = commands(rig.passTime()).count == 2
            _ = rig.receive(Rig.lease(3, messages: messages))
            if queriesMemory { _ = rig.receive(Rig.memory) }
            return rig.receive(pong, .notifications)
        }
        // The first PING may have been answered before the message was sent.
        #expect(beat(messages: 1) == [])
        if !isLost {
            _ = rig.receive(
                .array([.bulkString(Array("message".utf8)), .bulkString([]), .bulkString(Array("w".utf8))]),
                .notifications)
        }
        #expect(beat(messages: 1) == (isLost ? [.report(.messagesLost)] : []))
        #expect(beat(messages: 1) == [])
    }

    @Test func `a server without a reply is given up, in each phase`() {
        var rig = Rig()
        _ = rig.start()
        #expect(faults(rig.passTime()) == [.timedOut])
        #expect(rig.now == MonotonicTime(nanoseconds: 2_000_000_000))
        rig = Rig()
        _ = rig.start()
        _ = rig.greet()
        #expect(faults(rig.passTime()) == [.timedOut])
        rig = Rig()
        _ = rig.join()
        _ = rig.passTime()
        #expect(faults(rig.passTime()) == [])
        #expect(faults(rig.passTime()) == [.timedOut])
    }

    @Test func `pauses grow with jitter up to a bound, and a membership resets them`() {
        var rig = Rig()
        _ = rig.start()
        var pauses: [Int] = []
        for _ in 0..<12 {
            #expect(faults(rig.close(.scripts, .unreachable("refused"))) == [.unreachable("refused")])
            let start = rig.now
            #expect(opened(rig.passTime()) == [Self.server, Self.server])
            pauses.append(rig.now.milliseconds(since: start))
        }
        for (number, pause) in pauses.enumerated() {
            let longest = min(1_000, 50 << number)
            #expect((longest / 2 - 1...longest).contains(pause), "\(pauses)")
        }
        #expect(Set(pauses.suffix(5)).count > 1)
    }

    @Test func `pauses restart only after a membership of ten seconds`() {
        var rig = Rig()
        _ = rig.start()
        var longest = 0
        for _ in 0..<8 {
            _ = rig.greet()
            #expect(rig.receive(Rig.lease(1)).contains { $0.isJoined })
            _ = rig.submit(.takeFlights(slots: 1))
            _ = rig.receive(.error("BUSY Redis is busy running a script"))
            longest = (rig.session.deadline ?? rig.now).milliseconds(since: rig.now)
            _ = rig.passTime()
        }
        #expect(longest >= 500)
        _ = rig.greet()
        _ = rig.receive(Rig.lease(1))
        let end = rig.now.advanced(byMilliseconds: EngineSession.stableMembershipMilliseconds)
        while rig.now < end {
            let beat = rig.passTime()
            #expect(faults(beat) == [])
            rig.answer(beat)
        }
        _ = rig.close(.notifications)
        #expect((rig.session.deadline ?? rig.now).milliseconds(since: rig.now) <= 50)
    }

    @Test func `settings without an address are a fault for an operator`() {
        for place in [EngineOptions.EngineLocation.servers([]), .sentinels([], primary: "bus")] {
            var rig = Rig(place)
            #expect(faults(rig.start()) == [.noServerAddress])
            #expect(EngineFault.noServerAddress.needsOperator)
            #expect(faults(rig.passTime()) == [.noServerAddress])
        }
    }

    @Test func `a server that may evict keys is refused, at the join and when its settings change`() {
        for (lines, isRefused) in [
            ("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", false),
            ("maxmemory:1048576\r\nmaxmemory_policy:noeviction\r\n", false),
            ("used_memory:9\r\nmaxmemory:1048576\r\nmaxmemory_policy:volatile-ttl\r\n", true), ("", false),
        ] {
            var rig = Rig()
            _ = rig.start()
            _ = rig.open(.scripts)
            _ = rig.receive(Rig.role)
            #expect(
                faults(rig.receive(.bulkString(Array(lines.utf8)))) == (isRefused ? [.evictionEnabled] : []), "\(lines)"
            )
            var member = Rig()
            _ = member.join()
            let question = EngineAction.send(.scripts, Command("INFO", "memory"))
            var beat: [EngineAction] = []
            while !beat.contains(question) {
                beat = member.passTime()
                member.answer(beat.filter { $0 != question }, members: 3)
            }
            #expect(
                faults(member.receive(.bulkString(Array(lines.utf8)))) == (isRefused ? [.evictionEnabled] : []),
                "\(lines)")
            #expect((member.session.phase == .joined) != isRefused)
        }
        #expect(EngineFault.evictionEnabled.needsOperator)
    }

    @Test func `each membership has another ID, and servers are tried in turn`() {
        var rig = Rig(.servers([Self.server, Self.other]))
        #expect(opened(rig.start()) == [Self.server, Self.server])
        let first = rig.session.nodeID
        _ = rig.close(.scripts)
        #expect(opened(rig.passTime()) == [Self.other, Self.other])
        #expect(rig.session.nodeID != first)
    }

    @Test func `too many calls without a reply end the membership`() {
        var rig = Rig()
        _ = rig.join()
        for _ in 0..<EngineSession.maximumPendingBatches { #expect(rig.submit(.takeFlights(slots: 1)).count == 1) }
        #expect(faults(rig.submit(.takeFlights(slots: 1))) == [.timedOut])
    }

    @Test func `a node that stops leaves first`() {
        var rig = Rig()
        _ = rig.join()
        rig.session.stop(now: rig.now)
        let actions = rig.session.takeActions()
        #expect(commands(actions).count == 1)
        #expect(actions.last == .report(.left(.leftCluster)))
        #expect(rig.session.deadline == nil)
        #expect(rig.close(.scripts) == [])
    }

    @Test func `notifications are events of a member alone`() {
        let message = { (text: String) -> Reply in
            .array([.bulkString(Array("message".utf8)), .bulkString([]), .bulkString(Array(text.utf8))])
        }
        var rig = Rig()
        _ = rig.join()
        #expect(rig.receive(message("w"), .notifications) == [.report(.workWaits)])
        let key = ClusterKey.flight(1)
        #expect(
            rig.receive(message("r \(key) 3 a br \(key) 0 "), .notifications) == [
                .report(.resultReceived(key, Array("a b".utf8))), .report(.resultReceived(key, [])),
            ])
        #expect(rig.receive(message("x \(key) 7"), .notifications) == [.report(.attemptAborted(key, FencingToken(7)))])
        for text in ["", "y", "x \(key)", "x \(key) 0", "r \(key) 9 abc", "r \(key) -1 ", "c \(key) 5", "w w"] {
            var rig = Rig()
            _ = rig.join()
            #expect(faults(rig.receive(message(text), .notifications)) == [.malformedReply], "\(text)")
        }
        rig = Rig()
        _ = rig.start()
        _ = rig.open(.notifications)
        #expect(rig.receive(message("w"), .notifications) == [])
    }
}
