/// The cookies of one client, as RFC 6265bis, section 5, has them, without scripts and pages: HttpOnly, SameSite and
/// partitions mean nothing here.
///
/// There is no list of public suffixes: a `Domain` without a dot inside (`com`) is refused, but one like `co.uk` is
/// taken. Servers that must not see each other's cookies need jars of their own. Bounds: `HTTPLimits.cookiesPerDomain`,
/// `HTTPLimits.cookies`, `HTTPLimits.cookieBytes`; beyond them what was not used for longest goes first.
public struct CookieJar: Hashable, Sendable {
    private var domains: [String: [Cookie]] = [:]

    /// Cookies in the jar, those included that ended and were not looked at since.
    public private(set) var count = 0

    /// Counts what is done with the jar.
    private var clock: UInt64 = 0

    public init() {}

    /// All cookies that have not ended, in no order. O(cookies).
    public func cookies(now: Int64) -> [Cookie] {
        domains.values.joined().filter { !$0.isExpired(now: now) }
    }

    /// Takes the `Set-Cookie` fields of an answer, at most `HTTPLimits.setCookieFields` of them: RFC 6265bis, section
    /// 5.7.
    ///
    /// - Parameters:
    ///   - url: What was asked for. Only http and https have cookies.
    ///   - now: Seconds since 1970.
    public mutating func store(_ response: HeaderFields, from url: FetchURL, now: Int64) {
        guard url.isHTTP else { return }
        for text in response.values(bytes: "set-cookie").prefix(HTTPLimits.setCookieFields) {
            guard let new = SetCookie(text, now: now), let cookie = cookie(new, from: url) else { continue }
            insert(cookie, now: now)
        }
    }

    /// The `Cookie` field of a request, or no field: RFC 6265bis, section 5.8.3. O(cookies of the host and those
    /// above).
    ///
    /// Those with longer paths come first, then those that came first. What does not fit into
    /// `HTTPLimits.cookieFieldBytes` is left out. Not to be asked for a request that brings a `Cookie` of its own.
    public mutating func cookieField(for url: FetchURL, now: Int64) -> HeaderFields {
        guard url.isHTTP else { return HeaderFields() }
        let host = url.origin.host
        clock += 1
        var found: [Cookie] = []
        for domain in Self.domains(of: host) {
            removeExpired(of: domain, now: now)
            guard var cookies = domains[domain] else { continue }
            for index in cookies.indices where isFor(url, host, cookies[index]) {
                cookies[index].used = clock
                found.append(cookies[index])
            }
            domains[domain] = cookies
        }
        found.sort { $0.path.count == $1.path.count ? $0.created < $1.created : $0.path.count > $1.path.count }
        var value: [UInt8] = []
        for cookie in found {
            let pair = cookie.pair
            guard value.count + 2 + pair.count <= HTTPLimits.cookieFieldBytes else { continue }
            if !value.isEmpty { value += "; ".utf8 }
            value += pair
        }
        var fields = HeaderFields()
        if !value.isEmpty { fields.add("cookie".utf8, value) }
        return fields
    }

    private func isFor(_ url: FetchURL, _ host: String, _ cookie: Cookie) -> Bool {
        (!cookie.isHostOnly || cookie.domain == host) && (!cookie.isSecure || url.scheme == "https")
            && Cookie.path(url.path.utf8, matches: cookie.path)
    }

    /// The host and the names above it; for an address itself alone.
    private static func domains(of host: String) -> [String] {
        guard IPAddress(host) == nil else { return [host] }
        var names = [host]
        var rest = host[...]
        while let dot = rest.firstIndex(of: ".") {
            rest = rest[rest.index(after: dot)...]
            if !rest.isEmpty { names.append(String(rest)) }
        }
        return names
    }

    /// The cookie that an answer from `url` sets; nil if it may not.
    private func cookie(_ new: SetCookie, from url: FetchURL) -> Cookie? {
        let host = url.origin.host
        let isSafe = url.scheme == "https"
        guard new.domain.allSatisfy({ $0 < 0x80 }) else { return nil }
        var domain = String(decoding: new.domain, as: UTF8.self)
        if !domain.utf8.contains(UInt8(ascii: ".")), !domain.isEmpty {
            // One that is a name of its own may have itself, like `localhost`.
            guard domain == host else { return nil }
            domain = ""
        }
        guard domain.isEmpty || Cookie.host(host, matches: domain) else { return nil }
        let path = new.path.map { Array($0) } ?? Self.defaultPath(url)
        let cookie = Cookie(
            name: Array(new.name), value: Array(new.value), domain: domain.isEmpty ? host : domain,
            isHostOnly: domain.isEmpty, path: path, isSecure: new.isSecure, expires: new.expires, created: 0,
            used: 0)
        if cookie.isSecure, !isSafe { return nil }
        if !cookie.isSecure, !isSafe, hidesSecure(cookie) { return nil }
        if new.begins(with: "__secure-") || new.begins(with: "__host-") {
            guard !cookie.name.isEmpty, cookie.isSecure else { return nil }
        }
        if new.begins(with: "__host-") {
            guard cookie.isHostOnly, new.path?.elementsEqual("/".utf8) == true else { return nil }
        }
        return cookie
    }

    /// The path up to its last slash: RFC 6265bis, section 5.1.4.
    private static func defaultPath(_ url: FetchURL) -> [UInt8] {
        let path = Array(url.path.utf8)
        guard let slash = path.lastIndex(of: UInt8(ascii: "/")), slash > 0 else { return [UInt8(ascii: "/")] }
        return Array(path[..<slash])
    }

    /// Whether a cookie that came without TLS would stand in for one that goes by TLS alone: RFC 6265bis, section 5.7,
    /// step 16. O(cookies).
    private func hidesSecure(_ new: Cookie) -> Bool {
        domains.contains { domain, cookies in
            (Cookie.host(domain, matches: new.domain) || Cookie.host(new.domain, matches: domain))
                && cookies.contains {
                    $0.isSecure && $0.name == new.name && Cookie.path(new.path, matches: $0.path)
                }
        }
    }

    private mutating func insert(_ new: Cookie, now: Int64) {
        clock += 1
        removeExpired(of: new.domain, now: now)
        var new = new
        (new.created, new.used) = (clock, clock)
        var cookies = domains[new.domain] ?? []
        if let index = cookies.firstIndex(where: { $0.isReplaced(by: new) }) {
            new.created = cookies.remove(at: index).created
            count -= 1
        }
        if !new.isExpired(now: now) {
            cookies.append(new)
            count += 1
        }
        if cookies.count > HTTPLimits.cookiesPerDomain {
            // What goes without TLS goes first: RFC 6265bis, section 5.7.
            let open = cookies.indices.filter { !cookies[$0].isSecure }
            let among = open.isEmpty ? Array(cookies.indices) : open
            if let index = among.min(by: { cookies[$0].used < cookies[$1].used }) {
                cookies.remove(at: index)
                count -= 1
            }
        }
        domains[new.domain] = cookies.isEmpty ? nil : cookies
        if count > HTTPLimits.cookies { makeRoom(now: now) }
    }

    /// Removes what has ended, and if nothing has, the one cookie that was not used for longest. O(cookies).
    private mutating func makeRoom(now: Int64) {
        for domain in Array(domains.keys) { removeExpired(of: domain, now: now) }
        guard count > HTTPLimits.cookies,
            let oldest = domains.values.joined().min(by: { ($0.used, $0.created) < ($1.used, $1.created) })
        else { return }
        remove(of: oldest.domain) { $0 == oldest }
    }

    private mutating func removeExpired(of domain: String, now: Int64) {
        remove(of: domain) { $0.isExpired(now: now) }
    }

    private mutating func remove(of domain: String, where isUnwanted: (Cookie) -> Bool) {
        guard var cookies = domains[domain], cookies.contains(where: isUnwanted) else { return }
        count -= cookies.count
        cookies.removeAll(where: isUnwanted)
        count += cookies.count
        domains[domain] = cookies.isEmpty ? nil : cookies
    }
}
