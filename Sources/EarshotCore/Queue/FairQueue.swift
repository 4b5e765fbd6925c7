package import EarshotWire

/// Queue of interests per pool of workers: round robin over principals, weighted classes, then round robin over roots,
/// over the lanes of a root, and over the handlers of a lane. A handler's interests are served first in, first out. An
/// *interest* is the part of one request in a flight, and a *root* the first segment of handler names.
///
/// A *line* holds the interests of one principal in one pool. It exists while it has an interest, and is in the order
/// of turns while one of its lanes is in the rotation. So however many urgent requests one principal makes, another's
/// first request waits for one turn of each principal.
///
/// A handler is *fresh* if its latest request replaced all those that waited. Fresh handlers precede the others of their lane in
/// three of four turns, the newest first. So a scrolling list first gets its visible rows, and the oldest rows, which
/// are likely to be replaced next, wait.
///
/// A *lane* holds the interests of one client at one origin, with one set of credentials, under one root. Obstacles are
/// a full window of the client, the principal's quota of transfers, and an origin that is full or cools down. A lane
/// that meets one is *parked* at its turn: it leaves the rotation with all its interests, and returns when the obstacle
/// ends. So every operation takes O(log principals), and blocked interests cost nothing.
package struct FairQueue {
    /// Position of an interest in the queue.
    struct QueueKey: Hashable {
        /// The pool that fetches it.
        var pool: Handle<WorkerPool>
        /// Principal of the handler.
        var principal: Handle<Principal>
        var priority: PriorityClass
        /// First segment of the handler's name.
        var root: Handle<RootEntry>
        /// Owner with the window that counts; nil for an interest that belongs to its handler.
        var client: Handle<ClientSession>?
        var origin: Handle<OriginEntry>
        /// Origin with one set of credentials: the unit of a cool-down.
        var scope: Handle<OriginScope>
        var handler: Handle<HandlerEntry>
    }

    /// Obstacle to all starts from a lane: the first that applies.
    enum Obstacle: Equatable {
        case none
        case client
        /// The principal is at its quota of transfers.
        case quota
        case scope
        case origin
    }

    struct LineKey: Equatable {
        var pool: Handle<WorkerPool>
        var principal: Handle<Principal>

        var hash: UInt32 { NumberHash.of(pool.number, principal.number) }
    }

    struct RootKey: Equatable {
        var line: Handle<Line>
        var priority: PriorityClass
        var root: Handle<RootEntry>

        var hash: UInt32 { NumberHash.of(line.number, Int32(priority.rawValue), root.number) }
    }

    struct LeafKey: Equatable {
        var lane: Handle<QueueLane>
        var handler: Handle<HandlerEntry>

        var hash: UInt32 { NumberHash.of(lane.number, handler.number) }
    }

    /// One root in one class.
    struct RootNode {
        var key: RootKey
        var lanes = Chain<QueueLane>()
        var laneCount = 0
        var isInRotation = false
    }

    struct Leaf {
        var key: LeafKey
        var interests = Chain<Interest>()
        var isReplacement = false
    }

    /// Queue of one principal in one pool.
    struct Line {
        let key: LineKey
        /// Serial number of its last turn, or of its beginning: its place in the order of turns.
        var tag: UInt64
        var rotations = ByClass(repeating: Chain<RootNode>())
        var schedule = ClassSchedule()
        /// Number of queued interests by class.
        var interestCounts = ByClass(repeating: 0)
        var rootCount = 0
        /// Number of roots in the rotations of all classes.
        var rotating = 0
    }

    /// Lines of one pool.
    struct Pool {
        /// Number of queued interests.
        var count = 0
        /// Serial number of the last turn.
        var serial: UInt64 = 0
        /// Lines with a root in the rotation.
        var turns = TurnOrder()
        /// Lines with a root in the rotation of class `high`.
        var highTurns = TurnOrder()
    }

    private static let replacementTurns = 3

    private(set) var roots = Slab<RootNode>()
    private(set) var lanes = Slab<QueueLane>()
    private(set) var leaves = Slab<Leaf>()
    /// Lines in all pools.
    private(set) var lines = Slab<Line>()
    /// Records of the four slabs by key.
    private(set) var lineHandles = HandleTable<Line>()
    private(set) var rootHandles = HandleTable<RootNode>()
    private(set) var laneHandles = HandleTable<QueueLane>()
    private(set) var leafHandles = HandleTable<Leaf>()
    private(set) var parked = ParkingTable()

    /// Turns by pool.
    private(set) var pools = HandleArray<WorkerPool, Pool>()
    private(set) var rootChains = Chains<RootNode>()
    /// One table of links for all lanes: each lane is either in its root's rotation or parked.
    private(set) var laneChains = Chains<QueueLane>()
    private(set) var leafChains = Chains<Leaf>()
    private(set) var interestChains = Chains<Interest>()
    /// Leaf of each interest; nil for an interest that is not queued.
    private(set) var leafOfInterest = HandleArray<Interest, OptionalHandle<Leaf>>()
    /// Queued interests whose waits for a cool-down are limited, by scope.
    var coolDownWaits = CoolDownWaits()

    /// Number of queued interests in all pools.
    private(set) var count = 0

    /// Number of queued interests of a class, in all pools. O(principals).
    package func count(of priority: PriorityClass) -> Int {
        lines.indices.reduce(0) { $0 + lines[$1].interestCounts[priority] }
    }

    /// Number of queued interests of a pool.
    func count(in pool: Handle<WorkerPool>) -> Int { pools.contains(pool) ? pools[pool].count : 0 }

    /// Releases spare capacity of tables, and the entries of interests from `bound` on, which must not exist.
    mutating func releaseRoom(beyond bound: Int, least: Int) {
        lines.releaseRoom(least: least)
        roots.releaseRoom(least: least)
        lanes.releaseRoom(least: least)
        leaves.releaseRoom(least: least)
        parked.releaseRoom(least: least)
        lineHandles.releaseRoom(least: least)
        rootHandles.releaseRoom(least: least)
        laneHandles.releaseRoom(least: least)
        leafHandles.releaseRoom(least: least)
        rootChains.releaseRoom(beyond: roots.bound, least: least)
        laneChains.releaseRoom(beyond: lanes.bound, least: least)
        leafChains.releaseRoom(beyond: leaves.bound, least: least)
        interestChains.releaseRoom(beyond: bound, least: least)
        leafOfInterest.releaseRoom(beyond: bound, least: least)
        coolDownWaits.releaseRoom(beyond: bound, least: least)
    }

    // MARK: Events

    /// Adds an interest at the end of its handler's list. An interest that already had a turn is added at the front.
    ///
    /// - Parameters:
    ///   - isReplacement: whether it replaced all pending requests of its handler.
    ///   - limitsCoolDownWait: whether its wait for a cool-down is limited.
    mutating func push(
        _ interest: Handle<Interest>, at place: QueueKey, first: Bool = false, isReplacement: Bool = false,
        limitsCoolDownWait: Bool = false
    ) {
        leafOfInterest.reserve(interest, filler: OptionalHandle(wrappedValue: nil))
        precondition(self.leaf(of: interest) == nil, "interest \(interest) is queued twice")
        pools.reserve(place.pool, filler: Pool())
        let leaf = leafHandle(for: place)
        leafOfInterest[interest].wrappedValue = leaf
        if isReplacement { markReplacement(leaf) }
        if limitsCoolDownWait { coolDownWaits.add(interest, of: place.scope) }
        if first {
            interestChains.prepend(interest, to: &leaves[leaf].interests)
        } else {
            interestChains.append(interest, to: &leaves[leaf].interests)
        }
        count += 1
        pools[place.pool].count += 1
        lines[line(of: leaves[leaf].key.lane)].interestCounts[place.priority] += 1
    }

    /// Removes an interest; no effect if it is not queued.
    mutating func remove(_ interest: Handle<Interest>) {
        guard let leaf = leaf(of: interest) else { return }
        leafOfInterest[interest].wrappedValue = nil
        interestChains.remove(interest, from: &leaves[leaf].interests)
        let lane = leaves[leaf].key.lane
        if !coolDownWaits.isEmpty { coolDownWaits.remove(interest, of: lanes[lane].key.scope) }
        let line = line(of: lane)
        count -= 1
        pools[lines[line].key.pool].count -= 1
        lines[line].interestCounts[lanes[lane].priority] -= 1
        if leaves[leaf].interests.isEmpty { dropLeaf(leaf) }
    }

    /// Returns the next interest of a pool without removing it; nil if none may start.
    ///
    /// Parks each lane that meets an obstacle; the lane's return pays for that, so a call takes O(1) amortised. It
    /// terminates: a parking unparks lanes only for the resources that the parked lane had claimed, and a lane stays
    /// unparked only if its obstacle has ended.
    ///
    /// - Parameter isForHigh: whether only class `high` may start.
    mutating func next(
        in pool: Handle<WorkerPool>, isForHigh: Bool,
        obstacle: (
            _ principal: Handle<Principal>, _ client: Handle<ClientSession>?, _ scope: Handle<OriginScope>,
            _ priority: PriorityClass
        ) -> Obstacle
    ) -> Handle<Interest>? {
        guard pools.contains(pool) else { return nil }
        while let line = isForHigh ? pools[pool].highTurns.first : pools[pool].turns.first {
            func hasWork(_ priority: PriorityClass) -> Bool {
                (!isForHigh || priority == .high) && !lines[line].rotations[priority].isEmpty
            }
            // Without any class left the line has left the order.
            while let priority = lines[line].schedule.next(where: hasWork) {
                guard let interest = next(of: line, priority, obstacle) else { continue }
                lines[line].schedule.tookTurn(priority)
                tookTurn(line, in: pool)
                return interest
            }
        }
        return nil
    }

    private mutating func tookTurn(_ line: Handle<Line>, in pool: Handle<WorkerPool>) {
        pools[pool].serial += 1
        let tag = pools[pool].serial
        lines[line].tag = tag
        pools[pool].turns.delay(line, tag: tag)
        pools[pool].highTurns.delay(line, tag: tag)
    }

    /// Unparks one lane per pool and class when a client's window opens. Each turn of such a lane unparks the next one.
    mutating func clientOpened(_ client: Handle<ClientSession>) {
        for pool in pools.handles { unpark(.client(client, pool: pool)) }
    }

    /// Unparks one lane per pool and class when a principal is no longer at its quota of transfers. Each turn of such a
    /// lane unparks the next one.
    mutating func quotaOpened(_ principal: Handle<Principal>) {
        guard !parked.isEmpty else { return }
        for pool in pools.handles {
            if let line = lineHandle(LineKey(pool: pool, principal: principal)) { unpark(.quota(line: line)) }
        }
    }

    /// Unparks one lane per class when an origin has room. Each turn of such a lane unparks the next one.
    mutating func originOpened(_ origin: Handle<OriginEntry>) {
        unpark(.origin(origin))
    }

    /// Unparks one lane per class when a cool-down ends. Each turn of such a lane unparks the next one.
    mutating func scopeOpened(_ scope: Handle<OriginScope>) {
        unpark(.scope(scope))
    }

    // MARK: Queries

    func contains(_ interest: Handle<Interest>) -> Bool { leaf(of: interest) != nil }

    @inline(__always)
    private func leaf(of interest: Handle<Interest>) -> Handle<Leaf>? {
        leafOfInterest.contains(interest) ? leafOfInterest[interest].wrappedValue : nil
    }

    // MARK: Rotation

    /// Returns the next interest of a line in one class; nil if all its lanes are parked.
    private mutating func next(
        of line: Handle<Line>, _ priority: PriorityClass,
        _ obstacle: (Handle<Principal>, Handle<ClientSession>?, Handle<OriginScope>, PriorityClass) -> Obstacle
    ) -> Handle<Interest>? {
        let (pool, principal) = (lines[line].key.pool, lines[line].key.principal)
        while let root = lines[line].rotations[priority].first {
            rootChains.rotate(&lines[line].rotations[priority])
            while let lane = roots[root].lanes.first {
                let key = lanes[lane].key
                switch obstacle(principal, key.client, key.scope, priority) {
                case .none:
                    if lanes[lane].hasReturned { lanes[lane].enter(.rotating(after: nil)) }
                    laneChains.rotate(&roots[root].lanes)
                    let leaf = nextLeaf(of: lane)
                    succeed(key)
                    return leaves[leaf].interests.first
                case .client: park(lane, .client(key.client, pool: pool))
                case .quota: park(lane, .quota(line: line))
                case .scope: park(lane, .scope(key.scope))
                case .origin: park(lane, .origin(key.origin))
                }
            }
        }
        return nil
    }

    /// Returns the handler with the next turn and moves it to the end of the rotation.
    private mutating func nextLeaf(of lane: Handle<QueueLane>) -> Handle<Leaf> {
        if let leaf = lanes[lane].replacements.first,
            lanes[lane].leaves.isEmpty || lanes[lane].replacementTurns < Self.replacementTurns
        {
            lanes[lane].replacementTurns += 1
            leafChains.remove(leaf, from: &lanes[lane].replacements)
            leafChains.append(leaf, to: &lanes[lane].leaves)
            leaves[leaf].isReplacement = false
            return leaf
        }
        guard let leaf = lanes[lane].leaves.first else { preconditionFailure("lane \(lane) has no handler") }
        lanes[lane].replacementTurns = 0
        leafChains.rotate(&lanes[lane].leaves)
        return leaf
    }

    /// Moves a handler before all others of its lane.
    private mutating func markReplacement(_ leaf: Handle<Leaf>) {
        let lane = leaves[leaf].key.lane
        unlink(leaf)
        leafChains.prepend(leaf, to: &lanes[lane].replacements)
        leaves[leaf].isReplacement = true
    }

    private mutating func unlink(_ leaf: Handle<Leaf>) {
        let lane = leaves[leaf].key.lane
        if leaves[leaf].isReplacement {
            leafChains.remove(leaf, from: &lanes[lane].replacements)
        } else {
            leafChains.remove(leaf, from: &lanes[lane].leaves)
        }
    }

    /// Parks a lane. One that was unparked and finds the same obstacle had no turn: it is parked at the front, so that
    /// it does not starve.
    private mutating func park(_ lane: Handle<QueueLane>, _ resource: QueueLane.Resource) {
        unlinkFromRotation(lane)
        let hadNoTurn = lanes[lane].phase == .rotating(after: resource)
        parked.add(
            lane, of: line(of: lane), lanes[lane].priority, at: resource, isNext: hadNoTurn, links: &laneChains)
        lanes[lane].enter(.parked(resource))
        succeed(lanes[lane].key, except: resource)
    }

    /// Unparks one lane for each resource that a lane leaving the rotation had claimed. Otherwise free capacity could
    /// remain unused while lanes are parked.
    private mutating func succeed(_ key: QueueLane.Key, except missing: QueueLane.Resource? = nil) {
        guard !parked.isEmpty else { return }
        let line = roots[key.root].key.line
        let client = QueueLane.Resource.client(key.client, pool: lines[line].key.pool)
        if client != missing { unpark(client) }
        if .quota(line: line) != missing { unpark(.quota(line: line)) }
        if .scope(key.scope) != missing { unpark(.scope(key.scope)) }
        if .origin(key.origin) != missing { unpark(.origin(key.origin)) }
    }

    /// Returns the next parked lane of each class to the rotation.
    private mutating func unpark(_ resource: QueueLane.Resource) {
        guard let parking = parked.handle(of: resource) else { return }
        for priority in ClassSchedule.classes {
            guard let lane = parked.takeNext(at: parking, priority, links: &laneChains) else { continue }
            lanes[lane].enter(.rotating(after: resource))
            linkToRotation(lane)
        }
    }

    // MARK: Nodes

    func line(of lane: Handle<QueueLane>) -> Handle<Line> { roots[lanes[lane].key.root].key.line }

    private func lineHandle(_ key: LineKey) -> Handle<Line>? { lineHandles.find(key.hash) { lines[$0].key == key } }

    private mutating func leafHandle(for place: QueueKey) -> Handle<Leaf> {
        let lineKey = LineKey(pool: place.pool, principal: place.principal)
        let line = lineHandle(lineKey) ?? insertLine(lineKey)
        let rootKey = RootKey(line: line, priority: place.priority, root: place.root)
        let root = rootHandles.find(rootKey.hash) { roots[$0].key == rootKey } ?? insertRoot(rootKey)
        let laneKey = QueueLane.Key(root: root, client: place.client, origin: place.origin, scope: place.scope)
        let lane = laneHandles.find(laneKey.hash) { lanes[$0].key == laneKey } ?? insertLane(laneKey, place.priority)
        let leafKey = LeafKey(lane: lane, handler: place.handler)
        let hash = leafKey.hash
        if let leaf = leafHandles.find(hash, { leaves[$0].key == leafKey }) { return leaf }
        let leaf = leaves.insert(Leaf(key: leafKey))
        leafHandles.insert(leaf, hash)
        leafChains.append(leaf, to: &lanes[lane].leaves)
        return leaf
    }

    private mutating func insertLine(_ key: LineKey) -> Handle<Line> {
        pools[key.pool].serial += 1
        let line = lines.insert(Line(key: key, tag: pools[key.pool].serial))
        lineHandles.insert(line, key.hash)
        return line
    }

    private mutating func insertRoot(_ key: RootKey) -> Handle<RootNode> {
        let root = roots.insert(RootNode(key: key))
        rootHandles.insert(root, key.hash)
        lines[key.line].rootCount += 1
        return root
    }

    private mutating func insertLane(_ key: QueueLane.Key, _ priority: PriorityClass) -> Handle<QueueLane> {
        let lane = lanes.insert(QueueLane(key: key, priority: priority))
        laneHandles.insert(lane, key.hash)
        roots[key.root].laneCount += 1
        linkToRotation(lane)
        return lane
    }

    private mutating func linkToRotation(_ lane: Handle<QueueLane>) {
        let root = lanes[lane].key.root
        laneChains.append(lane, to: &roots[root].lanes)
        guard !roots[root].isInRotation else { return }
        let priority = roots[root].key.priority
        let line = roots[root].key.line
        if lines[line].rotations[priority].isEmpty {
            let isNew = lines[line].interestCounts[priority] == 0
            if isNew { lines[line].schedule.becameBusy(priority) } else { lines[line].schedule.becameFree(priority) }
            if priority == .high { pools[lines[line].key.pool].highTurns.insert(line, tag: lines[line].tag) }
        }
        if lines[line].rotating == 0 { pools[lines[line].key.pool].turns.insert(line, tag: lines[line].tag) }
        lines[line].rotating += 1
        rootChains.append(root, to: &lines[line].rotations[priority])
        roots[root].isInRotation = true
    }

    private mutating func unlinkFromRotation(_ lane: Handle<QueueLane>) {
        let root = lanes[lane].key.root
        laneChains.remove(lane, from: &roots[root].lanes)
        guard roots[root].lanes.isEmpty else { return }
        let (line, priority) = (roots[root].key.line, roots[root].key.priority)
        rootChains.remove(root, from: &lines[line].rotations[priority])
        roots[root].isInRotation = false
        lines[line].rotating -= 1
        let pool = lines[line].key.pool
        if lines[line].rotating == 0 { pools[pool].turns.remove(line) }
        if priority == .high, lines[line].rotations[priority].isEmpty { pools[pool].highTurns.remove(line) }
    }

    private mutating func dropLeaf(_ leaf: Handle<Leaf>) {
        let key = leaves[leaf].key
        unlink(leaf)
        leafHandles.remove(leaf, key.hash)
        leaves.remove(leaf)
        if lanes[key.lane].isEmpty { dropLane(key.lane) }
    }

    private mutating func dropLane(_ lane: Handle<QueueLane>) {
        let key = lanes[lane].key
        switch lanes[lane].phase {
        case .parked(let resource):
            parked.remove(lane, of: line(of: lane), lanes[lane].priority, at: resource, links: &laneChains)
        case .rotating: unlinkFromRotation(lane)
        }
        succeed(key)
        laneHandles.remove(lane, key.hash)
        lanes.remove(lane)
        roots[key.root].laneCount -= 1
        if roots[key.root].laneCount == 0 { dropRoot(key.root) }
    }

    private mutating func dropRoot(_ root: Handle<RootNode>) {
        let key = roots[root].key
        rootHandles.remove(root, key.hash)
        roots.remove(root)
        lines[key.line].rootCount -= 1
        guard lines[key.line].rootCount == 0 else { return }
        lineHandles.remove(key.line, lines[key.line].key.hash)
        lines.remove(key.line)
    }
}
