public import EarshotWire

extension CacheRule {
    /// Which of the answers kept under a request's key is the one for it; nil if none is: RFC 9111, section 4.1.
    ///
    /// An answer with `Vary` goes before one without, which may only have forgotten it; then the newest goes first.
    public func selection(for request: HTTPRequest, from stored: [StoredResponse]) -> Int? {
        guard request.method == .get || request.method == .head else { return nil }
        var chosen: (index: Int, rank: (Int64, Int64, Int64))?
        for (index, response) in stored.enumerated() {
            guard let key = VaryKey(response: response.fields, request: request.fields), key == response.varyKey else {
                continue
            }
            let rank: (Int64, Int64, Int64) = (
                response.fields.contains("vary") ? 1 : 0, response.date, response.responseTime
            )
            if let best = chosen, best.rank >= rank { continue }
            chosen = (index, rank)
        }
        return chosen?.index
    }

    /// How `request` is answered, the answers kept under its key being `stored`: RFC 9111, section 4, with the modes of
    /// the Fetch standard and the request's own `Cache-Control`.
    ///
    /// A `force-cache` or `only-if-cached` uses what is there whatever the server said about it, but not what was
    /// invalidated. Fresh and `immutable` answers are spared the validations that a reload asks for, in mode `no-cache`
    /// or by `max-age` in the request (RFC 8246, section 2); mode `reload` and `no-cache` in the request are stronger.
    public func decision(
        for request: HTTPRequest, mode: CacheMode, stored: [StoredResponse], now: Int64
    ) -> CacheDecision {
        let adding = mode.fields(besides: request.fields)
        let asked = CacheControl(request: request.fields)
        let mayAsk = mode != .onlyIfCached && !asked.onlyIfCached
        if mode == .noStore || mode == .reload || request.choosesItsAnswer {
            return mayAsk ? .fetch(adding: adding) : .notCached
        }
        guard let index = selection(for: request, from: stored) else {
            return mayAsk ? .fetch(adding: adding) : .notCached
        }
        let response = stored[index]
        var conditions = response.conditions
        switch use(of: response, asked: asked, mode: mode, now: now) {
        case .asItIs: return .use(index)
        case .whileValidating: return mayAsk ? .useAndRevalidate(index, adding: conditions) : .use(index)
        case .afterValidation:
            guard mayAsk else { return .notCached }
            guard !conditions.isEmpty else { return .fetch(adding: adding, stale: index) }
            for field in adding { conditions.add(field.name, field.value) }
            return .validate(index, adding: conditions)
        }
    }

    /// Whether `stored`, though it should have been validated, answers a request for which asking has failed:
    /// `stale-if-error` of either side, RFC 5861, section 4.
    ///
    /// - Parameters:
    ///   - mode: Only `default` and `explicit` accept a stale answer.
    ///   - failure: How asking ended.
    ///   - status: What the server said, if `failure` is `httpStatus`.
    public func mayUseStale(
        _ stored: StoredResponse, for request: HTTPRequest, mode: CacheMode, after failure: FailureCode, status: Int?,
        now: Int64
    ) -> Bool {
        let asked = CacheControl(request: request.fields)
        guard mode == .default || mode == .explicit, !asked.noCache, !request.choosesItsAnswer,
            !stored.isInvalidated, !stored.control.noCache, !stored.control.mustRevalidate,
            failure.isServersTrouble(status: status)
        else { return false }
        guard let allowed = [stored.control.staleIfError, asked.staleIfError].compactMap(\.self).max() else {
            return false
        }
        return stored.age(now: now) <= DeltaSeconds.sum(lifetime(of: stored, mode: mode), allowed)
    }

    /// How an answer may be used.
    private enum Use {
        case asItIs, whileValidating, afterValidation
    }

    private func use(of response: StoredResponse, asked: CacheControl, mode: CacheMode, now: Int64) -> Use {
        guard !response.isInvalidated else { return .afterValidation }
        if mode == .forceCache || mode == .onlyIfCached { return .asItIs }
        guard !response.control.noCache, !asked.noCache else { return .afterValidation }
        let age = response.age(now: now)
        let lifetime = lifetime(of: response, mode: mode)
        let isFresh = age < lifetime
        let isSpared = isFresh && response.control.isImmutable
        if mode == .noCache || age > asked.maxAge ?? .max, !isSpared { return .afterValidation }
        if DeltaSeconds.sum(age, asked.minFresh ?? 0) > lifetime, asked.minFresh != nil { return .afterValidation }
        if isFresh { return .asItIs }
        guard !response.control.mustRevalidate else { return .afterValidation }
        let staleness = age - lifetime
        if let allowed = asked.maxStale, staleness <= allowed { return .asItIs }
        if let allowed = response.control.staleWhileRevalidate, staleness <= allowed { return .whileValidating }
        return .afterValidation
    }
}

extension FailureCode {
    /// Whether a cache that stood in for the server would say 500, 502, 503 or 504: what RFC 5861, section 4, calls an
    /// error. A failed handshake is none here: it may be somebody else's server.
    func isServersTrouble(status: Int?) -> Bool {
        switch self {
        case .httpStatus:
            switch status {
            case 500, 502, 503, 504: true
            default: false
            }
        case .connectRefused, .connectFailed, .unknownHost, .dnsFailed, .timeout, .connectTimeout, .truncated, .reset,
            .protocolError, .originCooling, .workerLost:
            true
        case .addressRefused, .tooLarge, .tooCompressed, .tls, .redirectLoop, .tooManyRedirects, .redirectRefused,
            .unsupportedScheme,
            .malformedURL, .badHeader, .unsupportedMethod, .encodingError, .spoolFull, .spoolFailed, .deadline,
            .digestMismatch,
            .removed, .cancelled, .queueFull, .workerFailed, .poisonous, .notCached, .notStored,
            .expired, .stopping, .internalError:
            false
        }
    }
}
