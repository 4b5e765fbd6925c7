import EarshotCore
import EarshotLoop
import Glibc
import RESP
import Testing

@testable import EarshotCluster

/// Findings about real servers that are set up as documented, but for one mistake each.
@Suite struct ClusterCheckTests {
    private static let login = EngineOptions.Login(user: "node", password: "n")

    /// Server with the rules of users in the documents.
    private func server(port: UInt16 = 0, _ lines: [String] = []) throws -> RedisServer {
        try RedisServer(
            port: port,
            [
                "user default off", "user admin on >a ~* &* +@all",
                "user node on >n \(EngineRules.nodeRules(cluster: "test"))",
                "user sentinel on >s \(EngineRules.sentinelRules)",
            ] + lines)
    }

    private func call(_ server: RedisServer, _ words: String...) throws {
        let admin = try ServerConnection(.unixSocket(path: server.socket))
        try admin.send("AUTH", "admin", "a")
        var command = Command()
        for word in words { command.append(word) }
        if case .error(let text) = try admin.send(command) { throw ServerConnection.Failure(text: text) }
    }

    private func options(_ place: EngineOptions.EngineLocation, login: EngineOptions.Login? = login) -> EngineOptions {
        var options = EngineOptions(
            location: place, cluster: "test", keys: ClusterKeys(secret: [1]), publicKey: "key",
            description: "alpha 127.0.0.1:5767")
        options.login = login
        return options
    }

    private func findings(
        _ options: EngineOptions, members: Int = 1, place: String = "127.0.0.1:5767",
        address: [UInt8] = [127, 0, 0, 1],
        clockIsAheadBy seconds: Int = 0
    ) throws -> [ClusterFinding] {
        let node = ClusterCheck.Node(
            advertisedAddress: place, address: .ipv4(address), listensAtOtherAddress: false, members: members)
        return try ClusterCheck(options, node: node) { (time(nil) + seconds) * 1_000 }.run()
    }

    private func findings(_ server: RedisServer, members: Int = 1) throws -> [ClusterFinding] {
        try findings(options(.servers([.unixSocket(path: server.socket)])), members: members)
    }

    private func expect(_ findings: [ClusterFinding], _ level: ClusterFinding.Level, _ part: String) {
        let found = findings.contains { $0.level == level && $0.sentence.contains(part) && $0.advice != nil }
        #expect(found, "no \(level) with \(part) among \(findings)")
    }

    @Test func `a cluster as documented has no fault`() throws {
        let server = try server()
        var found = try findings(server)
        #expect(found.filter { $0.level == .fault } == [])
        expect(found, .warning, "no node is a member")
        let rig = try ClientRig()
        let listener = try TCPSocket.listen(.ipv4([127, 0, 0, 1]), port: 0, backlog: 1)
        defer { close(listener.descriptor) }
        var member = options(.servers([.unixSocket(path: server.socket)]))
        member = EngineOptions(
            location: member.engineLocation, cluster: "test", keys: member.keys, publicKey: "key",
            description: "alpha 127.0.0.1:\(listener.port)")
        member.login = Self.login
        try rig.join(member)
        found = try findings(member, place: "127.0.0.1:\(listener.port)")
        #expect(found.filter { $0.level != .good } == [])
        #expect(found.contains { $0.sentence == "its port for bodies is open" })
    }

    @Test(
        "a mistake is named",
        arguments: [
            (["ACL", "SETUSER", "node", "-zadd"], "the user may not use: zadd"),
            (["ACL", "SETUSER", "node", "resetkeys", "~other*"], "the user may not use: keys"),
            (["ACL", "SETUSER", "node", "resetchannels"], "the user may not use: channels"),
            (["ACL", "SETUSER", "node", "resetpass", ">other"], "refused user or password"),
            (
                ["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"],
                "it evicts keys (allkeys-lru)"
            ),
            (["CONFIG", "SET", "min-replicas-to-write", "1"], "it refuses writes (NOREPLICAS)"),
            (["REPLICAOF", "127.0.0.1", "1"], "no server is a primary"),
            (["SET", "{test}:version", "99 0"], "the members run scripts of version 99"),
            (["SET", "{test}:version", "\(EngineScript.scriptVersion) 0"], "another secret or key pair"),
        ])
    func mistake(command: [String], sentence: String) throws {
        let server = try server()
        let admin = try ServerConnection(.unixSocket(path: server.socket))
        try admin.send("AUTH", "admin", "a")
        var words = Command()
        for word in command { words.append(word) }
        #expect(try admin.send(words) == .status("OK"))
        expect(try findings(server), .fault, sentence)
    }

    @Test func `a policy that a limit would apply, and a server without a password, are warnings`() throws {
        let server = try RedisServer(["maxmemory-policy allkeys-lru"])
        let found = try findings(options(.servers([.unixSocket(path: server.socket)]), login: nil))
        expect(found, .warning, "its policy is allkeys-lru")
        expect(found, .warning, "it answers without a password")
    }

    @Test func `a clock that is off by a minute is named`() throws {
        let server = try server()
        let options = options(.servers([.unixSocket(path: server.socket)]))
        #expect(try !findings(options).contains { $0.sentence.contains("clock is") })
        expect(try findings(options, clockIsAheadBy: 60), .fault, "s behind that of this machine")
        expect(try findings(options, clockIsAheadBy: -60), .fault, "s ahead of that of this machine")
    }

    @Test func `one address twice, and too small a number of members, are named`() throws {
        let server = try server()
        let prefix = EngineNames(cluster: "test").prefix
        let own = options(.servers([.unixSocket(path: server.socket)]))
        try call(server, "SET", "{test}:version", EngineScript.compatibilityText(own))
        for (id, machine) in [("a", "alpha"), ("b", "beta")] {
            try call(server, "ZADD", "\(prefix)nodes", "9999999999999", id)
            try call(server, "SET", "\(prefix)i:\(id)", "\(machine) 127.0.0.1:5767")
        }
        let found = try findings(server)
        expect(found, .fault, "it is the address of alpha and beta")
        expect(found, .fault, "2 nodes are members: without the engine, each takes too large a part")
        try call(server, "ZREM", "\(prefix)nodes", "a")
        expect(try findings(server), .fault, "it is the address of beta, and this file is that of alpha")
        expect(try findings(server, members: 3), .warning, "1 node is a member")
    }

    @Test func `an address of another machine, a closed port and an unknown name are named`() throws {
        let port = try RedisServer.freePorts(1)[0]
        let address = try #require(EngineAddress("127.0.0.1:\(port)"))
        let found = try findings(options(.servers([address])), address: [192, 0, 2, 1])
        expect(found, .fault, "`node` is no address of this machine")
        #expect(found.contains { $0.advice?.contains("open tcp port \(port) in its firewall") == true })
        let node = ClusterCheck.Node(advertisedAddress: "a", address: nil, listensAtOtherAddress: false, members: 1)
        let check = try ClusterCheck(options(.servers([address])), node: node) { 0 }
        check.addFault(
            .unreachable("the host name x does not resolve: not known"), at: "x:1", of: "redis-server", login: "")
        #expect(check.findings.first?.advice == "correct the name here or in DNS, or give the address")
    }

    @Test func `sentinels without a quorum, another name of the primary and a missing replica are named`() throws {
        let ports = try RedisServer.freePorts(2)
        let primary = try server(port: ports[0])
        let sentinel = try RedisServer(
            port: ports[1], isSentinel: true,
            [
                "user default off", "user node on >m \(EngineRules.nodeRulesAtSentinels)",
                "sentinel monitor shop 127.0.0.1 \(ports[0]) 2", "sentinel auth-user shop sentinel",
                "sentinel auth-pass shop s",
            ])
        var own = options(.sentinels([.unixSocket(path: sentinel.socket)], primary: "shop"))
        own.sentinelLogin = EngineOptions.Login(user: "node", password: "m")
        let found = try findings(own)
        expect(found, .fault, "it does not see enough sentinels")
        expect(found, .fault, "it has no replica")
        expect(found, .warning, "it accepts writes without a replica")
        var other = options(.sentinels([.unixSocket(path: sentinel.socket)], primary: "other"))
        other.sentinelLogin = own.sentinelLogin
        expect(try findings(other), .fault, "it watches no primary named other, but shop")
        own.sentinelLogin = EngineOptions.Login(user: "node", password: "wrong")
        expect(try findings(own), .fault, "redis-sentinel refused user or password")
        withExtendedLifetime(primary) {}
    }
}
