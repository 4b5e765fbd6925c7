/// What the `Cache-Control` of a request or a response says to a private cache: RFC 9111, section 5.2.
///
/// Names are read in any case, arguments as tokens and as quoted strings, times as 0 to 2^31 seconds. A time that
/// cannot be read, or is given twice and not the same, counts as the strictest one (section 4.2.1). `no-cache` with
/// field names counts as one without, as section 5.2.2.4 allows; `private` restricts shared caches alone. What is for
/// shared caches or for bodies that are changed (`s-maxage`, `proxy-revalidate`, `no-transform`) is passed over,
/// unknown names too.
public struct CacheControl: Hashable, Sendable {
    /// Seconds an answer is fresh after it was made; in a request, the oldest one that is wanted.
    public private(set) var maxAge: Int64?
    /// Seconds beyond freshness that a request accepts: 2^31 for `max-stale` without a number.
    public private(set) var maxStale: Int64?
    /// Seconds that an answer has to stay fresh, a request asks.
    public private(set) var minFresh: Int64?
    /// Seconds beyond freshness in which an answer may be used while it is validated: RFC 5861, section 3.
    public private(set) var staleWhileRevalidate: Int64?
    /// Seconds beyond freshness in which an answer may be used when asking again fails: RFC 5861, section 4.
    public private(set) var staleIfError: Int64?
    public private(set) var noCache = false
    public private(set) var noStore = false
    public private(set) var mustRevalidate = false
    public private(set) var mustUnderstand = false
    public private(set) var onlyIfCached = false
    /// Whether an answer does not change while it is fresh: RFC 8246.
    public private(set) var isImmutable = false
    /// Whether `public` or `private` allows storing what could not be stored without.
    public private(set) var allowsStoring = false

    /// Reads the fields of a response.
    public init(response fields: HeaderFields) {
        for member in FieldList.members(fields.values(bytes: "cache-control")) {
            if let directive = CacheDirective(member) { take(directive) }
        }
    }

    /// Reads the fields of a request. Without `Cache-Control`, `Pragma: no-cache` is the same (RFC 9111, section 5.4).
    public init(request fields: HeaderFields) {
        self.init(response: fields)
        guard !fields.contains("cache-control") else { return }
        for member in FieldList.members(fields.values(bytes: "pragma")) {
            if CacheDirective(member)?.name.elementsEqual("no-cache".utf8) == true { noCache = true }
        }
    }

    private mutating func take(_ directive: CacheDirective) {
        switch String(decoding: directive.name, as: UTF8.self) {
        case "max-age": Self.merge(directive.seconds, into: &maxAge, strictest: 0)
        case "min-fresh": Self.merge(directive.seconds, into: &minFresh, strictest: DeltaSeconds.longest)
        case "max-stale":
            if case .none = directive.argument {
                Self.merge(DeltaSeconds.longest, into: &maxStale, strictest: 0)
            } else {
                Self.merge(directive.seconds, into: &maxStale, strictest: 0)
            }
        case "stale-while-revalidate": Self.merge(directive.seconds, into: &staleWhileRevalidate, strictest: 0)
        case "stale-if-error": Self.merge(directive.seconds, into: &staleIfError, strictest: 0)
        case "no-cache": noCache = true
        case "no-store": noStore = true
        case "must-revalidate": mustRevalidate = true
        case "must-understand": mustUnderstand = true
        case "only-if-cached": onlyIfCached = true
        case "immutable": isImmutable = true
        case "public", "private": allowsStoring = true
        default: break
        }
    }

    private static func merge(_ seconds: Int64?, into known: inout Int64?, strictest: Int64) {
        let seconds = seconds ?? strictest
        known = known == nil || known == seconds ? seconds : strictest
    }
}
