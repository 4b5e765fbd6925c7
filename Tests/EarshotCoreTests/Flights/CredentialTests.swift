import EarshotWire
import Testing

@testable import EarshotCore

/// Isolation of credentials: neither a response nor a refusal crosses from one credential to another.
struct CredentialTests {
    /// Random order of requests, responses, refusals and removals for one URL, with several credentials and without
    /// any.
    private struct Interleaving {
        private static let credentials = ["", "authorization: one", "authorization: two", "cookie: one"]
        private static let refusalSeconds = 30

        private var rig: CoreRig
        private var random: SplitMix64Generator
        private let worker: WorkerID
        private let clients: [ClientID]
        /// Client and credential of each open request.
        private var open: [String: (client: ClientID, credential: String)] = [:]
        /// Running jobs, including those being cancelled.
        private var running: [Job] = []
        /// Credential that received each body.
        private var bodies: [BodyID: String] = [:]
        /// End of the cool-down of each refused credential.
        private var quietUntil: [String: MonotonicTime] = [:]
        private var lastRequest = 0
        private var faults: [String] = []

        init(seed: UInt64) {
            random = SplitMix64Generator(seed: seed)
            var limits = CoreLimits()
            limits.originRules.defaultMaximumTransfers = 100
            rig = CoreRig(limits: limits)
            clients = [rig.client(1), rig.client(2)]
            worker = rig.worker(slots: 64)
        }

        /// Runs random events and returns the violations.
        mutating func run(steps: Int) -> [String] {
            for _ in 0..<steps {
                switch random.next() % 10 {
                case 0..<4: submit()
                case 4..<6: answer(status: 200)
                case 6..<8: answer(status: 429)
                case 8: leave()
                default:
                    rig.wait(milliseconds: Int(random.next() % 40_000))
                    note()
                }
            }
            runUntilIdle()
            return faults + rig.core.audit()
        }

        private mutating func submit() {
            let credential = Self.credentials[pick(Self.credentials.count)]
            let client = clients[pick(clients.count)]
            lastRequest += 1
            let request = "\(lastRequest)"
            open[request] = (client, credential)
            rig.pass { rig in
                rig.fetch("h/\(request)", request, "http://api/me", by: client) {
                    $0.httpFields = Array(credential.utf8)
                }
            }
            note()
            if quietUntil[credential] == nil, !running.contains(where: { Self.credential(of: $0) == credential }) {
                faults.append("a request with '\(credential)', that was never refused, waits")
            }
        }

        private mutating func answer(status: Int) {
            guard !running.isEmpty else { return }
            let job = running.remove(at: pick(running.count))
            let credential = Self.credential(of: job)
            bodies[BodyID(rawValue: UInt64(bodies.count + 1))] = credential
            let worker = worker
            let fields = status == 429 ? "retry-after: \(Self.refusalSeconds)" : ""
            if status == 429 {
                quietUntil[credential] = rig.now.advanced(byMilliseconds: Self.refusalSeconds * 1_000)
            }
            rig.pass { $0.done(job, by: worker, status: status, fields: fields) }
            note()
        }

        private mutating func leave() {
            guard let request = open.keys.sorted().randomElement(using: &random),
                let client = open.removeValue(forKey: request)?.client
            else { return }
            rig.pass { $0.remove("h/\(request)", by: client) }
            note()
        }

        /// Checks the actions of the last pass.
        private mutating func note() {
            for job in rig.jobs {
                let credential = Self.credential(of: job)
                if let until = quietUntil[credential], rig.now < until {
                    faults.append("'\(credential)' is used again \(until.milliseconds(since: rig.now)) ms too early")
                }
                running.append(job)
            }
            for attempt in rig.cancellations {
                // Confirmed at once, because only the jobs after it are checked.
                guard let index = running.firstIndex(where: { $0.attempt == attempt }) else { continue }
                let job = running.remove(at: index)
                let worker = worker
                rig.core.workerMessageReceived(
                    .failed(job.attempt, code: "cancelled", detail: nil, receivedBytes: 0), body: nil, from: worker,
                    now: rig.now)
            }
            for case .client(.deliverTerminal(_, let terminal, let body)) in rig.actions {
                let request = terminal.request.description
                guard let credential = open.removeValue(forKey: request)?.credential else {
                    faults.append("request \(request) was answered, which has ended")
                    continue
                }
                if let body, bodies[body] != credential {
                    faults.append("'\(credential)' got what was answered to '\(bodies[body] ?? "nobody")'")
                }
                if body == nil, case .result = terminal.outcome { faults.append("request \(request) has no body") }
            }
        }

        /// Answers all open requests.
        private mutating func runUntilIdle() {
            for _ in 0..<20 where !open.isEmpty {
                while !running.isEmpty { answer(status: 200) }
                rig.wait(milliseconds: 70_000)
                note()
            }
            if !open.isEmpty { faults.append("\(open.count) requests are never answered") }
        }

        private mutating func pick(_ bound: Int) -> Int { Int(random.next() % UInt64(bound)) }

        private static func credential(of job: Job) -> String { String(decoding: job.httpFields, as: UTF8.self) }
    }

    @Test("No answer and no refusal crosses from one credential to another, in 2,000 orders of events")
    func interleavings() {
        for seed in 1...2_000 as ClosedRange<UInt64> {
            var interleaving = Interleaving(seed: seed)
            let faults = interleaving.run(steps: 16)
            #expect(faults == [], "seed \(seed)")
            if !faults.isEmpty { return }
        }
    }

    @Test("Two credentials are two flights, and user information in the URL is one")
    func flights() {
        var rig = CoreRig()
        let a = rig.client(1)
        let worker = rig.worker()
        rig.pass { rig in
            rig.fetch("h", "1", "http://api/me", by: a) { $0.httpFields = Array("authorization: one".utf8) }
            rig.fetch("h", "2", "http://api/me", by: a) { $0.httpFields = Array("authorization: two".utf8) }
            rig.fetch("h", "3", "http://api/me", by: a) { $0.httpFields = Array("authorization: one".utf8) }
            rig.fetch("h", "4", "http://user@api/me", by: a)
        }
        #expect(rig.jobs.count == 3)
        let refused = rig.jobs.first { $0.url.contains("user") }
        rig.pass { rig in
            if let refused { rig.done(refused, by: worker, status: 429, fields: "retry-after: 9") }
            rig.fetch("h", "5", "http://user@api/other", by: a)
            rig.fetch("h", "6", "http://other@api/other", by: a)
        }
        #expect(rig.jobs.map(\.url) == ["http://other@api/other"])
    }
}
