package import EarshotWire

/// Queue of interests per pool of workers: round robin over principals, weighted classes, then round robin over roots,
/// over the lanes of a root, and over the handlers of a lane. A handler's interests are served first in, first out. An
/// *interest* is the part of one request in a flight, and a *root* the first segment of handler names.
///
/// A *line* (`PrincipalQueue`) holds the interests of one principal in one pool. It exists while it has an interest,
/// and is in the order of turns while one of its lanes is in the rotation. So however many urgent requests one
/// principal makes, another's first request waits for one turn of each principal.
///
/// A *leaf* (`HandlerQueue`) holds the interests of one handler in one lane. A handler is *fresh* if its latest request
/// replaced all those that waited. Fresh handlers precede the others of their lane in three of four turns, the newest
/// first. So a scrolling list first gets its visible rows, and the oldest rows, which are likely to be replaced next,
/// wait.
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
    enum StartBlocker: Equatable {
        case none
        case fullClientWindow
        /// The principal is at its quota of transfers.
        case transferQuotaReached
        case scopeCoolingDown
        case originWithoutRoom
    }

    struct PrincipalQueueKey: Equatable {
        var pool: Handle<WorkerPool>
        var principal: Handle<Principal>

        var hash: UInt32 { NumberHash.hash(pool.recordNumber, principal.recordNumber) }
    }

    struct RootQueueKey: Equatable {
        var principalQueue: Handle<PrincipalQueue>
        var priority: PriorityClass
        var root: Handle<RootEntry>

        var hash: UInt32 { NumberHash.hash(principalQueue.recordNumber, Int32(priority.rawValue), root.recordNumber) }
    }

    struct HandlerQueueKey: Equatable {
        var lane: Handle<QueueLane>
        var handler: Handle<HandlerEntry>

        var hash: UInt32 { NumberHash.hash(lane.recordNumber, handler.recordNumber) }
    }

    /// One root in one class.
    struct RootQueue {
        var key: RootQueueKey
        var lanes = LinkedList<QueueLane>()
        var laneCount = 0
        var isInLineRotation = false
    }

    /// Queue of one handler in one lane.
    struct HandlerQueue {
        var key: HandlerQueueKey
        var interests = LinkedList<Interest>()
        var isFreshReplacement = false
    }

    /// Queue of one principal in one pool.
    struct PrincipalQueue {
        let key: PrincipalQueueKey
        /// Serial number of its last turn, or of its creation. The line with the lowest one has the next turn.
        var lastTurnSerial: UInt64
        var rootRotationsByClass = PriorityClassTable(repeating: LinkedList<RootQueue>())
        var classSchedule = ClassSchedule()
        /// Number of queued interests by class.
        var interestCounts = PriorityClassTable(repeating: 0)
        var rootQueueCount = 0
        /// Number of roots in the rotations of all classes.
        var rotatingRootCount = 0
    }

    /// Lines of one pool.
    struct PoolTurns {
        /// Number of queued interests.
        var queuedInterestCount = 0
        /// Serial number of the last turn.
        var lastTurnSerial: UInt64 = 0
        /// Lines with a root in the rotation.
        var principalTurns = PrincipalTurnHeap()
        /// Lines with a root in the rotation of class `high`.
        var highPriorityTurns = PrincipalTurnHeap()
    }

    private static let maximumReplacementTurnsInRow = 3

    private(set) var rootQueues = Slab<RootQueue>()
    private(set) var lanes = Slab<QueueLane>()
    private(set) var handlerQueues = Slab<HandlerQueue>()
    /// Lines in all pools.
    private(set) var principalQueues = Slab<PrincipalQueue>()
    /// Records of the four slabs by key.
    private(set) var principalQueueHandles = HandleTable<PrincipalQueue>()
    private(set) var rootQueueHandles = HandleTable<RootQueue>()
    private(set) var laneHandles = HandleTable<QueueLane>()
    private(set) var handlerQueueHandles = HandleTable<HandlerQueue>()
    private(set) var parkedLanes = ParkingTable()

    /// Turns by pool.
    private(set) var turnsByPool = HandleArray<WorkerPool, PoolTurns>()
    private(set) var rootQueueChains = LinkedLists<RootQueue>()
    /// One table of links for all lanes: each lane is either in its root's rotation or parked.
    private(set) var laneChains = LinkedLists<QueueLane>()
    private(set) var handlerQueueChains = LinkedLists<HandlerQueue>()
    private(set) var interestChains = LinkedLists<Interest>()
    /// Leaf of each interest; nil for an interest that is not queued.
    private(set) var handlerQueueOfInterest = HandleArray<Interest, OptionalHandle<HandlerQueue>>()
    /// Queued interests whose waits for a cool-down are limited, by scope.
    var coolDownWaits = CoolDownWaits()

    /// Number of queued interests in all pools.
    private(set) var count = 0

    /// Number of queued interests of a class, in all pools. O(principals).
    package func count(of priority: PriorityClass) -> Int {
        principalQueues.indices.reduce(0) { $0 + principalQueues[$1].interestCounts[priority] }
    }

    /// Number of queued interests of a pool.
    func count(in pool: Handle<WorkerPool>) -> Int {
        turnsByPool.contains(pool) ? turnsByPool[pool].queuedInterestCount : 0
    }

    /// Releases spare capacity of tables, and the entries of interests from `bound` on, which must not exist.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        principalQueues.releaseSpareCapacity(retaining: least)
        rootQueues.releaseSpareCapacity(retaining: least)
        lanes.releaseSpareCapacity(retaining: least)
        handlerQueues.releaseSpareCapacity(retaining: least)
        parkedLanes.releaseSpareCapacity(retaining: least)
        principalQueueHandles.releaseSpareCapacity(retaining: least)
        rootQueueHandles.releaseSpareCapacity(retaining: least)
        laneHandles.releaseSpareCapacity(retaining: least)
        handlerQueueHandles.releaseSpareCapacity(retaining: least)
        rootQueueChains.releaseSpareCapacity(beyond: rootQueues.bound, retaining: least)
        laneChains.releaseSpareCapacity(beyond: lanes.bound, retaining: least)
        handlerQueueChains.releaseSpareCapacity(beyond: handlerQueues.bound, retaining: least)
        interestChains.releaseSpareCapacity(beyond: bound, retaining: least)
        handlerQueueOfInterest.releaseSpareCapacity(beyond: bound, retaining: least)
        coolDownWaits.releaseSpareCapacity(beyond: bound, retaining: least)
    }

    // MARK: Events

    /// Adds an interest at the end of its handler's list. An interest that already had a turn is added at the front.
    ///
    /// - Parameters:
    ///   - isReplacement: whether it replaced all pending requests of its handler.
    ///   - limitsCoolDownWait: whether its wait for a cool-down is limited.
    mutating func push(
        _ interest: Handle<Interest>, at key: QueueKey, isFirst: Bool = false, isReplacement: Bool = false,
        limitsCoolDownWait: Bool = false
    ) {
        handlerQueueOfInterest.extendIfNeeded(to: interest, filler: OptionalHandle(wrappedValue: nil))
        precondition(handlerQueue(of: interest) == nil, "interest \(interest) is queued twice")
        turnsByPool.extendIfNeeded(to: key.pool, filler: PoolTurns())
        let leaf = findOrInsertHandlerQueue(for: key)
        handlerQueueOfInterest[interest].wrappedValue = leaf
        if isReplacement { prioritizeReplacement(leaf) }
        if limitsCoolDownWait { coolDownWaits.addWaiter(interest, of: key.scope) }
        if isFirst {
            interestChains.prepend(interest, to: &handlerQueues[leaf].interests)
        } else {
            interestChains.append(interest, to: &handlerQueues[leaf].interests)
        }
        count += 1
        turnsByPool[key.pool].queuedInterestCount += 1
        principalQueues[principalQueue(of: handlerQueues[leaf].key.lane)].interestCounts[key.priority] += 1
    }

    /// Removes an interest; no effect if it is not queued.
    mutating func remove(_ interest: Handle<Interest>) {
        guard let leaf = handlerQueue(of: interest) else { return }
        handlerQueueOfInterest[interest].wrappedValue = nil
        interestChains.remove(interest, from: &handlerQueues[leaf].interests)
        let lane = handlerQueues[leaf].key.lane
        if !coolDownWaits.isEmpty { coolDownWaits.removeWaiter(interest, of: lanes[lane].key.scope) }
        let line = principalQueue(of: lane)
        count -= 1
        turnsByPool[principalQueues[line].key.pool].queuedInterestCount -= 1
        principalQueues[line].interestCounts[lanes[lane].priority] -= 1
        if handlerQueues[leaf].interests.isEmpty { freeHandlerQueue(leaf) }
    }

    /// Returns the next interest of a pool without removing it; nil if none may start.
    ///
    /// Parks each lane that meets an obstacle; the lane's return pays for that, so a call takes O(1) amortised. It
    /// terminates: a parking unparks lanes only for the resources that the parked lane had claimed, and a lane stays
    /// unparked only if its obstacle has ended.
    ///
    /// - Parameter onlyHighPriority: whether only class `high` may start.
    mutating func nextStartable(
        in pool: Handle<WorkerPool>, onlyHighPriority: Bool,
        startBlocker: (
            _ principal: Handle<Principal>, _ client: Handle<ClientSession>?, _ scope: Handle<OriginScope>,
            _ priority: PriorityClass
        ) -> StartBlocker
    ) -> Handle<Interest>? {
        guard turnsByPool.contains(pool) else { return nil }
        while let line = onlyHighPriority
            ? turnsByPool[pool].highPriorityTurns.first : turnsByPool[pool].principalTurns.first
        {
            func hasWork(_ priority: PriorityClass) -> Bool {
                (!onlyHighPriority || priority == .high)
                    && !principalQueues[line].rootRotationsByClass[priority].isEmpty
            }
            // A line without a class that has work has left the order of turns.
            while let priority = principalQueues[line].classSchedule.nextClass(where: hasWork) {
                guard let interest = nextInterest(of: line, priority, startBlocker) else { continue }
                principalQueues[line].classSchedule.chargeTurn(to: priority)
                recordTurn(of: line, in: pool)
                return interest
            }
        }
        return nil
    }

    private mutating func recordTurn(of line: Handle<PrincipalQueue>, in pool: Handle<WorkerPool>) {
        turnsByPool[pool].lastTurnSerial += 1
        let tag = turnsByPool[pool].lastTurnSerial
        principalQueues[line].lastTurnSerial = tag
        turnsByPool[pool].principalTurns.increaseTag(of: line, to: tag)
        turnsByPool[pool].highPriorityTurns.increaseTag(of: line, to: tag)
    }

    /// Unparks one lane per pool and class when a client's window opens. Each turn of such a lane unparks the next one.
    mutating func unparkLanes(ofClient client: Handle<ClientSession>) {
        for pool in turnsByPool.handles { unparkNextLanes(of: .clientWindow(client, pool: pool)) }
    }

    /// Unparks one lane per pool and class when a principal is no longer at its quota of transfers. Each turn of such a
    /// lane unparks the next one.
    mutating func unparkLanes(ofPrincipal principal: Handle<Principal>) {
        guard !parkedLanes.isEmpty else { return }
        for pool in turnsByPool.handles {
            if let line = principalQueueHandle(PrincipalQueueKey(pool: pool, principal: principal)) {
                unparkNextLanes(of: .transferQuota(principalQueue: line))
            }
        }
    }

    /// Unparks one lane per class when an origin has room. Each turn of such a lane unparks the next one.
    mutating func unparkLanes(ofOrigin origin: Handle<OriginEntry>) {
        unparkNextLanes(of: .originRoom(origin))
    }

    /// Unparks one lane per class when a cool-down ends. Each turn of such a lane unparks the next one.
    mutating func unparkLanes(ofScope scope: Handle<OriginScope>) {
        unparkNextLanes(of: .scopeCoolDown(scope))
    }

    // MARK: Queries

    func contains(_ interest: Handle<Interest>) -> Bool { handlerQueue(of: interest) != nil }

    @inline(__always)
    private func handlerQueue(of interest: Handle<Interest>) -> Handle<HandlerQueue>? {
        handlerQueueOfInterest.contains(interest) ? handlerQueueOfInterest[interest].wrappedValue : nil
    }

    // MARK: Rotation

    /// Returns the next interest of a line in one class; nil if all its lanes are parked.
    private mutating func nextInterest(
        of line: Handle<PrincipalQueue>, _ priority: PriorityClass,
        _ startBlocker: (Handle<Principal>, Handle<ClientSession>?, Handle<OriginScope>, PriorityClass) -> StartBlocker
    ) -> Handle<Interest>? {
        let (pool, principal) = (principalQueues[line].key.pool, principalQueues[line].key.principal)
        while let root = principalQueues[line].rootRotationsByClass[priority].first {
            rootQueueChains.rotate(&principalQueues[line].rootRotationsByClass[priority])
            while let lane = rootQueues[root].lanes.first {
                let key = lanes[lane].key
                switch startBlocker(principal, key.client, key.scope, priority) {
                case .none:
                    if lanes[lane].isUnparkedWithoutTurn { lanes[lane].enter(.rotating(after: nil)) }
                    laneChains.rotate(&rootQueues[root].lanes)
                    let leaf = takeNextHandlerQueue(of: lane)
                    unparkSuccessors(of: key)
                    return handlerQueues[leaf].interests.first
                case .fullClientWindow: parkLane(lane, .clientWindow(key.client, pool: pool))
                case .transferQuotaReached: parkLane(lane, .transferQuota(principalQueue: line))
                case .scopeCoolingDown: parkLane(lane, .scopeCoolDown(key.scope))
                case .originWithoutRoom: parkLane(lane, .originRoom(key.origin))
                }
            }
        }
        return nil
    }

    /// Returns the handler with the next turn and moves it to the end of the rotation.
    private mutating func takeNextHandlerQueue(of lane: Handle<QueueLane>) -> Handle<HandlerQueue> {
        if let leaf = lanes[lane].freshReplacementQueues.first,
            lanes[lane].rotatingHandlerQueues.isEmpty
                || lanes[lane].replacementTurnsInRow < Self.maximumReplacementTurnsInRow
        {
            lanes[lane].replacementTurnsInRow += 1
            handlerQueueChains.remove(leaf, from: &lanes[lane].freshReplacementQueues)
            handlerQueueChains.append(leaf, to: &lanes[lane].rotatingHandlerQueues)
            handlerQueues[leaf].isFreshReplacement = false
            return leaf
        }
        guard let leaf = lanes[lane].rotatingHandlerQueues.first else {
            preconditionFailure("lane \(lane) has no handler")
        }
        lanes[lane].replacementTurnsInRow = 0
        handlerQueueChains.rotate(&lanes[lane].rotatingHandlerQueues)
        return leaf
    }

    /// Moves a handler before all others of its lane.
    private mutating func prioritizeReplacement(_ leaf: Handle<HandlerQueue>) {
        let lane = handlerQueues[leaf].key.lane
        unlinkFromLane(leaf)
        handlerQueueChains.prepend(leaf, to: &lanes[lane].freshReplacementQueues)
        handlerQueues[leaf].isFreshReplacement = true
    }

    private mutating func unlinkFromLane(_ leaf: Handle<HandlerQueue>) {
        let lane = handlerQueues[leaf].key.lane
        if handlerQueues[leaf].isFreshReplacement {
            handlerQueueChains.remove(leaf, from: &lanes[lane].freshReplacementQueues)
        } else {
            handlerQueueChains.remove(leaf, from: &lanes[lane].rotatingHandlerQueues)
        }
    }

    /// Parks a lane. One that was unparked and finds the same obstacle had no turn: it is parked at the front, so that
    /// it does not starve.
    private mutating func parkLane(_ lane: Handle<QueueLane>, _ resource: QueueLane.AwaitedResource) {
        unlinkFromRotation(lane)
        let hadNoTurn = lanes[lane].phase == .rotating(after: resource)
        parkedLanes.parkLane(
            lane, of: principalQueue(of: lane), lanes[lane].priority, at: resource, isNext: hadNoTurn,
            links: &laneChains)
        lanes[lane].enter(.parked(resource))
        unparkSuccessors(of: lanes[lane].key, except: resource)
    }

    /// Unparks one lane for each resource that a lane leaving the rotation had claimed. Otherwise free capacity could
    /// remain unused while lanes are parked.
    private mutating func unparkSuccessors(of key: QueueLane.Key, except missing: QueueLane.AwaitedResource? = nil) {
        guard !parkedLanes.isEmpty else { return }
        let line = rootQueues[key.rootQueue].key.principalQueue
        let client = QueueLane.AwaitedResource.clientWindow(key.client, pool: principalQueues[line].key.pool)
        if client != missing { unparkNextLanes(of: client) }
        if .transferQuota(principalQueue: line) != missing { unparkNextLanes(of: .transferQuota(principalQueue: line)) }
        if .scopeCoolDown(key.scope) != missing { unparkNextLanes(of: .scopeCoolDown(key.scope)) }
        if .originRoom(key.origin) != missing { unparkNextLanes(of: .originRoom(key.origin)) }
    }

    /// Returns the next parked lane of each class to the rotation.
    private mutating func unparkNextLanes(of resource: QueueLane.AwaitedResource) {
        guard let parking = parkedLanes.parkingHandle(of: resource) else { return }
        for priority in ClassSchedule.classes {
            guard let lane = parkedLanes.popNextLane(at: parking, priority, links: &laneChains) else { continue }
            lanes[lane].enter(.rotating(after: resource))
            linkToRotation(lane)
        }
    }

    // MARK: Nodes

    func principalQueue(of lane: Handle<QueueLane>) -> Handle<PrincipalQueue> {
        rootQueues[lanes[lane].key.rootQueue].key.principalQueue
    }

    private func principalQueueHandle(_ key: PrincipalQueueKey) -> Handle<PrincipalQueue>? {
        principalQueueHandles.findRecord(withHash: key.hash) { principalQueues[$0].key == key }
    }

    private mutating func findOrInsertHandlerQueue(for key: QueueKey) -> Handle<HandlerQueue> {
        let lineKey = PrincipalQueueKey(pool: key.pool, principal: key.principal)
        let line = principalQueueHandle(lineKey) ?? insertPrincipalQueue(lineKey)
        let rootKey = RootQueueKey(principalQueue: line, priority: key.priority, root: key.root)
        let root =
            rootQueueHandles.findRecord(withHash: rootKey.hash) { rootQueues[$0].key == rootKey }
            ?? insertRootQueue(rootKey)
        let laneKey = QueueLane.Key(rootQueue: root, client: key.client, origin: key.origin, scope: key.scope)
        let lane =
            laneHandles.findRecord(withHash: laneKey.hash) { lanes[$0].key == laneKey }
            ?? insertLane(laneKey, key.priority)
        let leafKey = HandlerQueueKey(lane: lane, handler: key.handler)
        let hash = leafKey.hash
        if let leaf = handlerQueueHandles.findRecord(withHash: hash, { handlerQueues[$0].key == leafKey }) {
            return leaf
        }
        let leaf = handlerQueues.insert(HandlerQueue(key: leafKey))
        handlerQueueHandles.insert(leaf, hash)
        handlerQueueChains.append(leaf, to: &lanes[lane].rotatingHandlerQueues)
        return leaf
    }

    private mutating func insertPrincipalQueue(_ key: PrincipalQueueKey) -> Handle<PrincipalQueue> {
        turnsByPool[key.pool].lastTurnSerial += 1
        let line = principalQueues.insert(
            PrincipalQueue(key: key, lastTurnSerial: turnsByPool[key.pool].lastTurnSerial))
        principalQueueHandles.insert(line, key.hash)
        return line
    }

    private mutating func insertRootQueue(_ key: RootQueueKey) -> Handle<RootQueue> {
        let root = rootQueues.insert(RootQueue(key: key))
        rootQueueHandles.insert(root, key.hash)
        principalQueues[key.principalQueue].rootQueueCount += 1
        return root
    }

    private mutating func insertLane(_ key: QueueLane.Key, _ priority: PriorityClass) -> Handle<QueueLane> {
        let lane = lanes.insert(QueueLane(key: key, priority: priority))
        laneHandles.insert(lane, key.hash)
        rootQueues[key.rootQueue].laneCount += 1
        linkToRotation(lane)
        return lane
    }

    private mutating func linkToRotation(_ lane: Handle<QueueLane>) {
        let root = lanes[lane].key.rootQueue
        laneChains.append(lane, to: &rootQueues[root].lanes)
        guard !rootQueues[root].isInLineRotation else { return }
        let priority = rootQueues[root].key.priority
        let line = rootQueues[root].key.principalQueue
        if principalQueues[line].rootRotationsByClass[priority].isEmpty {
            let isNew = principalQueues[line].interestCounts[priority] == 0
            if isNew {
                principalQueues[line].classSchedule.classBecameBusy(priority)
            } else {
                principalQueues[line].classSchedule.classBecameUnblocked(priority)
            }
            if priority == .high {
                turnsByPool[principalQueues[line].key.pool].highPriorityTurns.insert(
                    line, tag: principalQueues[line].lastTurnSerial)
            }
        }
        if principalQueues[line].rotatingRootCount == 0 {
            turnsByPool[principalQueues[line].key.pool].principalTurns.insert(
                line, tag: principalQueues[line].lastTurnSerial)
        }
        principalQueues[line].rotatingRootCount += 1
        rootQueueChains.append(root, to: &principalQueues[line].rootRotationsByClass[priority])
        rootQueues[root].isInLineRotation = true
    }

    private mutating func unlinkFromRotation(_ lane: Handle<QueueLane>) {
        let root = lanes[lane].key.rootQueue
        laneChains.remove(lane, from: &rootQueues[root].lanes)
        guard rootQueues[root].lanes.isEmpty else { return }
        let (line, priority) = (rootQueues[root].key.principalQueue, rootQueues[root].key.priority)
        rootQueueChains.remove(root, from: &principalQueues[line].rootRotationsByClass[priority])
        rootQueues[root].isInLineRotation = false
        principalQueues[line].rotatingRootCount -= 1
        let pool = principalQueues[line].key.pool
        if principalQueues[line].rotatingRootCount == 0 { turnsByPool[pool].principalTurns.remove(line) }
        if priority == .high, principalQueues[line].rootRotationsByClass[priority].isEmpty {
            turnsByPool[pool].highPriorityTurns.remove(line)
        }
    }

    private mutating func freeHandlerQueue(_ leaf: Handle<HandlerQueue>) {
        let key = handlerQueues[leaf].key
        unlinkFromLane(leaf)
        handlerQueueHandles.remove(leaf, key.hash)
        handlerQueues.destroy(leaf)
        if lanes[key.lane].isEmpty { freeLane(key.lane) }
    }

    private mutating func freeLane(_ lane: Handle<QueueLane>) {
        let key = lanes[lane].key
        switch lanes[lane].phase {
        case .parked(let resource):
            parkedLanes.unparkLane(
                lane, of: principalQueue(of: lane), lanes[lane].priority, at: resource, links: &laneChains)
        case .rotating: unlinkFromRotation(lane)
        }
        unparkSuccessors(of: key)
        laneHandles.remove(lane, key.hash)
        lanes.destroy(lane)
        rootQueues[key.rootQueue].laneCount -= 1
        if rootQueues[key.rootQueue].laneCount == 0 { freeRootQueue(key.rootQueue) }
    }

    private mutating func freeRootQueue(_ root: Handle<RootQueue>) {
        let key = rootQueues[root].key
        rootQueueHandles.remove(root, key.hash)
        rootQueues.destroy(root)
        principalQueues[key.principalQueue].rootQueueCount -= 1
        guard principalQueues[key.principalQueue].rootQueueCount == 0 else { return }
        principalQueueHandles.remove(key.principalQueue, principalQueues[key.principalQueue].key.hash)
        principalQueues.destroy(key.principalQueue)
    }
}
