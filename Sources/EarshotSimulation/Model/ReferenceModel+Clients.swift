internal import DequeModule
internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Clients: the expected effects of their messages and disconnections, and their replies.
extension ReferenceModel {
    func clientSent(_ message: ClientMessage, _ number: UInt64?, _ renamed: FileRename?, by id: ClientID) {
        guard let client = connections[id] else { return }
        if client.isOpen { client.lastReceived += 1 }
        client.currentMessageNumber = client.isOpen ? 0 : number ?? 0
        guard client.isOpen, let number else { return carryOutMessage(message, renamed, by: client) }
        guard number > client.lastNumber else {
            expectedReplies[id] = .error("bad-message")
            return
        }
        (client.currentMessageNumber, client.lastNumber) = (number, number)
        carryOutMessage(message, renamed, by: client)
        if message.isAnsweredByOK, removalsUnderWay[id] == nil { expectOK(to: id) }
    }

    /// The present message has OK for an answer, if it has no other.
    private func expectOK(to id: ClientID) {
        if expectedReplies[id] == nil { expectedReplies[id] = .ok }
    }

    private func carryOutMessage(_ message: ClientMessage, _ renamed: FileRename?, by client: SessionRecord) {
        let id = client.connection
        if case .hello(let hello) = message {
            helloReceived(hello, by: client)
            return
        }
        guard client.isOpen else {
            expectedReplies[id] = .error("hello-required")
            return
        }
        guard client.principal == nil || !Self.isAdministratorOnly(message) else {
            expectedReplies[id] = .error("not-authorized")
            return
        }
        switch principalQualified(message, of: client) {
        case .hello: break
        case .fetch(let fetch): fetchRequested(fetch, by: client)
        // The simulated world has no durable requests.
        case .retry: expectedReplies[id] = .error("unknown-request")
        case .removeHandlers(let pattern): removalRequested(pattern, by: client)
        case .removeRequest(let handler, let request):
            let name = RequestName(handler: handler, request: request)
            let known = requestsByName[name]
            expectedReplies[id] = .requestRemoved(handler, request, wasOpen: known.map { $0.phase != .ended } ?? false)
            if let known { removeRequest(known, by: client) }
            withdrawTerminals([name], from: client)
        case .subscribe(let pattern): subscriptionRequested(pattern, by: client)
        case .unsubscribe(let pattern): unsubscribe(client, from: pattern)
        case .setPriority(let handler, let request, let priority):
            if let known = requestsByName[RequestName(handler: handler, request: request)] {
                if known.phase == .open { known.priority = priority }
            } else {
                expectedReplies[id] = .error("unknown-request")
            }
        // The simulated world has no cookies.
        case .storeCookies: break
        case .acknowledge(let sequence): acknowledged(sequence, by: client)
        case .query: expectedReplies[id] = .answer
        // No simulated client pulls bodies.
        case .readBody: expectedReplies[id] = .error("bad-message")
        case .takeFile(let sequence): takeRequested(sequence, by: client, renamed)
        case .changeSetting(let setting):
            // The simulated world generates no changes of limits; an invalid setting has no effect.
            let change = try? SettingChange(words: setting.words)
            expectedReplies[id] = change.map { .changed($0.normalizedWords) } ?? .error("bad-setting")
        case .bye:
            endSession(client)
            let next = SessionRecord(id, token: client.token, connectedAt: now)
            // Terminals are numbered per connection, regardless of BYE.
            next.lastAcknowledged = max(client.lastSequence, client.redeliveredSequence)
            connections[id] = next
            sessions[id] = next
        }
    }

    /// Ends a session.
    func endSession(_ client: SessionRecord) {
        if connections[client.connection] === client { connections[client.connection] = nil }
        sessions[client.id] = nil
        awaySessions.removeAll { $0 === client }
        client.awayUntil = nil
        for handler in client.subscribedHandlers { removeSubscriber(client, to: handler) }
        for subtree in client.subscribedSubtrees { removeSubscriber(client, below: subtree) }
        for case let request? in client.unacknowledgedTerminals + client.redeliveries {
            deliveryLost(request, by: client)
        }
        for requests in client.unsentTerminals.values { for request in requests { deliveryLost(request, by: client) } }
        for request in client.ownedRequests.values { removeRequest(request, by: client) }
    }

    // MARK: Removal

    private func removalRequested(_ pattern: HandlerPattern, by client: SessionRecord) {
        // In the order of their names: the last request of a flight decides whether it is cancelled at once.
        let meant = matchingHandlers(pattern, Array(requestsByHandler.keys)).sorted { $0.description < $1.description }
        var count = 0
        for handler in meant {
            count += requests(of: handler).count { $0.phase != .ended }
            removeAll(of: handler, by: client)
        }
        client.removedHandlers.formUnion(meant)
        for handler in matchingHandlers(pattern, Array(client.subscribedHandlers)) {
            removeSubscriber(client, to: handler)
        }
        withdrawTerminals(client.unsentNames.filter { pattern.matches($0.handler) }, from: client)
        removalsUnderWay[client.connection] = .reply(.removed(pattern, count))
    }

    /// Ends all requests of a handler. Many are removed one after another, and the running ones are cancelled at once.
    func removeAll(of handler: HandlerID, by client: SessionRecord) {
        let all = requests(of: handler)
        let isLarge = all.count > min(64, limits.maximumRequestRemovalsPerPass)
        for request in all { removeRequest(request, by: client, isAtOnce: isLarge) }
    }

    /// Carries out what follows the removals that the core has completed.
    func completeRemovals(except isRemoving: (ClientID) -> Bool) {
        for (id, next) in removalsUnderWay where !isRemoving(id) {
            removalsUnderWay[id] = nil
            guard let client = connections[id] else { continue }
            switch next {
            case .reply(let reply): expectedReplies[id] = reply
            case .fetch(let fetch):
                fetchAccepted(fetch, by: client)
                if client.currentMessageNumber > 0, ClientMessage.fetch(fetch).isAnsweredByOK { expectOK(to: id) }
            }
        }
    }

    /// Ends a request. Its name becomes free, and all subscribers except `client` are notified.
    func removeRequest(_ request: RequestRecord, by client: SessionRecord, isAtOnce: Bool = false) {
        freeName(request)
        client.removedRequests.insert(request.name)
        guard request.phase != .ended else { return }
        if request.phase == .open { detachFromFlight(request, by: client, isAtOnce: isAtOnce) }
        moveFromPending(request) { $0.removed += 1 }
        publishResult(
            request, Ending(code: "removed"), to: subscribers(of: request.name.handler).filter { $0 != client.id })
    }

    /// Invariant 2: from now on the client must not receive anything about these requests.
    func withdrawTerminals(_ names: [RequestName], from client: SessionRecord) {
        for request in client.withdrawTerminals(names) { deliveryLost(request, by: client) }
    }

    // MARK: Subscriptions

    func hasRoomToSubscribe(_ client: SessionRecord) -> Bool {
        client.subscribedHandlers.count + client.subscribedSubtrees.count < limits.maximumSubscriptionsPerClient
    }

    private func subscriptionRequested(_ pattern: HandlerPattern, by client: SessionRecord) {
        guard hasRoomToSubscribe(client) else {
            expectedReplies[client.connection] = .error("too-many-handlers")
            return
        }
        switch pattern {
        case .handler(let handler): addSubscriber(client, to: handler)
        case .subtree(let subtree):
            guard client.subscribedSubtrees.insert(subtree).inserted else { return }
            subtreeSubscribers[subtree, default: []].insert(client.id)
            for handler in matchingHandlers(pattern, Array(requestsByHandler.keys)) { subscriberAdded(to: handler) }
        }
    }

    func addSubscriber(_ client: SessionRecord, to handler: HandlerID) {
        guard client.subscribedHandlers.insert(handler).inserted else { return }
        handlerSubscribers[handler, default: []].insert(client.id)
        subscriberAdded(to: handler)
    }

    private func unsubscribe(_ client: SessionRecord, from pattern: HandlerPattern) {
        switch pattern {
        case .handler(let handler):
            if client.subscribedHandlers.contains(handler) { removeSubscriber(client, to: handler) }
        case .subtree(let subtree):
            if client.subscribedSubtrees.contains(subtree) { removeSubscriber(client, below: subtree) }
        }
    }

    private func removeSubscriber(_ client: SessionRecord, to handler: HandlerID) {
        client.subscribedHandlers.remove(handler)
        handlerSubscribers[handler]?.remove(client.id)
        if handlerSubscribers[handler]?.isEmpty == true { handlerSubscribers[handler] = nil }
        subscriberRemoved(handler)
    }

    private func removeSubscriber(_ client: SessionRecord, below subtree: HandlerID) {
        client.subscribedSubtrees.remove(subtree)
        subtreeSubscribers[subtree]?.remove(client.id)
        if subtreeSubscribers[subtree]?.isEmpty == true { subtreeSubscribers[subtree] = nil }
        for handler in matchingHandlers(.subtree(subtree), Array(requestsByHandler.keys)) { subscriberRemoved(handler) }
    }

    /// Claims held results for the new subscriber.
    private func subscriberAdded(to handler: HandlerID) {
        for request in requests(of: handler) where request.phase != .ended {
            request.abandonedUntil = nil
            if request.phase == .awaitingSubscriber { claimedHandlers.insert(handler) }
        }
    }

    /// Concludes the claimed requests that the core has delivered: only if a subscriber had room.
    /// - Parameters:
    ///   - client: Sender of the event, if it had room before the event.
    ///   - dueBefore: Number of deliveries before the event.
    func deliverClaimed(hadRoom client: ClientID?, dueBefore: Int, _ isHeld: (RequestName) -> Bool) {
        guard !claimedHandlers.isEmpty else { return }
        var delivered: [RequestRecord] = []
        for handler in claimedHandlers {
            let held = requests(of: handler).filter { $0.phase == .awaitingSubscriber }
            let isServed = subscribers(of: handler).contains {
                $0 == client || sessions[$0]?.hasRoomForResult(limits) == true
            }
            for request in held where !isHeld(request.name) {
                expect(
                    isServed || hasUndeliveredRemovals, 11,
                    "\(request.name) is delivered while too much waits for its subscribers")
                delivered.append(request)
            }
        }
        // The core delivers a held result before the refusal of the FETCH that subscribed.
        let isOrdered = delivered.count == 1 && ledger.deliveries.started == dueBefore
        for request in delivered { deliverResult(request, request.ending ?? Ending(), isOrdered: isOrdered) }
    }

    /// Checks after a pass that no held result waits for a subscriber with room, and that no client is due too many
    /// outcomes.
    func checkHeldAndDueResults() {
        for handler in claimedHandlers {
            let subscribers = subscribers(of: handler)
            guard !subscribers.isEmpty, requests(of: handler).contains(where: { $0.phase == .awaitingSubscriber })
            else {
                claimedHandlers.remove(handler)
                continue
            }
            expect(
                !subscribers.contains { sessions[$0]?.hasRoomForResult(limits) == true }, 1,
                "a result of \(handler) is held, and a subscriber has room")
        }
        for client in sessions.values
        where client.dueTerminalCount > limits.maximumDueOutcomesPerClient && !client.isClosing {
            expect(
                client.minimumWaitingOutcomes <= limits.maximumDueOutcomesPerClient, 11,
                "client \(client.connection.rawValue) is due \(client.minimumWaitingOutcomes) outcomes, and more")
        }
    }

    /// Starts the grace period in which requests owned by the handler wait for another subscriber.
    private func subscriberRemoved(_ handler: HandlerID) {
        guard subscribers(of: handler).isEmpty else { return }
        let until = now.advanced(byMilliseconds: limits.subscriberGraceMilliseconds)
        for request in requests(of: handler) where request.owner == nil && request.phase != .ended {
            request.abandonedUntil = until
            timers.insert(ModelTimer(dueAt: until, subject: .abandonedRemoval(request)))
        }
    }

    /// Returns the subscribers of a handler, without duplicates.
    func subscribers(of handler: HandlerID) -> Set<ClientID> {
        let direct = handlerSubscribers[handler] ?? []
        guard !subtreeSubscribers.isEmpty else { return direct }
        let above: [HandlerID]
        if let known = handlerPrefixes[handler] {
            above = known
        } else {
            above = handler.ancestorSubtrees
            handlerPrefixes[handler] = above
        }
        return above.reduce(into: direct) { found, prefix in
            if let more = subtreeSubscribers[prefix] { found.formUnion(more) }
        }
    }

    private func matchingHandlers(_ pattern: HandlerPattern, _ candidates: [HandlerID]) -> [HandlerID] {
        switch pattern {
        case .handler(let handler): [handler]
        case .subtree: candidates.filter(pattern.matches)
        }
    }

    /// Returns the requests of a handler that still occupy their names.
    func requests(of handler: HandlerID) -> [RequestRecord] {
        requestsByHandler[handler].map { Array($0.values) } ?? []
    }

    // MARK: Acknowledgement

    func acknowledged(_ sequence: UInt64, by client: SessionRecord) {
        guard sequence <= max(client.lastSequence, client.redeliveredSequence) else {
            expectedReplies[client.connection] = .error("bad-message")
            return
        }
        while client.lastAcknowledged < sequence, let numbered = client.popNumberedTerminal() {
            client.lastAcknowledged += 1
            guard let request = numbered else { continue }
            ledger.deliveries.acknowledged += 1
            // A terminal owned by its handler is shared: the first acknowledgement frees the name.
            if request.owner == nil { freeName(request) }
            deliveryEnded(request, by: client)
        }
        client.acknowledgeWithdrawnNumbers()
    }

    func deliveryRefused(_ sequence: UInt64, by id: ClientID) {
        guard let client = connections[id], sequence > client.lastAcknowledged else { return }
        client.isBlocked = true
        while client.lastSequence >= sequence, let last = client.unacknowledgedTerminals.last {
            let isRedelivered = client.lastSequence <= client.redeliveredSequence
            client.unacknowledgedTerminals.removeLast()
            guard !isRedelivered, let request = last else {
                client.redeliveries.prepend(last)
                continue
            }
            client.unsentTerminals[request.name, default: []].insert(request, at: 0)
            client.dueTerminalCount += 1
        }
    }

    func deliveryLost(_ request: RequestRecord, by client: SessionRecord) {
        ledger.deliveries.lost += 1
        deliveryEnded(request, by: client)
    }

    /// Records the end of a delivery. The owner's delivery frees the name, regardless of other subscribers.
    private func deliveryEnded(_ request: RequestRecord, by client: SessionRecord) {
        ledger.deliveries.outstanding -= 1
        request.outstandingTerminals -= 1
        if request.owner == client.id {
            request.owner = nil
            freeName(request)
        }
        if request.outstandingTerminals == 0 { forgetRequest(request) }
    }
}
