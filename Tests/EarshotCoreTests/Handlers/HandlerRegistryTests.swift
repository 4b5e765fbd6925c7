import EarshotWire
import Testing

@testable import EarshotCore

/// The registry of handlers in isolation: each event in each phase of a handler, names, subscriptions and removals.
struct HandlerRegistryTests {
    private static let id = HandlerID("a/b")!
    private static let remover = MessagePosition(client: ClientID(rawValue: 9), messageNumber: 1)
    private var registry = HandlerRegistry()

    /// Phase of the handler `a/b` before an event.
    enum Phase: CaseIterable {
        case absent, named, removing, removed

        init(_ entry: HandlerEntry.Phase) {
            self =
                switch entry {
                case .named: .named
                case .removing: .removing
                case .removed: .removed
                }
        }
    }

    enum Event: CaseIterable {
        case removeName, requestEnded, endRemoval, dropIfIdle
    }

    /// A registry in which the handler `a/b` is in the given phase. It has one request, of client 5; a removed one has
    /// a terminal that client 5 has not acknowledged.
    private static func registry(_ phase: Phase) -> (HandlerRegistry, handler: Handle<HandlerEntry>) {
        var registry = HandlerRegistry()
        guard phase != .absent else { return (registry, 0) }
        let handler = registry.add(id).number
        registry.requestAdded(1, to: handler, owner: 5)
        guard phase != .named else { return (registry, handler) }
        registry.beginRemoval(of: handler, HandlerRemoval(failureRecipients: [7], message: remover))
        guard phase == .removed else { return (registry, handler) }
        end(1, of: handler, in: &registry)
        registry.endRemoval(of: handler)
        return (registry, handler)
    }

    /// Removes a request of client 5.
    private static func end(
        _ request: Handle<Interest>, of handler: Handle<HandlerEntry>, in registry: inout HandlerRegistry
    ) {
        registry.requestEnded(of: handler, owner: 5) { $0.removed += 1 }
        registry.requestIDFreed(request, of: handler)
    }

    /// Expected phase; nil for an event that cannot occur in a phase.
    private static func expected(_ event: Event, _ phase: Phase) -> Phase? {
        switch (event, phase) {
        case (.removeName, .named), (.requestEnded, .removing): .removing
        case (.endRemoval, .removing): .removed
        // The reference of its request keeps it.
        case (.dropIfIdle, .named), (.dropIfIdle, .removing), (.dropIfIdle, .removed): phase
        case (.removeName, _), (.requestEnded, _), (.endRemoval, _), (.dropIfIdle, .absent): nil
        }
    }

    @Test func `the diagram of a handler has these transitions and no others`() {
        let removal = HandlerRemoval(failureRecipients: [], message: Self.remover)
        let phases: [HandlerEntry.Phase] = [.named, .removing(removal), .removed]
        let legal = phases.map { from in phases.map { HandlerEntry.isLegal(from: from, to: $0) } }
        #expect(legal == [[false, true, false], [false, true, true], [false, false, false]])
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leads where the diagram says`(event: Event, phase: Phase) {
        guard let expected = Self.expected(event, phase) else { return }
        var (registry, handler) = Self.registry(phase)
        #expect(registry.checkInvariants() == [])
        #expect(Phase(registry[handler].phase) == phase)
        #expect((registry.handle(of: Self.id) == handler) == (phase == .named))
        #expect(registry.removing(Self.id) == (phase == .removing ? [handler] : []))
        switch event {
        case .removeName:
            registry.beginRemoval(of: handler, HandlerRemoval(failureRecipients: [], message: Self.remover))
        case .requestEnded:
            Self.end(1, of: handler, in: &registry)
            #expect(registry[handler].requestCounts.pending == 0 && registry[handler].requestCounts.removed == 1)
        case .endRemoval:
            Self.end(1, of: handler, in: &registry)
            registry.endRemoval(of: handler)
        case .dropIfIdle: #expect(registry.freeIfIdle(handler) == nil)
        }
        #expect(Phase(registry[handler].phase) == expected)
        #expect(registry.checkInvariants() == [])
    }

    @Test(arguments: [Phase.named, .removed])
    func `a handler is freed with its last reference, and its root with the last handler`(phase: Phase) {
        var (registry, handler) = Self.registry(phase)
        if phase == .named {
            registry.requestEnded(of: handler, owner: 5) { $0.answered += 1 }
            registry.requestIDFreed(1, of: handler)
        }
        let other = registry.add(HandlerID("a")!)
        #expect(!other.isFirstOfRoot)
        registry.releaseHandler(handler)
        #expect(registry.freeIfIdle(handler) == nil)
        #expect(registry.count == 1 && registry.hasRoot("a"))
        #expect(registry.freeIfIdle(other.number) == "a")
        #expect(registry.count == 0 && registry.rootCount == 0 && !registry.hasRoot("a"))
        #expect(registry.checkInvariants() == [])
    }

    @Test func `a handler being removed is not freed, even without a reference`() {
        var (registry, handler) = Self.registry(.removing)
        Self.end(1, of: handler, in: &registry)
        registry.releaseHandler(handler)
        #expect(registry.freeIfIdle(handler) == nil)
        #expect(registry.contains(handler))
        registry.endRemoval(of: handler)
        #expect(registry.freeIfIdle(handler) == "a")
        #expect(registry.checkInvariants() == [])
    }

    // MARK: Names

    @Test mutating func `a subtree matches the handlers below it in the order of their names`() {
        for name in ["a/c", "b", "a", "a/b/x", "ab", "a/b"] {
            let handler = registry.add(HandlerID(name)!).number
            registry.retainHandler(handler)
        }
        func names(_ pattern: String) -> [String] {
            registry.matching(HandlerPattern(pattern)!).map { registry[$0].id.description }
        }
        #expect(names("a/") == ["a/b", "a/b/x", "a/c"])
        #expect(names("a/b/") == ["a/b/x"])
        #expect(names("a") == ["a"])
        #expect(names("c") == [] && names("c/") == [])
        #expect(registry.rootCount == 3)
        #expect(registry.checkInvariants() == [])
    }

    // MARK: Subscriptions

    @Test mutating func `a client subscribes to a handler and to a subtree once, and counts once as a subscriber`() {
        let handler = registry.add(Self.id).number
        registry.retainHandler(handler)
        #expect(registry.subscribe(3, to: handler) == true)
        #expect(registry.subscribe(3, to: handler) == false)
        #expect(registry.subscribe(3, toSubtree: HandlerID("a")!) == true)
        #expect(registry.subscribe(3, toSubtree: HandlerID("a")!) == false)
        #expect(registry.subscribe(4, toSubtree: HandlerID("a")!) == true)
        #expect(registry.subscribers(of: handler) == [3, 4])
        #expect(registry.subscriptionCount(of: 3) == 2 && registry.subscriptionCount(of: 4) == 1)
        #expect(registry.isSubscribed(3, to: handler) && !registry.isSubscribed(4, to: handler))
        #expect(registry.checkInvariants() == [])
        #expect(registry.unsubscribe(3, from: handler) == true)
        #expect(registry.unsubscribe(3, from: handler) == false)
        #expect(registry.unsubscribe(3, fromSubtree: HandlerID("a")!) == true)
        #expect(registry.unsubscribe(3, fromSubtree: HandlerID("a")!) == false)
        #expect(registry.subscribers(of: handler) == [4])
        #expect(Array(registry.subscribedClients) == [4])
        #expect(registry.unsubscribe(4, fromSubtree: HandlerID("a")!) == true)
        #expect(registry.subtreeCount == 0 && registry.subscribers(of: handler) == [])
        #expect(registry.checkInvariants() == [])
    }

    @Test mutating func `a subscriber keeps a handler`() {
        let handler = registry.add(Self.id).number
        _ = registry.subscribe(3, to: handler)
        #expect(registry.freeIfIdle(handler) == nil)
        _ = registry.unsubscribe(3, from: handler)
        #expect(registry.freeIfIdle(handler) == "a")
        #expect(registry.checkInvariants() == [])
    }

    @Test func `an epoch without subscribers ends with the next subscriber`() {
        var (registry, handler) = Self.registry(.named)
        registry.beginSubscriberAbsence(of: handler, serial: 4)
        #expect(registry[handler].subscriberAbsenceEpoch == 4)
        registry.endSubscriberAbsence(handler)
        #expect(registry[handler].subscriberAbsenceEpoch == nil)
    }

    // MARK: Requests

    @Test mutating func `requests count as pending until they end, also those of a removed handler`() {
        let handler = registry.add(Self.id).number
        registry.requestAdded(1, to: handler, owner: 5)
        registry.requestAdded(2, to: handler, owner: 6)
        registry.requestAdded(3, to: handler, owner: nil)
        #expect(registry.requests(of: handler) == [1, 2, 3])
        #expect(registry.nextRequest(after: 1) == 2 && registry.nextRequest(after: 3) == nil)
        registry.requestTransferred(of: handler, from: 5, to: 6)
        #expect(registry[handler].openHandlerOwnedRequests == 1 && registry[handler].requestCounts.pending == 3)
        registry.requestEnded(of: handler, owner: nil) { $0.answered += 1 }
        #expect(registry[handler].openHandlerOwnedRequests == 0 && registry[handler].requestCounts.answered == 1)
        registry.requestReopened(of: handler) { $0.answered -= 1 }
        #expect(registry[handler].openHandlerOwnedRequests == 1 && registry[handler].requestCounts.pending == 3)
        #expect(registry.checkInvariants() == [])
        registry.beginRemoval(of: handler, HandlerRemoval(failureRecipients: [], message: Self.remover))
        #expect(registry[handler].requestCounts.pending == 3 && registry[handler].requestCounts.removed == 0)
        registry.requestEnded(of: handler, owner: 6) { $0.removed += 1 }
        #expect(registry[handler].requestCounts.pending == 2 && registry[handler].openHandlerOwnedRequests == 1)
        #expect(registry.checkInvariants() == [])
    }

    @Test mutating func `resting requests keep their order`() {
        let handler = registry.add(Self.id).number
        for request in 1...3 as ClosedRange<Handle<Interest>> {
            registry.requestAdded(request, to: handler, owner: nil)
            registry.addDurableAwaitingSubscriber(request, of: handler)
        }
        registry.removeDurableAwaitingSubscriber(2, of: handler)
        #expect(registry.durableRequestsAwaitingSubscriber(of: handler) == [1, 3])
        registry.countHeldOutcome(of: handler)
        #expect(registry[handler].heldOutcomeCount == 1)
        registry.uncountHeldOutcome(of: handler)
        #expect(registry[handler].heldOutcomeCount == 0)
        #expect(registry.checkInvariants() == [])
    }

    // MARK: Removal

    @Test mutating func `the name and the subscribers of a removed handler go to a new record`() throws {
        let handler = registry.add(Self.id).number
        registry.requestAdded(1, to: handler, owner: nil)
        _ = registry.subscribe(3, to: handler)
        registry.beginRemoval(of: handler, HandlerRemoval(failureRecipients: [3], message: Self.remover))
        let successor = try #require(registry.handle(of: Self.id))
        #expect(successor != handler)
        #expect(registry[successor].subscribers == [3] && registry[handler].subscribers == [])
        #expect(registry.subscriptions(of: 3).handlers == [successor])
        #expect(registry[successor].requestCounts == Ledger.Requests())
        #expect(registry.namedCount == 1 && registry.count == 2)
        #expect(registry.checkInvariants() == [])
    }

    @Test func `a removed handler without subscribers has no successor`() {
        let (registry, _) = Self.registry(.removing)
        #expect(registry.handle(of: Self.id) == nil && registry.count == 1 && registry.hasRoot("a"))
    }

    @Test func `a client is withdrawn from the subscribers of a removed handler once`() {
        var (registry, handler) = Self.registry(.removing)
        #expect(registry.removeSubscriber(8, fromRemovalOf: handler) == false)
        #expect(registry.removeSubscriber(7, fromRemovalOf: handler) == true)
        #expect(registry.removeSubscriber(7, fromRemovalOf: handler) == false)
        #expect(registry[handler].removal?.failureRecipients == [])
    }

    @Test mutating func `removed handlers are listed by name in order, and take turns`() {
        var removed: [Handle<HandlerEntry>] = []
        for request in 1...3 as ClosedRange<Handle<Interest>> {
            let handler = registry.add(Self.id).number
            registry.requestAdded(request, to: handler, owner: nil)
            registry.beginRemoval(of: handler, HandlerRemoval(failureRecipients: [], message: Self.remover))
            removed.append(handler)
        }
        #expect(Array(registry.handlersBeingRemoved) == removed && registry.removing(Self.id) == removed)
        registry.rotateHandlersBeingRemoved()
        #expect(Array(registry.handlersBeingRemoved) == [removed[1], removed[2], removed[0]])
        #expect(registry.removing(Self.id) == removed)
        #expect(registry.checkInvariants() == [])
        registry.requestIDFreed(1, of: removed[0])
        registry.endRemoval(of: removed[0])
        #expect(
            Array(registry.handlersBeingRemoved) == Array(removed[1...])
                && registry.removing(Self.id) == Array(removed[1...]))
        #expect(registry.checkInvariants() == [])
    }

    @Test mutating func `released memory changes nothing`() {
        var all: [Handle<HandlerEntry>] = []
        for number in 0..<100 {
            let handler = registry.add(HandlerID("r\(number)/x")!).number
            registry.requestAdded(Handle(slabIndex: number), to: handler, owner: 1)
            _ = registry.subscribe(1, to: handler)
            all.append(handler)
        }
        for (number, handler) in all.enumerated().dropFirst(3) {
            registry.requestEnded(of: handler, owner: 1) { $0.answered += 1 }
            registry.requestIDFreed(Handle(slabIndex: number), of: handler)
            registry.releaseHandler(handler)
            _ = registry.unsubscribe(1, from: handler)
            _ = registry.freeIfIdle(handler)
        }
        #expect(registry.hasSpareCapacity(beyond: 8))
        registry.releaseSpareCapacity(beyond: 3, retaining: 8)
        #expect(!registry.hasSpareCapacity(beyond: 8))
        #expect(registry.namedCount == 3 && registry.subscriptions(of: 1).handlers == Set(all.prefix(3)))
        #expect(registry.checkInvariants() == [])
    }
}
