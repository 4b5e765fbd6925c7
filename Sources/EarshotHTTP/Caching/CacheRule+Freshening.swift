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
            guard tag.isWeaklyEqual(to: known) else { return .mismatch }
        case (let tag?, nil):
            // A strong tag names a representation that is not stored. With a weak one the dates must agree.
            guard tag.isWeak, newer.lastModified != nil, newer.lastModified == stored.validator.lastModified else {
                return .mismatch
            }
        case (nil, _):
            guard !newer.contradicts(stored.validator) else { return .mismatch }
        }
        return updated(stored, by: fields, to: request, requestTime: requestTime, responseTime: responseTime)
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
        guard status == 200 else { return .unrelated }
        guard stored.status == 200 else { return .mismatch }
        let fields = ParsedFields(fields)
        var isConfirmed = !stored.hasValidator
        for name in ["etag", "last-modified", "content-length"] where fields.contains(name) {
            guard let value = fields.singleValue(name), value == stored.fields.singleValue(name) else {
                return .mismatch
            }
            if name != "content-length" { isConfirmed = true }
        }
        guard isConfirmed else { return .unrelated }
        return updated(stored, by: fields, to: request, requestTime: requestTime, responseTime: responseTime)
    }

    private func updated(
        _ stored: StoredResponse, by fields: ParsedFields, to request: HTTPRequest, requestTime: Int64,
        responseTime: Int64
    ) -> Freshening {
        let merged = ParsedFields(stored.fields).updated(by: fields, keepsEntityTag: stored.validator.entityTag != nil)
        let varyKey = VaryKey(values: merged.values("vary"), request: request.fields)
        let response = StoredResponse(
            status: stored.status, merged, CacheControl(values: merged.values("cache-control")),
            requestTime: requestTime, responseTime: responseTime, varyKey: varyKey ?? stored.varyKey)
        let mayStay =
            varyKey != nil && (!isShared || !response.isPersonal) && merged.fields.bytes.count <= HTTPLimits.headerBytes
            && (!response.control.noStore || response.control.mustUnderstand)
            && !CacheControl(request: request.fields).noStore
        return mayStay ? .update(response) : .useOnce(response)
    }
}

/// Effect of a response without body on a stored response.
public enum Freshening: Equatable, Sendable {
    /// Replace the stored fields by this; the body stays.
    case update(StoredResponse)
    /// Respond with this and the stored body, then remove the stored response: it may no longer be stored.
    case useOnce(StoredResponse)
    /// Concerns another representation. After a 304: remove the stored response and repeat the request without
    /// conditions. After a HEAD: revalidate the stored response before its next use.
    case mismatch
    /// No effect on the stored response.
    case unrelated
}
