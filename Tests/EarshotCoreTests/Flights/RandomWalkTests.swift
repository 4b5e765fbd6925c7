import EarshotWire
import Testing

@testable import EarshotCore

/// Invariants under random sequences of events, and empty tables after the last peer has left.
struct RandomWalkTests {
    /// Peers with random behaviour, from a seed.
    struct Walk {
        var rig: CoreRig
        var random: SplitMix64Generator
        var clients: [ClientID] = []
        var workers: [WorkerID: [AttemptID: Job]] = [:]
        /// Sequence numbers of the last terminal received on the current connection, and on an earlier one.
        var unacknowledged: [ClientID: UInt64] = [:]
        var reported: [ClientID: UInt64] = [:]
        /// Sequence number of the last acknowledged terminal.
        var acknowledged: [ClientID: UInt64] = [:]
        var windows: [ClientID: Int] = [:]
        var tokens: [ClientID: SessionToken] = [:]
        /// Disconnected clients that may resume their session.
        var away: [ClientID] = []
        /// Pending requests of each client: neither ended nor removed by the client itself.
        var open: [ClientID: Set<String>] = [:]
        var nextPeer: UInt64 = 1
        var faults: [String] = []
        var cache = FakeCache()
        /// URL and credential of each request.
        var requested: [String: (url: String, scope: String)] = [:]
        var isEnding = false
        /// Replies of the cache that are still due.
        var lateAnswers: [(inout BrokerCore, MonotonicTime) -> Void] = []

        init(seed: UInt64) {
            random = SplitMix64Generator(seed: seed)
            var limits = CoreLimits()
            limits.originRules.defaultMaximumTransfers = 1 + Int(seed % 5)
            // Every other walk removes one or two records per pass.
            if seed % 2 == 0 {
                limits.maximumRequestRemovalsPerPass = 2
                limits.maximumSessionCleanupsPerPass = 1
                limits.maximumWithdrawalChecksPerPass = 1
            }
            if seed % 3 == 0 { limits.originRules.defaultSpacingMilliseconds = 20 }
            if seed % 4 < 2 {
                limits.maximumWaitingTerminals = 2
                limits.maximumDeliveredClaimsPerPass = 1
            }
            rig = CoreRig(limits: limits)
            rig.core.shellFeatures.isCaching = seed % 2 == 1
            rig.core.unixTimeSeconds = 1_000_000
        }

        mutating func pick(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &random) }

        mutating func step() {
            let kind = pick(100)
            pass()
            pass { $0.act(kind) }
            if kind == 99 { rig.core.releaseSpareCapacity(retaining: 0) }
            for fault in rig.core.audit() { faults.append(fault) }
        }

        /// Runs one pass of the broker: `events`, assignment, and all actions since the last pass. An action that no
        /// pass carried out would be a terminal that the broker counts as sent and no client receives.
        private mutating func pass(_ events: (inout Walk) -> Void = { _ in }) {
            events(&self)
            rig.core.timePassed(now: rig.now)
            rig.core.dispatch(now: rig.now)
            rig.actions = rig.core.takeActions()
            take()
        }

        private mutating func act(_ kind: Int) {
            switch kind {
            case 0..<3 where clients.count < 6:
                let id = ClientID(rawValue: nextPeer)
                nextPeer += 1
                windows[id] = [1, 3, 64, 256][pick(4)]
                greet(id)
                open[id] = []
            case 3 where !away.isEmpty && pick(2) == 0: comeBack()
            case 3: lose()
            case 4..<7 where workers.count < 3:
                let id = WorkerID(rawValue: nextPeer)
                nextPeer += 1
                rig.core.workerConnected(id, now: rig.now)
                rig.core.workerMessageReceived(.ready(Ready(slots: 1 + pick(6))), body: nil, from: id, now: rig.now)
                workers[id] = [:]
            case 7:
                guard let id = workers.keys.sorted(by: { $0.rawValue < $1.rawValue }).first else { return }
                workers[id] = nil
                rig.core.workerLost(id, now: rig.now)
            case 8..<50: fetch()
            case 50..<80: finish()
            case 80..<90: acknowledge()
            case 90..<94: remove()
            case 94:
                var limits = rig.core.limits
                limits.originRules.defaultMaximumTransfers = 1 + pick(6)
                limits.originRules.rules[OriginPattern("h1")!] = OriginRules.RuleTerms(
                    spacingMilliseconds: pick(2) * pick(300))
                rig.core.limitsChanged(limits, now: rig.now)
            case 95: rig.now = rig.now.advanced(byMilliseconds: pick(12_000))
            case 96..<98: subscribe()
            case 98: changeSlots()
            default:
                rig.now = rig.now.advanced(byMilliseconds: pick(50))
                rig.core.unixTimeSeconds += Int64(pick(3))
                if pick(20) == 0 { cache.removeAll() }
            }
        }

        /// Changes the slots by a SET of a client, or by SLOTS of a worker.
        private mutating func changeSlots() {
            let slots = 1 + pick(8)
            if pick(2) == 0 {
                guard let client = clients.first else { return }
                rig.send(.changeSetting(SettingWords(["slots", "\(slots)"])!), by: client)
            } else if let id = workers.keys.min(by: { $0.rawValue < $1.rawValue }) {
                rig.core.workerMessageReceived(.slots(slots), body: nil, from: id, now: rig.now)
            }
        }

        private mutating func lose() {
            guard !clients.isEmpty else { return }
            let id = clients.remove(at: pick(clients.count))
            rig.core.clientLost(id, now: rig.now)
            if tokens[id] != nil { away.append(id) }
        }

        /// Resumes a session over a new connection, if the session still exists.
        private mutating func comeBack() {
            let old = away.remove(at: pick(away.count))
            let id = ClientID(rawValue: nextPeer)
            nextPeer += 1
            windows[id] = windows[old]
            open[id] = open.removeValue(forKey: old)
            acknowledged[id] = acknowledged[old]
            unacknowledged[id] = acknowledged[old]
            reported[id] = max(reported[old] ?? 0, unacknowledged[old] ?? 0)
            greet(id, token: tokens[old])
        }

        private mutating func greet(_ id: ClientID, token: SessionToken? = nil) {
            rig.connect(id)
            var hello = Hello(window: windows[id, default: 256])
            hello.leaseMilliseconds = pick(3) * 3_000
            hello.token = token
            rig.core.clientMessageReceived(.hello(hello), from: id, now: rig.now)
            clients.append(id)
        }

        private mutating func welcomed(_ welcome: Welcome, _ id: ClientID) {
            tokens[id] = welcome.token
            guard welcome.lastReceivedNumber == nil else { return }
            open[id] = []
            unacknowledged[id] = nil
            acknowledged[id] = nil
            reported[id] = nil
        }

        private mutating func fetch() {
            guard !clients.isEmpty else { return }
            let id = clients[pick(clients.count)]
            let handler = ["a", "a/b", "c", "c/d/e", "f"][pick(5)]
            let request = "\(pick(1_000_000))"
            let url = "http://h\(pick(3))/\(pick(12))"
            let choice = pick(20)
            let priority = PriorityClass.allCases[pick(4)]
            let mode = CacheMode.allCases.filter { $0 != .explicit }[pick(6)]
            rig.fetch(handler, request, url, by: id) { fetch in
                fetch.options.priority = priority
                switch choice {
                case 0: fetch.options.subscribes = false
                case 1: fetch.options.maximumBodyBytes = 2
                case 2: fetch.options.deadlineMilliseconds = 20
                case 3: fetch.options.isCacheWarming = true
                case 4: fetch.url = "nonsense"
                case 5: fetch.options.retries = 0
                case 6, 7: fetch.httpFields = Array("cookie: \(choice)".utf8)
                case 8..<11: fetch.options.cacheMode = mode
                case 11..<13: fetch.options.cacheMode = .explicit
                default: break
                }
            }
            requested["\(handler) \(request)"] = (url, choice == 6 || choice == 7 ? "cookie: \(choice)" : "")
            if choice != 0 { open[id]?.insert("\(handler) \(request)") }
        }

        private mutating func finish() {
            let busy = workers.filter { !$0.value.isEmpty }.keys.sorted { $0.rawValue < $1.rawValue }
            guard !busy.isEmpty else { return }
            let id = busy[pick(busy.count)]
            let attempts = workers[id, default: [:]].keys.sorted { $0.flight < $1.flight }
            let attempt = attempts[pick(attempts.count)]
            guard let job = workers[id]?.removeValue(forKey: attempt) else { return }
            let fields = String(decoding: job.httpFields, as: UTF8.self)
            let scope = fields.split(separator: "\n").first { $0.hasPrefix("cookie") } ?? ""
            cache.contents[rig.nextBody] = "\(job.url) \(scope)"
            switch pick(12) {
            case 10: rig.done(job, by: id, status: 429, fields: pick(8) == 0 ? "retry-after: 700" : "retry-after: 3")
            case 11: rig.done(job, by: id, status: 503)
            case 0: rig.failed(job, "reset", by: id)
            case 1: rig.failed(job, "too-large", by: id)
            case 2: rig.done(job, by: id, status: 302, fields: "location: http://h\(pick(3))/\(pick(12))")
            case 3: rig.done(job, by: id, status: 404)
            case 4..<9 where rig.core.shellFeatures.isCaching: answerForCache(job, by: id)
            default: rig.done(job, by: id)
            }
            if pick(50) == 0 { rig.done(job, by: id) }
        }

        /// Answers with a response that may be cacheable. Its body names the URL and credential.
        private mutating func answerForCache(_ job: Job, by id: WorkerID) {
            let fields = String(decoding: job.httpFields, as: UTF8.self)
            let words = [
                "max-age=2", "max-age=0", "max-age=0, stale-while-revalidate=9", "no-store", "stale-if-error=9",
            ]
            let control = "cache-control: \(words[pick(words.count)])\netag: \"\(pick(2))\""
            guard !fields.contains("if-none-match") || pick(3) == 0 else {
                rig.done(job, by: id, status: 304, length: 0, fields: control)
                return
            }
            let status = pick(8) == 0 ? 500 : pick(8) == 0 ? 301 : 200
            let location = status == 301 ? "\nlocation: http://h\(pick(3))/\(pick(12))" : ""
            if control.contains("no-store") { cache.contents[rig.nextBody]? += " not to keep" }
            rig.done(job, by: id, status: status, fields: control + location)
        }

        /// Checks that a response from the cache belongs to the same URL and credential, and was cacheable.
        private mutating func check(_ terminal: Terminal, _ body: BodyID?) {
            guard let response = terminal.response, response.source == .cache || response.source == .revalidated,
                let body
            else { return }
            let content = cache.contents[body] ?? "nothing"
            guard let requested = requested["\(terminal.handler) \(terminal.request)"] else { return }
            // A redirect may have led to another origin, which receives no credential.
            let isRight =
                content == "\(response.url) \(requested.scope)"
                || requested.url != response.url && content == "\(response.url) "
            if !isRight {
                faults.append("cache: \(response.url) for '\(requested.scope)' is answered with '\(content)'")
            }
        }

        private mutating func acknowledge() {
            guard !clients.isEmpty else { return }
            let id = clients[pick(clients.count)]
            guard let last = unacknowledged[id] else { return }
            rig.send(.acknowledge(last), by: id)
            acknowledged[id] = last
        }

        private mutating func remove() {
            guard !clients.isEmpty else { return }
            let id = clients[pick(clients.count)]
            let pattern = HandlerPattern(["a", "a/", "c", "c/", "f"][pick(5)])!
            rig.send(.removeHandlers(pattern), by: id)
            stopWaiting(id, pattern)
        }

        private mutating func subscribe() {
            guard !clients.isEmpty else { return }
            let id = clients[pick(clients.count)]
            let pattern = HandlerPattern(["a", "a/", "c", "c/", "f"][pick(5)])!
            guard pick(2) == 0 else {
                rig.send(.subscribe(pattern), by: id)
                return
            }
            rig.send(.unsubscribe(pattern), by: id)
            stopWaiting(id, pattern)
        }

        /// Expects no terminals for handlers that a client has removed or unsubscribed.
        private mutating func stopWaiting(_ id: ClientID, _ pattern: HandlerPattern) {
            open[id] = open[id]?.filter { !pattern.matches(HandlerID(String($0.split(separator: " ")[0]))!) }
        }

        /// Carries out the actions of all peers.
        private mutating func take() {
            for action in rig.actions {
                switch action {
                case .worker(.send(let id, .job(let job))): workers[id]?[job.attempt] = job
                case .worker(.send(let id, .cancelAttempt(let attempt))):
                    guard let job = workers[id]?.removeValue(forKey: attempt) else { continue }
                    rig.failed(job, "cancelled", by: id)
                case .client(.deliverTerminal(let id, let terminal, let body)): receive(terminal, body, id)
                case .client(.send(let id, .welcome(let welcome))): welcomed(welcome, id)
                default: if let answer = cache.carryOut(action) { lateAnswers.append(answer) }
                }
            }
            while !lateAnswers.isEmpty, isEnding || pick(3) > 0 { lateAnswers.removeFirst()(&rig.core, rig.now) }
            rig.actions = rig.core.takeActions()
            if !rig.actions.isEmpty { take() }
        }

        /// Checks a terminal that a client receives.
        private mutating func receive(_ terminal: Terminal, _ body: BodyID?, _ id: ClientID) {
            check(terminal, body)
            guard clients.contains(id) else {
                faults.append("2: a terminal goes to a client that is gone")
                return
            }
            let seen = unacknowledged[id] ?? 0
            // Some of the repeated terminals may have been withdrawn.
            let reported = reported[id] ?? 0
            let isRight =
                terminal.sequence > reported ? terminal.sequence == max(seen, reported) + 1 : terminal.sequence > seen
            if !isRight { faults.append("1: sequence \(terminal.sequence) after \(seen), told \(reported)") }
            unacknowledged[id] = terminal.sequence
            open[id]?.remove("\(terminal.handler) \(terminal.request)")
        }

        /// Runs until all requests have ended.
        mutating func finishAll() {
            isEnding = true
            pass { walk in
                for client in walk.clients {
                    for pattern in ["a", "a/b", "c", "c/d/e", "f"] {
                        walk.rig.send(.subscribe(HandlerPattern(pattern)!), by: client)
                    }
                }
            }
            for _ in 0..<20_000 where rig.core.ledger.requests.pending + rig.core.ledger.deliveries.outstanding > 0 {
                pass { walk in if walk.workers.isEmpty { walk.act(4) } }
                pass { $0.finish() }
                rig.now = rig.now.advanced(byMilliseconds: 500)
                pass { walk in
                    for client in walk.clients {
                        if let last = walk.unacknowledged[client] { walk.rig.send(.acknowledge(last), by: client) }
                    }
                }
            }
            for client in clients where open[client]?.isEmpty == false {
                // Removals by other clients under the same handler end in FAILED `removed`, so no request stays open.
                faults.append("1: \(client) still waits for \(open[client] ?? [])")
            }
            for client in clients { rig.core.clientLost(client, now: rig.now) }
            rig.now = rig.now.advanced(byMilliseconds: 1_000_000)
            repeat { pass() } while rig.core.hasPendingRemovals
            if !rig.core.isIdle { faults.append("12: something is left: \(rig.core.ledger)") }
        }
    }

    @Test(arguments: [1, 2, 15, 51] as [UInt64])
    func `every invariant holds after each of 1,000 random events, and nothing is left`(seed: UInt64) {
        var walk = Walk(seed: seed)
        for step in 0..<1_000 {
            walk.step()
            guard walk.faults.isEmpty else {
                Issue.record("seed \(seed), step \(step): \(walk.faults)")
                return
            }
        }
        walk.finishAll()
        #expect(walk.faults == [], "seed \(seed)")
    }
}
