/// The bounds of everything this module reads or decides; each has its reason.
public enum HTTPLimits {
    /// Bytes of a URL, as given and in normal form. RFC 9110, section 4.1, asks for 8,000 at least; servers stop there.
    public static let urlBytes = 8192

    /// Bytes of a block of header fields. Half of a message's head, and more than common servers take.
    public static let headerBytes = 32 * 1024

    /// Header fields in one request: the limit of Apache, the lowest of the common servers.
    public static let headerFields = 100

    /// Bytes of a host name, without a dot at its end: RFC 1035, section 2.3.4, less the root label and length octets.
    public static let hostBytes = 253

    /// Bytes of one label of a host name: RFC 1035, section 2.3.4.
    public static let labelBytes = 63

    /// Bytes of a method: the longest registered one has 17.
    public static let methodBytes = 32

    /// Redirects followed for one request. The Fetch standard says 20, which no honest chain needs.
    public static let redirectHops = 10

    /// Content codings of one body that are undone: a stored one, and one that was applied on the way.
    public static let contentCodings = 2

    /// Seconds of the longest `Retry-After` told apart, a year: a longer one means the same to everybody.
    public static let retryAfterSeconds: Int64 = 365 * 86_400
}
