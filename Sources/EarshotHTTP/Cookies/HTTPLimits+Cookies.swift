extension HTTPLimits {
    /// Bytes of a cookie's name and value together: RFC 6265bis, section 5.6.
    public static let cookieBytes = 4096

    /// Bytes of an attribute's value, beyond which it is passed over: RFC 6265bis, section 5.6.
    public static let cookieAttributeBytes = 1024

    /// Cookies of one domain: what RFC 6265bis, section 6.1, asks for at least.
    public static let cookiesPerDomain = 50

    /// Cookies in one jar: what RFC 6265bis, section 6.1, asks for at least. With the limits above 16 MiB at most.
    public static let cookies = 3000

    /// `Set-Cookie` fields of one response that are looked at: no more can stay in one domain.
    public static let setCookieFields = 50

    /// Seconds that a cookie is kept at most, 400 days: RFC 6265bis, section 5.5.
    public static let cookieSeconds: Int64 = 400 * 86_400

    /// Bytes of a `Cookie` field: half of a request's header fields.
    public static let cookieFieldBytes = 16 * 1024
}
