internal import EarshotCluster
internal import LibCrypto

/// Files of redis-server and redis-sentinel on the machines of a new cluster. They have a user for each program, and a
/// random password for each user.
struct RedisSetup {
    /// Number of machines with servers: one primary, and two replicas of which sentinels promote one.
    private static let servers = 3
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
    private let nodePassword = Self.password()
    private let nodePasswordOfSentinels = Self.password()
    private let replicaPassword = Self.password()
    private let sentinelPassword = Self.password()
    private let otherSentinelPassword = Self.password()
    /// Password of the user `admin`, which has all permissions at servers and sentinels.
    let adminPassword = Self.password()

    /// - Parameter nodes: one node, or at least three.
    init(cluster: String, nodes: [NodeEndpoint]) {
        self.cluster = cluster
        hosts = Array(nodes.prefix(nodes.count < Self.servers ? 1 : Self.servers))
    }

    private static func password() -> String { Hex.encode(Secret.randomBytes(passwordBytes)) }

    private var hasSentinels: Bool { hosts.count > 1 }

    // MARK: For the nodes

    var place: EngineOptions.EngineLocation {
        func addresses(_ port: UInt16) -> [EngineAddress] {
            hosts.compactMap { EngineAddress("\($0.with(port: port))") }
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
        let files = [("redis.conf", server(host)), ("users.acl", users)]
        return hasSentinels ? files + [("sentinel.conf", sentinel(host))] : files
    }

    private func server(_ host: NodeEndpoint) -> String {
        var text = """
            # redis-server of the cluster \(cluster). Keep this file secret.
            bind \(Self.interfaces(host))
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

    private var users: String {
        var text = """
            user default off
            user admin on \(Self.digest(adminPassword)) ~* &* +@all
            user \(Self.node) on \(Self.digest(nodePassword)) \(EngineRules.node(of: cluster))

            """
        guard hasSentinels else { return text }
        text += """
            user replica on \(Self.digest(replicaPassword)) \(EngineRules.replica)
            user sentinel on \(Self.digest(sentinelPassword)) \(EngineRules.sentinel)

            """
        return text
    }

    private func sentinel(_ host: NodeEndpoint) -> String {
        var text = """
            # redis-sentinel of the cluster \(cluster). Keep this file secret. The sentinel writes it again.
            bind \(Self.interfaces(host))
            port \(Self.sentinelPort)
            protected-mode no
            pidfile /run/sentinel/redis-sentinel.pid
            logfile /var/log/redis/redis-sentinel.log
            dir /var/lib/redis
            # Without passwords a stranger could make himself the primary, and would get the passwords of the nodes.
            user default off
            user admin on \(Self.digest(adminPassword)) ~* &* +@all
            user \(Self.node) on \(Self.digest(nodePasswordOfSentinels)) \(EngineRules.nodeOfSentinels)
            user sentinel on \(Self.digest(otherSentinelPassword)) \(EngineRules.otherSentinel)
            sentinel sentinel-user sentinel
            sentinel sentinel-pass \(otherSentinelPassword)

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

    /// Interfaces to listen at. A name may be that of a loopback address on its own machine.
    private static func interfaces(_ host: NodeEndpoint) -> String { host.isName ? "* -::*" : host.host }

    /// Password in a rule: only its SHA-256.
    private static func digest(_ password: String) -> String {
        "#" + SHA256.digest(of: Array(password.utf8).span).hex
    }
}
