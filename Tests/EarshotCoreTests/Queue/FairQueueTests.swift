import EarshotWire
import Testing

@testable import EarshotCore

/// The phases of a lane.
struct QueueLaneTests {
    @Test func `the diagram of a lane has these transitions and no others`() {
        let (first, second) = (QueueLane.AwaitedResource.originRoom(1), QueueLane.AwaitedResource.originRoom(2))
        let phases: [QueueLane.Phase] = [
            .rotating(after: nil), .rotating(after: first), .parked(first), .parked(second),
        ]
        let legal = phases.map { from in phases.map { QueueLane.isLegal(from: from, to: $0) } }
        #expect(
            legal == [
                [true, false, true, true], [true, false, true, true], [false, true, false, false],
                [false, false, false, false],
            ])
    }
}

/// The queue in isolation: each event in each phase of a lane, the turns, and the counts.
struct FairQueueTests {
    private var queue = FairQueue()

    /// Phase of the lane of client 1 at origin 2 in scope 3 before an event.
    enum Phase: CaseIterable {
        case absent, rotating, atClient, atQuota, atScope, atOrigin, returned

        static func of(_ queue: FairQueue) -> Phase {
            guard let lane = queue.lanes.indices.first else { return .absent }
            return switch queue.lanes[lane].phase {
            case .rotating(nil): .rotating
            case .rotating(.some): .returned
            case .parked(.clientWindow(1, pool: 0)): .atClient
            case .parked(.transferQuota(queue.principalQueue(of: lane))): .atQuota
            case .parked(.scopeCoolDown(3)): .atScope
            case .parked(.originRoom(2)): .atOrigin
            case .parked: .absent
            }
        }
    }

    enum Event: CaseIterable {
        case push, remove, turn, clientFull, quotaFull, cooling, originFull
        case clientOpened, quotaOpened, scopeOpened, originOpened, otherOpened
    }

    private static func place(
        pool: Handle<WorkerPool> = 0, principal: Handle<Principal> = 5, _ priority: PriorityClass = .normal,
        root: Handle<RootEntry> = 1, client: Handle<ClientSession> = 1,
        origin: Handle<OriginEntry> = 2,
        scope: Handle<OriginScope> = 3, handler: Handle<HandlerEntry> = 4
    ) -> FairQueue.QueueKey {
        FairQueue.QueueKey(
            pool: pool, principal: principal, priority: priority, root: root, client: client, origin: origin,
            scope: scope, handler: handler)
    }

    private static func queue(_ phase: Phase) -> FairQueue {
        var queue = FairQueue()
        guard phase != .absent else { return queue }
        queue.push(1, at: place())
        let obstacle: FairQueue.StartBlocker =
            switch phase {
            case .absent, .rotating: .none
            case .atClient: .fullClientWindow
            case .atQuota: .transferQuotaReached
            case .atScope: .scopeCoolingDown
            case .atOrigin, .returned: .originWithoutRoom
            }
        if obstacle != .none { _ = queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in obstacle } }
        if phase == .returned { queue.unparkLanes(ofOrigin: 2) }
        return queue
    }

    private static func expected(_ event: Event, _ phase: Phase) -> Phase {
        switch (event, phase) {
        case (.remove, _): .absent
        case (.push, .absent): .rotating
        case (.push, _), (.otherOpened, _): phase
        case (.turn, .rotating), (.turn, .returned): .rotating
        case (.clientFull, .rotating), (.clientFull, .returned): .atClient
        case (.quotaFull, .rotating), (.quotaFull, .returned): .atQuota
        case (.cooling, .rotating), (.cooling, .returned): .atScope
        case (.originFull, .rotating), (.originFull, .returned): .atOrigin
        case (.turn, _), (.clientFull, _), (.quotaFull, _), (.cooling, _), (.originFull, _): phase
        case (.clientOpened, .atClient), (.quotaOpened, .atQuota): .returned
        case (.scopeOpened, .atScope), (.originOpened, .atOrigin): .returned
        case (.clientOpened, _), (.quotaOpened, _), (.scopeOpened, _), (.originOpened, _): phase
        }
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase of a lane leads where the diagram says`(event: Event, phase: Phase) {
        var queue = Self.queue(phase)
        #expect(Phase.of(queue) == phase)
        var requested = 0
        func turn(_ obstacle: FairQueue.StartBlocker) -> Handle<Interest>? {
            queue.nextStartable(in: 0, onlyHighPriority: false) { principal, client, scope, priority in
                #expect(principal == 5 && client == 1 && scope == 3 && priority == .normal)
                requested += 1
                return obstacle
            }
        }
        let canTurn = phase == .rotating || phase == .returned
        switch event {
        case .push: queue.push(2, at: Self.place())
        case .remove: queue.remove(1)
        case .turn: #expect(turn(.none) == (canTurn ? 1 : nil))
        case .clientFull: #expect(turn(.fullClientWindow) == nil)
        case .quotaFull: #expect(turn(.transferQuotaReached) == nil)
        case .cooling: #expect(turn(.scopeCoolingDown) == nil)
        case .originFull: #expect(turn(.originWithoutRoom) == nil)
        case .clientOpened: queue.unparkLanes(ofClient: 1)
        case .quotaOpened: queue.unparkLanes(ofPrincipal: 5)
        case .scopeOpened: queue.unparkLanes(ofScope: 3)
        case .originOpened: queue.unparkLanes(ofOrigin: 2)
        case .otherOpened:
            queue.unparkLanes(ofClient: 2)
            queue.unparkLanes(ofPrincipal: 4)
            queue.unparkLanes(ofScope: 1)
            queue.unparkLanes(ofOrigin: 3)
        }
        #expect(Phase.of(queue) == Self.expected(event, phase))
        #expect(requested <= 1 && (requested == 0 || canTurn))
        #expect(queue.checkInvariants() == [])
    }

    /// Takes turns until none is left, removes each interest, and returns them.
    private static func drain(_ queue: inout FairQueue, pool: Handle<WorkerPool> = 0, isForHigh: Bool = false)
        -> [Handle<Interest>]
    {
        var order: [Handle<Interest>] = []
        while let next = queue.nextStartable(
            in: pool, onlyHighPriority: isForHigh, startBlocker: { _, _, _, _ in .none })
        {
            queue.remove(next)
            order.append(next)
        }
        return order
    }

    @Test mutating func `roots, lanes and handlers have turns in this order, and a handler's interests their own`() {
        queue.push(1, at: Self.place(root: 1, client: 1, handler: 1))
        queue.push(2, at: Self.place(root: 1, client: 1, handler: 1))
        queue.push(3, at: Self.place(root: 1, client: 1, handler: 2))
        queue.push(4, at: Self.place(root: 1, client: 2, handler: 3))
        queue.push(5, at: Self.place(root: 2, client: 3, handler: 4))
        queue.push(6, at: Self.place(root: 1, client: 1, handler: 1), isFirst: true)
        #expect(queue.checkInvariants() == [])
        #expect(Self.drain(&queue) == [6, 5, 4, 3, 1, 2])
        #expect(
            queue.count == 0 && queue.lanes.count == 0 && queue.rootQueues.count == 0
                && queue.principalQueues.count == 0)
    }

    @Test mutating func `fresh handlers have three of four turns, the newest first`() {
        for request in 0..<3 as Range<Handle<Interest>> { queue.push(request, at: Self.place(handler: 0)) }
        for handler in 1...5 as ClosedRange<Handle<HandlerEntry>> {
            queue.push(Handle(slabIndex: 10 + handler.slabIndex), at: Self.place(handler: handler), isReplacement: true)
        }
        #expect(queue.checkInvariants() == [])
        #expect(Self.drain(&queue) == [15, 14, 13, 0, 12, 11, 1, 2])
    }

    @Test mutating func `only class high may start in slots for it, and only a pool's own interests in its slots`() {
        queue.push(1, at: Self.place(.normal))
        queue.push(2, at: Self.place(.high))
        queue.push(3, at: Self.place(pool: 1, .high))
        #expect(queue.count(of: .high) == 2 && queue.count(of: .normal) == 1)
        #expect(queue.count(in: 0) == 2 && queue.count(in: 1) == 1 && queue.count(in: 2) == 0)
        #expect(Self.drain(&queue, isForHigh: true) == [2])
        #expect(Self.drain(&queue) == [1])
        #expect(Self.drain(&queue, pool: 2) == [])
        #expect(Self.drain(&queue, pool: 1) == [3])
        #expect(queue.checkInvariants() == [])
    }

    @Test mutating func `one lane per class returns when an origin opens, and its turn brings back the next`() {
        for client in 1...3 as ClosedRange<Handle<ClientSession>> {
            queue.push(Handle(slabIndex: client.slabIndex), at: Self.place(client: client))
        }
        #expect(queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in .originWithoutRoom } == nil)
        func rotating() -> Int { queue.lanes.indices.count { queue.lanes[$0].isUnparkedWithoutTurn } }
        #expect(rotating() == 0)
        queue.unparkLanes(ofOrigin: 2)
        #expect(rotating() == 1)
        #expect(queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in .none } == 1)
        #expect(rotating() == 1, "the lane of client 2")
        queue.remove(1)
        #expect(Self.drain(&queue) == [2, 3])
    }

    @Test mutating func `a lane that returns and finds the same obstacle is the first to return again`() {
        for client in 1...2 as ClosedRange<Handle<ClientSession>> {
            queue.push(Handle(slabIndex: client.slabIndex), at: Self.place(client: client))
        }
        #expect(queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in .originWithoutRoom } == nil)
        for _ in 0..<3 {
            queue.unparkLanes(ofOrigin: 2)
            #expect(queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in .originWithoutRoom } == nil)
        }
        queue.unparkLanes(ofOrigin: 2)
        #expect(queue.nextStartable(in: 0, onlyHighPriority: false) { _, _, _, _ in .none } == 1)
        #expect(queue.checkInvariants() == [])
    }

    @Test mutating func `an interest that is not queued is removed without effect`() {
        queue.remove(5)
        queue.push(1, at: Self.place())
        queue.remove(0)
        queue.remove(1)
        queue.remove(1)
        #expect(!queue.contains(1) && queue.count == 0 && queue.checkInvariants() == [])
    }

    @Test mutating func `released memory changes nothing`() {
        for number in 0..<100 {
            let place = Self.place(
                root: Handle(slabIndex: number), client: Handle(slabIndex: number), handler: Handle(slabIndex: number))
            queue.push(Handle(slabIndex: number), at: place)
        }
        for request in 2..<100 as Range<Handle<Interest>> { queue.remove(request) }
        queue.releaseSpareCapacity(beyond: 2, retaining: 8)
        #expect(queue.checkInvariants() == [])
        #expect(Self.drain(&queue) == [0, 1])
    }
}
