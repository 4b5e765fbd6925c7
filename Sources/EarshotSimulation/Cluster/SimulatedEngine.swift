public import EarshotCore
internal import EarshotWire

/// The engine as a value: the meaning of the Lua scripts of `EarshotCluster`, on fake time.
///
/// A test compares its answers with those of the scripts over random histories. A copy is a snapshot, so a failover that
/// forgets writes restores an earlier copy.
public struct SimulatedEngine: Sendable {
    /// Queue of flights at one origin: for any node, or for one.
    struct Lane: Hashable, Sendable {
        /// Nil for any node.
        let node: NodeID?
        /// Whether cool-downs do not apply.
        let isCredentialed: Bool

        static let anyNode = Lane(node: nil, isCredentialed: false)
    }

    enum State: Equatable, Sendable {
        case queued
        case running(NodeID, FencingToken)
    }

    struct Flight: Sendable {
        var state: State
        let origin: ClusterKey
        var lane: Lane
        var priority: PriorityClass
        let arrivalMilliseconds: Int
        var wantingNodes: [NodeID]
        let record: [UInt8]

        var score: Int { arrivalMilliseconds - Int(priority.rawValue) * EngineLimits.classAdvantageMilliseconds }
    }

    struct Origin: Sendable {
        var limit: Int
        var spacingMilliseconds: Int
        var runningTransfers = 0
        var nextStart = 0
        var coolDownEnd = 0
        var coolDownStart = 0
        var refusalsInRow = 0
        /// Last token at the time of the last refusal.
        var refusalToken: UInt64 = 0
        /// Lanes with queued flights, in the order of their first one.
        var lanes: [Lane] = []
        /// End of the memory of an idle origin.
        var expiry: Int?
    }

    /// Order of a table: score, then name.
    struct Rank: Comparable, Hashable, Sendable {
        let score: Int
        let name: String

        static func < (left: Rank, right: Rank) -> Bool { (left.score, left.name) < (right.score, right.name) }
    }

    /// Whether idle origins never expire once they are kept, as in a server whose clock is not the simulated one.
    var remembersOrigins = false
    /// The engine's time in microseconds.
    public var clockMicroseconds: Int
    var now: Int { clockMicroseconds / 1_000 }
    /// Ends of leases; 0 for a node that is being reaped.
    var nodes: [NodeID: Int] = [:]
    var flightKeysByNode: [NodeID: Set<ClusterKey>] = [:]
    var flights: [ClusterKey: Flight] = [:]
    var results: [ClusterKey: (time: Int, result: [UInt8])] = [:]
    private var latestHeartbeat = 0
    /// Whether the clock shows a time before the latest heartbeat.
    var hasClockGoneBack: Bool { now < latestHeartbeat }
    var origins: [ClusterKey: Origin] = [:]
    var readyLanesByNode: [NodeID?: [String: Int]] = [:]
    var pausedOrigins: [ClusterKey: Int] = [:]
    /// Times at which nodes found fewer flights than they have slots.
    var idleTimes: [NodeID: Int] = [:]
    /// Last fencing token.
    var lastToken: UInt64 = 0
    /// Notifications since the last call of `takeNotifications`.
    private var notifications: [(node: NodeID, event: EngineEvent)] = []

    public init(clockMicroseconds: Int) {
        self.clockMicroseconds = clockMicroseconds
    }

    /// Removes and returns the notifications, in order.
    public mutating func takeNotifications() -> [(node: NodeID, event: EngineEvent)] {
        defer { notifications = [] }
        return notifications
    }

    // MARK: Membership

    /// Numbers of members and of expired ones; nil if the node has no lease.
    public mutating func renew(
        _ node: NodeID, isJoin: Bool, leaseMilliseconds: Int = EngineLimits.leaseMilliseconds
    ) -> (members: Int, expired: Int)? {
        let isKnown = nodes[node] != nil
        guard isMember(node) || isJoin && !isKnown else { return nil }
        if nodes.isEmpty {
            // The rest of a cluster whose nodes all died.
            flights = [:]
            origins = origins.filter { $0.value.runningTransfers == 0 && $0.value.lanes.isEmpty }
            (readyLanesByNode, pausedOrigins, idleTimes) = ([:], [:], [:])
        }
        // A lease of another node ends later than a new one only if the clock went back.
        for other in nodes.keys { nodes[other] = nodes[other].map { min($0, now + leaseMilliseconds) } }
        nodes[node] = now + leaseMilliseconds
        // After the clock went back, results would seem younger than they are.
        if hasClockGoneBack { results = [:] }
        latestHeartbeat = now
        return (nodes.values.count { $0 > now }, nodes.values.count { $0 <= now })
    }

    /// Returns the attempts of one dead node, and drops its wants.
    ///
    /// - Returns: the number of its flights, and whether another call is needed.
    public mutating func reapDeadNode(leaving: NodeID? = nil) -> (count: Int, hasMore: Bool) {
        if let leaving, nodes[leaving] != nil { nodes[leaving] = 0 }
        let expired = nodes.filter { $0.value <= now }
        guard
            let dead = expired.min(by: { ($0.value, $0.key.description) < ($1.value, $1.key.description) })?.key
        else { return (0, false) }
        let keys = flightKeysByNode.removeValue(forKey: dead) ?? []
        var changed = shortenPauses(keys.compactMap { flights[$0]?.origin })
        for key in keys {
            guard var flight = flights[key] else { continue }
            let isWanted = flight.wantingNodes.contains(dead)
            flight.wantingNodes.removeAll { $0 == dead }
            switch flight.state {
            case .running(dead, _):
                changeOrigin(of: flight) { $0.runningTransfers = max(0, $0.runningTransfers - 1) }
                changed.markChanged(flight.origin)
                if flight.wantingNodes.isEmpty { flights[key] = nil } else { requeue(key, flight) }
            case .running(let runner, let token):
                flights[key] = flight
                if flight.wantingNodes.isEmpty, isWanted { notify(runner, .attemptAborted(key, token)) }
            case .queued:
                flights[key] = flight.wantingNodes.isEmpty ? nil : flight
                if flight.wantingNodes.isEmpty { changed.markChanged(flight.origin) }
            }
        }
        updateOrigins(changed, caller: dead)
        nodes[dead] = nil
        readyLanesByNode[dead] = nil
        idleTimes[dead] = nil
        wakeIdleNode(nil)
        return (keys.count, nodes.values.contains { $0 <= now })
    }

    func isMember(_ node: NodeID) -> Bool { (nodes[node] ?? 0) > 0 }

    // MARK: Tables

    mutating func notify(_ node: NodeID, _ event: EngineEvent) { notifications.append((node, event)) }

    mutating func nextToken() -> FencingToken {
        lastToken = max(lastToken + 1, UInt64(clockMicroseconds))
        return FencingToken(lastToken)
    }

    func origin(_ key: ClusterKey) -> Origin? {
        guard let origin = origins[key], origin.expiry.map({ $0 > now }) ?? true || remembersOrigins else { return nil }
        return origin
    }

    /// Cuts pauses of origins that a call reads to their lengths, after the engine's clock went back.
    ///
    /// - Returns: the origins with such a pause, which the caller settles.
    mutating func shortenPauses(_ keys: [ClusterKey]) -> [ClusterKey: Bool] {
        var cut: [ClusterKey: Bool] = [:]
        for key in keys {
            guard var origin = origin(key) else { continue }
            if origin.coolDownStart > now {
                origin.coolDownEnd += now - origin.coolDownStart
                origin.coolDownStart = now
                cut[key] = true
            }
            if origin.nextStart > now + origin.spacingMilliseconds {
                origin.nextStart = now + origin.spacingMilliseconds
                cut[key] = true
            }
            if cut[key] != nil { origins[key] = origin }
        }
        return cut
    }

    /// Changes an origin, which the caller settles afterwards.
    private mutating func changeOrigin(of flight: Flight, _ change: (inout Origin) -> Void) {
        var origin = origin(flight.origin) ?? Origin(limit: 1, spacingMilliseconds: 0)
        change(&origin)
        origin.expiry = nil
        origins[flight.origin] = origin
    }

    mutating func saveOrigin(_ key: ClusterKey, _ origin: Origin) {
        var origin = origin
        origin.expiry = nil
        if origin.runningTransfers == 0, origin.lanes.isEmpty {
            // Refusals are remembered for a minute after the cool-down.
            let end = max(origin.nextStart, origin.refusalsInRow > 0 ? origin.coolDownEnd + 60_000 : 0)
            origin.expiry = end
            origins[key] = end > now ? origin : nil
        } else {
            origins[key] = origin
        }
    }

    /// Time at which a flight of the lane may start, perhaps past; nil while the limit is reached.
    func nextStartTime(_ origin: Origin, _ lane: Lane) -> Int? {
        let limit = !lane.isCredentialed && origin.refusalsInRow > 0 ? 1 : origin.limit
        guard origin.runningTransfers < limit else { return nil }
        return lane.isCredentialed ? origin.nextStart : max(origin.nextStart, origin.coolDownEnd)
    }

    func laneName(_ key: ClusterKey, _ lane: Lane) -> String { "\(key)\(lane.isCredentialed ? "!" : "")" }

    /// Queued flights of a lane, the next one first.
    func queuedFlights(_ origin: ClusterKey, _ lane: Lane) -> [(key: ClusterKey, score: Int)] {
        let queued = flights.filter { $0.value.origin == origin && $0.value.lane == lane && $0.value.state == .queued }
        return queued.map { ($0.key, $0.value.score) }
            .sorted { Rank(score: $0.1, name: "\($0.0)") < Rank(score: $1.1, name: "\($1.0)") }
    }

    /// Brings the tables `readyLanesByNode` and `pausedOrigins` up to date, and saves the origin.
    mutating func updateOrigin(_ key: ClusterKey, caller: NodeID?, wasPaused: Bool = false) {
        guard var origin = origin(key) else { return }
        var wake: Int?
        var lanes: [Lane] = []
        for lane in origin.lanes {
            let head = queuedFlights(key, lane).first
            if head != nil { lanes.append(lane) }
            let time = head == nil ? nil : nextStartTime(origin, lane)
            let name = laneName(key, lane)
            if let head, let time, time <= now {
                if readyLanesByNode[lane.node, default: [:]].updateValue(head.score, forKey: name) == nil,
                    let node = lane.node,
                    node != caller
                {
                    notify(node, .workWaits)
                }
            } else {
                readyLanesByNode[lane.node]?[name] = nil
                if let time { wake = min(wake ?? time, time) }
            }
        }
        origin.lanes = lanes
        if let wake { pausedOrigins[key] = wake } else if wasPaused { pausedOrigins[key] = nil }
        saveOrigin(key, origin)
    }

    /// Settles origins. The value tells whether a pause was cut.
    mutating func updateOrigins(_ changed: [ClusterKey: Bool], caller: NodeID?) {
        for (key, isCut) in changed { updateOrigin(key, caller: caller, wasPaused: isCut) }
    }

    mutating func requeue(_ key: ClusterKey, _ flight: Flight) {
        var flight = flight
        flight.state = .queued
        flights[key] = flight
        changeOrigin(of: flight) { if !$0.lanes.contains(flight.lane) { $0.lanes.append(flight.lane) } }
    }

    /// Idle nodes, the one that asked the longest ago first.
    var idleNodesInOrder: [NodeID] {
        idleTimes.map { (Rank(score: $0.value, name: $0.key.description), $0.key) }.sorted { $0.0 < $1.0 }.map(\.1)
    }

    mutating func wakeNode(_ node: NodeID) {
        idleTimes[node] = nil
        notify(node, .workWaits)
    }

    mutating func wakeIdleNode(_ caller: NodeID?) {
        guard readyLanesByNode[nil]?.isEmpty == false, let node = idleNodesInOrder.first(where: { $0 != caller }) else {
            return
        }
        wakeNode(node)
    }
}

extension [ClusterKey: Bool] {
    /// Adds an origin that must be settled.
    mutating func markChanged(_ key: ClusterKey) { self[key] = self[key] ?? false }
}
