internal import EarshotClient
internal import EarshotCluster
internal import EarshotGateway
internal import ZeroMQ

/// Files for each machine of a new cluster: those of its bus, and of Redis if the cluster gets one.
struct ClusterSetup {
    /// Names of the packages of Debian, without those of Redis.
    static let packages = ["libzmq5"]
    static let redisPackages = ["redis-server", "redis-sentinel"]

    /// File of the first node. The other nodes have copies with their own addresses.
    private let cluster: ClusterFile
    let nodes: [NodeEndpoint]
    /// Redis of the cluster; nil for one that exists.
    let redis: RedisSetup?
    /// Keys for programs on other machines. All nodes have the same key pair, so programs need one server key.
    private let keys: KeyFile

    /// - Parameters:
    ///   - nodes: at least one.
    ///   - folder: folder that does not exist.
    init(_ cluster: ClusterFile, nodes: [NodeEndpoint], redis: RedisSetup?, folder: String) throws(CommandError) {
        self.cluster = cluster
        self.nodes = nodes
        self.redis = redis
        var keys = try KeyFile("\(folder)/keys.toml")
        try keys.makeServer()
        self.keys = keys
    }

    var serverKey: String { keys.server?.publicKey ?? "" }

    /// Name of the folder of a machine.
    static func folder(of node: NodeEndpoint) -> String { node.host.replacing(":", with: "-") }

    /// Returns the names and contents of the files for a node.
    func files(for node: NodeEndpoint) -> [(name: String, text: String)] {
        var file = cluster
        file.node = node
        return (redis?.files(for: node) ?? []) + [
            ("cluster.toml", file.text), ("shared.toml", settingsText(node)),
            ("keys.toml", keys.text), ("unit.conf", Self.unitDropIn),
            ("install.sh", installScript(node)), ("README.txt", installationGuide(node)),
        ]
    }

    // MARK: The bus

    private func settingsText(_ node: NodeEndpoint) -> String {
        """
        # Settings of the bus on this machine, a node of the cluster \(cluster.name): earshot.toml(5).
        cluster = "cluster.toml"
        # Programs of several users and machines share fetches and stored responses that identify no user.
        share-between-users = "on"
        # Users of this machine that may use the bus, such as ["www-data", "@staff"].
        users = []
        # Addresses for programs on other machines, such as ["tcp://\(node.replacing(port: GatewayAddress.defaultPort))"].
        listen = []

        """
    }

    /// Addition to the units of the machine: they listen at an address that the network must have.
    private static let unitDropIn = """
        [Unit]
        After=network-online.target
        Wants=network-online.target

        """

    // MARK: Commands

    private var hasSentinels: Bool { (redis?.hosts.count ?? 0) > 1 }

    private func hasRedis(_ node: NodeEndpoint) -> Bool { redis?.hosts.contains(node) ?? false }

    private func services(_ node: NodeEndpoint) -> [String] {
        guard hasRedis(node) else { return [] }
        return hasSentinels ? ["redis-server", "redis-sentinel"] : ["redis-server"]
    }

    /// Script that installs the files. It keeps each file that it replaces, with the ending `.~1~`.
    private func installScript(_ node: NodeEndpoint) -> String {
        var text = """
            #!/bin/sh
            # Makes this machine the node \(node) of the cluster \(cluster.name). Run as root.
            set -eu
            cd "$(dirname "$0")"
            put() { install --backup=numbered "$@"; }

            """
        let services = (services(node) + ["earshot-shared"]).joined(separator: " ")
        if hasRedis(node) {
            // A sentinel that runs writes its file.
            text += "systemctl stop \(self.services(node).reversed().joined(separator: " "))\n"
            let files = redis?.files(for: node).map(\.name).joined(separator: " ") ?? ""
            text += "put -o redis -g redis -m 0640 \(files) /etc/redis/\n"
        }
        text += """
            install -d /etc/earshot
            put -o earshot -g earshot -m 0600 cluster.toml /etc/earshot/
            put -m 0644 shared.toml /etc/earshot/
            # Keys of programs that an earlier installation has authorized stay.
            if [ ! -e /etc/earshot/keys.toml ]; then
                install -o earshot -g earshot -m 0600 keys.toml /etc/earshot/
            elif kept=$(earshot key show --keys /etc/earshot/keys.toml) && [ "$kept" != '\(serverKey)' ]; then
                echo "install.sh: /etc/earshot/keys.toml stays; programs need its server key, $kept, for this node" >&2
            fi
            for unit in \(services); do
                install -D -m 0644 unit.conf "/etc/systemd/system/$unit.service.d/cluster.conf"
            done
            systemctl daemon-reload
            systemctl enable \(services)
            systemctl restart \(services)

            """
        return text
    }

    /// Commands for a machine.
    func installCommands(_ node: NodeEndpoint) -> [String] {
        let packages = (hasRedis(node) ? Self.redisPackages : []) + Self.packages
        return ["apt install \(packages.joined(separator: " "))", "sh install.sh"]
    }

    private func installationGuide(_ node: NodeEndpoint) -> String {
        let others = nodes.filter { $0 != node }.map(\.host).joined(separator: ", ")
        let all = nodes.map(\.host).joined(separator: ", ")
        var text = """
            Node \(node) of the cluster \(cluster.name)

            Commands on this machine, as root, after the installation of Earshot's package:

              \(installCommands(node).joined(separator: "\n  "))

            When all nodes run, on one of them:

              runuser -u earshot -- earshot cluster check

            Ports of tcp that the firewall of this machine opens:

              \(node.port)   for the other nodes: \(others.isEmpty ? "none" : others)

            """
        if hasRedis(node) {
            text += "  \(RedisSetup.port)   for all nodes: \(all)\n"
            if hasSentinels { text += "  \(RedisSetup.sentinelPort)  for all nodes: \(all)\n" }
        }
        text += """
              \(GatewayAddress.defaultPort)   for programs on other machines, if shared.toml has their addresses in `listen`

            """
        if let redis, hasRedis(node) {
            text += """

                User and password of an administrator of Redis and its sentinels:

                  admin \(redis.adminPassword)

                """
        }
        return text
    }
}
