internal import EarshotHTTP
internal import EarshotWire

/// Acceptance of requests: their limits and records. `BrokerCore+Requests` calls it for each FETCH.
extension Flights {
    /// The error about the body of a FETCH; nil for one that is accepted.
    static func objection(to body: RequestBody, of fetch: Fetch, in records: inout Records) -> ErrorReply? {
        guard HTTPMethod(fetch.options.method)?.canCoalesce != true else {
            return ErrorReply(code: "bad-message", detail: "a \(fetch.options.method) has no body")
        }
        let most = records.limits.requestBodyBytes
        return body.byteCount <= most ? nil : ErrorReply(code: "limit", detail: "the body is longer than \(most) bytes")
    }

    /// Reason to refuse a request at a limit on the number of requests, or while the broker admits none; nil if the
    /// request is accepted.
    @inline(__always)
    static func refusal(of interest: Handle<Interest>, in records: inout Records) -> RequestRefusal? {
        guard !records.isDraining, records.limits.isAdmitting else { return RequestRefusal(code: .stopping) }
        let handler = records.requests[interest].handler
        let principal = records.handlers[handler].principal
        guard hasRoom(of: principal, in: &records) else { return RequestRefusal(code: .queueFull) }
        if let owner = records.requests[interest].owner,
            Int(records.clients[owner].ownedRequests.count) > records.limits.requestsPerClient
        {
            return RequestRefusal(code: .queueFull)
        }
        guard records.quotas.admitsRequests(of: principal) else {
            return RequestRefusal(code: .quota, detail: QuotaDetail.request)
        }
        return records.handlers[handler].requests.pending <= records.limits.requestsPerHandler
            ? nil : RequestRefusal(code: .queueFull)
    }

    /// Whether the number of all open requests admits the newest one, which is of this principal.
    @inline(__always)
    static func hasRoom(of principal: Handle<Principal>, in records: inout Records) -> Bool {
        let (pending, most) = (records.ledger.requests.pending, records.mostRequests)
        return pending <= most
            && (principal != PrincipalTable.administrator
                || records.quotas.leavesLastPart(of: most, using: pending, \.requests))
    }

    /// Inserts the record of a new request.
    ///
    /// - Parameters:
    ///   - client: the sender, which becomes the owner unless the request belongs to its handler; nil for a request that
    ///     an earlier broker stored.
    ///   - hash: `RequestBook.hash` of its ID.
    static func list(
        _ fetch: Fetch, _ fingerprint: UInt64, _ handler: Handle<HandlerEntry>, _ client: Handle<ClientSession>?,
        _ hash: UInt32, now: Tick, in records: inout Records
    ) -> Handle<Interest> {
        let owner = fetch.options.isOwned ? client : nil
        let interest = records.requests.insert(
            Interest(
                request: fetch.request, requestedAt: now,
                fingerprint: fingerprint, generation: records.nextSerial(), handler: handler, owner: owner,
                priority: fetch.options.priority, isWarm: fetch.options.isWarm,
                isReplacement: fetch.options.replacesHandler,
                isTriedOnce: fetch.options.retries == 0), hash)
        if let rare = Interest.Extras(fetch.options) { records.requests.setExtras(of: interest, rare) }
        records.handlers.requestAdded(interest, to: handler, owner: owner)
        records.quotas.requests(1, of: records.handlers[handler].principal)
        if let owner { records.requests.appendOwned(interest, to: &records.clients[owner].ownedRequests) }
        records.ledger.requests.submitted += 1
        records.ledger.requests.pending += 1
        // The deadline of a durable request is set when it is accepted.
        if !fetch.options.isDurable, let deadline = fetch.options.deadlineMilliseconds {
            let subject = Timer.Subject.deadline(records.requests.reference(to: interest))
            records.setTimer(now.advanced(byMilliseconds: deadline), subject)
        }
        return interest
    }
}
