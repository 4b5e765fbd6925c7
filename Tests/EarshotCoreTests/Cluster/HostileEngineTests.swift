import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Random events of an engine that keeps no rule, between requests, removals, workers and time.
@Suite struct HostileEngineTests {
    /// A node with clients, a worker for the web and one for bodies of other nodes.
    private struct Walk {
        var node = ClusterRig(isMember: false)
        var generator: SplitMix64Generator
        let client: ClientID
        let worker: WorkerID
        let puller: WorkerID
        var requested: [EngineWant] = []
        var jobs: [(job: Job, worker: WorkerID)] = []
        var lastRequest = 0

        init(seed: UInt64) {
            generator = SplitMix64Generator(seed: seed)
            var client = ClientID(rawValue: 0)
            var worker = WorkerID(rawValue: 0)
            var puller = WorkerID(rawValue: 0)
            node.pass { rig in
                client = rig.client(1)
                worker = rig.worker(1, slots: 3)
                puller = rig.worker(2, slots: 3, schemes: [BodyAddress.scheme])
            }
            self.client = client
            self.worker = worker
            self.puller = puller
        }

        mutating func random(_ count: Int) -> Int { Int(generator.next() % UInt64(count)) }

        mutating func chance(_ percent: Int) -> Bool { random(100) < percent }

        var key: ClusterKey {
            mutating get {
                requested.isEmpty || chance(10) ? ClusterKey(high: 4, low: 4) : requested[random(requested.count)].key
            }
        }

        var token: FencingToken { mutating get { FencingToken(UInt64(100 + random(12))) } }

        var result: [UInt8] {
            mutating get {
                let digest = String(repeating: "ab", count: 32)
                let texts = [
                    "1 r 204 0 - -", "1 r 200 3 \(digest) 10.0.0.2:1/\(key)/\(token)", "1 r 302 0 - -\nlocation: /b",
                    "1 r 503 0 - -", "1 r 200 7 - -", "1 f reset -", "1 f too-large 2 much", "1 f poisonous -",
                    "1 f unknown-host - ", "1 f tls - ", "1 r 404 0 - -", "1 r 200 0 - -", "1 r 200 3 \(digest) -",
                    "1 r 302 0 - -\nlocation: http://o1.com/3", "nonsense",
                    "1 r 200 3 \(digest) \(ClusterRig.address)/\(key)/\(token)",
                ]
                return Array(texts[random(texts.count)].utf8)
            }
        }

        var event: EngineEvent {
            mutating get {
                switch random(10) {
                case 0: .joined(NodeID(generator.next()), members: random(4))
                case 1: .left([.timedOut, .connectionClosed, .secretMismatch][random(3)])
                case 2: .members(chance(20) ? .max : random(5) - 1)
                case 3:
                    .wantsAnswered(
                        (0..<random(4)).map { _ in
                            let states: [WantAnswer.State] = [.queued, .running, .held, .stale, .ended(result)]
                            return WantAnswer(key: key, state: states[random(5)])
                        })
                case 4, 5, 6:
                    .flightsGranted(
                        (0..<random(5)).map { _ in
                            let records = [
                                "1 GET 0 0 follow default http://o\(random(2)).com/\(random(4))", "", "1 PUT x",
                                "1 GET 0 0 follow default http://o1.com/\(random(4))\n:policy public-only",
                                "1 GET 0 0 follow default http://o1.com/1\n:avoid 10.0.0.9:1,\(ClusterRig.address)",
                            ]
                            let record = chance(50) ? Array(records[random(5)].utf8) : nil
                            return EngineGrant(key: key, token: token, priority: .high, record: record)
                        }, opensAfterMilliseconds: chance(50) ? random(3) - 1 : nil)
                case 7: .resultReceived(key, result)
                case 8: .attemptAborted(key, token)
                default:
                    requested.isEmpty
                        ? .workWaits
                        : .cooled(
                            CoolDownNotice(
                                origin: requested[random(requested.count)].origin.key,
                                remainingMilliseconds: chance(10) ? .max : random(900_000),
                                refusalsInRow: random(3)))
                }
            }
        }

        mutating func step() {
            switch random(9) {
            case 0, 1, 2:
                lastRequest += 1
                let (number, url) = (lastRequest, "http://o\(random(2)).com/\(random(4))")
                let isOwn = chance(20)
                node.pass { rig in
                    rig.fetch("h\(number % 3)", "\(number)", url, by: client) { fetch in
                        if isOwn { fetch.httpFields = Array("authorization: x".utf8) }
                        fetch.options.retries = number % 2
                    }
                }
            case 3:
                let number = random(3)
                node.pass { $0.remove("h\(number)", by: client) }
            case 4 where !jobs.isEmpty:
                let (job, worker) = jobs.remove(at: random(jobs.count))
                let kind = random(5)
                node.pass { rig in
                    switch kind {
                    case 0: rig.failed(job, "reset", by: worker)
                    case 1: rig.failed(job, "cancelled", by: worker)
                    case 2: rig.done(job, by: worker, status: 503, fields: "retry-after: 1")
                    default: rig.done(job, by: worker)
                    }
                }
            case 5: node.wait(milliseconds: random(3_000))
            default:
                let next = event
                node.engine(next)
            }
            learn()
        }

        /// Ends all attempts, without the engine, until no request is left.
        mutating func finish() {
            node.engine(.left(.connectionClosed))
            learn()
            for _ in 0..<400 where node.rig.core.ledger.requests.pending > 0 {
                let running = jobs
                jobs = []
                node.pass { rig in for (job, worker) in running { rig.done(job, by: worker) } }
                learn()
                node.wait(milliseconds: 5_000)
                learn()
            }
        }

        private mutating func learn() {
            requested += node.wants
            if requested.count > 40 { requested.removeFirst(requested.count - 40) }
            for action in node.rig.actions {
                if case .worker(.send(let id, .job(let job))) = action { jobs.append((job, id)) }
            }
            let last = node.rig.actions.compactMap { action -> UInt64? in
                if case .client(.deliverTerminal(_, let terminal, _)) = action { terminal.sequence } else { nil }
            }.max()
            if let last {
                node.pass { $0.send(.acknowledge(last), by: client) }
                learn()
            }
        }
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `no event of an engine breaks an invariant, and without it every request ends`(seed: UInt64) {
        var walk = Walk(seed: seed)
        for step in 0..<250 {
            walk.step()
            let faults = walk.node.rig.core.audit()
            #expect(faults == [], "step \(step)")
            guard faults.isEmpty else { return }
        }
        walk.finish()
        #expect(walk.node.rig.core.ledger.requests.pending == 0)
        #expect(walk.node.rig.core.audit() == [])
    }
}
