internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire

/// The cookies of a handler in answers to QUERY.
extension CoreView {
    /// Writes the cookies of a handler's root in the order of their creation. A page ends as that of a table. Cookies
    /// that are not UTF-8 cannot be written.
    func writeCookies(of key: HandlerKey, _ page: QueryPage, to json: inout JSONText) {
        let root = HandlerRegistry.rootText(key.id, of: records.principals.name(of: key.principal))
        let last = page.after.flatMap { UInt64($0) } ?? 0
        let cookies = (records.cookieJars.jar(of: root)?.cookies(now: records.calendarSeconds) ?? [])
            .filter { $0.created > last && $0.isText }.sorted { $0.created < $1.created }
        var written = 0
        json.member("cookies") { json in
            json.list { json in
                let end = json.bytes.count + records.limits.answerBytes
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
}
