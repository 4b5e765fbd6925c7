internal import EarshotWire
internal import OrderedCollections

/// Stored results: held ones in memory and results on disk. They wait where they are while too many terminals wait for
/// their receivers, so that a client that reads is never due more than the bounds allow.
extension Delivery {
    /// Claims all stored results of a handler for its subscribers. O(requests of the handler).
    ///
    /// - Returns: whether there are any.
    static func claimStoredResults(of handler: Handle<HandlerEntry>, in records: inout Records) -> Bool {
        var claimed: [GenerationalHandle<Interest>] = []
        if records.handlers[handler].heldOutcomeCount > 0 {
            for interest in records.handlers.requests(of: handler)
            where records.requests[interest].phase == .awaitingSubscriber {
                claimed.append(records.requests.reference(to: interest))
            }
        }
        if !records.handlers[handler].durableRequestsAwaitingSubscriber.isEmpty {
            claimed += records.handlers.durableRequestsAwaitingSubscriber(of: handler).map {
                records.requests.reference(to: $0)
            }
        }
        guard !claimed.isEmpty else { return false }
        records.storedResults.claim(claimed, of: handler)
        return true
    }

    /// Claims a result on disk for the subscribers of its handler. They receive it in this pass at the earliest.
    static func claimStoredResult(_ interest: Handle<Interest>, in records: inout Records) {
        let handler = records.requests[interest].handler
        // Removed requests may leave claims behind.
        if records.storedResults.claimCount(of: handler) > 64 + 2 * Int(records.handlers[handler].interests.count) {
            let claims = records.storedResults.claimedInterests(of: handler).filter {
                claimableInterest($0, in: records) != nil
            }
            records.storedResults.claim(claims, of: handler)
        }
        records.storedResults.claim(records.requests.reference(to: interest), of: handler)
    }

    /// The request of a claim; nil if its result is not stored any more, or is being read.
    @inline(__always)
    static func claimableInterest(_ claim: GenerationalHandle<Interest>, in records: Records) -> Handle<Interest>? {
        guard let interest = records.requests.resolve(claim), !records.isAwaitingRemoval(interest) else { return nil }
        let isStored =
            records.requests[interest].phase == .awaitingSubscriber
            || records.requests[interest].phase == .outcomeOnlyOnDisk && records.durables.hasUnreadResult(interest)
        return isStored ? interest : nil
    }

    /// The next held result to deliver, and its receivers, while these have room; nil if there is none for now. Also
    /// starts reads of results on disk, a few at a time.
    ///
    /// - Parameter budget: number of results that the pass may still deliver or read.
    static func takeNextDeliverableResult(
        _ budget: inout Int, in records: inout Records
    ) -> (interest: Handle<Interest>, subscribers: [Handle<ClientSession>])? {
        while let (handler, claim) = records.storedResults.nextHandlerAndClaim(canRead: records.durables.canRead) {
            guard let claim, records.handlers.contains(handler) else {
                records.storedResults.removeClaimsOfFirstHandler()
                continue
            }
            guard let interest = claimableInterest(claim, in: records) else {
                records.storedResults.removeFirstClaim()
                continue
            }
            let subscribers = records.subscribers(of: handler)
            guard !subscribers.isEmpty else {
                // The next subscriber claims them again.
                records.storedResults.removeClaimsOfFirstHandler()
                continue
            }
            guard subscribers.contains(where: { records.hasRoomForStoredResult($0) }) else {
                records.storedResults.blockFirstHandler(by: subscribers.map { records.clients.reference(to: $0) })
                continue
            }
            guard budget > 0 else {
                records.storedResults.hasDeferredResults = true
                return nil
            }
            guard records.requests[interest].phase != .outcomeOnlyOnDisk || records.durables.canRead else {
                records.storedResults.deferFirstUntilRead()
                continue
            }
            budget -= 1
            records.storedResults.removeFirstClaim()
            if records.requests[interest].phase == .awaitingSubscriber { return (interest, subscribers) }
            if let id = records.durables.beginResultRead(interest) {
                records.outbox.appendAction(.durable(.readResult(id)))
            }
        }
        return nil
    }
}
