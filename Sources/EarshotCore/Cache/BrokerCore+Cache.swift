internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// The cache: looked up before a flight is queued, and updated with the responses of origins. The shell stores the
/// responses; `CacheRule` decides which of them a request may use, and how.
extension BrokerCore {
    // MARK: Events

    /// Handles the result of a cache lookup for a flight: the stored variants of its URL, in any order.
    public mutating func cacheAnswered(_ name: FlightName, _ variants: [CacheVariant], now: Tick) {
        clock = now
        guard let flight = liveFlight(name), flights[flight].phase == .asking,
            cachePlans[flight].map({ $0.reading == nil && !$0.waitsForRoom }) ?? true
        else { return }
        _ = takeCachePlan(of: flight)
        let record = flights[flight]
        let decision = cacheRule(for: flight).decision(
            for: record.request, mode: record.mode, stored: variants.map(\.response), now: calendarSeconds)
        switch decision {
        case .use(let index, let range):
            guard !waitsForRoom(flight) else { return }
            use(variants[index], range, for: flight, as: .cache, now: now)
        case .useAndRevalidate(let index, let conditions):
            guard !waitsForRoom(flight) else { return }
            beginRevalidation(of: variants[index], adding: conditions, for: flight)
            use(variants[index], for: flight, as: .cache, now: now)
        case .validate(let index, let conditions):
            cachePlans[flight] = CachePlan(adding: conditions, stored: variants[index])
            enqueue(flight: flight)
        case .fetch(let adding, let stale):
            if stale != nil || !adding.isEmpty {
                cachePlans[flight] = CachePlan(adding: adding, stored: stale.map { variants[$0] })
            }
            enqueue(flight: flight)
        case .notCached: fail(flight, .notCached, now: now)
        }
    }

    /// Handles the body read for a flight. The core takes ownership of a file.
    ///
    /// - Parameter sha256: SHA-256 of a range of a body, as 64 hexadecimal digits; nil for a whole body.
    public mutating func cacheRead(_ name: FlightName, _ body: CachedBody, sha256: String? = nil, now: Tick) {
        clock = now
        // The cache's own size limit bounds these bytes.
        if case .file(let file) = body { outcomes.hold(file: file, bytes: 0, isShared: true) }
        guard let flight = liveFlight(name), flights[flight].phase == .asking, let plan = cachePlans[flight],
            let stored = plan.stored, let source = plan.reading
        else {
            drop(body)
            return
        }
        _ = takeCachePlan(of: flight)
        guard body != .missing else {
            if let fallback = plan.fallback {
                end(flight, fallback, now: now)
            } else if flights[flight].mode == .onlyIfCached {
                fail(flight, .notCached, now: now)
            } else {
                fetchAnew(flight)
            }
            return
        }
        if let response = plan.fallback?.response { drop(response) }
        judgeCached(flight, stored, plan.range, body, sha256: sha256 ?? stored.sha256, source, now: now)
    }

    // MARK: Lookup

    /// Looks up a new flight in the cache before it is queued, if the cache may answer it.
    mutating func askCache(for flight: Handle<Flight>, _ request: HTTPRequest) {
        let mode = flights[flight].mode
        guard facilities.isCaching, request.url.isHTTP, !flights[flight].isAlone, Self.mayBeAnswered(request, mode)
        else {
            if mode != .default { planFields(of: flight) }
            return
        }
        lookUp(flight, request)
    }

    /// Enters `asking`. `cacheAnswered` continues the flight.
    private mutating func lookUp(_ flight: Handle<Flight>, _ request: HTTPRequest) {
        cachePlans[flight] = nil
        flights.enter(.asking, flight)
        ledger.cache.asked += 1
        askForVariants(flight, request)
    }

    /// Looks a flight up again that has waited for room.
    mutating func lookUpAgain(_ flight: Handle<Flight>) {
        cachePlans[flight] = CachePlan(reservation: reserveRoom(for: flight))
        askForVariants(flight, flights[flight].request)
    }

    private mutating func askForVariants(_ flight: Handle<Flight>, _ request: HTTPRequest) {
        let key = CacheKey(request, partition: flights[flight].partition ?? "")
        actions.append(.cache(.lookUp(flights.name(of: flight), key, request)))
    }

    /// Whether the flight is looked up in the cache. A request that bypasses the cache and may not be fetched either
    /// fails as if nothing were stored.
    ///
    /// Static, because the compiler copies the references to all tables of the core for an instance method.
    private static func mayBeAnswered(_ request: HTTPRequest, _ mode: CacheMode) -> Bool {
        let isPast = mode == .noStore || mode == .reload || !request.mayBeStored
        return !isPast || mode == .onlyIfCached || CacheControl(request: request.fields).onlyIfCached
    }

    private func cacheKey(of flight: Handle<Flight>) -> CacheKey {
        CacheKey(flights[flight].request, partition: flights[flight].partition ?? "")
    }

    /// Queues a flight as if nothing were stored for it.
    private mutating func fetchAnew(_ flight: Handle<Flight>) {
        cachePlans[flight] = cachePlans[flight]?.owner.map { CachePlan(owner: $0) }
        planFields(of: flight)
        enqueue(flight: flight, first: true)
    }

    /// Plans the request fields that announce a flight's mode to other caches on the path.
    private mutating func planFields(of flight: Handle<Flight>) {
        let record = flights[flight]
        let decision = CacheRule().decision(for: record.request, mode: record.mode, stored: [], now: calendarSeconds)
        guard case .fetch(let adding, _) = decision, !adding.isEmpty else { return }
        cachePlans[flight, default: CachePlan()].adding = adding
    }

    /// Request fields for a flight's JOB.
    @inline(__always)
    func jobFields(of flight: Handle<Flight>) -> HeaderFields {
        guard let plan = cachePlans[flight] else { return flights[flight].fields }
        return plan.request(of: flights[flight].request).fields
    }

    // MARK: Use of stored responses

    /// Answers a flight with a stored response. Reads its body first if a request receives it.
    ///
    /// - Parameters:
    ///   - range: range of the body that the flight requests; nil for the whole body.
    ///   - fallback: failure of the origin that the stored response replaces; nil if there was none.
    private mutating func use(
        _ stored: CacheVariant, _ range: RequestedRange? = nil, for flight: Handle<Flight>, as source: Terminal.Source,
        fallback: Outcome? = nil, now: Tick
    ) {
        if source == .cache { ledger.cache.used += 1 } else { ledger.cache.validated += 1 }
        let record = flights[flight]
        if record.phase == .queued { forEachInterest(of: flight) { core, interest in core.queue.remove(interest) } }
        let isHop = record.redirect != .manual && (300..<400).contains(stored.response.status)
        let isAwaited = record.isAwaited || flights.deferrals[flight] != nil
        let offsets = range.map { $0.offsets(in: stored.length) }
        guard isAwaited, record.method == .get, stored.length > 0, !isHop, offsets != .some(nil) else {
            cachePlans[flight] = nil
            if let response = fallback?.response { drop(response) }
            judgeCached(flight, stored, range, nil, sha256: stored.sha256, source, now: now)
            return
        }
        cachePlans[flight] = CachePlan(
            stored: stored, reading: source, range: range, fallback: fallback,
            reservation: reserveRoom(for: flight))
        flights.enter(.asking, flight)
        actions.append(.cache(.read(flights.name(of: flight), stored.entry, range: offsets ?? nil)))
    }

    /// Makes a response of a stored variant, and decides about it like about a response of an origin. Takes ownership
    /// of the body.
    private mutating func judgeCached(
        _ flight: Handle<Flight>, _ stored: CacheVariant, _ range: RequestedRange?, _ body: CachedBody?,
        sha256: String?, _ source: Terminal.Source, now: Tick
    ) {
        let record = flights[flight]
        var (status, length) = (stored.response.status, record.method == .get ? stored.length : 0)
        var fields = stored.response.fields(usedAt: calendarSeconds)
        if let range {
            let offsets = range.offsets(in: stored.length)
            fields = stored.response.fields(ofRange: offsets, length: stored.length, usedAt: calendarSeconds)
            (status, length) = (offsets == nil ? 416 : 206, offsets?.count ?? 0)
        }
        var response = Outcome.Response(
            status: status, url: record.url.description, length: length, sha256: length > 0 ? sha256 : nil, file: nil,
            body: nil, fields: fields.bytes, startedAt: now, endedAt: now, source: source)
        switch body {
        case .inline(let id)?: response.body = id
        case .file(let name)?: response.file = name
        case .missing?, nil: break
        }
        // A later request was not part of the lookup that this response answers.
        guard !endRevalidation(of: flight) else {
            drop(response)
            return
        }
        judge(flight, response, fields, now: now)
    }

    /// Answers a failed flight with a stored response, if its rules allow stale use.
    ///
    /// - Returns: whether the flight is answered, now or after the body was read.
    mutating func usesStale(for flight: Handle<Flight>, after outcome: Outcome, now: Tick) -> Bool {
        // Also if the status is a result for the flight's requests.
        let hasErrorStatus = outcome.response.map { $0.source == nil && $0.status >= 400 } ?? false
        guard let failure = outcome.failure ?? (hasErrorStatus ? .httpStatus : nil), flights[flight].isAwaited,
            let plan = cachePlans[flight], plan.reading == nil, let stored = plan.stored
        else { return false }
        let record = flights[flight]
        let isAllowed = cacheRule(for: flight).mayUseStale(
            stored.response, for: record.request, mode: record.mode, after: failure, status: outcome.response?.status,
            now: calendarSeconds)
        guard isAllowed else { return false }
        flights[flight].isRevalidation = false
        use(stored, for: flight, as: .cache, fallback: outcome, now: now)
        return true
    }

    // MARK: Responses of origins

    /// Stores an origin's response as far as the rules allow.
    ///
    /// - Returns: whether the flight needs nothing further. If not, the response goes to its requests.
    mutating func takeForCache(
        _ flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields, now: Tick
    ) -> Bool {
        guard !flights[flight].isAlone else {
            invalidate(after: response, fields, to: flights[flight].request)
            return false
        }
        let requestTime = calendarSeconds - Int64(now.milliseconds(since: response.startedAt) / 1_000)
        if let stored = cachePlans[flight]?.stored {
            if response.status == 304, stored.response.hasValidator {
                drop(response)
                validated(flight, stored, fields, requestTime: requestTime, now: now)
                return true
            }
            replace(stored, of: flight, response, fields, requestTime: requestTime)
        } else if !triesAgain(flight, after: response.status) {
            store(flight, response, fields, requestTime: requestTime)
        }
        guard endRevalidation(of: flight) else { return false }
        drop(response)
        return true
    }

    /// Handles a 304: updates the stored response and answers with it, or discards it and fetches again.
    private mutating func validated(
        _ flight: Handle<Flight>, _ stored: CacheVariant, _ fields: HeaderFields, requestTime: Int64, now: Tick
    ) {
        let freshening = cacheRule(for: flight).freshening(
            of: stored.response, by304: fields, to: flights[flight].request, requestTime: requestTime,
            responseTime: calendarSeconds)
        let key = cacheKey(of: flight)
        var stored = stored
        switch freshening {
        case .update(let response):
            stored.response = response
            actions.append(.cache(.refresh(key, stored.entry, response)))
            use(stored, for: flight, as: .revalidated, now: now)
        case .useOnce(let response):
            stored.response = response
            use(stored, for: flight, as: .revalidated, now: now)
            actions.append(.cache(.discard(key, stored.entry)))
        case .mismatch, .unrelated:
            actions.append(.cache(.discard(key, stored.entry)))
            fetchAnew(flight)
        }
    }

    /// Replaces or discards the stored response after a response other than 304. An error of the server (5xx, 429)
    /// leaves the stored response in place.
    private mutating func replace(
        _ stored: CacheVariant, of flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields,
        requestTime: Int64
    ) {
        let key = cacheKey(of: flight)
        guard flights[flight].method == .get else {
            let freshening = cacheRule(for: flight).freshening(
                of: stored.response, byHead: response.status, fields, to: flights[flight].request,
                requestTime: requestTime, responseTime: calendarSeconds)
            switch freshening {
            case .update(let response): actions.append(.cache(.refresh(key, stored.entry, response)))
            case .useOnce, .mismatch: actions.append(.cache(.discard(key, stored.entry)))
            case .unrelated: break
            }
            return
        }
        guard response.status < 500, response.status != 429 else { return }
        let kept = store(flight, response, fields, requestTime: requestTime)
        let isReplaced = kept.map { $0.varyKey == stored.response.varyKey } ?? false
        if !isReplaced { actions.append(.cache(.discard(key, stored.entry))) }
    }

    /// Stores a response if the rules allow it and it fits in the cache.
    ///
    /// - Returns: the stored response; nil if it was not stored.
    @discardableResult
    private mutating func store(
        _ flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields, requestTime: Int64
    ) -> StoredResponse? {
        let limit = settings[.cacheSize] ?? .max
        guard limit > 0 else { return nil }
        let mode = flights[flight].mode
        let rule = cacheRule(for: flight)
        // The attempt of an earlier broker may have ended some time ago.
        let age = Int64(clock.milliseconds(since: response.endedAt) / 1_000)
        // The cache would evict a response larger than its limit at once.
        guard response.length < limit, !response.isCut,
            case .store(let stored) = rule.storing(
                status: response.status, response: fields, to: flights[flight].request, mode: mode,
                requestTime: requestTime, responseTime: calendarSeconds - age),
            isWorthKeeping(stored, of: flight, rule)
        else {
            if mode == .reload, response.status < 400 {
                actions.append(.cache(.invalidate([cacheKey(of: flight).url])))
            }
            return nil
        }
        // The SHA-256 names the stored body, and later proves that it is complete.
        guard let sha256 = response.sha256 ?? (response.length == 0 ? "" : nil) else { return nil }
        ledger.cache.stored += 1
        let entry = nextCacheEntry()
        let variant = CacheVariant(
            entry: entry, response: stored, length: response.length, sha256: sha256.isEmpty ? nil : sha256)
        let owner = cacheOwner(of: flight)
        if let file = response.file { outcomes.shareFile(file) }
        actions.append(
            .cache(.store(cacheKey(of: flight), variant, response.body, file: response.file, owner: owner)))
        return stored
    }

    /// Returns a new identifier. They ascend, so that the index of the cache grows at its end. The first one is made of the
    /// time and of random bits, so that it is not one of an earlier broker, also if the clock went back.
    private mutating func nextCacheEntry() -> CacheEntryID {
        let seconds = UInt64(min(max(calendarSeconds, 0), Int64(UInt32.max)))
        let last = lastCacheEntry ?? CacheEntryID(rawValue: seconds << 30 | generator.next() >> 34)
        let entry = CacheEntryID(rawValue: last.rawValue + 1)
        lastCacheEntry = entry
        return entry
    }

    /// Whether a storable response can ever be used: by the rules of HTTP, or because a request overrides them
    /// (`force-cache`, or a warm request).
    private mutating func isWorthKeeping(_ stored: StoredResponse, of flight: Handle<Flight>, _ rule: CacheRule) -> Bool
    {
        if rule.isUsable(stored, now: calendarSeconds) { return true }
        if flights[flight].mode == .forceCache { return true }
        var isWarm = false
        forEachInterest(of: flight) { core, interest in if core.interests[interest].isWarm { isWarm = true } }
        return isWarm
    }

    /// Marks stored responses as doubtful after an unsafe request. The flight of such a request has no other interests.
    private mutating func invalidate(after response: Outcome.Response, _ fields: HeaderFields, to request: HTTPRequest)
    {
        let urls = CacheRule().invalidations(status: response.status, response: fields, to: request)
        if !urls.isEmpty { actions.append(.cache(.invalidate(urls))) }
    }

    // MARK: Revalidation

    /// Starts a background revalidation of a stored response that is used stale (`stale-while-revalidate`), at most one
    /// per key. At the bound none starts; the next request that uses the response tries again.
    private mutating func beginRevalidation(of stored: CacheVariant, adding: HeaderFields, for flight: Handle<Flight>) {
        let record = flights[flight]
        let key = FlightKey(
            record.request, redirect: record.redirect, partition: record.partition, alone: nil, mode: .noCache,
            isExact: record.isExact)
        guard flights.number(of: key) == nil, revalidations.count < limits.revalidations, !isDraining else { return }
        let behind = beginFlight(
            record.request, redirect: record.redirect, partition: record.partition, key, isAlone: false, body: nil)
        flights[behind].isRevalidation = true
        flights[behind].timeoutMilliseconds = record.timeoutMilliseconds
        cachePlans[behind] = CachePlan(adding: adding, stored: stored, owner: cacheOwner(of: flight))
        revalidations.append(flights.name(of: behind))
    }

    /// Starts queued revalidations in slots that no request needs. One whose origin is full goes to the end of the
    /// list.
    mutating func startRevalidations(now: Tick) {
        for _ in 0..<min(revalidations.count, limits.revalidationsPerPass) {
            let slots = workers.slotCount(of: WorkerPool.web)
            guard slots.free > 0, !slots.areForHigh, let name = revalidations.popFirst() else { return }
            guard let flight = liveFlight(name), flights[flight].isRevalidation,
                flights[flight].phase == .queued,
                !flights[flight].isSuspect
            else {
                continue
            }
            let scope = flights[flight].scope
            if governor.refusal(in: scope) != nil {
                endRevalidation(of: flight)
            } else if mustClaim(flight, now: now) {
                continue
            } else if governor.admits(scope, .background) {
                start(flight, now: now)
            } else {
                revalidations.append(name)
            }
        }
    }

    /// Ends the cache's own interest in a flight. The flight continues if requests wait for it.
    ///
    /// - Returns: whether the flight has ended.
    @discardableResult
    mutating func endRevalidation(of flight: Handle<Flight>) -> Bool {
        guard flights[flight].isRevalidation else { return false }
        flights[flight].isRevalidation = false
        guard !flights[flight].isAwaited else { return false }
        forget(flight)
        return true
    }

    // MARK: End

    /// Removes the cache plan of a flight that ends, and its fallback.
    mutating func dropCachePlan(of flight: Handle<Flight>) {
        if let response = takeCachePlan(of: flight)?.fallback?.response { drop(response) }
    }

    /// Releases a body that the core owns.
    mutating func drop(_ body: CachedBody) {
        switch body {
        case .missing: break
        case .inline(let id): actions.append(.spool(.releaseBody(id)))
        case .file(let name): releaseFile(name)
        }
    }
}
