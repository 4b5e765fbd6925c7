internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Stored results: held ones in memory, results on disk, and responses in the cache. They wait where they are while too
/// many terminals wait for their receivers, so that a client that reads is never due more than the bounds allow.
extension BrokerCore {
    /// Whether a stored result may be delivered to a client now.
    @inline(__always)
    func hasRoom(_ client: Handle<ClientSession>) -> Bool {
        !clients[client].isClosing
            && clients[client].deliveries.waiting + clients[client].reservations < max(1, limits.waitingTerminals)
    }

    // MARK: Claims

    /// Claims all stored results of a handler for its listeners. O(requests of the handler).
    mutating func claimResults(of handler: Handle<HandlerEntry>) {
        var claimed: [GenerationalHandle<Interest>] = []
        if handlers[handler].held > 0 {
            for interest in handlers.requests(of: handler) where interests[interest].phase == .held {
                claimed.append(interests.reference(to: interest))
            }
        }
        if !handlers[handler].resting.isEmpty {
            claimed += handlers.resting(of: handler).map { interests.reference(to: $0) }
        }
        guard !claimed.isEmpty else { return }
        storedResults.claim(claimed, of: handler)
        deliverClaims()
    }

    /// Claims a result on disk for the listeners of its handler. They receive it in this pass at the earliest.
    mutating func claimResult(_ interest: Handle<Interest>) {
        let handler = interests[interest].handler
        // Removed requests may leave claims behind.
        if storedResults.claimCount(of: handler) > 64 + 2 * Int(handlers[handler].interests.count) {
            storedResults.claim(storedResults.claimed(of: handler).filter { claimable($0) != nil }, of: handler)
        }
        storedResults.claim(interests.reference(to: interest), of: handler)
    }

    /// The request of a claim; nil if its result is not stored any more, or is being read.
    private func claimable(_ claim: GenerationalHandle<Interest>) -> Handle<Interest>? {
        guard let interest = interests.resolve(claim), !isDoomed(interest) else { return nil }
        let isStored =
            interests[interest].phase == .held
            || interests[interest].phase == .resting && durables.isUnread(interest)
        return isStored ? interest : nil
    }

    /// Delivers claimed results while their listeners have room, and reads those on disk, few at once.
    mutating func deliverClaims() {
        storedResults.isBehind = false
        var budget = max(1, limits.claimsPerPass)
        while let (handler, claim) = storedResults.takeTurn(canRead: durables.canRead) {
            guard let claim, handlers.contains(handler) else {
                storedResults.dropClaims()
                continue
            }
            guard let interest = claimable(claim) else {
                storedResults.dropFirst()
                continue
            }
            let listeners = listeners(of: handler)
            guard !listeners.isEmpty else {
                // The next listener claims them again.
                storedResults.dropClaims()
                continue
            }
            guard listeners.contains(where: { hasRoom($0) }) else {
                storedResults.block(by: listeners.map { clients.reference(to: $0) })
                continue
            }
            guard budget > 0 else {
                storedResults.isBehind = true
                return
            }
            guard interests[interest].phase != .resting || durables.canRead else {
                storedResults.awaitRead()
                continue
            }
            budget -= 1
            storedResults.dropFirst()
            if interests[interest].phase == .held {
                deliverHeld(interest, to: listeners)
            } else if let id = durables.beginRead(interest) {
                actions.append(.durable(.readResult(id)))
            }
        }
    }

    // MARK: Responses in the cache

    /// Makes a flight that the cache can answer wait if none of its receivers has room.
    ///
    /// - Returns: whether it waits.
    mutating func waitsForRoom(_ flight: Handle<Flight>) -> Bool {
        var full: OrderedSet<Handle<ClientSession>> = []
        var isServed = flights[flight].isHosted
        forEachInterest(of: flight) { core, interest in
            guard let owner = core.interests[interest].owner, !core.hasRoom(owner) else {
                isServed = true
                return
            }
            full.append(owner)
        }
        guard !isServed, !full.isEmpty else { return false }
        cachePlans[flight] = CachePlan(waitsForRoom: true)
        for owner in full { block(flight, by: owner) }
        return true
    }

    private mutating func block(_ flight: Handle<Flight>, by client: Handle<ClientSession>) {
        let reference = clients.reference(to: client)
        // Removed requests may leave their flights behind.
        if storedResults.flightCount(blockedBy: reference) > 64 + 2 * Int(clients[client].owned.count) {
            let left = storedResults.flights(blockedBy: reference).filter { waiting($0) != nil }
            var seen: Set<GenerationalHandle<Flight>> = []
            storedResults.replaceFlights(left.filter { seen.insert($0.reference).inserted }, blockedBy: reference)
        }
        storedResults.block(flights.name(of: flight), by: reference)
    }

    /// The flight of this name, if it waits for room.
    private func waiting(_ name: FlightName) -> Handle<Flight>? {
        guard let flight = flights.number(of: name), cachePlans[flight]?.waitsForRoom == true else { return nil }
        return flight
    }

    /// Looks a flight up again that waits for room, since it has a new receiver.
    mutating func receiverChanged(of flight: Handle<Flight>) {
        guard !cachePlans.isEmpty, cachePlans[flight]?.waitsForRoom == true else { return }
        lookUpAgain(flight)
    }

    /// Reserves room for the answer of a flight in the window of its first receiver.
    mutating func reserveRoom(for flight: Handle<Flight>) -> GenerationalHandle<ClientSession>? {
        var receiver: Handle<ClientSession>?
        forEachInterest(of: flight) { core, interest in receiver = receiver ?? core.interests[interest].owner }
        guard let receiver else { return nil }
        clients[receiver].reservations += 1
        return clients.reference(to: receiver)
    }

    /// Removes the cache plan of a flight, and releases the room that it reserved.
    mutating func takeCachePlan(of flight: Handle<Flight>) -> CachePlan? {
        guard let plan = cachePlans.drop(flight) else { return nil }
        if let client = plan.reservation.flatMap({ clients.resolve($0) }) { clients[client].reservations -= 1 }
        return plan
    }

    // MARK: Room

    /// Continues with stored results whose receivers have room again. Called once per pass. O(clients for which some
    /// wait).
    mutating func continueStoredResults() {
        for reference in storedResults.blockedClients {
            guard let client = clients.resolve(reference), !clients[client].isGone else {
                storedResults.forget(reference, hasEnded: true)
                continue
            }
            while hasRoom(client), storedResults.unblockHandler(of: reference) { deliverClaims() }
            while hasRoom(client), let name = storedResults.unblockFlight(of: reference) {
                if let flight = waiting(name) { lookUpAgain(flight) }
            }
            storedResults.forget(reference, hasEnded: false)
        }
        deliverClaims()
    }

    /// Returns a sentence for each violated invariant.
    func auditStoredResults() -> [String] {
        var faults = storedResults.checkInvariants()
        var reservations: [GenerationalHandle<ClientSession>: Int] = [:]
        for (flight, plan) in cachePlans {
            if let client = plan.reservation { reservations[client, default: 0] += 1 }
            guard plan.waitsForRoom, flights[flight].phase == .asking else { continue }
            let name = flights.name(of: flight)
            let isBlocked = storedResults.blockedClients.contains {
                storedResults.flights(blockedBy: $0).contains(name)
            }
            if !isBlocked { faults.append("1: flight \(name) waits for no client's room") }
        }
        for handler in handlers.indices
        where storedResults.claimed(of: handler).contains(where: { claimable($0) != nil }) {
            let listeners = listeners(of: handler).map { clients.reference(to: $0) }
            guard !listeners.isEmpty, !storedResults.isWaiting(handler, for: listeners) else { continue }
            faults.append("1: the claims of handler \(handler) wait for no listener")
        }
        for client in clients.indices {
            let count = reservations[clients.reference(to: client), default: 0]
            if clients[client].reservations != count {
                faults.append("10: client \(client) has \(clients[client].reservations) of \(count) reservations")
            }
        }
        return faults
    }
}
