import EarshotWire
import HeapModule
import Testing

@testable import EarshotCore
@testable import EarshotSimulation

/// Several books, with fetches that take time, around one simulated engine on fake time: calls are delayed, notifications
/// are delayed and lost, connections break in the middle of a batch, nodes die, and failovers forget writes.
struct ClusterTrial {
    enum Fault: CaseIterable {
        case cutConnection
        case failover
        case outage
        case partition
        case nodeDeath
        case flush
    }

    /// Deliberate fault of the apparatus, which the checks must detect.
    enum Canary: CaseIterable {
        /// Wants are not asserted again, and every notification is lost.
        case noAssertion
        /// A node starts an attempt again for which it has no grant.
        case startsTwice
        /// The end of an attempt is not reported.
        case losesEnds
        /// A withdrawn attempt is not reported as released.
        case keepsWithdrawn
    }

    private enum Event {
        case execute(node: Int, connection: Int, EngineCall)
        case deliver(node: Int, connection: Int, EngineEvent)
        case connect(node: Int)
        case heartbeat(node: Int, connection: Int)
        case fetched(node: Int, attempt: Int)
        case request(node: Int)
        case withdraw(node: Int)
        case wake(node: Int)
        case engineUp
        case heal(node: Int)
        case revive(node: Int)
        case fault
    }

    private struct Entry: Comparable {
        let time: Int
        let serial: Int
        let event: Event

        static func == (left: Entry, right: Entry) -> Bool { left.serial == right.serial }
        static func < (left: Entry, right: Entry) -> Bool { (left.time, left.serial) < (right.time, right.serial) }
    }

    private struct Attempt {
        let key: UInt64
        /// Nil for a hosted attempt.
        var flight: LocalFlight?
        let token: FencingToken?
        var isCancelled = false
    }

    private struct Node {
        var book: ClusterBook
        var isAlive = true
        var isCutOff = false
        /// Number of its connection; another one after each loss.
        var connection = 0
        var isConnected = false
        var id = NodeID(0)
        var attempts: [Int: Attempt] = [:]
        /// Requests that wait for room in the window, by key.
        var queue: [(flight: LocalFlight, key: UInt64)] = []
        var flights: [UInt64: LocalFlight] = [:]
        /// Times until which the channel to and from the engine is busy, so that order is kept.
        var lastSent = 0
        var lastReceived = 0
    }

    static let slots = 3
    static let origins: [EngineOrigin] = (0..<3).map { number in
        EngineOrigin(
            key: ClusterKey(high: 9, low: number), limit: Int(number) + 1, spacingMilliseconds: number == 1 ? 20 : 0)
    }
    /// Milliseconds after a fault in which duplicates are declared: detection, patience and lease.
    static let window = 12_000

    private let canary: Canary?
    private var generator: SplitMix
    private var engine = SimulatedEngine(microseconds: 0)
    private var snapshots: [(time: Int, engine: SimulatedEngine)] = []
    private var isEngineUp = true
    private var nodes: [Node] = []
    private var events = Heap<Entry>()
    private var serial = 0
    private var now = 0
    private var lastID: UInt64 = 0
    private var lastFlight: UInt64 = 0
    private var lastAttempt = 0
    private var lastFault = -ClusterTrial.window
    private var isDraining = false
    private(set) var ends = 0
    private(set) var fetches = 0
    private(set) var duplicates = 0
    private(set) var faults: [String] = []
    private(set) var kinds: [String: Int] = [:]

    init(seed: UInt64, nodes count: Int, canary: Canary? = nil) {
        self.canary = canary
        generator = SplitMix(seed: seed)
        for number in 0..<count {
            nodes.append(Node(book: ClusterBook(now: Tick(nanoseconds: 0))))
            nodes[number].book.slots = Self.slots
            schedule(random(1...20), .connect(node: number))
            schedule(random(1...100), .request(node: number))
            schedule(random(1...500), .withdraw(node: number))
            schedule(5_000, .wake(node: number))
        }
    }

    /// Runs for a time with requests and faults, then without both until everything must have ended.
    mutating func run(milliseconds: Int, withFaults: Bool) {
        if withFaults { schedule(random(1_000...4_000), .fault) }
        while now < milliseconds, faults.isEmpty { step() }
        isDraining = true
        let end = now + 40_000
        while let next = events.min, next.time <= end, faults.isEmpty { step() }
        guard faults.isEmpty else { return }
        for (number, node) in nodes.enumerated() {
            let left = node.flights.count
            if left > 0 { faults.append("1: node \(number) has \(left) requests without an end") }
            if !node.attempts.isEmpty { faults.append("12: node \(number) runs \(node.attempts.count) attempts") }
            if !node.book.hosted.isEmpty { faults.append("12: node \(number) hosts \(node.book.hosted.count)") }
        }
        if !engine.flights.isEmpty { faults.append("12: the engine has \(engine.flights.count) flights") }
        let running = engine.origins.values.reduce(0) { $0 + $1.running }
        if running > 0 { faults.append("9: \(running) attempts count at origins and run nowhere") }
        if let rest = engine.relations.values.first(where: { !$0.isEmpty }) {
            faults.append("12: \(rest.count) relations")
        }
    }

    // MARK: Time

    private mutating func random(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &generator) }

    private mutating func chance(_ percent: Int) -> Bool { random(1...100) <= percent }

    private mutating func schedule(_ delay: Int, _ event: Event) {
        serial += 1
        events.insert(Entry(time: now + delay, serial: serial, event: event))
    }

    private var tick: Tick { Tick(nanoseconds: Int64(now) * 1_000_000) }

    private mutating func step() {
        guard let entry = events.popMin() else { return }
        now = max(now, entry.time)
        // Distinct times for distinct tokens.
        engine.microseconds = max(engine.microseconds + 1, now * 1_000)
        if snapshots.last.map({ now - $0.time >= 100 }) ?? true {
            snapshots.append((now, engine))
            if snapshots.count > 10 { snapshots.removeFirst() }
        }
        handle(entry.event)
    }

    private mutating func handle(_ event: Event) {
        switch event {
        case .execute(let node, let connection, let call): execute(call, node, connection)
        case .deliver(let node, let connection, let event):
            guard nodes[node].connection == connection, nodes[node].isAlive else { return }
            pass(node, nodes[node].book.received(event, now: tick))
        case .connect(let node): connect(node)
        case .heartbeat(let node, let connection): heartbeat(node, connection)
        case .fetched(let node, let attempt): fetched(node, attempt)
        case .request(let node):
            if !isDraining { schedule(random(10...120), .request(node: node)) }
            if nodes[node].isAlive, !isDraining { request(node) }
        case .withdraw(let node):
            if !isDraining { schedule(random(50...900), .withdraw(node: node)) }
            if nodes[node].isAlive, !isDraining { withdraw(node) }
        case .wake(let node):
            schedule(250, .wake(node: node))
            if nodes[node].isAlive { pass(node, nodes[node].book.timePassed(now: tick)) }
        case .engineUp: isEngineUp = true
        case .heal(let node): nodes[node].isCutOff = false
        case .revive(let node):
            nodes[node] = Node(book: ClusterBook(now: tick), connection: nodes[node].connection + 1)
            nodes[node].book.slots = Self.slots
            schedule(random(1...50), .connect(node: node))
        case .fault: injectFault()
        }
    }

    // MARK: Network

    private func reaches(_ node: Int) -> Bool { isEngineUp && !nodes[node].isCutOff && nodes[node].isAlive }

    private mutating func connect(_ node: Int) {
        guard nodes[node].isAlive, !nodes[node].isConnected else { return }
        guard reaches(node) else { return schedule(random(50...400), .connect(node: node)) }
        lastID += 1
        nodes[node].id = NodeID(lastID)
        nodes[node].connection += 1
        nodes[node].isConnected = true
        nodes[node].lastReceived = now
        guard let (members, _) = engine.renew(nodes[node].id, isJoin: true) else { return }
        deliver(node, .joined(nodes[node].id, members: members))
        schedule(1_000, .heartbeat(node: node, connection: nodes[node].connection))
    }

    /// Ends a connection: calls that are on their way are lost, and the node learns of it later.
    private mutating func cut(_ node: Int, detection: Int) {
        guard nodes[node].isConnected else { return }
        nodes[node].isConnected = false
        nodes[node].connection += 1
        schedule(detection, .deliver(node: node, connection: nodes[node].connection, .left(.closed)))
        schedule(detection + random(50...300), .connect(node: node))
    }

    private mutating func heartbeat(_ node: Int, _ connection: Int) {
        guard nodes[node].connection == connection, nodes[node].isAlive else { return }
        guard reaches(node), let (_, expired) = engine.renew(nodes[node].id, isJoin: false) else {
            return cut(node, detection: reaches(node) ? 1 : 2_000)
        }
        var more = expired > 0
        while more { more = engine.reap().hasMore }
        sendNotices()
        schedule(1_000, .heartbeat(node: node, connection: connection))
    }

    private mutating func deliver(_ node: Int, _ event: EngineEvent) {
        // In order, as over one connection.
        nodes[node].lastReceived = max(nodes[node].lastReceived, now + random(1...15))
        schedule(
            nodes[node].lastReceived - now, .deliver(node: node, connection: nodes[node].connection, event))
    }

    private mutating func sendNotices() {
        for (id, event) in engine.takeNotifications() {
            guard let node = nodes.firstIndex(where: { $0.id == id && $0.isConnected }), reaches(node) else { continue }
            // Another connection than that of the answers, so in any order.
            if canary == .noAssertion || chance(5) { continue }
            schedule(random(1...30), .deliver(node: node, connection: nodes[node].connection, event))
        }
    }

    private mutating func execute(_ call: EngineCall, _ node: Int, _ connection: Int) {
        guard nodes[node].connection == connection, reaches(node) else { return }
        let answer = engine.call(call, by: nodes[node].id)
        sendNotices()
        switch answer {
        case .event(let event): deliver(node, event)
        case .silent: break
        case .lost: cut(node, detection: 1)
        }
    }

    // MARK: Nodes

    /// One pass of a node: effects, claims, calls.
    private mutating func pass(_ node: Int, _ effects: [ClusterEffect]) {
        for effect in effects { apply(effect, node) }
        while nodes[node].book.hasRoom, !nodes[node].queue.isEmpty {
            let (flight, key) = nodes[node].queue.removeFirst()
            // A withdrawn attempt of the same key may still be running; the flight is another one.
            for effect in nodes[node].book.claim(flight, want(key, node), now: tick) { apply(effect, node) }
        }
        let free = max(0, Self.slots - nodes[node].attempts.count)
        for call in nodes[node].book.takeCalls(freeSlots: free, now: tick) {
            if canary == .losesEnds, case .done = call, chance(10) { continue }
            if canary == .noAssertion, case .want(let wants) = call,
                wants.contains(where: { $0.ageMilliseconds > 1_000 })
            {
                continue
            }
            nodes[node].lastSent = max(nodes[node].lastSent, now + random(1...15))
            schedule(
                nodes[node].lastSent - now, .execute(node: node, connection: nodes[node].connection, call))
        }
        for fault in nodes[node].book.checkInvariants() { faults.append("node \(node) at \(now): \(fault)") }
    }

    private func want(_ key: UInt64, _ node: Int) -> EngineWant {
        let isPinned = key >= 90
        return EngineWant(
            key: isPinned ? ClusterKey(high: 5 + UInt64(node), low: key) : ClusterKey(high: 1, low: key),
            origin: Self.origins[Int(key % 3)], lane: isPinned ? .pinned : .shared,
            priority: PriorityClass(rawValue: UInt8(key % 4)) ?? .normal, record: [UInt8(key)])
    }

    private mutating func request(_ node: Int) {
        let key = UInt64(random(0...99))
        guard nodes[node].flights[key] == nil, nodes[node].flights.count < 60 else { return }
        lastFlight += 1
        let flight = LocalFlight(id: lastFlight)
        nodes[node].flights[key] = flight
        nodes[node].queue.append((flight, key))
        pass(node, [])
    }

    private mutating func withdraw(_ node: Int) {
        guard let key = nodes[node].flights.keys.sorted().randomElement(using: &generator),
            let flight = nodes[node].flights.removeValue(forKey: key)
        else { return }
        nodes[node].queue.removeAll { $0.flight == flight }
        let attempt = nodes[node].attempts.first { $0.value.flight == flight }?.key
        let withdrawal = nodes[node].book.withdraw(flight)
        if let attempt, canary != .keepsWithdrawn || chance(50) {
            switch withdrawal {
            case .nothing: faults.append("4: \(flight) runs without a claim")
            case .cancel(let token): replace(node, attempt, token: token, isCancelled: true)
            case .host(let token): replace(node, attempt, token: token, isCancelled: false)
            }
        } else if let attempt {
            nodes[node].attempts[attempt] = nil
        }
        pass(node, [])
    }

    private mutating func replace(_ node: Int, _ attempt: Int, token: FencingToken?, isCancelled: Bool) {
        guard let old = nodes[node].attempts[attempt] else { return }
        nodes[node].attempts[attempt] = Attempt(key: old.key, flight: nil, token: token, isCancelled: isCancelled)
        if isCancelled { schedule(random(1...30), .fetched(node: node, attempt: attempt)) }
    }

    private mutating func apply(_ effect: ClusterEffect, _ node: Int) {
        switch effect {
        case .start(let flight):
            guard let key = nodes[node].flights.first(where: { $0.value == flight })?.key else {
                return faults.append("1: \(flight) starts after its end")
            }
            start(node, Attempt(key: key, flight: flight, token: nil))
        case .host(let key, let token, let record, _):
            let number = UInt64(record.first ?? 0)
            nodes[node].book.setOrigin(Self.origins[Int(number % 3)], of: key)
            start(node, Attempt(key: number, flight: nil, token: token))
        case .result(let flight, _): end(node, flight)
        case .abort(_, let token):
            guard
                let attempt = nodes[node].attempts.first(where: { $0.value.token == token && $0.value.flight == nil })?
                    .key
            else { return }
            replace(node, attempt, token: token, isCancelled: true)
        case .coolDown, .mode: break
        }
    }

    private mutating func end(_ node: Int, _ flight: LocalFlight) {
        guard let key = nodes[node].flights.first(where: { $0.value == flight })?.key else {
            return faults.append("1: \(flight) ends twice")
        }
        nodes[node].flights[key] = nil
        ends += 1
    }

    private mutating func start(_ node: Int, _ attempt: Attempt) {
        fetches += 1
        let key = want(attempt.key, node).key
        var sameKey = 0
        var sameOrigin = 0
        for number in nodes.indices where nodes[number].isAlive {
            for other in nodes[number].attempts.values {
                if !other.isCancelled, want(other.key, number).key == key { sameKey += 1 }
                if other.key % 3 == attempt.key % 3 { sameOrigin += 1 }
            }
        }
        if sameKey > 0 { duplicates += 1 }
        if now - lastFault > Self.window {
            if sameKey > 0 { faults.append("3: key \(attempt.key) runs twice at \(now)") }
            let limit = Self.origins[Int(attempt.key % 3)].limit
            if sameOrigin >= limit { faults.append("9: origin \(attempt.key % 3) runs \(sameOrigin + 1) at \(now)") }
        }
        lastAttempt += 1
        nodes[node].attempts[lastAttempt] = attempt
        schedule(random(5...250), .fetched(node: node, attempt: lastAttempt))
        if canary == .startsTwice, chance(2) {
            lastAttempt += 1
            nodes[node].attempts[lastAttempt] = attempt
            schedule(1, .fetched(node: node, attempt: lastAttempt))
        }
    }

    private mutating func fetched(_ node: Int, _ number: Int) {
        guard nodes[node].isAlive, let attempt = nodes[node].attempts.removeValue(forKey: number) else { return }
        let isReleased = attempt.isCancelled || chance(3)
        let outcome = isReleased ? EngineCompletion.Outcome.released : .result([UInt8(attempt.key)])
        if let flight = attempt.flight {
            nodes[node].book.ended(flight, outcome, isAnswered: true)
            if isReleased {
                // Another attempt follows, as after the death of a worker.
                nodes[node].queue.append((flight, attempt.key))
            } else {
                end(node, flight)
            }
        } else if let token = attempt.token {
            nodes[node].book.hostedEnded(want(attempt.key, node).key, token, outcome, isAnswered: true)
        }
        pass(node, [])
    }

    // MARK: Faults

    private mutating func injectFault() {
        guard !isDraining else { return }
        schedule(random(500...20_000), .fault)
        let node = random(0...nodes.count - 1)
        let fault = Fault.allCases.randomElement(using: &generator) ?? .cutConnection
        kinds["\(fault)", default: 0] += 1
        lastFault = now
        switch fault {
        case .cutConnection: cut(node, detection: random(1...100))
        case .failover:
            if let old = snapshots.randomElement(using: &generator)?.engine { engine = old }
            _ = engine.takeNotifications()
            isEngineUp = false
            schedule(random(1_000...3_000), .engineUp)
            for number in nodes.indices { cut(number, detection: random(1...2_000)) }
        case .outage:
            let length = random(3_000...12_000)
            lastFault = now + length
            isEngineUp = false
            schedule(length, .engineUp)
            for number in nodes.indices { cut(number, detection: random(1...2_000)) }
        case .partition:
            let length = random(500...9_000)
            lastFault = now + length
            nodes[node].isCutOff = true
            schedule(length, .heal(node: node))
            cut(node, detection: 2_000)
        case .nodeDeath:
            guard nodes[node].isAlive else { return }
            nodes[node].isAlive = false
            nodes[node].attempts = [:]
            nodes[node].flights = [:]
            nodes[node].isConnected = false
            schedule(random(100...6_000), .revive(node: node))
        case .flush:
            let time = engine.microseconds
            engine = SimulatedEngine(microseconds: time)
        }
    }
}
