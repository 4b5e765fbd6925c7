internal import EarshotHTTP
internal import EarshotWire

/// Requests: acceptance, the flights that they join or begin, and changes of class.
extension BrokerCore {
    /// Handles a FETCH: accepts a new request, repeats a listed one, or refuses it.
    mutating func fetchRequested(
        _ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: MonotonicTime
    ) {
        if fetch.options.delivery == .inline,
            fetch.options.maximumBodyBytes ?? .max > records.workerLimits.maximumInlineBodyBytes
        {
            var limited = fetch
            limited.options.maximumBodyBytes = records.workerLimits.maximumInlineBodyBytes
            fetchRequested(limited, body, by: client, now: now)
            return
        }
        if let body, let error = Flights.bodyError(of: body, of: fetch, in: &records) {
            refuseMessage(of: client, error: error, .fetch(fetch))
            return
        }
        if fetch.options.isDurable, Cluster.isNodePrincipal(records.clients[client].principal, in: &records) {
            refuseMessage(
                of: client, code: "not-authorized", detail: "another node stores no requests here", .fetch(fetch))
            return
        }
        guard !fetch.options.replacesHandler else {
            performRemoval(ClientRemoval(forReplacementFetch: fetch, body), by: client, now: now)
            return
        }
        acceptFetch(fetch, body, by: client, now: now)
    }

    /// Accepts a new request, repeats a listed one, or refuses it. Called after the removal of requests that it
    /// replaces.
    mutating func acceptFetch(
        _ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: MonotonicTime
    ) {
        admitFetch(fetch, body, by: client, now: now)
        if !fetch.options.subscribes, !fetch.options.isDurable { confirmCurrentMessage(of: client) }
    }

    private mutating func admitFetch(
        _ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: MonotonicTime
    ) {
        let key = records.handlerKey(fetch.handler, of: client)
        removeDoomedRequest(fetch.request, key)
        let handler = Clients.findOrCreateHandler(for: key, in: &records)
        let isSubscribed = !fetch.options.subscribes || records.handlers.isSubscribed(client, to: handler)
        if !isSubscribed, let error = Principals.subscriptionError(of: client, in: &records) {
            removeHandlerIfIdle(handler)
            return refuseMessage(of: client, error: error, .fetch(fetch))
        }
        let fingerprint = Fingerprint(of: fetch, body: body).hash64
        let hash = RequestBook.requestIDHash(fetch.request, of: handler)
        if let known = records.requests.interestHoldingID(fetch.request, of: handler, hash) {
            guard Delivery.isFileOwnedByAnother(known, fetch, fingerprint, by: client, in: &records) else {
                fetchRepeated(known, fetch, fingerprint, by: client)
                return
            }
            freeRequestID(of: known)
            freeRequestIfOnlyFailuresDue(known)
        }
        let interest = Flights.insertRequest(fetch, fingerprint, handler, client, hash, now: now, in: &records)
        if !isSubscribed { subscribe(client, toHandler: handler) }
        guard !fetch.options.isDurable else {
            storeRequest(interest, fetch, by: client)
            return
        }
        guard let refusal = joinFlight(interest, fetch, body, of: records.clients[client].id) else { return }
        let principal = records.principal(of: interest)
        let isAbove =
            !Flights.hasRoomForRequest(of: principal, in: &records) || !records.quotaUse.admitsRequests(of: principal)
        if isAbove, records.subscribers(of: handler).isEmpty {
            // Above the limit no terminal is held for a later subscriber.
            endOrphanedRequest(interest)
        } else {
            let outcome = Outcome(failure: refusal.code, detail: refusal.detail)
            endRequest(interest, with: records.outcomes.insert(outcome), now: now)
        }
    }

    /// Handles a repeated FETCH of a listed request, as sent after a reconnection. The newest sender becomes the owner.
    private mutating func fetchRepeated(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>
    ) {
        guard records.requests[interest].contentHash == fingerprint else {
            refuseMessage(
                of: client, code: "id-in-use", detail: "this ID is taken by a request that is not settled yet",
                .fetch(fetch))
            return
        }
        let handler = records.requests[interest].handler
        durableFetchRepeated(interest, by: client)
        guard fetch.options.subscribes else { return }
        switch records.requests[interest].phase {
        case .open:
            if let owner = records.requests[interest].owner, owner != client {
                transferOwnership(of: interest, from: owner, to: client)
            }
        case .awaitingSubscriber, .awaitingDurableAcceptance, .writingOutcome, .outcomeOnlyOnDisk: break
        case .delivering:
            if !Delivery.isTerminalDue(interest, to: client, in: &records) { deliverTerminal(of: interest, to: client) }
        }
        subscribe(client, toHandler: handler)
    }

    /// Makes a client the owner of an open request. A queued request moves to the end of its handler's queue.
    private mutating func transferOwnership(
        of interest: Handle<Interest>, from owner: Handle<ClientSession>, to client: Handle<ClientSession>
    ) {
        let waits = records.queue.contains(interest)
        records.queue.remove(interest)
        records.requests.removeOpenRequest(interest, fromOwned: &records.clients[owner].ownedRequests)
        records.requests[interest].owner = client
        records.requests.appendOpenRequest(interest, toOwned: &records.clients[client].ownedRequests)
        records.handlers.requestTransferred(of: records.requests[interest].handler, from: owner, to: client)
        let leaf = records.lastRedirectedFlight(ofOpen: interest)
        if waits { enqueueInterest(interest, for: leaf) } else { Cache.receiverChanged(of: leaf, in: &records) }
    }

    // MARK: Flights

    /// Attaches a request to an open flight with the same key, or to a new one.
    ///
    /// - Returns: the reason if the request is refused.
    private mutating func joinFlight(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ body: RequestBody?, of client: ClientID
    ) -> RequestRefusal? {
        // A node that ends, or whose queue is full, still serves its bodies. Otherwise other nodes would fetch the URLs
        // again.
        let isNode = Cluster.isNodePrincipal(records.principal(of: interest), in: &records)
        if !isNode, let refusal = Flights.admissionRefusal(of: interest, in: &records) { return refusal }
        do throws(RequestRefusal) {
            guard !isNode else {
                let outcome = try Cluster.heldBody(for: fetch, of: interest, in: &records)
                endRequest(interest, with: outcome, now: records.latestEventTime)
                return nil
            }
            let request = try preparedRequest(fetch, for: records.requests[interest].handler)
            let principal = records.principal(of: interest)
            if let refusal = Principals.quotaRefusal(
                ofHead: RequestHeads.countedBytes(of: request), of: client, by: principal, in: &records)
            {
                return refusal
            }
            if let body {
                if let refusal = Principals.quotaRefusal(
                    ofBody: body.byteCount, of: client, by: principal, in: &records)
                {
                    return refusal
                }
                records.countRequestBody(body, of: client, by: principal)
            }
            attachToFlight(interest, for: request, fetch.options, body: body?.bodyID, of: client)
            return nil
        } catch {
            return error
        }
    }

    /// Validates a FETCH and returns the request for the server or the cache.
    mutating func preparedRequest(
        _ fetch: Fetch, for handler: Handle<HandlerEntry>
    ) throws(RequestRefusal) -> HTTPRequest {
        let url: FetchURL
        do throws(FetchURL.ParseError) {
            url = try FetchURL(fetch.url, hostEncoder: records.shellFeatures.hostNameEncoder)
        } catch {
            throw RequestRefusal(code: .malformedURL, detail: error.description)
        }
        // Only the broker itself reads bodies of other nodes.
        guard url.isHTTP || url.scheme != BodyAddress.scheme else { throw RequestRefusal(code: .unsupportedScheme) }
        // A user's own worker may disappear with the broker, and its scheme is not on disk.
        guard
            url.isHTTP
                || !fetch.options.isDurable
                    && Workers.acceptsScheme(String(url.scheme), of: records.handlers[handler].principal, in: &records)
        else {
            throw RequestRefusal(code: .unsupportedScheme)
        }
        guard let method = HTTPMethod(fetch.options.method), method.isAllowedInRequests,
            method.canCoalesce || !fetch.options.coalesces
        else { throw RequestRefusal(code: .unsupportedMethod) }
        let fields: HeaderFields
        do throws(HeaderFieldError) {
            fields = try HeaderFields(request: fetch.httpFields)
        } catch {
            throw RequestRefusal(code: .badHeader, detail: error.description)
        }
        let mayBeCached = records.shellFeatures.isCaching && fetch.options.coalesces && url.isHTTP
        guard fetch.options.cacheMode != .onlyIfCached || mayBeCached else {
            throw RequestRefusal(code: .notCached)
        }
        let request = HTTPRequest(method: method, url: url, fields: fields, route: fetch.options.route)
        if let proxy = request.route.proxy, proxy != Route.noProxy {
            do throws(ProxyAddress.ParseError) {
                _ = try ProxyAddress(proxy)
            } catch {
                throw RequestRefusal(code: .malformedURL, detail: error.description)
            }
        }
        guard fetch.options.usesCookies, url.isHTTP else { return request }
        let root = records.handlers.rootName(of: handler)
        let principal = records.handlers[handler].principal
        guard Cookies.openJar(of: root, by: principal, in: &records) else {
            throw principal == PrincipalTable.administrator
                ? RequestRefusal(code: .queueFull)
                : RequestRefusal(code: .quotaExceeded, detail: QuotaRefusalText.cookies)
        }
        return Cookies.addCookies(to: request, of: root, in: &records)
    }

    /// Attaches a request to the flight for its content.
    ///
    /// - Parameter client: sender, whose budget a new flight's head counts against.
    mutating func attachToFlight(
        _ interest: Handle<Interest>, for request: HTTPRequest, _ options: Fetch.Options, body: BodyID?,
        of client: ClientID
    ) {
        // By all fields: a validator may identify a user.
        let partition = Principals.partition(of: interest, request, options, in: &records)
        // Two calls instead of one with a variable: a copy of the request costs a twentieth of a submission.
        if options.coalesces, !request.fields.isEmpty,
            let (plain, conditions) = RequestConditions.separateConditions(from: request)
        {
            records.requests.updateRareOptions(of: interest) { $0.clientConditions = conditions }
            joinOrBeginFlight(plain, partition, for: interest, options, body: body, of: client)
        } else {
            joinOrBeginFlight(request, partition, for: interest, options, body: body, of: client)
        }
    }

    /// Attaches a request without conditions to an open flight with its key, or to a new one.
    private mutating func joinOrBeginFlight(
        _ request: HTTPRequest, _ partition: String?, for interest: Handle<Interest>, _ options: Fetch.Options,
        body: BodyID?, of client: ClientID
    ) {
        let flight = openFlight(
            request, redirect: request.url.isHTTP ? options.redirectMode : .manual,
            in: Workers.pool(for: request.url, of: interest, in: &records), partition: partition,
            servesSingleRequest: !options.coalesces, body: body, mode: request.effectiveCacheMode(options.cacheMode))
        joinOpenedFlight(flight, request, for: interest, options, of: client)
    }

    /// Attaches a request to the flight that was opened for it.
    mutating func joinOpenedFlight(
        _ flight: (number: Handle<Flight>, isNew: Bool), _ request: HTTPRequest, for interest: Handle<Interest>,
        _ options: Fetch.Options, of client: ClientID
    ) {
        if flight.isNew {
            records.countRequestHead(
                of: request, for: .flight(flight.number), of: client, by: records.principal(of: interest))
        } else if !request.route.decodesBody {
            Flights.retainRequestFields(of: request, for: interest, flight.number, of: client, in: &records)
        }
        attachInterest(interest, to: flight.number, options, joined: !flight.isNew)
    }

    /// Returns the open flight with this key, or a new one that is queued or looked up in the cache.
    ///
    /// - Parameters:
    ///   - pool: pool of a new flight.
    ///   - servesSingleRequest: whether to begin a new flight that no other request can join.
    ///   - isExact: whether all fields of the request are part of the key.
    mutating func openFlight(
        _ request: HTTPRequest, redirect: RedirectMode, in pool: Handle<WorkerPool> = WorkerPool.webPoolHandle,
        partition: String?, servesSingleRequest: Bool, body: BodyID?, mode: CacheMode, isExact: Bool = false
    ) -> (number: Handle<Flight>, isNew: Bool) {
        let key = FlightKey(
            request, redirect: redirect, partition: partition,
            alone: servesSingleRequest ? records.flights.nextID : nil,
            mode: mode, isExact: isExact)
        if let flight = joinableFlight(key) { return (flight, false) }
        let scope = Origins.originScope(of: request, for: pool, in: &records)
        let flight = Flights.beginFlight(
            request, redirect: redirect, partition: partition, key, scope: scope,
            servesSingleRequest: servesSingleRequest, body: body,
            in: &records)
        Cache.lookUpNewFlight(flight, request, in: &records)
        return (flight, true)
    }

    /// Returns the open flight that a request with this key joins, in the stricter of both modes; nil if it needs a new
    /// one.
    @inline(__always)
    private mutating func joinableFlight(_ key: FlightKey) -> Handle<Flight>? {
        if hasPendingRemovals,
            let flight = records.flights.joinableFlight(key) ?? records.flights.joinableDefaultModeFlight(key)
        {
            removeDoomedRequests(from: flight)
        }
        if let flight = records.flights.joinableFlight(key) { return flight }
        guard let flight = records.flights.joinableDefaultModeFlight(key) else { return nil }
        records.flights.adoptStricterMode(flight, of: key)
        return flight
    }

    /// Adds an interest to a flight: into the queue, or to its running attempt.
    mutating func attachInterest(
        _ interest: Handle<Interest>, to flight: Handle<Flight>, _ options: Fetch.Options, joined: Bool
    ) {
        records.requests[interest].flight = flight
        records.requests[interest].joinedExistingFlight = joined
        records.flights.attachInterest(interest, to: flight)
        if joined { records.ledger.flights.joinedRequests += 1 }
        Flights.raiseRetryLimits(of: flight, to: options, in: &records)
        let leaf = records.flights.endOfRedirectChain(of: flight)
        switch records.flights[leaf].phase {
        case .queued: enqueueInterest(interest, for: leaf)
        case .claiming: Cluster.requestJoined(leaf, interest, in: &records)
        case .running(let worker):
            Workers.raiseSizeLimit(leaf, at: worker, to: options.maximumBodyBytes, in: &records)
            // The subscribers of a request that joins a running transfer get the progress so far.
            if let lease = records.workers[worker].leases[records.currentAttempt(of: leaf)], lease.receivedBytes > 0 {
                sendProgress(of: interest, lease, now: records.latestEventTime)
            }
        case .lookingUp: Cache.receiverChanged(of: leaf, in: &records)
        case .backingOff, .following, .ended: break
        }
    }

    /// Queues an interest for a flight in phase `queued`: its own flight, or the end of its chain of redirects.
    mutating func enqueueInterest(_ interest: Handle<Interest>, for leaf: Handle<Flight>, first: Bool = false) {
        // Suspects wait in a list of their pool instead.
        guard !records.flights[leaf].isSuspectedOfWorkerDeath else { return }
        let record = records.requests[interest]
        let key = FairQueue.QueueKey(
            pool: records.pool(of: leaf), principal: records.principal(of: interest), priority: record.priority,
            root: records.handlers[record.handler].rootHandle, client: record.owner,
            origin: records.origin(of: leaf), scope: records.flights[leaf].originScope, handler: record.handler)
        let limitsCoolDownWait =
            record.rareOptions.map { records.requests[$0].maximumCoolDownWaitMilliseconds != nil } ?? false
        records.queue.push(
            interest, at: key, isFirst: first, isReplacement: record.isReplacement,
            limitsCoolDownWait: limitsCoolDownWait)
        if limitsCoolDownWait {
            Origins.beginCoolDownWait(interest, for: key.scope, since: records.latestEventTime, in: &records)
        }
    }

    /// Calls `body` for each interest in a flight and in the flights redirected to it. O(interests).
    mutating func forEachInterest(of flight: Handle<Flight>, _ body: (inout BrokerCore, Handle<Interest>) -> Void) {
        // A shortcut without an array: most flights have one interest.
        if let only = records.flights.onlyInterest(of: flight) {
            body(&self, only)
            return
        }
        for interest in records.flights.interests(of: flight) { body(&self, interest) }
    }

    /// Queues a flight and its interests for the next attempt.
    mutating func enqueueFlight(_ flight: Handle<Flight>, first: Bool = false) {
        records.flights.enterPhase(.queued, flight)
        guard !records.flights[flight].isSuspectedOfWorkerDeath else {
            Workers.addSuspect(flight, in: &records)
            return
        }
        if records.flights[flight].isRevalidation {
            records.queuedRevalidations.append(records.flights.name(of: flight))
        }
        if records.flights[flight].isAwaitedByOtherNodes || records.clusterClaim(of: flight) != nil {
            records.workerPools.addFlightWithLostWorker(records.flights.name(of: flight), to: records.pool(of: flight))
        }
        forEachInterest(of: flight) { core, interest in core.enqueueInterest(interest, for: flight, first: first) }
    }

    /// Ends a flight without interests, and then those it was redirected to, unless something else needs them.
    ///
    /// - Parameters:
    ///   - isAtOnce: whether a running flight ends now, without a deferred cancellation.
    ///   - message: the message that removed its last request; nil if none did.
    mutating func endFlightIfUnwanted(
        _ flight: Handle<Flight>, isAtOnce: Bool = true, by message: MessagePosition? = nil
    ) {
        guard !records.flights.isResultNeeded(flight) else {
            if records.flights[flight].isAwaitedByOtherNodes { Cluster.leaveToOtherNodes(flight, in: &records) }
            return
        }
        switch records.flights[flight].phase {
        case .lookingUp, .queued, .claiming, .backingOff: break
        case .running where !isAtOnce && !records.flights[flight].servesSingleRequest, .ended where !isAtOnce:
            records.flights.deferCancellation(of: flight, by: message)
            return
        case .ended: break
        case .running(let worker):
            guard !Cluster.continuesForOtherNodes(flight, in: &records) else { return }
            cancelAttempt(of: flight, at: worker)
        case .following(let child):
            records.flights.stopFollowing(child, by: flight)
            endFlightIfUnwanted(child, isAtOnce: isAtOnce, by: message)
        }
        freeFlight(flight)
    }

    /// Frees a flight's record, its key, and everything that it holds.
    mutating func freeFlight(_ flight: Handle<Flight>) {
        if let outcome = records.flights.takeRetainedOutcome(of: flight) { records.releaseOutcome(outcome) }
        Parts.flightEnded(flight, in: &records)
        Cache.flightEnded(flight, in: &records)
        reportFlightEvent(.flightUnneeded(flight))
        Origins.probeEnded(flight, isAnswered: false, in: &records)
        if let body = records.flights[flight].body { records.releaseRequestBody(body) }
        records.uncountRequestHead(of: .flight(flight))
        let scope = records.flights[flight].originScope
        records.flights.remove(flight)
        Origins.flightLeft(scope, in: &records)
    }

    // MARK: Changes

    /// Handles PRIORITY: changes the class of an open request and its place in the queue. The class of a running
    /// transfer stays.
    mutating func priorityRequested(
        _ handler: HandlerID, _ request: RequestID, _ priority: PriorityClass, by client: Handle<ClientSession>
    ) {
        guard let number = records.handlers.handle(of: records.handlerKey(handler, of: client)),
            let interest = records.interestHoldingID(request, of: number)
        else {
            refuseMessage(
                of: client, code: "unknown-request", detail: "there is no such request",
                .setPriority(handler, request, priority))
            return
        }
        guard records.requests[interest].phase == .open, records.requests[interest].priority != priority else { return }
        let waits = records.queue.contains(interest)
        records.queue.remove(interest)
        records.requests[interest].priority = priority
        let leaf = records.lastRedirectedFlight(ofOpen: interest)
        if records.flights[leaf].phase == .claiming { Cluster.promote(leaf, to: priority, in: &records) }
        if waits { enqueueInterest(interest, for: leaf) }
    }
}
