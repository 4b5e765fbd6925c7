internal import DequeModule
internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Requests: their expected acceptance, coalescing and results.
extension ReferenceModel {
    func fetchRequested(_ fetch: Fetch, by client: SessionRecord) {
        guard fetch.options.replacesHandler else {
            fetchAccepted(fetch, by: client)
            return
        }
        removeAll(of: fetch.handler, by: client)
        withdrawTerminals(client.unsentNames.filter { $0.handler == fetch.handler }, from: client)
        removalsUnderWay[client.connection] = .fetch(fetch)
    }

    func fetchAccepted(_ fetch: Fetch, by client: SessionRecord) {
        let name = RequestName(handler: fetch.handler, request: fetch.request)
        if fetch.options.subscribes, !client.subscribedHandlers.contains(fetch.handler), !hasRoomToSubscribe(client) {
            expectedReplies[client.connection] = .error("too-many-handlers")
            ledgerInvariant = 11
            return
        }
        if let known = requestsByName[name], !known.isSame(as: fetch) {
            expectedReplies[client.connection] = .error("id-in-use")
            return
        }
        if let known = requestsByName[name] {
            guard isTakenByAnother(known, fetch, for: client) else {
                fetchRepeated(known, fetch, by: client)
                return
            }
            freeName(known)
        }
        lastSerial += 1
        let request = RequestRecord(
            name, fetch, owner: fetch.options.subscribes ? client.id : nil, serial: lastSerial)
        requestsByName[name] = request
        requestsByHandler[fetch.handler, default: [:]][lastSerial] = request
        if request.owner != nil { client.ownedRequests[lastSerial] = request }
        ledger.requests.submitted += 1
        ledger.requests.pending += 1
        if let deadline = fetch.options.deadlineMilliseconds {
            let at = now.advanced(byMilliseconds: deadline)
            timers.insert(ModelTimer(dueAt: at, subject: .deadline(request)))
        }
        if fetch.options.subscribes { addSubscriber(client, to: fetch.handler) }
        if let code = refusalCode(of: fetch, by: client, isOwned: request.owner != nil) {
            if code == "queue-full" { ledgerInvariant = 11 }
            if code == "unsupported-scheme" { ledgerInvariant = 14 }
            let isOrphaned = maximumPendingRemovals > 0 && coreLedger.requests.orphaned > ledger.requests.orphaned
            if ledger.requests.pending > limits.maximumOpenRequests || isOrphaned,
                subscribers(of: fetch.handler).isEmpty
            {
                // Beyond the limit, not even a record is kept for later subscribers.
                orphanRequest(request)
            } else {
                endRequest(request, Ending(code: code))
            }
        } else {
            let fields = fetch.httpFields.isEmpty ? Self.fields(of: fetch.options.cacheMode) : fetch.httpFields
            var job = JobContent(method: fetch.options.method, url: fetch.url, fields: fields)
            if !job.hasWebScheme {
                job.pool = poolName(for: job.scheme, of: Self.principalAndHandler(of: fetch.handler).principal)
            }
            let redirect = job.hasWebScheme ? fetch.options.redirectMode : .manual
            let alone = fetch.options.coalesces ? nil : request.serial
            let deliversErrors = fetch.options.route.deliversErrorResponses
            joinFlight(
                request,
                FlightContent(
                    job: job, redirect: redirect, deliversErrors: deliversErrors,
                    principal: Self.principalAndHandler(of: fetch.handler).principal, soleRequestSerial: alone))
        }
    }

    /// Returns the fields that a JOB adds for its flight's cache mode. Simulated requests with fields have the mode
    /// `default`.
    private static func fields(of mode: CacheMode) -> [UInt8] {
        switch mode {
        case .noStore, .reload: Array("pragma: no-cache\ncache-control: no-cache".utf8)
        case .noCache: Array("cache-control: max-age=0".utf8)
        case .default, .explicit, .forceCache, .onlyIfCached: []
        }
    }

    /// Returns why a request is rejected; nil if it is accepted. The limits are invariant 11.
    private func refusalCode(of fetch: Fetch, by client: SessionRecord, isOwned: Bool) -> String? {
        if isDraining { return "stopping" }
        // Its subscription may have delivered held results.
        let ofHandler = requests(of: fetch.handler)
        let isDelivered = { [isHeldInCore] (request: RequestRecord) in
            request.phase == .awaitingSubscriber && !isHeldInCore(request.name)
        }
        let delivered = ofHandler.count(where: isDelivered)
        let pending = ledger.requests.pending - delivered
        if pending > limits.maximumOpenRequests { return "queue-full" }
        let owned =
            client.ownedRequests.count - ofHandler.count { client.ownedRequests[$0.serial] != nil && isDelivered($0) }
        if isOwned, owned > limits.maximumOpenRequestsPerClient { return "queue-full" }
        let kept = ofHandler.count { $0.phase != .ended } - delivered
        if kept > limits.maximumOpenRequestsPerHandler { return "queue-full" }
        let code = invalidRequestCode(of: fetch)
        // Requests that are being removed count, too, but not how many of them are this client's.
        let isCrowded =
            pending + maximumPendingRemovals > limits.maximumOpenRequests
            || isOwned && owned + maximumPendingRemovals > limits.maximumOpenRequestsPerClient
        if maximumPendingRemovals > 0, isCrowded,
            !isOpenInCore(RequestName(handler: fetch.handler, request: fetch.request))
        {
            let refused = "queue-full"
            let (counted, own) = (coreLedger.requests.failed, ledger.requests.failed)
            if code == nil || counted[refused, default: 0] > own[refused, default: 0] {
                return refused
            }
        }
        return code
    }

    /// Returns why a request cannot be served at all; nil if it can.
    private func invalidRequestCode(of fetch: Fetch) -> String? {
        guard fetch.url.utf8.contains(UInt8(ascii: ":")) else { return "malformed-url" }
        guard acceptsScheme(fetch.url.prefix { $0 != ":" }, of: Self.principalAndHandler(of: fetch.handler).principal)
        else {
            return "unsupported-scheme"
        }
        let isShared = fetch.options.coalesces && !["GET", "HEAD"].contains(fetch.options.method)
        if isShared || fetch.options.method == "TRACE" { return "unsupported-method" }
        return fetch.httpFields.starts(with: "host:".utf8) ? "bad-header" : nil
    }

    /// Handles a repeated request: the latest client becomes its owner and subscriber.
    private func fetchRepeated(_ request: RequestRecord, _ fetch: Fetch, by client: SessionRecord) {
        guard fetch.options.subscribes else { return }
        switch request.phase {
        case .open:
            if let owner = request.owner, owner != client.id {
                sessions[owner]?.ownedRequests[request.serial] = nil
                request.owner = client.id
                client.ownedRequests[request.serial] = request
            }
        case .awaitingSubscriber: break
        case .ended:
            if !isTerminalDue(request, to: client) { expectTerminal(request, to: client) }
        }
        addSubscriber(client, to: fetch.handler)
    }

    func isTerminalDue(_ request: RequestRecord, to client: SessionRecord) -> Bool {
        let isExpected = client.unsentTerminals[request.name]?.contains { $0 === request } ?? false
        return isExpected || (client.unacknowledgedTerminals + client.redeliveries).contains { $0 === request }
    }

    // MARK: Flights

    private func joinFlight(_ request: RequestRecord, _ content: FlightContent) {
        let (flight, isNew) = openOrNewFlight(content)
        request.flight = flight
        request.hasJoinedFlight = !isNew
        flight.requests[request.serial] = request
        raiseSizeLimit(flight.redirectLeaf, to: request.fetch.options.maximumBodyBytes)
        var next: FlightRecord? = flight
        while let each = next {
            each.retries = max(each.retries, request.fetch.options.retries)
            next = each.child
        }
    }

    /// Raises the limit of a running attempt to that of a new request: invariant 8.
    func raiseSizeLimit(_ flight: FlightRecord, to maximumBodyBytes: Int?) {
        guard case .running = flight.phase, let attempt = flight.attempt, let present = flight.maximumBodyBytes,
            maximumBodyBytes.map({ $0 > present }) ?? true
        else { return }
        flight.maximumBodyBytes = maximumBodyBytes
        expectedRaise = (attempt, maximumBodyBytes)
    }

    /// Returns the open flight of this content, or a new one: invariants 3 and 5.
    func openOrNewFlight(_ content: FlightContent) -> (FlightRecord, isNew: Bool) {
        if let flight = openFlights[content] { return (flight, false) }
        let flight = FlightRecord(content)
        openFlights[content] = flight
        unnamedFlights[content.job, default: []].append(flight)
        enterOrigin(content.job)
        return (flight, true)
    }

    /// Counts an open flight at its origin.
    func enterOrigin(_ job: JobContent) {
        origins[job.origin, default: OriginRecord(job.origin, limits.originRules)].flightOpened(now: now)
        scopes[ScopeName(job), default: ScopeRecord()].openFlightCount += 1
    }

    /// Removes an open request from its flight. A flight without requests is cancelled: invariant 4.
    ///
    /// - Parameters:
    ///   - client: Client that removed the request by a message.
    ///   - isAtOnce: Whether a running flight is cancelled now.
    func detachFromFlight(_ request: RequestRecord, by client: SessionRecord? = nil, isAtOnce: Bool = false) {
        guard let flight = request.flight else { return }
        request.flight = nil
        flight.requests[request.serial] = nil
        cancelIfUnwanted(flight, isAtOnce: isAtOnce, by: client)
    }

    /// Settles flights without requests. Such a flight is cancelled unless it was rejoined, or its client's input is
    /// not yet read, up to a limit of messages. A result that arrived meanwhile is delivered to rejoined requests.
    func resolveAbandonedFlights(unread: [ClientID]) {
        let flights = flightsWithoutRequests
        flightsWithoutRequests = []
        for flight in flights where flight.phase != .over {
            guard !flight.isWanted else {
                flight.isAbandoned = false
                guard let ending = flight.abandonedEnding else { continue }
                flight.abandonedEnding = nil
                endFlight(flight, ending)
                continue
            }
            if let (id, lastReceived) = flight.abandoningClient, unread.contains(id), let client = connections[id],
                client.lastReceived >= lastReceived,
                client.lastReceived - lastReceived < UInt64(limits.maximumCancellationDeferralMessages)
            {
                flightsWithoutRequests.append(flight)
            } else {
                cancelIfUnwanted(flight)
            }
        }
    }

    /// - Parameters:
    ///   - isAtOnce: Whether a running flight is cancelled now, instead of after its client's next messages.
    ///   - client: Client that removed its last request by a message.
    func cancelIfUnwanted(_ flight: FlightRecord, isAtOnce: Bool = true, by client: SessionRecord? = nil) {
        guard !flight.isWanted else { return }
        let isEnding =
            if case .running = flight.phase { flight.content.soleRequestSerial == nil } else {
                flight.abandonedEnding != nil
            }
        if isEnding, !isAtOnce {
            if !flight.isAbandoned { flightsWithoutRequests.append(flight) }
            flight.isAbandoned = true
            flight.abandoningClient = client.map { ($0.connection, $0.lastReceived) }
            return
        }
        if case .running(let worker) = flight.phase, let attempt = flight.attempt {
            pool[worker]?.leases[attempt]?.flight = nil
            expectedCancellations.insert(attempt)
        }
        if let child = flight.child {
            flight.child = nil
            child.parents.removeAll { $0 === flight }
            cancelIfUnwanted(child, isAtOnce: isAtOnce, by: client)
        }
        closeFlight(flight)
    }

    /// Closes a flight's record.
    func closeFlight(_ flight: FlightRecord) {
        flight.phase = .over
        openFlights[flight.content] = nil
        if let id = flight.id { flightsByID[id] = nil } else { removeUnnamedFlight(flight) }
        leaveOrigin(flight)
    }

    /// Ends the count of a flight at its origin.
    func leaveOrigin(_ flight: FlightRecord) {
        let job = flight.content.job
        transferEndedInScope(flight, isAnswered: false)
        let scope = ScopeName(job)
        scopes[scope]?.openFlightCount -= 1
        if let record = scopes[scope], record.openFlightCount == 0 {
            if case .coolingDown = record.state {
                scopes[scope]?.wasIdleDuringCoolDown = true
            } else {
                scopes[scope] = nil
            }
        }
        origins[job.origin]?.flightClosed()
    }

    func transferEndedInScope(_ flight: FlightRecord, isAnswered: Bool) {
        scopes[ScopeName(flight.content.job)]?.transferEnded(flight, isAnswered: isAnswered)
    }

    func removeUnnamedFlight(_ flight: FlightRecord) {
        unnamedFlights[flight.content.job]?.removeAll { $0 === flight }
        if unnamedFlights[flight.content.job]?.isEmpty == true { unnamedFlights[flight.content.job] = nil }
    }

    // MARK: Ends

    /// Ends an open request that is no longer in a flight: each subscriber must get one terminal, invariant 1.
    func endRequest(_ request: RequestRecord, _ ending: Ending) {
        guard subscribers(of: request.name.handler).isEmpty else {
            deliverResult(request, endingWithSpoolRoom(for: ending, of: request))
            return
        }
        let held = requests(of: request.name.handler).count { $0.phase == .awaitingSubscriber }
        let isLost = isSpoolFull && mustSpill(ending, of: request, waiting: held + 1)
        if isLost { ledgerInvariant = 11 }
        holdResult(request, isLost ? Ending(code: "spool-full", attempts: ending.attempts) : ending)
    }

    /// Delivers the result of a request to its subscribers.
    /// - Parameter isOrdered: Whether the order of the results of this event is known.
    func deliverResult(_ request: RequestRecord, _ ending: Ending, isOrdered: Bool = true) {
        moveFromPending(request) { requests in
            if let code = ending.code { requests.failed[code, default: 0] += 1 } else { requests.answered += 1 }
        }
        if ending.mayBeSpoolFull { uncertainResults.append(ending.code) }
        publishResult(request, ending, to: subscribers(of: request.name.handler), isOrdered: isOrdered)
    }

    private func holdResult(_ request: RequestRecord, _ ending: Ending) {
        request.phase = .awaitingSubscriber
        request.ending = ending
        startGracePeriod(of: request)
    }

    private func startGracePeriod(of request: RequestRecord) {
        let at = now.advanced(byMilliseconds: limits.subscriberGraceMilliseconds)
        timers.insert(ModelTimer(dueAt: at, subject: .graceEnd(request)))
    }

    func publishResult(
        _ request: RequestRecord, _ ending: Ending, to subscribers: Set<ClientID>, isOrdered: Bool = true
    ) {
        request.phase = .ended
        request.ending = ending
        // An owner without subscription acknowledges nothing, so it does not free the name.
        if let owner = request.owner, !subscribers.contains(owner) { request.owner = nil }
        for subscriber in subscribers {
            guard let client = sessions[subscriber] else { continue }
            expectTerminal(request, to: client)
            // The number of terminals before this one decides whether the client has to be closed.
            if isSpoolFull, isOrdered { disconnectSlowReader(request, ending, for: client) }
        }
        if subscribers.isEmpty { forgetRequest(request) }
    }

    private func expectTerminal(_ request: RequestRecord, to client: SessionRecord) {
        client.expectTerminal(request)
        request.outstandingTerminals += 1
        ledger.deliveries.started += 1
        ledger.deliveries.outstanding += 1
    }

    /// Moves a request from pending to another count of the ledger.
    func moveFromPending(_ request: RequestRecord, _ change: (inout Ledger.Requests) -> Void) {
        ledger.requests.pending -= 1
        change(&ledger.requests)
        if let owner = request.owner { sessions[owner]?.ownedRequests[request.serial] = nil }
    }

    private func orphanRequest(_ request: RequestRecord) {
        if request.phase == .open { detachFromFlight(request) }
        moveFromPending(request) { $0.orphaned += 1 }
        request.phase = .ended
        forgetRequest(request)
    }

    func freeName(_ request: RequestRecord) {
        guard request.occupiesName else { return }
        request.occupiesName = false
        requestsByName[request.name] = nil
        requestsByHandler[request.name.handler]?[request.serial] = nil
        if requestsByHandler[request.name.handler]?.isEmpty == true { requestsByHandler[request.name.handler] = nil }
    }

    /// Frees the request's name and drops its result.
    func forgetRequest(_ request: RequestRecord) {
        freeName(request)
        request.ending = nil
    }

    // MARK: Time

    /// Fires timers. A deadline ends only its own request, invariant 8.
    func timePassed() {
        while let moment = timers.min, moment.dueAt <= now {
            timers.removeMin()
            switch moment.subject {
            case .deadline(let request):
                guard request.phase == .open else { continue }
                ledgerInvariant = 8
                let attempts = Int(request.flight?.redirectLeaf.attempts ?? 0)
                detachFromFlight(request)
                endRequest(request, Ending(code: "deadline", attempts: attempts))
            case .lease(let client, let until): sessionLeaseExpired(client, until: until)
            case .schemeLost(let scheme, let absence): schemes[scheme]?.absenceEnded(absence)
            case .isolationWait(let flight, let deaths):
                if flight.workerDeaths == deaths { flight.requiresIsolation = false }
            case .pingTimeout(let worker, let pingedAt): pingTimedOut(worker, pingedAt: pingedAt)
            case .graceEnd(let request):
                guard request.phase == .awaitingSubscriber else { continue }
                if subscribers(of: request.name.handler).isEmpty {
                    orphanRequest(request)
                } else {
                    startGracePeriod(of: request)
                }
            case .spoolRetry: isSpoolFull = false
            case .abandonedRemoval(let request):
                guard let until = request.abandonedUntil, until <= now, request.phase != .ended else { continue }
                orphanRequest(request)
            }
        }
        endCoolDownWaits()
    }

    /// Ends the requests that the core has ended because of their `wait-ms`. It may know a longer pause than the model.
    private func endCoolDownWaits() {
        let limited = openFlights.values.flatMap(\.requests.values).filter {
            $0.fetch.options.coolDownWaitMilliseconds != nil && !isOpenInCore($0.name)
        }
        for request in limited.sorted(by: { $0.serial < $1.serial }) {
            guard let leaf = request.flight?.redirectLeaf else { continue }
            if case .serving? = scopes[ScopeName(leaf.content.job)]?.state {
                recordViolation(8, "\(request.name) ends for a cool-down that there is not")
            }
            // A pause after a refusal may be the cool-down.
            expect(
                leaf.phase == .waiting || leaf.phase == .pausing, 8,
                "\(request.name) ends for a cool-down while it is \(leaf.phase)")
            ledgerInvariant = 8
            detachFromFlight(request)
            endRequest(request, Ending(code: "origin-cooling", attempts: Int(leaf.attempts)))
        }
    }

    func drain() {
        isDraining = true
        for worker in pool.values where worker.isReady {
            if worker.isUserWorker, worker.acceptsDrain, !worker.isLeaving { expectedDrains.insert(worker.id) }
            worker.isLeaving = true
        }
    }
}
