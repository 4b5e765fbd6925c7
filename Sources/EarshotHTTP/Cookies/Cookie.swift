/// Cookie in a `CookieJar`, and in the files of cookies that the command reads and writes.
public struct Cookie: Hashable, Sendable {
    /// Bytes before the equals sign; empty for a cookie without one.
    public let name: [UInt8]
    /// Bytes after the equals sign. They need not be UTF-8, and may be secret.
    public let value: [UInt8]
    /// Host that set it, or a parent domain that it named: lower case, without a leading dot.
    public let domain: String
    /// Whether it is sent only to `domain`, not to subdomains.
    public let isHostOnly: Bool
    /// Path, beginning with a slash; need not be UTF-8.
    public let path: [UInt8]
    /// Whether it is sent only over https.
    public let isSecure: Bool
    /// Whether scripts of a page may not see it. Only repeated in lists of cookies.
    public let isHTTPOnly: Bool
    /// Expiry in seconds since 1970; nil for a session cookie, which lives as long as the jar.
    public let expires: Int64?
    /// Creation order within the jar.
    public internal(set) var created: UInt64
    /// Jar's logical clock at the last use, for LRU eviction.
    var lastUse: UInt64

    /// Bytes that it takes in memory, about.
    public var byteCount: Int { 192 + name.count + value.count + domain.utf8.count + path.count }

    /// Whether name, value and path are UTF-8.
    public var isText: Bool {
        [name, value, path].allSatisfy { String(validating: $0, as: UTF8.self) != nil }
    }

    func isExpired(now: Int64) -> Bool { expires.map { $0 <= now } ?? false }

    /// Returns whether a newer cookie with the same name, scope and path replaces it.
    func isReplaced(by other: Cookie) -> Bool {
        name == other.name && isHostOnly == other.isHostOnly && path == other.path
    }

    /// `name=value`, or the bare value.
    var pair: [UInt8] { name.isEmpty ? value : name + [UInt8(ascii: "=")] + value }

    /// Returns whether `path` is equal to `prefix` or below it: RFC 6265bis, section 5.1.4.
    static func path(_ path: some Collection<UInt8>, matches prefix: [UInt8]) -> Bool {
        guard path.starts(with: prefix) else { return false }
        let rest = path.dropFirst(prefix.count)
        return rest.isEmpty || prefix.last == UInt8(ascii: "/") || rest.first == UInt8(ascii: "/")
    }

    /// Returns whether `host` is equal to `domain` or a subdomain: RFC 6265bis, section 5.1.3. An address has no
    /// subdomains.
    static func host(_ host: String, matches domain: String) -> Bool {
        if host == domain { return true }
        guard host.utf8.count > domain.utf8.count, host.hasSuffix(domain), !domain.isEmpty else { return false }
        return host.utf8.dropLast(domain.utf8.count).last == UInt8(ascii: ".") && IPAddress(host: host) == nil
    }
}
