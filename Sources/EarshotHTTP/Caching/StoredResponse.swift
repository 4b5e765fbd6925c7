/// What a cache knows of an answer it keeps, its body aside.
///
/// All times are seconds since 1970. What its fields say of age and freshness is worked out once, when it is made.
public struct StoredResponse: Sendable {
    /// As the server sent it.
    public let status: Int
    /// Those that may be kept: RFC 9111, section 3.1.
    public let fields: HeaderFields
    /// When the request for it, or for its last validation, was sent.
    public let requestTime: Int64
    /// When the answer, or its last validation, came.
    public let responseTime: Int64
    public let varyKey: VaryKey
    /// Whether it has to be validated before any use, however fresh it looks: RFC 9111, section 4.4.
    public let isInvalidated: Bool

    let control: CacheControl
    let validator: Validator
    /// `Date`, or when the answer came if there is none that can be read: RFC 9110, section 6.6.1.
    let date: Int64
    /// Seconds of freshness that `max-age` or `Expires` grants; nil if there is neither.
    let explicitLifetime: Int64?
    /// corrected_initial_age of RFC 9111, section 4.2.3.
    private let initialAge: Int64

    /// Takes what was kept, or is to be. Fields and times need not make sense.
    public init(
        status: Int, fields: HeaderFields, requestTime: Int64, responseTime: Int64, varyKey: VaryKey,
        isInvalidated: Bool = false
    ) {
        self.status = status
        self.fields = fields
        self.requestTime = requestTime
        self.responseTime = responseTime
        self.varyKey = varyKey
        self.isInvalidated = isInvalidated
        control = CacheControl(response: fields)
        validator = Validator(response: fields, now: responseTime)
        date = Self.date("date", of: fields, now: responseTime) ?? responseTime
        if let maxAge = control.maxAge {
            explicitLifetime = maxAge
        } else if fields.contains("expires") {
            // A date that cannot be read, `0` first of all, is in the past: RFC 9111, section 5.3.
            explicitLifetime =
                Self.date("expires", of: fields, now: responseTime).map {
                    [date] in DeltaSeconds.between(date, $0)
                } ?? 0
        } else {
            explicitLifetime = nil
        }
        // Of a list the first member counts, and what is no number not at all: RFC 9111, section 5.1.
        let age = FieldList.members(fields.values(bytes: "age")).first.flatMap { DeltaSeconds.parse($0) } ?? 0
        let delay = DeltaSeconds.between(requestTime, responseTime)
        initialAge = max(DeltaSeconds.between(date, responseTime), DeltaSeconds.sum(age, delay))
    }

    /// Seconds since the server made or validated it, 0 to 2^31: RFC 9111, section 4.2.3.
    ///
    /// - Returns: 2^31 before `responseTime`: a clock that was set back says nothing about age.
    public func age(now: Int64) -> Int64 {
        guard now >= responseTime else { return DeltaSeconds.longest }
        return DeltaSeconds.sum(initialAge, DeltaSeconds.between(responseTime, now))
    }

    /// The fields that ask a server whether it has changed, empty if it has no validator: RFC 9111, section 4.3.1.
    public var conditions: HeaderFields {
        var conditions = HeaderFields()
        if let tag = validator.entityTag { conditions.add("if-none-match".utf8, tag.bytes) }
        if validator.lastModified != nil {
            conditions.add("if-modified-since".utf8, validator.lastModifiedText)
        }
        return conditions
    }

    private static func date(_ name: String, of fields: HeaderFields, now: Int64) -> Int64? {
        fields.agreed(name).flatMap { HTTPDate(String(decoding: $0, as: UTF8.self), now: now)?.secondsSince1970 }
    }
}

extension StoredResponse: Equatable {
    /// Whether all that the answer is made of is equal; the rest follows from it.
    public static func == (left: StoredResponse, right: StoredResponse) -> Bool {
        left.status == right.status && left.fields == right.fields && left.requestTime == right.requestTime
            && left.responseTime == right.responseTime && left.varyKey == right.varyKey
            && left.isInvalidated == right.isInvalidated
    }
}
