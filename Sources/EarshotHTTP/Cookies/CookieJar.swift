/// Cookies of one client according to RFC 6265bis, section 5. SameSite and partitions are irrelevant without pages.
///
/// Limits: `HTTPLimits.cookiesPerDomain`, `HTTPLimits.cookiesPerJar`, `HTTPLimits.cookieBytes`; the least recently used
/// cookies are evicted first.
public struct CookieJar: Hashable, Sendable {
    private var cookiesByDomain: [String: [Cookie]] = [:]

    /// Number of cookies in the jar, including expired ones not yet removed.
    public private(set) var count = 0

    /// Bytes of these cookies: `Cookie.byteCount` each.
    public private(set) var byteCount = 0

    /// Number of secure cookies among them.
    private var secureCount = 0

    /// Logical clock, advanced by each operation.
    private var logicalClock: UInt64 = 0

    public init() {}

    /// Source of a `Set-Cookie` field.
    public enum Source: Sendable {
        /// A response of the server.
        case server
        /// The user, for example a file of cookies. Without a list of public suffixes the jar trusts its domains.
        case user
    }

    /// Returns all unexpired cookies in no particular order. O(cookies).
    public func cookies(now: Int64) -> [Cookie] {
        cookiesByDomain.values.joined().filter { !$0.isExpired(now: now) }
    }

    /// Stores the cookies of a response, from at most `HTTPLimits.setCookieFields` `Set-Cookie` fields: RFC 6265bis,
    /// section 5.7.
    ///
    /// - Parameters:
    ///   - url: URL of the request. Only http and https have cookies.
    ///   - now: Seconds since 1970.
    public mutating func storeCookies(
        of response: HeaderFields, from url: FetchURL, by source: Source = .server, suffixes: PublicSuffixes, now: Int64
    ) {
        guard url.isHTTP else { return }
        for text in response.valueBytes(named: "set-cookie").prefix(HTTPLimits.setCookieFields) {
            guard let new = SetCookie(text, now: now),
                let cookie = acceptedCookie(new, from: url, by: source, suffixes: suffixes)
            else {
                continue
            }
            insert(cookie, now: now)
        }
    }

    /// Returns the `Cookie` field of a request, or no field: RFC 6265bis, section 5.8.3. O(cookies of the host and its
    /// parent domains).
    ///
    /// Longer paths come first, then older cookies. Cookies beyond `HTTPLimits.cookieFieldBytes` are omitted. Must not
    /// be called for a request with its own `Cookie` field.
    public mutating func cookieField(for url: FetchURL, now: Int64) -> HeaderFields {
        guard url.isHTTP else { return HeaderFields() }
        let host = url.origin.host
        logicalClock += 1
        var found: [Cookie] = []
        for domain in Self.hostAndParentDomains(of: host) {
            removeExpired(of: domain, now: now)
            guard var cookies = cookiesByDomain[domain] else { continue }
            for index in cookies.indices where matches(url: url, host: host, cookie: cookies[index]) {
                cookies[index].lastUse = logicalClock
                found.append(cookies[index])
            }
            cookiesByDomain[domain] = cookies
        }
        found.sort { $0.path.count == $1.path.count ? $0.created < $1.created : $0.path.count > $1.path.count }
        var value: [UInt8] = []
        for cookie in found {
            let pair = cookie.nameValuePair
            guard value.count + 2 + pair.count <= HTTPLimits.cookieFieldBytes else { continue }
            if !value.isEmpty { value += "; ".utf8 }
            value += pair
        }
        var fields = HeaderFields()
        if !value.isEmpty { fields.appendUnchecked("cookie".utf8, value) }
        return fields
    }

    private func matches(url: FetchURL, host: String, cookie: Cookie) -> Bool {
        (!cookie.isHostOnly || cookie.domain == host) && (!cookie.isSecure || url.scheme == "https")
            && Cookie.path(url.path.utf8, matches: cookie.path)
    }

    /// Returns the host and its parent domains; for an address only the address.
    private static func hostAndParentDomains(of host: String) -> [String] {
        guard IPAddress(host: host) == nil else { return [host] }
        var names = [host]
        var rest = host[...]
        while let dot = rest.firstIndex(of: ".") {
            rest = rest[rest.index(after: dot)...]
            if !rest.isEmpty { names.append(String(rest)) }
        }
        return names
    }

    /// Returns the cookie that a response from `url` sets; nil if it must be rejected.
    private func acceptedCookie(
        _ new: SetCookie, from url: FetchURL, by source: Source, suffixes: PublicSuffixes
    ) -> Cookie? {
        let host = url.origin.host
        let isHTTPS = url.scheme == "https"
        guard new.domain.allSatisfy({ $0 < 0x80 }) else { return nil }
        var domain = String(decoding: new.domain, as: UTF8.self)
        if !domain.isEmpty, suffixes.contains(domain) ?? (source == .server) {
            // A public suffix may name only itself, and then the cookie is not for its subdomains. Without a list any
            // domain that a server names may be a public suffix.
            guard domain == host else { return nil }
            domain = ""
        }
        guard domain.isEmpty || Cookie.host(host, matches: domain) else { return nil }
        let path = new.path.map { Array($0) } ?? Self.defaultPath(url)
        let cookie = Cookie(
            name: Array(new.name), value: Array(new.value), domain: domain.isEmpty ? host : domain,
            isHostOnly: domain.isEmpty, path: path, isSecure: new.isSecure, isHTTPOnly: new.isHTTPOnly,
            expires: new.expires, created: 0, lastUse: 0)
        if cookie.isSecure, !isHTTPS { return nil }
        if !cookie.isSecure, !isHTTPS, shadowsSecureCookie(cookie) { return nil }
        if new.nameBegins(with: "__secure-") || new.nameBegins(with: "__host-") {
            guard !cookie.name.isEmpty, cookie.isSecure else { return nil }
        }
        if new.nameBegins(with: "__host-") {
            guard cookie.isHostOnly, new.path?.elementsEqual("/".utf8) == true else { return nil }
        }
        return cookie
    }

    /// Returns the path up to its last slash: RFC 6265bis, section 5.1.4.
    private static func defaultPath(_ url: FetchURL) -> [UInt8] {
        let path = Array(url.path.utf8)
        guard let slash = path.lastIndex(of: UInt8(ascii: "/")), slash > 0 else { return [UInt8(ascii: "/")] }
        return Array(path[..<slash])
    }

    /// Returns whether a cookie set without TLS would shadow a secure cookie: RFC 6265bis, section 5.7, step 16.
    /// O(cookies) in a jar with secure ones.
    private func shadowsSecureCookie(_ new: Cookie) -> Bool {
        secureCount > 0
            && cookiesByDomain.contains { domain, cookies in
                (Cookie.host(domain, matches: new.domain) || Cookie.host(new.domain, matches: domain))
                    && cookies.contains {
                        $0.isSecure && $0.name == new.name && Cookie.path(new.path, matches: $0.path)
                    }
            }
    }

    private mutating func insert(_ new: Cookie, now: Int64) {
        logicalClock += 1
        removeExpired(of: new.domain, now: now)
        var new = new
        (new.created, new.lastUse) = (logicalClock, logicalClock)
        var cookies = cookiesByDomain[new.domain] ?? []
        if let index = cookies.firstIndex(where: { $0.isReplaced(by: new) }) {
            let old = cookies.remove(at: index)
            new.created = old.created
            adjustTotals(for: old, by: -1)
        }
        if !new.isExpired(now: now) {
            cookies.append(new)
            adjustTotals(for: new, by: 1)
        }
        if cookies.count > HTTPLimits.cookiesPerDomain {
            // Cookies that are not secure are evicted first: RFC 6265bis, section 5.7.
            let insecure = cookies.indices.filter { !cookies[$0].isSecure }
            let candidates = insecure.isEmpty ? Array(cookies.indices) : insecure
            if let index = candidates.min(by: { cookies[$0].lastUse < cookies[$1].lastUse }) {
                adjustTotals(for: cookies.remove(at: index), by: -1)
            }
        }
        cookiesByDomain[new.domain] = cookies.isEmpty ? nil : cookies
        if count > HTTPLimits.cookiesPerJar + HTTPLimits.surplusCookies { makeRoom(now: now) }
    }

    private mutating func adjustTotals(for cookie: Cookie, by change: Int) {
        count += change
        byteCount += change * cookie.byteCount
        if cookie.isSecure { secureCount += change }
    }

    /// Removes expired cookies. If the jar is still too full, evicts the least recently used ones. O(cookies · log
    /// cookies), once for `HTTPLimits.surplusCookies` insertions.
    private mutating func makeRoom(now: Int64) {
        for domain in Array(cookiesByDomain.keys) { removeExpired(of: domain, now: now) }
        evict { $0.count > HTTPLimits.cookiesPerJar }
    }

    /// Evicts the least recently used cookies until the others have at most this many bytes. O(cookies · log cookies).
    public mutating func shrink(toBytes limit: Int) { evict { $0.byteCount > limit } }

    /// Evicts the least recently used cookies while the jar is too full.
    private mutating func evict(while isTooFull: (CookieJar) -> Bool) {
        guard isTooFull(self) else { return }
        var evicted: [String: Set<UInt64>] = [:]
        let byLastUse = cookiesByDomain.values.joined()
            .sorted { ($0.lastUse, $0.created) < ($1.lastUse, $1.created) }
        for cookie in byLastUse {
            guard isTooFull(self) else { break }
            adjustTotals(for: cookie, by: -1)
            evicted[cookie.domain, default: []].insert(cookie.created)
        }
        for (domain, created) in evicted {
            cookiesByDomain[domain]?.removeAll { created.contains($0.created) }
            if cookiesByDomain[domain]?.isEmpty == true { cookiesByDomain[domain] = nil }
        }
    }

    private mutating func removeExpired(of domain: String, now: Int64) {
        removeCookies(of: domain) { $0.isExpired(now: now) }
    }

    private mutating func removeCookies(of domain: String, where isUnwanted: (Cookie) -> Bool) {
        guard var cookies = cookiesByDomain[domain], cookies.contains(where: isUnwanted) else { return }
        for cookie in cookies where isUnwanted(cookie) { adjustTotals(for: cookie, by: -1) }
        cookies.removeAll(where: isUnwanted)
        cookiesByDomain[domain] = cookies.isEmpty ? nil : cookies
    }
}

/// Public suffixes: domains such as `com` and `co.uk`, below which names belong to different owners. Servers must not
/// set cookies for them: RFC 6265bis, section 5.7.
public struct PublicSuffixes: Sendable {
    private let isPublicSuffix: @Sendable (String) -> Bool?

    /// No list.
    public static let unavailable = PublicSuffixes { _ in nil }

    /// - Parameter lookUp: Returns whether a domain with a dot, in lower-case ASCII, is a public suffix; nil without a
    ///   list.
    public init(_ lookUp: @escaping @Sendable (String) -> Bool?) {
        self.isPublicSuffix = lookUp
    }

    /// Returns whether a domain in lower-case ASCII is a public suffix; nil if that is unknown. A domain without an
    /// inner dot is one, such as `com` and `localhost`.
    func contains(_ domain: String) -> Bool? {
        // A dot at the end makes another host, and no other suffix.
        let name = domain.utf8.last == UInt8(ascii: ".") ? String(domain.dropLast()) : domain
        return name.utf8.contains(UInt8(ascii: ".")) ? isPublicSuffix(name) : true
    }
}
