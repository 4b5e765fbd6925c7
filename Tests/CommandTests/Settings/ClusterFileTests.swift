import EarshotBroker
import EarshotCluster
import EarshotCore
import EarshotGateway
import EarshotLoop
import Glibc
import Testing

@testable import earshot

/// File of a cluster: its values, its faults, and its creation.
@Suite struct ClusterFileTests {
    private let folder = CommandFolder()
    private let publicKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    private let secretKey = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
    private let secret = "0123456789abcdef0123456789abcdef"

    private func file(_ text: String, mode: UInt32 = 0o600) throws -> String {
        let path = try folder.file("cluster.toml", text)
        #expect(unsafe chmod(path, mode) == 0)
        return path
    }

    /// A file with all required keys, of which some have other lines.
    private func text(_ changes: [String: String] = [:], engine: String = "servers = [\"10.0.0.1:6379\"]") -> String {
        let usual = [
            ("name", "\"shop\""), ("secret", "\"\(secret)\""), ("node", "\"10.0.0.1:5766\""),
            ("public-key", "\"\(publicKey)\""), ("secret-key", "\"\(secretKey)\""),
        ]
        let extra = changes.keys.filter { key in !usual.contains { $0.0 == key } }
        return usual.map { "\($0.0) = \(changes[$0.0] ?? $0.1)\n" }.joined()
            + extra.map { "\($0) = \(changes[$0] ?? "")\n" }.joined() + "[engine]\n\(engine)\n"
    }

    @Test func `a file has the values of its lines`() throws {
        let engine = """
            sentinels = ["10.0.0.1:26379", "[::1]:26379", "unix:/run/sentinel"]
            primary = "earshot"
            user = "bus"
            password = "p \\" w"
            sentinel-password = "s"
            """
        let cluster = try ClusterFile(file(text(["listen": "\"0.0.0.0:5767\""], engine: engine)))
        #expect(cluster.name == "shop" && cluster.secret == secret)
        #expect("\(cluster.node)" == "10.0.0.1:5766")
        #expect(try cluster.listener().description == "tcp://0.0.0.0:5767")
        #expect(cluster.publicKey == publicKey && cluster.secretKey == secretKey)
        let sentinels = ["10.0.0.1:26379", "[::1]:26379", "unix:/run/sentinel"].compactMap { EngineAddress($0) }
        #expect(cluster.engine == .sentinels(sentinels, primary: "earshot"))
        #expect(cluster.login == EngineOptions.Login(user: "bus", password: "p \" w"))
        #expect(cluster.sentinelLogin == EngineOptions.Login(user: nil, password: "s"))
    }

    @Test func `a node listens at its own address unless the file has another`() throws {
        let cluster = try ClusterFile(file(text(["node": "\"[2001:DB8::1]:5766\""])))
        #expect(try cluster.listener().description == "tcp://[2001:db8::1]:5766")
    }

    @Test func `a node with a host name tells the others its address`() throws {
        let cluster = try ClusterFile(
            file(text(["node": "\"localhost:5766\""], engine: "servers = [\"redis.example:6379\"]")))
        #expect("\(cluster.node)" == "localhost:5766")
        #expect(["127.0.0.1:5766", "[::1]:5766"].contains(try cluster.membership().gatewayAddress))
        #expect(cluster.engine == .servers([EngineAddress("redis.example:6379")].compactMap(\.self)))
        let place = try #require(NodeEndpoint("nowhere.invalid:5766"))
        let commandError = #expect(throws: CommandError.self) {
            try place.resolvedAddress { (name) throws(HostName.Failure) in throw HostName.Failure(name, "not known") }
        }
        #expect(commandError?.description.contains("the host name nowhere.invalid does not resolve") == true)
        #expect(commandError?.status == .unknownHost)
    }

    @Test func `the membership has the engine and the place of the node`() throws {
        let membership = try ClusterFile(file(text(engine: "servers = [\"10.0.0.1:6379\"]\npassword = \"p\"")))
            .membership()
        #expect(membership.gatewayAddress == "10.0.0.1:5766")
        #expect(membership.engine.cluster == "shop")
        #expect(membership.engine.engineLocation == .servers([EngineAddress("10.0.0.1:6379")].compactMap(\.self)))
        #expect(membership.engine.login == EngineOptions.Login(user: nil, password: "p"))
        #expect(membership.engine.description.hasSuffix(" 10.0.0.1:5766"))
        let other = try ClusterFile(file(text(["secret": "\"\(secret)x\""]))).membership()
        #expect(
            membership.engine.keys.compatibilityCode(publicKey: "")
                != other.engine.keys.compatibilityCode(publicKey: ""))
    }

    @Test func `the gateway of nodes permits the key of the cluster alone`() throws {
        let path = try file(text())
        let keys = try ClusterFile(path).gatewayKeys(path)
        #expect(keys.secretKey == secretKey && keys.count == 1)
        let changed = try file(text(["public-key": "\"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\""]))
        let fault = #expect(throws: CommandError.self) { try ClusterFile(changed).gatewayKeys(changed) }
        #expect(fault?.description.contains("public-key does not belong to secret-key") == true)
    }

    @Test func `a new file is read as it was written`() throws {
        let node = try #require(NodeEndpoint("10.0.0.1:5766"))
        let login = EngineOptions.Login(user: "b\\us", password: "p\"w\n\u{e4}\u{1}")
        let server = try #require(EngineAddress("[::1]:6379"))
        for engine: EngineOptions.EngineLocation in [.servers([server]), .sentinels([server], primary: "earshot")] {
            let new = try ClusterFile(new: "shop", node: node, members: 3, engine: engine, login: login)
            let path = try file(new.text)
            #expect(try ClusterFile(path) == new)
            #expect(try ClusterFile(path).gatewayKeys(path).count == 1)
            #expect(new.secret.utf8.count == 64)
            #expect(try new.membership().memberCount == 3)
            let other = try ClusterFile(new: "shop", node: node, members: 1, engine: engine, login: nil)
            #expect(other.secret != new.secret)
            #expect(other.text.contains("\nmembers = 1\n"))
        }
    }

    @Test(arguments: [0o640, 0o604, 0o660, 0o777] as [UInt32])
    func `a file that others can read is refused`(_ mode: UInt32) throws {
        let path = try file(text(), mode: mode)
        let commandError = #expect(throws: CommandError.self) { try ClusterFile(path) }
        #expect(commandError?.status == .configurationError)
        #expect(commandError?.description.contains("chmod 600") == true)
    }

    @Test func `a file that only a group of the process reads is accepted`() throws {
        let path = try file(text(), mode: 0o440)
        #expect(unsafe chown(path, getuid(), getegid()) == 0)
        #expect(try ClusterFile(path).name == "shop")
        // Another group, which only root can set.
        guard getuid() == 0, unsafe chown(path, 0, 4_000_000_000) == 0 else { return }
        let commandError = #expect(throws: CommandError.self) { try ClusterFile(path) }
        #expect(commandError?.description.contains("chmod 600") == true)
    }

    @Test func `a missing file is a fault that names the command`() {
        let commandError = #expect(throws: CommandError.self) { try ClusterFile(folder.path + "/none.toml") }
        #expect(commandError?.status == .configurationError)
        #expect(commandError?.description.contains("earshot cluster new") == true)
    }

    @Test func `a fault names its place`() throws {
        let servers = "servers = [\"10.0.0.1:6379\"]"
        let sentinels = "sentinels = [\"10.0.0.1:26379\"]\n"
        let cases: [(text: String, part: String)] = [
            (text(["x": "1"]), "x: unknown key; use name"), (text(["name": "\"a b\""]), "name: must be 1 to 32"),
            (text(["name": "3"]), "name: must be 1 to 32"), (text(["secret": "\"short\""]), "secret: must be"),
            (text(["node": "\"10.0.0.1\""]), "node: must be"), (text(["node": "\"0.0.0.0:5766\""]), "node: must be"),
            (text(["node": "\"[::]:5766\""]), "node: must be"), (text(["node": "\"a b:5766\""]), "node: must be"),
            (text(["node": "\"10.0.0.1:0\""]), "node: must be"), (text(["node": "\"::1:5766\""]), "node: must be"),
            (text(["listen": "\"0.0.0.0\""]), "listen: must be"),
            (text(["public-key": "\"short\""]), "public-key: must be"),
            (text(["members": "0"]), "members: must be a number from 1 to 1024"),
            (text(["members": "\"3\""]), "members: must be a number from 1 to 1024"),
            (text(["secret-key": "1"]), "secret-key: must be"),
            (text(engine: "x = 1\n\(servers)"), "engine.x: unknown key; use servers"),
            (text(engine: ""), "engine.servers: give either"),
            (text(engine: "\(servers)\n\(sentinels)primary = \"a\""), "engine.servers: give either"),
            (text(engine: sentinels), "engine.primary: is missing"),
            (text(engine: "\(servers)\nprimary = \"a\""), "engine.primary: needs sentinels"),
            (text(engine: "\(sentinels)primary = \"a b\""), "engine.primary: must be"),
            (text(engine: "servers = []"), "engine.servers: must be"),
            (text(engine: "servers = \"10.0.0.1:6379\""), "engine.servers: must be"),
            (text(engine: "servers = [\"10.0.0:6379\"]"), "engine.servers: must be"),
            (text(engine: "\(servers)\nuser = \"a\""), "engine.password: is missing; user needs it"),
            (text(engine: "\(servers)\nsentinel-password = \"a\""), "engine.sentinel-password: needs sentinels"),
            (text(engine: "\(servers)\npassword = \"\""), "engine.password: must be"),
            ("name = \"shop\"\n", "secret: is missing"), ("name = 'a'\nengine = 3\n", "secret: is missing"),
            ("[engine\n", "line 1"),
        ]
        for (text, part) in cases {
            let path = try file(text)
            let commandError = #expect(throws: CommandError.self, "\(text)") { try ClusterFile(path) }
            #expect(commandError?.description.contains(part) == true, "\(commandError?.description ?? "-") for \(part)")
            #expect(commandError?.description.hasPrefix(path) == true)
            #expect(commandError?.status == .configurationError)
        }
        let path = try file(String(text().prefix { $0 != "[" }))
        let commandError = #expect(throws: CommandError.self) { try ClusterFile(path) }
        #expect(commandError?.description.contains("engine: is missing; add the table [engine]") == true)
    }

    @Test func `the configuration names the file of the cluster`() throws {
        let path = try folder.file("config.toml", "cluster = \"cluster.toml\"\nslots = 3\n")
        let configuration = Configuration(file: path, optionChanges: [], pool: ConfigurationOptions.pool)
        let cluster = try #require(try configuration.cluster())
        #expect(cluster.file == folder.path + "/cluster.toml" && cluster.source == path)
        #expect(try configuration.readSettings()[.slots] == 3)
        for text in ["cluster = 3", "cluster = \"\""] {
            let path = try folder.file("other.toml", text)
            let other = Configuration(file: path, optionChanges: [], pool: ConfigurationOptions.pool)
            let commandError = #expect(throws: CommandError.self) { try other.readSettings() }
            #expect(commandError?.description.contains("cluster must be the path") == true)
        }
        let none = try folder.file("none.toml", "slots = 3")
        #expect(try Configuration(file: none, optionChanges: [], pool: nil).cluster() == nil)
    }
}
