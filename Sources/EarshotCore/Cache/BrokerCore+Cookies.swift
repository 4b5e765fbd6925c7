internal import EarshotHTTP

/// Cookies, for requests that opt in: one jar per root of handlers. A jar outlives its root's last handler by the
/// setting `cookie-time`.
extension BrokerCore {
    /// Whether a root may have a jar. Evicts an idle jar if that makes room. O(roots) for a root without a jar.
    mutating func makeRoomForJar(of root: Int32) -> Bool {
        if roots[root].jar != nil { return true }
        let used = roots.indices.count { roots[$0].jar != nil }
        if used + idleJars.count < limits.cookieJars { return true }
        return idleJars.evict()
    }

    /// Keeps the jar of a root whose last handler is removed.
    mutating func keepJar(of root: Int32) {
        guard let jar = roots[root].jar, jar.count > 0, limits.cookieMilliseconds > 0 else { return }
        idleJars.keep(jar, of: roots[root].name, now: clock)
        awaitIdleJars()
    }

    /// Removes expired idle jars: when the timer of the oldest fires, and when the setting has changed.
    mutating func expireJars(now: Tick) {
        jarTimer = 0
        idleJars.expire(after: limits.cookieMilliseconds, now: now)
        awaitIdleJars()
    }

    /// Sets the single timer of all idle jars, unless it is set.
    private mutating func awaitIdleJars() {
        guard jarTimer == 0, let oldest = idleJars.oldest else { return }
        jarTimer = nextSerial()
        setTimer(oldest.advanced(byMilliseconds: limits.cookieMilliseconds), .jars(serial: jarTimer))
    }

    /// Adds the cookies of a root's jar to a request. A request with a `Cookie` field of its own does not take part.
    mutating func withCookies(_ request: HTTPRequest, of root: Int32) -> HTTPRequest {
        guard !request.fields.contains("cookie") else { return request }
        var jar = roots[root].jar ?? CookieJar()
        var request = request.adding(jar.cookieField(for: request.url, now: calendarSeconds))
        request.jar = roots[root].name
        roots[root].jar = jar
        return request
    }

    /// Stores the cookies of a response in the jar of the root that requested it, if the root still exists.
    mutating func takeCookies(_ fields: HeaderFields, of request: HTTPRequest) {
        guard let name = request.jar, let root = rootNumbers[name] else { return }
        roots[root].jar?.store(fields, from: request.url, now: calendarSeconds)
    }

    /// Replaces the cookies of the previous hop in a redirected request by those for its new URL.
    mutating func withCookies(redirected request: HTTPRequest) -> HTTPRequest {
        guard let name = request.jar, let root = rootNumbers[name] else { return request }
        var request = request
        request.fields.removeAll { $0.isNamed("cookie") }
        return withCookies(request, of: root)
    }
}
