extension CacheRule {
    /// What a 304 means for the variant whose `conditions` it answers: RFC 9111, section 4.3.4.
    ///
    /// Two things are taken more lightly than there. A 304 without any validator is believed: we asked about one
    /// variant and no other. And a tag that differs in strength alone is the same: nginx marks the tag of what it
    /// compresses as weak in a 200, and not in the 304. The tag that is kept then stays, so that no strength is gained
    /// by it.
    ///
    /// - Parameters:
    ///   - fields: Those of the 304.
    ///   - request: As the client made it. A `Vary` that has changed is applied to it.
    public func freshening(
        of stored: StoredResponse, by304 fields: HeaderFields, to request: HTTPRequest, requestTime: Int64,
        responseTime: Int64
    ) -> Freshening {
        let newer = Validator(response: fields, now: responseTime)
        switch (newer.entityTag, stored.validator.entityTag) {
        case (let tag?, let known?):
            guard tag.isWeaklyEqual(to: known) else { return .mismatch }
        case (let tag?, nil):
            // A strong one names a representation that is not kept; beside a weak one the dates have to agree.
            guard tag.isWeak, newer.lastModified != nil, newer.lastModified == stored.validator.lastModified else {
                return .mismatch
            }
        case (nil, _):
            guard !newer.contradicts(stored.validator) else { return .mismatch }
        }
        return updated(stored, by: fields, to: request, requestTime: requestTime, responseTime: responseTime)
    }

    /// What the answer to a HEAD means for a kept answer that was for the same request: RFC 9111, section 4.3.5.
    ///
    /// - Parameters:
    ///   - status: That of the answer. Another than 200 says nothing.
    ///   - fields: Those of the answer. Without a validator they update only a response that has none either.
    public func freshening(
        of stored: StoredResponse, byHead status: Int, _ fields: HeaderFields, to request: HTTPRequest,
        requestTime: Int64, responseTime: Int64
    ) -> Freshening {
        guard status == 200 else { return .unrelated }
        guard stored.status == 200 else { return .mismatch }
        var isConfirmed = stored.validator.isEmpty
        for name in ["etag", "last-modified", "content-length"] where fields.contains(name) {
            guard let value = fields.agreed(name), value == stored.fields.agreed(name) else { return .mismatch }
            if name != "content-length" { isConfirmed = true }
        }
        guard isConfirmed else { return .unrelated }
        return updated(stored, by: fields, to: request, requestTime: requestTime, responseTime: responseTime)
    }

    private func updated(
        _ stored: StoredResponse, by fields: HeaderFields, to request: HTTPRequest, requestTime: Int64,
        responseTime: Int64
    ) -> Freshening {
        let merged = stored.fields.updated(by: fields, keepsEntityTag: stored.validator.entityTag != nil)
        let varyKey = VaryKey(response: merged, request: request.fields)
        let response = StoredResponse(
            status: stored.status, fields: merged, requestTime: requestTime, responseTime: responseTime,
            varyKey: varyKey ?? stored.varyKey)
        let mayStay =
            varyKey != nil && merged.bytes.count <= HTTPLimits.headerBytes
            && (!response.control.noStore || response.control.mustUnderstand)
            && !CacheControl(request: request.fields).noStore
        return mayStay ? .update(response) : .useOnce(response)
    }
}
