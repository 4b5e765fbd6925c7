internal import EarshotWire

/// Requests without subscribers: their outcomes are held for some seconds, and then orphaned.
/// `Delivery.holdOutcomeUntilSubscriber` begins this.
extension BrokerCore {
    /// Handles the end of the time for which an outcome is held.
    mutating func outcomeHoldExpired(_ reference: GenerationalHandle<Interest>) {
        guard records.isTimerCurrent(.heldOutcomeGraceEnd(reference)) else { return }
        let interest = reference.record
        if records.isAwaitingRemoval(interest) {
            removeRequest(interest)
        } else if records.subscribers(of: records.requests[interest].handler).isEmpty {
            endOrphanedRequest(interest)
        } else {
            // It waits for room in the window of a subscriber, which may leave.
            records.setTimer(
                at: records.latestEventTime.advanced(byMilliseconds: records.limits.subscriberGraceMilliseconds),
                for: .heldOutcomeGraceEnd(reference))
        }
    }

    /// Ends the grace period of a handler without subscribers. The handler's own requests from before the last subscriber
    /// left are orphaned, in slices if there are many.
    mutating func handlerGraceExpired(_ handler: Handle<HandlerEntry>, _ absence: UInt64, now: MonotonicTime) {
        let subject = CoreTimer.TimerEvent.subscriberAbsenceEnd(handler: handler, absence: absence)
        guard records.isTimerCurrent(subject), records.subscribers(of: handler).isEmpty else { return }
        var budget = max(records.limits.maximumSessionCleanupsPerPass, 1)
        var next = records.handlers[handler].interests.first
        // The chain is in the order of arrival. Only a repeated durable request has a later generation than its
        // successors.
        while let interest = next, records.requests[interest].generation < absence || records.isDurable(interest) {
            next = records.handlers.nextRequest(after: interest)
            guard records.requests[interest].owner == nil, records.requests[interest].phase != .delivering,
                !records.isDurable(interest)
            else {
                continue
            }
            guard budget > 0 else {
                // Later than now, so that it fires in a later pass.
                records.setTimer(at: now.advanced(byNanoseconds: 1), for: subject)
                return
            }
            budget -= 1
            // Orphaning the last request frees the handler's record.
            endOrphanedRequest(interest)
        }
    }

    /// Releases the outcome of a held request.
    mutating func releaseHeldOutcome(_ interest: Handle<Interest>) {
        Delivery.endOutcomeHold(interest, in: &records)
        if let outcome = records.takeOutcome(of: interest) { records.releaseOutcome(outcome) }
    }

    /// Ends a request without subscribers and counts it as orphaned.
    mutating func endOrphanedRequest(_ interest: Handle<Interest>) {
        switch records.requests[interest].phase {
        case .open: detachRequest(interest)
        case .awaitingSubscriber: releaseHeldOutcome(interest)
        case .awaitingDurableAcceptance, .writingOutcome, .outcomeOnlyOnDisk:
            Durable.releaseDurableResources(interest, in: &records)
        case .delivering: return
        }
        records.moveToResultCounts(interest) { $0.orphaned += 1 }
        records.requests[interest].enter(.delivering)
        freeRequest(interest)
    }
}
