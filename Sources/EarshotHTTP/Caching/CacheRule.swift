public import EarshotWire

/// Policy of a cache: storage, freshness and validation of responses. RFC 9111.
///
/// In a private cache `private`, Authorization and Set-Cookie do not prevent storage, because each response belongs to
/// one trust scope (`CacheKey`). A shared cache serves several users, but only their requests without credentials. All
/// times are seconds since 1970.
public struct CacheRule: Hashable, Sendable {
    /// Heuristic freshness without explicit lifetime: percentage of the time since the last modification, 0 to 100.
    public let heuristicPercent: Int64

    /// Maximum heuristic freshness lifetime in seconds.
    public let maximumHeuristicSeconds: Int64

    /// Whether the cache serves several users.
    public let isShared: Bool

    /// Creates a policy. Defaults: 10 percent, as RFC 9111, section 4.2.2, suggests, and one day; a private cache.
    public init(heuristicPercent: Int64 = 10, maximumHeuristicSeconds: Int64 = 86_400, isShared: Bool = false) {
        precondition(
            (0...100).contains(heuristicPercent) && maximumHeuristicSeconds >= 0,
            "impossible heuristic: \(heuristicPercent) %, \(maximumHeuristicSeconds) s")
        self.heuristicPercent = heuristicPercent
        self.maximumHeuristicSeconds = min(maximumHeuristicSeconds, DeltaSeconds.maximum)
        self.isShared = isShared
    }

    /// "Heuristically cacheable" statuses of RFC 9110, section 15.1, except 206 and errors that may be temporary.
    static let heuristicStatuses: Set = [200, 203, 204, 300, 301, 308, 410]

    /// Temporary redirects: stored only if the server permits it.
    static let temporaryRedirectStatuses: Set = [302, 303, 307]

    /// Errors whose cacheability is understood, as `must-understand` requires.
    static let understoodErrorStatuses: Set = [404, 405, 414, 451, 501]

    /// Statuses that are never stored. 206 is partial, 304 has no body, 407 comes from a proxy, and RFC 6585 forbids
    /// the others.
    static let neverStoredStatuses: Set = [206, 304, 407, 428, 429, 431, 511]

    /// Decides whether to store the response to `request`: RFC 9111, section 3.
    ///
    /// - Parameters:
    ///   - request: Original request of the client, without conditions added by the cache.
    ///   - requestTime: Time of sending the request.
    ///   - responseTime: Time of receiving the response's fields.
    public func storeDecision(
        status: Int, response: HeaderFields, to request: HTTPRequest, mode: CacheMode, requestTime: Int64,
        responseTime: Int64
    ) -> StoreDecision {
        guard request.method == .get else { return .refuse(.methodNotGET) }
        guard mode != .noStore, !request.selectsResponse else { return .refuse(.bypassesCache) }
        guard (200..<600).contains(status), !Self.neverStoredStatuses.contains(status) else {
            return .refuse(.unstorableStatus)
        }
        let response = ParsedFields(response)
        let control = CacheControl(fieldValues: response.values(named: "cache-control"))
        guard !isShared || !Self.isPersonal(response, control) else { return .refuse(.privateResponse) }
        let isLasting = Self.heuristicStatuses.contains(status)
        let isTemporary = Self.temporaryRedirectStatuses.contains(status)
        // For an understood status, `must-understand` overrides `no-store` in the same response: section 5.2.2.3.
        let isUnderstood = isLasting || isTemporary || Self.understoodErrorStatuses.contains(status)
        guard isUnderstood || !control.mustUnderstand else { return .refuse(.unstorableStatus) }
        guard !CacheControl(request: request.fields).noStore, !control.noStore || control.mustUnderstand else {
            return .refuse(.noStore)
        }
        guard let varyKey = VaryKey(varyValues: response.values(named: "vary"), request: request.fields) else {
            return .refuse(.varyWildcard)
        }
        let storable = response.storableFields
        guard storable.fields.bytes.count <= HTTPLimits.headerBytes else { return .refuse(.fieldsTooLarge) }
        let stored = StoredResponse(
            status: status, storable, control, requestTime: requestTime, responseTime: responseTime, varyKey: varyKey)
        if isTemporary {
            guard explicitLifetime(of: stored) != nil || control.allowsStoring else {
                return .refuse(.noExplicitPermission)
            }
        } else if !isLasting {
            guard let lifetime = explicitLifetime(of: stored), lifetime > stored.age(now: responseTime) else {
                return .refuse(.noExplicitPermission)
            }
        }
        return .store(stored)
    }

    /// Returns whether several users may share a response to a request without credentials, stored or on its way: RFC
    /// 9111, section 3.
    ///
    /// Section 7.3 permits a shared cache to store Set-Cookie. This one refuses it, as others do by default: the cookie
    /// of an anonymous request is a new session. The status has no influence: requests that wait for one response share
    /// its error as well.
    public static func mayBeShared(_ response: HeaderFields) -> Bool {
        let response = ParsedFields(response)
        let control = CacheControl(fieldValues: response.values(named: "cache-control"))
        let variesByRequest = FieldList.members(response.values(named: "vary")).contains { $0.elementsEqual("*".utf8) }
        return !isPersonal(response, control) && (!control.noStore || control.mustUnderstand) && !variesByRequest
    }

    static func isPersonal(_ response: ParsedFields, _ control: CacheControl) -> Bool {
        control.isPrivate || response.contains("set-cookie")
    }

    /// Returns whether a stored response can still be used in mode `default`. It must be fresh, be revalidatable, or be
    /// stale within the limits that the server permits (RFC 5861).
    public func isUsable(_ stored: StoredResponse, now: Int64) -> Bool {
        if isFresh(stored, now: now) || stored.hasValidator { return true }
        let control = stored.cacheControl
        guard !control.noCache, !mustRevalidate(stored) else { return false }
        let allowed = max(control.staleWhileRevalidate ?? 0, control.staleIfError ?? 0)
        return allowed > 0 && stored.age(now: now) <= DeltaSeconds.sum(lifetime(of: stored), allowed)
    }

    /// Returns the freshness lifetime in seconds for a request of this mode, 0 to 2^31: RFC 9111, section 4.2.1.
    public func lifetime(of stored: StoredResponse, mode: CacheMode = .default) -> Int64 {
        if let explicit = explicitLifetime(of: stored) { return explicit }
        guard
            mode != .explicit,
            Self.heuristicStatuses.contains(stored.status)
                || (stored.cacheControl.allowsStoring && Self.temporaryRedirectStatuses.contains(stored.status)),
            let modified = stored.validator.lastModified
        else { return 0 }
        // No overflow: the product is at most 2^31 × 100.
        return min(DeltaSeconds.between(modified, stored.date) * heuristicPercent / 100, maximumHeuristicSeconds)
    }

    /// Returns the lifetime that the server states; nil without one. `s-maxage` overrides the others in a shared cache.
    private func explicitLifetime(of stored: StoredResponse) -> Int64? {
        if isShared, let seconds = stored.cacheControl.sharedMaxAge { return seconds }
        return stored.explicitLifetime
    }

    /// Returns whether `stored` must not be used stale.
    func mustRevalidate(_ stored: StoredResponse) -> Bool {
        stored.cacheControl.mustRevalidate || isShared && stored.cacheControl.sharedCacheMustRevalidate
    }

    /// Returns whether `stored` can be used without revalidation.
    public func isFresh(_ stored: StoredResponse, now: Int64) -> Bool {
        lifetime(of: stored) > stored.age(now: now)
    }
}

extension CacheRule {
    /// Returns the URLs whose stored responses, in all trust scopes, a response invalidates: RFC 9111, section 4.4.
    ///
    /// These are the URL of an unsafe request, and the targets of `Location` and `Content-Location` on the same origin.
    /// At most three, without duplicates, in the form used by `CacheKey`. None after an error or a safe method.
    public func invalidatedURLs(status: Int, response: HeaderFields, to request: HTTPRequest) -> [FetchURL] {
        guard !request.method.isSafe, (200..<400).contains(status) else { return [] }
        var urls = [CacheKey.keyURL(for: request.url)]
        for name in ["location", "content-location"] {
            guard let reference = response.singleValue(named: name), let url = try? request.url.resolve(reference.span),
                url.origin == request.url.origin
            else { continue }
            let plain = CacheKey.keyURL(for: url)
            if !urls.contains(plain) { urls.append(plain) }
        }
        return urls
    }
}

extension HTTPMethod {
    /// Whether the method is safe, that is, read-only: RFC 9110, section 9.2.1.
    var isSafe: Bool {
        switch description {
        case "GET", "HEAD", "OPTIONS", "TRACE": true
        default: false
        }
    }
}

/// Decision whether to store a response.
public enum StoreDecision: Equatable, Sendable {
    /// Store the response with its body, once the body is complete.
    case store(StoredResponse)
    /// Do not store it.
    case refuse(Reason)

    /// Reason not to store a response.
    public enum Reason: Hashable, Sendable, CaseIterable {
        /// Method other than GET. A response to HEAD has no body: see `CacheRule.freshening(of:byHead:…)`.
        case methodNotGET
        /// The request's mode is `no-store`, or its own fields select the response.
        case bypassesCache
        /// `no-store` in the request or the response.
        case noStore
        /// Status that is never stored, such as 206, 304 and 429; or an unknown one with `must-understand`.
        case unstorableStatus
        /// `private` or Set-Cookie, in a shared cache.
        case privateResponse
        /// The status requires an explicit permission to store, which is absent.
        case noExplicitPermission
        /// `Vary: *`: no other request is known to have the same response.
        case varyWildcard
        /// Fields of more than `HTTPLimits.headerBytes`.
        case fieldsTooLarge
    }
}

/// Effect of a 304, or of the response to a HEAD, on a stored response. `Cache+Responses` of the core calls it.
extension CacheRule {
    /// Applies a 304 to the variant whose `conditions` it answers: RFC 9111, section 4.3.4.
    ///
    /// Two rules are relaxed. A 304 without any validator is accepted, because the request named a single variant. Tags
    /// that differ only in strength are equal: nginx marks the tag of a compressed 200 as weak, but not that of the
    /// 304. The stored tag is kept then, so that it does not become strong.
    ///
    /// - Parameters:
    ///   - fields: Fields of the 304.
    ///   - request: Original request of the client. A changed `Vary` is applied to it.
    public func freshening(
        of stored: StoredResponse, by304 fields: HeaderFields, to request: HTTPRequest, requestTime: Int64,
        responseTime: Int64
    ) -> Freshening {
        let fields = ParsedFields(fields)
        let newer = Validator(fields, now: responseTime)
        switch (newer.entityTag, stored.validator.entityTag) {
        case (let tag?, let known?):
            guard tag.isWeaklyEqual(to: known) else { return .otherRepresentation }
        case (let tag?, nil):
            // A strong tag names a representation that is not stored. With a weak one the dates must agree.
            guard tag.isWeak, newer.lastModified != nil, newer.lastModified == stored.validator.lastModified else {
                return .otherRepresentation
            }
        case (nil, _):
            guard !newer.contradicts(stored.validator) else { return .otherRepresentation }
        }
        return updatedResponse(stored, by: fields, to: request, requestTime: requestTime, responseTime: responseTime)
    }

    /// Applies the response to a HEAD to a stored response for the same request: RFC 9111, section 4.3.5.
    ///
    /// - Parameters:
    ///   - status: Status of the response. Only 200 has an effect.
    ///   - fields: Fields of the response. Without a validator they update only a stored response without one.
    public func freshening(
        of stored: StoredResponse, byHead status: Int, _ fields: HeaderFields, to request: HTTPRequest,
        requestTime: Int64, responseTime: Int64
    ) -> Freshening {
        guard status == 200 else { return .noEffect }
        guard stored.status == 200 else { return .otherRepresentation }
        let fields = ParsedFields(fields)
        var isConfirmed = !stored.hasValidator
        for name in ["etag", "last-modified", "content-length"] where fields.contains(name) {
            guard let value = fields.singleValue(named: name), value == stored.fields.singleValue(named: name) else {
                return .otherRepresentation
            }
            if name != "content-length" { isConfirmed = true }
        }
        guard isConfirmed else { return .noEffect }
        return updatedResponse(stored, by: fields, to: request, requestTime: requestTime, responseTime: responseTime)
    }

    private func updatedResponse(
        _ stored: StoredResponse, by fields: ParsedFields, to request: HTTPRequest, requestTime: Int64,
        responseTime: Int64
    ) -> Freshening {
        let merged = ParsedFields(stored.fields).updated(by: fields, keepsEntityTag: stored.validator.entityTag != nil)
        let varyKey = VaryKey(varyValues: merged.values(named: "vary"), request: request.fields)
        let response = StoredResponse(
            status: stored.status, merged, CacheControl(fieldValues: merged.values(named: "cache-control")),
            requestTime: requestTime, responseTime: responseTime, varyKey: varyKey ?? stored.varyKey)
        let mayStay =
            varyKey != nil && (!isShared || !response.isPersonal) && merged.fields.bytes.count <= HTTPLimits.headerBytes
            && (!response.cacheControl.noStore || response.cacheControl.mustUnderstand)
            && !CacheControl(request: request.fields).noStore
        return mayStay ? .replaceStored(response) : .useOnceThenRemove(response)
    }
}

/// Effect of a response without body on a stored response.
public enum Freshening: Equatable, Sendable {
    /// Replace the stored fields by this; the body stays.
    case replaceStored(StoredResponse)
    /// Respond with this and the stored body, then remove the stored response: it may no longer be stored.
    case useOnceThenRemove(StoredResponse)
    /// Concerns another representation. After a 304: remove the stored response and repeat the request without
    /// conditions. After a HEAD: revalidate the stored response before its next use.
    case otherRepresentation
    /// No effect on the stored response.
    case noEffect
}
