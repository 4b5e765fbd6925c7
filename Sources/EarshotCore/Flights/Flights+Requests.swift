internal import EarshotHTTP
internal import EarshotWire

/// Acceptance of requests: their limits and records. `BrokerCore+Requests` calls it for each FETCH.
extension Flights {
    /// The error about the body of a FETCH; nil for one that is accepted.
    static func bodyError(of body: RequestBody, of fetch: Fetch, in records: inout Records) -> ErrorReply? {
        guard HTTPMethod(fetch.options.method)?.canCoalesce != true else {
            return ErrorReply(code: "bad-message", detail: "a \(fetch.options.method) has no body")
        }
        let most = records.limits.maximumRequestBodyBytes
        return body.byteCount <= most ? nil : ErrorReply(code: "limit", detail: "the body is longer than \(most) bytes")
    }

    /// Reason to refuse a request at a limit on the number of requests, or while the broker admits none; nil if the
    /// request is accepted.
    @inline(__always)
    static func admissionRefusal(of interest: Handle<Interest>, in records: inout Records) -> RequestRefusal? {
        guard !records.isDraining, records.limits.acceptsNewRequests else {
            return RequestRefusal(code: .brokerStopping)
        }
        let handler = records.requests[interest].handler
        let principal = records.handlers[handler].principal
        guard hasRoomForRequest(of: principal, in: &records) else { return RequestRefusal(code: .queueFull) }
        if let owner = records.requests[interest].owner,
            Int(records.clients[owner].ownedRequests.count) > records.limits.maximumOpenRequestsPerClient
        {
            return RequestRefusal(code: .queueFull)
        }
        guard records.quotaUse.admitsRequests(of: principal) else {
            return RequestRefusal(code: .quotaExceeded, detail: QuotaRefusalText.tooManyRequests)
        }
        return records.handlers[handler].requestCounts.pending <= records.limits.maximumOpenRequestsPerHandler
            ? nil : RequestRefusal(code: .queueFull)
    }

    /// Whether the number of all open requests admits the newest one, which is of this principal.
    @inline(__always)
    static func hasRoomForRequest(of principal: Handle<Principal>, in records: inout Records) -> Bool {
        let (pending, most) = (records.ledger.requests.pending, records.maximumOpenRequests)
        return pending <= most
            && (principal != PrincipalTable.administrator
                || records.quotaUse.leavesReservedPart(of: most, using: pending, \.openRequests))
    }

    /// Inserts the record of a new request.
    ///
    /// - Parameters:
    ///   - client: the sender, which becomes the owner unless the request belongs to its handler; nil for a request
    ///     that an earlier broker stored.
    ///   - hash: `RequestBook.requestIDHash` of its ID.
    static func insertRequest(
        _ fetch: Fetch, _ fingerprint: UInt64, _ handler: Handle<HandlerEntry>, _ client: Handle<ClientSession>?,
        _ hash: UInt32, now: MonotonicTime, in records: inout Records
    ) -> Handle<Interest> {
        let owner = fetch.options.endsWithSession ? client : nil
        let interest = records.requests.insertInterest(
            Interest(
                request: fetch.request, requestedAt: now,
                contentHash: fingerprint, generation: records.nextSerial(), handler: handler, owner: owner,
                priority: fetch.options.priority, usesWarmDelivery: fetch.options.isCacheWarming,
                isReplacement: fetch.options.replacesHandler, endsAfterOneAttempt: fetch.options.retries == 0),
            idHash: hash)
        if let rare = Interest.RareOptions(nonDefault: fetch.options) {
            records.requests.setRareOptions(of: interest, rare)
        }
        if records.clusterState != nil, fetch.options.ageMilliseconds > 0, !fetch.options.isDurable {
            records.requests.updateRareOptions(of: interest) { $0.ageMilliseconds = fetch.options.ageMilliseconds }
        }
        records.handlers.requestAdded(interest, to: handler, owner: owner)
        records.quotaUse.addRequests(1, of: records.handlers[handler].principal)
        if let owner { records.requests.appendOpenRequest(interest, toOwned: &records.clients[owner].ownedRequests) }
        records.ledger.requests.submitted += 1
        records.ledger.requests.pending += 1
        // The deadline of a durable request is set when it is accepted.
        if !fetch.options.isDurable, let deadline = fetch.options.deadlineMilliseconds {
            let subject = CoreTimer.TimerEvent.requestDeadline(records.requests.reference(to: interest))
            records.setTimer(at: now.advanced(byMilliseconds: deadline), for: subject)
        }
        return interest
    }
}
