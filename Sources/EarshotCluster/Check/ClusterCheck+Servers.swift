internal import EarshotCore
internal import EarshotLoop
internal import RESP

/// Servers of the engine, and the nodes that are members at the primary.
extension ClusterCheck {
    /// Deviation of a clock from which leases and pauses are wrong after a failover, in milliseconds.
    private static let maximumClockDeviationMilliseconds = 5_000
    private static let loginSettingNames = "user and password"

    /// Returns the replicas that the primary names.
    func replicas(of primary: EngineAddress) -> [EngineAddress] {
        guard let probe = try? EngineProbe(primary, login: options.login, on: loop),
            let info = try? probe.serverInfo(section: "replication")
        else { return [] }
        return info.replicas.compactMap { host, port in
            UInt16(port).flatMap { EngineAddress(host: String(host), port: $0) }
        }
    }

    /// Checks one server. Returns whether it has no fault.
    func checkServer(_ server: EngineAddress, isReplica: Bool) -> Bool {
        let subject = "\(isReplica ? "replica" : "primary") \(server)"
        let before = findings.count
        do throws(EngineFault) {
            let probe = try EngineProbe(server, login: options.login, on: loop)
            try checkClock(probe, subject)
            try checkRole(probe, subject, isReplica: isReplica)
            try checkMemory(probe, subject)
            checkAnonymousAccess(server, subject: subject, danger: "a stranger can forge results")
            try checkPermissions(probe, subject)
        } catch {
            addFault(error, at: subject, of: "redis-server", login: Self.loginSettingNames)
        }
        if findings.count == before { addFinding(.good(subject, "login, permissions, policy and clock are right")) }
        return !findings[before...].contains { $0.level == .fault }
    }

    private func checkRole(_ probe: EngineProbe, _ subject: String, isReplica: Bool) throws(EngineFault) {
        let values = try probe.serverInfo(section: "replication")
        guard values["role"] == (isReplica ? "slave" : "master") else {
            let role = isReplica ? "it is a primary itself" : "it is a replica"
            return addFinding(.fault(subject, role, do: "wait until a failover has ended; otherwise correct `primary`"))
        }
        if isReplica {
            if values["master_link_status"] != "up" {
                addFinding(
                    .fault(
                        subject, "it has no connection to its primary",
                        do: "compare masteruser and masterauth with the rules of users at the primary"))
            }
            return
        }
        guard options.expectsReplicas else { return }
        if values["connected_slaves"] == "0" {
            addFinding(
                .fault(
                    subject, "it has no replica, so it refuses writes or loses them",
                    do: "start the other servers with replicaof, masteruser and masterauth, and open tcp port 6379"))
        }
        if values.allowsWritesWithoutReplicas(expected: true) {
            addFinding(.warning(subject, "it accepts writes without a replica", do: "set min-replicas-to-write 1"))
        }
    }

    private func checkMemory(_ probe: EngineProbe, _ subject: String) throws(EngineFault) {
        let values = try probe.serverInfo(section: "memory")
        guard let policy = values["maxmemory_policy"], policy != "noeviction" else { return }
        let advice = "set maxmemory-policy noeviction"
        if values.evictsKeys {
            addFinding(.fault(subject, "it evicts keys (\(policy)), and nodes refuse that", do: advice))
        } else {
            addFinding(
                .warning(subject, "its policy is \(policy), which a limit of its memory would apply", do: advice))
        }
    }

    private func checkClock(_ probe: EngineProbe, _ subject: String) throws(EngineFault) {
        let start = clock()
        let reply = try probe.callThrowingErrors("TIME")
        guard let seconds = Self.secondsSince1970(fromReply: reply) else { throw .malformedReply }
        let deviation = seconds * 1_000 + 500 - (start + clock()) / 2
        guard abs(deviation) > Self.maximumClockDeviationMilliseconds else { return }
        let direction = deviation > 0 ? "ahead of" : "behind"
        addFinding(
            .fault(
                subject, "its clock is \(abs(deviation) / 1_000) s \(direction) that of this machine",
                do: "synchronize both clocks, for example with chrony or systemd-timesyncd"))
    }

    /// Seconds since 1970 of a reply to TIME; nil for any other reply.
    private static func secondsSince1970(fromReply reply: Reply) -> Int? {
        reply.elements?.first?.text.flatMap { Int($0) }.flatMap { (0...1 << 40).contains($0) ? $0 : nil }
    }

    /// Tries each command, since a user may not read its own rules.
    private func checkPermissions(_ probe: EngineProbe, _ subject: String) throws(EngineFault) {
        var missing: [String] = []
        for command in EngineRules.samples(in: EngineNames(cluster: options.cluster)) {
            guard case .error(let text) = try probe.reply(to: command) else { continue }
            switch EngineFault(error: text, isAuthentication: false) {
            case .notPermitted(let part): if !missing.contains(part) { missing.append(part) }
            case .refusesWrites(let word):
                if !findings.contains(where: { $0.subject == subject && $0.level == .fault }) {
                    addFinding(.fault(subject, "it refuses writes (\(word))", do: Self.advice(word)))
                }
            default: break
            }
        }
        guard !missing.isEmpty else { return }
        addFinding(
            .fault(
                subject, "the user may not use: \(missing.joined(separator: ", "))",
                do: "give it these rules, and run ACL LOAD: \(EngineRules.nodeRules(cluster: options.cluster))"))
    }

    private static func advice(_ word: String) -> String {
        switch word {
        case "NOREPLICAS": "start the replicas, or mend their connection to the primary"
        case "OOM": "raise maxmemory"
        default: "read the log of redis-server"
        }
    }

    // MARK: Nodes

    /// A node with a lease.
    private struct Member {
        let id: String
        let machine: String
        let advertisedAddress: String
    }

    func checkMembers(at primary: EngineAddress) {
        do throws(EngineFault) {
            let probe = try EngineProbe(primary, login: options.login, on: loop)
            guard try checkMemberVersions(probe) else { return }
            var members = try fetchMembers(probe)
            if Set(members.map(\.advertisedAddress)).count < members.count {
                // A broker that was killed and started again has two leases until the first one ends.
                _ = try? loop.run(for: .milliseconds(EngineLimits.leaseMilliseconds + 500)) { false }
                members = try fetchMembers(probe)
            }
            checkMemberCount(members)
        } catch {
            addFault(error, at: "primary \(primary)", of: "redis-server", login: Self.loginSettingNames)
        }
    }

    /// Returns whether the members have the same version and secret, or there is none.
    private func checkMemberVersions(_ probe: EngineProbe) throws(EngineFault) -> Bool {
        let names = EngineNames(cluster: options.cluster)
        guard let text = try probe.callThrowingErrors("GET", names.version).text else {
            addFinding(
                .warning("cluster \(options.cluster)", "no node is a member", do: "start the bus on each machine"))
            return false
        }
        guard text != EngineScript.compatibilityText(options) else { return true }
        let version = text.prefix { $0 != " " }
        if version == String(EngineScript.scriptVersion) {
            addFinding(
                .fault(
                    "cluster \(options.cluster)", "the members have another secret or key pair than this file",
                    do: "copy secret, public-key and secret-key from the file of a member, and restart this node"))
        } else {
            addFinding(
                .fault(
                    "cluster \(options.cluster)",
                    "the members run scripts of version \(version), this program \(EngineScript.scriptVersion)",
                    do: "install the same version of Earshot on all machines"))
        }
        return false
    }

    private func fetchMembers(_ probe: EngineProbe) throws(EngineFault) -> [Member] {
        let prefix = EngineNames(cluster: options.cluster).prefix
        guard let time = Self.secondsSince1970(fromReply: try probe.callThrowingErrors("TIME")),
            let live = try probe.callThrowingErrors("ZRANGEBYSCORE", "\(prefix)nodes", String(time * 1_000), "+inf")
                .elements
        else { throw .malformedReply }
        var members: [Member] = []
        for id in live.compactMap(\.text) {
            let words = (try probe.callThrowingErrors("GET", "\(prefix)i:\(id)").text ?? "").split(separator: " ")
            guard words.count > 1 else { continue }
            members.append(Member(id: id, machine: String(words[0]), advertisedAddress: String(words[1])))
        }
        return members
    }

    private func checkMemberCount(_ members: [Member]) {
        let count = Set(members.map(\.advertisedAddress)).count
        if members.count > node.members {
            addFinding(
                .fault(
                    "members = \(node.members)",
                    "\(members.count) nodes are members: without the engine, each takes too large a part of a limit",
                    do: "set members = \(members.count) in the file of each node, and restart it"))
        } else if count < node.members {
            addFinding(
                .warning(
                    "members = \(node.members)", count == 1 ? "1 node is a member" : "\(count) nodes are members",
                    do: "start the others, and run `earshot cluster check` there"))
        } else {
            addFinding(.good("members = \(node.members)", "all are members"))
        }
        let machine = options.description.prefix { $0 != " " }
        for (place, same) in Dictionary(grouping: members, by: \.advertisedAddress).sorted(by: { $0.key < $1.key }) {
            let others = same.map(\.machine).filter { $0 != machine }
            if same.count > 1 || place == node.advertisedAddress && !others.isEmpty {
                let machines = same.map(\.machine).joined(separator: " and ")
                addFinding(
                    .fault(
                        "node \(place)", "it is the address of \(machines), and this file is that of \(machine)",
                        do: "set `node` in the file of each machine to its own address, and restart them"))
            }
            checkBodyPort(at: place)
        }
        if !members.contains(where: { $0.advertisedAddress == node.advertisedAddress }) {
            addFinding(
                .warning(
                    "node \(node.advertisedAddress)", "this node is no member",
                    do: "start its bus, and read the reason in `earshot cluster`"))
        }
    }

    /// Tries the port of a node at which others read bodies.
    private func checkBodyPort(at place: String) {
        guard let address = EngineAddress(place) else { return }
        do throws(EngineFault) {
            _ = try EngineProbe(address, on: loop)
            addFinding(.good("node \(place)", "its port for bodies is open"))
        } catch {
            addFault(error, at: "node \(place)", of: "the bus", login: "")
        }
    }
}
