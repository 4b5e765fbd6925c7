extension HTTPLimits {
    /// Maximum length of a cookie's name and value together, in bytes: RFC 6265bis, section 5.6.
    public static let cookieBytes = 4096

    /// Maximum length of an attribute's value in bytes; longer ones are ignored: RFC 6265bis, section 5.6.
    public static let cookieAttributeBytes = 1024

    /// Maximum number of cookies per domain: the minimum that RFC 6265bis, section 6.1, requires.
    public static let cookiesPerDomain = 50

    /// Number of cookies that a jar keeps: the minimum that RFC 6265bis, section 6.1, requires. At most 16 MiB with the
    /// limits above.
    public static let cookies = 3000

    /// Number of cookies beyond `cookies` at which a jar evicts down to them, so that an insertion costs little.
    public static let surplusCookies = 200

    /// Maximum number of `Set-Cookie` fields evaluated per response: no more can stay in one domain.
    public static let setCookieFields = 50

    /// Maximum lifetime of a cookie in seconds, 400 days: RFC 6265bis, section 5.5.
    public static let cookieSeconds: Int64 = 400 * 86_400

    /// Maximum length of a `Cookie` field in bytes: half of a request's header fields.
    public static let cookieFieldBytes = 16 * 1024
}
