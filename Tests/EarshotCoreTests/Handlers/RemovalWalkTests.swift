import EarshotWire
import Foundation
import Testing

@testable import EarshotCore

/// A core under random requests and removals, against `DeliveryModel`.
///
/// With EARSHOT_LONG=1 it is 200 seeds of 5,000 steps; EARSHOT_SEED names one of them.
struct RemovalWalkTests {
    private static let isLong = ProcessInfo.processInfo.environment["EARSHOT_LONG"] != nil
    static let seeds: [UInt64] =
        ProcessInfo.processInfo.environment["EARSHOT_SEED"].flatMap { UInt64($0) }.map { [$0] }
        ?? Array(1...(isLong ? 200 : 3))
    static let steps = isLong ? 5_000 : 300

    /// Faults of a broker, each of which the model detects.
    enum Canary: CaseIterable {
        case lostTerminal
        case terminalTwice
        case inheritedCancellation
        case terminalAfterRemoval
        case otherSubscriber
        case lostReply
    }

    /// Message of a client, in terms of the model and of the wire.
    enum Message {
        case fetch(String, id: String, url: String, replaces: Bool)
        case remove(String)
        case removeRequest(String, id: String)
        case subscribe(String)
        case unsubscribe(String)
        case acknowledge
        case bye

        /// - Parameter variant: end of the URL of a FETCH, by which the model tells requests with one ID apart.
        func text(variant: Int, sequence: UInt64) -> String {
            switch self {
            case .fetch(let handler, let id, let url, let replaces):
                "FETCH \(handler) \(id) \(url)?\(variant)\nretries: 1\n" + (replaces ? "replace: yes\n" : "")
            case .remove(let pattern): "REMOVE \(pattern)\n"
            // To be `REMOVE handler id`.
            case .removeRequest(let handler, let id): "REMOVE \(handler) \(id)\n"
            case .subscribe(let pattern): "SUBSCRIBE \(pattern)\n"
            case .unsubscribe(let pattern): "UNSUBSCRIBE \(pattern)\n"
            case .acknowledge: "ACK \(sequence)\n"
            case .bye: "BYE\n"
            }
        }
    }

    struct Walk {
        var rig: CoreRig
        var random: SplitMix64Generator
        var model = DeliveryModel()
        var canary: Canary?
        /// Sessions with a connection.
        var connections: [ClientID: Int] = [:]
        /// Token of each session with a lease that is away.
        var away: [Int: String] = [:]
        var tokens: [Int: String] = [:]
        /// FETCH of each client that the broker has read and not carried out.
        var fetches: [ClientID: (handler: String, id: String, url: String, tag: Int)] = [:]
        /// Handlers and IDs of the FETCHes of each session by number, because an ERROR has only the number.
        var requested: [Int: [UInt64: String]] = [:]
        /// Clients whose loss the broker hears after their removal.
        var lost: Set<ClientID> = []
        /// Messages that the broker has not read.
        var unread: [ClientID: [Message]] = [:]
        var running: [AttemptID: (worker: WorkerID, job: Job)] = [:]
        var cancelling: [AttemptID: (worker: WorkerID, job: Job)] = [:]
        var nextConnection: UInt64 = 1
        var nextTag = 1
        var terminals = 0
        /// Number of requests of each handler and ID.
        var variants: [String: Int] = [:]
        /// A removed request of each session, for a canary.
        var removed: [Int: String] = [:]

        static let handlers = ["a", "a/b", "a/b/c", "a/d", "e"]
        static let patterns = handlers + ["a/", "a/b/"]
        /// Number of different URLs of the requests with one ID.
        private static let variants = 4

        /// Numbers of different IDs of a handler, and of URLs of an origin.
        let ids: Int
        let paths: Int

        init(seed: UInt64, canary: Canary? = nil) {
            random = SplitMix64Generator(seed: seed)
            (ids, paths) = seed % 3 == 0 ? (5, 1) : (30, 2)
            self.canary = canary
            rig = CoreRig(limits: Self.limits(seed))
            for number in 1...2 { _ = rig.worker(UInt64(1_000_000 + number), slots: 2 + Int(seed % 6)) }
        }

        /// Almost every removal and departure takes several passes.
        private static func limits(_ seed: UInt64) -> CoreLimits {
            var limits = CoreLimits()
            limits.maximumRequestRemovalsPerPass = 1 + Int(seed % 3)
            limits.maximumSessionCleanupsPerPass = 1 + Int(seed % 2)
            limits.maximumWithdrawalChecksPerPass = 1 + Int(seed % 3)
            limits.originRules.defaultMaximumTransfers = 1 + Int(seed % 5)
            return limits
        }

        /// Whether the broker passes no event of a client, because of its removal.
        private func isHeld(_ client: ClientID) -> Bool { rig.core.hasPendingRemoval(by: client) }

        var now: Int { Int(rig.now.nanoseconds / 1_000_000) }

        mutating func pick(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &random) }

        mutating func oneOf<T>(_ values: [T]) -> T { values[pick(values.count)] }

        private mutating func someClient() -> ClientID? {
            let clients = connections.keys.sorted { $0.rawValue < $1.rawValue }
            return clients.isEmpty ? nil : oneOf(clients)
        }

        // MARK: Steps

        mutating func step() {
            switch pick(100) {
            case 0..<4 where connections.count < 6: connect()
            case 4..<6: if let client = someClient() { lose(client) }
            case 6..<9 where !away.isEmpty: resume()
            case 9..<40:
                let (handler, url) = (oneOf(Self.handlers), self.url())
                write(.fetch(handler, id: "\(pick(ids))", url: url, replaces: false))
            case 40..<42: writeMany()
            case 42..<45:
                let (handler, url) = (oneOf(Self.handlers), self.url())
                write(.fetch(handler, id: "\(pick(ids))", url: url, replaces: true))
            case 45..<49: write(.remove(oneOf(Self.patterns)))
            case 49..<54:
                let handler = oneOf(Self.handlers)
                write(.removeRequest(handler, id: "\(pick(ids))"))
            case 54..<57: write(.subscribe(oneOf(Self.patterns)))
            case 57..<59: write(.unsubscribe(oneOf(Self.patterns)))
            case 59..<68: write(.acknowledge)
            case 68: if pick(3) == 0 { write(.bye) }
            case 69..<72: rig.now = rig.now.advanced(byMilliseconds: pick(3_000))
            case 72..<75: checkIdle()
            default: rig.now = rig.now.advanced(byMilliseconds: pick(20))
            }
            pass()
        }

        private mutating func url() -> String { "http://h\(pick(3))/\(pick(paths))" }

        private mutating func write(_ message: Message) {
            guard let client = someClient() else { return }
            unread[client, default: []].append(message)
        }

        /// A removal of more than 64 requests is large.
        private mutating func writeMany() {
            guard let client = someClient() else { return }
            let handler = oneOf(Self.handlers)
            for id in 0..<(70 + pick(40)) {
                let url = self.url()
                unread[client, default: []].append(.fetch(handler, id: "m\(id)", url: url, replaces: false))
            }
        }

        /// One pass of the broker.
        private mutating func pass(readsAll: Bool = false) {
            model.passed(to: now)
            rig.core.timePassed(now: rig.now)
            take()
            for client in lost.sorted(by: { $0.rawValue < $1.rawValue }) { lose(client) }
            for client in unread.keys.sorted(by: { $0.rawValue < $1.rawValue }) where readsAll || pick(4) > 0 {
                for _ in 0..<(readsAll ? 1_000 : 1 + pick(100)) {
                    guard connections[client] != nil, !isHeld(client), unread[client]?.isEmpty == false,
                        let message = unread[client]?.removeFirst()
                    else { break }
                    send(message, by: client)
                }
            }
            if pick(3) == 0 { finish() }
            let behind = Set(unread.filter { !$0.value.isEmpty }.keys)
            rig.core.dispatch(now: rig.now) { behind.contains($0) }
            fetchesCarriedOut()
            take()
        }

        private mutating func send(_ message: Message, by client: ClientID) {
            guard let session = connections[client], let state = model.sessions[session] else { return }
            var (tag, variant) = (nextTag, 0)
            let last = state.lastSequence
            let sequence = pick(4) > 0 ? last : UInt64(pick(Int(last) + 1))
            switch message {
            case .fetch(let handler, let id, let url, let replaces):
                guard model.isCertain(handler, id) else { return }
                let name = "\(handler) \(id)"
                variant = variants[name, default: 0] % Self.variants
                let isOpen = { [model, variant] (old: Int) in model.requests[old]?.url == "\(url)?\(variant)" }
                // A repetition has the same URL. The next request of an ID has another one than the last ones.
                if !replaces, let old = model.named[name], isOpen(old) {
                    tag = old
                } else {
                    variants[name, default: 0] += 1
                    variant = variants[name, default: 0] % Self.variants
                }
                nextTag += 1
                fetches[client] = (handler, id, "\(url)?\(variant)", tag)
                if replaces {
                    model.replace(session, handler, id)
                    removed[session] = nil
                }
            case .remove(let pattern): model.remove(session, pattern, id: nil)
            case .removeRequest(let handler, let id): model.remove(session, handler, id: id)
            case .subscribe(let pattern): model.subscribe(session, to: pattern)
            case .unsubscribe(let pattern): model.unsubscribe(session, from: pattern)
            case .acknowledge: model.acknowledge(session, sequence)
            case .bye: model.ended(session)
            }
            send(message.text(variant: variant, sequence: sequence), of: session, by: client)
            fetchesCarriedOut()
            take()
            if case .bye = message { lose(client) }
        }

        /// Reports each FETCH to the model whose removal, if it replaces, is over.
        private mutating func fetchesCarriedOut() {
            for (client, fetch) in fetches where !isHeld(client) {
                fetches[client] = nil
                guard let session = connections[client] else { continue }
                model.fetch(session, fetch.handler, fetch.id, fetch.url, tag: fetch.tag)
            }
        }

        private mutating func send(_ head: String, of session: Int, by client: ClientID) {
            do {
                let message = try ClientMessage(head: Array(head.utf8))
                if message.canHaveNumber { model.sessions[session]?.lastNumber += 1 }
                let number = message.canHaveNumber ? model.sessions[session]?.lastNumber : nil
                if case .fetch(let fetch) = message, let number {
                    requested[session, default: [:]][number] = "\(fetch.handler) \(fetch.request)"
                }
                rig.send(message, number: number, by: client)
            } catch {
                Issue.record("\(head): \(error)")
            }
        }

        // MARK: Connections

        private mutating func connect() {
            let window = oneOf([1, 3, 64, 256])
            let lease = oneOf([0, 0, 3_000, 20_000])
            let client = ClientID(rawValue: nextConnection)
            let session = Int(nextConnection)
            model.sessions[session] = DeliveryModel.Session(window: window, leaseMilliseconds: lease)
            greet(client, session)
        }

        private mutating func greet(_ client: ClientID, _ session: Int, more: String = "") {
            guard let state = model.sessions[session] else { return }
            nextConnection += 1
            connections[client] = session
            rig.connect(client)
            let lease = state.leaseMilliseconds / 1_000
            send(
                "HELLO EAR/1\nclient: walker\nwindow: \(state.window)\nlease: \(lease)\n" + more, of: session,
                by: client)
            take()
        }

        private mutating func lose(_ client: ClientID) {
            guard !isHeld(client) else {
                lost.insert(client)
                return
            }
            lost.remove(client)
            guard let session = connections.removeValue(forKey: client) else { return }
            unread[client] = nil
            model.lost(session, now: now)
            rig.core.clientLost(client, now: rig.now)
            take()
            if model.sessions[session] != nil { away[session] = tokens[session] }
        }

        private mutating func resume() {
            let session = oneOf(away.keys.sorted())
            guard let token = away.removeValue(forKey: session), let state = model.sessions[session],
                let end = state.leaseEnd, end > now
            else { return }
            greet(
                ClientID(rawValue: nextConnection), session,
                more: "token: \(token)\nunanswered: \(state.lastAnswered + 1)\n")
        }

        // MARK: Workers

        /// One attempt ends.
        private mutating func finish() {
            let attempts = (Array(running.keys) + Array(cancelling.keys)).sorted { $0.flight < $1.flight }
            guard !attempts.isEmpty else { return }
            let attempt = oneOf(attempts)
            if let (worker, job) = cancelling.removeValue(forKey: attempt) {
                // Sometimes its response was on its way.
                if pick(3) == 0 { rig.done(job, by: worker) } else { rig.failed(job, "cancelled", by: worker) }
            } else if let (worker, job) = running.removeValue(forKey: attempt) {
                let status = [200, 201, 203, 404][pick(4)]
                if pick(4) > 0 {
                    model.attemptEnded(job.url, status == 404 ? "http-status" : "\(status)", now: now)
                    rig.done(job, by: worker, status: status)
                } else {
                    // Each request permits one retry.
                    if attempt.attempt == 2 { model.attemptEnded(job.url, "reset", now: now) }
                    rig.failed(job, "reset", by: worker)
                }
            }
            take()
        }

        // MARK: Actions

        private mutating func take() {
            var actions = rig.takeActions()
            while !actions.isEmpty {
                for action in actions { take(action) }
                actions = rig.takeActions()
            }
        }

        private mutating func take(_ action: Action) {
            switch action {
            case .worker(.send(let worker, .job(let job))): running[job.attempt] = (worker, job)
            case .worker(.send(_, .cancelAttempt(let attempt))):
                if let entry = running.removeValue(forKey: attempt) { cancelling[attempt] = entry }
            case .client(.deliverTerminal(let client, let terminal, _)):
                guard let session = connections[client] else {
                    Issue.record("a terminal goes to connection \(client.rawValue), which has ended")
                    return
                }
                received(terminal, client, session)
            case .client(.send(let client, let message)):
                guard let session = connections[client] else { return }
                received(String(decoding: message.encoded(), as: UTF8.self), nil, session)
            case .client(.replyToNumberedMessage(let client, let message, _, let number)):
                guard let session = connections[client] else { return }
                model.sessions[session]?.lastAnswered = number
                received(String(decoding: message.encoded(), as: UTF8.self), number, session)
            case .client(.close(let client, let reason)): Issue.record("\(client.rawValue) is closed: \(reason)")
            default: break
            }
        }

        private mutating func received(_ terminal: Terminal, _ client: ClientID, _ session: Int) {
            terminals += 1
            var outcome: String
            let url: String?
            switch terminal.outcome {
            case .result(let status, let response): (outcome, url) = ("\(status)", response.url)
            case .failed(let failure): (outcome, url) = (failure.code, failure.errorPageResponse?.url ?? failure.url)
            }
            let name = "\(terminal.handler) \(terminal.request)"
            let sequence = terminal.sequence
            let isFalse = terminals > 50
            if isFalse, canary == .inheritedCancellation { outcome = "cancelled" }
            if !isFalse || canary != .lostTerminal {
                model.terminal(session, name: name, url: url, outcome: outcome, sequence: sequence)
            }
            if isFalse, canary == .terminalTwice {
                model.terminal(session, name: name, url: url, outcome: outcome, sequence: sequence + 1)
            }
            if isFalse, canary == .otherSubscriber {
                for other in connections.values where other != session {
                    guard model.sessions[other]?.subscriptions.isEmpty == true else { continue }
                    model.terminal(other, name: name, url: url, outcome: outcome, sequence: 1)
                }
            }
            if outcome == "removed" { removed[session] = name }
        }

        private mutating func received(_ text: String, _ number: UInt64?, _ session: Int) {
            let lines = text.split(separator: "\n").map(String.init)
            let words = lines[0].split(separator: " ").map(String.init)
            func field(_ name: String) -> String? {
                lines.first { $0.hasPrefix("\(name): ") }.map { String($0.dropFirst(name.count + 2)) }
            }
            switch words[0] {
            case "WELCOME":
                tokens[session] = field("token")
                guard let number = field("resumed") else { return }
                model.resumed(session, number: UInt64(number))
            case "OK": break
            case "REMOVED", "ERROR":
                if canary == .lostReply { return }
                let error = words[0] == "ERROR" ? number.flatMap { requested[session]?[$0] } ?? "?" : nil
                model.reply(session, error: error, count: words[0] == "REMOVED" ? words.last.flatMap { Int($0) } : nil)
                if canary == .terminalAfterRemoval, error == nil, let name = removed[session] {
                    let last = model.sessions[session]?.lastSequence ?? 0
                    model.terminal(session, name: name, url: nil, outcome: "removed", sequence: last + 1)
                }
            default: Issue.record("unexpected: \(text)")
            }
        }

        // MARK: Quiet moments

        /// Whether something is left to do before another event.
        private var isBusy: Bool {
            !lost.isEmpty || unread.values.contains { !$0.isEmpty } || rig.core.nextTimer.map { $0 <= rig.now } == true
        }

        /// Runs passes until nothing is left to do before another event, and checks.
        mutating func checkIdle() {
            var passes = 0
            repeat {
                pass(readsAll: true)
                passes += 1
            } while passes < 20_000 && isBusy
            if passes == 20_000 { Issue.record("the broker is never quiet") }
            model.checkIdle(running: running.values.map(\.job.url), pending: rig.core.ledger.requests.pending)
            for fault in rig.core.audit() { Issue.record("\(fault)") }
        }

        /// Ends all requests, and then all sessions.
        mutating func finishAll() {
            var rounds = 0
            repeat {
                for client in connections.keys.sorted(by: { $0.rawValue < $1.rawValue }) {
                    send(.acknowledge, by: client)
                }
                while !away.isEmpty { resume() }
                for _ in 0..<4 { finish() }
                rig.now = rig.now.advanced(byMilliseconds: 500)
                checkIdle()
                rounds += 1
            } while rounds < 5_000 && model.faults.isEmpty && !model.isFinished
            if rounds == 5_000 { Issue.record("some requests never end") }
            for client in connections.keys.sorted(by: { $0.rawValue < $1.rawValue }) { lose(client) }
            rig.now = rig.now.advanced(byMilliseconds: 60_000)
            while !running.isEmpty || !cancelling.isEmpty { finish() }
            checkIdle()
            if !rig.core.isIdle { Issue.record("something is left: \(rig.core.ledger)") }
        }
    }

    @Test(arguments: seeds)
    func `each session gets the terminals of its requests, and none of those that it removed`(seed: UInt64) {
        var walk = Walk(seed: seed)
        for step in 0..<Self.steps {
            walk.step()
            guard walk.model.faults.isEmpty else {
                Issue.record("seed \(seed), step \(step): \(walk.model.faults)")
                return
            }
        }
        walk.finishAll()
        #expect(walk.model.faults == [], "seed \(seed)")
    }

    @Test(arguments: Canary.allCases)
    func `the model detects a deliberate fault`(canary: Canary) {
        var walk = Walk(seed: 3, canary: canary)
        var steps = 0
        while walk.model.faults.isEmpty, steps < 2_000 {
            walk.step()
            steps += 1
        }
        #expect(!walk.model.faults.isEmpty, "\(canary)")
    }
}
