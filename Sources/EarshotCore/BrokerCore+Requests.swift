internal import EarshotHTTP
internal import EarshotWire

/// Requests: acceptance, the flights that they join or begin, and changes of class.
extension BrokerCore {
    /// Handles a FETCH: accepts a new request, repeats a listed one, or refuses it.
    mutating func fetchRequested(_ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: Tick) {
        if fetch.options.delivery == .inline, fetch.options.maxBytes ?? .max > records.workerLimits.inlineBytes {
            var limited = fetch
            limited.options.maxBytes = records.workerLimits.inlineBytes
            fetchRequested(limited, body, by: client, now: now)
            return
        }
        if let body, let error = Flights.objection(to: body, of: fetch, in: &records) {
            refuse(client, error, .fetch(fetch))
            return
        }
        if fetch.options.isDurable, Cluster.isNode(records.clients[client].principal, in: &records) {
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
        admit(fetch, body, by: client, now: now)
        if !fetch.options.subscribes, !fetch.options.isDurable { confirm(client) }
    }

    private mutating func admit(_ fetch: Fetch, _ body: RequestBody?, by client: Handle<ClientSession>, now: Tick) {
        let key = records.key(fetch.handler, of: client)
        removeDoomed(fetch.request, key)
        let handler = Clients.handler(of: key, in: &records)
        let isSubscribed = !fetch.options.subscribes || records.handlers.isSubscribed(client, to: handler)
        if !isSubscribed, let error = Principals.objection(toSubscriptionOf: client, in: &records) {
            dropHandlerIfIdle(handler)
            return refuse(client, error, .fetch(fetch))
        }
        let fingerprint = Fingerprint(of: fetch, body: body).value
        let hash = RequestBook.hash(fetch.request, of: handler)
        if let known = records.requests.listed(fetch.request, of: handler, hash) {
            guard Delivery.isTakenByAnother(known, fetch, fingerprint, by: client, in: &records) else {
                fetchRepeated(known, fetch, fingerprint, by: client)
                return
            }
            freeID(known)
            freeIfCompact(known)
        }
        let interest = Flights.list(fetch, fingerprint, handler, client, hash, now: now, in: &records)
        if !isSubscribed { subscribe(client, toHandler: handler) }
        guard !fetch.options.isDurable else {
            storeRequest(interest, fetch, by: client)
            return
        }
        guard let refusal = join(interest, fetch, body, of: records.clients[client].id) else { return }
        let principal = records.principal(of: interest)
        let isAbove = !Flights.hasRoom(of: principal, in: &records) || !records.quotas.admitsRequests(of: principal)
        if isAbove, records.listeners(of: handler).isEmpty {
            // Above the limit no terminal is held for a later listener.
            orphan(interest)
        } else {
            let outcome = Outcome(failure: refusal.code, detail: refusal.detail)
            endRequest(interest, with: records.outcomes.insert(outcome), now: now)
        }
    }

    /// Handles a repeated FETCH of a listed request, as sent after a reconnection. The newest sender becomes the owner.
    private mutating func fetchRepeated(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>
    ) {
        guard records.requests[interest].fingerprint == fingerprint else {
            refuse(client, "id-in-use", "this ID is taken by a request that is not settled yet", .fetch(fetch))
            return
        }
        let handler = records.requests[interest].handler
        durableFetchRepeated(interest, by: client)
        guard fetch.options.subscribes else { return }
        switch records.requests[interest].phase {
        case .open:
            if let owner = records.requests[interest].owner, owner != client {
                transfer(interest, from: owner, to: client)
            }
        case .held, .entering, .recording, .resting: break
        case .delivering:
            if !Delivery.isDue(interest, to: client, in: &records) { deliver(interest, to: client) }
        }
        subscribe(client, toHandler: handler)
    }

    /// Makes a client the owner of an open request. A queued request goes to the end of its handler's line.
    private mutating func transfer(
        _ interest: Handle<Interest>, from owner: Handle<ClientSession>, to client: Handle<ClientSession>
    ) {
        let waits = records.queue.contains(interest)
        records.queue.remove(interest)
        records.requests.removeOwned(interest, from: &records.clients[owner].ownedRequests)
        records.requests[interest].owner = client
        records.requests.appendOwned(interest, to: &records.clients[client].ownedRequests)
        records.handlers.requestTransferred(of: records.requests[interest].handler, from: owner, to: client)
        let leaf = records.leaf(ofOpen: interest)
        if waits { enqueue(interest, for: leaf) } else { Cache.receiverChanged(of: leaf, in: &records) }
    }

    // MARK: Flights

    /// Attaches a request to an open flight with the same key, or to a new one.
    ///
    /// - Returns: the reason if the request is refused.
    private mutating func join(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ body: RequestBody?, of client: ClientID
    ) -> RequestRefusal? {
        // A node that ends, or whose queue is full, still gives its bodies: other nodes would fetch the URLs again.
        let isNode = Cluster.isNode(records.principal(of: interest), in: &records)
        if !isNode, let refusal = Flights.refusal(of: interest, in: &records) { return refusal }
        do throws(RequestRefusal) {
            guard !isNode else {
                let outcome = try Cluster.heldBody(for: fetch, of: interest, in: &records)
                endRequest(interest, with: outcome, now: records.clock)
                return nil
            }
            let request = try preparedRequest(fetch, for: records.requests[interest].handler)
            let principal = records.principal(of: interest)
            if let obstacle = Principals.obstacle(
                toHead: RequestHeads.counted(request), of: client, by: principal, in: &records)
            {
                return obstacle
            }
            if let body {
                if let obstacle = Principals.obstacle(toBody: body.byteCount, of: client, by: principal, in: &records) {
                    return obstacle
                }
                records.countBody(body, of: client, by: principal)
            }
            wait(interest, for: request, fetch.options, body: body?.id, of: client)
            return nil
        } catch {
            return error
        }
    }

    /// Validates a FETCH and makes the request for the server or the cache.
    mutating func preparedRequest(_ fetch: Fetch, for handler: Handle<HandlerEntry>) throws(RequestRefusal)
        -> HTTPRequest
    {
        let url: FetchURL
        do throws(FetchURL.ParseError) {
            url = try FetchURL(fetch.url, hosts: records.features.hosts)
        } catch {
            throw RequestRefusal(code: .malformedURL, detail: error.description)
        }
        // Only the broker itself reads bodies of other nodes.
        guard url.isHTTP || url.scheme != BodyAddress.scheme else { throw RequestRefusal(code: .unsupportedScheme) }
        // A user's own worker may disappear with the broker, and its scheme is not on disk.
        guard
            url.isHTTP
                || !fetch.options.isDurable
                    && Workers.accepts(String(url.scheme), of: records.handlers[handler].principal, in: &records)
        else {
            throw RequestRefusal(code: .unsupportedScheme)
        }
        guard let method = HTTPMethod(fetch.options.method), method.isAllowed,
            method.canCoalesce || !fetch.options.coalesces
        else { throw RequestRefusal(code: .unsupportedMethod) }
        let fields: HeaderFields
        do throws(HeaderFieldError) {
            fields = try HeaderFields(request: fetch.httpFields)
        } catch {
            throw RequestRefusal(code: .badHeader, detail: error.description)
        }
        let mayBeCached = records.features.isCaching && fetch.options.coalesces && url.isHTTP
        guard fetch.options.cache != .onlyIfCached || mayBeCached else {
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
                ? RequestRefusal(code: .queueFull) : RequestRefusal(code: .quota, detail: QuotaDetail.cookies)
        }
        return Cookies.add(to: request, of: root, in: &records)
    }

    /// Attaches a request to the flight for its content.
    ///
    /// - Parameter client: sender, whose budget a new flight's head counts against.
    mutating func wait(
        _ interest: Handle<Interest>, for request: HTTPRequest, _ options: Fetch.Options, body: BodyID?,
        of client: ClientID
    ) {
        // By all fields: a validator may identify a user.
        let partition = Principals.partition(of: interest, request, options, in: &records)
        // Without a variable for both requests: a copy costs a twentieth of a submission.
        if options.coalesces, !request.fields.isEmpty,
            let (plain, conditions) = RequestConditions.separated(from: request)
        {
            records.requests.changeExtras(of: interest) { $0.conditions = conditions }
            joinOrBegin(plain, partition, for: interest, options, body: body, of: client)
        } else {
            joinOrBegin(request, partition, for: interest, options, body: body, of: client)
        }
    }

    /// Attaches a request without conditions to an open flight with its key, or to a new one.
    private mutating func joinOrBegin(
        _ request: HTTPRequest, _ partition: String?, for interest: Handle<Interest>, _ options: Fetch.Options,
        body: BodyID?, of client: ClientID
    ) {
        let flight = openFlight(
            request, redirect: request.url.isHTTP ? options.redirect : .manual,
            in: Workers.pool(for: request.url, of: interest, in: &records), partition: partition,
            isAlone: !options.coalesces, body: body, mode: request.mode(options.cache))
        join(flight, request, for: interest, options, of: client)
    }

    /// Attaches a request to the flight that was opened for it.
    mutating func join(
        _ flight: (number: Handle<Flight>, isNew: Bool), _ request: HTTPRequest, for interest: Handle<Interest>,
        _ options: Fetch.Options, of client: ClientID
    ) {
        if flight.isNew {
            records.holdHead(of: request, for: .flight(flight.number), of: client, by: records.principal(of: interest))
        } else if !request.route.decodes {
            Flights.keepFields(of: request, for: interest, flight.number, of: client, in: &records)
        }
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
            request, redirect: redirect, partition: partition, alone: isAlone ? records.flights.nextID : nil,
            mode: mode, isExact: isExact)
        if let flight = joinedFlight(key) { return (flight, false) }
        let flight = Flights.begin(
            request, redirect: redirect, partition: partition, key,
            scope: Origins.scope(of: request, for: pool, in: &records), isAlone: isAlone, body: body, in: &records)
        Cache.flightBegan(flight, request, in: &records)
        return (flight, true)
    }

    /// The open flight that a request with this key joins, in the stricter of both modes; nil if it needs a new one.
    @inline(__always)
    private mutating func joinedFlight(_ key: FlightKey) -> Handle<Flight>? {
        if isRemoving, let flight = records.flights.joinable(key) ?? records.flights.widerFlight(key) {
            removeDoomed(from: flight)
        }
        if let flight = records.flights.joinable(key) { return flight }
        guard let flight = records.flights.widerFlight(key) else { return nil }
        records.flights.tighten(flight, to: key)
        return flight
    }

    /// Adds an interest to a flight: into the queue, or to its running attempt.
    mutating func attach(
        _ interest: Handle<Interest>, to flight: Handle<Flight>, _ options: Fetch.Options, joined: Bool
    ) {
        records.requests[interest].flight = flight
        records.requests[interest].isShared = joined
        records.flights.attach(interest, to: flight)
        if joined { records.ledger.flights.joined += 1 }
        Flights.raiseLimits(of: flight, to: options, in: &records)
        let leaf = records.flights.leaf(of: flight)
        switch records.flights[leaf].phase {
        case .queued: enqueue(interest, for: leaf)
        case .claiming: Cluster.promote(leaf, to: records.requests[interest].priority, in: &records)
        case .running(let worker):
            Workers.raise(leaf, at: worker, to: options.maxBytes, in: &records)
            // A request that joins a running transfer learns of the bytes received so far.
            if let lease = records.workers[worker].leases[records.attempt(of: leaf)], lease.receivedBytes > 0 {
                sendProgress(of: interest, lease, now: records.clock)
            }
        case .asking: Cache.receiverChanged(of: leaf, in: &records)
        case .backingOff, .following, .ended: break
        }
    }

    /// Queues an interest for a flight in phase `queued`: its own flight, or the end of its chain of redirects.
    mutating func enqueue(_ interest: Handle<Interest>, for leaf: Handle<Flight>, first: Bool = false) {
        // Suspects wait in a list of their pool instead.
        guard !records.flights[leaf].isSuspect else { return }
        let record = records.requests[interest]
        let place = FairQueue.QueueKey(
            pool: records.pool(of: leaf), principal: records.principal(of: interest), priority: record.priority,
            root: records.handlers[record.handler].root, client: record.owner,
            origin: records.origin(of: leaf), scope: records.flights[leaf].scope, handler: record.handler)
        let limitsCoolDownWait = record.extras.map { records.requests[$0].waitMilliseconds != nil } ?? false
        records.queue.push(
            interest, at: place, first: first, isReplacement: record.isReplacement,
            limitsCoolDownWait: limitsCoolDownWait)
        if limitsCoolDownWait { Origins.wait(interest, for: place.scope, since: records.clock, in: &records) }
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
    mutating func enqueue(flight: Handle<Flight>, first: Bool = false) {
        records.flights.enter(.queued, flight)
        guard !records.flights[flight].isSuspect else {
            Workers.add(suspect: flight, in: &records)
            return
        }
        if records.flights[flight].isRevalidation {
            records.revalidations.append(records.flights.name(of: flight))
        }
        if records.flights[flight].isHosted || records.claim(of: flight) != nil {
            records.pools.flightReturned(records.flights.name(of: flight), to: records.pool(of: flight))
        }
        forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: flight, first: first) }
    }

    /// Ends a flight without interests, and then those it was redirected to, unless something else needs them.
    ///
    /// - Parameters:
    ///   - isAtOnce: whether one that runs ends now, without a deferred cancellation.
    ///   - message: the message that removed its last request; nil if none did.
    mutating func dropIfUnwanted(_ flight: Handle<Flight>, isAtOnce: Bool = true, by message: MessageMark? = nil) {
        guard !records.flights.isWanted(flight) else {
            if records.flights[flight].isHosted { Cluster.leaveToOtherNodes(flight, in: &records) }
            return
        }
        switch records.flights[flight].phase {
        case .asking, .queued, .claiming, .backingOff: break
        case .running where !isAtOnce && !records.flights[flight].isAlone, .ended where !isAtOnce:
            records.flights.deferCancellation(of: flight, by: message)
            return
        case .ended: break
        case .running(let worker):
            guard !Cluster.goesOn(flight, in: &records) else { return }
            cancelAttempt(of: flight, at: worker)
        case .following(let child):
            records.flights.unfollow(child, by: flight)
            dropIfUnwanted(child, isAtOnce: isAtOnce, by: message)
        }
        forget(flight)
    }

    /// Frees a flight's record, its key, and everything that it holds.
    mutating func forget(_ flight: Handle<Flight>) {
        if let outcome = records.flights.takeOutcome(of: flight) { records.release(outcome) }
        Parts.flightEnded(flight, in: &records)
        Cache.flightEnded(flight, in: &records)
        report(.left(flight))
        Origins.probeEnded(flight, isAnswered: false, in: &records)
        if let body = records.flights[flight].body { records.release(body) }
        records.releaseHead(of: .flight(flight))
        let scope = records.flights[flight].scope
        records.flights.remove(flight)
        Origins.flightLeft(scope, in: &records)
    }

    // MARK: Changes

    /// Handles PRIORITY: changes the class of an open request and its place in the queue. The class of a running
    /// transfer stays.
    mutating func priorityRequested(
        _ handler: HandlerID, _ request: RequestID, _ priority: PriorityClass, by client: Handle<ClientSession>
    ) {
        guard let number = records.handlers.handle(of: records.key(handler, of: client)),
            let interest = records.listedInterest(request, of: number)
        else {
            refuse(client, "unknown-request", "there is no such request", .priority(handler, request, priority))
            return
        }
        guard records.requests[interest].phase == .open, records.requests[interest].priority != priority else { return }
        let waits = records.queue.contains(interest)
        records.queue.remove(interest)
        records.requests[interest].priority = priority
        let leaf = records.leaf(ofOpen: interest)
        if records.flights[leaf].phase == .claiming { Cluster.promote(leaf, to: priority, in: &records) }
        if waits { enqueue(interest, for: leaf) }
    }
}
