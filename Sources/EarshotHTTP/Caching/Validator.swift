/// What tells one representation of a resource from another: `ETag` and `Last-Modified` of a response, RFC 9110,
/// section 8.8.
public struct Validator: Sendable {
    /// Nil if there is none, if it cannot be read, or if there are several that differ. A tag without quotation marks is
    /// read as if it had them.
    public let entityTag: EntityTag?

    /// `Last-Modified`, seconds since 1970; nil as for `entityTag`.
    public let lastModified: Int64?

    /// `Last-Modified` as it was written, which is how a server wants it back (RFC 9110, section 13.1.3).
    let lastModifiedText: ArraySlice<UInt8>

    /// Whether there is an `ETag` field, readable or not.
    private let hasEntityTagField: Bool

    /// `Date`, seconds since 1970.
    private let date: Int64?

    /// Reads the fields of a response.
    ///
    /// - Parameter now: Seconds since 1970, for the century of an obsolete date.
    public init(response fields: HeaderFields, now: Int64) {
        entityTag = fields.agreed("etag").flatMap { EntityTag(bytes: $0) ?? EntityTag(unquoted: $0) }
        hasEntityTagField = fields.contains("etag")
        let text = fields.agreed("last-modified")
        lastModified = text.flatMap { HTTPDate(String(decoding: $0, as: UTF8.self), now: now)?.secondsSince1970 }
        lastModifiedText = lastModified == nil ? [] : text ?? []
        date = fields.agreed("date").flatMap {
            HTTPDate(String(decoding: $0, as: UTF8.self), now: now)?.secondsSince1970
        }
    }

    /// Takes what `ifRange` of a strong validator said.
    ///
    /// - Parameter now: Seconds since 1970, for the century of an obsolete date.
    public init?(ifRange text: String, now: Int64) {
        if let tag = EntityTag(text) {
            guard !tag.isWeak else { return nil }
            entityTag = tag
            lastModified = nil
            lastModifiedText = []
        } else {
            guard let moment = HTTPDate(text, now: now)?.secondsSince1970 else { return nil }
            entityTag = nil
            lastModified = moment
            lastModifiedText = Array(text.utf8)[...]
        }
        hasEntityTagField = entityTag != nil
        // That the date is strong was judged when it came.
        date = lastModified.map { $0 + 1 }
    }

    /// What names it to a server in `If-Range`, and to others of us; nil for a weak one, and for a tag that is not
    /// ASCII.
    public var ifRange: String? {
        guard let text = strongText, text.allSatisfy({ (0x20...0x7e).contains($0) }) else { return nil }
        return String(decoding: text, as: UTF8.self)
    }

    /// Whether there is something to ask a server by.
    public var isEmpty: Bool { entityTag == nil && lastModified == nil }

    /// What `If-Range` may name: a strong entity tag, or, without any tag, a date that is strong (RFC 9110,
    /// section 13.1.5); nil if there is no such thing.
    var strongText: [UInt8]? {
        if let entityTag { return entityTag.isWeak || !entityTag.isQuoted ? nil : entityTag.bytes }
        return isLastModifiedStrong ? Array(lastModifiedText) : nil
    }

    /// Whether the validator is strong, so that equal ones mean equal bytes.
    public var isStrong: Bool { strongText != nil }

    /// Whether both are strong and the same.
    public func isStronglyEqual(to other: Validator) -> Bool {
        guard isStrong, other.isStrong else { return false }
        switch (entityTag, other.entityTag) {
        case (let tag?, let otherTag?): return tag.isStronglyEqual(to: otherTag)
        case (nil, nil): return lastModified == other.lastModified
        default: return false
        }
    }

    /// Whether something in the one is not the same, even weakly, in the other. What only one of them has contradicts
    /// nothing; an `ETag` that cannot be read contradicts any.
    func contradicts(_ other: Validator) -> Bool {
        if hasEntityTagField, other.hasEntityTagField {
            guard let entityTag, let otherTag = other.entityTag, entityTag.isWeaklyEqual(to: otherTag) else {
                return true
            }
        }
        if let lastModified, let otherModified = other.lastModified { return lastModified != otherModified }
        return false
    }

    /// Whether nothing can have changed in the second of `Last-Modified` after the response was made: `Date` is at
    /// least a second later. RFC 9110, section 8.8.2.2.
    private var isLastModifiedStrong: Bool {
        guard !hasEntityTagField, let lastModified, let date else { return false }
        return date > lastModified
    }
}
