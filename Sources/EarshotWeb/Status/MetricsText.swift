internal import EarshotClient
internal import EarshotHTTP

/// Metrics in Prometheus's text format 0.0.4.
struct MetricsText {
    /// Media type of the format.
    static let mediaType = "text/plain; version=0.0.4; charset=utf-8"

    private(set) var text = ""

    /// Returns the metrics of a broker; for nil, only that no broker answers.
    static func text(of state: BrokerState?) -> String {
        var metrics = MetricsText()
        metrics.addMetric(
            "earshot_up", type: "gauge", help: "Whether a broker answers.", value: state == nil ? "0" : "1")
        metrics.addMetric(
            "earshot_ready", type: "gauge", help: "Whether the bus accepts requests: see /readyz.",
            value: state.map { $0.unreadiness == nil ? "1" : "0" } ?? "0")
        if let state { metrics.addMetrics(of: state) }
        return metrics.text
    }

    private mutating func addMetrics(of state: BrokerState) {
        beginMetric(
            "earshot_broker_info", type: "gauge",
            help: "Instance of the broker. A new instance begins all counters at 0.")
        addSample("earshot_broker_info", labels: ["broker": state["broker"]?.scalarText ?? ""], value: "1")
        addCounters(of: state)
        addGauges(of: state)
        addWorkers(state.arrayItems("workers"))
        addFaults(of: state)
        if let door = state["http"] { add(door: door) }
        if let cluster = state["cluster"] { add(cluster: cluster) }
        for (member, name, help) in Self.histogramDefinitions {
            addHistogram(state["times"], member: member, name: name, help: help)
        }
    }

    // MARK: Tables

    /// Counters: object and member of the status, name, and help.
    private static let counterDefinitions = [
        ("requests", "submitted", "requests_submitted", "Requests submitted; a repetition does not count."),
        ("flights", "started", "flights_started", "Flights: fetches that equal requests share."),
        ("flights", "joined", "requests_coalesced", "Requests that joined an existing flight."),
        ("flights", "assigned", "attempts_assigned", "Attempts assigned to workers."),
        ("flights", "cancelled", "attempts_cancelled", "Running attempts cancelled without remaining requests."),
        ("flights", "retried", "attempts_retried", "Attempts repeated after a failure."),
        ("flights", "lost", "attempts_lost", "Attempts lost with their worker."),
        ("flights", "stale", "attempts_stale", "Completions of ended attempts, which were dropped."),
        ("flights", "bytes", "transfer_bytes", "Decoded body bytes of transfers that ended flights."),
        ("flights", "bytes-unwanted", "unwanted_bytes", "Body bytes received after a cancellation."),
        ("flights", "cool-downs", "origin_cool_downs", "Cool-downs of origins after status 429 or 503."),
        ("cache", "lookups", "cache_lookups", "Flights with a lookup in the cache."),
        ("cache", "used", "cache_hits", "Responses used without a request to the server."),
        ("cache", "validated", "cache_validations", "Stored responses that a server confirmed."),
        ("cache", "stored", "cache_stores", "Responses passed to the cache."),
        ("parts", "stored", "parts_stored", "Partial bodies kept for later requests."),
        ("parts", "resumed", "parts_resumed", "Partial bodies of earlier requests that attempts resumed."),
        ("parts", "bytes-resumed", "parts_resumed_bytes", "Bytes of these bodies, which were not transferred again."),
    ]

    private static let histogramDefinitions = [
        ("wait", "earshot_request_wait_seconds", "Time from a request to the start of the attempt with its response."),
        ("transfer", "earshot_transfer_seconds", "Time of an attempt whose response ended a flight."),
        ("total", "earshot_request_seconds", "Time from a request to its outcome."),
    ]

    /// Causes of failures. Removed and cancelled requests do not count as failed.
    private static let failureCauses = FailureCode.allCases
        .filter { $0 != .handlerRemoved && $0 != .cancelled }
        .map(\.rawValue)

    private mutating func addCounters(of state: BrokerState) {
        for (object, member, name, help) in Self.counterDefinitions {
            guard let value = state[object]?.member(member)?.scalarText else { continue }
            addMetric("earshot_\(name)_total", type: "counter", help: help, value: value)
        }
        let requests = state["requests"]
        beginMetric("earshot_requests_total", type: "counter", help: "Requests that ended, by state.")
        for name in ["answered", "removed", "orphaned"] {
            addSample(
                "earshot_requests_total", labels: ["state": name], value: requests?.member(name)?.scalarText ?? "0")
        }
        let failures = Self.objectMembers(requests?.member("failed"))
        let failed = failures.reduce(0) { $0 + (Int($1.value.scalarText ?? "") ?? 0) }
        addSample("earshot_requests_total", labels: ["state": "failed"], value: "\(failed)")
        beginMetric(
            "earshot_requests_failed_total", type: "counter",
            help: "Requests that failed, by cause: protocols/8-codes.md.")
        // A series must exist before its first failure, because `increase()` ignores the value with which one begins.
        var counts = Dictionary(uniqueKeysWithValues: Self.failureCauses.map { ($0, "0") })
        for failure in failures { counts[failure.name] = failure.value.scalarText }
        for (cause, count) in counts.sorted(by: { $0.key < $1.key }) {
            addSample("earshot_requests_failed_total", labels: ["cause": cause], value: count)
        }
        let deliveries = state["deliveries"]
        addMetric(
            "earshot_deliveries_due_total", type: "counter", help: "Deliveries of terminals to clients.",
            value: deliveries?.member("due"))
        beginMetric("earshot_deliveries_total", type: "counter", help: "Deliveries of terminals that ended, by state.")
        for name in ["acknowledged", "lost"] {
            addSample(
                "earshot_deliveries_total", labels: ["state": name], value: deliveries?.member(name)?.scalarText ?? "0")
        }
    }

    private mutating func addGauges(of state: BrokerState) {
        let requests = state["requests"]
        if let pending = requests?.integer(ofMember: "pending") {
            let kept = requests?.integer(ofMember: "failed-kept") ?? 0
            addMetric(
                "earshot_requests_pending", type: "gauge", help: "Requests that have not ended.",
                value: "\(pending - kept)")
        }
        addMetric(
            "earshot_deliveries_outstanding", type: "gauge", help: "Deliveries without an acknowledgement.",
            value: state["deliveries"]?.member("outstanding"))
        addMetric(
            "earshot_parts", type: "gauge", help: "Partial bodies in the folder of parts.",
            value: state["parts"]?.member("count"))
        addMetric(
            "earshot_parts_bytes", type: "gauge", help: "Bytes of these bodies.",
            value: state["parts"]?.member("bytes"))
        addMetric("earshot_clients", type: "gauge", help: "Connected clients.", value: state["clients"])
        addMetric(
            "earshot_clients_away", type: "gauge", help: "Disconnected clients with a lease.",
            value: state["clients-away"])
        addMetric(
            "earshot_handlers", type: "gauge", help: "Handlers with requests or subscribers.", value: state["handlers"])
        beginMetric("earshot_draining", type: "gauge", help: "Whether the broker is draining.")
        addSample("earshot_draining", labels: [:], value: state["phase"]?.scalarText == "draining" ? "1" : "0")
        addFamily(
            "earshot_queue_requests", help: "Queued requests, by class.", label: "class",
            members: Self.objectMembers(state["queue"]))
        addFamily(
            "earshot_flights", help: "Flights, by phase.", label: "phase",
            members: Self.objectMembers(state["flights-now"]))
    }

    private mutating func addWorkers(_ workers: [JSONValue]) {
        beginMetric("earshot_workers", type: "gauge", help: "Workers, by phase.")
        for phase in ["joining", "ready", "draining"] {
            let count = workers.count { $0.member("phase")?.scalarText == phase }
            addSample("earshot_workers", labels: ["phase": phase], value: "\(count)")
        }
        for (member, name, help) in [
            ("slots", "earshot_worker_slots", "Transfers that all workers can run at once."),
            ("running", "earshot_worker_transfers", "Transfers that all workers run."),
            ("cancelling", "earshot_worker_cancellations", "Transfers being cancelled."),
        ] {
            let sum = workers.reduce(0) { $0 + (Int($1.member(member)?.scalarText ?? "") ?? 0) }
            addMetric(name, type: "gauge", help: help, value: "\(sum)")
        }
    }

    private mutating func add(door: JSONValue) {
        for (member, name, type, help) in [
            ("connections", "connections", "gauge", "Connections of clients of the HTTP door."),
            ("requests", "requests_total", "counter", "Requests to the HTTP door."),
            ("refused", "refused_total", "counter", "Connections and requests that the HTTP door refused."),
        ] {
            beginMetric("earshot_http_" + name, type: type, help: help)
            addSample("earshot_http_" + name, labels: [:], value: door.member(member)?.scalarText ?? "0")
        }
    }

    private mutating func addFaults(of state: BrokerState) {
        beginMetric(
            "earshot_place_lost", type: "gauge",
            help: "Whether a folder or socket of the broker is missing, since it was first lost.")
        for fault in state.arrayItems("faults") {
            let isLost = fault.member("state")?.scalarText == "lost"
            let labels = [
                "place": fault.member("place")?.scalarText ?? "", "path": fault.member("path")?.scalarText ?? "",
            ]
            addSample("earshot_place_lost", labels: labels, value: isLost ? "1" : "0")
        }
        beginMetric(
            "earshot_crash_loops", type: "gauge",
            help: "Places for child processes that die soon after each start, by role.")
        for role in ["broker", "worker", "gateway", "node-gateway", "puller", "http"] {
            let count = state.arrayItems("failing").count { $0.member("role")?.scalarText == role }
            addSample("earshot_crash_loops", labels: ["role": role], value: "\(count)")
        }
    }

    /// Counters of a node of a cluster: member, name and help.
    private static let clusterCounterDefinitions = [
        ("granted", "cluster_attempts_granted", "Flights that the engine let this node run."),
        ("hosted", "cluster_attempts_hosted", "Of these, flights that only other nodes wanted."),
        ("results", "cluster_results", "Results that this node got from other nodes."),
        ("pulled", "cluster_bodies_read", "Bodies that this node read from other nodes."),
        ("pulled-bytes", "cluster_bytes_read", "Bytes of bodies that this node read from other nodes."),
        (
            "missed", "cluster_bodies_missed",
            "Bodies that this node could not read, so that their URLs were claimed again."
        ),
        ("served", "cluster_bodies_served", "Bodies that other nodes read from this one."),
        ("uncoordinated", "cluster_attempts_uncoordinated", "Attempts that ran without the engine."),
        ("stale", "cluster_attempts_stale", "Ends of attempts whose flights other nodes had taken over."),
        ("losses", "cluster_membership_losses", "Ends of this node's membership."),
    ]

    private mutating func add(cluster: JSONValue) {
        beginMetric(
            "earshot_cluster_mode", type: "gauge",
            help: "Mode of the node: member, waiting for the engine, or alone without it.")
        for mode in ["member", "waiting", "alone"] {
            addSample(
                "earshot_cluster_mode", labels: ["mode": mode],
                value: cluster.member("mode")?.scalarText == mode ? "1" : "0")
        }
        addMetric(
            "earshot_cluster_members", type: "gauge", help: "Members of the cluster.",
            value: cluster.member("members-count"))
        addMetric(
            "earshot_cluster_unreadable_nodes", type: "gauge", help: "Nodes whose bodies this node cannot read.",
            value: cluster.member("unreadable-nodes"))
        if case .array(let warnings)? = cluster.member("warnings") {
            let help = "Warnings of the node, as earshot cluster lists them."
            addMetric("earshot_cluster_warnings", type: "gauge", help: help, value: "\(warnings.count)")
        }
        if case .array(let reasons)? = cluster.member("suspended") {
            let help = "Whether the node runs no flights of other nodes."
            addMetric("earshot_cluster_suspended", type: "gauge", help: help, value: reasons.isEmpty ? "0" : "1")
        }
        addMetric(
            "earshot_cluster_claims", type: "gauge", help: "Flights that wait for the engine.",
            value: cluster.member("claims"))
        addMetric(
            "earshot_cluster_held_bodies", type: "gauge", help: "Bodies held for other nodes.",
            value: cluster.member("held-bodies"))
        addMetric(
            "earshot_cluster_flights", type: "gauge", help: "Flights of all nodes that wait in the engine or run.",
            value: cluster.member("flights"))
        if let latency = cluster.integer(ofMember: "engine-latency-us") {
            addMetric(
                "earshot_cluster_engine_seconds", type: "gauge", help: "Latest response time of the engine.",
                value: Self.secondsText(microseconds: latency))
        }
        for (member, name, help) in Self.clusterCounterDefinitions {
            guard let value = cluster.member("counts")?.member(member)?.scalarText else { continue }
            addMetric("earshot_\(name)_total", type: "counter", help: help, value: value)
        }
    }

    private mutating func addHistogram(_ times: JSONValue?, member: String, name: String, help: String) {
        let bounds = times?.integers(ofMember: "bounds-us") ?? []
        let buckets = times?.member(member)?.integers(ofMember: "buckets") ?? []
        guard buckets.count == bounds.count + 1,
            let sum = Int(times?.member(member)?.member("sum-us")?.scalarText ?? "")
        else { return }
        beginMetric(name, type: "histogram", help: help)
        var count = 0
        for (bucket, bound) in zip(buckets, bounds.map { Self.secondsText(microseconds: $0) } + ["+Inf"]) {
            count += bucket
            addSample("\(name)_bucket", labels: ["le": bound], value: "\(count)")
        }
        addSample("\(name)_sum", labels: [:], value: Self.secondsText(microseconds: sum))
        addSample("\(name)_count", labels: [:], value: "\(count)")
    }

    // MARK: Format

    private mutating func addMetric(_ name: String, type: String, help: String, value: JSONValue?) {
        guard let text = value?.scalarText else { return }
        addMetric(name, type: type, help: help, value: text)
    }

    private mutating func addMetric(_ name: String, type: String, help: String, value: String) {
        beginMetric(name, type: type, help: help)
        addSample(name, labels: [:], value: value)
    }

    private mutating func addFamily(_ name: String, help: String, label: String, members: [JSONValue.Member]) {
        beginMetric(name, type: "gauge", help: help)
        for member in members { addSample(name, labels: [label: member.name], value: member.value.scalarText ?? "0") }
    }

    private mutating func beginMetric(_ name: String, type: String, help: String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }

    private mutating func addSample(_ name: String, labels: [String: String], value: String) {
        // A value that is no number would make the whole answer unreadable.
        guard Double(value) != nil else { return }
        let list = labels.sorted { $0.key < $1.key }.map { "\($0.key)=\"\(Self.escapedLabelValue($0.value))\"" }
        text += name + (list.isEmpty ? "" : "{\(list.joined(separator: ","))}") + " \(value)\n"
    }

    /// Escapes by scalars, because a combining mark would hide the character before it.
    private static func escapedLabelValue(_ text: String) -> String {
        var escaped = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\\", "\"": escaped.append(contentsOf: ["\\", scalar])
            case "\n": escaped.append(contentsOf: ["\\", "n"])
            default: escaped.append(scalar)
            }
        }
        return String(escaped)
    }

    /// A number of microseconds as seconds, without rounding.
    static func secondsText(microseconds: Int) -> String {
        let (whole, part) = microseconds.quotientAndRemainder(dividingBy: 1_000_000)
        guard part > 0 else { return "\(whole)" }
        var digits = String(String(1_000_000 + part).dropFirst())
        while digits.hasSuffix("0") { digits.removeLast() }
        return "\(whole).\(digits)"
    }

    private static func objectMembers(_ value: JSONValue?) -> [JSONValue.Member] {
        guard case .object(let members)? = value else { return [] }
        return members
    }
}
