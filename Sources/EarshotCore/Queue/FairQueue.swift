internal import EarshotWire

/// The queue of interests, for each pool of workers: classes by weight, in a class round robin over roots, in a root
/// over lanes, in a lane over handlers, in a handler first come first served.
///
/// What replaces all that its handler had wanted goes before the other handlers of its lane, the newest first, but for
/// one turn in four: whoever scrolls wants what is in sight, and when the origin is full the oldest is the likeliest to
/// be replaced before it has come.
///
/// A *lane* is what one client asks of one origin, with one set of credentials, under one root. A lane whose client's
/// window is full, or whose origin is full or cools down, leaves the rotation when its turn comes up, with all that
/// waits in it, and returns when there is room again: so every operation is O(1), and what cannot start costs nothing.
struct FairQueue {
    /// Where an interest waits.
    struct Place: Hashable {
        /// Number of the pool whose workers fetch it.
        var pool: Int32
        var priority: PriorityClass
        /// Number of the handler's first segment.
        var root: Int32
        /// The owner whose window counts; -1 for an interest that belongs to its handler.
        var client: Int32
        var origin: Int32
        /// The origin as one set of credentials sees it: what cools down.
        var scope: Int32
        var handler: Int32
    }

    /// Why a lane may not start anything now; the first of these that holds.
    enum Obstacle: Equatable {
        case none
        case client
        case scope
        case origin
    }

    private struct RootKey: Equatable {
        var pool: Int32
        var priority: PriorityClass
        var root: Int32

        var hash: UInt32 { NumberHash.of(pool, Int32(priority.rawValue), root) }
    }

    private struct LaneKey: Equatable {
        var root: Int32
        var client: Int32
        var origin: Int32
        var scope: Int32

        var hash: UInt32 { NumberHash.of(root, client, origin, scope) }
    }

    private struct LeafKey: Equatable {
        var lane: Int32
        var handler: Int32

        var hash: UInt32 { NumberHash.of(lane, handler) }
    }

    /// One root in one class.
    private struct RootNode {
        var key: RootKey
        var lanes = Chain()
        var laneCount = 0
        var isInRotation = false
    }

    /// What a parked lane waits for.
    private enum ParkingKey: Equatable {
        /// In each pool on its own: what returns is to be looked at by those who give out that pool's slots.
        case client(Int32, pool: Int32)
        case scope(Int32)
        case origin(Int32)

        var hash: UInt32 {
            switch self {
            case .client(let client, let pool): NumberHash.of(0, client, pool)
            case .scope(let scope): NumberHash.of(1, scope)
            case .origin(let origin): NumberHash.of(2, origin)
            }
        }
    }

    private struct Lane {
        var key: LaneKey
        var priority: PriorityClass
        var leaves = Chain()
        /// Those that replaced what they had, the newest first; the others are in `leaves`.
        var fresh = Chain()
        /// Turns that these had since one of the others had one.
        var freshTurns = 0
        /// Nil while it is in its root's rotation.
        var parking: ParkingKey?
        /// What it waited for before, until its turn comes.
        var cameFrom: ParkingKey?
    }

    private struct Leaf {
        var key: LeafKey
        var interests = Chain()
        var isFresh = false
    }

    /// The line of one pool.
    private struct Line {
        var rotations = [Chain](repeating: Chain(), count: ClassSchedule.classes.count)
        var schedule = ClassSchedule()
        /// Interests that wait, by class.
        var counts = [Int](repeating: 0, count: ClassSchedule.classes.count)
    }

    /// Lanes that wait for the same thing, by class.
    private struct Parking {
        let key: ParkingKey
        var byClass = [Chain](repeating: Chain(), count: PriorityClass.allCases.count)
        var isEmpty: Bool { byClass.allSatisfy(\.isEmpty) }
    }

    private static let freshTurns = 3

    private var roots = Slab<RootNode>()
    private var lanes = Slab<Lane>()
    private var leaves = Slab<Leaf>()
    private var parkings = Slab<Parking>()
    /// The four by their keys.
    private var rootNumbers = NumberTable()
    private var laneNumbers = NumberTable()
    private var leafNumbers = NumberTable()
    private var parkingNumbers = NumberTable()

    /// By pool.
    private var lines: [Line] = []
    private var rootChains = Chains()
    /// A lane is in its root's rotation or in one parking, so one table of links serves both.
    private var laneChains = Chains()
    private var leafChains = Chains()
    private var interestChains = Chains()
    /// The leaf of each interest; -1 for one that does not wait.
    private var leafOfInterest: [Int32] = []

    /// Interests that wait, of all pools.
    private(set) var count = 0

    /// Interests of a class that wait, of all pools.
    func count(of priority: PriorityClass) -> Int {
        lines.reduce(0) { $0 + $1.counts[Int(priority.rawValue)] }
    }

    /// Interests that wait for a pool's workers.
    func count(in pool: Int32) -> Int {
        Int(pool) < lines.count ? lines[Int(pool)].counts.reduce(0, +) : 0
    }

    /// Releases the room of tables that are mostly empty, and of interests from `bound` on, none of which exists.
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

    /// Adds an interest at the end of its handler's line, or at its front if it had its turn before.
    ///
    /// - Parameter isFresh: it replaced all that its handler had wanted.
    mutating func push(_ interest: Int32, at place: Place, first: Bool = false, isFresh: Bool = false) {
        while leafOfInterest.count <= Int(interest) { leafOfInterest.append(-1) }
        precondition(leafOfInterest[Int(interest)] < 0, "interest \(interest) is queued twice")
        while lines.count <= Int(place.pool) { lines.append(Line()) }
        let leaf = leafNumber(for: place)
        leafOfInterest[Int(interest)] = leaf
        if isFresh { freshen(leaf) }
        if first {
            interestChains.prepend(interest, to: &leaves[leaf].interests)
        } else {
            interestChains.append(interest, to: &leaves[leaf].interests)
        }
        count += 1
        lines[Int(place.pool)].counts[Int(place.priority.rawValue)] += 1
    }

    /// Takes an interest out, wherever it waits; nothing happens if it does not.
    mutating func remove(_ interest: Int32) {
        guard contains(interest) else { return }
        let leaf = leafOfInterest[Int(interest)]
        leafOfInterest[Int(interest)] = -1
        interestChains.remove(interest, from: &leaves[leaf].interests)
        let lane = leaves[leaf].key.lane
        count -= 1
        lines[Int(pool(of: lane))].counts[Int(lanes[lane].priority.rawValue)] -= 1
        if leaves[leaf].interests.isEmpty { dropLeaf(leaf) }
    }

    /// The interest whose turn it is among those that wait for a pool, still in the queue; nil if none may start.
    ///
    /// Each lane that meets an obstacle on the way is parked; that is paid for by its return. O(1) amortised. It ends
    /// when the rotations are empty: a parking brings back lanes for what the parked one had held, and of those only
    /// the ones that wait for what is open by now come back for good.
    ///
    /// - Parameter isForHigh: only class `high` may start.
    mutating func next(
        in pool: Int32, isForHigh: Bool,
        obstacle: (_ client: Int32, _ scope: Int32, _ priority: PriorityClass) -> Obstacle
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

    /// A client's window opened: a lane of each pool and class returns; each turn they take brings back another.
    mutating func clientOpened(_ client: Int32) {
        for pool in lines.indices { unpark(.client(client, pool: Int32(pool))) }
    }

    /// An origin has room: a lane of each class returns; each turn they take brings back another.
    mutating func originOpened(_ origin: Int32) {
        unpark(.origin(origin))
    }

    /// A cool-down is over: as for an origin.
    mutating func scopeOpened(_ scope: Int32) {
        unpark(.scope(scope))
    }

    // MARK: Queries

    func contains(_ interest: Int32) -> Bool {
        Int(interest) < leafOfInterest.count && leafOfInterest[Int(interest)] >= 0
    }

    // MARK: Rotation

    private mutating func next(
        in line: Int, _ priority: PriorityClass, _ obstacle: (Int32, Int32, PriorityClass) -> Obstacle
    ) -> Int32? {
        let row = Int(priority.rawValue)
        while lines[line].rotations[row].first >= 0 {
            let root = lines[line].rotations[row].first
            rootChains.rotate(&lines[line].rotations[row])
            while roots[root].lanes.first >= 0 {
                let lane = roots[root].lanes.first
                let key = lanes[lane].key
                switch obstacle(key.client, key.scope, priority) {
                case .none:
                    lanes[lane].cameFrom = nil
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

    /// The handler whose turn it is; it goes to the end of the rotation.
    private mutating func nextLeaf(of lane: Int32) -> Int32 {
        if lanes[lane].fresh.isEmpty || !lanes[lane].leaves.isEmpty && lanes[lane].freshTurns >= Self.freshTurns {
            lanes[lane].freshTurns = 0
            let leaf = lanes[lane].leaves.first
            leafChains.rotate(&lanes[lane].leaves)
            return leaf
        }
        lanes[lane].freshTurns += 1
        let leaf = lanes[lane].fresh.first
        leafChains.remove(leaf, from: &lanes[lane].fresh)
        leafChains.append(leaf, to: &lanes[lane].leaves)
        leaves[leaf].isFresh = false
        return leaf
    }

    /// Puts a handler before all others of its lane.
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

    /// One that was let out and found no room had no turn: it waits at the front, or others would always pass it.
    private mutating func park(_ lane: Int32, _ parking: ParkingKey) {
        unlinkFromRotation(lane)
        let row = Int(lanes[lane].priority.rawValue)
        let number = parkingNumber(parking) ?? insertParking(parking)
        if lanes[lane].cameFrom == parking {
            laneChains.prepend(lane, to: &parkings[number].byClass[row])
        } else {
            laneChains.append(lane, to: &parkings[number].byClass[row])
        }
        lanes[lane].parking = parking
        lanes[lane].cameFrom = nil
        succeed(lanes[lane].key, except: parking)
    }

    /// Brings a lane back for each thing that one which left the rotation had held, so that room is never left with
    /// nobody in the rotation to take it.
    private mutating func succeed(_ key: LaneKey, except parking: ParkingKey? = nil) {
        let client = ParkingKey.client(key.client, pool: roots[key.root].key.pool)
        for held in [client, .scope(key.scope), .origin(key.origin)] where held != parking { unpark(held) }
    }

    /// Returns the longest parked lane of each class to the rotation.
    private mutating func unpark(_ parking: ParkingKey) {
        guard let number = parkingNumber(parking) else { return }
        var returning: [Int32] = []
        for chain in parkings[number].byClass { if let lane = chain.firstMember { returning.append(lane) } }
        for lane in returning {
            unlinkFromParking(lane, parking)
            lanes[lane].parking = nil
            lanes[lane].cameFrom = parking
            linkToRotation(lane)
        }
    }

    private mutating func unlinkFromParking(_ lane: Int32, _ parking: ParkingKey) {
        guard let number = parkingNumber(parking) else { preconditionFailure("lane \(lane) is parked nowhere") }
        laneChains.remove(lane, from: &parkings[number].byClass[Int(lanes[lane].priority.rawValue)])
        guard parkings[number].isEmpty else { return }
        parkingNumbers.remove(number, parking.hash)
        parkings.remove(number)
    }

    // MARK: Nodes

    private func pool(of lane: Int32) -> Int32 { roots[lanes[lane].key.root].key.pool }

    private mutating func leafNumber(for place: Place) -> Int32 {
        let rootKey = RootKey(pool: place.pool, priority: place.priority, root: place.root)
        let root = rootNumbers.find(rootKey.hash) { roots[$0].key == rootKey } ?? insertRoot(rootKey)
        let laneKey = LaneKey(root: root, client: place.client, origin: place.origin, scope: place.scope)
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

    private func parkingNumber(_ key: ParkingKey) -> Int32? {
        parkingNumbers.isEmpty ? nil : parkingNumbers.find(key.hash) { parkings[$0].key == key }
    }

    private mutating func insertParking(_ key: ParkingKey) -> Int32 {
        let number = parkings.insert(Parking(key: key))
        parkingNumbers.insert(number, key.hash)
        return number
    }

    private mutating func insertLane(_ key: LaneKey, _ priority: PriorityClass) -> Int32 {
        let lane = lanes.insert(Lane(key: key, priority: priority))
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
        if lanes[key.lane].leaves.isEmpty, lanes[key.lane].fresh.isEmpty { dropLane(key.lane) }
    }

    private mutating func dropLane(_ lane: Int32) {
        let key = lanes[lane].key
        if let parking = lanes[lane].parking {
            unlinkFromParking(lane, parking)
        } else {
            unlinkFromRotation(lane)
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
