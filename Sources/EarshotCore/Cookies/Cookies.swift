internal import EarshotHTTP
internal import EarshotWire

/// Cookies, for requests that opt in: one jar per root of a principal's handlers. A jar outlives its root's last handler by the
/// setting `cookie-time`.
enum Cookies {
    /// Keeps the jar of a root whose last handler is removed.
    static func rootRemoved(_ root: String, in records: inout Records) {
        let expiry = records.cookieJars.rootRemoved(
            root, keepingMilliseconds: records.limits.cookieMilliseconds, now: records.clock, quotas: &records.quotas)
        setTimer(expiry, in: &records)
    }

    /// Removes expired idle jars: when the timer of the oldest fires, and when the setting has changed.
    static func expireJars(now: Tick, in records: inout Records) {
        let expiry = records.cookieJars.expire(
            keepingMilliseconds: records.limits.cookieMilliseconds, now: now, quotas: &records.quotas)
        setTimer(expiry, in: &records)
    }

    private static func setTimer(_ expiry: CookieJars.Expiry?, in records: inout Records) {
        if let expiry { records.setTimer(expiry.end, .jars(serial: expiry.serial)) }
    }

    /// Gives a root of a principal a jar, unless it has one.
    ///
    /// - Returns: false if there is no room.
    static func openJar(of root: String, by principal: Handle<Principal>, in records: inout Records) -> Bool {
        records.cookieJars.open(root, of: principal, within: records.limits.cookieBytes, quotas: &records.quotas)
    }

    /// Adds the cookies of a root's jar to a request.
    static func add(to request: HTTPRequest, of root: String, in records: inout Records) -> HTTPRequest {
        records.cookieJars.withCookies(request, of: root, seconds: records.calendarSeconds)
    }

    /// Replaces the cookies of the previous hop in a redirected request by those for its new URL.
    static func replace(inRedirected request: HTTPRequest, in records: inout Records) -> HTTPRequest {
        guard let root = request.jar, records.handlers.hasRoot(root) else { return request }
        var request = request
        request.fields.removeAll { $0.isNamed("cookie") }
        return add(to: request, of: root, in: &records)
    }

    /// Stores the cookies of a response in the jar of the root that requested it, if the root still exists.
    static func received(_ fields: HeaderFields, for request: HTTPRequest, in records: inout Records) {
        guard let root = request.jar else { return }
        records.cookieJars.store(
            fields, from: request.url, of: root, suffixes: records.features.publicSuffixes,
            seconds: records.calendarSeconds, within: records.limits.cookieBytes, quotas: &records.quotas)
    }

    /// Stores cookies of the user in the jar of a root that has a handler, for COOKIES.
    ///
    /// - Returns: the error to reply with; nil if the cookies were accepted.
    static func store(
        _ fields: [UInt8], for url: String, _ id: HandlerID, by client: Handle<ClientSession>, in records: inout Records
    ) -> ErrorReply? {
        guard let url = try? FetchURL(url, hosts: records.features.hosts), url.isHTTP else {
            return ErrorReply(code: "bad-message", detail: "the URL is not one of http or https")
        }
        guard let handler = records.handlers.handle(of: records.key(id, of: client)) else {
            return ErrorReply(code: "bad-message", detail: "subscribe to the handler first")
        }
        let root = records.handlers.rootName(of: handler)
        let principal = records.handlers[handler].principal
        guard openJar(of: root, by: principal, in: &records) else {
            return principal == PrincipalTable.administrator
                ? ErrorReply(code: "limit", detail: "there is no room for another cookie jar")
                : ErrorReply(code: "quota", detail: QuotaDetail.cookies)
        }
        records.cookieJars.store(
            HeaderFields(lines: fields), from: url, by: .user, of: root, suffixes: records.features.publicSuffixes,
            seconds: records.calendarSeconds, within: records.limits.cookieBytes, quotas: &records.quotas)
        return nil
    }
}
