internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Removal of requests. After the reply, the remover receives nothing about them.
///
/// A handler with few requests is removed at once. One with more loses its name at once, and its requests are removed
/// in slices, one per pass: they are *doomed*, like those of an ended session. They still count as pending, in the
/// limits too. Each step that meets a doomed request earlier removes it with the same function, `removeRequest`:
/// assignment, an outcome, a deadline, a join. Terminals that wait for the remover are withdrawn in slices, too, and
/// none is sent to it meanwhile. The reply follows the last of all these. Until then the shell reads no further message
/// of the client.
extension BrokerCore {
    // MARK: Events

    /// Handles REMOVE of one request. Replies even if there is none.
    ///
    /// - Parameter wasInTable: whether a row of the request was deleted before it was loaded.
    mutating func removalRequested(
        _ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>, wasInTable: Bool
    ) {
        let key = records.handlerKey(handler, of: client)
        var wasOpen = wasInTable
        if let number = records.handlers.handle(of: key), let interest = records.interestHoldingID(request, of: number)
        {
            wasOpen = wasOpen || records.requests[interest].phase != .delivering
            removeRequest(interest, by: client)
        }
        removeDoomedRequest(request, key, by: client)
        beginTerminalWithdrawal(of: RemovedRequests(handlerPattern: .handler(handler), request: request), from: client)
        guard records.clients[client].deliveries.isWithdrawing else {
            replyToCurrentMessage(.message(.requestRemoved(handler, request, wasOpen: wasOpen)), to: client)
            return
        }
        performRemoval(
            ClientRemoval(ofRequest: request, handler, wasOpen: wasOpen), by: client, now: records.latestEventTime)
    }

    /// Whether the last message of a client is still being carried out. The shell then passes no event of the client,
    /// not even its loss. Mutating, because the shell would copy the whole core for a call that only reads, in 2 µs.
    public mutating func isExecutingMessage(of id: ClientID) -> Bool {
        hasPendingRemoval(by: id) || awaitsDurableRows(id)
    }

    /// Whether a removal of a client is under way.
    public func hasPendingRemoval(by id: ClientID) -> Bool {
        !records.activeClientRemovals.isEmpty
            && records.clients.handle(of: id).map { records.activeClientRemovals[$0] != nil } == true
    }

    /// Whether some removed requests, handlers or ended sessions are not gone yet.
    @inline(__always)
    public var hasPendingRemovals: Bool {
        !records.handlers.handlersBeingRemoved.isEmpty || !records.clients.endedSessions.isEmpty
            || !records.activeClientRemovals.isEmpty
    }

    /// Number of doomed requests. O(handlers being removed).
    public var doomedRequestCount: Int {
        records.handlers.handlersBeingRemoved.reduce(0) { $0 + records.handlers[$1].requestCounts.pending }
    }

    /// Number of terminals that doomed requests will have, by client. O(handlers being removed and their subscribers).
    public var doomedTerminalCounts: [ClientID: Int] {
        records.handlers.handlersBeingRemoved.reduce(into: [:]) { counts, handler in
            for subscriber in records.handlers[handler].removal?.failureRecipients ?? [] {
                counts[records.clients[subscriber].id, default: 0] += records.handlers[handler].requestCounts.pending
            }
        }
    }

    // MARK: Slices

    /// Removes one slice of doomed requests, of the handlers or the waiting terminals of one client's removal, and of
    /// ended sessions. Handlers and clients take turns. Called once per pass.
    mutating func continueRemovals(now: MonotonicTime) {
        if let turn = records.activeClientRemovals.first(where: {
            $1.mayMatchNamedHandlers || records.clients[$0].deliveries.isWithdrawing
        }) {
            continueRemoval(by: turn.key, now: now)
        }
        var budget = max(records.limits.maximumRequestRemovalsPerPass, 1)
        while budget > 0, let handler = records.handlers.handlersBeingRemoved.first {
            for _ in 0..<min(budget, Self.maximumSmallRemovalRequests) {
                guard let interest = records.handlers[handler].interests.first else { break }
                removeRequest(interest)
                budget -= 1
            }
            guard records.handlers[handler].interests.isEmpty else {
                records.handlers.rotateHandlersBeingRemoved()
                continue
            }
            records.handlers.endRemoval(of: handler)
            removeHandlerIfIdle(handler)
            for client in records.activeClientRemovals.keys
            where records.activeClientRemovals[client]?.awaitedHandlers.remove(handler) != nil {
                if records.activeClientRemovals[client]?.awaitedHandlers.isEmpty == true {
                    continueRemoval(by: client, now: now)
                }
            }
        }
        removeEndedSessions(now: now)
    }

    /// Maximum number of requests of a handler that are removed in the pass of the message, and of doomed requests of
    /// one handler before another one's turn.
    private static let maximumSmallRemovalRequests = 64

    private mutating func continueRemoval(by client: Handle<ClientSession>, now: MonotonicTime) {
        // If the removal continues, `performRemoval` appends it after the others.
        if let removal = records.activeClientRemovals.removeValue(forKey: client) {
            performRemoval(removal, by: client, now: now)
        }
    }

    /// Carries out the first or next slice of a removal, and ends the removal after its last slice.
    mutating func performRemoval(_ removal: ClientRemoval, by client: Handle<ClientSession>, now: MonotonicTime) {
        var removal = removal
        if removal.mayMatchNamedHandlers {
            removeMatchingHandlers(&removal, by: client, now: now)
            if !removal.mayMatchNamedHandlers {
                beginTerminalWithdrawal(of: removal.requests, from: client)
                removal.awaitedHandlers = handlersAwaitingRemoval(by: client, removal.requests.handlerPattern)
            }
        }
        if records.clients[client].deliveries.isWithdrawing {
            continueTerminalWithdrawal(of: removal.requests, from: client)
        }
        guard !removal.mayMatchNamedHandlers, !records.clients[client].deliveries.isWithdrawing,
            removal.awaitedHandlers.isEmpty
        else {
            records.activeClientRemovals[client] = removal
            return
        }
        switch removal.continuation {
        case .replyToHandlerRemoval:
            replyToCurrentMessage(
                .message(.handlersRemoved(removal.requests.handlerPattern, count: removal.removedOpenRequestCount)),
                to: client)
        case .replyToRequestRemoval(let handler, let request, let wasOpen):
            replyToCurrentMessage(.message(.requestRemoved(handler, request, wasOpen: wasOpen)), to: client)
        case .replacementFetch(let fetch, let body):
            acceptFetch(fetch, body, by: client, now: now)
            releaseUnusedBody(body)
        }
    }

    /// Begins to withdraw the unsent terminals of removed requests from a client, including requests that another
    /// client removed. From here on none of them is sent. Terminals that become due later stay.
    private mutating func beginTerminalWithdrawal(of requests: RemovedRequests, from client: Handle<ClientSession>) {
        if !records.bodyPulls.isEmpty { Delivery.forbidBodyReads(of: client, in: requests, &records) }
        if records.clients[client].deliveries.sentCount > 0 {
            let sequence = records.clients[client].deliveries.lastSequence
            newRemovals.append(
                OvertakableRemoval(client: records.clients[client].id, requests: requests, sequence: sequence))
        }
        records.clients[client].deliveries.beginWithdrawal()
    }

    /// Withdraws one slice of terminals. After the last slice, delivery continues.
    private mutating func continueTerminalWithdrawal(of requests: RemovedRequests, from client: Handle<ClientSession>) {
        var budget = max(records.limits.maximumWithdrawalChecksPerPass, 1)
        while budget > 0, let due = records.clients[client].deliveries.nextToScan {
            budget -= 1
            withdrawOrKeepTerminal(due, of: client, isWithdrawn: records.isDueTerminal(due, amongRemoved: requests))
        }
        guard records.clients[client].deliveries.nextToScan == nil else {
            records.chargeDeliveryWindow(of: client)
            return
        }
        endTerminalWithdrawal(from: client)
        sendDueTerminals(to: client)
        if !records.clients[client].deliveries.isClosed { records.queue.unparkLanes(ofClient: client) }
    }

    /// Withdraws terminals that the socket has refused, and whose requests were removed in the same pass after they had
    /// been sent. O(terminals sent).
    mutating func withdrawRefusedTerminals(of client: Handle<ClientSession>) {
        let removals = answeredRemovals.filter { $0.client == records.clients[client].id }
        // A withdrawal under way checks them, too.
        guard let last = removals.last, !records.clients[client].deliveries.isWithdrawing else { return }
        var sequence = records.clients[client].deliveries.lastSequence
        records.clients[client].deliveries.beginWithdrawal(upTo: last.sequence)
        while let due = records.clients[client].deliveries.nextToScan {
            sequence += 1
            let isWithdrawn = removals.contains {
                sequence <= $0.sequence && records.isDueTerminal(due, amongRemoved: $0.requests)
            }
            withdrawOrKeepTerminal(due, of: client, isWithdrawn: isWithdrawn)
        }
        endTerminalWithdrawal(from: client)
    }

    private mutating func endTerminalWithdrawal(from client: Handle<ClientSession>) {
        records.clients[client].deliveries.endWithdrawal()
        records.chargeDeliveryWindow(of: client)
        // Numbers of refused terminals are used again.
        if !records.bodyPulls.isEmpty {
            records.bodyPulls.reopenBodies(after: records.clients[client].deliveries.highestSentSequence, to: client)
        }
    }

    /// Withdraws or keeps the next terminal of a withdrawal.
    private mutating func withdrawOrKeepTerminal(
        _ due: DueTerminal, of client: Handle<ClientSession>, isWithdrawn: Bool
    ) {
        guard isWithdrawn else {
            records.clients[client].deliveries.keepScannedTerminal()
            return
        }
        records.clients[client].deliveries.withdrawScannedTerminal(
            records.byteWeight(of: due), counting: records.countedOutcome(ofDue: due))
        deliveryEnded(Delivery.endUndeliveredTerminal(due, by: client, in: &records))
    }

    /// Removes the next slice of handlers that match. A handler with more requests than a small one only loses its
    /// name.
    private mutating func removeMatchingHandlers(
        _ removal: inout ClientRemoval, by client: Handle<ClientSession>, now: MonotonicTime
    ) {
        let limit = max(records.limits.maximumSessionCleanupsPerPass, 1)
        var budget = limit
        let slice = records.handlers.handlers(
            matching: removal.requests.handlerPattern, of: records.clients[client].principal,
            from: removal.nextHandlerName, limit: limit + 1)
        for key in slice.map({ records.handlers[$0].key }) {
            guard budget > 0 else {
                removal.nextHandlerName = key.id.description
                return
            }
            budget -= 1
            // Nil if it held only doomed requests, which shared a flight with one that was removed just now.
            guard let handler = records.handlers.handle(of: key) else { continue }
            removal.removedOpenRequestCount += removeRequests(of: handler, by: client, &budget)
            // `removeRequests` may have freed the handler's record, or moved its name to another record.
            if !removal.isReplacingRequest, let handler = records.handlers.handle(of: key) {
                unsubscribe(client, fromHandler: handler, now: now)
            }
        }
        removal.mayMatchNamedHandlers = false
    }

    /// Removes the requests of a handler. Many become doomed, and those with running transfers go at once.
    ///
    /// - Parameter budget: decreases by the number of requests that were removed at once.
    /// - Returns: number of requests that had not ended.
    private mutating func removeRequests(
        of handler: Handle<HandlerEntry>, by client: Handle<ClientSession>, _ budget: inout Int
    ) -> Int {
        let count = records.handlers[handler].requestCounts.pending
        guard
            Int(records.handlers[handler].interests.count)
                <= min(Self.maximumSmallRemovalRequests, records.limits.maximumRequestRemovalsPerPass)
        else {
            let subscribers = records.subscribers(of: handler).filter { $0 != client }
            records.handlers.beginRemoval(
                of: handler, HandlerRemoval(failureRecipients: subscribers, message: latestMessageMark(of: client)))
            removeRunningRequests { core, interest in core.records.requests[interest].handler == handler }
            return count
        }
        let members = records.handlers.requests(of: handler).map { records.requests.reference(to: $0) }
        budget -= members.count
        records.handlers.retainHandler(handler)
        // The removal of one request removes doomed ones from its flight.
        for member in members {
            if let interest = records.requests.resolve(member) { removeRequest(interest, by: client) }
        }
        records.handlers.releaseHandler(handler)
        if members.isEmpty || records.handlers[handler].referenceCount == 0 { removeHandlerIfIdle(handler) }
        return count
    }

    /// Returns the handlers without names that match, whose removal this client awaits. It receives nothing more about
    /// them.
    private mutating func handlersAwaitingRemoval(
        by client: Handle<ClientSession>, _ pattern: HandlerPattern
    ) -> Set<Handle<HandlerEntry>> {
        guard !records.handlers.handlersBeingRemoved.isEmpty else { return [] }
        let principal = records.clients[client].principal
        let found: [Handle<HandlerEntry>] =
            switch pattern {
            case .handler(let id): records.handlers.handlersBeingRemoved(formerly: HandlerKey(principal, id))
            case .subtree:
                records.handlers.handlersBeingRemoved.filter {
                    records.handlers[$0].principal == principal && pattern.matches(records.handlers[$0].id)
                }
            }
        for handler in found { withdrawTerminals(for: client, fromRemovalOf: handler) }
        return Set(found)
    }

    /// Withdraws the terminals that doomed requests will have from a client. The ledger counts them as lost.
    mutating func withdrawTerminals(for client: Handle<ClientSession>, fromRemovalOf handler: Handle<HandlerEntry>) {
        guard records.handlers.removeSubscriber(client, fromRemovalOf: handler) else { return }
        let count = records.handlers[handler].requestCounts.pending
        records.ledger.deliveries.started += count
        records.ledger.deliveries.lost += count
    }

    /// Releases the body of a FETCH unless something needs it.
    mutating func releaseUnusedBody(_ body: RequestBody?) {
        guard let body, !records.requests.requestBodies.contains(body.bodyID),
            !records.durables.loadState.holdsBody(body.bodyID),
            !records.activeClientRemovals.values.contains(where: { $0.body?.bodyID == body.bodyID })
        else { return }
        records.outbox.actions.append(.spool(.releaseBody(body.bodyID)))
    }

    /// Maximum number of requests of one transfer that `removeRunningRequests` removes, so that one message cannot take
    /// long.
    private static let maximumRemovalsPerTransfer = 64

    /// Removes requests with running transfers ahead of their slices, so that origins are relieved first. O(running
    /// attempts).
    ///
    /// - Parameter client: their owner, which ends; nil for doomed requests.
    mutating func removeRunningRequests(
        of client: Handle<ClientSession>? = nil, where isIncluded: (BrokerCore, Handle<Interest>) -> Bool
    ) {
        var running: [FlightName] = []
        for worker in records.workers.indices {
            for (_, lease) in records.workers[worker].leasesInReproducibleOrder {
                guard let flight = lease.flight, let interest = records.flights.firstInterest(of: flight) else {
                    continue
                }
                if isIncluded(self, interest) { running.append(records.flights.name(of: flight)) }
            }
        }
        for name in running {
            for _ in 0..<Self.maximumRemovalsPerTransfer {
                guard let flight = records.flights.handle(of: name),
                    let first = records.flights.firstInterest(of: flight),
                    isIncluded(self, first)
                else { break }
                removeRequest(first, by: client)
            }
        }
    }

    // MARK: Doomed requests

    /// Whether there may be doomed requests.
    private var mayHaveDoomedRequests: Bool {
        !records.handlers.handlersBeingRemoved.isEmpty || !records.clients.endedSessions.isEmpty
    }

    /// Removes the doomed request with this name, so that its subscribers get its terminal before anything about the next
    /// one. O(handlers being removed that had the handler's name).
    ///
    /// - Parameter client: the remover, which gets no `FAILED … removed` for it.
    mutating func removeDoomedRequest(
        _ request: RequestID, _ key: HandlerKey, by client: Handle<ClientSession>? = nil
    ) {
        guard mayHaveDoomedRequests else { return }
        let present = records.handlers.handle(of: key).map { [$0] } ?? []
        for handler in records.handlers.handlersBeingRemoved(formerly: key) + present {
            guard let interest = records.interestHoldingID(request, of: handler), records.isAwaitingRemoval(interest)
            else { continue }
            removeRequest(interest, by: client)
        }
    }

    /// Removes the doomed requests of a flight and of the flights redirected to it. The flight may end.
    mutating func removeDoomedRequests(from flight: Handle<Flight>) {
        guard mayHaveDoomedRequests else { return }
        var doomed: [Handle<Interest>] = []
        records.forEachInterest(of: flight) { records, interest in
            if records.isAwaitingRemoval(interest) { doomed.append(interest) }
        }
        for interest in doomed { removeRequest(interest) }
    }

    /// Removes the doomed requests of the flight with this name, which a timer, the cache, the cluster or a list has
    /// kept. Returns the flight; nil if it has ended, perhaps with the last of them.
    mutating func liveFlight(_ name: FlightName) -> Handle<Flight>? {
        guard let flight = records.flights.handle(of: name) else { return nil }
        removeDoomedRequests(from: flight)
        return records.flights.handle(of: name)
    }

    // MARK: One request

    /// Ends one request and frees its ID. Every removal uses this function. The remover receives nothing more about the
    /// request, and each other subscriber of the handler receives one `FAILED … removed`.
    ///
    /// - Parameter client: the remover; nil if the request is doomed.
    mutating func removeRequest(_ interest: Handle<Interest>, by client: Handle<ClientSession>? = nil) {
        let handler = records.requests[interest].handler
        let removal = records.handlers[handler].removal
        let message = removal?.message ?? client.map { latestMessageMark(of: $0) }
        let isUnaccepted = records.requests[interest].phase == .awaitingDurableAcceptance
        let requesters =
            isUnaccepted ? Durable.requestersAwaitingReply(of: interest, except: message?.client, in: &records) : []
        freeRequestID(of: interest)
        switch records.requests[interest].phase {
        case .delivering:
            freeRequestIfOnlyFailuresDue(interest)
            return
        case .open: detachRequest(interest, by: message, isAtOnce: removal != nil)
        case .awaitingSubscriber: releaseHeldOutcome(interest)
        case .awaitingDurableAcceptance, .writingOutcome, .outcomeOnlyOnDisk:
            Durable.releaseDurableResources(interest, in: &records)
        }
        records.moveToResultCounts(interest) { $0.removed += 1 }
        var subscribers = removal?.failureRecipients ?? records.subscribers(of: handler)
        if let client, let index = subscribers.firstIndex(of: client) {
            subscribers.remove(at: index)
            if removal != nil {
                records.ledger.deliveries.started += 1
                records.ledger.deliveries.lost += 1
            }
        }
        if !requesters.isEmpty {
            subscribers.removeAll { subscriber in requesters.contains { $0.client == subscriber } }
            sendRefusal(of: interest, RequestRefusal(code: .handlerRemoved), to: requesters)
        }
        publishRemoval(of: interest, to: subscribers)
    }

    /// Removes an open request from the queue and from its flight. A flight without requests ends.
    ///
    /// - Parameters:
    ///   - message: the message that removes the request; nil if none does.
    ///   - isAtOnce: whether a running transfer is cancelled now, and not after the next messages of the client.
    mutating func detachRequest(
        _ interest: Handle<Interest>, by message: MessagePosition? = nil, isAtOnce: Bool = false
    ) {
        records.queue.remove(interest)
        guard let flight = records.requests[interest].flight else { return }
        // Otherwise doomed requests would leave the flight after this one, and decide when it is cancelled.
        if !isAtOnce, !records.isAwaitingRemoval(interest) { removeDoomedRequests(from: flight) }
        records.requests[interest].flight = nil
        records.flights.detachInterest(interest, from: flight)
        endFlightIfUnwanted(flight, isAtOnce: isAtOnce, by: message)
    }

    /// Frees a request's ID.
    mutating func freeRequestID(of interest: Handle<Interest>) {
        guard records.requests[interest].isRequestIDTaken else { return }
        records.requests.freeRequestID(interest)
        Durable.deleteFromDiskIfDurable(interest, in: &records)
        records.handlers.requestIDFreed(interest, of: records.requests[interest].handler)
    }
}
