/// Validators that identify a representation of a resource: `ETag` and `Last-Modified` of a response, RFC 9110, section
/// 8.8.
public struct Validator: Sendable {
    /// Entity tag; nil if it is absent or invalid, or if several values differ. A tag without quotation marks is
    /// accepted.
    public let entityTag: EntityTag?

    /// `Last-Modified` in seconds since 1970; nil under the same conditions as `entityTag`.
    public let lastModified: Int64?

    /// Original text of `Last-Modified`, which must be sent back unchanged (RFC 9110, section 13.1.3).
    let lastModifiedText: ArraySlice<UInt8>

    /// Whether there is an `ETag` field, valid or not.
    private let hasEntityTagField: Bool

    /// `Date` in seconds since 1970; nil under the same conditions as `entityTag`.
    let date: Int64?

    /// Parses the fields of a response.
    ///
    /// - Parameter now: Seconds since 1970; determines the century of an obsolete date format.
    public init(response fields: HeaderFields, now: Int64) {
        self.init(ParsedFields(fields), now: now)
    }

    init(_ fields: ParsedFields, now: Int64) {
        entityTag = fields.singleValue(named: "etag").flatMap { EntityTag(bytes: $0) ?? EntityTag(unquoted: $0) }
        hasEntityTagField = fields.contains("etag")
        let text = fields.singleValue(named: "last-modified")
        lastModified = text.flatMap { HTTPDate(bytes: $0.span, now: now)?.secondsSince1970 }
        lastModifiedText = lastModified == nil ? [] : text ?? []
        date = fields.singleValue(named: "date").flatMap { HTTPDate(bytes: $0.span, now: now)?.secondsSince1970 }
    }

    /// Parses the result of `ifRange` of a strong validator.
    ///
    /// - Parameter now: Seconds since 1970; determines the century of an obsolete date format.
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
        // The date was strong when `ifRange` was computed.
        date = lastModified.map { $0 + 1 }
    }

    /// Text of the validator for `If-Range` and for other parts of Earshot; nil for a weak validator or a tag that is
    /// not ASCII.
    public var ifRange: String? {
        guard let text = strongValidatorText, text.allSatisfy({ (0x20...0x7e).contains($0) }) else { return nil }
        return String(decoding: text, as: UTF8.self)
    }

    /// Whether there is no validator to revalidate with.
    public var isEmpty: Bool { entityTag == nil && lastModified == nil }

    /// Text permitted in `If-Range`: a strong entity tag or, without any tag, a strong date (RFC 9110, section 13.1.5);
    /// nil otherwise.
    var strongValidatorText: [UInt8]? {
        if let entityTag { return entityTag.isWeak || !entityTag.isQuoted ? nil : entityTag.bytes }
        return isLastModifiedStrong ? Array(lastModifiedText) : nil
    }

    /// Whether the validator is strong, so that equal validators imply equal bytes.
    public var isStrong: Bool { strongValidatorText != nil }

    /// Returns whether both validators are strong and equal.
    public func isStronglyEqual(to other: Validator) -> Bool {
        guard isStrong, other.isStrong else { return false }
        switch (entityTag, other.entityTag) {
        case (let tag?, let otherTag?): return tag.isStronglyEqual(to: otherTag)
        case (nil, nil): return lastModified == other.lastModified
        default: return false
        }
    }

    /// Returns whether a validator present on both sides differs, even under weak comparison. An invalid `ETag` differs
    /// from any other.
    func contradicts(_ other: Validator) -> Bool {
        if hasEntityTagField, other.hasEntityTagField {
            guard let entityTag, let otherTag = other.entityTag, entityTag.isWeaklyEqual(to: otherTag) else {
                return true
            }
        }
        if let lastModified, let otherModified = other.lastModified { return lastModified != otherModified }
        return false
    }

    /// Whether the resource cannot have changed again within the second of `Last-Modified`: `Date` is at least one
    /// second later. RFC 9110, section 8.8.2.2.
    private var isLastModifiedStrong: Bool {
        guard !hasEntityTagField, let lastModified, let date else { return false }
        return date > lastModified
    }
}
