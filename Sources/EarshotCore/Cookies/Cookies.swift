internal import EarshotHTTP
internal import EarshotWire

/// Cookies, for requests that opt in: one jar per root of a principal's handlers. A jar outlives its root's last
/// handler by the setting `cookie-time`.
enum Cookies {
    /// Keeps the jar of a root whose last handler is removed.
    static func rootRemoved(_ root: String, in records: inout Records) {
        let expiry = records.cookieJars.rootRemoved(
            root, keepingMilliseconds: records.limits.idleCookieJarMilliseconds, now: records.latestEventTime,
            quotas: &records.quotaUse)
        setExpiryTimer(expiry, in: &records)
    }

    /// Removes expired idle jars: when the timer of the oldest fires, and when the setting has changed.
    static func expireJars(now: MonotonicTime, in records: inout Records) {
        let expiry = records.cookieJars.expire(
            keepingMilliseconds: records.limits.idleCookieJarMilliseconds, now: now, quotas: &records.quotaUse)
        setExpiryTimer(expiry, in: &records)
    }

    private static func setExpiryTimer(_ expiry: CookieJars.Expiry?, in records: inout Records) {
        if let expiry { records.setTimer(at: expiry.expiryTime, for: .cookieJarExpiry(serial: expiry.timerSerial)) }
    }

    /// Adds a jar to a root of a principal, unless it has one.
    ///
    /// - Returns: false if there is no room.
    static func openJar(of root: String, by principal: Handle<Principal>, in records: inout Records) -> Bool {
        records.cookieJars.openJar(
            root, of: principal, within: records.limits.maximumTotalCookieBytes, quotas: &records.quotaUse)
    }

    /// Adds the cookies of a root's jar to a request.
    static func addCookies(to request: HTTPRequest, of root: String, in records: inout Records) -> HTTPRequest {
        records.cookieJars.withCookies(request, of: root, seconds: records.calendarSeconds)
    }

    /// Replaces the cookies of the previous hop in a redirected request by those for its new URL.
    static func replaceCookies(inRedirected request: HTTPRequest, in records: inout Records) -> HTTPRequest {
        guard let root = request.cookieJarOwner, records.handlers.hasRoot(root) else { return request }
        var request = request
        request.fields.removeAll { $0.isNamed("cookie") }
        return addCookies(to: request, of: root, in: &records)
    }

    /// Stores the cookies of a response in the jar of the root that requested it, if the root still exists.
    static func storeReceivedCookies(_ fields: HeaderFields, for request: HTTPRequest, in records: inout Records) {
        guard let root = request.cookieJarOwner else { return }
        records.cookieJars.storeCookies(
            fields, from: request.url, of: root, suffixes: records.shellFeatures.publicSuffixes,
            seconds: records.calendarSeconds, within: records.limits.maximumTotalCookieBytes, quotas: &records.quotaUse)
    }

    /// Stores cookies of the user in the jar of a root that has a handler, for COOKIES.
    ///
    /// - Returns: the error to reply with; nil if the cookies were accepted.
    static func storeUserCookies(
        _ fields: [UInt8], for url: String, _ id: HandlerID, by client: Handle<ClientSession>, in records: inout Records
    ) -> ErrorReply? {
        guard let url = try? FetchURL(url, hostEncoder: records.shellFeatures.hostNameEncoder), url.isHTTP else {
            return ErrorReply(code: "bad-message", detail: "the URL is not one of http or https")
        }
        guard let handler = records.handlers.handle(of: records.handlerKey(id, of: client)) else {
            return ErrorReply(code: "bad-message", detail: "subscribe to the handler first")
        }
        let root = records.handlers.rootName(of: handler)
        let principal = records.handlers[handler].principal
        guard openJar(of: root, by: principal, in: &records) else {
            return principal == PrincipalTable.administrator
                ? ErrorReply(code: "limit", detail: "there is no room for another cookie jar")
                : ErrorReply(code: "quota", detail: QuotaRefusalText.cookies)
        }
        records.cookieJars.storeCookies(
            HeaderFields(lines: fields), from: url, by: .user, of: root, suffixes: records.shellFeatures.publicSuffixes,
            seconds: records.calendarSeconds, within: records.limits.maximumTotalCookieBytes, quotas: &records.quotaUse)
        return nil
    }
}
