internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Removal of requests. After the reply, the remover receives nothing about them.
extension BrokerCore {
    /// Handles CANCEL: ends one request. Replies even if there is none.
    mutating func cancelRequested(_ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>) {
        let key = key(handler, of: client)
        if let number = handlers.number(of: key),
            let interest = listedInterest(request, of: number)
        {
            removeInterest(interest, by: client)
        }
        settleRequests(named: request, key, withdrawnBy: client)
        withdraw(from: client, request) { $0 == handler }
        reply(.message(.cancelled(handler, request)), to: client)
    }

    /// Handles REMOVE: ends all requests of the matching handlers and the client's subscriptions to them. Handlers of a
    /// large subtree are removed in slices, one per pass, and the reply follows the last.
    mutating func removalRequested(_ pattern: HandlerPattern, by client: Handle<ClientSession>, now: Tick) {
        finishRemoval(by: client, now: now)
        carryOut(SubtreeRemoval(pattern: pattern), by: client, now: now)
    }

    /// Whether a removal of a client is under way. The shell reads no further message of the client until it has ended.
    public func isRemoving(_ id: ClientID) -> Bool {
        !removals.isEmpty && clients.number(of: id).map { removals[$0] != nil } == true
    }

    /// Removes one slice of the handlers of one client's removal. Clients take turns. Called once per pass.
    mutating func continueRemovals(now: Tick) {
        guard !removals.isEmpty else { return }
        let (client, removal) = removals.removeFirst()
        carryOut(removal, by: client, now: now)
    }

    /// Ends a removal that is under way at once, before the session ends or removes more.
    mutating func finishRemoval(by client: Handle<ClientSession>, now: Tick) {
        guard !removals.isEmpty else { return }
        while let removal = removals.removeValue(forKey: client) { carryOut(removal, by: client, now: now) }
    }

    /// Removes the next slice of handlers, and replies after the last.
    private mutating func carryOut(_ removal: SubtreeRemoval, by client: Handle<ClientSession>, now: Tick) {
        var removal = removal
        let limit = max(1, limits.departuresPerPass)
        let slice = handlers.matching(
            removal.pattern, of: clients[client].principal, from: removal.next, limit: limit)
        let last = slice.last.map { handlers[$0].id.description }
        for handler in slice {
            let key = handlers[handler].key
            removal.count += removeAll(of: handler, by: client)
            // `removeAll` may have freed the handler's record, or given its name to another.
            if let handler = handlers.number(of: key) { unsubscribe(client, fromHandler: handler, now: now) }
        }
        if case .subtree = removal.pattern, slice.count == limit, let last {
            removal.next = last + "\0"
            removals[client] = removal
        } else {
            withdraw(from: client) { removal.pattern.matches($0) }
            reply(.message(.removed(removal.pattern, count: removal.count)), to: client)
        }
    }

    /// Removes all requests of a handler, in slices if there are many.
    ///
    /// - Returns: number of requests that had not ended.
    mutating func removeAll(of handler: Handle<HandlerEntry>, by client: Handle<ClientSession>) -> Int {
        // A few requests cost less to purge now than a purge record.
        let isMuch = Int(handlers[handler].interests.count) > max(handlers.purgeBudget, limits.purgesPerPass / 64)
        if isMuch { return beginPurge(of: handler, by: client) }
        let members = handlers.requests(of: handler)
        handlers.spendPurges(members.count)
        var count = 0
        handlers.retain(handler)
        for interest in members where removeInterest(interest, by: client) { count += 1 }
        handlers.release(handler)
        if members.isEmpty || handlers[handler].references == 0 { dropHandlerIfIdle(handler) }
        return count
    }

    /// Ends one request. Frees its ID; its remover receives nothing more about it, and each other listener of the
    /// handler one `FAILED … removed`.
    ///
    /// - Returns: whether the request had not ended.
    @discardableResult
    mutating func removeInterest(_ interest: Handle<Interest>, by client: Handle<ClientSession>?) -> Bool {
        guard !isPurged(interest) else {
            finishPurge(of: interest)
            return false
        }
        let isEntering = interests[interest].phase == .entering
        let askers = isEntering ? waitingAskers(of: interest, except: client.map { clients[$0].id }) : []
        unlist(interest)
        switch interests[interest].phase {
        case .delivering:
            freeIfOwed(interest)
            return false
        case .open: detach(interest, by: client.map { mark(of: $0) })
        case .held: unhold(interest)
        case .entering, .recording, .resting: letGo(interest)
        }
        account(interest) { $0.removed += 1 }
        let listeners = listeners(of: interests[interest].handler).filter { $0 != client }
        refuse(interest, Refusal(code: .removed), to: askers.filter { !listeners.contains($0) })
        publishRemoval(of: interest, to: listeners)
        return true
    }

    /// Removes an open request from the queue and from its flight. A flight without requests ends; a running one is
    /// cancelled later.
    ///
    /// - Parameter message: the message that removes the request; nil if none does.
    mutating func detach(_ interest: Handle<Interest>, by message: MessageMark? = nil) {
        queue.remove(interest)
        guard let flight = interests[interest].flight else { return }
        interests[interest].flight = nil
        let hasPurges = !handlers.purging.isEmpty && !isPurged(interest)
        let names = hasPurges ? [flight, flights.leaf(of: flight)].map { flights.name(of: $0) } : []
        flights.detach(interest, from: flight)
        dropIfUnwanted(flight, isAtOnce: false, by: message)
        // The latest removal decides how long the cancellation waits, so requests of earlier removals leave before it.
        for name in names {
            finishFirstPurges(of: name)
            if let flight = flights.number(of: name) { dropIfUnwanted(flight, isAtOnce: false, by: message) }
        }
    }

    /// Frees a request's ID.
    mutating func unlist(_ interest: Handle<Interest>) {
        guard interests[interest].isListed else { return }
        interests[interest].isListed = false
        forgetDurable(interest)
        let handler = interests[interest].handler
        requestNumbers.remove(interest, hash(interests[interest].request, of: handler))
        handlers.requestUnlisted(interest, of: handler)
    }

    /// Moves a request from pending to its result in both ledgers, and removes it from its owner's open requests.
    mutating func account(_ interest: Handle<Interest>, _ change: (inout Ledger.Requests) -> Void) {
        let (handler, owner) = (interests[interest].handler, interests[interest].owner)
        ledger.requests.pending -= 1
        change(&ledger.requests)
        if let owner { ownerChains.remove(interest, from: &clients[owner].owned) }
        quotas.requests(-1, of: handlers[handler].principal)
        handlers.requestEnded(of: handler, owner: owner, change)
    }
}
