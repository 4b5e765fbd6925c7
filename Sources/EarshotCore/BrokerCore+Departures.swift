internal import DequeModule
internal import OrderedCollections

/// The end of sessions: of clients that said BYE, were lost, or did not return in the time of their lease. The protocol
/// promises no moment for it, so many requests are removed in slices. They are doomed until then.
extension BrokerCore {
    /// Ends a session: its requests, subscriptions and terminals are removed, in slices if there are many.
    mutating func endSession(_ client: Handle<ClientSession>, now: Tick) {
        if let removal = records.removals.removeValue(forKey: client) { releaseUnused(removal.body) }
        if let waiting = records.durables.load.messages.removeValue(forKey: client) { releaseUnused(waiting.body) }
        records.clients.endLease(of: client)
        if !records.pulls.isEmpty { records.pulls.remove(client) }
        for handler in records.handlers.removing { withdraw(client, fromRemovalOf: handler) }
        records.clients[client].deliveries.end()
        var budget = max(records.limits.departuresPerPass, 1)
        if Int(records.clients[client].owned.count) > budget {
            removeRunning(of: client) { core, interest in core.records.requests[interest].owner == client }
        }
        remove(client, &budget, now: now)
        if budget > 0 { records.clients.remove(client) } else { records.clients.depart(client) }
    }

    /// Removes one slice of ended sessions. Called once per pass.
    mutating func removeEndedSessions(now: Tick) {
        var budget = max(records.limits.departuresPerPass, 1)
        while budget > 0, let client = records.clients.ended.first {
            remove(client, &budget, now: now)
            guard budget > 0 else { break }
            records.clients.removeDeparted()
        }
    }

    /// Removes one slice of an ended session. Subscriptions go first, so that no terminal becomes due to it. Budget
    /// that is left means that nothing of the session is left.
    private mutating func remove(_ client: Handle<ClientSession>, _ budget: inout Int, now: Tick) {
        while budget > 0, let subtree = records.handlers.lastSubtree(of: client) {
            budget -= max(1, unsubscribe(client, fromSubtree: subtree, now: now))
        }
        while budget > 0, let handler = records.handlers.anyHandler(of: client) {
            unsubscribe(client, fromHandler: handler, now: now)
            budget -= 1
        }
        while budget > 0, let due = records.clients[client].deliveries.entries.first {
            records.clients[client].deliveries.removeFirst(records.weight(of: due), counting: records.counted(due))
            records.chargeWindow(of: client)
            apply(Delivery.lose(due, by: client, in: &records))
            budget -= 1
        }
        while budget > 0, let interest = records.clients[client].owned.first {
            removeRequest(interest, by: client)
            budget -= 1
        }
    }
}
