internal import EarshotWire

/// Directives of `Cache-Control`, in a request or response, for `CacheRule`: RFC 9111, section 5.2.
///
/// Names are case-insensitive. Arguments are tokens or quoted strings, durations 0 to 2^31 seconds. An invalid
/// duration, or a repeated one with different values, counts as the strictest value (section 4.2.1). `no-cache` and
/// `private` with field names count as those without, as sections 5.2.2.4 and 5.2.2.7 allow. `no-transform` and unknown
/// directives are ignored.
public struct CacheControl: Hashable, Sendable {
    /// Freshness lifetime of a response in seconds; in a request, the maximum acceptable age.
    public private(set) var maxAge: Int64?
    /// Freshness lifetime of a response in a shared cache, in seconds: `s-maxage`.
    public private(set) var sharedMaxAge: Int64?
    /// Staleness that a request accepts, in seconds; 2^31 for `max-stale` without a number.
    public private(set) var maxStale: Int64?
    /// Remaining freshness that a request requires, in seconds.
    public private(set) var minFresh: Int64?
    /// Seconds of staleness during which a response may be used while it is revalidated: RFC 5861, section 3.
    public private(set) var staleWhileRevalidate: Int64?
    /// Seconds of staleness during which a response may be used after a failed request: RFC 5861, section 4.
    public private(set) var staleIfError: Int64?
    public private(set) var noCache = false
    public private(set) var noStore = false
    public private(set) var mustRevalidate = false
    /// Whether a shared cache must revalidate a stale response: `proxy-revalidate`, or `s-maxage`, which implies it.
    public private(set) var sharedCacheMustRevalidate = false
    /// Whether a response is for one user.
    public private(set) var isPrivate = false
    public private(set) var mustUnderstand = false
    public private(set) var onlyIfCached = false
    /// Whether a response does not change while it is fresh: RFC 8246.
    public private(set) var isImmutable = false
    /// Whether `public` or `private` permits storing a response that is not cacheable by default.
    public private(set) var allowsStoring = false

    /// Parses the fields of a response.
    public init(response fields: HeaderFields) {
        self.init(fieldValues: fields.valueBytes(named: "cache-control"))
    }

    /// Parses the values of the fields `Cache-Control`.
    init(fieldValues: [ArraySlice<UInt8>]) {
        for member in FieldList.members(fieldValues) {
            if let directive = CacheDirective(member) { addDirective(directive) }
        }
    }

    /// Parses the fields of a request. Without `Cache-Control`, `Pragma: no-cache` is equivalent (RFC 9111, section
    /// 5.4).
    public init(request fields: HeaderFields) {
        self.init(response: fields)
        guard !fields.isEmpty, !fields.contains("cache-control") else { return }
        for member in FieldList.members(fields.valueBytes(named: "pragma")) {
            if CacheDirective(member)?.name.elementsEqual("no-cache".utf8) == true { noCache = true }
        }
    }

    /// Cache mode that these directives of a request mean; nil if no mode means the same.
    var equivalentCacheMode: CacheMode? {
        guard maxStale == nil, minFresh == nil, staleIfError == nil, !onlyIfCached, maxAge ?? 0 == 0 else { return nil }
        if noStore { return .noStore }
        return noCache || maxAge != nil ? .noCache : .default
    }

    private mutating func addDirective(_ directive: CacheDirective) {
        switch String(decoding: directive.name, as: UTF8.self) {
        case "max-age": Self.mergeSeconds(directive.seconds, into: &maxAge, strictest: 0)
        case "s-maxage":
            Self.mergeSeconds(directive.seconds, into: &sharedMaxAge, strictest: 0)
            sharedCacheMustRevalidate = true
        case "min-fresh": Self.mergeSeconds(directive.seconds, into: &minFresh, strictest: DeltaSeconds.maximum)
        case "max-stale":
            if case .none = directive.argument {
                Self.mergeSeconds(DeltaSeconds.maximum, into: &maxStale, strictest: 0)
            } else {
                Self.mergeSeconds(directive.seconds, into: &maxStale, strictest: 0)
            }
        case "stale-while-revalidate": Self.mergeSeconds(directive.seconds, into: &staleWhileRevalidate, strictest: 0)
        case "stale-if-error": Self.mergeSeconds(directive.seconds, into: &staleIfError, strictest: 0)
        case "no-cache": noCache = true
        case "no-store": noStore = true
        case "must-revalidate": mustRevalidate = true
        case "proxy-revalidate": sharedCacheMustRevalidate = true
        case "must-understand": mustUnderstand = true
        case "only-if-cached": onlyIfCached = true
        case "immutable": isImmutable = true
        case "public": allowsStoring = true
        case "private":
            allowsStoring = true
            isPrivate = true
        default: break
        }
    }

    private static func mergeSeconds(_ seconds: Int64?, into known: inout Int64?, strictest: Int64) {
        let seconds = seconds ?? strictest
        known = known == nil || known == seconds ? seconds : strictest
    }
}

/// Directive of a `Cache-Control` field: RFC 9111, section 5.2.
struct CacheDirective {
    /// Argument of a directive.
    enum Argument {
        case none
        /// Token, or content of a quoted string.
        case value([UInt8])
        /// Malformed argument. The directive applies nonetheless, because its sender wanted a restriction.
        case malformed
    }

    /// Name in lower case.
    let name: [UInt8]
    let argument: Argument

    /// Parses a list member; nil if it does not begin with a token.
    init?(_ member: ArraySlice<UInt8>) {
        let token = member.prefix(while: \.isTokenByte)
        guard !token.isEmpty else { return nil }
        name = token.map(\.lowercased)
        let rest = member[token.endIndex...]
        if rest.isEmpty {
            argument = .none
        } else if rest.first == UInt8(ascii: "=") {
            let text = rest.dropFirst()
            if let content = FieldList.unquoted(text) {
                argument = .value(content)
            } else {
                argument = !text.isEmpty && text.allSatisfy(\.isTokenByte) ? .value(Array(text)) : .malformed
            }
        } else {
            argument = .malformed
        }
    }

    /// Argument in seconds; nil if it is not a number. RFC 9111, section 1.2.2.
    var seconds: Int64? {
        guard case .value(let bytes) = argument else { return nil }
        return DeltaSeconds.parse(bytes)
    }
}
