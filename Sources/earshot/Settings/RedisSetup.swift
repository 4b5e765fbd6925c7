internal import EarshotCluster
internal import LibCrypto

/// Files of redis-server and redis-sentinel on the machines of a new cluster. They have a user for each program, and a
/// random password for each user.
struct RedisSetup {
    /// Number of machines with servers: one primary, and two replicas of which sentinels promote one.
    private static let serverCount = 3
    static let port: UInt16 = 6_379
    static let sentinelPort: UInt16 = 26_379
    /// User of nodes, at servers and at sentinels.
    private static let node = "node"
    /// Number of random bytes of a password.
    private static let passwordBytes = 24

    /// Name of the cluster, under which the sentinels watch the primary, too.
    let cluster: String
    /// Hosts of the servers. The first one begins as the primary.
    let hosts: [NodeEndpoint]
    private let nodePassword = Self.randomPassword()
    private let nodePasswordOfSentinels = Self.randomPassword()
    private let replicaPassword = Self.randomPassword()
    private let sentinelPassword = Self.randomPassword()
    private let sentinelPeerPassword = Self.randomPassword()
    /// Password of the user `admin`, which has all permissions at servers and sentinels.
    let adminPassword = Self.randomPassword()

    /// - Parameter nodes: one node, or at least three.
    init(cluster: String, nodes: [NodeEndpoint]) {
        self.cluster = cluster
        hosts = Array(nodes.prefix(nodes.count < Self.serverCount ? 1 : Self.serverCount))
    }

    private static func randomPassword() -> String { Hex.encode(Secret.randomBytes(passwordBytes)) }

    private var hasSentinels: Bool { hosts.count > 1 }

    // MARK: For the nodes

    var engineLocation: EngineOptions.EngineLocation {
        func addresses(_ port: UInt16) -> [EngineAddress] {
            hosts.compactMap { EngineAddress("\($0.replacing(port: port))") }
        }
        return hasSentinels
            ? .sentinels(addresses(Self.sentinelPort), primary: cluster) : .servers(addresses(Self.port))
    }

    var login: EngineOptions.Login { EngineOptions.Login(user: Self.node, password: nodePassword) }

    var sentinelLogin: EngineOptions.Login? {
        hasSentinels ? EngineOptions.Login(user: Self.node, password: nodePasswordOfSentinels) : nil
    }

    // MARK: Files

    /// Returns the names and contents of the files for a host; empty for one without a server.
    func files(for host: NodeEndpoint) -> [(name: String, text: String)] {
        guard hosts.contains(host) else { return [] }
        let files = [("redis.conf", serverConfiguration(host)), ("users.acl", userRules)]
        return hasSentinels ? files + [("sentinel.conf", sentinelConfiguration(host))] : files
    }

    private func serverConfiguration(_ host: NodeEndpoint) -> String {
        var text = """
            # redis-server of the cluster \(cluster). Keep this file secret.
            bind \(Self.listenInterfaces(host))
            port \(Self.port)
            protected-mode no
            pidfile /run/redis/redis-server.pid
            logfile /var/log/redis/redis-server.log
            dir /var/lib/redis
            aclfile /etc/redis/users.acl
            # A lost key costs a second fetch of a URL.
            maxmemory-policy noeviction
            # Nodes assert everything again within seconds, so the data needs no disk.
            appendonly no
            save ""

            """
        guard hasSentinels else { return text }
        text += """
            # A primary without a replica accepts no writes, so the two sides of a partition do not both fetch for long.
            min-replicas-to-write 1
            min-replicas-max-lag 2
            # A primary that restarts waits for no further replicas.
            repl-diskless-sync-delay 0
            masteruser replica
            masterauth \(replicaPassword)
            replica-announce-ip \(host.host)

            """
        if host != hosts[0] { text += "replicaof \(hosts[0].host) \(Self.port)\n" }
        return text
    }

    private var userRules: String {
        var text = """
            user default off
            user admin on \(Self.passwordDigest(adminPassword)) ~* &* +@all
            user \(Self.node) on \(Self.passwordDigest(nodePassword)) \(EngineRules.nodeRules(cluster: cluster))

            """
        guard hasSentinels else { return text }
        text += """
            user replica on \(Self.passwordDigest(replicaPassword)) \(EngineRules.replicaRules)
            user sentinel on \(Self.passwordDigest(sentinelPassword)) \(EngineRules.sentinelRules)

            """
        return text
    }

    private func sentinelConfiguration(_ host: NodeEndpoint) -> String {
        var text = """
            # redis-sentinel of the cluster \(cluster). Keep this file secret. The sentinel writes it again.
            bind \(Self.listenInterfaces(host))
            port \(Self.sentinelPort)
            protected-mode no
            pidfile /run/sentinel/redis-sentinel.pid
            logfile /var/log/redis/redis-sentinel.log
            dir /var/lib/redis
            # Without passwords a stranger could make himself the primary, and would get the passwords of the nodes.
            user default off
            user admin on \(Self.passwordDigest(adminPassword)) ~* &* +@all
            user \(Self.node) on \(Self.passwordDigest(nodePasswordOfSentinels)) \(EngineRules.nodeRulesAtSentinels)
            user sentinel on \(Self.passwordDigest(sentinelPeerPassword)) \(EngineRules.sentinelRulesAtSentinels)
            sentinel sentinel-user sentinel
            sentinel sentinel-pass \(sentinelPeerPassword)

            """
        if hosts.contains(where: \.isName) {
            text += "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n"
        }
        text += """
            sentinel announce-ip \(host.host)
            sentinel announce-port \(Self.sentinelPort)
            sentinel monitor \(cluster) \(hosts[0].host) \(Self.port) 2
            sentinel auth-user \(cluster) sentinel
            sentinel auth-pass \(cluster) \(sentinelPassword)
            sentinel down-after-milliseconds \(cluster) 1000
            sentinel failover-timeout \(cluster) 10000

            """
        return text
    }

    /// Returns the interfaces to listen at. A name may be that of a loopback address on its own machine.
    private static func listenInterfaces(_ host: NodeEndpoint) -> String { host.isName ? "* -::*" : host.host }

    /// Returns the form of a password in a rule: only its SHA-256.
    private static func passwordDigest(_ password: String) -> String {
        "#" + SHA256.digest(of: Array(password.utf8).span).hex
    }
}
