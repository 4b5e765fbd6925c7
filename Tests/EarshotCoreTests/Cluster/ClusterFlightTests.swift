import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Flights of a node: claims, grants, results of other nodes, and attempts for them.
@Suite struct ClusterFlightTests {
    let url = "http://example.com/a"

    func digest() -> String { String(repeating: "ab", count: 32) }

    /// A node with a client, a worker of eight slots, and one claimed request.
    func claimed(_ change: (inout Fetch) -> Void = { _ in }) -> (ClusterRig, ClientID, WorkerID, EngineWant) {
        var node = ClusterRig()
        var client = ClientID(rawValue: 0)
        var worker = WorkerID(rawValue: 0)
        node.pass { rig in
            client = rig.client(1)
            worker = rig.worker()
        }
        #expect(node.takes == [8])
        node.engine(.flightsGranted([], opensAfterMilliseconds: nil))
        node.pass { $0.fetch("h", "r", url, by: client, change) }
        #expect(node.rig.jobs.isEmpty)
        #expect(node.wants.count == 1)
        return (node, client, worker, node.wants[0])
    }

    @Test func `a flight starts when the engine grants it, and its result reaches the engine`() {
        var (node, client, worker, want) = claimed()
        #expect(want.lane == .shared)
        #expect(node.takes == [8])
        node.grant([want])
        let jobs = node.rig.jobs
        #expect(jobs.map(\.url) == [url])
        node.pass { $0.done(jobs[0], by: worker, fields: "a: b") }
        #expect(node.rig.terminals(for: client) == ["h r 200"])
        let place = BodyAddress(
            address: ClusterRig.address, body: HeldBody(key: want.key, token: FencingToken(101)))
        #expect(
            node.results == [
                .response(
                    SharedResult.Response(
                        status: 200, bodyLength: 3, sha256: digest(), bodyAddress: place, fields: Array("a: b".utf8)))
            ])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `the engine learns how long a request has waited for its broker`() {
        var (node, client, worker, want) = claimed { $0.options.ageMilliseconds = 700 }
        #expect(want.ageMilliseconds == 700)
        node.wait(milliseconds: 50)
        node.grant([want])
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: worker) }
        // The times count from the arrival.
        let times = node.rig.actions.compactMap { action -> [Int]? in
            guard case .client(.deliverTerminal(client, let terminal, _)) = action,
                case .result(_, let response) = terminal.outcome
            else { return nil }
            return [response.queuedMilliseconds, response.elapsedMilliseconds]
        }
        #expect(times == [[50, 50]])
    }

    @Test func `a request that joins gets no result from before it, however long another has waited`() {
        var (node, client, _, want) = claimed { $0.options.ageMilliseconds = 700 }
        node.wait(milliseconds: 50)
        node.pass { $0.fetch("h", "later", url, by: client) { $0.options.ageMilliseconds = 20 } }
        #expect(node.wants.map(\.ageMilliseconds) == [20])
        let response = SharedResult.Response(
            status: 204, bodyLength: 0, sha256: nil, bodyAddress: nil, fields: Array("a: b".utf8))
        let answer = WantAnswer(key: want.key, state: .ended(SharedResult(.response(response)).encodedBytes))
        // The answer to the first want, which may be older than the later request.
        node.engine(.wantsAnswered([answer]))
        #expect(node.rig.terminals(for: client).isEmpty)
        node.engine(.wantsAnswered([answer]))
        #expect(Set(node.rig.terminals(for: client)) == ["h r 204", "h later 204"])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a body is held for other nodes and released afterwards`() {
        var (node, client, worker, want) = claimed()
        node.grant([want])
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: worker) }
        node.pass { rig in rig.send(.acknowledge(1), by: client) }
        #expect(node.rig.releasedBodies == 0)
        let place = BodyAddress(address: ClusterRig.address, body: HeldBody(key: want.key, token: FencingToken(101)))
        node.pass { rig in
            rig.connect(ClientID(rawValue: 9), user: PrincipalName("node:shop"))
            rig.send(.hello(Hello(window: 16)), by: ClientID(rawValue: 9))
            rig.fetch("pull", "1", place.url, by: ClientID(rawValue: 9))
            rig.fetch("pull", "2", url, by: ClientID(rawValue: 9))
            rig.fetch("pull", "3", place.url.replacing("/101", with: "/102"), by: ClientID(rawValue: 9))
        }
        #expect(
            node.rig.terminals(for: ClientID(rawValue: 9)) == [
                "pull 1 200", "pull 2 unsupported-scheme", "pull 3 not-cached",
            ])
        #expect(node.rig.core.audit() == [])
        node.pass { $0.send(.acknowledge(3), by: ClientID(rawValue: 9)) }
        #expect(node.rig.releasedBodies == 0)
        node.wait(milliseconds: HeldResults.holdMilliseconds)
        #expect(node.rig.releasedBodies == 1)
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a client cannot read bodies of other nodes`() {
        var (node, client, _, _) = claimed()
        node.pass { $0.fetch("h", "2", "earshot-node://10.0.0.1:1/\(ClusterKey(high: 1, low: 2))/3", by: client) }
        #expect(node.rig.terminals(for: client) == ["h 2 unsupported-scheme"])
    }

    @Test func `the result of another node without a body answers at once`() {
        var (node, client, _, want) = claimed()
        let result = SharedResult(
            .response(SharedResult.Response(status: 204, bodyLength: 0, sha256: nil, bodyAddress: nil, fields: [])))
        node.engine(.resultReceived(want.key, result.encodedBytes))
        #expect(node.rig.terminals(for: client) == ["h r 204"])
        #expect(node.rig.core.audit() == [])
    }

    /// The result of another node with a body, and the worker that reads it.
    private func pulling(
        _ node: inout ClusterRig, _ want: EngineWant
    ) -> (job: Job, puller: WorkerID) {
        var puller = WorkerID(rawValue: 0)
        node.pass { $0.core.awaitOwnWorkers(until: $0.now) }
        node.pass { puller = $0.worker(2, slots: 4, schemes: [BodyAddress.scheme]) }
        let place = BodyAddress(address: "10.0.0.2:5766", body: HeldBody(key: want.key, token: FencingToken(9)))
        let result = SharedResult(
            .response(
                SharedResult.Response(
                    status: 203, bodyLength: 3, sha256: digest(), bodyAddress: place, fields: Array("x: y".utf8))))
        node.engine(.resultReceived(want.key, result.encodedBytes))
        #expect(node.rig.jobs.map(\.url) == [place.url])
        #expect(node.rig.core.audit() == [])
        return (node.rig.jobs[0], puller)
    }

    @Test func `the body of another node is read by its worker, with status and fields of the result`() {
        var (node, client, _, want) = claimed()
        let (job, puller) = pulling(&node, want)
        node.pass { $0.done(job, by: puller, status: 200) }
        let sources = node.rig.actions.compactMap { action -> Terminal.Source? in
            if case .client(.deliverTerminal(client, let terminal, _)) = action {
                terminal.response?.source
            } else {
                nil
            }
        }
        #expect(sources == [.clusterNode])
        #expect(node.rig.terminals(for: client) == ["h r 203"])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `the worker that reads bodies of other nodes restricts itself, and other own workers do not`() {
        var node = ClusterRig()
        node.pass { rig in
            _ = rig.worker(2, schemes: [BodyAddress.scheme])
            _ = rig.worker(3, schemes: ["thumb"])
        }
        let sandboxes = node.rig.actions.compactMap { action -> Int? in
            if case .worker(.send(_, .limits(let limits))) = action { limits.sandboxSetting } else { nil }
        }
        #expect(sandboxes == [0, 1])
    }

    @Test func `nonsense of the engine costs another fetch and nothing else`() {
        var (node, client, worker, want) = claimed()
        let shared = want
        for result in [
            "", "2 r 200 0 - -", "1 r 200 5 - -", "1 r 200 0 - -\n\na: b", "1 f tls - a\u{1}b", "1 f removed -",
        ] {
            node.engine(.resultReceived(want.key, Array(result.utf8)))
            #expect(node.rig.terminals(for: client) == [], "\(result)")
            #expect(node.wants.count == 1, "\(result)")
            if let next = node.wants.first { want = next }
            #expect(node.rig.core.audit() == [])
        }
        // After the second one this node fetches the URL itself.
        #expect(want.lane == .pinned)
        node.pass { $0.remove("h", by: client) }
        let grant = EngineGrant(
            key: shared.key, token: FencingToken(7), priority: .normal,
            record: Array("1 GET 0 0 follow default \(url)".utf8))
        var other = grant
        other.token = FencingToken(8)
        var unusable = grant
        unusable.record = Array("1 GET 0 0 follow default file:///etc/passwd".utf8)
        unusable.key = ClusterKey(high: 3, low: 3)
        node.engine(.flightsGranted([grant, other, unusable, grant], opensAfterMilliseconds: -5))
        #expect(node.rig.jobs.count == 1)
        #expect(node.rig.core.audit() == [])
        node.engine(
            .wantsAnswered([WantAnswer(key: shared.key, state: .stale), WantAnswer(key: shared.key, state: .held)]))
        node.engine(.attemptAborted(shared.key, FencingToken(8)))
        #expect(node.rig.core.audit() == [])
        _ = worker
    }

    @Test func `a body that cannot be read is claimed again, and stays on its node after the second time`() {
        var (node, client, worker, want) = claimed()
        let (job, puller) = pulling(&node, want)
        node.pass { $0.failed(job, "connect-failed", by: puller) }
        #expect(node.wants.map(\.lane) == [.shared])
        #expect(node.wants.map(\.ageMilliseconds) == [0])
        let again = node.wants[0]
        let (second, _) = pulling2(&node, again)
        node.pass { $0.done(second, by: puller, length: 4) }
        #expect(node.wants.map(\.lane) == [.pinned])
        #expect(node.wants.map(\.record) == [[]])
        node.grant(node.wants)
        let last = node.rig.jobs[0]
        #expect(last.url == url)
        node.pass { $0.done(last, by: worker) }
        #expect(node.rig.terminals(for: client) == ["h r 200"])
        #expect(node.rig.core.audit() == [])
    }

    func pulling2(_ node: inout ClusterRig, _ want: EngineWant) -> (job: Job, Void) {
        let place = BodyAddress(address: "10.0.0.2:5766", body: HeldBody(key: want.key, token: FencingToken(10)))
        let result = SharedResult(
            .response(
                SharedResult.Response(status: 200, bodyLength: 3, sha256: digest(), bodyAddress: place, fields: [])))
        node.engine(.resultReceived(want.key, result.encodedBytes))
        return (node.rig.jobs[0], ())
    }

    @Test func `the death of the worker that reads bodies claims again`() {
        var (node, _, _, want) = claimed()
        let (_, puller) = pulling(&node, want)
        node.pass { $0.core.workerLost(puller, now: $0.now) }
        #expect(node.wants.map(\.lane) == [.shared])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `requests with credentials, cookies or a body stay on their node`() {
        let (_, _, _, credentialed) = claimed { $0.httpFields = Array("authorization: Basic x".utf8) }
        #expect(credentialed.lane == .credentialed)
        #expect(credentialed.record == [])
        let (_, _, _, named) = claimed { $0.httpFields = Array("x-key: 1".utf8) }
        #expect(named.lane == .pinned)
        let (_, _, _, posted) = claimed {
            $0.options.method = "POST"
            $0.options.coalesces = false
        }
        #expect(posted.lane == .pinned)
    }

    @Test func `a removed request withdraws its claim`() {
        var (node, client, _, want) = claimed()
        node.pass { $0.remove("h", by: client) }
        #expect(node.unwants == [want.key])
        node.grant([want])
        #expect(node.rig.jobs.isEmpty)
        #expect(node.ends.map(\.outcome) == [.released])
        #expect(node.rig.core.audit() == [])
    }

    /// The engine may have granted the flight for other nodes before it got this node's want.
    @Test(arguments: [true, false])
    func `a removed request's transfer goes on for other nodes until none wants it`(isOwn: Bool) {
        var (node, client, worker, want) = claimed()
        node.grant([want], isOwn: isOwn)
        let job = node.rig.jobs[0]
        node.pass { $0.remove("h", by: client) }
        #expect(node.rig.cancellations.isEmpty)
        #expect(node.unwants == [want.key])
        #expect(node.rig.core.audit() == [])
        node.engine(.attemptAborted(want.key, FencingToken(101)))
        #expect(node.rig.cancellations == [job.attempt])
        #expect(node.ends.isEmpty)
        node.pass { $0.failed(job, "cancelled", by: worker) }
        #expect(node.ends.map(\.outcome) == [.released])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a transfer that goes on for other nodes delivers its result to them`() {
        var (node, client, worker, want) = claimed()
        node.grant([want])
        let job = node.rig.jobs[0]
        node.pass { $0.remove("h", by: client) }
        node.pass { $0.done(job, by: worker) }
        #expect(node.results.count == 1)
        #expect(node.rig.core.records.flights.count == 0)
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a flight that other nodes want runs here, and its result is delivered to them`() {
        var (node, client, worker, want) = claimed()
        node.pass { $0.remove("h", by: client) }
        node.grant([want], isOwn: false)
        let job = node.rig.jobs[0]
        #expect(job.url == url)
        #expect(node.rig.core.audit() == [])
        // A local request joins it.
        node.pass { $0.fetch("h", "s", url, by: client) }
        #expect(node.wants.isEmpty)
        node.pass { $0.done(job, by: worker) }
        #expect(node.rig.terminals(for: client) == ["h s 200"])
        #expect(node.results.count == 1)
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a redirect is a result, and only nodes with requests follow it`() {
        var (node, client, worker, want) = claimed()
        node.pass { $0.remove("h", by: client) }
        node.grant([want], isOwn: false)
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: worker, status: 302, length: 0, fields: "location: /b") }
        #expect(node.results.count == 1)
        #expect(node.rig.core.records.flights.count == 0)
        var (other, reader, _, wanted) = claimed()
        if case .result(let bytes) = node.ends[0].outcome { other.engine(.resultReceived(wanted.key, bytes)) }
        #expect(other.wants.count == 1)
        #expect(other.rig.core.audit() == [])
        _ = reader
    }

    @Test func `a failure is retried by each node, and a full spool concerns one node alone`() {
        var (node, _, worker, want) = claimed { $0.options.retries = 1 }
        node.grant([want])
        let job = node.rig.jobs[0]
        node.pass { $0.failed(job, "connect-failed", by: worker) }
        #expect(node.results == [.failure(.connectFailed, allowedBytes: nil, detail: nil)])
        // Longer than the pause before a retry, and shorter than the time until the next assertion.
        node.wait(milliseconds: 30_000)
        #expect(node.wants.map(\.ageMilliseconds) == [0])
        node.grant(node.wants)
        let second = node.rig.jobs[0]
        node.pass { $0.failed(second, "spool-full", by: worker) }
        #expect(node.ends.map(\.outcome) == [.released])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a flight keeps its claim when its worker dies`() {
        var (node, client, worker, want) = claimed()
        node.grant([want])
        node.pass { $0.core.workerLost(worker, now: $0.now) }
        #expect(node.ends.isEmpty)
        var next = WorkerID(rawValue: 0)
        node.pass { next = $0.worker(3) }
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: next) }
        #expect(node.ends.map(\.token) == [FencingToken(101)])
        #expect(node.rig.terminals(for: client) == ["h r 200"])
        #expect(node.rig.core.audit() == [])
    }

    /// A node with a held body, and with an attempt at an origin whose only place its other claims await.
    private func full(spacingMilliseconds: Int = 0) -> (ClusterRig, WorkerID, Job) {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 1
        limits.originRules.defaultSpacingMilliseconds = spacingMilliseconds
        var node = ClusterRig(limits: limits)
        var worker = WorkerID(rawValue: 0)
        node.pass { rig in
            worker = rig.worker()
            let client = rig.client(1)
            for number in 0..<6 { rig.fetch("h", "\(number)", "http://example.com/\(number)", by: client) }
        }
        let wants = node.wants
        #expect(wants.count == 2)
        node.grant([wants[0]])
        let first = node.rig.jobs[0]
        node.pass { $0.done(first, by: worker) }
        node.grant([wants[1]])
        return (node, worker, node.rig.jobs[0])
    }

    @Test(arguments: ["worker-lost", "spool-full"])
    func `an attempt is repeated although claims await its place`(code: String) {
        var (node, worker, job) = full()
        node.pass { rig in
            _ = rig.worker(2)
            rig.failed(job, code, by: worker)
        }
        #expect(node.rig.jobs.map(\.url) == [job.url])
        #expect(node.ends.isEmpty)
        #expect(node.rig.core.audit() == [])
    }

    @Test func `an attempt that cannot be repeated at once leaves its place to the claims that await it`() {
        var (node, worker, _) = full(spacingMilliseconds: 1_000)
        node.pass { rig in
            _ = rig.worker(2)
            rig.core.workerLost(worker, now: rig.now)
        }
        #expect(node.rig.jobs.isEmpty)
        #expect(node.ends.map(\.outcome) == [.released])
        #expect(node.rig.core.audit() == [])
    }

    /// - Parameter deaths: Earlier deaths of its workers. After the second one it is a suspect.
    @Test(arguments: [0, 1] as [UInt64])
    func `a flight whose attempt lost it claims again when its worker dies`(deaths: UInt64) {
        var (node, client, worker, want) = claimed()
        node.engine(.wantsAnswered([WantAnswer(key: want.key, state: .queued)]))
        node.grant([want])
        for number in 0..<deaths {
            node.pass { $0.core.workerLost(worker, now: $0.now) }
            node.pass { worker = $0.worker(10 + number) }
        }
        #expect(node.rig.jobs.count == 1)
        node.engine(.messagesLost)
        #expect(node.wants.map(\.token) == [FencingToken(101)])
        node.engine(.wantsAnswered([WantAnswer(key: want.key, state: .stale)]))
        node.pass { $0.core.workerLost(worker, now: $0.now) }
        var again = node.wants
        var next = WorkerID(rawValue: 0)
        node.pass { next = $0.worker(3) }
        again += node.wants
        #expect(node.rig.jobs.isEmpty)
        #expect(again.map(\.token) == [nil])
        #expect(node.rig.core.audit() == [])
        node.grant(again)
        let jobs = node.rig.jobs
        #expect(jobs.count == 1)
        node.pass { $0.done(jobs[0], by: next) }
        #expect(node.ends.map(\.token) == [FencingToken(102)])
        #expect(node.rig.terminals(for: client) == ["h r 200"])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `without the engine claims wait five seconds, and then start with a part of each limit`() {
        var (node, client, worker, _) = claimed()
        node.pass { rig in
            for number in 0..<9 { rig.fetch("h", "x\(number)", "http://example.com/\(number)", by: client) }
        }
        node.engine(.left(.timedOut))
        #expect(node.rig.jobs.isEmpty)
        node.wait(milliseconds: 5_000)
        // The limit of 6 for three nodes.
        #expect(node.rig.jobs.count == 2)
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: worker) }
        #expect(node.rig.jobs.count == 1)
        #expect(node.rig.core.audit() == [])
        node.engine(.joined(NodeID(8), members: 3))
        #expect(node.wants.count { $0.token != nil } == 2)
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a node that begins without the engine has its part of each limit, and says so once`() {
        var node = ClusterRig(isMember: false, members: 3)
        var client = ClientID(rawValue: 0)
        node.pass { rig in
            client = rig.client(1)
            _ = rig.worker()
            for number in 0..<9 { rig.fetch("h", "x\(number)", "http://example.com/\(number)", by: client) }
        }
        #expect(node.rig.core.takeUncoordinatedMemberCount() == nil)
        node.wait(milliseconds: 5_000)
        #expect(node.rig.jobs.count == 2)
        #expect(node.rig.core.takeUncoordinatedMemberCount() == 3)
        #expect(node.rig.core.takeUncoordinatedMemberCount() == nil)
    }

    @Test func `the reason of a claim tells whether another node fetches it`() {
        var (node, client, _, want) = claimed()
        func reason() -> String {
            node.pass { $0.send(.query(.explainRequest(HandlerID("h")!, RequestID("r")!)), by: client) }
            for case .client(.answerQuery(_, _, let json)) in node.rig.actions {
                return String(decoding: json, as: UTF8.self)
            }
            return ""
        }
        node.engine(.wantsAnswered([WantAnswer(key: want.key, state: .queued)]))
        #expect(reason().contains(#""waits-for":"cluster""#))
        #expect(node.wants == [want])
        node.engine(.wantsAnswered([WantAnswer(key: want.key, state: .running)]))
        #expect(reason().contains(#""waits-for":"node""#))
    }

    @Test func `a refusal reaches the other nodes, and their claims leave the window`() {
        var (node, _, worker, want) = claimed { $0.options.retries = 2 }
        node.grant([want])
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 3") }
        #expect(node.calls.contains(.reportRefusal(EngineRefusal(origin: want.origin, requestedMilliseconds: 3_000))))
        #expect(node.wants.isEmpty)
        var (other, _, _, waiting) = claimed()
        other.engine(
            .cooled(CoolDownNotice(origin: waiting.origin.key, remainingMilliseconds: 3_000, refusalsInRow: 1)))
        #expect(other.unwants == [waiting.key])
        #expect(other.wants.isEmpty)
        #expect(other.rig.core.audit() == [])
        other.wait(milliseconds: 3_500)
        #expect(other.wants.map(\.key) == [waiting.key])
        #expect(other.rig.core.audit() == [])
    }
}
