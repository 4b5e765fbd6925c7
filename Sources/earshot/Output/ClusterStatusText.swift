internal import EarshotClient

/// Answer to `QUERY cluster` as text: the node, its work, and the members of the cluster.
struct ClusterStatusText {
    /// Rows of a name and a value, and the table of members.
    let text: String

    init(_ answer: JSONValue) {
        guard let cluster = answer.member("cluster"), let mode = cluster.member("mode")?.scalarText, mode != "none"
        else {
            text = "This bus is on its own. See earshot-cluster(1) for a cluster of several.\n"
            return
        }
        func value(_ name: String) -> String { TerminalText.escaped(cluster.member(name)?.scalarText ?? "-") }
        func number(_ name: String) -> Int { cluster.integer(ofMember: name) ?? 0 }
        func count(_ name: String) -> Int { cluster.member("counts")?.integer(ofMember: name) ?? 0 }
        var rows: [[String]] = []
        rows.append(["mode", Self.modeSentence(mode, members: max(1, number("members-count")))])
        if cluster.member("reason") != nil { rows.append(["reason", value("reason")]) }
        for warning in cluster.items(ofMember: "warnings") {
            rows.append(["warning", TerminalText.escaped(warning.scalarText ?? "")])
        }
        rows.append(["node", "\(value("node")) at \(value("address"))"])
        if let shares = cluster.member("share-between-users")?.scalarText {
            rows.append([
                "sharing",
                shares == "true"
                    ? "requests that identify no user, of all users and remote clients"
                    : "requests of the bus's own user only; remote clients share with share-between-users = on",
            ])
        }
        if cluster.member("engine-latency-us") != nil {
            rows.append(["engine", "answers in \(Self.millisecondsText(number("engine-latency-us")))"])
            let flights = "\(number("flights")) flights wait or run, at \(number("origins")) origins"
            rows.append(["backlog", "\(flights), \(number("paused-origins")) of them paused"])
        }
        rows.append(["claims", "\(number("claims")) wait for the engine, \(number("running")) run here"])
        let (granted, hosted, uncoordinated) = (count("granted"), count("hosted"), count("uncoordinated"))
        let attempts = "\(granted) granted, \(hosted) of them for other nodes; \(uncoordinated) without the engine"
        rows.append(["attempts", attempts])
        rows.append(["results", "\(count("results")) from other nodes"])
        let bytes = ByteSize.text(Double(count("pulled-bytes")))
        let (pulled, missed, served, held) = (count("pulled"), count("missed"), count("served"), number("held-bodies"))
        let bodies = "\(pulled) read from other nodes (\(bytes)), \(missed) missed, \(served) served; \(held) held"
        rows.append(["bodies", bodies])
        text = TextTable(isPadded: true).text(rows) + Self.membersText(cluster)
    }

    private static func modeSentence(_ mode: String, members: Int) -> String {
        switch mode {
        case "member": "member"
        case "waiting": "waiting for the engine; in 5 s the node fetches without it"
        case "alone": "alone: the node fetches without the engine, with 1/\(members) of each origin's limit"
        default: TerminalText.escaped(mode)
        }
    }

    private static func millisecondsText(_ microseconds: Int) -> String {
        let tenths = min(max(0, microseconds), 1_000_000_000_000) / 100
        return "\(tenths / 10).\(tenths % 10) ms"
    }

    private static func memberNote(on member: JSONValue) -> String {
        if member.member("self")?.scalarText == "true" { return "this node" }
        return member.member("readable")?.scalarText == "false" ? "bodies cannot be read" : ""
    }

    private static func membersText(_ cluster: JSONValue) -> String {
        let members = cluster.items(ofMember: "members")
        guard !members.isEmpty else { return "" }
        var rows = [["NODE", "MACHINE", "ADDRESS", "LEASE", "FLIGHTS", ""]]
        for member in members {
            let lease = min(member.integer(ofMember: "lease-ms") ?? 0, 1_000_000)
            rows.append([
                TerminalText.escaped(member.member("node")?.scalarText ?? ""),
                TerminalText.escaped(member.member("machine")?.scalarText ?? "-"),
                TerminalText.escaped(member.member("address")?.scalarText ?? ""),
                lease > 0 ? millisecondsText(lease * 1_000).replacing(".0 ms", with: " ms") : "expired",
                TerminalText.escaped(member.member("flights")?.scalarText ?? ""),
                memberNote(on: member),
            ])
        }
        return "\n" + TextTable(isPadded: true).text(rows)
    }
}
