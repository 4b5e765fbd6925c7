internal import EarshotHTTP
internal import EarshotWire

/// Removal: what is not wanted any more is purged, and nothing of it follows the answer.
extension BrokerCore {
    mutating func cancelRequested(_ handler: HandlerID, _ request: RequestID, by client: Int32, now: Tick) {
        if let number = handlerNumbers[handler],
            let interest = listedInterest(request, of: number)
        {
            removeInterest(interest, by: client, now: now)
        }
        if let number = handlerNumbers[handler] {
            withdraw(from: client) { $0.handler == number && $0.request == request }
        }
        say(.cancelled(handler, request), to: client)
    }

    mutating func removalRequested(_ pattern: HandlerPattern, by client: Int32, now: Tick) {
        var count = 0
        for handler in handlersMatching(pattern) {
            count += removeAll(of: handler, by: client, now: now)
            unsubscribe(client, fromHandler: handler, now: now)
        }
        let meant = Set(handlersMatching(pattern))
        withdraw(from: client) { meant.contains($0.handler) }
        say(.removed(pattern, count: count), to: client)
    }

    /// Purges all a handler wants. The handler's record stays while its remover is subscribed.
    /// - Returns: requests that had not ended.
    mutating func removeAll(of handler: Int32, by client: Int32, now: Tick) -> Int {
        let members = handlerChains.members(of: handlers[handler].interests)
        var count = 0
        handlers[handler].references += 1
        for interest in members where removeInterest(interest, by: client, now: now) { count += 1 }
        handlers[handler].references -= 1
        if members.isEmpty || handlers[handler].references == 0 { dropHandlerIfIdle(handler) }
        return count
    }

    /// Ends one request: its ID is free, its remover hears nothing more of it, the handler's other listeners get one
    /// `FAILED … removed`.
    /// - Returns: whether it had not ended before.
    @discardableResult
    mutating func removeInterest(_ interest: Int32, by client: Int32, now: Tick) -> Bool {
        unlist(interest)
        switch interests[interest].phase {
        case .delivering: return false
        case .open: detach(interest)
        case .held: unhold(interest)
        }
        account(interest) { $0.removed += 1 }
        let others = listeners(of: interests[interest].handler).filter { $0 != client }
        publish(interest, outcomes.insert(Outcome(failure: .removed, endedAt: now)), to: others)
        return true
    }

    /// Takes an open request out of the queue and its flight; a flight nobody else wants ends.
    mutating func detach(_ interest: Int32) {
        queue.remove(interest)
        let flight = interests[interest].flight
        interests[interest].flight = -1
        guard flight >= 0 else { return }
        flightChains.remove(interest, from: &flights[flight].interests)
        dropIfUnwanted(flight)
    }

    /// Frees a request's ID.
    mutating func unlist(_ interest: Int32) {
        guard interests[interest].isListed else { return }
        interests[interest].isListed = false
        let handler = interests[interest].handler
        requestNumbers.remove(interest, hash(interests[interest].request, of: handler))
        handlerChains.remove(interest, from: &handlers[handler].interests)
    }

    /// Moves a request from pending to what became of it, in both ledgers, and from its owner's open requests.
    mutating func account(_ interest: Int32, _ change: (inout Ledger.Requests) -> Void) {
        let record = interests[interest]
        ledger.requests.pending -= 1
        change(&ledger.requests)
        handlers[record.handler].requests.pending -= 1
        change(&handlers[record.handler].requests)
        if record.owner >= 0 {
            ownerChains.remove(interest, from: &clients[record.owner].owned)
        } else {
            handlers[record.handler].ownRequests -= 1
        }
    }
}
