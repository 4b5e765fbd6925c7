internal import EarshotHTTP

/// Cookies, for requests that ask for them: one jar for each root of handlers. A jar outlives its root's last handler by
/// the setting `cookie-time`.
extension BrokerCore {
    /// Whether a root may have a jar; evicts an idle jar if that makes room. O(roots) when it has none.
    mutating func makeRoomForJar(of root: Int32) -> Bool {
        if roots[root].jar != nil { return true }
        let used = roots.indices.count { roots[$0].jar != nil }
        if used + idleJars.count < limits.cookieJars { return true }
        return idleJars.evict()
    }

    /// Keeps the jar of a root whose last handler goes.
    mutating func keepJar(of root: Int32) {
        guard let jar = roots[root].jar, jar.count > 0, limits.cookieMilliseconds > 0 else { return }
        idleJars.keep(jar, of: roots[root].name, now: clock)
        awaitIdleJars()
    }

    /// The time of the oldest idle jar is over, or the setting has changed.
    mutating func expireJars(now: Tick) {
        jarTimer = 0
        idleJars.expire(after: limits.cookieMilliseconds, now: now)
        awaitIdleJars()
    }

    /// Sets the one timer of all idle jars, unless it is set.
    private mutating func awaitIdleJars() {
        guard jarTimer == 0, let oldest = idleJars.oldest else { return }
        jarTimer = nextSerial()
        setTimer(oldest.advanced(byMilliseconds: limits.cookieMilliseconds), .jars(serial: jarTimer))
    }

    /// The request with the cookies that its root has for it. One that brings some of its own has nothing to do with
    /// the jar.
    mutating func withCookies(_ request: HTTPRequest, of root: Int32) -> HTTPRequest {
        guard !request.fields.contains("cookie") else { return request }
        var jar = roots[root].jar ?? CookieJar()
        var request = request.adding(jar.cookieField(for: request.url, now: calendarSeconds))
        request.jar = roots[root].name
        roots[root].jar = jar
        return request
    }

    /// Takes the cookies of an answer into the jar of the root that asked, if it is still there.
    mutating func takeCookies(_ fields: HeaderFields, of request: HTTPRequest) {
        guard let name = request.jar, let root = rootNumbers[name] else { return }
        roots[root].jar?.store(fields, from: request.url, now: calendarSeconds)
    }

    /// The next hop of a redirect with the cookies that are for it, in place of those that were for the last one.
    mutating func withCookies(redirected request: HTTPRequest) -> HTTPRequest {
        guard let name = request.jar, let root = rootNumbers[name] else { return request }
        var request = request
        request.fields.removeAll { $0.isNamed("cookie") }
        return withCookies(request, of: root)
    }
}
