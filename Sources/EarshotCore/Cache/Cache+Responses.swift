internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Storage of responses of origins, and revalidation of stored ones.
extension Cache {
    /// Stores an origin's response as far as the rules allow.
    ///
    /// - Parameter triesAgain: whether another attempt follows, so that the response is not stored.
    /// - Returns: the next step of the flight; nil if the response goes to its requests.
    static func responseReceived(
        _ response: Outcome.Response, _ fields: HeaderFields, for flight: Handle<Flight>, triesAgain: Bool,
        now: MonotonicTime, in records: inout Records
    ) -> FlightStep? {
        guard !records.flights[flight].servesSingleRequest else {
            invalidate(after: response, fields, to: records.flights[flight].request, in: &records)
            return nil
        }
        let requestTime = records.calendarSeconds - Int64(now.milliseconds(since: response.startedAt) / 1_000)
        if let stored = records.cachePlans[flight]?.storedVariant {
            if response.status == 304, stored.response.hasValidator {
                records.releaseResponse(response)
                return handleNotModified(flight, stored, fields, requestTime: requestTime, now: now, in: &records)
            }
            replaceStoredResponse(stored, of: flight, response, fields, requestTime: requestTime, in: &records)
        } else if !triesAgain {
            storeResponse(flight, response, fields, requestTime: requestTime, in: &records)
        }
        guard endRevalidation(of: flight, in: &records) else { return nil }
        records.releaseResponse(response)
        return .discardFlight
    }

    /// Handles a 304: updates the stored response and answers with it, or discards it and fetches again.
    private static func handleNotModified(
        _ flight: Handle<Flight>, _ stored: CacheVariant, _ fields: HeaderFields, requestTime: Int64,
        now: MonotonicTime, in records: inout Records
    ) -> FlightStep {
        let freshening = cacheRule(for: flight, in: &records).freshening(
            of: stored.response, by304: fields, to: records.flights[flight].request, requestTime: requestTime,
            responseTime: records.calendarSeconds)
        let key = cacheKey(of: flight, in: &records)
        var stored = stored
        switch freshening {
        case .replaceStored(let response):
            stored.response = response
            records.outbox.actions.append(.cache(.updateStoredFields(key, stored.entryID, response)))
            return useStoredResponse(stored, for: flight, as: .revalidated, now: now, in: &records)
        case .useOnceThenRemove(let response):
            stored.response = response
            // The body is read before it is discarded.
            defer { records.outbox.actions.append(.cache(.discardEntry(key, stored.entryID))) }
            return useStoredResponse(stored, for: flight, as: .revalidated, now: now, in: &records)
        case .otherRepresentation, .noEffect:
            records.outbox.actions.append(.cache(.discardEntry(key, stored.entryID)))
            return fetchFromOrigin(flight, in: &records)
        }
    }

    /// Replaces or discards the stored response after a response other than 304. An error of the server (5xx, 429)
    /// leaves the stored response in place.
    private static func replaceStoredResponse(
        _ stored: CacheVariant, of flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields,
        requestTime: Int64, in records: inout Records
    ) {
        let key = cacheKey(of: flight, in: &records)
        guard records.flights[flight].method == .get else {
            let freshening = cacheRule(for: flight, in: &records).freshening(
                of: stored.response, byHead: response.status, fields, to: records.flights[flight].request,
                requestTime: requestTime, responseTime: records.calendarSeconds)
            switch freshening {
            case .replaceStored(let response):
                records.outbox.actions.append(.cache(.updateStoredFields(key, stored.entryID, response)))
            case .useOnceThenRemove, .otherRepresentation:
                records.outbox.actions.append(.cache(.discardEntry(key, stored.entryID)))
            case .noEffect: break
            }
            return
        }
        guard response.status < 500, response.status != 429 else { return }
        let kept = storeResponse(flight, response, fields, requestTime: requestTime, in: &records)
        let isReplaced = kept.map { $0.varyKey == stored.response.varyKey } ?? false
        if !isReplaced { records.outbox.actions.append(.cache(.discardEntry(key, stored.entryID))) }
    }

    /// Stores a response if the rules allow it and it fits in the cache.
    ///
    /// - Returns: the stored response; nil if it was not stored.
    @discardableResult
    private static func storeResponse(
        _ flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields, requestTime: Int64,
        in records: inout Records
    ) -> StoredResponse? {
        let limit = records.settings[.cacheSize] ?? .max
        guard limit > 0 else { return nil }
        let mode = records.flights[flight].cacheMode
        let rule = cacheRule(for: flight, in: &records)
        // The attempt of an earlier broker may have ended some time ago.
        let age = Int64(records.latestEventTime.milliseconds(since: response.endedAt) / 1_000)
        // The cache would evict a response larger than its limit at once.
        guard response.bodyLength < limit, !response.isBodyOmitted,
            case .store(let stored) = rule.storeDecision(
                status: response.status, response: fields, to: records.flights[flight].request, mode: mode,
                requestTime: requestTime, responseTime: records.calendarSeconds - age),
            isWorthStoring(stored, of: flight, rule, in: &records)
        else {
            if mode == .reload, response.status < 400 {
                records.outbox.actions.append(.cache(.invalidateURLs([cacheKey(of: flight, in: &records).url])))
            }
            return nil
        }
        // The SHA-256 names the stored body, and later proves that it is complete.
        guard let sha256 = response.sha256 ?? (response.bodyLength == 0 ? "" : nil) else { return nil }
        records.ledger.cache.storedResponses += 1
        let entry = nextEntryID(in: &records)
        let variant = CacheVariant(
            entry: entry, response: stored, length: response.bodyLength, sha256: sha256.isEmpty ? nil : sha256)
        let owner = storageOwner(of: flight, in: &records)
        if let file = response.bodyFile { records.outcomes.markFileShared(file) }
        let key = cacheKey(of: flight, in: &records)
        records.outbox.actions.append(
            .cache(.storeResponse(key, variant, response.inlineBody, file: response.bodyFile, owner: owner)))
        return stored
    }

    /// Returns a new identifier. Identifiers ascend, so that the index of the cache grows at its end. The first one is
    /// made of the time and of random bits, so that it is not one of an earlier broker, even if the clock went back.
    private static func nextEntryID(in records: inout Records) -> CacheEntryID {
        let seconds = UInt64(min(max(records.calendarSeconds, 0), Int64(UInt32.max)))
        let last =
            records.lastCacheEntryID ?? CacheEntryID(rawValue: seconds << 30 | records.randomGenerator.next() >> 34)
        let entry = CacheEntryID(rawValue: last.rawValue + 1)
        records.lastCacheEntryID = entry
        return entry
    }

    /// Whether a storable response can ever be used: by the rules of HTTP, or because a request overrides them
    /// (`force-cache`, or a warm request).
    private static func isWorthStoring(
        _ stored: StoredResponse, of flight: Handle<Flight>, _ rule: CacheRule, in records: inout Records
    ) -> Bool {
        if rule.isUsable(stored, now: records.calendarSeconds) { return true }
        if records.flights[flight].cacheMode == .forceCache { return true }
        var isWarm = false
        records.forEachInterest(of: flight) { records, interest in
            if records.requests[interest].usesWarmDelivery { isWarm = true }
        }
        return isWarm
    }

    /// Invalidates stored responses after an unsafe request. The flight of such a request has no other interests.
    private static func invalidate(
        after response: Outcome.Response, _ fields: HeaderFields, to request: HTTPRequest, in records: inout Records
    ) {
        let urls = CacheRule().invalidatedURLs(status: response.status, response: fields, to: request)
        if !urls.isEmpty { records.outbox.actions.append(.cache(.invalidateURLs(urls))) }
    }

    // MARK: Revalidation

    /// Key of the flight that validates a stored response in the background (`stale-while-revalidate`), at most one per
    /// key. Nil if none starts. At the bound the next request that uses the response tries again.
    static func revalidationKey(for flight: Handle<Flight>, in records: inout Records) -> FlightKey? {
        let record = records.flights[flight]
        let key = FlightKey(
            record.request, redirect: record.redirect, partition: record.partition, alone: nil, mode: .noCache,
            isExact: record.requiresEqualFields)
        guard records.flights.handle(of: key) == nil,
            records.queuedRevalidations.count < records.limits.maximumQueuedRevalidations,
            !records.isDraining
        else { return nil }
        return key
    }

    /// Plans the revalidation of a stored response that a flight uses.
    ///
    /// - Parameter revalidation: the flight that validates it.
    static func beginRevalidation(
        of stored: CacheVariant, adding: HeaderFields, by revalidation: Handle<Flight>, for flight: Handle<Flight>,
        in records: inout Records
    ) {
        records.flights[revalidation].isRevalidation = true
        records.flights[revalidation].timeoutMilliseconds = records.flights[flight].timeoutMilliseconds
        let owner = storageOwner(of: flight, in: &records)
        records.cachePlans[revalidation] = CachePlan(addedFields: adding, storedVariant: stored, owner: owner)
        records.queuedRevalidations.append(records.flights.name(of: revalidation))
    }

    /// Ends the cache's own interest in a flight. The flight continues if requests wait for it.
    ///
    /// - Returns: whether nothing needs the flight any more.
    static func endRevalidation(of flight: Handle<Flight>, in records: inout Records) -> Bool {
        guard records.flights[flight].isRevalidation else { return false }
        records.flights[flight].isRevalidation = false
        return !records.flights.isAwaitedByRequest(flight)
    }

    // MARK: End

    /// Removes the cache plan of a flight that ends, and its fallback.
    @inline(__always)
    static func flightEnded(_ flight: Handle<Flight>, in records: inout Records) {
        guard !records.cachePlans.isEmpty else { return }
        if let outcome = removePlan(of: flight, in: &records)?.fallbackFailure { records.releaseOutcome(outcome) }
    }
}
