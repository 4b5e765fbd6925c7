/// Limits of all input and decisions in this module, with their reasons.
public enum HTTPLimits {
    /// Maximum length of a URL in bytes, as given and normalized. RFC 9110, section 4.1, requires at least 8,000;
    /// servers stop there.
    public static let urlBytes = 8192

    /// Maximum length of a block of header fields in bytes. Half of a message's head, and more than common servers
    /// accept.
    public static let headerBytes = 32 * 1024

    /// Maximum number of header fields of a request: the limit of Apache, the lowest of the common servers.
    public static let headerFields = 100

    /// Maximum length of a zone in bytes: that of the name of an interface (IF_NAMESIZE without its end).
    static let zoneBytes = 15

    /// Maximum length of a host name in bytes, without a trailing dot: RFC 1035, section 2.3.4, without root label and
    /// length octets.
    public static let hostBytes = 253

    /// Maximum length of a label of a host name in bytes: RFC 1035, section 2.3.4.
    public static let labelBytes = 63

    /// Maximum length of a method in bytes; the longest registered one has 17.
    public static let methodBytes = 32

    /// Maximum number of redirects per request. The Fetch standard allows 20, which no legitimate chain needs.
    public static let redirectHops = 10

    /// Maximum number of content codings to decode: one of the stored file, and one applied in transit.
    public static let contentCodings = 2

    /// Maximum value of `Retry-After` in seconds, one year. Longer delays make no difference.
    public static let retryAfterSeconds: Int64 = 365 * 86_400
}

extension HTTPLimits {
    /// Maximum number of rules in the text of an `AddressPolicy`. Every connection checks all of them, which takes some
    /// microseconds at this limit.
    public static let addressRules = 1000
}

extension HTTPLimits {
    /// Maximum length of an entity tag in bytes, including quotation marks. Servers use less than a hundred; each
    /// revalidation sends the tag back.
    public static let entityTagBytes = 1024

    /// Maximum number of names in a `Vary`. Each needs a lookup in the request; ordinary servers name fewer than ten.
    public static let varyNames = 50
}

extension HTTPLimits {
    /// Maximum length of a cookie's name and value together, in bytes: RFC 6265bis, section 5.6.
    public static let cookieBytes = 4096

    /// Maximum length of an attribute's value in bytes; longer ones are ignored: RFC 6265bis, section 5.6.
    public static let cookieAttributeBytes = 1024

    /// Maximum number of cookies per domain: the minimum that RFC 6265bis, section 6.1, requires.
    public static let cookiesPerDomain = 50

    /// Number of cookies that a jar keeps: the minimum that RFC 6265bis, section 6.1, requires. At most 16 MiB with the
    /// limits above.
    public static let cookiesPerJar = 3000

    /// Number of cookies beyond `cookiesPerJar` at which a jar evicts down to them, so that an insertion costs little.
    public static let surplusCookies = 200

    /// Maximum number of `Set-Cookie` fields evaluated per response: no more can stay in one domain.
    public static let setCookieFields = 50

    /// Maximum lifetime of a cookie in seconds, 400 days: RFC 6265bis, section 5.5.
    public static let cookieLifetimeSeconds: Int64 = 400 * 86_400

    /// Maximum length of a `Cookie` field in bytes: half of a request's header fields.
    public static let cookieFieldBytes = 16 * 1024
}
