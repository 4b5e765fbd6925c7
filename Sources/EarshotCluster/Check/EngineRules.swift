internal import EarshotCore
internal import RESP

/// Rules of the users of servers and sentinels, in the form of `ACL SETUSER`: each may do its work, and nothing else.
public enum EngineRules {
    /// Commands of the scripts and of a node's connection, each with arguments that change nothing but own keys. A
    /// script needs the permission for each of its commands.
    static let permittedCommands: [(name: String, arguments: [ArgumentWord])] = [
        ("eval", ["return 1", "1", .key("a")]),
        ("evalsha", [.text(String(repeating: "0", count: 40)), "1", .key("a")]),
        ("script|load", ["return 1"]), ("info", ["replication"]), ("ping", []), ("publish", [.channel, ""]),
        ("time", []), ("set", [.key("a"), "", "PX", "1000"]), ("get", [.key("a")]), ("mget", [.key("a")]),
        ("exists", [.key("a")]), ("rename", [.key("a"), .key("b")]),
        // The keys expire, because an interrupted check deletes none.
        ("hset", [.key("h"), "f", "v"]), ("pexpire", [.key("h"), "1000"]), ("hmget", [.key("h"), "f"]),
        ("hlen", [.key("h")]), ("hdel", [.key("h"), "f"]), ("zadd", [.key("z"), "1", "m"]),
        ("pexpire", [.key("z"), "1000"]), ("zscore", [.key("z"), "m"]), ("zcount", [.key("z"), "0", "1"]),
        ("zcard", [.key("z")]), ("zrange", [.key("z"), "0", "0"]), ("zrangebyscore", [.key("z"), "0", "1"]),
        ("zrem", [.key("z"), "m"]), ("zremrangebyrank", [.key("z"), "0", "0"]), ("sadd", [.key("s"), "m"]),
        ("pexpire", [.key("s"), "1000"]), ("scard", [.key("s")]), ("srem", [.key("s"), "m"]), ("spop", [.key("s")]),
        ("del", [.key("b"), .key("h"), .key("z"), .key("s")]), ("unlink", [.key("a"), .key("b")]),
        // The last one, because a connection that subscribes accepts no other commands.
        ("subscribe", [.channel]),
    ]

    /// Argument of a command.
    enum ArgumentWord: ExpressibleByStringLiteral {
        case text(String)
        /// A key of the cluster that no script uses.
        case key(String)
        case channel

        init(stringLiteral text: String) { self = .text(text) }

        func text(in names: EngineNames) -> String {
            switch self {
            case .text(let text): text
            case .key(let name): "\(names.prefix)check:\(name)"
            case .channel: "\(names.prefix)check"
            }
        }
    }

    /// Commands for a check of the permissions.
    static func samples(in names: EngineNames) -> [Command] {
        permittedCommands.map { name, arguments in
            var command = Command()
            for word in name.split(separator: "|") { command.append(word.uppercased()) }
            for argument in arguments { command.append(argument.text(in: names)) }
            return command
        }
    }

    /// Rules of a cluster's nodes at the servers.
    public static func nodeRules(cluster: String) -> String {
        var named: Set<String> = []
        let rules = permittedCommands.filter { named.insert($0.name).inserted }.map { "+\($0.name)" }
        return "~{\(cluster)}* &{\(cluster)}* -@all " + rules.joined(separator: " ")
    }

    /// Rules of replicas at their primary.
    public static let replicaRules = "-@all +psync +replconf +ping"
    /// Rules of sentinels at the servers.
    public static let sentinelRules =
        "allchannels -@all +multi +slaveof +replicaof +ping +exec +subscribe +config|rewrite +role +publish +info"
        + " +client|setname +client|kill +script|kill"
    /// Rules of nodes at the sentinels. They read, and change nothing.
    public static let nodeRulesAtSentinels =
        "allchannels -@all +ping +info +subscribe +sentinel|get-master-addr-by-name +sentinel|masters +sentinel|master"
        + " +sentinel|replicas +sentinel|sentinels +sentinel|ckquorum"
    /// Rules of sentinels at one another.
    public static let sentinelRulesAtSentinels =
        "allchannels -@all +ping +publish +client|setname +sentinel|is-master-down-by-addr"
}
