internal import EarshotHTTP
internal import EarshotWire

/// Cookies, for requests that opt in: one jar per root of a principal's handlers. A jar outlives its root's last handler by the
/// setting `cookie-time`.
extension BrokerCore {
    /// Keeps the jar of a root whose last handler is removed.
    mutating func keepJar(of root: String) {
        setTimer(
            cookieJars.rootRemoved(root, keepingMilliseconds: limits.cookieMilliseconds, now: clock, quotas: &quotas))
    }

    /// Removes expired idle jars: when the timer of the oldest fires, and when the setting has changed.
    mutating func expireJars(now: Tick) {
        setTimer(cookieJars.expire(keepingMilliseconds: limits.cookieMilliseconds, now: now, quotas: &quotas))
    }

    private mutating func setTimer(_ expiry: CookieJars.Expiry?) {
        if let expiry { setTimer(expiry.end, .jars(serial: expiry.serial)) }
    }

    /// Gives a root of a principal a jar, unless it has one.
    ///
    /// - Returns: false if there is no room.
    mutating func openJar(of root: String, by principal: Handle<Principal>) -> Bool {
        cookieJars.open(root, of: principal, within: limits.cookieBytes, quotas: &quotas)
    }

    /// Adds the cookies of a root's jar to a request.
    mutating func withCookies(_ request: HTTPRequest, of root: String) -> HTTPRequest {
        cookieJars.withCookies(request, of: root, seconds: calendarSeconds)
    }

    /// Stores the cookies of a response in the jar of the root that requested it, if the root still exists.
    mutating func takeCookies(_ fields: HeaderFields, of request: HTTPRequest) {
        guard let root = request.jar else { return }
        cookieJars.store(
            fields, from: request.url, of: root, suffixes: facilities.publicSuffixes, seconds: calendarSeconds,
            within: limits.cookieBytes, quotas: &quotas)
    }

    /// Handles COOKIES: stores cookies of the user in the jar of a root that has a handler.
    mutating func cookiesGiven(_ id: HandlerID, _ url: String, _ fields: [UInt8], by client: Handle<ClientSession>) {
        let message = ClientMessage.cookies(id, url: url, fields: fields)
        guard let url = try? FetchURL(url, hosts: facilities.hosts), url.isHTTP else {
            return refuse(client, "bad-message", "the URL is not one of http or https", message)
        }
        guard let handler = handlers.number(of: key(id, of: client)) else {
            return refuse(client, "bad-message", "subscribe to the handler first", message)
        }
        let root = handlers.rootName(of: handler)
        let principal = handlers[handler].principal
        guard openJar(of: root, by: principal) else {
            return principal == PrincipalTable.administrator
                ? refuse(client, "limit", "there is no room for another cookie jar", message)
                : refuse(client, "quota", Self.cookieQuotaDetail, message)
        }
        cookieJars.store(
            HeaderFields(lines: fields), from: url, by: .user, of: root, suffixes: facilities.publicSuffixes,
            seconds: calendarSeconds, within: limits.cookieBytes, quotas: &quotas)
    }

    /// Writes the cookies of a handler's root in the order of their creation. A page ends as that of a table. Cookies
    /// that are not UTF-8 cannot be written.
    func writeCookies(of key: HandlerKey, _ page: QueryPage, to json: inout JSONText) {
        let root = HandlerRegistry.rootText(key.id, of: principals.name(of: key.principal))
        let last = page.after.flatMap { UInt64($0) } ?? 0
        let cookies = (cookieJars.jar(of: root)?.cookies(now: calendarSeconds) ?? [])
            .filter { $0.created > last && $0.isText }.sorted { $0.created < $1.created }
        var written = 0
        json.member("cookies") { json in
            json.list { json in
                let end = json.bytes.count + limits.answerBytes
                for cookie in cookies.prefix(page.limit ?? WireLimits.queryEntries) where json.bytes.count < end {
                    write(cookie, to: &json)
                    written += 1
                }
            }
        }
        if written < cookies.count, written > 0 { json.member("cookies-next", String(cookies[written - 1].created)) }
    }

    private func write(_ cookie: Cookie, to json: inout JSONText) {
        json.object { json in
            json.member("domain", cookie.domain)
            json.member("subdomains", !cookie.isHostOnly)
            json.member("path", String(decoding: cookie.path, as: UTF8.self))
            json.member("secure", cookie.isSecure)
            json.member("http-only", cookie.isHTTPOnly)
            if let expires = cookie.expires { json.member("expires", Int(expires)) }
            json.member("name", String(decoding: cookie.name, as: UTF8.self))
            json.member("value", String(decoding: cookie.value, as: UTF8.self))
        }
    }

    /// Replaces the cookies of the previous hop in a redirected request by those for its new URL.
    mutating func withCookies(redirected request: HTTPRequest) -> HTTPRequest {
        guard let root = request.jar, handlers.hasRoot(root) else { return request }
        var request = request
        request.fields.removeAll { $0.isNamed("cookie") }
        return withCookies(request, of: root)
    }
}
