internal import EarshotHTTP

/// Cookies, for requests that ask for them: one jar for each root of handlers, which goes with its last handler.
extension BrokerCore {
    /// Whether a root may have a jar. O(roots) when it has none.
    func hasRoomForJar(of root: Int32) -> Bool {
        roots[root].jar != nil || roots.indices.count { roots[$0].jar != nil } < limits.cookieJars
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
