internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Removal of requests. After the reply, the remover receives nothing about them.
///
/// A handler with few requests is removed at once. One with more loses its name at once, and its requests are removed in
/// slices, one per pass: they are *doomed*, like those of an ended session. They still count as pending, in the limits
/// too. Each step that meets a doomed request earlier removes it with the same function, `removeRequest`: assignment, an
/// outcome, a deadline, a join. Terminals that wait for the remover are withdrawn in slices, too, and it is sent none
/// meanwhile. The reply follows the last of all these, and until then the shell reads no further message of the client.
extension BrokerCore {
    // MARK: Events

    /// Handles REMOVE of one request. Replies even if there is none.
    ///
    /// - Parameter wasInTable: whether its row was deleted that was not loaded.
    mutating func removalRequested(
        _ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>, wasInTable: Bool
    ) {
        let key = records.key(handler, of: client)
        var wasOpen = wasInTable
        if let number = records.handlers.handle(of: key), let interest = records.listedInterest(request, of: number) {
            wasOpen = wasOpen || records.requests[interest].phase != .delivering
            removeRequest(interest, by: client)
        }
        removeDoomed(request, key, by: client)
        beginWithdrawal(of: RemovedRequests(pattern: .handler(handler), request: request), from: client)
        guard records.clients[client].deliveries.isWithdrawing else {
            reply(.message(.requestRemoved(handler, request, wasOpen: wasOpen)), to: client)
            return
        }
        carryOut(ClientRemoval(of: request, handler, wasOpen: wasOpen), by: client, now: records.clock)
    }

    /// Whether the last message of a client is still being carried out. The shell then passes no event of the client,
    /// its loss included. Mutating, because for a call that only reads the shell would copy the whole core, in 2 µs.
    public mutating func isCarryingOut(by id: ClientID) -> Bool { isRemoving(id) || awaitsDurableRows(id) }

    /// Whether a removal of a client is under way.
    public func isRemoving(_ id: ClientID) -> Bool {
        !records.removals.isEmpty && records.clients.handle(of: id).map { records.removals[$0] != nil } == true
    }

    /// Whether some removed requests, handlers or ended sessions are not gone yet.
    @inline(__always)
    public var isRemoving: Bool {
        !records.handlers.removing.isEmpty || !records.clients.ended.isEmpty || !records.removals.isEmpty
    }

    /// Number of doomed requests. O(handlers being removed).
    public var doomedRequests: Int {
        records.handlers.removing.reduce(0) { $0 + records.handlers[$1].requests.pending }
    }

    /// Number of terminals that doomed requests will have, by client. O(handlers being removed and their listeners).
    public var doomedTerminals: [ClientID: Int] {
        records.handlers.removing.reduce(into: [:]) { counts, handler in
            for listener in records.handlers[handler].removal?.listeners ?? [] {
                counts[records.clients[listener].id, default: 0] += records.handlers[handler].requests.pending
            }
        }
    }

    // MARK: Slices

    /// Removes one slice of doomed requests, of the handlers or the waiting terminals of one client's removal, and of
    /// ended sessions. Handlers and clients take turns. Called once per pass.
    mutating func continueRemovals(now: Tick) {
        if let turn = records.removals.first(where: { $1.isUnnaming || records.clients[$0].deliveries.isWithdrawing }) {
            continueRemoval(by: turn.key, now: now)
        }
        var budget = max(records.limits.removalsPerPass, 1)
        while budget > 0, let handler = records.handlers.removing.first {
            for _ in 0..<min(budget, Self.smallRemoval) {
                guard let interest = records.handlers[handler].interests.first else { break }
                removeRequest(interest)
                budget -= 1
            }
            guard records.handlers[handler].interests.isEmpty else {
                records.handlers.passTurn()
                continue
            }
            records.handlers.endRemoval(of: handler)
            dropHandlerIfIdle(handler)
            for client in records.removals.keys where records.removals[client]?.awaitedHandlers.remove(handler) != nil {
                if records.removals[client]?.awaitedHandlers.isEmpty == true { continueRemoval(by: client, now: now) }
            }
        }
        removeEndedSessions(now: now)
    }

    /// Maximum number of requests of a handler that are removed in the pass of the message, and of doomed requests of one
    /// handler before another one's turn.
    private static let smallRemoval = 64

    private mutating func continueRemoval(by client: Handle<ClientSession>, now: Tick) {
        // At the end of the line, if it goes on.
        if let removal = records.removals.removeValue(forKey: client) { carryOut(removal, by: client, now: now) }
    }

    /// Carries out the first or next slice of a removal, and ends it when nothing is left of it.
    mutating func carryOut(_ removal: ClientRemoval, by client: Handle<ClientSession>, now: Tick) {
        var removal = removal
        if removal.isUnnaming {
            removeNames(&removal, by: client, now: now)
            if !removal.isUnnaming {
                beginWithdrawal(of: removal.requests, from: client)
                removal.awaitedHandlers = awaitedHandlers(by: client, removal.requests.pattern)
            }
        }
        if records.clients[client].deliveries.isWithdrawing { continueWithdrawal(of: removal.requests, from: client) }
        guard !removal.isUnnaming, !records.clients[client].deliveries.isWithdrawing, removal.awaitedHandlers.isEmpty
        else {
            records.removals[client] = removal
            return
        }
        switch removal.continuation {
        case .reply: reply(.message(.removed(removal.requests.pattern, count: removal.count)), to: client)
        case .replyOfRequest(let handler, let request, let wasOpen):
            reply(.message(.requestRemoved(handler, request, wasOpen: wasOpen)), to: client)
        case .fetch(let fetch, let body):
            accept(fetch, body, by: client, now: now)
            releaseUnused(body)
        }
    }

    /// Begins to withdraw the unsent terminals of removed requests from a client, including requests that another
    /// client removed. From here on none of them is sent. Terminals that become due later stay.
    private mutating func beginWithdrawal(of requests: RemovedRequests, from client: Handle<ClientSession>) {
        if !records.pulls.isEmpty { Delivery.closeBodies(of: client, in: requests, &records) }
        if records.clients[client].deliveries.sent > 0 {
            let sequence = records.clients[client].deliveries.lastSequence
            newRemovals.append(
                AnsweredRemoval(client: records.clients[client].id, requests: requests, sequence: sequence))
        }
        records.clients[client].deliveries.beginWithdrawal()
    }

    /// Withdraws one slice of terminals. With the last one, delivery goes on.
    private mutating func continueWithdrawal(of requests: RemovedRequests, from client: Handle<ClientSession>) {
        var budget = max(records.limits.withdrawalsPerPass, 1)
        while budget > 0, let due = records.clients[client].deliveries.nextToCheck {
            budget -= 1
            checkNext(due, of: client, isWithdrawn: records.isTerminal(due, of: requests))
        }
        guard records.clients[client].deliveries.nextToCheck == nil else {
            records.chargeWindow(of: client)
            return
        }
        endWithdrawal(from: client)
        sendDue(to: client)
        if !records.clients[client].deliveries.isClosed { records.queue.clientOpened(client) }
    }

    /// Withdraws terminals that the socket has refused, and whose requests were removed in the same pass after they had
    /// been sent. O(terminals sent).
    mutating func withdrawRefused(of client: Handle<ClientSession>) {
        let removals = answeredRemovals.filter { $0.client == records.clients[client].id }
        // A withdrawal under way checks them, too.
        guard let last = removals.last, !records.clients[client].deliveries.isWithdrawing else { return }
        var sequence = records.clients[client].deliveries.lastSequence
        records.clients[client].deliveries.beginWithdrawal(upTo: last.sequence)
        while let due = records.clients[client].deliveries.nextToCheck {
            sequence += 1
            let isWithdrawn = removals.contains { sequence <= $0.sequence && records.isTerminal(due, of: $0.requests) }
            checkNext(due, of: client, isWithdrawn: isWithdrawn)
        }
        endWithdrawal(from: client)
    }

    private mutating func endWithdrawal(from client: Handle<ClientSession>) {
        records.clients[client].deliveries.endWithdrawal()
        records.chargeWindow(of: client)
        // Numbers of refused terminals are used again.
        if !records.pulls.isEmpty {
            records.pulls.reopen(after: records.clients[client].deliveries.lastReceived, to: client)
        }
    }

    /// Withdraws or keeps the next terminal of a withdrawal.
    private mutating func checkNext(_ due: DueTerminal, of client: Handle<ClientSession>, isWithdrawn: Bool) {
        guard isWithdrawn else {
            records.clients[client].deliveries.keepNext()
            return
        }
        records.clients[client].deliveries.withdrawNext(records.weight(of: due), counting: records.counted(due))
        apply(Delivery.lose(due, by: client, in: &records))
    }

    /// Removes the next slice of handlers that match. A handler with more requests than a small one only loses its name.
    private mutating func removeNames(_ removal: inout ClientRemoval, by client: Handle<ClientSession>, now: Tick) {
        let limit = max(records.limits.departuresPerPass, 1)
        var budget = limit
        let slice = records.handlers.matching(
            removal.requests.pattern, of: records.clients[client].principal, from: removal.nextName, limit: limit + 1)
        for key in slice.map({ records.handlers[$0].key }) {
            guard budget > 0 else {
                removal.nextName = key.id.description
                return
            }
            budget -= 1
            // Nil if it held only doomed requests, which shared a flight with one that was removed just now.
            guard let handler = records.handlers.handle(of: key) else { continue }
            removal.count += removeAll(of: handler, by: client, &budget)
            // `removeAll` may have freed the handler's record, or given its name to another.
            if !removal.isReplacing, let handler = records.handlers.handle(of: key) {
                unsubscribe(client, fromHandler: handler, now: now)
            }
        }
        removal.isUnnaming = false
    }

    /// Removes the requests of a handler. Many become doomed, and those with running transfers go at once.
    ///
    /// - Parameter budget: decreases by the number of requests that were removed at once.
    /// - Returns: number of requests that had not ended.
    private mutating func removeAll(
        of handler: Handle<HandlerEntry>, by client: Handle<ClientSession>, _ budget: inout Int
    ) -> Int {
        let count = records.handlers[handler].requests.pending
        guard Int(records.handlers[handler].interests.count) <= min(Self.smallRemoval, records.limits.removalsPerPass)
        else {
            let listeners = records.listeners(of: handler).filter { $0 != client }
            records.handlers.removeName(handler, HandlerRemoval(listeners: listeners, message: mark(of: client)))
            removeRunning { core, interest in core.records.requests[interest].handler == handler }
            return count
        }
        let members = records.handlers.requests(of: handler).map { records.requests.reference(to: $0) }
        budget -= members.count
        records.handlers.retain(handler)
        // The removal of one request removes doomed ones from its flight.
        for member in members {
            if let interest = records.requests.resolve(member) { removeRequest(interest, by: client) }
        }
        records.handlers.release(handler)
        if members.isEmpty || records.handlers[handler].references == 0 { dropHandlerIfIdle(handler) }
        return count
    }

    /// Handlers without names that match, whose removal this client awaits. It receives nothing of them any more.
    private mutating func awaitedHandlers(
        by client: Handle<ClientSession>, _ pattern: HandlerPattern
    ) -> Set<Handle<HandlerEntry>> {
        guard !records.handlers.removing.isEmpty else { return [] }
        let principal = records.clients[client].principal
        let found: [Handle<HandlerEntry>] =
            switch pattern {
            case .handler(let id): records.handlers.removing(HandlerKey(principal, id))
            case .subtree:
                records.handlers.removing.filter {
                    records.handlers[$0].principal == principal && pattern.matches(records.handlers[$0].id)
                }
            }
        for handler in found { withdraw(client, fromRemovalOf: handler) }
        return Set(found)
    }

    /// Withdraws the terminals that doomed requests will have from a client. The ledger counts them as lost.
    mutating func withdraw(_ client: Handle<ClientSession>, fromRemovalOf handler: Handle<HandlerEntry>) {
        guard records.handlers.ignore(client, inRemovalOf: handler) else { return }
        let count = records.handlers[handler].requests.pending
        records.ledger.deliveries.due += count
        records.ledger.deliveries.lost += count
    }

    /// Releases the body of a FETCH unless something needs it.
    mutating func releaseUnused(_ body: RequestBody?) {
        guard let body, !records.requests.bodies.contains(body.id), !records.durables.load.holds(body.id),
            !records.removals.values.contains(where: { $0.body?.id == body.id })
        else { return }
        records.outbox.actions.append(.spool(.releaseBody(body.id)))
    }

    /// Maximum number of requests of one transfer that `removeRunning` removes, so that one message cannot take long.
    private static let mostOfTransfer = 64

    /// Removes requests with running transfers ahead of their slices, so that origins are relieved first. O(running
    /// attempts).
    ///
    /// - Parameter client: their owner, which ends; nil for doomed requests.
    mutating func removeRunning(
        of client: Handle<ClientSession>? = nil, where isMeant: (BrokerCore, Handle<Interest>) -> Bool
    ) {
        var running: [FlightName] = []
        for worker in records.workers.indices {
            for (_, lease) in records.workers[worker].leasesInOrder {
                guard let flight = lease.flight, let interest = records.flights.firstInterest(of: flight) else {
                    continue
                }
                if isMeant(self, interest) { running.append(records.flights.name(of: flight)) }
            }
        }
        for name in running {
            for _ in 0..<Self.mostOfTransfer {
                guard let flight = records.flights.handle(of: name),
                    let first = records.flights.firstInterest(of: flight),
                    isMeant(self, first)
                else { break }
                removeRequest(first, by: client)
            }
        }
    }

    // MARK: Doomed requests

    /// Whether there may be doomed requests.
    private var hasDoomed: Bool { !records.handlers.removing.isEmpty || !records.clients.ended.isEmpty }

    /// Removes the doomed request with this name, so that its listeners get its terminal before anything about the next
    /// one. O(handlers being removed that had the handler's name).
    ///
    /// - Parameter client: the remover, which gets no `FAILED … removed` for it.
    mutating func removeDoomed(_ request: RequestID, _ key: HandlerKey, by client: Handle<ClientSession>? = nil) {
        guard hasDoomed else { return }
        for handler in records.handlers.removing(key) + (records.handlers.handle(of: key).map { [$0] } ?? []) {
            guard let interest = records.listedInterest(request, of: handler), records.isDoomed(interest) else {
                continue
            }
            removeRequest(interest, by: client)
        }
    }

    /// Removes the doomed requests of a flight, of its redirects and of the flights that they follow. The flight may end.
    mutating func removeDoomed(from flight: Handle<Flight>) {
        guard hasDoomed else { return }
        var doomed: [Handle<Interest>] = []
        records.forEachInterest(of: flight) { records, interest in
            if records.isDoomed(interest) { doomed.append(interest) }
        }
        for interest in doomed { removeRequest(interest) }
    }

    /// The flight of a name that a timer, the cache, the cluster or a list has kept, without doomed requests; nil if it
    /// has ended, perhaps with the last of them.
    mutating func liveFlight(_ name: FlightName) -> Handle<Flight>? {
        guard let flight = records.flights.handle(of: name) else { return nil }
        removeDoomed(from: flight)
        return records.flights.handle(of: name)
    }

    // MARK: One request

    /// Ends one request and frees its ID: the one function for every removal. Its remover receives nothing more about
    /// it, and each other listener of the handler one `FAILED … removed`.
    ///
    /// - Parameter client: the remover; nil for that of a doomed request.
    mutating func removeRequest(_ interest: Handle<Interest>, by client: Handle<ClientSession>? = nil) {
        let handler = records.requests[interest].handler
        let removal = records.handlers[handler].removal
        let message = removal?.message ?? client.map { mark(of: $0) }
        let isEntering = records.requests[interest].phase == .entering
        let requesters =
            isEntering ? Durable.waitingRequesters(of: interest, except: message?.client, in: &records) : []
        freeID(interest)
        switch records.requests[interest].phase {
        case .delivering:
            freeIfCompact(interest)
            return
        case .open: detach(interest, by: message, isAtOnce: removal != nil)
        case .held: releaseHeldOutcome(interest)
        case .entering, .recording, .resting: Durable.releaseStored(interest, in: &records)
        }
        records.account(interest) { $0.removed += 1 }
        var listeners = removal?.listeners ?? records.listeners(of: handler)
        if let client, let index = listeners.firstIndex(of: client) {
            listeners.remove(at: index)
            if removal != nil {
                records.ledger.deliveries.due += 1
                records.ledger.deliveries.lost += 1
            }
        }
        if !requesters.isEmpty {
            listeners.removeAll { listener in requesters.contains { $0.client == listener } }
            refuse(interest, RequestRefusal(code: .removed), to: requesters)
        }
        publishRemoval(of: interest, to: listeners)
    }

    /// Removes an open request from the queue and from its flight. A flight without requests ends.
    ///
    /// - Parameters:
    ///   - message: the message that removes the request; nil if none does.
    ///   - isAtOnce: whether a running transfer is cancelled now, and not after the next messages of the client.
    mutating func detach(_ interest: Handle<Interest>, by message: MessageMark? = nil, isAtOnce: Bool = false) {
        records.queue.remove(interest)
        guard let flight = records.requests[interest].flight else { return }
        // Otherwise doomed requests would leave the flight after this one, and decide when it is cancelled.
        if !isAtOnce, !records.isDoomed(interest) { removeDoomed(from: flight) }
        records.requests[interest].flight = nil
        records.flights.detach(interest, from: flight)
        dropIfUnwanted(flight, isAtOnce: isAtOnce, by: message)
    }

    /// Frees a request's ID.
    mutating func freeID(_ interest: Handle<Interest>) {
        guard records.requests[interest].isListed else { return }
        records.requests.freeID(interest)
        Durable.forget(interest, in: &records)
        records.handlers.requestUnlisted(interest, of: records.requests[interest].handler)
    }
}
