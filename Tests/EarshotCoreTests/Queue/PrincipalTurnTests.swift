import EarshotWire
import Testing

@testable import EarshotCore

/// Turns of principals: the top level of the queue.
struct PrincipalTurnTests {
    private static let (a, b, c) = (1 as Handle<Principal>, 2 as Handle<Principal>, 3 as Handle<Principal>)

    private static func place(
        _ principal: Handle<Principal>, _ priority: PriorityClass = .normal, pool: Handle<WorkerPool> = 0,
        client: Int? = nil,
        origin: Handle<OriginEntry> = 0
    ) -> FairQueue.QueueKey {
        let own = client ?? principal.slabIndex
        return FairQueue.QueueKey(
            pool: pool, principal: principal, priority: priority, root: Handle(slabIndex: own),
            client: Handle(slabIndex: own),
            origin: origin, scope: Handle(slabIndex: origin.slabIndex), handler: Handle(slabIndex: own))
    }

    /// Starts interests until none may start, at most `count`. Returns their principals.
    private static func starts(
        _ count: Int, of queue: inout FairQueue, isForHigh: Bool = false,
        obstacle: (Handle<Principal>, Handle<ClientSession>?, Handle<OriginScope>, PriorityClass) ->
            FairQueue.StartBlocker = { _, _, _, _ in .none }
    ) -> [Handle<Principal>] {
        var principals: [Handle<Principal>] = []
        while principals.count < count,
            let next = queue.nextStartable(in: 0, onlyHighPriority: isForHigh, startBlocker: obstacle)
        {
            principals.append(principal(of: next))
            queue.remove(next)
        }
        return principals
    }

    /// Number of principals of the tests, more than the highest of their numbers.
    private static let principals = 4

    /// The interest of a principal with this number of its own. Dense, since the queue has an entry for each smaller one.
    private static func interest(_ number: Int, of principal: Handle<Principal>) -> Handle<Interest> {
        Handle(slabIndex: number * principals + principal.slabIndex)
    }

    private static func principal(of interest: Handle<Interest>) -> Handle<Principal> {
        Handle(slabIndex: interest.slabIndex % principals)
    }

    private static func push(_ count: Int, _ place: FairQueue.QueueKey, from first: Int = 0, to queue: inout FairQueue)
    {
        for number in first..<(first + count) { queue.push(interest(number, of: place.principal), at: place) }
    }

    /// The share does not depend on the class: a principal chooses it itself.
    @Test(arguments: PriorityClass.allCases, [PriorityClass.normal])
    func `ten requests of one principal are among the first twenty starts beside 100,000 of another`(
        large: PriorityClass, small: PriorityClass
    ) {
        var queue = FairQueue()
        Self.push(100_000, Self.place(Self.a, large), to: &queue)
        #expect(Self.starts(1_000, of: &queue).count == 1_000)
        Self.push(10, Self.place(Self.b, small), to: &queue)
        let starts = Self.starts(20, of: &queue)
        #expect(starts.count { $0 == Self.b } == 10)
        #expect(starts.prefix(2).contains(Self.b), "the first of them waits for one turn of the other")
        #expect(queue.checkInvariants() == [])
    }

    @Test func `one interest at a time takes no more than the turns of its principal`() {
        var queue = FairQueue()
        Self.push(100, Self.place(Self.a), to: &queue)
        var starts: [Handle<Principal>] = []
        for number in 0..<20 {
            // Its line is new each time: the last one ended with its only interest.
            if number == 0 || !queue.contains(Self.interest(number - 1, of: Self.b)) {
                queue.push(Self.interest(number, of: Self.b), at: Self.place(Self.b))
            }
            starts += Self.starts(1, of: &queue)
        }
        #expect(starts.count { $0 == Self.b } == 10, "\(starts)")
    }

    @Test func `a principal that was idle makes up for no turns`() {
        var queue = FairQueue()
        for principal in [Self.a, Self.b, Self.c] { Self.push(1_000, Self.place(principal), to: &queue) }
        #expect(
            Self.starts(
                900, of: &queue, obstacle: { principal, _, _, _ in principal == Self.c ? .transferQuotaReached : .none }
            )
            .count { $0 == Self.c } == 0)
        queue.unparkLanes(ofPrincipal: Self.c)
        let starts = Self.starts(9, of: &queue)
        #expect(starts.first == Self.c)
        #expect(starts.count { $0 == Self.c } == 3, "\(starts)")
    }

    @Test func `classes have their weights within each principal`() {
        var queue = FairQueue()
        for principal in [Self.a, Self.b] {
            for priority in PriorityClass.allCases {
                let (client, number) = (
                    10 * principal.slabIndex + Int(priority.rawValue), Int(priority.rawValue) * 10_000
                )
                Self.push(2_000, Self.place(principal, priority, client: client), from: number, to: &queue)
            }
        }
        var counts: [Handle<Principal>: [Int: Int]] = [:]
        for _ in 0..<1_700 {
            guard let next = queue.nextStartable(in: 0, onlyHighPriority: false, startBlocker: { _, _, _, _ in .none })
            else {
                break
            }
            counts[Self.principal(of: next), default: [:]][next.slabIndex / Self.principals / 10_000, default: 0] += 1
            queue.remove(next)
        }
        for principal in [Self.a, Self.b] {
            for (priority, share) in [(3, 640), (2, 160), (1, 40), (0, 10)] {
                let count = counts[principal]?[priority] ?? 0
                #expect(abs(count - share) <= 1, "principal \(principal) has \(count) turns of class \(priority)")
            }
        }
    }

    @Test func `slots for class high go round the principals with that class`() {
        var queue = FairQueue()
        Self.push(10, Self.place(Self.a, .high), to: &queue)
        Self.push(10, Self.place(Self.b, .normal), to: &queue)
        Self.push(10, Self.place(Self.c, .high), to: &queue)
        let starts = Self.starts(100, of: &queue, isForHigh: true)
        #expect(starts == Array(repeating: [Self.a, Self.c], count: 10).flatMap { $0 })
        #expect(Self.starts(100, of: &queue) == Array(repeating: Self.b, count: 10))
        #expect(queue.principalQueues.count == 0 && queue.checkInvariants() == [])
    }

    /// Each slot of the origin goes to another principal, for all of their classes and any number of clients.
    @Test(arguments: PriorityClass.allCases, PriorityClass.allCases)
    func `principals take turns at an origin that is always full`(large: PriorityClass, small: PriorityClass) {
        var queue = FairQueue()
        for client in 0..<50 {
            Self.push(10, Self.place(Self.a, large, client: 100 + client), from: client * 10, to: &queue)
            // Work at another origin keeps the principal in the rotation.
            Self.push(
                1, Self.place(Self.a, .background, client: 200 + client, origin: 1), from: 1_000 + client, to: &queue)
        }
        Self.push(20, Self.place(Self.b, small), to: &queue)
        var (starts, isFull): ([Handle<Principal>], Bool) = ([], false)
        while starts.count < 40 {
            queue.unparkLanes(ofOrigin: 0)
            isFull = false
            let begun = starts.count
            while let next = queue.nextStartable(
                in: 0, onlyHighPriority: false,
                startBlocker: { _, _, scope, _ in
                    scope == 0 ? (isFull ? .originWithoutRoom : .none) : .originWithoutRoom
                })
            {
                starts.append(Self.principal(of: next))
                isFull = true
                queue.remove(next)
            }
            #expect(starts.count == begun + 1, "the origin has room for one")
            #expect(queue.checkInvariants() == [])
        }
        #expect(abs(starts.count { $0 == Self.b } - 20) <= 1, "\(starts)")
        for ten in stride(from: 0, to: 40, by: 10) {
            #expect(abs(starts[ten..<(ten + 10)].count { $0 == Self.b } - 5) <= 1, "\(starts)")
        }
    }

    @Test func `a principal at its quota leaves the rotation, and its claims go to others`() {
        var queue = FairQueue()
        for client in 0..<3 {
            Self.push(2, Self.place(Self.a, client: 100 + client), from: client * 2, to: &queue)
        }
        Self.push(2, Self.place(Self.b), to: &queue)
        // The origin is full: all lanes are parked there.
        #expect(Self.starts(1, of: &queue, obstacle: { _, _, _, _ in .originWithoutRoom }) == [])
        #expect(queue.turnsByPool[0].principalTurns.count == 0)
        // The origin opens while A is at its quota: B's lane returns although A's lanes were parked earlier.
        queue.unparkLanes(ofOrigin: 0)
        let starts = Self.starts(10, of: &queue) { principal, _, _, _ in
            principal == Self.a ? .transferQuotaReached : .none
        }
        #expect(starts == [Self.b, Self.b])
        #expect(queue.turnsByPool[0].principalTurns.count == 0 && queue.principalQueues.count == 1)
        var requested = 0
        _ = queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in
            requested += 1
            return .none
        }
        #expect(requested == 0, "parked lanes cost nothing")
        queue.unparkLanes(ofPrincipal: Self.b)
        #expect(queue.turnsByPool[0].principalTurns.count == 0)
        queue.unparkLanes(ofPrincipal: Self.a)
        #expect(Self.starts(10, of: &queue).count == 6)
        #expect(queue.principalQueues.count == 0 && queue.parkedLanes.isEmpty && queue.checkInvariants() == [])
    }

    @Test func `nothing of a principal remains after its last interest, so its number may be reused`() {
        var queue = FairQueue()
        Self.push(3, Self.place(Self.a, .high), to: &queue)
        Self.push(3, Self.place(Self.a, .high, pool: 1), from: 10, to: &queue)
        Self.push(1, Self.place(Self.b, .high), to: &queue)
        #expect(
            Self.starts(
                10, of: &queue, obstacle: { principal, _, _, _ in principal == Self.a ? .transferQuotaReached : .none })
                == [
                    Self.b
                ])
        for number in [0, 1, 2, 10, 11, 12] { queue.remove(Self.interest(number, of: Self.a)) }
        #expect(
            queue.principalQueues.count == 0 && queue.principalQueueHandles.count == 0 && queue.parkedLanes.isEmpty
                && queue.count == 0)
        #expect(
            queue.turnsByPool.handles.allSatisfy {
                queue.turnsByPool[$0].principalTurns.count == 0 && queue.turnsByPool[$0].highPriorityTurns.count == 0
            })
        Self.push(1, Self.place(Self.a), to: &queue)
        #expect(Self.starts(10, of: &queue) == [Self.a], "the quota of the former principal does not hold it")
    }

    /// Random events of several principals in two pools.
    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `every random history keeps the invariants, and each interest starts when obstacles end`(seed: UInt64) {
        var random = SplitMix64Generator(seed: seed)
        var queue = FairQueue()
        var queued: Set<Handle<Interest>> = []
        var closed: [Set<Int>] = [[], [], [], []]
        func obstacle(
            _ principal: Handle<Principal>, _ client: Handle<ClientSession>?, _ scope: Handle<OriginScope>,
            _ priority: PriorityClass
        )
            -> FairQueue.StartBlocker
        {
            if let client, closed[0].contains(client.slabIndex) { return .fullClientWindow }
            if closed[1].contains(principal.slabIndex) { return .transferQuotaReached }
            if closed[2].contains(scope.slabIndex) { return .scopeCoolingDown }
            return closed[3].contains(scope.slabIndex / 2) && priority != .high ? .originWithoutRoom : .none
        }
        func open(_ kind: Int, _ number: Int) {
            guard closed[kind].remove(number) != nil else { return }
            switch kind {
            case 0: queue.unparkLanes(ofClient: Handle(slabIndex: number))
            case 1: queue.unparkLanes(ofPrincipal: Handle(slabIndex: number))
            case 2: queue.unparkLanes(ofScope: Handle(slabIndex: number))
            default: queue.unparkLanes(ofOrigin: Handle(slabIndex: number))
            }
        }
        for step in 0..<400 {
            switch random.next() % 8 {
            case 0...2:
                let principal = Int(random.next() % 4)
                let scope = Int(random.next() % 6)
                let interest = Handle<Interest>(slabIndex: Int(random.next() % 200))
                guard queued.insert(interest).inserted else { continue }
                let client = principal * 3 + Int(random.next() % 3)
                queue.push(
                    interest,
                    at: FairQueue.QueueKey(
                        // An origin belongs to one pool.
                        pool: Handle(slabIndex: scope / 2 % 2), principal: Handle(slabIndex: principal),
                        priority: PriorityClass.allCases[Int(random.next() % 4)],
                        root: Handle(slabIndex: Int(random.next() % 3)),
                        client: random.next() % 3 == 0 ? nil : Handle(slabIndex: client),
                        origin: Handle(slabIndex: scope / 2), scope: Handle(slabIndex: scope),
                        handler: Handle(slabIndex: Int(random.next() % 5))), isFirst: random.next() % 9 == 0,
                    isReplacement: random.next() % 5 == 0)
            case 3:
                // A set has another order in each process.
                if let interest = queued.sorted().randomElement(using: &random) {
                    queued.remove(interest)
                    queue.remove(interest)
                }
            case 4: closed[Int(random.next() % 4)].insert(Int(random.next() % 6))
            case 5: open(Int(random.next() % 4), Int(random.next() % 6))
            default:
                let pool = Handle<WorkerPool>(slabIndex: Int(random.next() % 2))
                if let next = queue.nextStartable(
                    in: pool, onlyHighPriority: random.next() % 4 == 0, startBlocker: obstacle)
                {
                    #expect(queued.remove(next) != nil)
                    queue.remove(next)
                }
            }
            let faults = queue.checkInvariants()
            #expect(faults == [], "seed \(seed), step \(step)")
            guard faults.isEmpty else { return }
        }
        for kind in 0..<4 { for number in closed[kind].sorted() { open(kind, number) } }
        for pool in 0..<2 as Range<Handle<WorkerPool>> {
            while let next = queue.nextStartable(in: pool, onlyHighPriority: false, startBlocker: obstacle) {
                #expect(queued.remove(next) != nil)
                queue.remove(next)
            }
        }
        #expect(
            queued.isEmpty && queue.count == 0 && queue.principalQueues.count == 0 && queue.parkedLanes.isEmpty,
            "seed \(seed)")
    }
}
