internal import EarshotHTTP

/// Cookies, for requests that opt in: one jar per root of handlers. A jar outlives its root's last handler by the
/// setting `cookie-time`.
extension BrokerCore {
    /// Keeps the jar of a root whose last handler is removed.
    mutating func keepJar(of root: String) {
        setTimer(cookieJars.rootRemoved(root, keepingMilliseconds: limits.cookieMilliseconds, now: clock))
    }

    /// Removes expired idle jars: when the timer of the oldest fires, and when the setting has changed.
    mutating func expireJars(now: Tick) {
        setTimer(cookieJars.expire(keepingMilliseconds: limits.cookieMilliseconds, now: now))
    }

    private mutating func setTimer(_ expiry: CookieJars.Expiry?) {
        if let expiry { setTimer(expiry.end, .jars(serial: expiry.serial)) }
    }

    /// Adds the cookies of a root's jar to a request.
    mutating func withCookies(_ request: HTTPRequest, of root: String) -> HTTPRequest {
        cookieJars.withCookies(request, of: root, seconds: calendarSeconds)
    }

    /// Stores the cookies of a response in the jar of the root that requested it, if the root still exists.
    mutating func takeCookies(_ fields: HeaderFields, of request: HTTPRequest) {
        cookieJars.store(fields, of: request, seconds: calendarSeconds)
    }

    /// Replaces the cookies of the previous hop in a redirected request by those for its new URL.
    mutating func withCookies(redirected request: HTTPRequest) -> HTTPRequest {
        guard let root = request.jar, handlers.hasRoot(root) else { return request }
        var request = request
        request.fields.removeAll { $0.isNamed("cookie") }
        return withCookies(request, of: root)
    }
}
