internal import ArgumentParser
internal import EarshotClient
internal import EarshotCluster
internal import EarshotGateway
internal import EarshotLoop
internal import Glibc

/// `earshot cluster check`: everything that a node needs, and advice for each fault.
struct ClusterCheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Check the set-up of a node, its engine and the other nodes.",
        discussion: """
            Tries the file of the cluster, host names, ports, logins, permissions, replicas, policies, clocks, version and \
            secret, and the other nodes, and gives the next step for each fault. Run it on each machine as the user of the \
            bus, with or without a running bus. It ends with 78 if there is a fault.

              earshot cluster check
              runuser -u earshot -- earshot cluster check /etc/earshot/cluster.toml
            """)

    /// File that `earshot cluster new --nodes` installs.
    private static let defaultFile = "/etc/earshot/cluster.toml"

    @Argument(
        help: ArgumentHelp(
            "File of the cluster. (default: the key cluster of the configuration file, or \(Self.defaultFile))",
            valueName: "file"),
        completion: .file())
    var file: String?

    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var settings: ConfigurationOptions

    func validate() throws { try PathCheck.check([("file", file)]) }

    func run() throws {
        try runAndExit {
            let configuration = Configuration(file: settings.file, optionChanges: [], pool: nil)
            let path = try file.map(Folder.absolutePath) ?? configuration.cluster()?.file ?? Self.defaultFile
            let findings = try Self.findings(path)
            try StandardOutput().write(
                format.json ? findings.flatMap(Self.reportJSON) : Array(Self.reportText(findings).utf8))
            return findings.contains { $0.level == .fault } ? .configurationError : .success
        }
    }

    // MARK: Findings

    private static func findings(_ path: String) throws -> [ClusterFinding] {
        var findings = accessFindings(path)
        let cluster: ClusterFile
        do throws(CommandError) {
            cluster = try ClusterFile(path)
            _ = try cluster.gatewayKeys(path)
        } catch {
            // A fault of the access is complete.
            if !findings.contains(where: { $0.level == .fault }) { findings.append(finding(error, path)) }
            return findings
        }
        if findings.isEmpty { findings.append(.good(path, "it is complete, and no other user has access")) }
        var place = cluster.node
        var address: GatewayAddress?
        do throws(CommandError) {
            let found = try cluster.node.resolvedAddress()
            place = .address(found)
            address = found
        } catch {
            findings.append(finding(error, "\(cluster.node)"))
        }
        let node = ClusterCheck.Node(
            advertisedAddress: "\(place)", address: address?.address, listensAtOtherAddress: cluster.listen != nil,
            members: cluster.members)
        let check = try ClusterCheck(cluster.engineOptions(place), node: node, clock: wallClockMilliseconds)
        return findings + check.run()
    }

    /// Checks the access to the file without reading it.
    private static func accessFindings(_ path: String) -> [ClusterFinding] {
        var status = stat()
        guard unsafe stat(ByteText.cString(path), &status) == 0 else { return [] }
        if unsafe Glibc.access(ByteText.cString(path), R_OK) != 0, errno == EACCES {
            return [
                .fault(
                    path, "this user may not read it: its owner is the user \(status.st_uid)",
                    do: "run the check as the user of the bus; if that is this user, run `chown` on the file")
            ]
        }
        do throws(CommandError) {
            try SecretFile.checkAccess(path, content: "secrets of the cluster", mayBeOfGroup: true)
        } catch {
            return [finding(error, path)]
        }
        guard geteuid() == 0 else { return [] }
        return [
            .warning(
                path, "its owner is the user \(status.st_uid), and root may read any file",
                do: "run the check as the user of the bus: runuser -u earshot -- earshot cluster check")
        ]
    }

    /// Returns the finding for a message of the form `SUBJECT: SENTENCE; ADVICE`.
    private static func finding(_ commandError: CommandError, _ subject: String) -> ClusterFinding {
        var text = Substring(commandError.description)
        if text.hasPrefix(subject + ": ") { text = text.dropFirst(subject.count + 2) }
        guard let end = text.lastIndex(of: ";") else {
            return .fault(subject, String(text), do: "correct the file, and restart the bus")
        }
        let advice = text[text.index(after: end)...].drop { $0 == " " }
        return .fault(subject, String(text[..<end]), do: String(advice))
    }

    private static func wallClockMilliseconds() -> Int {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_REALTIME, &time)
        return time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
    }

    // MARK: Output

    private static func reportText(_ findings: [ClusterFinding]) -> String {
        var rows: [[String]] = []
        for finding in findings {
            rows.append([
                finding.level == .fault ? "FAULT" : finding.level.rawValue, TerminalText.escaped(finding.subject),
                TerminalText.escaped(finding.sentence),
            ])
            if let advice = finding.advice { rows.append(["", "", "→ " + TerminalText.escaped(advice)]) }
        }
        let faults = findings.count { $0.level == .fault }
        let end = faults == 0 ? "no faults" : faults == 1 ? "1 fault" : "\(faults) faults"
        return TextTable(isPadded: true).text(rows) + end + "\n"
    }

    private static func reportJSON(_ finding: ClusterFinding) -> [UInt8] {
        var line = JSONLine()
        line.appendMember("level", finding.level.rawValue)
        line.appendMember("subject", finding.subject)
        line.appendMember("finding", finding.sentence)
        line.appendMember("advice", finding.advice)
        return line.finishedLine()
    }
}
