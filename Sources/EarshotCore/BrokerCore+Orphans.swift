internal import EarshotWire

/// Requests without listeners: their outcomes are held for some seconds, and orphaned then. `Delivery.holdOutcome` begins it.
extension BrokerCore {
    /// Ends the time for which an outcome is held.
    mutating func gracePassed(_ reference: GenerationalHandle<Interest>) {
        guard records.isLive(.grace(reference)) else { return }
        let interest = reference.record
        if records.isDoomed(interest) {
            removeRequest(interest)
        } else if records.listeners(of: records.requests[interest].handler).isEmpty {
            orphan(interest)
        } else {
            // It waits for room in the window of a listener, which may leave.
            records.setTimer(
                records.clock.advanced(byMilliseconds: records.limits.graceMilliseconds), .grace(reference))
        }
    }

    /// Ends the grace period of a handler without listeners. The handler's own requests from before the last listener
    /// left are orphaned, in slices if there are many.
    mutating func handlerAbandoned(_ handler: Handle<HandlerEntry>, _ absence: UInt64, now: Tick) {
        let subject = Timer.Subject.abandoned(handler: handler, absence: absence)
        guard records.isLive(subject), records.listeners(of: handler).isEmpty else { return }
        var budget = max(records.limits.departuresPerPass, 1)
        var next = records.handlers[handler].interests.first
        // The chain is in the order of arrival. Only a repeated durable request has a later generation than its place has.
        while let interest = next, records.requests[interest].generation < absence || records.isDurable(interest) {
            next = records.handlers.request(after: interest)
            guard records.requests[interest].owner == nil, records.requests[interest].phase != .delivering,
                !records.isDurable(interest)
            else {
                continue
            }
            guard budget > 0 else {
                // Later than now, so that it fires in a later pass.
                records.setTimer(now.advanced(byNanoseconds: 1), subject)
                return
            }
            budget -= 1
            // Orphaning the last request frees the handler's record.
            orphan(interest)
        }
    }

    /// Releases the outcome of a held request.
    mutating func releaseHeldOutcome(_ interest: Handle<Interest>) {
        Delivery.endHold(interest, in: &records)
        if let outcome = records.takeOutcome(of: interest) { records.release(outcome) }
    }

    /// Ends a request without listeners and counts it as orphaned.
    mutating func orphan(_ interest: Handle<Interest>) {
        switch records.requests[interest].phase {
        case .open: detach(interest)
        case .held: releaseHeldOutcome(interest)
        case .entering, .recording, .resting: Durable.releaseStored(interest, in: &records)
        case .delivering: return
        }
        records.account(interest) { $0.orphaned += 1 }
        records.requests[interest].enter(.delivering)
        freeRequest(interest)
    }
}
