internal import DequeModule
package import EarshotWire
internal import OrderedCollections

/// Handlers by name and handle, their requests and subscribers, and the removals of handlers.
///
/// Each principal has its own namespace: a name finds the handlers of one principal only.
///
/// `HandlerEntry` documents the phases of a handler; only this type changes them. Clients and requests are known by
/// handle alone. A handler exists while a request, a waiting terminal, a subscriber or a removal needs it.
package struct HandlerRegistry {
    private var handlers = Slab<HandlerEntry>()
    private var roots = Slab<RootEntry>()
    /// Named handlers.
    private var handlesByKey: [HandlerKey: Handle<HandlerEntry>] = [:]
    /// The same handlers by principal, then in the byte order of their names.
    package private(set) var handlersInNameOrder = OrderedHandles<HandlerEntry>()
    /// Roots by the text of their principals, see `rootText`.
    private var rootHandles: [String: Handle<RootEntry>] = [:]
    /// Clients subscribed to all handlers below a name.
    private var subtreeSubscribers: [HandlerKey: [Handle<ClientSession>]] = [:]
    /// Subscriptions by client, for clients that have one.
    private var subscriptions: [Handle<ClientSession>: ClientSubscriptions] = [:]
    private var requestChains = LinkedLists<Interest>()
    private var durableRequestChains = LinkedLists<Interest>()
    /// Handlers being removed, in the order of their turns.
    private(set) var handlersBeingRemoved: Deque<Handle<HandlerEntry>> = []
    /// Handlers being removed, by their former names.
    private var removedHandlesByFormerKey: [HandlerKey: [Handle<HandlerEntry>]] = [:]

    // MARK: Queries

    package subscript(handler: Handle<HandlerEntry>) -> HandlerEntry {
        _read { yield handlers[handler] }
    }

    var count: Int { handlers.count }

    /// Number of handlers with a name.
    package var namedCount: Int { handlesByKey.count }

    /// Handles of all handlers. O(handlers).
    var indices: [Handle<HandlerEntry>] { handlers.indices }

    var rootCount: Int { roots.count }

    /// Number of subtrees with subscribers.
    var subtreeCount: Int { subtreeSubscribers.count }

    /// Clients with a subscription, in any order.
    var subscribedClients: some Collection<Handle<ClientSession>> { subscriptions.keys }

    func contains(_ handler: Handle<HandlerEntry>) -> Bool { handlers.contains(handler) }

    package func handle(of key: HandlerKey) -> Handle<HandlerEntry>? { handlesByKey[key] }

    /// Principals with a handler. O(handlers).
    var principals: Set<Handle<Principal>> { Set(indices.lazy.map { handlers[$0].principal }) }

    /// Whether a handler has this root.
    func hasRoot(_ name: String) -> Bool { rootHandles[name] != nil }

    /// First segment of a handler's name, with the name of its principal; see `rootText`.
    func rootName(of handler: Handle<HandlerEntry>) -> String { roots[handlers[handler].rootHandle].name }

    /// Text of a root, which names its cookie jar: the first segment of its handlers, after the principal and a space
    /// unless the principal is the administrator. No segment contains a space.
    package static func rootText(_ id: HandlerID, of principal: PrincipalName?) -> String {
        principal.map { "\($0) \(id.root)" } ?? String(id.root)
    }

    /// Position of the first handler that is not before `name` in the order of principals and names. O(log handlers).
    package func namePosition(
        of name: String, _ principal: Handle<Principal>
    ) -> OrderedHandles<HandlerEntry>.Position {
        handlersInNameOrder.firstPosition { handlerPrecedes(name, principal, $0) }
    }

    /// Whether a handler is before a name of a principal in the order.
    func handlerPrecedes(_ name: String, _ principal: Handle<Principal>, _ handler: Handle<HandlerEntry>) -> Bool {
        let other = handlers[handler].principal
        return other == principal ? handlers[handler].id.description < name : other < principal
    }

    /// Existing handlers of a principal that match; those of a subtree in the byte order of their names. O(log handlers
    /// + matches).
    ///
    /// - Parameters:
    ///   - first: name at which the search in a subtree begins; nil for its start.
    ///   - limit: maximum number of handlers of a subtree.
    func handlers(
        matching pattern: HandlerPattern, of principal: Handle<Principal>, from first: String? = nil, limit: Int = .max
    ) -> [Handle<HandlerEntry>] {
        switch pattern {
        case .handler(let id): handlesByKey[HandlerKey(principal, id)].map { [$0] } ?? []
        case .subtree:
            handlersInNameOrder.handles(from: namePosition(of: first ?? pattern.description, principal), limit: limit) {
                handlers[$0].principal == principal && pattern.matches(handlers[$0].id)
            }
        }
    }

    /// Handlers of a principal with a name, in the byte order of their names. O(log handlers + its handlers).
    package func namedHandlers(of principal: Handle<Principal>) -> [Handle<HandlerEntry>] {
        handlersInNameOrder.handles(from: namePosition(of: "", principal)) { handlers[$0].principal == principal }
    }

    /// Whether a client is subscribed to a subtree.
    var hasSubtreeSubscriptions: Bool { !subtreeSubscribers.isEmpty }

    /// Clients subscribed to a handler or to a subtree with it, each once.
    func subscribers(of handler: Handle<HandlerEntry>) -> [Handle<ClientSession>] {
        subtreeSubscribers.isEmpty ? handlers[handler].subscribers : allSubscribers(of: handler)
    }

    private func allSubscribers(of handler: Handle<HandlerEntry>) -> [Handle<ClientSession>] {
        var all = OrderedSet(handlers[handler].subscribers)
        for prefix in handlers[handler].key.enclosingSubtreeKeys { all.formUnion(subtreeSubscribers[prefix] ?? []) }
        return all.elements
    }

    /// Whether a client is subscribed to exactly this handler. Checks the first subscriber before the set, because most
    /// handlers have only one.
    func isSubscribed(_ client: Handle<ClientSession>, to handler: Handle<HandlerEntry>) -> Bool {
        handlers[handler].subscribers.first == client || subscriptions[client]?.handlers.contains(handler) == true
    }

    /// Handlers and subtrees of a client.
    func subscriptions(of client: Handle<ClientSession>) -> ClientSubscriptions {
        subscriptions[client] ?? ClientSubscriptions()
    }

    /// Any handler of a client. Holds no copy of the set, which the caller changes next.
    func anySubscribedHandler(of client: Handle<ClientSession>) -> Handle<HandlerEntry>? {
        subscriptions[client]?.handlers.first
    }

    /// The newest subtree of a client.
    func newestSubtree(of client: Handle<ClientSession>) -> HandlerKey? { subscriptions[client]?.subtrees.last }

    func subscriptionCount(of client: Handle<ClientSession>) -> Int { subscriptions[client]?.count ?? 0 }

    /// Requests of a handler whose IDs are taken, in the order of their arrival. O(requests).
    package func requests(of handler: Handle<HandlerEntry>) -> [Handle<Interest>] {
        requestChains.members(of: handlers[handler].interests)
    }

    /// The request of the same handler that arrived next; nil for the newest.
    func nextRequest(after interest: Handle<Interest>) -> Handle<Interest>? {
        requestChains.next(after: interest)
    }

    /// Durable requests of a handler whose outcomes are on disk. O(requests).
    func durableRequestsAwaitingSubscriber(of handler: Handle<HandlerEntry>) -> [Handle<Interest>] {
        durableRequestChains.members(of: handlers[handler].durableRequestsAwaitingSubscriber)
    }

    // MARK: Names

    /// Adds a handler. Its name must not be taken. The caller adds a request or a subscriber next, or calls
    /// `freeIfIdle`.
    ///
    /// - Parameter name: name of its principal; nil for the administrator.
    /// - Returns: the handler, and whether it is the first handler of its root.
    mutating func addHandler(
        _ key: HandlerKey, of name: PrincipalName? = nil
    ) -> (number: Handle<HandlerEntry>, isFirstOfRoot: Bool) {
        addHandler(key, rootText: Self.rootText(key.id, of: name))
    }

    private mutating func addHandler(
        _ key: HandlerKey, rootText name: String
    ) -> (number: Handle<HandlerEntry>, isFirstOfRoot: Bool) {
        precondition(handlesByKey[key] == nil, "there are two handlers \(key.id)")
        let known = rootHandles[name]
        let root = known ?? roots.insert(RootEntry(name: name))
        rootHandles[name] = root
        let handler = handlers.insert(HandlerEntry(key, root: root))
        handlesByKey[key] = handler
        handlersInNameOrder.insert(handler, at: namePosition(of: key.id.description, key.principal))
        roots[root].handlers += 1
        return (handler, known == nil)
    }

    /// Frees a handler that is idle.
    ///
    /// - Returns: the root if no other handler has it; nil otherwise.
    mutating func freeIfIdle(_ handler: Handle<HandlerEntry>) -> String? {
        guard isIdle(handler) else { return nil }
        if handlers[handler].isNamed { releaseName(of: handler) }
        let root = handlers[handler].rootHandle
        handlers.destroy(handler)
        roots[root].handlers -= 1
        guard roots[root].handlers == 0 else { return nil }
        let name = roots[root].name
        rootHandles[name] = nil
        roots.destroy(root)
        return name
    }

    /// Whether nothing refers to a handler, and it is not being removed. Reads one field at a time, because the
    /// compiler copies a whole record for its computed properties.
    private func isIdle(_ handler: Handle<HandlerEntry>) -> Bool {
        handlers[handler].referenceCount == 0 && handlers[handler].subscribers.isEmpty && !handlers[handler].isRemoving
    }

    private mutating func releaseName(of handler: Handle<HandlerEntry>) {
        let key = handlers[handler].key
        handlesByKey[key] = nil
        handlersInNameOrder.remove(at: namePosition(of: key.id.description, key.principal))
    }

    // MARK: Subscriptions

    /// - Returns: whether the client was not subscribed to exactly this handler.
    mutating func subscribe(_ client: Handle<ClientSession>, to handler: Handle<HandlerEntry>) -> Bool {
        precondition(handlers[handler].isNamed, "handler \(handler) was removed")
        guard subscriptions[client, default: ClientSubscriptions()].handlers.insert(handler).inserted else {
            return false
        }
        handlers[handler].subscribers.append(client)
        return true
    }

    /// - Returns: whether the client was subscribed. The caller calls `freeIfIdle` then.
    mutating func unsubscribe(_ client: Handle<ClientSession>, from handler: Handle<HandlerEntry>) -> Bool {
        guard subscriptions[client]?.handlers.remove(handler) != nil else { return false }
        handlers[handler].subscribers.removeAll { $0 == client }
        removeSubscriptionsIfEmpty(of: client)
        return true
    }

    /// - Returns: whether the client was not subscribed to this subtree.
    mutating func subscribe(_ client: Handle<ClientSession>, toSubtree key: HandlerKey) -> Bool {
        guard subscriptions[client, default: ClientSubscriptions()].subtrees.append(key).inserted else { return false }
        subtreeSubscribers[key, default: []].append(client)
        return true
    }

    /// - Returns: whether the client was subscribed to this subtree.
    mutating func unsubscribe(_ client: Handle<ClientSession>, fromSubtree key: HandlerKey) -> Bool {
        guard subscriptions[client]?.subtrees.remove(key) != nil else { return false }
        subtreeSubscribers[key]?.removeAll { $0 == client }
        if subtreeSubscribers[key]?.isEmpty == true { subtreeSubscribers[key] = nil }
        removeSubscriptionsIfEmpty(of: client)
        return true
    }

    private mutating func removeSubscriptionsIfEmpty(of client: Handle<ClientSession>) {
        if subscriptions[client]?.count == 0 { subscriptions[client] = nil }
    }

    /// Begins an epoch without subscribers. Its grace timer names the serial.
    mutating func beginSubscriberAbsence(of handler: Handle<HandlerEntry>, serial: UInt64) {
        handlers[handler].subscriberAbsenceEpoch = serial
    }

    /// Ends the epoch without subscribers.
    mutating func endSubscriberAbsence(_ handler: Handle<HandlerEntry>) {
        handlers[handler].subscriberAbsenceEpoch = nil
    }

    // MARK: Requests

    /// Adds a reference to a handler: an additional request or waiting terminal needs its record.
    mutating func retainHandler(_ handler: Handle<HandlerEntry>) { handlers[handler].referenceCount += 1 }

    /// Removes a reference. The caller calls `freeIfIdle` next.
    mutating func releaseHandler(_ handler: Handle<HandlerEntry>) { handlers[handler].referenceCount -= 1 }

    /// Adds a new request, and a reference.
    ///
    /// - Parameter owner: the client that owns it; nil if it belongs to the handler itself.
    mutating func requestAdded(
        _ interest: Handle<Interest>, to handler: Handle<HandlerEntry>, owner: Handle<ClientSession>?
    ) {
        retainHandler(handler)
        requestChains.append(interest, to: &handlers[handler].interests)
        handlers[handler].addOpenRequest(ofOwner: owner)
        handlers[handler].requestCounts.submitted += 1
        handlers[handler].requestCounts.pending += 1
    }

    /// Removes a request whose ID is free.
    mutating func requestIDFreed(_ interest: Handle<Interest>, of handler: Handle<HandlerEntry>) {
        requestChains.remove(interest, from: &handlers[handler].interests)
    }

    /// Moves a request from pending to its result.
    mutating func requestEnded(
        of handler: Handle<HandlerEntry>, owner: Handle<ClientSession>?, _ change: (inout Ledger.Requests) -> Void
    ) {
        handlers[handler].requestEnded(owner: owner, change)
    }

    /// Reverses `requestEnded` for a request that belongs to the handler itself.
    mutating func requestReopened(of handler: Handle<HandlerEntry>, _ change: (inout Ledger.Requests) -> Void) {
        handlers[handler].requestCounts.pending += 1
        change(&handlers[handler].requestCounts)
        handlers[handler].addOpenRequest(ofOwner: nil)
    }

    /// Makes another client the owner of an open request.
    mutating func requestTransferred(
        of handler: Handle<HandlerEntry>, from owner: Handle<ClientSession>, to client: Handle<ClientSession>
    ) {
        handlers[handler].removeOpenRequest(ofOwner: owner)
        handlers[handler].addOpenRequest(ofOwner: client)
    }

    /// Counts an outcome held until there is a subscriber.
    mutating func countHeldOutcome(of handler: Handle<HandlerEntry>) { handlers[handler].heldOutcomeCount += 1 }

    /// Counts an outcome that is not held any more.
    mutating func uncountHeldOutcome(of handler: Handle<HandlerEntry>) { handlers[handler].heldOutcomeCount -= 1 }

    /// Adds a durable request whose outcome is on disk only.
    mutating func addDurableAwaitingSubscriber(_ interest: Handle<Interest>, of handler: Handle<HandlerEntry>) {
        durableRequestChains.append(interest, to: &handlers[handler].durableRequestsAwaitingSubscriber)
    }

    /// Removes a durable request added by `addDurableAwaitingSubscriber`.
    mutating func removeDurableAwaitingSubscriber(_ interest: Handle<Interest>, of handler: Handle<HandlerEntry>) {
        durableRequestChains.remove(interest, from: &handlers[handler].durableRequestsAwaitingSubscriber)
    }

    /// Counts pending requests whose failures are kept on disk.
    mutating func countStoredFailures(_ change: Int, of handler: Handle<HandlerEntry>) {
        handlers[handler].requestCounts.keptFailures += change
    }

    // MARK: Removal

    /// Takes the name from a handler, whose requests are doomed from then on. The name and its subscribers go to a new
    /// record if there are any.
    mutating func beginRemoval(of handler: Handle<HandlerEntry>, _ removal: HandlerRemoval) {
        releaseName(of: handler)
        handlers[handler].transition(to: .removing(removal))
        handlersBeingRemoved.append(handler)
        let key = handlers[handler].key
        removedHandlesByFormerKey[key, default: []].append(handler)
        let subscribers = handlers[handler].subscribers
        guard !subscribers.isEmpty else { return }
        let successor = addHandler(key, rootText: rootName(of: handler)).number
        handlers[handler].subscribers = []
        handlers[successor].subscribers = subscribers
        for client in subscribers {
            subscriptions[client]?.handlers.remove(handler)
            subscriptions[client]?.handlers.insert(successor)
        }
    }

    /// Handlers being removed that had this name, in the order of their removal.
    func handlersBeingRemoved(formerly key: HandlerKey) -> [Handle<HandlerEntry>] {
        removedHandlesByFormerKey[key] ?? []
    }

    /// Withdraws a client from the subscribers of a handler being removed.
    ///
    /// - Returns: whether it was one of them.
    mutating func removeSubscriber(_ client: Handle<ClientSession>, fromRemovalOf handler: Handle<HandlerEntry>) -> Bool
    {
        guard var removal = handlers[handler].removal, let index = removal.failureRecipients.firstIndex(of: client)
        else {
            return false
        }
        removal.failureRecipients.remove(at: index)
        handlers[handler].transition(to: .removing(removal))
        return true
    }

    /// Moves the first handler being removed to the end of the line.
    mutating func rotateHandlersBeingRemoved() { handlersBeingRemoved.append(handlersBeingRemoved.removeFirst()) }

    /// Ends the removal of a handler, whose requests are all gone. The caller calls `freeIfIdle` next.
    mutating func endRemoval(of handler: Handle<HandlerEntry>) {
        let key = handlers[handler].key
        precondition(handlers[handler].interests.isEmpty, "handler \(key.id) is removed and has requests")
        handlersBeingRemoved.removeAll { $0 == handler }
        handlers[handler].transition(to: .removed)
        removedHandlesByFormerKey[key]?.removeAll { $0 == handler }
        if removedHandlesByFormerKey[key]?.isEmpty == true { removedHandlesByFormerKey[key] = nil }
    }

    // MARK: Memory

    func hasSpareCapacity(beyond: Int) -> Bool { handlers.hasSpareCapacity(beyond: beyond) }

    /// Releases spare capacity of tables, and the entries of requests from `bound` on, which must not exist.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        handlers.releaseSpareCapacity(retaining: least)
        roots.releaseSpareCapacity(retaining: least)
        handlesByKey.releaseSpareCapacity(retaining: least)
        rootHandles.releaseSpareCapacity(retaining: least)
        subtreeSubscribers.releaseSpareCapacity(retaining: least)
        subscriptions.releaseSpareCapacity(retaining: least)
        for client in Array(subscriptions.keys) {
            subscriptions[client]?.handlers.releaseSpareCapacity(retaining: least)
            subscriptions[client]?.subtrees.releaseSpareCapacity(retaining: least)
        }
        requestChains.releaseSpareCapacity(beyond: bound, retaining: least)
        durableRequestChains.releaseSpareCapacity(beyond: bound, retaining: least)
        handlersBeingRemoved.releaseSpareCapacityIfEmpty()
        removedHandlesByFormerKey.releaseSpareCapacity(retaining: least)
    }
}

extension HandlerRegistry {
    /// Returns a sentence for each violated invariant. O(handlers and subscriptions).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        checkNames(check)
        checkSubscriptions(check)
        for handler in indices { checkRequests(of: handler, check) }
        check(Set(handlersBeingRemoved).count == handlersBeingRemoved.count, "10: a handler is removed twice")
        check(
            Set(handlersBeingRemoved) == Set(indices.filter { handlers[$0].isRemoving }),
            "10: \(handlersBeingRemoved.count) handlers are being removed")
        let former = removedHandlesByFormerKey.values.flatMap { $0 }
        check(
            Set(former) == Set(handlersBeingRemoved) && former.count == handlersBeingRemoved.count,
            "10: \(former.count) former names")
        check(
            removedHandlesByFormerKey.allSatisfy { key, former in former.allSatisfy { handlers[$0].key == key } },
            "10: a former name is another handler's")
        return faults
    }

    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    private func checkNames(_ check: Check) {
        if let fault = handlersInNameOrder.invariantViolation { check(false, "12: the order of handlers: \(fault)") }
        let named = indices.filter { handlers[$0].isNamed }
        check(
            handlesByKey.count == named.count && named.allSatisfy { handlesByKey[handlers[$0].key] == $0 },
            "12: \(named.count) handlers, \(handlesByKey.count) names")
        let ordered = handlersInNameOrder.handles(from: handlersInNameOrder.startPosition) { _ in true }
        let isInOrder = zip(ordered, ordered.dropFirst()).allSatisfy {
            handlerPrecedes(handlers[$1].id.description, handlers[$1].principal, $0)
        }
        check(isInOrder && Set(ordered) == Set(named), "12: the order of handlers is not that of their names")
        check(rootHandles.count == roots.count, "12: \(roots.count) roots, \(rootHandles.count) names")
        for root in roots.indices {
            let members = indices.filter { handlers[$0].rootHandle == root }
            let count = members.count
            let principals = Set(members.map { handlers[$0].principal })
            check(principals.count <= 1, "12: root \(root) belongs to two principals")
            check(roots[root].handlers == count, "12: root \(root) counts \(roots[root].handlers) of \(count) handlers")
            check(rootHandles[roots[root].name] == root, "12: root \(root) has no name")
        }
    }

    private func checkSubscriptions(_ check: Check) {
        for (client, own) in subscriptions {
            check(own.count > 0, "12: client \(client) has an empty record of subscriptions")
            check(
                own.handlers.allSatisfy { handlers.contains($0) && handlers[$0].subscribers.contains(client) },
                "12: client \(client) is subscribed to a handler that does not list it")
            check(
                own.subtrees.allSatisfy { subtreeSubscribers[$0]?.contains(client) == true },
                "12: client \(client) is subscribed to a subtree that does not list it")
            let principals = Set(own.handlers.map { handlers[$0].principal } + own.subtrees.map(\.principal))
            check(principals.count <= 1, "2: client \(client) hears handlers of two principals")
        }
        let listed = indices.reduce(0) { $0 + handlers[$1].subscribers.count }
        let own = subscriptions.values.reduce(0) { $0 + $1.handlers.count }
        check(listed == own, "12: handlers list \(listed) subscribers, clients \(own) handlers")
        let below = subtreeSubscribers.values.reduce(0) { $0 + $1.count }
        let ownBelow = subscriptions.values.reduce(0) { $0 + $1.subtrees.count }
        check(below == ownBelow, "12: subtrees list \(below) subscribers, clients \(ownBelow) subtrees")
        check(subtreeSubscribers.values.allSatisfy { !$0.isEmpty }, "12: a subtree without subscribers")
    }

    private func checkRequests(of handler: Handle<HandlerEntry>, _ check: Check) {
        let entry = handlers[handler]
        check(entry.requestCounts.isBalanced, "10: handler \(entry.id) does not balance")
        check(entry.phase != .removed || entry.interests.isEmpty, "10: removed handler \(entry.id) has requests")
        check(entry.referenceCount >= Int(entry.interests.count), "12: handler \(entry.id) has too few references")
        check(!isIdle(handler), "12: handler \(entry.id) is idle")
        check(
            durableRequestsAwaitingSubscriber(of: handler).count == Int(entry.durableRequestsAwaitingSubscriber.count)
                && requests(of: handler).count == Int(entry.interests.count),
            "10: a chain of handler \(entry.id) is broken")
    }
}
