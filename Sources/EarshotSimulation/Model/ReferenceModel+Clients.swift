internal import DequeModule
internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Clients: the expected effects of their messages and disconnections, and their replies.
extension ReferenceModel {
    func clientSent(_ message: ClientMessage, _ number: UInt64?, _ renamed: FileRename?, by id: ClientID) {
        guard let client = connections[id] else { return }
        if client.isOpen { client.lastReceived += 1 }
        client.number = client.isOpen ? 0 : number ?? 0
        guard client.isOpen, let number else { return carryOut(message, renamed, by: client) }
        guard number > client.lastNumber else {
            expectedReplies[id] = .error("bad-message")
            return
        }
        (client.number, client.lastNumber) = (number, number)
        carryOut(message, renamed, by: client)
        if message.isAnsweredByOK, removals[id] == nil { confirm(id) }
    }

    /// The present message has OK for an answer, if it has no other.
    private func confirm(_ id: ClientID) {
        if expectedReplies[id] == nil { expectedReplies[id] = .ok }
    }

    private func carryOut(_ message: ClientMessage, _ renamed: FileRename?, by client: SessionRecord) {
        let id = client.connection
        if case .hello(let hello) = message {
            helloReceived(hello, by: client)
            return
        }
        guard client.isOpen else {
            expectedReplies[id] = .error("hello-required")
            return
        }
        guard client.principal == nil || !Self.isReserved(message) else {
            expectedReplies[id] = .error("not-authorized")
            return
        }
        switch qualified(message, of: client) {
        case .hello: break
        case .fetch(let fetch): fetchRequested(fetch, by: client)
        // The simulated world has no durable requests.
        case .retry: expectedReplies[id] = .error("unknown-request")
        case .remove(let pattern): removalRequested(pattern, by: client)
        case .removeRequest(let handler, let request):
            let name = RequestName(handler: handler, request: request)
            let known = listed[name]
            expectedReplies[id] = .requestRemoved(handler, request, wasOpen: known.map { $0.phase != .ended } ?? false)
            if let known { remove(known, by: client) }
            withdraw([name], from: client)
        case .subscribe(let pattern): subscriptionRequested(pattern, by: client)
        case .unsubscribe(let pattern): unsubscribe(client, from: pattern)
        case .priority(let handler, let request, let priority):
            if let known = listed[RequestName(handler: handler, request: request)] {
                if known.phase == .open { known.priority = priority }
            } else {
                expectedReplies[id] = .error("unknown-request")
            }
        // The simulated world has no cookies.
        case .cookies: break
        case .acknowledge(let sequence): acknowledged(sequence, by: client)
        case .query: expectedReplies[id] = .answer
        // No simulated client pulls bodies.
        case .read: expectedReplies[id] = .error("bad-message")
        case .take(let sequence): takeRequested(sequence, by: client, renamed)
        case .set(let setting):
            // The simulated world generates no changes of limits; an invalid setting has no effect.
            let change = try? SettingChange(setting.words)
            expectedReplies[id] = change.map { .changed($0.words) } ?? .error("bad-setting")
        case .bye:
            end(client)
            let next = SessionRecord(id, token: client.token, connectedAt: now)
            // Terminals are numbered per connection, regardless of BYE.
            next.acknowledged = max(client.lastSequence, client.redeliveredSequence)
            connections[id] = next
            sessions[id] = next
        }
    }

    /// Ends a session.
    func end(_ client: SessionRecord) {
        if connections[client.connection] === client { connections[client.connection] = nil }
        sessions[client.id] = nil
        awaySessions.removeAll { $0 === client }
        client.awayUntil = nil
        for handler in client.handlers { stopListening(client, to: handler) }
        for subtree in client.subtrees { stopListening(client, below: subtree) }
        for case let request? in client.inFlight + client.redeliveries { deliveryLost(request, by: client) }
        for requests in client.unsentTerminals.values { for request in requests { deliveryLost(request, by: client) } }
        for request in client.ownedRequests.values { remove(request, by: client) }
    }

    // MARK: Removal

    private func removalRequested(_ pattern: HandlerPattern, by client: SessionRecord) {
        // In the order of their names: the last request of a flight decides whether it is cancelled at once.
        let meant = handlers(pattern, Array(listedByHandler.keys)).sorted { $0.description < $1.description }
        var count = 0
        for handler in meant {
            count += requests(of: handler).count { $0.phase != .ended }
            removeAll(of: handler, by: client)
        }
        client.removedHandlers.formUnion(meant)
        for handler in handlers(pattern, Array(client.handlers)) { stopListening(client, to: handler) }
        withdraw(client.unsent.filter { pattern.matches($0.handler) }, from: client)
        removals[client.connection] = .reply(.removed(pattern, count))
    }

    /// Ends all requests of a handler. Many are removed one after another, and the running ones are cancelled at once.
    func removeAll(of handler: HandlerID, by client: SessionRecord) {
        let all = requests(of: handler)
        let isLarge = all.count > min(64, limits.removalsPerPass)
        for request in all { remove(request, by: client, isAtOnce: isLarge) }
    }

    /// Carries out what follows the removals that the core has completed.
    func endRemovals(except isRemoving: (ClientID) -> Bool) {
        for (id, next) in removals where !isRemoving(id) {
            removals[id] = nil
            guard let client = connections[id] else { continue }
            switch next {
            case .reply(let reply): expectedReplies[id] = reply
            case .fetch(let fetch):
                fetchAccepted(fetch, by: client)
                if client.number > 0, ClientMessage.fetch(fetch).isAnsweredByOK { confirm(id) }
            }
        }
    }

    /// Ends a request. Its name becomes free, and all subscribers except `client` are notified.
    func remove(_ request: RequestRecord, by client: SessionRecord, isAtOnce: Bool = false) {
        freeID(request)
        client.removedRequests.insert(request.name)
        guard request.phase != .ended else { return }
        if request.phase == .open { detach(request, by: client, isAtOnce: isAtOnce) }
        account(request) { $0.removed += 1 }
        publish(
            request, Ending(code: "removed"), to: listeners(of: request.name.handler).filter { $0 != client.id })
    }

    /// Invariant 2: from now on the client must not receive anything about these requests.
    func withdraw(_ names: [RequestName], from client: SessionRecord) {
        for request in client.withdraw(names) { deliveryLost(request, by: client) }
    }

    // MARK: Subscriptions

    func hasRoomToSubscribe(_ client: SessionRecord) -> Bool {
        client.handlers.count + client.subtrees.count < limits.subscriptionsPerClient
    }

    private func subscriptionRequested(_ pattern: HandlerPattern, by client: SessionRecord) {
        guard hasRoomToSubscribe(client) else {
            expectedReplies[client.connection] = .error("too-many-handlers")
            return
        }
        switch pattern {
        case .handler(let handler): listen(client, to: handler)
        case .subtree(let subtree):
            guard client.subtrees.insert(subtree).inserted else { return }
            subtreeListeners[subtree, default: []].insert(client.id)
            for handler in handlers(pattern, Array(listedByHandler.keys)) { listenerCame(to: handler) }
        }
    }

    func listen(_ client: SessionRecord, to handler: HandlerID) {
        guard client.handlers.insert(handler).inserted else { return }
        handlerListeners[handler, default: []].insert(client.id)
        listenerCame(to: handler)
    }

    private func unsubscribe(_ client: SessionRecord, from pattern: HandlerPattern) {
        switch pattern {
        case .handler(let handler):
            if client.handlers.contains(handler) { stopListening(client, to: handler) }
        case .subtree(let subtree):
            if client.subtrees.contains(subtree) { stopListening(client, below: subtree) }
        }
    }

    private func stopListening(_ client: SessionRecord, to handler: HandlerID) {
        client.handlers.remove(handler)
        handlerListeners[handler]?.remove(client.id)
        if handlerListeners[handler]?.isEmpty == true { handlerListeners[handler] = nil }
        listenerLeft(handler)
    }

    private func stopListening(_ client: SessionRecord, below subtree: HandlerID) {
        client.subtrees.remove(subtree)
        subtreeListeners[subtree]?.remove(client.id)
        if subtreeListeners[subtree]?.isEmpty == true { subtreeListeners[subtree] = nil }
        for handler in handlers(.subtree(subtree), Array(listedByHandler.keys)) { listenerLeft(handler) }
    }

    /// Claims held results for the new subscriber.
    private func listenerCame(to handler: HandlerID) {
        for request in requests(of: handler) where request.phase != .ended {
            request.abandonedUntil = nil
            if request.phase == .awaitingSubscriber { claimed.insert(handler) }
        }
    }

    /// Concludes the claimed requests that the core has delivered: only if a subscriber had room.
    /// - Parameters:
    ///   - client: Sender of the event, if it had room before the event.
    ///   - dueBefore: Number of deliveries before the event.
    func deliverClaimed(hadRoom client: ClientID?, dueBefore: Int, _ isHeld: (RequestName) -> Bool) {
        guard !claimed.isEmpty else { return }
        var delivered: [RequestRecord] = []
        for handler in claimed {
            let held = requests(of: handler).filter { $0.phase == .awaitingSubscriber }
            let isServed = listeners(of: handler).contains {
                $0 == client || sessions[$0]?.hasRoom(limits) == true
            }
            for request in held where !isHeld(request.name) {
                expect(
                    isServed || hasNotices, 11, "\(request.name) is delivered while too much waits for its subscribers")
                delivered.append(request)
            }
        }
        // The core delivers a held result before the refusal of the FETCH that subscribed.
        let isOrdered = delivered.count == 1 && ledger.deliveries.due == dueBefore
        for request in delivered { conclude(request, request.ending ?? Ending(), isOrdered: isOrdered) }
    }

    /// Checks after a pass that no held result waits for a subscriber with room, and that no client is due too many
    /// outcomes.
    func checkRoom() {
        for handler in claimed {
            let listeners = listeners(of: handler)
            guard !listeners.isEmpty, requests(of: handler).contains(where: { $0.phase == .awaitingSubscriber }) else {
                claimed.remove(handler)
                continue
            }
            expect(
                !listeners.contains { sessions[$0]?.hasRoom(limits) == true }, 1,
                "a result of \(handler) is held, and a subscriber has room")
        }
        for client in sessions.values where client.dueCount > limits.dueOutcomes && !client.isClosing {
            expect(
                client.fewestOutcomes <= limits.dueOutcomes, 11,
                "client \(client.connection.rawValue) is due \(client.fewestOutcomes) outcomes, and more")
        }
    }

    /// Starts the grace period in which requests owned by the handler wait for another subscriber.
    private func listenerLeft(_ handler: HandlerID) {
        guard listeners(of: handler).isEmpty else { return }
        let until = now.advanced(byMilliseconds: limits.graceMilliseconds)
        for request in requests(of: handler) where request.owner == nil && request.phase != .ended {
            request.abandonedUntil = until
            moments.insert(Moment(at: until, subject: .abandoned(request)))
        }
    }

    /// Returns the subscribers of a handler, without duplicates.
    func listeners(of handler: HandlerID) -> Set<ClientID> {
        let direct = handlerListeners[handler] ?? []
        guard !subtreeListeners.isEmpty else { return direct }
        let above: [HandlerID]
        if let known = prefixes[handler] {
            above = known
        } else {
            above = handler.prefixes
            prefixes[handler] = above
        }
        return above.reduce(into: direct) { found, prefix in
            if let more = subtreeListeners[prefix] { found.formUnion(more) }
        }
    }

    private func handlers(_ pattern: HandlerPattern, _ candidates: [HandlerID]) -> [HandlerID] {
        switch pattern {
        case .handler(let handler): [handler]
        case .subtree: candidates.filter(pattern.matches)
        }
    }

    /// Returns the requests of a handler that still occupy their names.
    func requests(of handler: HandlerID) -> [RequestRecord] {
        listedByHandler[handler].map { Array($0.values) } ?? []
    }

    // MARK: Acknowledgement

    func acknowledged(_ sequence: UInt64, by client: SessionRecord) {
        guard sequence <= max(client.lastSequence, client.redeliveredSequence) else {
            expectedReplies[client.connection] = .error("bad-message")
            return
        }
        while client.acknowledged < sequence, let numbered = client.popNumbered() {
            client.acknowledged += 1
            guard let request = numbered else { continue }
            ledger.deliveries.acknowledged += 1
            // A terminal owned by its handler is shared: the first acknowledgement frees the name.
            if request.owner == nil { freeID(request) }
            deliveryEnded(request, by: client)
        }
        client.dropHoles()
    }

    func deliveryRefused(_ sequence: UInt64, by id: ClientID) {
        guard let client = connections[id], sequence > client.acknowledged else { return }
        client.isBlocked = true
        while client.lastSequence >= sequence, let last = client.inFlight.last {
            let isRedelivered = client.lastSequence <= client.redeliveredSequence
            client.inFlight.removeLast()
            guard !isRedelivered, let request = last else {
                client.redeliveries.prepend(last)
                continue
            }
            client.unsentTerminals[request.name, default: []].insert(request, at: 0)
            client.dueCount += 1
        }
    }

    func deliveryLost(_ request: RequestRecord, by client: SessionRecord) {
        ledger.deliveries.lost += 1
        deliveryEnded(request, by: client)
    }

    /// Records the end of a delivery. The owner's delivery frees the name, regardless of other subscribers.
    private func deliveryEnded(_ request: RequestRecord, by client: SessionRecord) {
        ledger.deliveries.outstanding -= 1
        request.outstanding -= 1
        if request.owner == client.id {
            request.owner = nil
            freeID(request)
        }
        if request.outstanding == 0 { forget(request) }
    }
}
