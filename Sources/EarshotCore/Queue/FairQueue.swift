internal import EarshotWire

/// Queue of interests per pool of workers: weighted classes, then round robin over roots, over the lanes of a root, and
/// over the handlers of a lane. A handler's interests are served first in, first out.
///
/// A handler whose pending requests were all replaced is *fresh*. Fresh handlers precede the others of their lane in
/// three of four turns, the newest first. So a scrolling list first gets its visible rows, and the oldest rows, which
/// are likely to be replaced next, wait.
///
/// A *lane* holds the interests of one client at one origin, with one set of credentials, under one root. A lane whose
/// client's window is full, or whose origin is full or cools down, is *parked* at its next turn: it leaves the rotation
/// with all its interests, and returns when the obstacle ends. So every operation takes O(1), and blocked interests
/// cost nothing.
struct FairQueue {
    /// Position of an interest in the queue.
    struct Place: Hashable {
        /// Number of the pool that fetches it.
        var pool: Int32
        var priority: PriorityClass
        /// Number of the first segment of the handler's name.
        var root: Int32
        /// Owner with the window that counts; nil for an interest that belongs to its handler.
        var client: Int32?
        var origin: Int32
        /// Origin with one set of credentials: the unit of a cool-down.
        var scope: Int32
        var handler: Int32
    }

    /// Obstacle to all starts from a lane: the first that applies.
    enum Obstacle: Equatable {
        case none
        case client
        case scope
        case origin
    }

    struct RootKey: Equatable {
        var pool: Int32
        var priority: PriorityClass
        var root: Int32

        var hash: UInt32 { NumberHash.of(pool, Int32(priority.rawValue), root) }
    }

    struct LeafKey: Equatable {
        var lane: Int32
        var handler: Int32

        var hash: UInt32 { NumberHash.of(lane, handler) }
    }

    /// One root in one class.
    struct RootNode {
        var key: RootKey
        var lanes = Chain()
        var laneCount = 0
        var isInRotation = false
    }

    struct Leaf {
        var key: LeafKey
        var interests = Chain()
        var isFresh = false
    }

    /// Queue of one pool.
    struct Line {
        var rotations = [Chain](repeating: Chain(), count: ClassSchedule.classes.count)
        var schedule = ClassSchedule()
        /// Number of queued interests by class.
        var counts = [Int](repeating: 0, count: ClassSchedule.classes.count)
    }

    /// Lanes parked at one obstacle, by class.
    struct Parking {
        let key: QueueLane.Resource
        var byClass = [Chain](repeating: Chain(), count: PriorityClass.allCases.count)
        var isEmpty: Bool { byClass.allSatisfy(\.isEmpty) }
    }

    private static let freshTurns = 3

    private(set) var roots = Slab<RootNode>()
    private(set) var lanes = Slab<QueueLane>()
    private(set) var leaves = Slab<Leaf>()
    private(set) var parkings = Slab<Parking>()
    /// Indices of the four slabs by key.
    private(set) var rootNumbers = NumberTable()
    private(set) var laneNumbers = NumberTable()
    private(set) var leafNumbers = NumberTable()
    private(set) var parkingNumbers = NumberTable()

    /// Queues by pool number.
    private(set) var lines: [Line] = []
    private(set) var rootChains = Chains()
    /// One table of links for all lanes: each lane is either in its root's rotation or parked.
    private(set) var laneChains = Chains()
    private(set) var leafChains = Chains()
    private(set) var interestChains = Chains()
    /// Leaf of each interest; nil for an interest that is not queued.
    private(set) var leafOfInterest: [OptionalNumber] = []

    /// Number of queued interests in all pools.
    private(set) var count = 0

    /// Number of queued interests of a class, in all pools.
    func count(of priority: PriorityClass) -> Int {
        lines.reduce(0) { $0 + $1.counts[Int(priority.rawValue)] }
    }

    /// Number of queued interests of a pool.
    func count(in pool: Int32) -> Int {
        Int(pool) < lines.count ? lines[Int(pool)].counts.reduce(0, +) : 0
    }

    /// Releases spare capacity of tables, and the entries of interests from `bound` on, which must not exist.
    mutating func releaseRoom(beyond bound: Int, least: Int) {
        roots.releaseRoom(least: least)
        lanes.releaseRoom(least: least)
        leaves.releaseRoom(least: least)
        parkings.releaseRoom(least: least)
        rootNumbers.releaseRoom(least: least)
        laneNumbers.releaseRoom(least: least)
        leafNumbers.releaseRoom(least: least)
        parkingNumbers.releaseRoom(least: least)
        rootChains.releaseRoom(beyond: roots.bound, least: least)
        laneChains.releaseRoom(beyond: lanes.bound, least: least)
        leafChains.releaseRoom(beyond: leaves.bound, least: least)
        interestChains.releaseRoom(beyond: bound, least: least)
        leafOfInterest.releaseRoom(beyond: bound, least: least)
    }

    // MARK: Events

    /// Adds an interest at the end of its handler's list. An interest that already had a turn is added at the front.
    ///
    /// - Parameter isFresh: whether it replaced all pending requests of its handler.
    mutating func push(_ interest: Int32, at place: Place, first: Bool = false, isFresh: Bool = false) {
        while leafOfInterest.count <= Int(interest) { leafOfInterest.append(OptionalNumber(wrappedValue: nil)) }
        precondition(self.leaf(of: interest) == nil, "interest \(interest) is queued twice")
        while lines.count <= Int(place.pool) { lines.append(Line()) }
        let leaf = leafNumber(for: place)
        leafOfInterest[Int(interest)].wrappedValue = leaf
        if isFresh { freshen(leaf) }
        if first {
            interestChains.prepend(interest, to: &leaves[leaf].interests)
        } else {
            interestChains.append(interest, to: &leaves[leaf].interests)
        }
        count += 1
        lines[Int(place.pool)].counts[Int(place.priority.rawValue)] += 1
    }

    /// Removes an interest; no effect if it is not queued.
    mutating func remove(_ interest: Int32) {
        guard let leaf = leaf(of: interest) else { return }
        leafOfInterest[Int(interest)].wrappedValue = nil
        interestChains.remove(interest, from: &leaves[leaf].interests)
        let lane = leaves[leaf].key.lane
        count -= 1
        lines[Int(pool(of: lane))].counts[Int(lanes[lane].priority.rawValue)] -= 1
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
        in pool: Int32, isForHigh: Bool,
        obstacle: (_ client: Int32?, _ scope: Int32, _ priority: PriorityClass) -> Obstacle
    ) -> Int32? {
        let line = Int(pool)
        guard line < lines.count else { return nil }
        func hasWork(_ priority: PriorityClass) -> Bool {
            (!isForHigh || priority == .high) && !lines[line].rotations[Int(priority.rawValue)].isEmpty
        }
        while let priority = lines[line].schedule.next(where: hasWork) {
            if let interest = next(in: line, priority, obstacle) {
                lines[line].schedule.tookTurn(priority)
                return interest
            }
        }
        return nil
    }

    /// Unparks one lane per pool and class when a client's window opens. Each turn of such a lane unparks the next one.
    mutating func clientOpened(_ client: Int32) {
        for pool in lines.indices { unpark(.client(client, pool: Int32(pool))) }
    }

    /// Unparks one lane per class when an origin has room. Each turn of such a lane unparks the next one.
    mutating func originOpened(_ origin: Int32) {
        unpark(.origin(origin))
    }

    /// Unparks one lane per class when a cool-down ends. Each turn of such a lane unparks the next one.
    mutating func scopeOpened(_ scope: Int32) {
        unpark(.scope(scope))
    }

    // MARK: Queries

    func contains(_ interest: Int32) -> Bool { leaf(of: interest) != nil }

    @inline(__always)
    private func leaf(of interest: Int32) -> Int32? {
        Int(interest) < leafOfInterest.count ? leafOfInterest[Int(interest)].wrappedValue : nil
    }

    // MARK: Rotation

    private mutating func next(
        in line: Int, _ priority: PriorityClass, _ obstacle: (Int32?, Int32, PriorityClass) -> Obstacle
    ) -> Int32? {
        let row = Int(priority.rawValue)
        while let root = lines[line].rotations[row].first {
            rootChains.rotate(&lines[line].rotations[row])
            while let lane = roots[root].lanes.first {
                let key = lanes[lane].key
                switch obstacle(key.client, key.scope, priority) {
                case .none:
                    if lanes[lane].hasReturned { lanes[lane].enter(.rotating(after: nil)) }
                    laneChains.rotate(&roots[root].lanes)
                    let leaf = nextLeaf(of: lane)
                    succeed(key)
                    return leaves[leaf].interests.first
                case .client: park(lane, .client(key.client, pool: Int32(line)))
                case .scope: park(lane, .scope(key.scope))
                case .origin: park(lane, .origin(key.origin))
                }
            }
        }
        return nil
    }

    /// Returns the handler with the next turn and moves it to the end of the rotation.
    private mutating func nextLeaf(of lane: Int32) -> Int32 {
        if let leaf = lanes[lane].fresh.first,
            lanes[lane].leaves.isEmpty || lanes[lane].freshTurns < Self.freshTurns
        {
            lanes[lane].freshTurns += 1
            leafChains.remove(leaf, from: &lanes[lane].fresh)
            leafChains.append(leaf, to: &lanes[lane].leaves)
            leaves[leaf].isFresh = false
            return leaf
        }
        guard let leaf = lanes[lane].leaves.first else { preconditionFailure("lane \(lane) has no handler") }
        lanes[lane].freshTurns = 0
        leafChains.rotate(&lanes[lane].leaves)
        return leaf
    }

    /// Moves a handler before all others of its lane.
    private mutating func freshen(_ leaf: Int32) {
        let lane = leaves[leaf].key.lane
        unlink(leaf)
        leafChains.prepend(leaf, to: &lanes[lane].fresh)
        leaves[leaf].isFresh = true
    }

    private mutating func unlink(_ leaf: Int32) {
        let lane = leaves[leaf].key.lane
        if leaves[leaf].isFresh {
            leafChains.remove(leaf, from: &lanes[lane].fresh)
        } else {
            leafChains.remove(leaf, from: &lanes[lane].leaves)
        }
    }

    /// Parks a lane. One that was unparked and finds the same obstacle had no turn: it is parked at the front, so that
    /// it does not starve.
    private mutating func park(_ lane: Int32, _ resource: QueueLane.Resource) {
        unlinkFromRotation(lane)
        let row = Int(lanes[lane].priority.rawValue)
        let number = parkingNumber(resource) ?? insertParking(resource)
        if lanes[lane].phase == .rotating(after: resource) {
            laneChains.prepend(lane, to: &parkings[number].byClass[row])
        } else {
            laneChains.append(lane, to: &parkings[number].byClass[row])
        }
        lanes[lane].enter(.parked(resource))
        succeed(lanes[lane].key, except: resource)
    }

    /// Unparks one lane for each resource that a lane leaving the rotation had claimed. Otherwise free capacity could
    /// remain unused while lanes are parked.
    private mutating func succeed(_ key: QueueLane.Key, except missing: QueueLane.Resource? = nil) {
        let client = QueueLane.Resource.client(key.client, pool: roots[key.root].key.pool)
        for held in [client, .scope(key.scope), .origin(key.origin)] where held != missing { unpark(held) }
    }

    /// Returns the longest parked lane of each class to the rotation.
    private mutating func unpark(_ resource: QueueLane.Resource) {
        guard let number = parkingNumber(resource) else { return }
        var returning: [Int32] = []
        for chain in parkings[number].byClass { if let lane = chain.first { returning.append(lane) } }
        for lane in returning {
            unlinkFromParking(lane, resource)
            lanes[lane].enter(.rotating(after: resource))
            linkToRotation(lane)
        }
    }

    private mutating func unlinkFromParking(_ lane: Int32, _ resource: QueueLane.Resource) {
        guard let number = parkingNumber(resource) else { preconditionFailure("lane \(lane) is parked nowhere") }
        laneChains.remove(lane, from: &parkings[number].byClass[Int(lanes[lane].priority.rawValue)])
        guard parkings[number].isEmpty else { return }
        parkingNumbers.remove(number, resource.hash)
        parkings.remove(number)
    }

    // MARK: Nodes

    func pool(of lane: Int32) -> Int32 { roots[lanes[lane].key.root].key.pool }

    private mutating func leafNumber(for place: Place) -> Int32 {
        let rootKey = RootKey(pool: place.pool, priority: place.priority, root: place.root)
        let root = rootNumbers.find(rootKey.hash) { roots[$0].key == rootKey } ?? insertRoot(rootKey)
        let laneKey = QueueLane.Key(root: root, client: place.client, origin: place.origin, scope: place.scope)
        let lane = laneNumbers.find(laneKey.hash) { lanes[$0].key == laneKey } ?? insertLane(laneKey, place.priority)
        let leafKey = LeafKey(lane: lane, handler: place.handler)
        let hash = leafKey.hash
        if let leaf = leafNumbers.find(hash, { leaves[$0].key == leafKey }) { return leaf }
        let leaf = leaves.insert(Leaf(key: leafKey))
        leafNumbers.insert(leaf, hash)
        leafChains.append(leaf, to: &lanes[lane].leaves)
        return leaf
    }

    private mutating func insertRoot(_ key: RootKey) -> Int32 {
        let root = roots.insert(RootNode(key: key))
        rootNumbers.insert(root, key.hash)
        return root
    }

    func parkingNumber(_ key: QueueLane.Resource) -> Int32? {
        parkingNumbers.isEmpty ? nil : parkingNumbers.find(key.hash) { parkings[$0].key == key }
    }

    private mutating func insertParking(_ key: QueueLane.Resource) -> Int32 {
        let number = parkings.insert(Parking(key: key))
        parkingNumbers.insert(number, key.hash)
        return number
    }

    private mutating func insertLane(_ key: QueueLane.Key, _ priority: PriorityClass) -> Int32 {
        let lane = lanes.insert(QueueLane(key: key, priority: priority))
        laneNumbers.insert(lane, key.hash)
        roots[key.root].laneCount += 1
        linkToRotation(lane)
        return lane
    }

    private mutating func linkToRotation(_ lane: Int32) {
        let root = lanes[lane].key.root
        laneChains.append(lane, to: &roots[root].lanes)
        guard !roots[root].isInRotation else { return }
        let priority = roots[root].key.priority
        let line = Int(roots[root].key.pool)
        let row = Int(priority.rawValue)
        if lines[line].rotations[row].isEmpty {
            let isNew = lines[line].counts[row] == 0
            if isNew { lines[line].schedule.becameBusy(priority) } else { lines[line].schedule.becameFree(priority) }
        }
        rootChains.append(root, to: &lines[line].rotations[row])
        roots[root].isInRotation = true
    }

    private mutating func unlinkFromRotation(_ lane: Int32) {
        let root = lanes[lane].key.root
        laneChains.remove(lane, from: &roots[root].lanes)
        guard roots[root].lanes.isEmpty else { return }
        let key = roots[root].key
        rootChains.remove(root, from: &lines[Int(key.pool)].rotations[Int(key.priority.rawValue)])
        roots[root].isInRotation = false
    }

    private mutating func dropLeaf(_ leaf: Int32) {
        let key = leaves[leaf].key
        unlink(leaf)
        leafNumbers.remove(leaf, key.hash)
        leaves.remove(leaf)
        if lanes[key.lane].isEmpty { dropLane(key.lane) }
    }

    private mutating func dropLane(_ lane: Int32) {
        let key = lanes[lane].key
        switch lanes[lane].phase {
        case .parked(let resource): unlinkFromParking(lane, resource)
        case .rotating: unlinkFromRotation(lane)
        }
        succeed(key)
        laneNumbers.remove(lane, key.hash)
        lanes.remove(lane)
        roots[key.root].laneCount -= 1
        if roots[key.root].laneCount == 0 {
            rootNumbers.remove(key.root, roots[key.root].key.hash)
            roots.remove(key.root)
        }
    }
}
