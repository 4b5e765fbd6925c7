internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Removal of all requests of a handler, and of those of a session that has ended (`depart`). `removeAll` of
/// `BrokerCore+Removal.swift` removes few of them at once. Many are purged here: the ledgers count them at once, and the
/// tables are purged in slices, one per pass.
///
/// A request of a handler being purged is still in its flight and in the queue until its turn comes: a tombstone. An
/// event finds its flight by one of the `settledFlight` look-ups, which purge the tombstones of the flight first. So a
/// flight that only removed requests keep alive gets no new request and no attempt. The starts and the end of a flight
/// assert it in debug builds.
extension BrokerCore {
    /// Terminals of removed requests that listeners will receive, and that the ledger does not count as due yet.
    public var purgeNotices: Int {
        handlers.purging.reduce(0) { sum, handler in
            handlers[handler].purge.map { sum + $0.remaining * $0.listeners.count } ?? sum
        }
    }

    /// Whether some removed requests, handlers or ended sessions are not purged yet.
    public var isPurging: Bool { !handlers.purging.isEmpty || !clients.ended.isEmpty || !removals.isEmpty }

    // MARK: Events

    /// Removes a handler with many requests: from the ledgers now, from the tables in slices. Its subscribers stay
    /// subscribed to its name.
    ///
    /// - Returns: number of requests that had not ended.
    mutating func beginPurge(of handler: Handle<HandlerEntry>, by client: Handle<ClientSession>) -> Int {
        let count = handlers[handler].requests.pending
        let listeners = listeners(of: handler).filter { $0 != client }
        ledger.requests.pending -= count
        ledger.requests.removed += count
        for (owner, owned) in handlers[handler].owners.counts { clients[owner].purging += owned }
        for listener in listeners { clients[listener].deliveries.announce(count) }
        quotas.requests(-count, of: handlers[handler].principal)
        handlers.beginPurge(of: handler, listeners: listeners, by: mark(of: client))
        endAttempts { core, interest in core.interests[interest].handler == handler }
        return count
    }

    /// Purges one slice of removed handlers and one of ended sessions. Called once per pass.
    mutating func continuePurges(now: Tick) {
        // Removals in this pass have used part of the budget. Older purges always get at least half of it.
        var budget = max(handlers.purgeBudget, limits.purgesPerPass / 2, 1)
        while budget > 0, let handler = handlers.purging.first {
            guard let interest = handlers[handler].interests.first else {
                handlers.endPurge()
                dropHandlerIfIdle(handler)
                continue
            }
            finishPurge(of: interest)
            budget -= 1
        }
        budget = max(limits.departuresPerPass, 1)
        while budget > 0, let client = clients.ended.first {
            goOnDeparting(client, &budget, now: now)
            guard budget > 0 else { break }
            clients.removeDeparted()
        }
        handlers.renewPurgeBudget(limits.purgesPerPass)
    }

    /// Ends a session: its requests, subscriptions and terminals are removed, in slices if there are many. Requests
    /// whose transfers run go first.
    mutating func depart(_ client: Handle<ClientSession>, now: Tick) {
        clients[client].deliveries.end()
        var budget = max(limits.departuresPerPass, 1)
        if Int(clients[client].owned.count) > budget {
            endAttempts { core, interest in core.interests[interest].owner == client }
        }
        goOnDeparting(client, &budget, now: now)
        if budget > 0 { clients.remove(client) } else { clients.depart(client) }
    }

    /// Removes one slice of an ended session. Subscriptions go first, so that no terminal becomes due to it. Budget
    /// that is left means that nothing of the session is left.
    private mutating func goOnDeparting(_ client: Handle<ClientSession>, _ budget: inout Int, now: Tick) {
        while budget > 0, let subtree = handlers.lastSubtree(of: client) {
            budget -= max(1, unsubscribe(client, fromSubtree: subtree, now: now))
        }
        while budget > 0, let handler = handlers.anyHandler(of: client) {
            unsubscribe(client, fromHandler: handler, now: now)
            budget -= 1
        }
        while budget > 0, let due = clients[client].deliveries.entries.first {
            clients[client].deliveries.removeFirst(weight(of: due), counting: counted(due))
            chargeWindow(of: client)
            lose(due, by: client)
            budget -= 1
        }
        while budget > 0, let interest = clients[client].owned.first {
            removeInterest(interest, by: client)
            budget -= 1
        }
    }

    /// Maximum of `removeFirst`, so that one message cannot purge a large handler.
    private static let mostFirstRemovals = 64

    /// Purges the removed requests of a flight that precede its first live one, up to a limit. The flight may end.
    mutating func finishFirstPurges(of name: FlightName) {
        removeFirst(of: name) { core, interest in core.isPurged(interest) }
    }

    /// Removes the unwanted requests of a flight that precede its first wanted one, up to a limit. The flight may end.
    private mutating func removeFirst(of name: FlightName, isUnwanted: (BrokerCore, Handle<Interest>) -> Bool) {
        for _ in 0..<Self.mostFirstRemovals {
            guard let flight = flights.number(of: name), let first = flights.firstInterest(of: flight),
                isUnwanted(self, first)
            else { return }
            if isPurged(first) {
                finishPurge(of: first)
            } else {
                removeInterest(first, by: interests[first].owner)
            }
        }
    }

    /// Purges the removed requests with this name. Its listeners thus get the terminal of an earlier request before
    /// anything about the next one. O(purges under the handler's name).
    ///
    /// - Parameter client: a client that gets no `FAILED … removed` for it.
    mutating func settleRequests(
        named request: RequestID, _ handler: HandlerKey, withdrawnBy client: Handle<ClientSession>? = nil
    ) {
        guard !handlers.purging.isEmpty else { return }
        for number in handlers.purging(handler) {
            guard let interest = listedInterest(request, of: number) else { continue }
            finishPurge(of: interest, withdrawnBy: client)
        }
    }

    /// Withdraws the terminals that purges under these names would append for a client. A client hears handlers of its
    /// principal only, so names suffice.
    mutating func withdrawPurges(from client: Handle<ClientSession>, where isMeant: (HandlerID) -> Bool) {
        guard clients[client].deliveries.announced > 0 else { return }
        let wasClosed = isClosed(client)
        for handler in handlers.purging where isMeant(handlers[handler].id) {
            let count = handlers.withdraw(client, fromPurgeOf: handler)
            clients[client].deliveries.retract(count)
            ledger.deliveries.due += count
            ledger.deliveries.lost += count
        }
        if wasClosed, !isClosed(client) { queue.clientOpened(client) }
    }

    // MARK: Flights of events

    /// The flight of a name, which a timer, the cache, the cluster or a list has kept.
    ///
    /// - Returns: the flight without tombstones; nil if it has ended, perhaps with the last of them.
    mutating func settledFlight(_ name: FlightName) -> Handle<Flight>? {
        guard let flight = flights.number(of: name) else { return nil }
        return settled(flight)
    }

    /// The flight of a worker's attempt; nil if it has ended or cancelled the attempt, perhaps for want of requests.
    mutating func settledFlight(of attempt: AttemptID, at worker: Handle<WorkerSession>) -> Handle<Flight>? {
        if !handlers.purging.isEmpty, let flight = workers[worker].leases.flight(of: attempt) { _ = settled(flight) }
        return workers[worker].leases.flight(of: attempt)
    }

    /// The open flight that a request with this key joins, in the stricter of both modes; nil if it needs a new one.
    @inline(__always)
    mutating func settledFlight(joinedBy key: FlightKey) -> Handle<Flight>? {
        if !handlers.purging.isEmpty, let flight = flights.joinable(key) ?? flights.laxer(key) { _ = settled(flight) }
        if let flight = flights.joinable(key) { return flight }
        guard let flight = flights.laxer(key) else { return nil }
        flights.tighten(flight, to: key)
        return flight
    }

    /// The flight to start for a queued request, which keeps it alive.
    ///
    /// - Precondition: the request is no tombstone.
    @inline(__always)
    mutating func settledFlight(ofQueued interest: Handle<Interest>) -> Handle<Flight> {
        let flight = leaf(ofOpen: interest)
        if !handlers.purging.isEmpty { _ = settled(flight) }
        return flight
    }

    /// Purges the tombstones of a flight, of its redirects and of the flights that they follow.
    ///
    /// - Returns: the flight; nil if it has ended with the last of them.
    private mutating func settled(_ flight: Handle<Flight>) -> Handle<Flight>? {
        guard !handlers.purging.isEmpty else { return flight }
        let name = flights.name(of: flight)
        var tombstones: [Handle<Interest>] = []
        forEachInterest(of: flight) { core, interest in
            if core.isPurged(interest) { tombstones.append(interest) }
        }
        for interest in tombstones { finishPurge(of: interest) }
        return flights.number(of: name)
    }

    // MARK: Queries

    /// Whether a flight has no tombstones. O(requests) during a purge.
    func isSettled(_ flight: Handle<Flight>) -> Bool {
        handlers.purging.isEmpty || flights.interests(of: flight).allSatisfy { !isPurged($0) }
    }

    /// Whether the handler of a request was removed, so that the request only waits for its purge.
    @inline(__always)
    func isPurged(_ interest: Handle<Interest>) -> Bool { !handlers[interests[interest].handler].isNamed }

    // MARK: Steps

    /// Purges one request of a removed handler. The ledger of requests already counts it as removed.
    mutating func finishPurge(of interest: Handle<Interest>, withdrawnBy client: Handle<ClientSession>? = nil) {
        let handler = interests[interest].handler
        let isEntering = interests[interest].phase == .entering
        let purge = handlers[handler].purge
        let askers = isEntering ? waitingAskers(of: interest, except: purge?.removal.client) : []
        unlist(interest)
        switch interests[interest].phase {
        case .delivering:
            freeIfOwed(interest)
            return
        case .open: detach(interest, by: purge?.removal)
        case .held: unhold(interest)
        case .entering, .recording, .resting: letGo(interest)
        }
        let owner = interests[interest].owner
        if let owner {
            clients[owner].purging -= 1
            ownerChains.remove(interest, from: &clients[owner].owned)
        }
        handlers.requestPurged(of: handler, owner: owner)
        var listeners = handlers[handler].purge?.listeners ?? []
        for listener in listeners { clients[listener].deliveries.retract(1) }
        if let client, let index = listeners.firstIndex(of: client) {
            listeners.remove(at: index)
            ledger.deliveries.due += 1
            ledger.deliveries.lost += 1
            if !isClosed(client) { queue.clientOpened(client) }
        }
        refuse(interest, Refusal(code: .removed), to: askers.filter { $0 != client && !listeners.contains($0) })
        publishRemoval(of: interest, to: listeners)
    }

    /// Removes requests with running transfers ahead of their slices, so that origins are relieved first. A transfer
    /// ends if all its requests are unwanted, up to a limit. O(running attempts).
    private mutating func endAttempts(isUnwanted: (BrokerCore, Handle<Interest>) -> Bool) {
        var running: [FlightName] = []
        for worker in workers.indices {
            for (_, lease) in workers[worker].leasesInOrder {
                guard let flight = lease.flight, let interest = flights.firstInterest(of: flight) else { continue }
                if isUnwanted(self, interest) { running.append(flights.name(of: flight)) }
            }
        }
        for name in running { removeFirst(of: name, isUnwanted: isUnwanted) }
    }
}
