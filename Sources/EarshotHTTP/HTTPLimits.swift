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
