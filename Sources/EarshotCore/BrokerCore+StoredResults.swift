internal import OrderedCollections

/// Delivery of stored results, as far as their receivers have room.
extension BrokerCore {
    /// Claims all stored results of a handler for its listeners, and delivers them.
    mutating func claimResults(of handler: Handle<HandlerEntry>) {
        if Delivery.claimResults(of: handler, in: &records) { deliverClaims() }
    }

    /// Delivers claimed results while their listeners have room.
    private mutating func deliverClaims() {
        records.storedResults.isBehind = false
        var budget = max(1, records.limits.claimsPerPass)
        while let (interest, listeners) = Delivery.nextClaim(&budget, in: &records) {
            Delivery.endHold(interest, in: &records)
            let outcome = records.outcome(of: interest)
            accountOutcome(of: interest, outcome)
            publish(interest, outcome, to: listeners)
            records.release(outcome)
        }
    }

    /// Continues with stored results whose receivers have room again. Called once per pass. O(clients for which some
    /// wait).
    mutating func continueStoredResults() {
        for reference in records.storedResults.blockedClients {
            guard let client = records.clients.resolve(reference), !records.clients[client].isGone else {
                records.storedResults.forget(reference, hasEnded: true)
                continue
            }
            while records.hasRoom(client), records.storedResults.unblockHandler(of: reference) {
                deliverClaims()
            }
            while records.hasRoom(client), let name = records.storedResults.unblockFlight(of: reference) {
                if let flight = Cache.waiting(name, in: &records) { Cache.lookUpAgain(flight, in: &records) }
            }
            records.storedResults.forget(reference, hasEnded: false)
        }
        deliverClaims()
    }

    /// Returns a sentence for each violated invariant.
    func auditStoredResults() -> [String] {
        var faults = records.storedResults.checkInvariants()
        var reservations: [GenerationalHandle<ClientSession>: Int] = [:]
        for (flight, plan) in records.cachePlans {
            if let client = plan.reservation { reservations[client, default: 0] += 1 }
            guard plan.waitsForRoom, records.flights[flight].phase == .asking else { continue }
            let name = records.flights.name(of: flight)
            let isBlocked = records.storedResults.blockedClients.contains {
                records.storedResults.flights(blockedBy: $0).contains(name)
            }
            if !isBlocked { faults.append("1: flight \(name) waits for no client's room") }
        }
        for handler in records.handlers.indices
        where records.storedResults.claimed(of: handler).contains(where: { Delivery.claimable($0, in: records) != nil })
        {
            let listeners = records.listeners(of: handler).map { records.clients.reference(to: $0) }
            guard !listeners.isEmpty, !records.storedResults.isWaiting(handler, for: listeners) else { continue }
            faults.append("1: the claims of handler \(handler) wait for no listener")
        }
        for client in records.clients.indices {
            let count = reservations[records.clients.reference(to: client), default: 0]
            if records.clients[client].reservations != count {
                faults.append(
                    "10: client \(client) has \(records.clients[client].reservations) of \(count) reservations")
            }
        }
        return faults
    }
}
