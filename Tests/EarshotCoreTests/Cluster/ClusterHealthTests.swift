import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// A node without a way to origins, nodes whose bodies cannot be read, and nodes with other settings.
@Suite struct ClusterHealthTests {
    private static let other = "10.0.0.2:5766"
    private let digest = String(repeating: "ab", count: 32)

    /// A node with a client, a worker of eight slots and a puller.
    private struct Bed {
        var node = ClusterRig()
        var client = ClientID(rawValue: 0)
        var worker = WorkerID(rawValue: 0)
        var puller = WorkerID(rawValue: 0)
        private var lastFlight: UInt64 = 0
        private var lastRequest = 0

        init() {
            var (reader, web, node) = (ClientID(rawValue: 0), WorkerID(rawValue: 0), WorkerID(rawValue: 0))
            self.node.pass { rig in
                reader = rig.client(1)
                web = rig.worker()
                node = rig.worker(2, slots: 8, schemes: [BodyAddress.scheme])
            }
            (client, worker, puller) = (reader, web, node)
            self.node.engine(.flightsGranted([], opensAfterMilliseconds: nil))
        }

        /// Makes a request. Returns its want.
        mutating func submit() -> EngineWant {
            lastRequest += 1
            let (client, number) = (client, lastRequest)
            node.pass { $0.fetch("h", "\(number)", "http://example.com/\(number)", by: client) }
            return node.wants[0]
        }

        /// Gives the node a flight of another one. Returns its job; nil if the node does not run it.
        mutating func host(_ lines: String = "") -> Job? {
            lastFlight += 1
            let record = "1 GET 0 0 follow default http://example.com/hosted/\(lastFlight)\(lines)"
            let grant = EngineGrant(
                key: ClusterKey(high: 9, low: lastFlight), token: FencingToken(lastFlight), priority: .normal,
                record: Array(record.utf8))
            node.engine(.flightsGranted([grant], opensAfterMilliseconds: nil))
            return node.rig.jobs.first
        }

        mutating func hostAndFail(_ code: String) {
            guard let job = host() else { return }
            let worker = worker
            node.pass { $0.failed(job, code, by: worker) }
        }

        /// Answers the questions of the node, which asks again when time passes. Its worker lives.
        ///
        /// - Returns: slots of the questions for flights of other nodes.
        @discardableResult
        mutating func resubmit(after milliseconds: Int) -> [Int] {
            let worker = worker
            var takes: [Int] = []
            for _ in 0..<milliseconds / 250 {
                node.engine(.flightsGranted([], opensAfterMilliseconds: nil))
                takes += node.takes
                node.rig.now = node.rig.now.advanced(byMilliseconds: 250)
                node.pass { $0.core.workerMessageReceived(.pong, body: nil, from: worker, now: $0.now) }
                takes += node.takes
            }
            return takes
        }

        var warnings: [NodeWarning.Subject] {
            node.rig.core.records.clusterState?.value.health.warnings.map(\.subject) ?? []
        }
    }

    private func result(_ want: EngineWant, at address: String = Self.other, token: UInt64) -> EngineEvent {
        let place = BodyAddress(address: address, body: HeldBody(key: want.key, token: FencingToken(token)))
        let response = SharedResult.Response(status: 200, bodyLength: 3, sha256: digest, bodyAddress: place, fields: [])
        return .resultReceived(want.key, SharedResult(.response(response)).encodedBytes)
    }

    // MARK: Failures of other nodes

    @Test(arguments: [
        FailureCode.connectRefused, .connectFailed, .connectTimeout, .unknownHost, .dnsFailed, .tls, .addressRefused,
    ])
    func `a failure of another node without a connection is none here, and this node tries itself`(code: FailureCode) {
        var bed = Bed()
        let want = bed.submit()
        let failure = SharedResult(.failure(code, allowedBytes: nil, detail: nil)).encodedBytes
        bed.node.engine(.resultReceived(want.key, failure))
        #expect(bed.node.wants.map(\.lane) == [.shared] && bed.node.wants.map(\.ageMilliseconds) == [0])
        bed.node.engine(.resultReceived(want.key, failure))
        #expect(bed.node.wants.map(\.lane) == [.pinned])
        #expect(bed.node.rig.terminals(for: bed.client) == [])
        bed.node.grant(bed.node.wants)
        let (job, worker) = (bed.node.rig.jobs[0], bed.worker)
        bed.node.pass { $0.done(job, by: worker) }
        #expect(bed.node.rig.terminals(for: bed.client) == ["h 1 200"])
        #expect(bed.node.rig.core.audit() == [])
    }

    @Test func `a failure that concerns all nodes ends a request`() {
        var bed = Bed()
        let want = bed.submit()
        bed.node.engine(
            .resultReceived(
                want.key, SharedResult(.failure(.poisonRequest, allowedBytes: nil, detail: nil)).encodedBytes))
        #expect(bed.node.rig.terminals(for: bed.client) == ["h 1 poisonous"])
    }

    @Test func `after three flights of others without a connection a node takes none, and tries one after a pause`() {
        var bed = Bed()
        for _ in 0..<2 { bed.hostAndFail("connect-refused") }
        #expect(bed.node.takes == [8] && bed.warnings == [])
        bed.hostAndFail("unknown-host")
        #expect(bed.warnings == [.outboundFailures])
        #expect(bed.node.takes == [] && bed.node.wantedTakes == [8])
        bed.resubmit(after: 1_000)
        #expect(bed.node.takes == [] && bed.node.wantedTakes == [8])
        bed.resubmit(after: 1_000)
        #expect(bed.node.takes == [1])
        let (job, worker) = (bed.host(), bed.worker)
        bed.node.pass { if let job { $0.done(job, by: worker) } }
        #expect(bed.warnings == [])
        bed.node.engine(.flightsGranted([], opensAfterMilliseconds: nil))
        #expect(bed.node.takes == [8])
        #expect(bed.node.rig.core.audit() == [])
        let notices = bed.node.rig.core.takeClusterNotices()
        #expect(notices.count == 2)
    }

    @Test func `a node without room for bodies leaves the flights of others to them`() {
        var bed = Bed()
        for _ in 0..<3 { bed.hostAndFail("spool-full") }
        #expect(bed.warnings == [.outboundFailures] && bed.node.wantedTakes == [8])
    }

    @Test func `a failed try doubles the pause`() {
        var bed = Bed()
        for _ in 0..<3 { bed.hostAndFail("connect-timeout") }
        bed.resubmit(after: 2_000)
        #expect(bed.node.takes == [1])
        bed.hostAndFail("connect-timeout")
        #expect(bed.resubmit(after: 3_750) == [])
        #expect(bed.resubmit(after: 500) == [1])
    }

    @Test func `responses of any status and failures after a connection suspend no node`() {
        var bed = Bed()
        for code in ["reset", "timeout", "truncated", "tls", "address-refused"] {
            for _ in 0..<3 { bed.hostAndFail(code) }
        }
        #expect(bed.warnings == [] && bed.node.takes == [8])
    }

    // MARK: Bodies

    @Test func `a node is asked for no body after three failed reads, and once after a pause`() {
        var bed = Bed()
        let puller = bed.puller
        for token in 1...3 as ClosedRange<UInt64> {
            let want = bed.submit()
            bed.node.engine(result(want, token: token))
            let job = bed.node.rig.jobs[0]
            bed.node.pass { $0.failed(job, "connect-failed", by: puller) }
            #expect(bed.warnings == (token < 3 ? [] : [.peerBodiesUnreadable(Self.other)]))
        }
        let want = bed.submit()
        bed.node.engine(result(want, token: 4))
        #expect(bed.node.rig.jobs.isEmpty)
        // The nodes that cannot read it agree on one fetch, which that node does not run.
        #expect(bed.node.wants.map(\.lane) == [.shared])
        #expect(SharedRequest(record: bed.node.wants[0].record)?.avoidedAddresses == [Self.other])
        bed.node.engine(result(want, at: "10.0.0.3:5766", token: 5))
        #expect(bed.node.rig.jobs.count == 1)
        bed.node.wait(milliseconds: 2_000)
        let next = bed.submit()
        bed.node.engine(result(next, token: 6))
        let job = bed.node.rig.jobs[0]
        bed.node.pass { $0.done(job, by: puller) }
        #expect(bed.warnings == [])
        #expect(bed.node.rig.core.audit() == [])
    }

    @Test func `a missed body has a line in the log with its place and the reason`() {
        var bed = Bed()
        let (want, puller) = (bed.submit(), bed.puller)
        bed.node.engine(result(want, token: 1))
        let job = bed.node.rig.jobs[0]
        bed.node.pass { $0.failed(job, "not-cached", by: puller) }
        let place = "\(Self.other)/\(want.key)/1"
        #expect(
            bed.node.rig.core.takeClusterNotices()
                == [.bodyReadFailed(place: place, reason: "not-cached", isFirst: true)])
        #expect(SharedRequest(record: bed.node.wants[0].record)?.avoidedAddresses == [])
    }

    @Test func `a node whose bodies others cannot read leaves their flights to other nodes`() {
        var bed = Bed()
        let avoiding = "\n:avoid 10.0.0.9:1,\(ClusterRig.address)"
        for count in 1...3 {
            let job = bed.host(avoiding)
            #expect(job == nil)
            #expect(bed.node.ends.map(\.outcome) == [.released])
            #expect(bed.warnings == (count < 3 ? [] : [.ownBodiesUnreadable]))
        }
        #expect(bed.node.calls.contains(.takeFlights(slots: 8, isOwnOnly: true)) && bed.node.wantedTakes == [])
        bed.resubmit(after: 2_000)
        let (job, worker) = (bed.host(), bed.worker)
        bed.node.pass { if let job { $0.done(job, by: worker) } }
        #expect(bed.warnings == [.ownBodiesUnreadable])
        let place = "earshot-node://\(ClusterRig.address)/\(ClusterKey(high: 9, low: 4))/4"
        bed.node.pass { rig in
            rig.connect(ClientID(rawValue: 9), user: PrincipalName("node:shop"))
            rig.send(.hello(Hello(window: 16)), by: ClientID(rawValue: 9))
            rig.fetch("pull", "1", place, by: ClientID(rawValue: 9))
        }
        #expect(bed.warnings == [])
        #expect(bed.node.rig.core.audit() == [])
    }

    @Test func `a node whose bodies most others cannot read leaves its own flights to them, while it can read theirs`()
    {
        var bed = Bed()
        let (broken, good) = ("b \(Self.other) - 10.0.0.9:1,\(ClusterRig.address)", "c 10.0.0.3:1 -")
        bed.node.engine(survey([(1, "a \(ClusterRig.address)"), (1, broken), (1, good)]))
        #expect(bed.warnings == [])
        bed.node.engine(survey([(1, broken), (1, "c 10.0.0.3:1 - \(ClusterRig.address)")]))
        #expect(bed.warnings == [.ownBodiesUnreadable])
        _ = bed.submit()
        #expect(bed.node.calls.contains(.takeFlights(slots: 8, isOwnOnly: true)))
        bed.resubmit(after: ClusterBook.handOverTimeoutMilliseconds)
        // Nobody takes it.
        #expect(bed.node.wantedTakes == [8])
    }

    @Test func `a node whose bodies others cannot read, and that cannot read theirs, fetches its own flights`() {
        var bed = Bed()
        bed.node.engine(survey([(1, "a \(ClusterRig.address)"), (1, "b \(Self.other) - \(ClusterRig.address)")]))
        bed.node.rig.core.clusterProbeEnded(Self.other, failure: "timed out", now: bed.node.rig.now)
        #expect(bed.warnings == [.ownBodiesUnreadable, .peerBodiesUnreadable(Self.other)])
        #expect(bed.node.rig.core.unreadableNodes == [Self.other])
        _ = bed.submit()
        #expect(bed.node.wantedTakes == [8])
    }

    @Test func `after a failed read a result that is younger than the useless one is an answer`() {
        var bed = Bed()
        let (want, puller) = (bed.submit(), bed.puller)
        bed.node.engine(result(want, token: 1))
        let job = bed.node.rig.jobs[0]
        bed.node.rig.now = bed.node.rig.now.advanced(byMilliseconds: 2_000)
        bed.node.pass { $0.failed(job, "connect-failed", by: puller) }
        #expect(bed.node.wants.map(\.ageMilliseconds) == [2_000])
    }

    @Test func `after failed reads a connection permits one read, and does not show that bodies can be read`() {
        var bed = Bed()
        bed.node.engine(survey([(1, "b \(Self.other)")]))
        _ = bed.node.rig.core.takeClusterProbes()
        let puller = bed.puller
        for token in 1...3 as ClosedRange<UInt64> {
            let want = bed.submit()
            bed.node.engine(result(want, token: token))
            let job = bed.node.rig.jobs[0]
            bed.node.pass { $0.failed(job, "connect-failed", by: puller) }
        }
        bed.node.rig.core.clusterProbeEnded(Self.other, failure: nil, now: bed.node.rig.now)
        #expect(bed.warnings == [.peerBodiesUnreadable(Self.other)])
        for isRead in [true, false] {
            let want = bed.submit()
            bed.node.engine(result(want, token: 9))
            #expect(bed.node.rig.jobs.isEmpty != isRead)
        }
    }

    // MARK: Address policies

    @Test func `a flight of a node with another address policy runs alone and with both`() {
        var bed = Bed()
        _ = bed.submit()
        let job = bed.host("\n:policy public-only")
        #expect(job?.addressPolicy == "public-only")
        let plain = bed.host()
        #expect(plain?.addressPolicy == "")
        // A local request does not join it.
        let client = bed.client
        bed.node.pass { $0.fetch("h", "x", "http://example.com/hosted/1", by: client) }
        #expect(bed.node.wants.count == 1)
        #expect(bed.node.rig.core.audit() == [])
    }

    @Test func `nodes with different address policies share no flight`() {
        func key(_ policy: String) -> ClusterKey {
            var bed = Bed()
            bed.node.rig.core.records.workerLimits.addressPolicy = policy
            let want = bed.submit()
            #expect(SharedRequest(record: want.record)?.addressPolicy == policy)
            return want.key
        }
        #expect(Set([key(""), key("public-only"), key("public-only, allow 10.0.0.0/8")]).count == 3)
        #expect(key("public-only") == key("public-only"))
    }

    // MARK: Members

    private func survey(_ members: [(lease: Int, description: String)]) -> EngineEvent {
        .surveyed(
            EngineSurvey(
                flights: 0, origins: 0, pausedOrigins: 0,
                members: members.enumerated().map { index, member in
                    EngineSurvey.Member(
                        node: NodeID(UInt64(index)), leaseMilliseconds: member.lease, flights: 0,
                        description: member.description)
                }))
    }

    @Test func `the address of each other member is probed once, and again while it cannot be reached`() {
        var bed = Bed()
        let members = survey([(1, "a \(ClusterRig.address)"), (1, "b \(Self.other)"), (0, "c 10.0.0.3:1")])
        bed.node.engine(members)
        #expect(bed.node.rig.core.takeClusterProbes() == [Self.other])
        bed.node.engine(members)
        #expect(bed.node.rig.core.takeClusterProbes() == [])
        bed.node.rig.core.clusterProbeEnded(Self.other, failure: "timed out", now: bed.node.rig.now)
        #expect(bed.warnings == [.peerBodiesUnreadable(Self.other)])
        bed.node.wait(milliseconds: ClusterHealth.probeIntervalMilliseconds)
        bed.node.engine(members)
        #expect(bed.node.rig.core.takeClusterProbes() == [Self.other])
        bed.node.rig.core.clusterProbeEnded(Self.other, failure: nil, now: bed.node.rig.now)
        #expect(bed.warnings == [])
        bed.node.rig.core.clusterProbeEnded("10.0.0.7:1", failure: "unknown", now: bed.node.rig.now)
        #expect(bed.warnings == [])
    }

    @Test func `two nodes with one address are an error, unless one is the lease of a restarted node`() {
        var bed = Bed()
        let twice = survey([(1, "a \(Self.other)"), (1, "b \(Self.other)")])
        // One each second.
        for report in 1...6 {
            bed.node.engine(twice)
            #expect(bed.warnings == (report < 6 ? [] : [.duplicateAddress(Self.other)]))
        }
        bed.node.engine(survey([(1, "a \(Self.other)"), (0, "b \(Self.other)")]))
        #expect(bed.warnings == [])
    }

    @Test func `nodes with other settings or another version are listed`() {
        var health = ClusterHealth(address: ClusterRig.address)
        health.settingsChanged(to: "a.b.c.d")
        func surveyed(_ settings: String) -> [NodeWarning] {
            let member = EngineSurvey.Member(
                node: NodeID(1), leaseMilliseconds: 1, flights: 0, description: "m \(Self.other)\(settings)")
            health.surveyReceived([member], now: MonotonicTime(nanoseconds: 0))
            return health.warnings
        }
        #expect(surveyed(" a.b.c.d") == [])
        let address = NodeWarning.Subject.differentSettings(Self.other)
        #expect(surveyed(" x.b.c.y") == [NodeWarning(subject: address, detail: "address policy, version")])
        #expect(surveyed(" a.x.x.d") == [NodeWarning(subject: address, detail: "limits, rules for origins")])
        #expect(surveyed("") == [NodeWarning(subject: address, detail: "version")])
        health.settingsChanged(to: "x.b.c.y")
        #expect(surveyed(" x.b.c.y") == [])
    }
}
