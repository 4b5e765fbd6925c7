public import EarshotWire

/// What a private cache keeps, for how long, and when it has to ask: RFC 9111.
///
/// The cache is private: `private`, Authorization and Set-Cookie are no hindrance, because answers are kept for one
/// trust scope each (`CacheKey`). All times are seconds since 1970.
public struct CacheRule: Hashable, Sendable {
    /// Of the time since its last change, how much an answer is taken to be fresh if the server does not say, 0 to 100.
    public let heuristicPercent: Int64

    /// The longest time so found.
    public let heuristicSeconds: Int64

    /// The rule with these bounds: 10 percent, as RFC 9111, section 4.2.2, suggests, and a day.
    public init(heuristicPercent: Int64 = 10, heuristicSeconds: Int64 = 86_400) {
        precondition(
            (0...100).contains(heuristicPercent) && heuristicSeconds >= 0,
            "impossible heuristic: \(heuristicPercent) %, \(heuristicSeconds) s")
        self.heuristicPercent = heuristicPercent
        self.heuristicSeconds = min(heuristicSeconds, DeltaSeconds.longest)
    }

    /// Statuses that mean the same tomorrow, unless something says otherwise: "heuristically cacheable", RFC 9110,
    /// section 15.1, less 206 and the errors.
    static let heuristicStatuses: Set = [200, 203, 204, 300, 301, 308]

    /// Redirects of the moment: kept where the server allows it.
    static let temporaryStatuses: Set = [302, 303, 307]

    /// Errors whose meaning is known and says nothing about the moment, as `must-understand` demands.
    static let understoodErrors: Set = [404, 405, 410, 414, 451, 501]

    /// Statuses that are never kept: a part (206) and a validation (304) are no whole response, 407 is a proxy's, and
    /// RFC 6585 forbids it for the others.
    static let unkeptStatuses: Set = [206, 304, 407, 428, 429, 431, 511]

    /// Whether the answer to `request` is kept: RFC 9111, section 3.
    ///
    /// - Parameters:
    ///   - request: As the client made it: without conditions that the cache has added.
    ///   - requestTime: When it was sent.
    ///   - responseTime: When the answer's fields came.
    public func storing(
        status: Int, response: HeaderFields, to request: HTTPRequest, mode: CacheMode, requestTime: Int64,
        responseTime: Int64
    ) -> StoreDecision {
        guard request.method == .get else { return .refuse(.method) }
        guard mode != .noStore, !request.choosesItsAnswer else { return .refuse(.pastCache) }
        guard (200..<600).contains(status), !Self.unkeptStatuses.contains(status) else { return .refuse(.status) }
        let control = CacheControl(response: response)
        let isLasting = Self.heuristicStatuses.contains(status)
        let isTemporary = Self.temporaryStatuses.contains(status)
        // With an understood status `must-understand` lifts the `no-store` beside it: section 5.2.2.3.
        let isUnderstood = isLasting || isTemporary || Self.understoodErrors.contains(status)
        guard isUnderstood || !control.mustUnderstand else { return .refuse(.status) }
        guard !CacheControl(request: request.fields).noStore, !control.noStore || control.mustUnderstand else {
            return .refuse(.noStore)
        }
        guard let varyKey = VaryKey(response: response, request: request.fields) else { return .refuse(.varies) }
        let fields = response.storable
        guard fields.bytes.count <= HTTPLimits.headerBytes else { return .refuse(.tooLarge) }
        let stored = StoredResponse(
            status: status, fields: fields, requestTime: requestTime, responseTime: responseTime, varyKey: varyKey)
        if isTemporary {
            guard stored.explicitLifetime != nil || control.allowsStoring else { return .refuse(.notAllowed) }
        } else if !isLasting {
            guard let lifetime = stored.explicitLifetime, lifetime > stored.age(now: responseTime) else {
                return .refuse(.notAllowed)
            }
        }
        return .store(stored)
    }

    /// Whether a kept response can ever answer a request of mode `default`: it is fresh, a server can validate it, or
    /// the server allows a stale answer for a while (RFC 5861).
    public func isUsable(_ stored: StoredResponse, now: Int64) -> Bool {
        if isFresh(stored, now: now) || !stored.conditions.isEmpty { return true }
        let control = stored.control
        guard !control.noCache, !control.mustRevalidate else { return false }
        let allowed = max(control.staleWhileRevalidate ?? 0, control.staleIfError ?? 0)
        return allowed > 0 && stored.age(now: now) <= DeltaSeconds.sum(lifetime(of: stored), allowed)
    }

    /// Seconds after which `stored` is stale for a request of this mode, 0 to 2^31: RFC 9111, section 4.2.1.
    public func lifetime(of stored: StoredResponse, mode: CacheMode = .default) -> Int64 {
        if let explicit = stored.explicitLifetime { return explicit }
        guard
            mode != .explicit,
            Self.heuristicStatuses.contains(stored.status)
                || (stored.control.allowsStoring && Self.temporaryStatuses.contains(stored.status)),
            let modified = stored.validator.lastModified
        else { return 0 }
        // At most 2^31 × 100.
        return min(DeltaSeconds.between(modified, stored.date) * heuristicPercent / 100, heuristicSeconds)
    }

    /// Whether `stored` can be used without asking anybody.
    public func isFresh(_ stored: StoredResponse, now: Int64) -> Bool {
        lifetime(of: stored) > stored.age(now: now)
    }
}
