internal import EarshotHTTP
internal import EarshotWire

/// RETRY: a durable request that has failed becomes pending again.
///
/// Its row stays on disk all the time: with the failure until that is deleted, and without a result afterwards. So a crash
/// at any moment leaves one of the two, and the new attempt starts after the deletion.
extension BrokerCore {
    /// Handles RETRY. A failure that a client has received is not repeated, because its acknowledgement may be on the way.
    mutating func retryRequested(_ handler: HandlerID, _ request: RequestID, by client: Handle<ClientSession>) {
        guard let number = handlers.number(of: key(handler, of: client)),
            let interest = listedInterest(request, of: number), isDurable(interest)
        else {
            refuse(client, "unknown-request", "there is no such durable request", .retry(handler, request))
            return
        }
        switch interests[interest].phase {
        case .entering, .open, .recording: askedAgainDurably(interest, by: client)
        case .resting where durables.isUnread(interest) && durables.failure(of: interest) != nil:
            reopen(interest, by: client)
        case .resting, .held, .delivering:
            let detail = "the request has no failure on disk, or a subscriber receives it"
            refuse(client, "unknown-request", detail, .retry(handler, request))
        }
    }

    /// Deletes the failure of a resting request. No limit refuses this, because the request counts as pending already.
    private mutating func reopen(_ interest: Handle<Interest>, by client: Handle<ClientSession>) {
        takeFromRest(interest)
        interests[interest].enter(.entering)
        guard let id = durables.reopen(interest, DurableRecord.Entering(nil, by: asker(client))) else {
            preconditionFailure("request \(interest) is on disk and not in the book")
        }
        actions.append(.durable(.reopen(id, acceptedAt: calendarSeconds)))
    }

    /// Starts a repeated request, whose failure was deleted.
    ///
    /// - Parameter head: the FETCH of the request; nil if the deletion failed, so that the failure waits again.
    public mutating func durableReopened(_ id: DurableID, _ head: [UInt8]?, now: Tick) {
        clock = now
        guard let interest = durables.number(of: id), let entering = durables.entering(interest) else { return }
        guard !isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        let askers = liveAskers(of: entering)
        guard let head, case .fetch(let fetch)? = try? ClientMessage(head: head) else {
            durables.reopenFailed(interest)
            refuse(interest, Refusal(code: .notStored), to: askers)
            rest(interest)
            return
        }
        if let file = durables.reopened(interest, acceptedAt: now) { releaseFile(file) }
        chargeDurable(interest, result: 0)
        startAnew(interest, now: now)
        for asker in askers { reply(.message(.accepted(fetch.handler, fetch.request)), to: asker) }
        setExpiry(of: interest)
        begin(interest, fetch, of: RequestHeads.nobody, now: now)
    }

    /// Forgets the earlier attempts of a request. Its times count from now, and timers of the earlier ones are stale.
    private mutating func startAnew(_ interest: Handle<Interest>, now: Tick) {
        interests[interest].askedAt = now
        interests[interest].generation = nextSerial()
        interests[interest].isShared = false
        if let number = interests[interest].extras { extras[number].redirects = [] }
    }
}
