internal import EarshotClient
internal import EarshotHTTP

/// Metrics in Prometheus's text format 0.0.4.
struct MetricsText {
    /// Media type of the format.
    static let type = "text/plain; version=0.0.4; charset=utf-8"

    private(set) var text = ""

    /// Returns the metrics of a broker; for nil only that none answers.
    static func text(of state: BrokerState?) -> String {
        var metrics = MetricsText()
        metrics.add("earshot_up", "gauge", "Whether a broker answers.", state == nil ? "0" : "1")
        metrics.add(
            "earshot_ready", "gauge", "Whether the bus accepts requests: see /readyz.",
            state.map { $0.unreadiness == nil ? "1" : "0" } ?? "0")
        if let state { metrics.add(state) }
        return metrics.text
    }

    private mutating func add(_ state: BrokerState) {
        begin("earshot_broker_info", "gauge", "Instance of the broker. A new instance begins all counters at 0.")
        sample("earshot_broker_info", ["broker": state["broker"]?.text ?? ""], "1")
        addCounters(of: state)
        addGauges(of: state)
        addWorkers(state.items("workers"))
        addFaults(of: state)
        if let door = state["http"] { add(door: door) }
        if let cluster = state["cluster"] { add(cluster: cluster) }
        for (member, name, help) in Self.histograms { addHistogram(state["times"], member, name, help) }
    }

    // MARK: Tables

    /// Counters: object and member of the status, name, and help.
    private static let counters = [
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
        ("cache", "asked", "cache_lookups", "Flights with a lookup in the cache."),
        ("cache", "used", "cache_hits", "Responses used without a request to the server."),
        ("cache", "validated", "cache_validations", "Stored responses that a server confirmed."),
        ("cache", "stored", "cache_stores", "Responses passed to the cache."),
        ("parts", "stored", "parts_stored", "Partial bodies kept for later requests."),
        ("parts", "resumed", "parts_resumed", "Partial bodies of earlier requests that attempts resumed."),
        ("parts", "bytes-resumed", "parts_resumed_bytes", "Bytes of these bodies, which were not transferred again."),
    ]

    private static let histograms = [
        ("wait", "earshot_request_wait_seconds", "Time from a request to the start of the attempt with its response."),
        ("transfer", "earshot_transfer_seconds", "Time of an attempt whose response ended a flight."),
        ("total", "earshot_request_seconds", "Time from a request to its outcome."),
    ]

    /// Causes of failures. Removed and cancelled requests do not count as failed.
    private static let causes = FailureCode.allCases.filter { $0 != .removed && $0 != .cancelled }.map(\.rawValue)

    private mutating func addCounters(of state: BrokerState) {
        for (object, member, name, help) in Self.counters {
            guard let value = state[object]?.member(member)?.text else { continue }
            add("earshot_\(name)_total", "counter", help, value)
        }
        let requests = state["requests"]
        begin("earshot_requests_total", "counter", "Requests that ended, by state.")
        for name in ["answered", "removed", "orphaned"] {
            sample("earshot_requests_total", ["state": name], requests?.member(name)?.text ?? "0")
        }
        let failures = Self.members(requests?.member("failed"))
        let failed = failures.reduce(0) { $0 + (Int($1.value.text ?? "") ?? 0) }
        sample("earshot_requests_total", ["state": "failed"], "\(failed)")
        begin("earshot_requests_failed_total", "counter", "Requests that failed, by cause: protocols/8-codes.md.")
        // A series must exist before its first failure, because `increase()` ignores the value with which one begins.
        var counts = Dictionary(uniqueKeysWithValues: Self.causes.map { ($0, "0") })
        for failure in failures { counts[failure.name] = failure.value.text }
        for (cause, count) in counts.sorted(by: { $0.key < $1.key }) {
            sample("earshot_requests_failed_total", ["cause": cause], count)
        }
        let deliveries = state["deliveries"]
        add("earshot_deliveries_due_total", "counter", "Deliveries of terminals to clients.", deliveries?.member("due"))
        begin("earshot_deliveries_total", "counter", "Deliveries of terminals that ended, by state.")
        for name in ["acknowledged", "lost"] {
            sample("earshot_deliveries_total", ["state": name], deliveries?.member(name)?.text ?? "0")
        }
    }

    private mutating func addGauges(of state: BrokerState) {
        let requests = state["requests"]
        if let pending = requests?.number("pending") {
            let kept = requests?.number("failed-kept") ?? 0
            add("earshot_requests_pending", "gauge", "Requests that have not ended.", "\(pending - kept)")
        }
        add(
            "earshot_deliveries_outstanding", "gauge", "Deliveries without an acknowledgement.",
            state["deliveries"]?.member("outstanding"))
        add("earshot_parts", "gauge", "Partial bodies in the folder of parts.", state["parts"]?.member("count"))
        add("earshot_parts_bytes", "gauge", "Bytes of these bodies.", state["parts"]?.member("bytes"))
        add("earshot_clients", "gauge", "Connected clients.", state["clients"])
        add("earshot_clients_away", "gauge", "Disconnected clients with a lease.", state["clients-away"])
        add("earshot_handlers", "gauge", "Handlers with requests or subscribers.", state["handlers"])
        begin("earshot_draining", "gauge", "Whether the broker is draining.")
        sample("earshot_draining", [:], state["phase"]?.text == "draining" ? "1" : "0")
        addFamily("earshot_queue_requests", "Queued requests, by class.", "class", Self.members(state["queue"]))
        addFamily("earshot_flights", "Flights, by phase.", "phase", Self.members(state["flights-now"]))
    }

    private mutating func addWorkers(_ workers: [JSONValue]) {
        begin("earshot_workers", "gauge", "Workers, by phase.")
        for phase in ["joining", "ready", "draining"] {
            let count = workers.count { $0.member("phase")?.text == phase }
            sample("earshot_workers", ["phase": phase], "\(count)")
        }
        for (member, name, help) in [
            ("slots", "earshot_worker_slots", "Transfers that all workers can run at once."),
            ("running", "earshot_worker_transfers", "Transfers that all workers run."),
            ("cancelling", "earshot_worker_cancellations", "Transfers being cancelled."),
        ] {
            let sum = workers.reduce(0) { $0 + (Int($1.member(member)?.text ?? "") ?? 0) }
            add(name, "gauge", help, "\(sum)")
        }
    }

    private mutating func add(door: JSONValue) {
        for (member, name, type, help) in [
            ("connections", "connections", "gauge", "Connections of clients of the HTTP door."),
            ("requests", "requests_total", "counter", "Requests to the HTTP door."),
            ("refused", "refused_total", "counter", "Connections and requests that the HTTP door refused."),
        ] {
            begin("earshot_http_" + name, type, help)
            sample("earshot_http_" + name, [:], door.member(member)?.text ?? "0")
        }
    }

    private mutating func addFaults(of state: BrokerState) {
        begin(
            "earshot_place_lost", "gauge",
            "Whether a folder or socket of the broker is missing, since it was first lost.")
        for fault in state.items("faults") {
            let isLost = fault.member("state")?.text == "lost"
            let labels = ["place": fault.member("place")?.text ?? "", "path": fault.member("path")?.text ?? ""]
            sample("earshot_place_lost", labels, isLost ? "1" : "0")
        }
        begin("earshot_crash_loops", "gauge", "Places for child processes that die soon after each start, by role.")
        for role in ["broker", "worker", "gateway", "node-gateway", "puller", "http"] {
            let count = state.items("failing").count { $0.member("role")?.text == role }
            sample("earshot_crash_loops", ["role": role], "\(count)")
        }
    }

    /// Counters of a node of a cluster: member, name and help.
    private static let clusterCounters = [
        ("granted", "cluster_attempts_granted", "Flights that the engine let this node run."),
        ("hosted", "cluster_attempts_hosted", "Of these, flights that only other nodes wanted."),
        ("results", "cluster_results", "Results that this node got from other nodes."),
        ("pulled", "cluster_bodies_read", "Bodies that this node read from other nodes."),
        ("pulled-bytes", "cluster_bytes_read", "Bytes of bodies that this node read from other nodes."),
        (
            "missed", "cluster_bodies_missed",
            "Bodies that this node could not read, so that their URLs were claimed again."
        ),
        ("given", "cluster_bodies_given", "Bodies that other nodes read from this one."),
        ("uncoordinated", "cluster_attempts_uncoordinated", "Attempts that ran without the engine."),
        ("stale", "cluster_attempts_stale", "Ends of attempts whose flights other nodes had taken over."),
        ("losses", "cluster_membership_losses", "Ends of this node's membership."),
    ]

    private mutating func add(cluster: JSONValue) {
        begin("earshot_cluster_mode", "gauge", "Mode of the node: member, waiting for the engine, or alone without it.")
        for mode in ["member", "waiting", "alone"] {
            sample("earshot_cluster_mode", ["mode": mode], cluster.member("mode")?.text == mode ? "1" : "0")
        }
        add("earshot_cluster_members", "gauge", "Members of the cluster.", cluster.member("members-count"))
        add(
            "earshot_cluster_unreadable_nodes", "gauge", "Nodes whose bodies this node cannot read.",
            cluster.member("unreadable-nodes"))
        if case .array(let warnings)? = cluster.member("warnings") {
            let help = "Warnings of the node, as earshot cluster lists them."
            add("earshot_cluster_warnings", "gauge", help, "\(warnings.count)")
        }
        if case .array(let reasons)? = cluster.member("suspended") {
            let help = "Whether the node runs no flights of other nodes."
            add("earshot_cluster_suspended", "gauge", help, reasons.isEmpty ? "0" : "1")
        }
        add("earshot_cluster_claims", "gauge", "Flights that wait for the engine.", cluster.member("claims"))
        add("earshot_cluster_held_bodies", "gauge", "Bodies held for other nodes.", cluster.member("held-bodies"))
        add(
            "earshot_cluster_flights", "gauge", "Flights of all nodes that wait in the engine or run.",
            cluster.member("flights"))
        if let latency = cluster.number("engine-latency-us") {
            add("earshot_cluster_engine_seconds", "gauge", "Latest response time of the engine.", Self.seconds(latency))
        }
        for (member, name, help) in Self.clusterCounters {
            guard let value = cluster.member("counts")?.member(member)?.text else { continue }
            add("earshot_\(name)_total", "counter", help, value)
        }
    }

    private mutating func addHistogram(_ times: JSONValue?, _ member: String, _ name: String, _ help: String) {
        let bounds = times?.numbers("bounds-us") ?? []
        let buckets = times?.member(member)?.numbers("buckets") ?? []
        guard buckets.count == bounds.count + 1, let sum = Int(times?.member(member)?.member("sum-us")?.text ?? "")
        else { return }
        begin(name, "histogram", help)
        var count = 0
        for (bucket, bound) in zip(buckets, bounds.map { Self.seconds($0) } + ["+Inf"]) {
            count += bucket
            sample("\(name)_bucket", ["le": bound], "\(count)")
        }
        sample("\(name)_sum", [:], Self.seconds(sum))
        sample("\(name)_count", [:], "\(count)")
    }

    // MARK: Format

    private mutating func add(_ name: String, _ type: String, _ help: String, _ value: JSONValue?) {
        guard let text = value?.text else { return }
        add(name, type, help, text)
    }

    private mutating func add(_ name: String, _ type: String, _ help: String, _ value: String) {
        begin(name, type, help)
        sample(name, [:], value)
    }

    private mutating func addFamily(_ name: String, _ help: String, _ label: String, _ members: [JSONValue.Member]) {
        begin(name, "gauge", help)
        for member in members { sample(name, [label: member.name], member.value.text ?? "0") }
    }

    private mutating func begin(_ name: String, _ type: String, _ help: String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
    }

    private mutating func sample(_ name: String, _ labels: [String: String], _ value: String) {
        // A value that is no number would make the whole answer unreadable.
        guard Double(value) != nil else { return }
        let list = labels.sorted { $0.key < $1.key }.map { "\($0.key)=\"\(Self.escaped($0.value))\"" }
        text += name + (list.isEmpty ? "" : "{\(list.joined(separator: ","))}") + " \(value)\n"
    }

    /// Escapes by scalars, because a combining mark would hide the character before it.
    private static func escaped(_ text: String) -> String {
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
    static func seconds(_ microseconds: Int) -> String {
        let (whole, part) = microseconds.quotientAndRemainder(dividingBy: 1_000_000)
        guard part > 0 else { return "\(whole)" }
        var digits = String(String(1_000_000 + part).dropFirst())
        while digits.hasSuffix("0") { digits.removeLast() }
        return "\(whole).\(digits)"
    }

    private static func members(_ value: JSONValue?) -> [JSONValue.Member] {
        guard case .object(let members)? = value else { return [] }
        return members
    }
}
