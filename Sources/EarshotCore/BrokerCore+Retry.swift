internal import EarshotHTTP
internal import EarshotWire

/// RETRY: a durable request that has failed becomes pending again.
///
/// Its row stays on disk all the time: with the failure until that is deleted, and without a result afterwards. So a crash
/// at any moment leaves one of the two, and the new attempt starts after the deletion.
extension BrokerCore {
    /// Handles RETRY. A failure that a client has received is not repeated, because its acknowledgement may be on the way.
    mutating func retryRequested(_ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>) {
        guard let number = records.handlers.handle(of: records.key(handler, of: client)),
            let interest = records.listedInterest(request, of: number), records.isDurable(interest)
        else {
            refuse(client, "unknown-request", "there is no such durable request", .retry(handler, request))
            return
        }
        switch records.requests[interest].phase {
        case .entering, .open, .recording: durableFetchRepeated(interest, by: client)
        case .resting where records.durables.isUnread(interest) && records.durables.failure(of: interest) != nil:
            reopen(interest, by: client)
        case .resting, .held, .delivering:
            let detail = "the request has no failure on disk, or a subscriber receives it"
            refuse(client, "unknown-request", detail, .retry(handler, request))
        }
    }

    /// Deletes the failure of a resting request. No limit refuses this, because the request counts as pending already.
    private mutating func reopen(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        Durable.takeFromRest(interest, in: &records)
        records.requests[interest].enter(.entering)
        guard let id = records.durables.reopen(interest, DurableRecord.Entering(nil, by: requester(client))) else {
            preconditionFailure("request \(interest) is on disk and not in the book")
        }
        records.outbox.actions.append(.durable(.reopen(id, acceptedAt: records.calendarSeconds)))
    }

    /// Starts a repeated request, whose failure was deleted.
    ///
    /// - Parameter head: the FETCH of the request; nil if the deletion failed, so that the failure waits again.
    public mutating func durableReopened(_ id: DurableID, _ head: [UInt8]?, now: Tick) {
        records.clock = now
        guard let interest = live(id), let entering = records.durables.entering(interest) else { return }
        let requesters = Durable.liveRequesters(of: entering, in: &records)
        guard let head, case .fetch(let fetch)? = try? ClientMessage(head: head) else {
            records.durables.reopenFailed(interest)
            refuse(interest, RequestRefusal(code: .notStored), to: requesters)
            rest(interest)
            return
        }
        if let file = records.durables.reopened(interest, acceptedAt: now) { records.releaseFile(file) }
        records.chargeDurable(interest, result: 0)
        Durable.resetAttempts(interest, now: now, in: &records)
        for requester in requesters { reply(.message(.accepted(fetch.handler, fetch.request)), to: requester) }
        Durable.setExpiry(of: interest, in: &records)
        begin(interest, fetch, of: RequestHeads.noClient, now: now)
    }
}
