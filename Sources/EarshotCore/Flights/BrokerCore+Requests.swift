internal import EarshotHTTP
internal import EarshotWire

/// Requests: acceptance, the flights that they join or begin, and changes of class.
extension BrokerCore {
    /// Handles a FETCH: accepts a new request, repeats a listed one, or refuses it.
    mutating func fetchRequested(_ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: Tick) {
        if fetch.options.delivery == .inline, fetch.options.maxBytes ?? .max > workerLimits.inlineBytes {
            var limited = fetch
            limited.options.maxBytes = workerLimits.inlineBytes
            fetchRequested(limited, body, by: client, now: now)
            return
        }
        if let body, let objection = objection(to: body, of: fetch) {
            refuse(client, objection.code, objection.detail, .fetch(fetch))
            return
        }
        guard !fetch.options.isDurable || !isNode(clients[client].principal) else {
            refuse(client, "not-authorized", "another node stores no requests here", .fetch(fetch))
            return
        }
        guard !fetch.options.replacesHandler else {
            carryOut(ClientRemoval(replacingBy: fetch, body), by: client, now: now)
            return
        }
        accept(fetch, body, by: client, now: now)
    }

    /// Accepts a new request, repeats a listed one, or refuses it. Requests that it replaces are gone.
    mutating func accept(_ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: Tick) {
        let key = key(fetch.handler, of: client)
        removeDoomed(fetch.request, key)
        let handler = handlerNumber(key)
        let isHeard = !fetch.options.subscribes || handlers.isSubscribed(client, to: handler)
        if !isHeard, !hasRoomToSubscribe(client) || !mayShareSubscriptions(client) {
            dropHandlerIfIdle(handler)
            let (code, detail) =
                hasRoomToSubscribe(client)
                ? ("quota", Self.subscriptionQuotaDetail) : ("too-many-handlers", "unsubscribe from some first")
            refuse(client, code, detail, .fetch(fetch))
            return
        }
        let fingerprint = Fingerprint(of: fetch, body: body).value
        let hash = hash(fetch.request, of: handler)
        if let known = listedInterest(fetch.request, of: handler, hash) {
            guard isTakenByAnother(known, fetch, fingerprint, by: client) else {
                askedAgain(known, fetch, fingerprint, by: client)
                return
            }
            unlist(known)
            freeIfOwed(known)
        }
        let interest = list(fetch, fingerprint, handler, client, hash, now: now)
        if !isHeard { subscribe(client, toHandler: handler) }
        guard !fetch.options.isDurable else {
            keep(interest, fetch, by: client)
            return
        }
        guard let refusal = join(interest, fetch, body, of: clients[client].id) else { return }
        let principal = principal(of: interest)
        let isAbove = !hasRoomForRequest(of: principal) || !quotas.admitsRequests(of: principal)
        if isAbove, listeners(of: handler).isEmpty {
            // Above the limit no terminal is held for a later listener.
            orphan(interest)
        } else {
            let outcome = Outcome(failure: refusal.code, detail: refusal.detail)
            settle(interest, with: outcomes.insert(outcome), now: now)
        }
    }

    private func objection(to body: RequestBody, of fetch: Fetch) -> (code: String, detail: String)? {
        guard HTTPMethod(fetch.options.method)?.canCoalesce != true else {
            return ("bad-message", "a \(fetch.options.method) has no body")
        }
        guard body.byteCount <= limits.requestBodyBytes else {
            return ("limit", "the body is longer than \(limits.requestBodyBytes) bytes")
        }
        return nil
    }

    private func hasRoomToSubscribe(_ client: Handle<ClientSession>) -> Bool {
        handlers.subscriptionCount(of: client) < limits.subscriptionsPerClient
    }

    /// Handles a repeated FETCH of a listed request, as sent after a reconnection. The newest sender becomes the owner.
    private mutating func askedAgain(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>
    ) {
        guard interests[interest].fingerprint == fingerprint else {
            refuse(client, "id-in-use", "this ID is taken by a request that is not settled yet", .fetch(fetch))
            return
        }
        let handler = interests[interest].handler
        askedAgainDurably(interest, by: client)
        guard fetch.options.subscribes else { return }
        switch interests[interest].phase {
        case .open:
            if let owner = interests[interest].owner, owner != client { transfer(interest, from: owner, to: client) }
        case .held, .entering, .recording, .resting: break
        case .delivering:
            if !isDue(interest, to: client) { deliver(interest, to: client) }
        }
        subscribe(client, toHandler: handler)
    }

    /// Makes a client the owner of an open request. A queued request goes to the end of its handler's line.
    private mutating func transfer(
        _ interest: Handle<Interest>, from owner: Handle<ClientSession>, to client: Handle<ClientSession>
    ) {
        let waits = queue.contains(interest)
        queue.remove(interest)
        ownerChains.remove(interest, from: &clients[owner].owned)
        interests[interest].owner = client
        ownerChains.append(interest, to: &clients[client].owned)
        handlers.requestTransferred(of: interests[interest].handler, from: owner, to: client)
        let leaf = leaf(ofOpen: interest)
        if waits { enqueue(interest, for: leaf) } else { receiverChanged(of: leaf) }
    }

    /// Inserts the record of a new request.
    ///
    /// - Parameters:
    ///   - client: the sender, which becomes the owner unless the request belongs to its handler; nil for a request that
    ///     an earlier broker stored.
    ///   - hash: `hash(_:of:)` of its ID.
    mutating func list(
        _ fetch: Fetch, _ fingerprint: UInt64, _ handler: Handle<HandlerEntry>, _ client: Handle<ClientSession>?,
        _ hash: UInt32, now: Tick
    ) -> Handle<Interest> {
        let owner = fetch.options.isOwned ? client : nil
        let interest = interests.insert(
            Interest(
                request: fetch.request, askedAt: now,
                fingerprint: fingerprint, generation: nextSerial(), handler: handler, owner: owner,
                priority: fetch.options.priority, isWarm: fetch.options.isWarm, isFresh: fetch.options.replacesHandler,
                isTriedOnce: fetch.options.retries == 0))
        if let rare = Interest.Extras(fetch.options) { interests[interest].extras = extras.insert(rare) }
        requestNumbers.insert(interest, hash)
        handlers.requestAdded(interest, to: handler, owner: owner)
        quotas.requests(1, of: handlers[handler].principal)
        if let owner { ownerChains.append(interest, to: &clients[owner].owned) }
        ledger.requests.submitted += 1
        ledger.requests.pending += 1
        // The deadline of a durable request is set when it is accepted.
        if !fetch.options.isDurable, let deadline = fetch.options.deadlineMilliseconds {
            let subject = Timer.Subject.deadline(interests.reference(to: interest))
            setTimer(now.advanced(byMilliseconds: deadline), subject)
        }
        return interest
    }

    // MARK: Flights

    /// Attaches a request to an open flight with the same key, or to a new one.
    ///
    /// - Returns: the reason if the request is refused.
    private mutating func join(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ body: RequestBody?, of client: ClientID
    ) -> Refusal? {
        let isNode = cluster != nil && isNode(principal(of: interest))
        // A node that ends, or whose queue is full, still gives its bodies: other nodes would fetch the URLs again.
        if isNode { return deliverHeld(fetch, to: interest) }
        if let refusal = refusal(of: interest) { return refusal }
        do throws(Refusal) {
            let request = try prepared(fetch, for: interests[interest].handler)
            let principal = principal(of: interest)
            if let obstacle = obstacle(toHead: RequestHeads.counted(request), of: client, by: principal) {
                return obstacle
            }
            if let body {
                if let obstacle = obstacle(toBody: body.byteCount, of: client, by: principal) { return obstacle }
                hold(body, of: client, by: principal)
            }
            wait(interest, for: request, fetch.options, body: body?.id, of: client)
            return nil
        } catch {
            return error
        }
    }

    /// Reason to refuse a request at a limit on the number of requests, or while the broker admits none; nil if the
    /// request is accepted.
    @inline(__always)
    func refusal(of interest: Handle<Interest>) -> Refusal? {
        guard !isDraining, limits.isAdmitting else { return Refusal(code: .stopping) }
        let handler = interests[interest].handler
        let principal = handlers[handler].principal
        guard hasRoomForRequest(of: principal) else { return Refusal(code: .queueFull) }
        if let owner = interests[interest].owner,
            Int(clients[owner].owned.count) > limits.requestsPerClient
        {
            return Refusal(code: .queueFull)
        }
        guard quotas.admitsRequests(of: principal) else {
            return Refusal(code: .quota, detail: Self.requestQuotaDetail)
        }
        return handlers[handler].requests.pending <= limits.requestsPerHandler ? nil : Refusal(code: .queueFull)
    }

    /// Whether the number of all open requests admits the newest one, which is of this principal.
    @inline(__always)
    private func hasRoomForRequest(of principal: Handle<Principal>) -> Bool {
        let (pending, most) = (ledger.requests.pending, mostRequests)
        return pending <= most
            && (principal != PrincipalTable.administrator
                || quotas.leavesLastPart(of: most, using: pending, \.requests))
    }

    /// Reason why a request cannot be served at all.
    struct Refusal: Error {
        let code: FailureCode
        /// Sentence that replaces the code's own; nil for that one.
        var detail: String?
    }

    /// Validates a FETCH and makes the request for the server or the cache.
    mutating func prepared(_ fetch: Fetch, for handler: Handle<HandlerEntry>) throws(Refusal) -> HTTPRequest {
        let url: FetchURL
        do throws(FetchURL.ParseError) {
            url = try FetchURL(fetch.url, hosts: facilities.hosts)
        } catch {
            throw Refusal(code: .malformedURL, detail: error.description)
        }
        // Only the broker itself reads bodies of other nodes.
        guard url.isHTTP || url.scheme != BodyPlace.scheme else { throw Refusal(code: .unsupportedScheme) }
        // A user's own worker may disappear with the broker, and its scheme is not on disk.
        guard url.isHTTP || !fetch.options.isDurable && takes(String(url.scheme), of: handlers[handler].principal)
        else {
            throw Refusal(code: .unsupportedScheme)
        }
        guard let method = HTTPMethod(fetch.options.method), method.isAllowed,
            method.canCoalesce || !fetch.options.coalesces
        else { throw Refusal(code: .unsupportedMethod) }
        let fields: HeaderFields
        do throws(HeaderFieldError) {
            fields = try HeaderFields(request: fetch.httpFields)
        } catch {
            throw Refusal(code: .badHeader, detail: error.description)
        }
        let mayBeCached = facilities.isCaching && fetch.options.coalesces && url.isHTTP
        guard fetch.options.cache != .onlyIfCached || mayBeCached else {
            throw Refusal(code: .notCached)
        }
        let request = HTTPRequest(method: method, url: url, fields: fields, route: fetch.options.route)
        if let proxy = request.route.proxy, proxy != Route.noProxy {
            do throws(ProxyAddress.ParseError) {
                _ = try ProxyAddress(proxy)
            } catch {
                throw Refusal(code: .malformedURL, detail: error.description)
            }
        }
        guard fetch.options.usesCookies, url.isHTTP else { return request }
        let root = handlers.rootName(of: handler)
        let principal = handlers[handler].principal
        guard openJar(of: root, by: principal) else {
            throw principal == PrincipalTable.administrator
                ? Refusal(code: .queueFull) : Refusal(code: .quota, detail: Self.cookieQuotaDetail)
        }
        return withCookies(request, of: root)
    }

    /// Attaches a request without conditions to an open flight with its key, or to a new one.
    mutating func joinOrBegin(
        _ request: HTTPRequest, _ partition: String?, for interest: Handle<Interest>, _ options: Fetch.Options,
        body: BodyID?, of client: ClientID
    ) {
        let flight = openFlight(
            request, redirect: request.url.isHTTP ? options.redirect : .manual,
            in: pool(for: request.url, of: interest), partition: partition,
            isAlone: !options.coalesces, body: body, mode: request.mode(options.cache))
        if flight.isNew {
            holdHead(of: request, for: .flight(flight.number), of: client, by: principal(of: interest))
        }
        if !flight.isNew, !request.route.decodes { keepFields(of: request, for: interest, flight.number, of: client) }
        attach(interest, to: flight.number, options, joined: !flight.isNew)
    }

    /// The open flight with this key, or a new one that is queued or looked up in the cache.
    ///
    /// - Parameters:
    ///   - pool: pool of a new flight.
    ///   - isAlone: whether to begin a new flight that no other request can join.
    ///   - isExact: whether all fields of the request are part of the key.
    mutating func openFlight(
        _ request: HTTPRequest, redirect: RedirectMode, in pool: Handle<WorkerPool> = WorkerPool.web,
        partition: String?, isAlone: Bool, body: BodyID?, mode: CacheMode, isExact: Bool = false
    ) -> (number: Handle<Flight>, isNew: Bool) {
        let key = FlightKey(
            request, redirect: redirect, partition: partition, alone: isAlone ? flights.nextID : nil, mode: mode,
            isExact: isExact)
        if let flight = joinedFlight(key) { return (flight, false) }
        let flight = beginFlight(
            request, redirect: redirect, in: pool, partition: partition, key, isAlone: isAlone, body: body)
        askCache(for: flight, request)
        return (flight, true)
    }

    /// The open flight that a request with this key joins, in the stricter of both modes; nil if it needs a new one.
    @inline(__always)
    private mutating func joinedFlight(_ key: FlightKey) -> Handle<Flight>? {
        if isRemoving, let flight = flights.joinable(key) ?? flights.laxer(key) { removeDoomed(from: flight) }
        if let flight = flights.joinable(key) { return flight }
        guard let flight = flights.laxer(key) else { return nil }
        flights.tighten(flight, to: key)
        return flight
    }

    /// Inserts a new flight in phase `queued`, without interests and not yet in the queue.
    mutating func beginFlight(
        _ request: HTTPRequest, redirect: RedirectMode, in pool: Handle<WorkerPool> = WorkerPool.web,
        partition: String?,
        _ key: FlightKey, isAlone: Bool, body: BodyID?
    ) -> Handle<Flight> {
        let scope = scopeNumber(of: request, in: pool)
        governor.flightJoined(scope)
        let flight = flights.begin(
            request, redirect: redirect, partition: partition, key, scope: scope, isAlone: isAlone, body: body)
        if let body { requestBodies.retain(body) }
        ledger.flights.started += 1
        return flight
    }

    /// The request with this ID while the ID is taken.
    @inline(__always)
    func listedInterest(_ request: RequestID, of handler: Handle<HandlerEntry>) -> Handle<Interest>? {
        listedInterest(request, of: handler, hash(request, of: handler))
    }

    /// - Parameter hash: `hash(_:of:)` of the ID.
    @inline(__always)
    func listedInterest(_ request: RequestID, of handler: Handle<HandlerEntry>, _ hash: UInt32) -> Handle<Interest>? {
        requestNumbers.find(hash) { interests[$0].handler == handler && interests[$0].request == request }
    }

    @inline(__always)
    func hash(_ request: RequestID, of handler: Handle<HandlerEntry>) -> UInt32 {
        NumberHash.of(
            UInt64(truncatingIfNeeded: request.description.hashValue), UInt64(UInt32(bitPattern: handler.number)))
    }

    /// Adds an interest to a flight: into the queue, or to its running attempt.
    mutating func attach(
        _ interest: Handle<Interest>, to flight: Handle<Flight>, _ options: Fetch.Options, joined: Bool
    ) {
        interests[interest].flight = flight
        interests[interest].isShared = joined
        flights.attach(interest, to: flight)
        if joined { ledger.flights.joined += 1 }
        loosen(flight, options)
        let leaf = flights.leaf(of: flight)
        switch flights[leaf].phase {
        case .queued: enqueue(interest, for: leaf)
        case .claiming: promoteClaim(of: leaf, to: interests[interest].priority)
        case .running(let worker):
            raise(leaf, at: worker, to: options.maxBytes)
            // A request that joins a running transfer learns of the bytes received so far.
            if let lease = workers[worker].leases[attempt(of: leaf)], lease.receivedBytes > 0 {
                tellProgress(of: interest, lease, now: clock)
            }
        case .asking: receiverChanged(of: leaf)
        case .backingOff, .following, .ended: break
        }
    }

    /// Raises timeout and retries of a flight, and of the flights it was redirected to, to those of its newest request.
    private mutating func loosen(_ flight: Handle<Flight>, _ options: Fetch.Options) {
        var next = flight
        while true {
            flights[next].timeoutMilliseconds = max(
                flights[next].timeoutMilliseconds, UInt32(clamping: options.timeoutMilliseconds))
            flights[next].retries = max(flights[next].retries, UInt8(clamping: options.retries))
            guard case .following(let child) = flights[next].phase else { return }
            next = child
        }
    }

    /// Raises the size limit of a running attempt to that of its newest request.
    mutating func raise(_ flight: Handle<Flight>, at worker: Handle<WorkerSession>, to maxBytes: Int?) {
        let attempt = attempt(of: flight)
        guard workers.raise(attempt, to: maxBytes, at: worker) else { return }
        actions.append(.worker(.send(workers[worker].id, .raise(attempt, maxBytes: maxBytes))))
    }

    /// The last of the redirects of an open request's flight.
    @inline(__always)
    func leaf(ofOpen interest: Handle<Interest>) -> Handle<Flight> {
        guard let flight = interests[interest].flight else {
            preconditionFailure("request \(interest) is \(interests[interest].phase) and has no flight")
        }
        return flights.leaf(of: flight)
    }

    /// Queues an interest for a flight in phase `queued`: its own flight, or the end of its chain of redirects.
    mutating func enqueue(_ interest: Handle<Interest>, for leaf: Handle<Flight>, first: Bool = false) {
        // Suspects wait in a list of their pool instead.
        guard !flights[leaf].isSuspect else { return }
        let record = interests[interest]
        let place = FairQueue.Place(
            pool: pool(of: leaf), principal: principal(of: interest), priority: record.priority,
            root: handlers[record.handler].root, client: record.owner,
            origin: origin(of: leaf), scope: flights[leaf].scope, handler: record.handler)
        let isImpatient = record.extras.map { extras[$0].waitMilliseconds != nil } ?? false
        queue.push(interest, at: place, first: first, isFresh: record.isFresh, isImpatient: isImpatient)
        if isImpatient { waitForCoolDown(interest, of: place.scope) }
    }

    /// Calls `body` for each interest in a flight and in the flights redirected to it. O(interests).
    mutating func forEachInterest(of flight: Handle<Flight>, _ body: (inout BrokerCore, Handle<Interest>) -> Void) {
        // A shortcut without an array: most flights have one interest.
        if let only = flights.onlyInterest(of: flight) {
            body(&self, only)
            return
        }
        for interest in flights.interests(of: flight) { body(&self, interest) }
    }

    /// Queues a flight and its interests for the next attempt.
    mutating func enqueue(flight: Handle<Flight>, first: Bool = false) {
        flights.enter(.queued, flight)
        guard !flights[flight].isSuspect else {
            enqueue(suspect: flight)
            return
        }
        if flights[flight].isRevalidation {
            revalidations.append(flights.name(of: flight))
        }
        if flights[flight].isHosted || holdsClaim(flight) {
            pools.returned(flights.name(of: flight), to: pool(of: flight))
        }
        forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: flight, first: first) }
    }

    /// Ends a flight without interests, and then those it was redirected to, unless something else needs them.
    ///
    /// - Parameters:
    ///   - isAtOnce: whether one that runs ends now, without a deferred cancellation.
    ///   - message: the message that removed its last request; nil if none did.
    mutating func dropIfUnwanted(_ flight: Handle<Flight>, isAtOnce: Bool = true, by message: MessageMark? = nil) {
        guard !flights[flight].isWanted else {
            if flights[flight].isHosted { leaveToOtherNodes(flight) }
            return
        }
        switch flights[flight].phase {
        case .asking, .queued, .claiming, .backingOff: break
        case .running where !isAtOnce && !flights[flight].isAlone, .ended where !isAtOnce:
            flights.deferCancellation(of: flight, by: message)
            return
        case .ended: break
        case .running(let worker):
            guard cluster == nil || !goesOnForCluster(flight) else { return }
            cancelAttempt(of: flight, at: worker)
        case .following(let child):
            flights.unfollow(child, by: flight)
            dropIfUnwanted(child, isAtOnce: isAtOnce, by: message)
        }
        forget(flight)
    }

    /// Frees a flight's record, its key, and everything that it holds.
    mutating func forget(_ flight: Handle<Flight>) {
        if let response = flights.endDeferral(of: flight)?.outcome?.response { drop(response) }
        storePart(of: flight)
        dropCachePlan(of: flight)
        if cluster != nil { leaveCluster(flight) }
        probeEnded(flight, isAnswered: false)
        if let body = flights[flight].body { release(body) }
        releaseHead(of: .flight(flight))
        let scope = flights[flight].scope
        flights.remove(flight)
        leave(governor.flightLeft(scope))
    }

    // MARK: Changes

    /// Handles PRIORITY: changes the class of an open request and its place in the queue. The class of a running
    /// transfer stays.
    mutating func priorityRequested(
        _ handler: HandlerID, _ request: RequestID, _ priority: PriorityClass, by client: Handle<ClientSession>
    ) {
        guard let number = handlers.number(of: key(handler, of: client)),
            let interest = listedInterest(request, of: number)
        else {
            refuse(client, "unknown-request", "there is no such request", .priority(handler, request, priority))
            return
        }
        guard interests[interest].phase == .open, interests[interest].priority != priority else { return }
        let waits = queue.contains(interest)
        queue.remove(interest)
        interests[interest].priority = priority
        let leaf = leaf(ofOpen: interest)
        if flights[leaf].phase == .claiming { promoteClaim(of: leaf, to: priority) }
        if waits { enqueue(interest, for: leaf) }
    }
}
