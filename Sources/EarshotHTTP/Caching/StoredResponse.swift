/// Stored response without its body.
///
/// All times are seconds since 1970. Age and freshness are derived from the fields once, at initialization.
public struct StoredResponse: Sendable {
    /// Status sent by the server.
    public let status: Int
    /// Fields that may be stored: RFC 9111, section 3.1.
    public let fields: HeaderFields
    /// Time of sending the request, or its last revalidation.
    public let requestTime: Int64
    /// Time of receiving the response, or its last revalidation.
    public let responseTime: Int64
    public let varyKey: VaryKey
    /// Whether it must be revalidated before any use, even while fresh: RFC 9111, section 4.4.
    public let isInvalidated: Bool

    let cacheControl: CacheControl
    let validator: Validator
    /// Whether there is a `Vary` field.
    let hasVary: Bool
    /// Value of `Date`, or the time of receipt without a valid one: RFC 9110, section 6.6.1.
    let date: Int64
    /// Freshness lifetime in seconds from `max-age` or `Expires`; nil without either.
    let explicitLifetime: Int64?
    /// Value `corrected_initial_age` of RFC 9111, section 4.2.3.
    private let initialAge: Int64

    /// Creates a stored response. Fields and times need not be consistent.
    public init(
        status: Int, fields: HeaderFields, requestTime: Int64, responseTime: Int64, varyKey: VaryKey,
        isInvalidated: Bool = false
    ) {
        let fields = ParsedFields(fields)
        self.init(
            status: status, fields, CacheControl(fieldValues: fields.values(named: "cache-control")),
            requestTime: requestTime, responseTime: responseTime, varyKey: varyKey, isInvalidated: isInvalidated)
    }

    /// - Parameter control: Directives of `fields`.
    init(
        status: Int, _ fields: ParsedFields, _ control: CacheControl, requestTime: Int64, responseTime: Int64,
        varyKey: VaryKey, isInvalidated: Bool = false
    ) {
        self.status = status
        self.fields = fields.fields
        self.requestTime = requestTime
        self.responseTime = responseTime
        self.varyKey = varyKey
        self.isInvalidated = isInvalidated
        self.cacheControl = control
        validator = Validator(fields, now: responseTime)
        hasVary = fields.contains("vary")
        date = validator.date ?? responseTime
        if let maxAge = control.maxAge {
            explicitLifetime = maxAge
        } else if fields.contains("expires") {
            // An invalid date, most often `0`, is in the past: RFC 9111, section 5.3.
            let end = fields.singleValue(named: "expires").flatMap { HTTPDate(bytes: $0.span, now: responseTime) }
            explicitLifetime = end.map { [date] in DeltaSeconds.between(date, $0.secondsSince1970) } ?? 0
        } else {
            explicitLifetime = nil
        }
        // The first list member counts; an invalid number is ignored: RFC 9111, section 5.1.
        let age = FieldList.members(fields.values(named: "age")).first.flatMap { DeltaSeconds.parse($0) } ?? 0
        let delay = DeltaSeconds.between(requestTime, responseTime)
        initialAge = max(DeltaSeconds.between(date, responseTime), DeltaSeconds.sum(age, delay))
    }

    /// Returns the age in seconds, 0 to 2^31: RFC 9111, section 4.2.3.
    ///
    /// - Returns: 2^31 before `responseTime`, because the age is unknown after the clock was set back.
    public func age(now: Int64) -> Int64 {
        guard now >= responseTime else { return DeltaSeconds.maximum }
        return DeltaSeconds.sum(initialAge, DeltaSeconds.between(responseTime, now))
    }

    /// Whether it is for one user. Computed, because private caches do not use it.
    var isPersonal: Bool { CacheRule.isPersonal(ParsedFields(fields), cacheControl) }

    /// Whether it can be revalidated.
    public var hasValidator: Bool { !validator.isEmpty }

    /// Conditional request fields for revalidation; empty without a validator: RFC 9111, section 4.3.1.
    public var revalidationConditions: HeaderFields {
        var conditions = HeaderFields()
        if let tag = validator.entityTag { conditions.appendUnchecked("if-none-match".utf8, tag.bytes) }
        if validator.lastModified != nil {
            conditions.appendUnchecked("if-modified-since".utf8, validator.lastModifiedText)
        }
        return conditions
    }
}

extension StoredResponse: Equatable {
    /// Compares the initializer's arguments; all other properties are derived from them.
    public static func == (left: StoredResponse, right: StoredResponse) -> Bool {
        left.status == right.status && left.fields == right.fields && left.requestTime == right.requestTime
            && left.responseTime == right.responseTime && left.varyKey == right.varyKey
            && left.isInvalidated == right.isInvalidated
    }
}

extension StoredResponse {
    /// Returns the fields of a response from the cache, with a current `Age`: RFC 9111, section 4.
    public func responseFields(usedAt now: Int64) -> HeaderFields {
        var used = fields
        used.removeAll(named: "age")
        used.appendUnchecked("age".utf8, String(age(now: now)).utf8)
        return used
    }

    /// Returns the fields of a 206 with a range of the body, or of a 416 for a range that is not satisfiable: RFC 9110,
    /// sections 15.3.7 and 15.5.17.
    ///
    /// - Parameter length: Length of the whole body in bytes.
    public func responseFields(ofRange range: Range<Int>?, length: Int, usedAt now: Int64) -> HeaderFields {
        var used = responseFields(usedAt: now)
        used.removeAll(named: "content-range")
        used.removeAll(named: "content-length")
        let bytes = range.map { "\($0.lowerBound)-\($0.upperBound - 1)" } ?? "*"
        used.appendUnchecked("content-range".utf8, "bytes \(bytes)/\(length)".utf8)
        used.appendUnchecked("content-length".utf8, String(range?.count ?? 0).utf8)
        return used
    }
}
