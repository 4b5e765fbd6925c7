import Testing

@testable import EarshotWeb

@Suite struct MetricsTextTests {
    private static let status = #"""
        {"broker":"2f","requests":{"submitted":9,"answered":5,"failed":{"tls":1,"timeout":2},"removed":0,"orphaned":0,
        "pending":1},"deliveries":{"due":8,"acknowledged":7,"lost":0,"outstanding":1},"flights":{"started":4,"joined":5,
        "bytes":1234},"cache":{"lookups":4,"used":1,"validated":0,"stored":2},"phase":"serving","admission":"open","ready":true,
        "queue":{"high":0,"normal":1},"flights-now":{"queued":1},"clients":1,"clients-away":0,"handlers":2,
        "times":{"bounds-us":[125,250],"wait":{"sum-us":1500001,"buckets":[1,2,3]}},
        "faults":[{"place":"spool","path":"/a \"b\"","state":"lost","count":1}],
        "workers":[{"pid":1,"phase":"ready","slots":64,"running":3,"cancelling":0}],"failing":[],"workers-next":"1",
        "origins":[]}
        """#

    private func state() throws -> BrokerState { try #require(BrokerState(Array(Self.status.utf8))) }

    @Test func `counters have a state or a cause, and histograms are cumulative`() throws {
        let text = MetricsText.text(of: try state())
        let lines = text.split(separator: "\n").map(String.init)
        for line in [
            "earshot_up 1", "earshot_ready 1", #"earshot_broker_info{broker="2f"} 1"#,
            "earshot_requests_submitted_total 9", #"earshot_requests_total{state="failed"} 3"#,
            #"earshot_requests_failed_total{cause="timeout"} 2"#,
            #"earshot_requests_failed_total{cause="spool-full"} 0"#,
            "earshot_deliveries_due_total 8", #"earshot_deliveries_total{state="lost"} 0"#,
            "earshot_transfer_bytes_total 1234",
            #"earshot_queue_requests{class="normal"} 1"#, #"earshot_workers{phase="ready"} 1"#,
            #"earshot_place_lost{path="/a \"b\"",place="spool"} 1"#, #"earshot_crash_loops{role="worker"} 0"#,
            #"earshot_request_wait_seconds_bucket{le="0.000125"} 1"#,
            #"earshot_request_wait_seconds_bucket{le="+Inf"} 6"#, "earshot_request_wait_seconds_sum 1.500001",
            "earshot_request_wait_seconds_count 6",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
    }

    @Test func `a node of a cluster has its mode, and counters of its work for others`() throws {
        let cluster = #"""
            {"ready":false,"phase":"serving","admission":"open","cluster":{"mode":"waiting","members-count":3,"claims":7,
            "engine-latency-us":1500,"warnings":["a","b"],"suspended":["a"],"unreadable-nodes":2,"counts":{"hosted":4,"missed":2}}}
            """#
        let state = try #require(BrokerState(Array(cluster.utf8)))
        #expect(state.unreadiness == .noEngine)
        #expect(state.suspensionReasons == ["a"])
        let lines = MetricsText.text(of: state).split(separator: "\n").map(String.init)
        for line in [
            #"earshot_cluster_mode{mode="member"} 0"#, #"earshot_cluster_mode{mode="waiting"} 1"#,
            "earshot_cluster_members 3", "earshot_cluster_claims 7", "earshot_cluster_engine_seconds 0.0015",
            "earshot_cluster_warnings 2", "earshot_cluster_suspended 1", "earshot_cluster_unreadable_nodes 2",
            "earshot_cluster_attempts_hosted_total 4", "earshot_cluster_bodies_missed_total 2",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        #expect(!MetricsText.text(of: try self.state()).contains("earshot_cluster"))
    }

    @Test func `labels are escaped also before combining marks`() {
        let place = #"{"place":"spool","state":"lost","path":"a\"\u0301\\\u0301\r\nb"}"#
        let text = MetricsText.text(of: BrokerState(Array(#"{"faults":[\#(place)]}"#.utf8)))
        let labels = "{path=\"a\\\"\u{301}\\\\\u{301}\r\\nb\",place=\"spool\"}"
        let sample = Array("earshot_place_lost\(labels) 1".utf8)
        #expect(Array(text.utf8).split(separator: 10).contains(sample[...]))
    }

    @Test func `each metric has one type, before its samples`() throws {
        var types: [String: Int] = [:]
        for line in MetricsText.text(of: try state()).split(separator: "\n") where line.hasPrefix("# TYPE ") {
            types[String(line.split(separator: " ")[2]), default: 0] += 1
        }
        #expect(types.values.allSatisfy { $0 == 1 } && types.count > 20)
    }

    @Test func `without a broker the metrics state only that`() {
        let text = MetricsText.text(of: nil)
        #expect(text.contains("\nearshot_up 0\n") && text.contains("\nearshot_ready 0\n"))
        #expect(!text.contains("_total"))
    }

    @Test func `further pages of workers count`() throws {
        var state = try state()
        #expect(state.nextWorkers == "1")
        state.addWorkersPage(
            Array(#"{"broker":"2f","workers":[{"pid":2,"phase":"ready","slots":36,"running":1}]}"#.utf8))
        #expect(state.nextWorkers == nil)
        #expect(MetricsText.text(of: state).contains("earshot_worker_slots 100\n"))
    }

    @Test(arguments: [
        ("[]", #""phase":"serving","admission":"open""#, BrokerState.Unreadiness.noWorker),
        (#"[{"place":"spool","state":"restored"}]"#, #""phase":"serving","admission":"open""#, .noWorker),
        (#"[{"place":"spool","state":"lost"}]"#, #""phase":"serving","admission":"open""#, .lostPath),
        (#"[{"place":"spool","state":"lost"}]"#, #""phase":"serving","admission":"closed""#, .closedAdmission),
        ("[]", #""phase":"draining","admission":"closed""#, .draining), ("[]", #""clients":1"#, .draining),
    ])
    func `the broker decides about readiness, and its state has the reason`(
        faults: String, members: String, reason: BrokerState.Unreadiness
    ) {
        // A ready worker does not suffice.
        let rest = #""workers":[{"pid":1,"phase":"ready"}],"faults":\#(faults),\#(members)}"#
        func unreadiness(_ isReady: Bool) -> BrokerState.Unreadiness? {
            let state = BrokerState(Array((#"{"ready":\#(isReady),"# + rest).utf8))
            #expect(MetricsText.text(of: state).contains("\nearshot_ready \(isReady ? 1 : 0)\n"))
            return state?.unreadiness
        }
        #expect(unreadiness(false) == reason)
        #expect(unreadiness(true) == nil)
    }

    @Test func `an answer that is no object is no state`() {
        #expect(BrokerState(Array("[]".utf8)) == nil)
    }

    @Test func `the status has a schema, and the broker's object as received`() throws {
        #expect(
            String(decoding: WebServer.statusDocument(of: nil, .noBroker, at: "T"), as: UTF8.self)
                == #"{"schema":1,"time":"T","ready":false,"reason":"no broker answers","status":null}"#)
        #expect(
            String(decoding: WebServer.statusDocument(of: try state(), .noBroker, at: "T"), as: UTF8.self)
                == #"{"schema":1,"time":"T","ready":true,"status":"# + Self.status + "}")
    }
}
