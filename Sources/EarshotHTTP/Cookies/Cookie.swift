/// One cookie in a `CookieJar`.
public struct Cookie: Hashable, Sendable {
    /// Bytes before the equals sign; empty for a cookie that is a bare value.
    public let name: [UInt8]
    /// Bytes after it. They need not be UTF-8, and may be a secret.
    public let value: [UInt8]
    /// The host that set it, or the one above it that it named: lower-case, without a dot at either end.
    public let domain: String
    /// Whether it goes to `domain` alone, and not to the hosts below.
    public let isHostOnly: Bool
    /// Begins with a slash; need not be UTF-8.
    public let path: [UInt8]
    /// Whether it goes by https alone.
    public let isSecure: Bool
    /// Seconds since 1970 at which it ends; nil if it lives as long as the jar.
    public let expires: Int64?
    /// Counts the cookies of a jar in the order in which they came first.
    var created: UInt64
    /// Counts what is done with the jar; which of two cookies was not needed for longer.
    var used: UInt64

    func isExpired(now: Int64) -> Bool { expires.map { $0 <= now } ?? false }

    /// Whether a later cookie with the same of these would replace it.
    func isReplaced(by other: Cookie) -> Bool {
        name == other.name && isHostOnly == other.isHostOnly && path == other.path
    }

    /// `name=value`, or the bare value.
    var pair: [UInt8] { name.isEmpty ? value : name + [UInt8(ascii: "=")] + value }

    /// Whether a request for `path` is for `prefix` or below it: RFC 6265bis, section 5.1.4.
    static func path(_ path: some Collection<UInt8>, matches prefix: [UInt8]) -> Bool {
        guard path.starts(with: prefix) else { return false }
        let rest = path.dropFirst(prefix.count)
        return rest.isEmpty || prefix.last == UInt8(ascii: "/") || rest.first == UInt8(ascii: "/")
    }

    /// Whether `host` is `domain` or below it: RFC 6265bis, section 5.1.3. There is nothing below an address.
    static func host(_ host: String, matches domain: String) -> Bool {
        if host == domain { return true }
        guard host.utf8.count > domain.utf8.count, host.hasSuffix(domain), !domain.isEmpty else { return false }
        return host.utf8.dropLast(domain.utf8.count).last == UInt8(ascii: ".") && IPAddress(host) == nil
    }
}
