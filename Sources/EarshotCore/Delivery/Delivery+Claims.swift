internal import EarshotWire
internal import OrderedCollections

/// Stored results: held ones in memory and results on disk. They wait where they are while too many terminals wait for
/// their receivers, so that a client that reads is never due more than the bounds allow.
extension Delivery {
    /// Claims all stored results of a handler for its listeners. O(requests of the handler).
    ///
    /// - Returns: whether there are any.
    static func claimResults(of handler: Handle<HandlerEntry>, in records: inout Records) -> Bool {
        var claimed: [GenerationalHandle<Interest>] = []
        if records.handlers[handler].heldCount > 0 {
            for interest in records.handlers.requests(of: handler) where records.requests[interest].phase == .held {
                claimed.append(records.requests.reference(to: interest))
            }
        }
        if !records.handlers[handler].restingRequests.isEmpty {
            claimed += records.handlers.restingRequests(of: handler).map { records.requests.reference(to: $0) }
        }
        guard !claimed.isEmpty else { return false }
        records.storedResults.claim(claimed, of: handler)
        return true
    }

    /// Claims a result on disk for the listeners of its handler. They receive it in this pass at the earliest.
    static func claimResult(_ interest: Handle<Interest>, in records: inout Records) {
        let handler = records.requests[interest].handler
        // Removed requests may leave claims behind.
        if records.storedResults.claimCount(of: handler) > 64 + 2 * Int(records.handlers[handler].interests.count) {
            let claims = records.storedResults.claimed(of: handler).filter { claimable($0, in: records) != nil }
            records.storedResults.claim(claims, of: handler)
        }
        records.storedResults.claim(records.requests.reference(to: interest), of: handler)
    }

    /// The request of a claim; nil if its result is not stored any more, or is being read.
    @inline(__always)
    static func claimable(_ claim: GenerationalHandle<Interest>, in records: Records) -> Handle<Interest>? {
        guard let interest = records.requests.resolve(claim), !records.isDoomed(interest) else { return nil }
        let isStored =
            records.requests[interest].phase == .held
            || records.requests[interest].phase == .resting && records.durables.isUnread(interest)
        return isStored ? interest : nil
    }

    /// The next held result to deliver, and its receivers, while these have room; nil if there is none for now. Results on
    /// disk are read on the way, few at once.
    ///
    /// - Parameter budget: number of results that the pass may still deliver or read.
    static func nextClaim(
        _ budget: inout Int, in records: inout Records
    ) -> (interest: Handle<Interest>, listeners: [Handle<ClientSession>])? {
        while let (handler, claim) = records.storedResults.takeTurn(canRead: records.durables.canRead) {
            guard let claim, records.handlers.contains(handler) else {
                records.storedResults.dropClaims()
                continue
            }
            guard let interest = claimable(claim, in: records) else {
                records.storedResults.dropFirst()
                continue
            }
            let listeners = records.listeners(of: handler)
            guard !listeners.isEmpty else {
                // The next listener claims them again.
                records.storedResults.dropClaims()
                continue
            }
            guard listeners.contains(where: { records.hasRoom($0) }) else {
                records.storedResults.block(by: listeners.map { records.clients.reference(to: $0) })
                continue
            }
            guard budget > 0 else {
                records.storedResults.isBehind = true
                return nil
            }
            guard records.requests[interest].phase != .resting || records.durables.canRead else {
                records.storedResults.awaitRead()
                continue
            }
            budget -= 1
            records.storedResults.dropFirst()
            if records.requests[interest].phase == .held { return (interest, listeners) }
            if let id = records.durables.beginRead(interest) { records.outbox.append(.durable(.readResult(id))) }
        }
        return nil
    }
}
