public import EarshotWire

/// Use of stored responses: selects the variant for a request, and decides whether it is used. `Cache` of the core
/// calls it.
extension CacheRule {
    /// Selects the variant for a request among the responses stored under its key; nil without a match: RFC 9111,
    /// section 4.1.
    ///
    /// A response with `Vary` is preferred to one without, which may only lack it by mistake; then the newest one. A
    /// shared cache may hold responses for one user, from the time when it was private. With `decode: no` the client
    /// accepts the coding and type of the response.
    public func selectedVariantIndex(for request: HTTPRequest, from stored: [StoredResponse]) -> Int? {
        guard request.method == .get || request.method == .head else { return nil }
        var chosen: (index: Int, rank: (Int64, Int64, Int64))?
        for (index, response) in stored.enumerated() {
            let key = response.hasVary ? VaryKey(response: response.fields, request: request.fields) : .empty
            guard let key, key == response.varyKey, !isShared || !response.isPersonal else { continue }
            // With `decode: no` the client gets the stored coding.
            guard request.route.decodesBody || request.fields.acceptResponse(response.fields) else { continue }
            let rank: (Int64, Int64, Int64) = (response.hasVary ? 1 : 0, response.date, response.responseTime)
            if let best = chosen, best.rank >= rank { continue }
            chosen = (index, rank)
        }
        return chosen?.index
    }

    /// Decides how to respond to `request`, given the responses stored under its key. RFC 9111, section 4, with the
    /// modes of the Fetch standard and the request's own `Cache-Control`.
    ///
    /// `force-cache` and `only-if-cached` ignore the server's directives, but not an invalidation. Fresh `immutable`
    /// responses are not revalidated for mode `no-cache` or `max-age` in the request (RFC 8246, section 2). Mode
    /// `reload` and `no-cache` in the request override that.
    public func decision(
        for request: HTTPRequest, mode: CacheMode, stored: [StoredResponse], now: Int64
    ) -> CacheDecision {
        let adding = mode.cacheControlFields(besides: request.fields)
        let requestDirectives = CacheControl(request: request.fields)
        let mayFetch = mode != .onlyIfCached && !requestDirectives.onlyIfCached
        let selectsResponse = request.selectsResponse
        let range = selectsResponse ? request.servableRange : nil
        guard mode != .noStore, mode != .reload, !selectsResponse || range != nil,
            let index = selectedVariantIndex(for: request, from: stored)
        else { return mayFetch ? .fetch(adding: adding) : .notCached }
        let response = stored[index]
        let use = permittedUse(of: response, requestDirectives: requestDirectives, mode: mode, now: now)
        if let range {
            // A stale response would need a condition beside the range, which few servers combine correctly.
            if use == .withoutValidation, response.canServeRange(for: request.fields) {
                return .useVariant(index, range: range)
            }
            return mayFetch ? .fetch(adding: adding) : .notCached
        }
        var conditions = response.revalidationConditions
        switch use {
        case .withoutValidation: return .useVariant(index)
        case .whileValidating: return mayFetch ? .useAndRevalidate(index, adding: conditions) : .useVariant(index)
        case .afterValidation:
            guard mayFetch else { return .notCached }
            guard !conditions.isEmpty else { return .fetch(adding: adding, stale: index) }
            for field in adding { conditions.appendUnchecked(field.name, field.value) }
            return .validate(index, adding: conditions)
        }
    }

    /// Returns whether a stored response that should have been revalidated may be used after a failed request:
    /// `stale-if-error` of either side, RFC 5861, section 4.
    ///
    /// - Parameters:
    ///   - mode: Only `default` and `explicit` permit a stale response.
    ///   - failure: Failure of the request.
    ///   - status: HTTP status if `failure` is `httpStatus`.
    public func mayUseStale(
        _ stored: StoredResponse, for request: HTTPRequest, mode: CacheMode, after failure: FailureCode, status: Int?,
        now: Int64
    ) -> Bool {
        let requestDirectives = CacheControl(request: request.fields)
        guard mode == .default || mode == .explicit, !requestDirectives.noCache, !request.selectsResponse,
            !stored.isInvalidated, !stored.cacheControl.noCache, !mustRevalidate(stored),
            failure.isServerFault(status: status)
        else { return false }
        guard let allowed = [stored.cacheControl.staleIfError, requestDirectives.staleIfError].compactMap(\.self).max()
        else {
            return false
        }
        return stored.age(now: now) <= DeltaSeconds.sum(lifetime(of: stored, mode: mode), allowed)
    }

    /// Permitted use of a stored response.
    private enum Use {
        case withoutValidation, whileValidating, afterValidation
    }

    private func permittedUse(
        of response: StoredResponse, requestDirectives: CacheControl, mode: CacheMode, now: Int64
    ) -> Use {
        guard !response.isInvalidated else { return .afterValidation }
        if mode == .forceCache || mode == .onlyIfCached { return .withoutValidation }
        guard !response.cacheControl.noCache, !requestDirectives.noCache else { return .afterValidation }
        let age = response.age(now: now)
        let lifetime = lifetime(of: response, mode: mode)
        let isFresh = age < lifetime
        let isFreshAndImmutable = isFresh && response.cacheControl.isImmutable
        if mode == .noCache || age > requestDirectives.maxAge ?? .max, !isFreshAndImmutable { return .afterValidation }
        if DeltaSeconds.sum(age, requestDirectives.minFresh ?? 0) > lifetime, requestDirectives.minFresh != nil {
            return .afterValidation
        }
        if isFresh { return .withoutValidation }
        guard !mustRevalidate(response) else { return .afterValidation }
        let staleness = age - lifetime
        if let allowed = requestDirectives.maxStale, staleness <= allowed { return .withoutValidation }
        if let allowed = response.cacheControl.staleWhileRevalidate, staleness <= allowed { return .whileValidating }
        return .afterValidation
    }
}

extension StoredResponse {
    /// Returns whether ranges of the stored body are those of the response: it is a 200 without coding, and has the
    /// validator that the request's `If-Range` names, if any. RFC 9110, sections 13.1.5 and 14.2.
    fileprivate func canServeRange(for request: HeaderFields) -> Bool {
        guard status == 200, fields.hasIdentityCoding else { return false }
        guard request.contains("if-range") else { return true }
        guard let condition = request.singleValue(named: "if-range"), let text = validator.strongValidatorText else {
            return false
        }
        return condition.elementsEqual(text)
    }
}

extension FailureCode {
    /// Returns whether the failure corresponds to status 500, 502, 503 or 504, which RFC 5861, section 4, defines as an
    /// error. A failed TLS handshake does not: the server may be an impostor.
    func isServerFault(status: Int?) -> Bool {
        switch self {
        case .httpStatus:
            switch status {
            case 500, 502, 503, 504: true
            default: false
            }
        case .connectRefused, .connectFailed, .unknownHost, .dnsFailed, .timeout, .connectTimeout, .proxyUnavailable,
            .truncated, .connectionReset, .protocolError, .originCoolingDown, .workerLost:
            true
        case .addressRefused, .proxyRefused, .tooLarge, .tooCompressed, .tls, .redirectLoop, .tooManyRedirects,
            .redirectRefused, .unsupportedScheme, .malformedURL, .badHeader, .unsupportedMethod, .encodingError,
            .spoolFull, .spoolFailed, .deadlineExceeded, .digestMismatch, .handlerRemoved, .cancelled, .queueFull,
            .quotaExceeded, .workerFailed, .poisonRequest, .notCached, .notStored, .retentionExpired, .brokerStopping,
            .internalError:
            false
        }
    }
}

/// Decision of the cache about a request. Indices refer to the list of variants passed in.
public enum CacheDecision: Hashable, Sendable {
    /// Respond with this variant, or with one range of its body.
    case useVariant(Int, range: RequestedRange? = nil)
    /// Respond with this variant, and revalidate it in the background by the request with the fields `adding`.
    case useAndRevalidate(Int, adding: HeaderFields)
    /// Send the request with the fields `adding`. Respond with the server's response, or with this variant after a 304.
    case validate(Int, adding: HeaderFields)
    /// Send the request with the fields `adding`. `stale` is a stored variant without a validator. It may be used if
    /// the request fails (`CacheRule.mayUseStale`), and a response to HEAD may update it.
    case fetch(adding: HeaderFields, stale: Int? = nil)
    /// Fail: the request forbids contacting a server, and no stored response is usable.
    case notCached
}
