internal import OrderedCollections

/// Delivery of stored results, as far as their receivers have room.
extension BrokerCore {
    /// Claims all stored results of a handler for its subscribers, and delivers them.
    mutating func claimStoredResults(of handler: Handle<HandlerEntry>) {
        if Delivery.claimStoredResults(of: handler, in: &records) { deliverClaimedResults() }
    }

    /// Delivers claimed results while their subscribers have room.
    private mutating func deliverClaimedResults() {
        records.storedResults.hasDeferredResults = false
        var budget = max(1, records.limits.maximumDeliveredClaimsPerPass)
        while let (interest, subscribers) = Delivery.takeNextDeliverableResult(&budget, in: &records) {
            Delivery.endOutcomeHold(interest, in: &records)
            let outcome = records.outcome(of: interest)
            countOutcome(of: interest, outcome)
            publishTerminal(of: interest, outcome, to: subscribers)
            records.releaseOutcome(outcome)
        }
    }

    /// Continues with stored results whose receivers have room again. Called once per pass. O(clients with waiting
    /// results).
    mutating func continueDeliveringStoredResults() {
        for reference in records.storedResults.blockedClients {
            guard let client = records.clients.resolve(reference), !records.clients[client].hasEnded else {
                records.storedResults.removeWaiters(reference, hasEnded: true)
                continue
            }
            while records.hasRoomForStoredResult(client), records.storedResults.unblockHandler(of: reference) {
                deliverClaimedResults()
            }
            while records.hasRoomForStoredResult(client), let name = records.storedResults.unblockFlight(of: reference)
            {
                if let flight = Cache.flightWaitingForRoom(name, in: &records) {
                    Cache.lookUpAgain(flight, in: &records)
                }
            }
            records.storedResults.removeWaiters(reference, hasEnded: false)
        }
        deliverClaimedResults()
    }

    /// Returns a sentence for each violated invariant.
    func auditStoredResults() -> [String] {
        var faults = records.storedResults.checkInvariants()
        var reservations: [GenerationalHandle<ClientSession>: Int] = [:]
        for (flight, plan) in records.cachePlans {
            if let client = plan.reservedReceiver { reservations[client, default: 0] += 1 }
            guard plan.waitsForReceiverRoom, records.flights[flight].phase == .lookingUp else { continue }
            let name = records.flights.name(of: flight)
            let isBlocked = records.storedResults.blockedClients.contains {
                records.storedResults.flights(blockedBy: $0).contains(name)
            }
            if !isBlocked { faults.append("1: flight \(name) waits for no client's room") }
        }
        for handler in records.handlers.indices
        where records.storedResults.claimedInterests(of: handler).contains(where: {
            Delivery.claimableInterest($0, in: records) != nil
        }) {
            let subscribers = records.subscribers(of: handler).map { records.clients.reference(to: $0) }
            guard !subscribers.isEmpty, !records.storedResults.hasWaitingClaims(handler, for: subscribers) else {
                continue
            }
            faults.append("1: the claims of handler \(handler) wait for no subscriber")
        }
        for client in records.clients.handles {
            let count = reservations[records.clients.reference(to: client), default: 0]
            if records.clients[client].cacheReservationCount != count {
                faults.append(
                    "10: client \(client) has \(records.clients[client].cacheReservationCount) of \(count) reservations"
                )
            }
        }
        return faults
    }
}
