import EarshotCluster
import EarshotCore
import EarshotLoop
import Glibc
import Testing

/// The client against real servers, and against servers with faults.
@Suite struct EngineClientTests {
    private let rig: ClientRig

    init() throws {
        rig = try ClientRig()
    }

    private func grants(_ number: Int) throws -> [EngineGrant] {
        let event = try rig.awaitEvent(number, "grants") { $0.isGranted }
        guard case .flightsGranted(let grants, _) = event else { return [] }
        return grants
    }

    /// Fetches one flight through two nodes.
    private func fetch(_ flight: UInt64, wanted first: Int, taken second: Int) throws {
        rig.forget()
        rig.submit(first, .wantFlights([.make(flight)]), .takeFlights(slots: 0))
        try rig.awaitEvent(first, "answer") { $0 == .wantsAnswered([WantAnswer(key: .flight(flight), state: .queued)]) }
        rig.submit(second, .takeFlights(slots: 1))
        let grant = try #require(try grants(second).first)
        #expect(grant.record == Array("record \(flight)".utf8))
        rig.submit(second, .reportCompletions([grant.completed("body")]))
        try rig.awaitEvent(second, "end") {
            $0 == .completionsAnswered([CompletionAnswer(key: .flight(flight), token: grant.token, isCurrent: true)])
        }
        try rig.awaitEvent(first, "result") { $0 == .resultReceived(.flight(flight), Array("body".utf8)) }
    }

    @Test func `two nodes share a flight, also after the server forgot its scripts`() throws {
        let server = try RedisServer()
        let (a, b) = try (rig.join(ClientRig.options(server)), rig.join(ClientRig.options(server)))
        try fetch(1, wanted: a, taken: b)
        let admin = try ServerConnection(.unixSocket(path: server.socket))
        try admin.send("SCRIPT", "FLUSH")
        try fetch(2, wanted: a, taken: b)
    }

    @Test func `an idle node is woken through its channel`() throws {
        let server = try RedisServer()
        let (a, b) = try (rig.join(ClientRig.options(server)), rig.join(ClientRig.options(server)))
        rig.submit(b, .takeFlights(slots: 4))
        #expect(try grants(b) == [])
        rig.submit(a, .wantFlights([.make(1)]), .takeFlights(slots: 0))
        try rig.awaitEvent(b, "wake-up") { $0 == .workWaits }
    }

    @Test func `after FLUSHALL a node joins under another ID`() throws {
        let server = try RedisServer()
        let a = try rig.join(ClientRig.options(server))
        let first = rig.events[a][0]
        let admin = try ServerConnection(.unixSocket(path: server.socket))
        try admin.send("FLUSHALL")
        rig.forget()
        rig.submit(a, .wantFlights([.make(1)]))
        #expect(try rig.awaitFault(a) == .leaseLost)
        #expect(try rig.awaitEvent(a, "joined") { $0.isJoined } != first)
    }

    @Test func `a node that leaves hands over, and one that returns is counted`() throws {
        let server = try RedisServer()
        let (a, b) = try (rig.join(ClientRig.options(server)), rig.join(ClientRig.options(server)))
        try rig.awaitEvent(a, "members") { $0 == .members(2) }
        rig.submit(a, .wantFlights([.make(1)]))
        // The server reads connections in any order.
        try rig.awaitEvent(a, "wanted") { if case .wantsAnswered = $0 { true } else { false } }
        rig.submit(b, .takeFlights(slots: 1))
        #expect(try grants(b).count == 1)
        rig.forget()
        rig.clients[b].stop()
        #expect(try rig.awaitFault(b) == .leftCluster)
        try rig.awaitEvent(a, "members") { $0 == .members(1) }
        rig.submit(a, .takeFlights(slots: 1))
        #expect(try grants(a).map(\.key) == [.flight(1)])
    }

    // MARK: Access

    @Test func `a wrong password is named, and the right one works`() throws {
        let server = try RedisServer(["requirepass secret"])
        for login in [nil, EngineOptions.Login(user: nil, password: "wrong"), .init(user: "bus", password: "secret")] {
            let number = rig.add(ClientRig.options(server, login: login))
            #expect(try rig.awaitFault(number) == .accessDenied)
        }
        try rig.join(ClientRig.options(server, login: .init(user: nil, password: "secret")))
    }

    /// The rules that docs/cluster.md lists, for the cluster `test`.
    private static let rules = """
        ~{test}* &{test}* -@all +eval +evalsha +script|load +info +ping +subscribe +publish +time +get +set +mget \
        +del +unlink +rename +exists +pexpire +hset +hmget +hdel +hlen +zadd +zrem +zrange +zrangebyscore +zremrangebyrank +zscore +zcount \
        +zcard +sadd +srem +spop
        """

    @Test func `a user with the documented rules suffices`() throws {
        let server = try RedisServer(["user bus on >secret resetkeys resetchannels \(Self.rules)"])
        let login = EngineOptions.Login(user: "bus", password: "secret")
        let (a, b) = try (
            rig.join(ClientRig.options(server, login: login)), rig.join(ClientRig.options(server, login: login))
        )
        try fetch(1, wanted: a, taken: b)
        rig.forget()
        rig.submit(a, .wantFlights([.make(2, spacing: 5)]), .withdrawWants([.flight(2)]), .wantFlights([.make(3)]))
        rig.submit(a, .reportRefusal(EngineRefusal(origin: .make(), requestedMilliseconds: 0)))
        try rig.awaitEvent(a, "cool-down") { $0.isCooled }
        rig.clients[a].stop()
        try rig.awaitEvent(b, "members") { $0 == .members(1) }
        #expect(!rig.events[b].contains { $0.isLeft })
        #expect(!Self.rules.contains("@admin"))
    }

    @Test(arguments: [
        ("+evalsha", "evalsha"), ("+zadd", "scripts"), ("+subscribe", "subscribe"), ("&{test}*", "channels"),
        ("+script|load", "script|load"),
    ])
    func `a missing permission is named`(rule: String, subject: String) throws {
        let rules = Self.rules.replacing(rule, with: "")
        let server = try RedisServer(["user bus on >secret resetkeys resetchannels \(rules)"])
        let number = rig.add(ClientRig.options(server, login: .init(user: "bus", password: "secret")))
        #expect(try rig.awaitFault(number) == .notPermitted(subject))
    }

    @Test func `without INFO the role is unknown, and a replica is noticed by its refusal`() throws {
        let rules = Self.rules.replacing("+info", with: "")
        let server = try RedisServer(["user bus on >secret resetkeys resetchannels \(rules)"])
        let number = try rig.join(ClientRig.options(server, login: .init(user: "bus", password: "secret")))
        #expect(rig.events[number].contains(.warning(.roleUnknown)))
        let admin = try ServerConnection(.unixSocket(path: server.socket))
        try admin.send("REPLICAOF", "127.0.0.1", "1")
        #expect([.notPrimary, .loadingData].contains(try rig.awaitFault(number)))
    }

    @Test func `another secret is refused while the cluster lives`() throws {
        let server = try RedisServer()
        try rig.join(ClientRig.options(server))
        let place = EngineOptions.EngineLocation.servers([.unixSocket(path: server.socket)])
        let other = rig.add(ClientRig.options(place, secret: [9]))
        #expect(try rig.awaitFault(other) == .secretMismatch)
    }

    // MARK: Faults

    @Test func `a replica is never written to`() throws {
        let server = try RedisServer(["replicaof 127.0.0.1 1"])
        let number = rig.add(ClientRig.options(server))
        #expect([.notPrimary, .loadingData].contains(try rig.awaitFault(number)))
    }

    @Test func `a primary that becomes a replica is left`() throws {
        let server = try RedisServer()
        let number = try rig.join(ClientRig.options(server))
        let admin = try ServerConnection(.unixSocket(path: server.socket))
        try admin.send("REPLICAOF", "127.0.0.1", "1")
        rig.submit(number, .wantFlights([.make(1)]))
        #expect([.notPrimary, .loadingData].contains(try rig.awaitFault(number)))
        try admin.send("REPLICAOF", "NO", "ONE")
        rig.forget()
        try rig.awaitEvent(number, "joined") { $0.isJoined }
    }

    @Test(
        "a server that is no Redis is a fault",
        arguments: [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", EngineFault.malformedReply), ("\0\u{1}\u{2}", .malformedReply),
            ("+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n", .malformedReply),
            ("*1\r\n$7\r\nmessage\r\n", .malformedReply), ("*2147483647\r\n", .malformedReply),
            ("-LOADING Redis is loading the dataset in memory\r\n", .loadingData), ("", .timedOut),
        ])
    func malformedAnswer(answer: String, fault: EngineFault) throws {
        let server = try FaultyServer(.answers(Array(answer.utf8)), on: rig.loop)
        let number = rig.add(ClientRig.options(.servers([server.address]), timeout: answer.isEmpty ? 300 : 60_000))
        #expect(try rig.awaitFault(number) == fault)
        // It goes on trying.
        try rig.run("attempts") { server.connectionCount >= 4 }
    }

    @Test func `a server that hangs is left in time, and joined again afterwards`() throws {
        let server = try RedisServer()
        let number = try rig.join(ClientRig.options(server, timeout: 300))
        // A join on a slow machine may have had faults.
        rig.forget()
        server.send(SIGSTOP)
        rig.submit(number, .takeFlights(slots: 1))
        #expect(try rig.awaitFault(number) == .timedOut)
        server.send(SIGCONT)
        rig.forget()
        try rig.awaitEvent(number, "joined") { $0.isJoined }
    }

    @Test func `a server that is down is joined when it is up`() throws {
        let number = rig.add(ClientRig.options(.servers([.unixSocket(path: "/nonexistent/redis.sock")])))
        #expect("\(try rig.awaitFault(number))".contains("cannot connect to the engine"))
        let port = try RedisServer.freePorts(1)[0]
        let late = rig.add(ClientRig.options(.servers([try #require(EngineAddress("127.0.0.1:\(port)"))])))
        #expect("\(try rig.awaitFault(late))".contains("cannot connect to the engine"))
        let server = try RedisServer(port: port)
        try rig.awaitEvent(late, "joined") { $0.isJoined }
        withExtendedLifetime(server) {}
    }

    @Test(arguments: [1, 40, 700, 1_500])
    func `a connection that is cut inside the replies loses no want that is asserted again`(bytes: Int) throws {
        let server = try RedisServer()
        let relay = try FaultyServer(.relay(to: server.socket, cutAfter: -1), on: rig.loop)
        let number = try rig.join(ClientRig.options(.servers([relay.address])))
        rig.forget()
        relay.rest = bytes
        let wants = (1...40).map { EngineWant.make(UInt64($0)) }
        for want in wants { rig.submit(number, .wantFlights([want]), .takeFlights(slots: 1)) }
        #expect([.connectionClosed, .unreachable("recv")].contains(try rig.awaitFault(number)))
        relay.rest = -1
        rig.forget()
        try rig.awaitEvent(number, "joined") { $0.isJoined }
        // Attempts of the earlier ID return when its lease expires; until then their flights are running.
        rig.submit(number, .wantFlights(wants))
        var fetched: Set<ClusterKey> = []
        try rig.run("all flights") {
            for event in rig.events[number] {
                if case .flightsGranted(let grants, _) = event {
                    fetched.formUnion(grants.map(\.key))
                    if !grants.isEmpty { rig.submit(number, .reportCompletions(grants.map { $0.completed() })) }
                }
                // On a busy machine it may lose the engine once more.
                if event.isJoined { rig.submit(number, .wantFlights(wants)) }
            }
            rig.forget()
            if fetched.count < 40 { rig.submit(number, .takeFlights(slots: 64)) }
            return fetched.count == 40
        }
    }
}
