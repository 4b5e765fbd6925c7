internal import EarshotCore
public import EarshotLoop
internal import RESP

/// Check of everything that a node of a cluster needs: sentinels, servers, permissions, replicas, clocks, the other
/// nodes.
///
/// It blocks, and changes nothing but keys of its own.
public final class ClusterCheck {
    /// A node of the cluster, as the file of its machine describes it.
    public struct Node {
        /// Address at which other nodes reach it, as they see it.
        public let advertisedAddress: String
        /// Address without the port; nil if the host name of the node does not resolve.
        public let address: TCPSocket.Address?
        /// Whether it listens at another address, as behind a translation of addresses.
        public let listensAtOtherAddress: Bool
        /// Number of nodes in the file.
        public let members: Int

        public init(advertisedAddress: String, address: TCPSocket.Address?, listensAtOtherAddress: Bool, members: Int) {
            self.advertisedAddress = advertisedAddress
            self.address = address
            self.listensAtOtherAddress = listensAtOtherAddress
            self.members = members
        }
    }

    let options: EngineOptions
    let node: Node
    let loop: EventLoop
    /// Milliseconds since 1970 by the clock of this machine.
    let clock: () -> Int
    var findings: [ClusterFinding] = []
    /// Servers that sentinels know as replicas, including those that are down.
    private var knownReplicas: [EngineAddress] = []

    /// - Throws: `SystemError` if the process cannot have a loop.
    public init(_ options: EngineOptions, node: Node, clock: @escaping () -> Int) throws(SystemError) {
        self.options = options
        self.node = node
        self.clock = clock
        loop = try EventLoop()
    }

    /// Checks everything once, which takes some seconds for each address that does not answer.
    public func run() -> [ClusterFinding] {
        checkAddress()
        let primary =
            switch options.engineLocation {
            case .servers(let servers): primary(among: servers)
            case .sentinels(let sentinels, let name): findPrimary(bySentinels: sentinels, name: name)
            }
        if let primary {
            let connected = replicas(of: primary)
            let others = knownReplicas.filter { $0 != primary && !connected.contains($0) }
            for replica in connected + others { _ = checkServer(replica, isReplica: true) }
            if checkServer(primary, isReplica: false) { checkMembers(at: primary) }
        }
        return findings
    }

    func addFinding(_ finding: ClusterFinding) { findings.append(finding) }

    /// Adds the finding for an address that did not answer as it should.
    ///
    /// - Parameters:
    ///   - program: program that should answer, such as `redis-server`.
    ///   - keys: keys of the file with the login.
    func addFault(_ fault: EngineFault, at subject: String, of program: String, login keys: String) {
        switch fault {
        case .unreachable(let reason) where reason.contains("does not resolve"):
            addFinding(.fault(subject, reason, do: "correct the name here or in DNS, or give the address"))
        case .unreachable, .timedOut, .connectionClosed:
            let reason = if case .unreachable(let reason) = fault { reason } else { "no answer" }
            let port = subject.split(separator: ":").last ?? ""
            addFinding(
                .fault(
                    subject, "cannot connect: \(reason)",
                    do: "start \(program) there, and open tcp port \(port) in its firewall for this machine"))
        case .accessDenied:
            addFinding(
                .fault(
                    subject, "\(program) refused user or password",
                    do: "compare \(keys) in the file with the users there (users.acl or sentinel.conf), and restart "
                        + "the changed programs"))
        case .malformedReply:
            addFinding(.fault(subject, "the program there does not answer like Redis", do: "correct the address"))
        case .notPermitted(let subject):
            addFinding(.fault(subject, "the user may not use \(subject)", do: "give it the rules of docs/cluster.md"))
        default: addFinding(.fault(subject, "\(fault)", do: "read the log of \(program)"))
        }
    }

    // MARK: This node

    /// A copied file often has the address of another machine.
    private func checkAddress() {
        guard !node.listensAtOtherAddress, let address = node.address else { return }
        do throws(SystemError) {
            UnixSocket.close(try TCPSocket.listen(address, port: 0, backlog: 1).descriptor)
            if Self.isLoopback(address), node.members > 1 {
                addFinding(
                    .warning(
                        node.advertisedAddress, "`node` is an address of loopback, which other machines cannot reach",
                        do: "give the address that others use; a host name may have 127.0.1.1 in /etc/hosts"))
            } else {
                addFinding(.good(node.advertisedAddress, "`node` is an address of this machine"))
            }
        } catch {
            addFinding(
                .fault(
                    node.advertisedAddress, "`node` is no address of this machine",
                    do: "set `node` to its own address, or give `listen` if others reach it by a translated address"))
        }
    }

    private static func isLoopback(_ address: TCPSocket.Address) -> Bool {
        switch address {
        case .ipv4(let bytes): bytes.first == 127
        case .ipv6(let bytes, _): bytes == [UInt8](repeating: 0, count: 15) + [1]
        }
    }

    // MARK: The primary

    private func primary(among servers: [EngineAddress]) -> EngineAddress? {
        var primaries: [EngineAddress] = []
        var isComplete = true
        for server in servers {
            do throws(EngineFault) {
                let probe = try EngineProbe(server, login: options.login, on: loop)
                if try probe.serverInfo(section: "replication")["role"] == "master" { primaries.append(server) }
            } catch {
                isComplete = false
                addFault(error, at: server.description, of: "redis-server", login: "user and password")
            }
        }
        if primaries.count > 1 {
            let names = primaries.map(\.description).joined(separator: ", ")
            addFinding(
                .fault(
                    names, "each of these servers is a primary",
                    do: "make one the replica of the other with replicaof, or name one of them only"))
        } else if primaries.isEmpty, isComplete {
            addFinding(
                .fault(
                    servers.map(\.description).joined(separator: ", "), "no server is a primary, all are replicas",
                    do: "name the primary in `servers`, or use sentinels"))
        }
        return primaries.first
    }

    private func findPrimary(bySentinels sentinels: [EngineAddress], name: String) -> EngineAddress? {
        var found: [EngineAddress] = []
        var answers = 0
        for sentinel in sentinels {
            let subject = "sentinel \(sentinel)"
            do throws(EngineFault) {
                let probe = try EngineProbe(sentinel, login: options.sentinelLogin, on: loop)
                answers += 1
                guard let address = try primaryAddress(of: name, by: probe, subject) else { continue }
                if !found.contains(address) { found.append(address) }
                addReplicas(of: name, by: probe)
                checkSentinelQuorum(probe, name: name, subject: subject)
                checkAnonymousAccess(
                    sentinel, subject: subject,
                    danger: "a stranger can make himself the primary, and gets its passwords")
            } catch {
                addFault(error, at: subject, of: "redis-sentinel", login: "sentinel-user and sentinel-password")
            }
        }
        if answers * 2 <= sentinels.count, answers > 0 {
            addFinding(
                .fault(
                    "sentinels", "\(answers) of \(sentinels.count) answer, so none is elected to promote a replica",
                    do: "mend the faults of the others above"))
        }
        if found.count > 1 {
            addFinding(
                .fault(
                    found.map(\.description).joined(separator: ", "), "the sentinels disagree about the primary",
                    do: "wait until a failover has ended; otherwise give all of them the same `sentinel monitor`"))
        }
        return found.first
    }

    private func primaryAddress(
        of name: String, by probe: EngineProbe, _ subject: String
    ) throws(EngineFault) -> EngineAddress? {
        let reply = try probe.callThrowingErrors("SENTINEL", "get-master-addr-by-name", name)
        if let parts = reply.elements, parts.count == 2, let host = parts[0].text,
            let port = parts[1].text.flatMap({ UInt16($0) }), let address = EngineAddress(host: host, port: port)
        {
            addFinding(.good(subject, "the primary is \(address)"))
            return address
        }
        let known = (try? probe.callThrowingErrors("SENTINEL", "masters").elements ?? []) ?? []
        let names = known.compactMap { $0.elements?.dropFirst().first?.text }
        let list = names.isEmpty ? "none" : names.joined(separator: ", ")
        addFinding(
            .fault(
                subject, "it watches no primary named \(name), but \(list)",
                do: "set `primary` to the name in `sentinel monitor` of sentinel.conf"))
        return nil
    }

    private func addReplicas(of name: String, by probe: EngineProbe) {
        // A user of another set-up need not have this permission.
        for replica in (try? probe.callThrowingErrors("SENTINEL", "replicas", name).elements ?? []) ?? [] {
            let words = (replica.elements ?? []).map { $0.text ?? "" }
            func value(_ name: String) -> String? {
                words.firstIndex(of: name).flatMap { words.indices.contains($0 + 1) ? words[$0 + 1] : nil }
            }
            guard let host = value("ip"), let port = value("port").flatMap({ UInt16($0) }),
                let address = EngineAddress(host: host, port: port), !knownReplicas.contains(address)
            else { continue }
            knownReplicas.append(address)
        }
    }

    private func checkSentinelQuorum(_ probe: EngineProbe, name: String, subject: String) {
        do throws(EngineFault) { _ = try probe.callThrowingErrors("SENTINEL", "ckquorum", name) } catch {
            // A user of another set-up need not have this permission.
            if case .notPermitted = error { return }
            addFinding(
                .fault(
                    subject, "it does not see enough sentinels to promote a replica",
                    do: "open tcp port 26379 between the sentinels, and give all the same sentinel-pass"))
        }
    }

    /// Adds a warning if a server answers clients without a login.
    func checkAnonymousAccess(_ address: EngineAddress, subject: String, danger: String) {
        do throws(EngineFault) {
            _ = try EngineProbe(address, on: loop).callThrowingErrors("PING")
            addFinding(
                .warning(subject, "it answers without a password: \(danger)", do: "set `user default off` there"))
        } catch {}
    }
}

/// One result of a check of a cluster.
public struct ClusterFinding: Hashable, Sendable {
    /// Weight of a finding.
    public enum Level: String, Sendable {
        case good = "ok"
        /// The cluster works, but not as well as it could.
        case warning
        /// The node cannot be a member, or will not stay one.
        case fault
    }

    /// Weight.
    public let level: Level
    /// File, address or node that was checked.
    public let subject: String
    /// Observation.
    public let sentence: String
    /// Next step of the operator; nil for none.
    public let advice: String?

    /// A finding without a next step.
    public static func good(_ subject: String, _ sentence: String) -> ClusterFinding {
        ClusterFinding(level: .good, subject: subject, sentence: sentence, advice: nil)
    }

    /// A finding that the operator should mend.
    public static func warning(_ subject: String, _ sentence: String, do advice: String) -> ClusterFinding {
        ClusterFinding(level: .warning, subject: subject, sentence: sentence, advice: advice)
    }

    /// A finding that the operator must mend.
    public static func fault(_ subject: String, _ sentence: String, do advice: String) -> ClusterFinding {
        ClusterFinding(level: .fault, subject: subject, sentence: sentence, advice: advice)
    }

    private init(level: Level, subject: String, sentence: String, advice: String?) {
        self.level = level
        self.subject = subject
        self.sentence = sentence
        self.advice = advice
    }
}
