internal import EarshotHTTP
internal import EarshotWire

/// The cache: looked up before a flight is queued, and updated with the responses of origins. The shell stores the
/// responses; `CacheRule` decides which of them a request may use, and how. The functions return the next step of the
/// flight.
enum Cache {
    // MARK: Answers

    /// Use of the answer to a lookup.
    enum Answer {
        /// The next step of the flight.
        case step(FlightStep)
        /// Use of a stored response, and its validation in the background.
        case useWhileRevalidating(of: CacheVariant, adding: HeaderFields)
    }

    /// Decides how to use the answer to a lookup: the stored variants of a flight's URL, in any order.
    static func lookupCompleted(
        _ flight: Handle<Flight>, _ variants: [CacheVariant], now: MonotonicTime, in records: inout Records
    ) -> Answer {
        guard records.flights[flight].phase == .lookingUp,
            records.cachePlans[flight].map({ $0.readingSource == nil && !$0.waitsForReceiverRoom }) ?? true
        else { return .step(.noFurtherAction) }
        _ = removePlan(of: flight, in: &records)
        let record = records.flights[flight]
        let decision = cacheRule(for: flight, in: &records).decision(
            for: record.request, mode: record.cacheMode, stored: variants.map(\.response), now: records.calendarSeconds)
        switch decision {
        case .useVariant(let index, let range):
            guard !waitIfReceiversFull(flight, in: &records) else { return .step(.noFurtherAction) }
            return .step(useStoredResponse(variants[index], range, for: flight, as: .cache, now: now, in: &records))
        case .useAndRevalidate(let index, let conditions):
            guard !waitIfReceiversFull(flight, in: &records) else { return .step(.noFurtherAction) }
            return .useWhileRevalidating(of: variants[index], adding: conditions)
        case .validate(let index, let conditions):
            records.cachePlans[flight] = CachePlan(addedFields: conditions, storedVariant: variants[index])
            return .step(.enqueueFlight(isFirst: false))
        case .fetch(let adding, let stale):
            if stale != nil || !adding.isEmpty {
                records.cachePlans[flight] = CachePlan(addedFields: adding, storedVariant: stale.map { variants[$0] })
            }
            return .step(.enqueueFlight(isFirst: false))
        case .notCached: return .step(notCachedFailure(of: flight, in: &records))
        }
    }

    /// Takes the body that was read for a flight.
    ///
    /// - Returns: the next step; nil if the flight does not wait for the body.
    static func cachedBodyRead(
        _ body: CachedBody, sha256: String?, for flight: Handle<Flight>, now: MonotonicTime, in records: inout Records
    ) -> FlightStep? {
        guard records.flights[flight].phase == .lookingUp, let plan = records.cachePlans[flight],
            let stored = plan.storedVariant, let source = plan.readingSource
        else { return nil }
        _ = removePlan(of: flight, in: &records)
        guard body != .missing else {
            if let fallback = plan.fallbackFailure { return .endFlight(with: fallback) }
            return records.flights[flight].cacheMode == .onlyIfCached
                ? notCachedFailure(of: flight, in: &records) : fetchFromOrigin(flight, in: &records)
        }
        if let fallback = plan.fallbackFailure { records.releaseOutcome(fallback) }
        return answerFromCache(
            to: flight, stored, plan.requestedRange, body, sha256: sha256 ?? stored.sha256, source, now: now,
            in: &records)
    }

    private static func notCachedFailure(of flight: Handle<Flight>, in records: inout Records) -> FlightStep {
        .failure(.notCached, of: flight, in: &records)
    }

    // MARK: Lookup

    /// Looks up a new flight in the cache before it is queued, if the cache may answer it.
    static func lookUpNewFlight(_ flight: Handle<Flight>, _ request: HTTPRequest, in records: inout Records) {
        let mode = records.flights[flight].cacheMode
        guard records.shellFeatures.isCaching, request.url.isHTTP, !records.flights[flight].servesSingleRequest,
            mayUseCache(request, mode)
        else {
            if mode != .default { planRequestFields(of: flight, in: &records) }
            return
        }
        beginLookup(of: flight, request, in: &records)
    }

    /// Enters `lookingUp`. `lookupCompleted` continues the flight.
    private static func beginLookup(of flight: Handle<Flight>, _ request: HTTPRequest, in records: inout Records) {
        records.cachePlans[flight] = nil
        records.flights.enterPhase(.lookingUp, flight)
        records.ledger.cache.lookups += 1
        requestVariants(for: flight, request, in: &records)
    }

    /// Looks up again a flight that has waited for room.
    static func lookUpAgain(_ flight: Handle<Flight>, in records: inout Records) {
        records.cachePlans[flight] = CachePlan(reservedReceiver: reserveWindowRoom(for: flight, in: &records))
        requestVariants(for: flight, records.flights[flight].request, in: &records)
    }

    private static func requestVariants(for flight: Handle<Flight>, _ request: HTTPRequest, in records: inout Records) {
        let key = CacheKey(request, partition: records.flights[flight].partition ?? "")
        records.outbox.actions.append(.cache(.lookUpVariants(records.flights.name(of: flight), key, request)))
    }

    /// Whether the flight is looked up in the cache. A request that bypasses the cache and may not be fetched either
    /// fails as if nothing were stored.
    private static func mayUseCache(_ request: HTTPRequest, _ mode: CacheMode) -> Bool {
        let bypassesCache = mode == .noStore || mode == .reload || !request.canBeAnsweredByCache
        return !bypassesCache || mode == .onlyIfCached || CacheControl(request: request.fields).onlyIfCached
    }

    static func cacheKey(of flight: Handle<Flight>, in records: inout Records) -> CacheKey {
        CacheKey(records.flights[flight].request, partition: records.flights[flight].partition ?? "")
    }

    /// Rules of the cache for a flight.
    @inline(__always)
    static func cacheRule(for flight: Handle<Flight>, in records: inout Records) -> CacheRule {
        let isShared =
            records.principals.count > 1 && records.settings[.shareBetweenUsers] == 1
            && records.flights[flight].mayServeSeveralUsers
        return CacheRule(isShared: isShared)
    }

    /// Principal whose part of the cache a flight's response takes; nil for the administrator.
    static func storageOwner(of flight: Handle<Flight>, in records: inout Records) -> PrincipalName? {
        if let partition = records.flights[flight].partition {
            return partition.firstIndex(of: " ").flatMap { PrincipalName(String(partition[..<$0])) }
        }
        guard records.principals.count > 1 else { return nil }
        if let interest = records.flights.firstInterest(of: flight) {
            return records.principals.name(of: records.principal(of: interest))
        }
        if let owner = records.cachePlans[flight]?.owner { return owner }
        return records.flights.deferredCancellations[flight]?.message.flatMap { records.clients.handle(of: $0.client) }
            .flatMap { records.principals.name(of: records.clients[$0].principal) }
    }

    /// Queues a flight as if nothing were stored for it.
    static func fetchFromOrigin(_ flight: Handle<Flight>, in records: inout Records) -> FlightStep {
        records.cachePlans[flight] = records.cachePlans[flight]?.owner.map { CachePlan(owner: $0) }
        planRequestFields(of: flight, in: &records)
        return .enqueueFlight(isFirst: true)
    }

    /// Plans the request fields that announce a flight's mode to other caches on the path.
    private static func planRequestFields(of flight: Handle<Flight>, in records: inout Records) {
        let record = records.flights[flight]
        let decision = CacheRule().decision(
            for: record.request, mode: record.cacheMode, stored: [], now: records.calendarSeconds)
        guard case .fetch(let adding, _) = decision, !adding.isEmpty else { return }
        records.cachePlans[flight, default: CachePlan()].addedFields = adding
    }

    // MARK: Use of stored responses

    /// Answers a flight with a stored response. Reads its body first if a request receives it.
    ///
    /// - Parameters:
    ///   - range: range of the body that the flight requests; nil for the whole body.
    ///   - fallback: failure of the origin that the stored response replaces; nil if there was none. Its reference
    ///     passes to the plan, or is released.
    static func useStoredResponse(
        _ stored: CacheVariant, _ range: RequestedRange? = nil, for flight: Handle<Flight>, as source: Terminal.Source,
        fallback: Handle<Outcome>? = nil, now: MonotonicTime, in records: inout Records
    ) -> FlightStep {
        if source == .cache {
            records.ledger.cache.usedResponses += 1
        } else {
            records.ledger.cache.validatedResponses += 1
        }
        let record = records.flights[flight]
        if record.phase == .queued {
            records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
        }
        let isHop = record.redirect != .manual && (300..<400).contains(stored.response.status)
        let isAwaited =
            records.flights.isAwaitedByRequest(flight) || records.flights.deferredCancellations[flight] != nil
        let offsets = range.map { $0.offsets(in: stored.length) }
        guard isAwaited, record.method == .get, stored.length > 0, !isHop, offsets != .some(nil) else {
            records.cachePlans[flight] = nil
            if let fallback { records.releaseOutcome(fallback) }
            return answerFromCache(
                to: flight, stored, range, nil, sha256: stored.sha256, source, now: now, in: &records)
        }
        records.cachePlans[flight] = CachePlan(
            storedVariant: stored, readingSource: source, requestedRange: range, fallbackFailure: fallback,
            reservedReceiver: reserveWindowRoom(for: flight, in: &records))
        records.flights.enterPhase(.lookingUp, flight)
        records.outbox.actions.append(
            .cache(.readBody(records.flights.name(of: flight), stored.entryID, range: offsets ?? nil)))
        return .noFurtherAction
    }

    /// Makes a response of a stored variant, which the flight evaluates like a response of an origin. Takes ownership
    /// of the body.
    private static func answerFromCache(
        to flight: Handle<Flight>, _ stored: CacheVariant, _ range: RequestedRange?, _ body: CachedBody?,
        sha256: String?, _ source: Terminal.Source, now: MonotonicTime, in records: inout Records
    ) -> FlightStep {
        let record = records.flights[flight]
        var (status, length) = (stored.response.status, record.method == .get ? stored.length : 0)
        var fields = stored.response.responseFields(usedAt: records.calendarSeconds)
        if let range {
            let offsets = range.offsets(in: stored.length)
            fields = stored.response.responseFields(
                ofRange: offsets, length: stored.length, usedAt: records.calendarSeconds)
            (status, length) = (offsets == nil ? 416 : 206, offsets?.count ?? 0)
        }
        let response = Outcome.Response(
            status: status, url: record.url.description, bodyLength: length, sha256: length > 0 ? sha256 : nil,
            body: Outcome.Body(body), headerFields: fields.bytes, startedAt: now, endedAt: now, cacheSource: source)
        // A later request was not part of the lookup that this response answers.
        guard !endRevalidation(of: flight, in: &records) else {
            records.releaseResponse(response)
            return .discardFlight
        }
        return .evaluateResponse(response, fields)
    }

    /// Answers a failed flight with a stored response, if its rules allow stale use.
    ///
    /// - Returns: the next step, which may be the reading of the body, and which takes over the reference to the
    ///   outcome; nil if no stored response answers the flight.
    static func useStaleResponse(
        for flight: Handle<Flight>, after outcome: Handle<Outcome>, now: MonotonicTime, in records: inout Records
    ) -> FlightStep? {
        let status = records.outcomes[outcome].response?.status
        // Even if the status is a result for the flight's requests.
        let hasErrorStatus = status.map { $0 >= 400 } == true && records.outcomes[outcome].response?.cacheSource == nil
        guard let failure = records.outcomes[outcome].failure ?? (hasErrorStatus ? .httpStatus : nil),
            records.flights.isAwaitedByRequest(flight), let plan = records.cachePlans[flight],
            plan.readingSource == nil, let stored = plan.storedVariant
        else { return nil }
        let record = records.flights[flight]
        let isAllowed = cacheRule(for: flight, in: &records).mayUseStale(
            stored.response, for: record.request, mode: record.cacheMode, after: failure, status: status,
            now: records.calendarSeconds)
        guard isAllowed else { return nil }
        records.flights[flight].isRevalidation = false
        return useStoredResponse(stored, for: flight, as: .cache, fallback: outcome, now: now, in: &records)
    }
}
