internal import EarshotWire

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
    public var isUTF8: Bool {
        [name, value, path].allSatisfy { String(validating: $0, as: UTF8.self) != nil }
    }

    func isExpired(now: Int64) -> Bool { expires.map { $0 <= now } ?? false }

    /// Returns whether a newer cookie with the same name, scope and path replaces it.
    func isReplaced(by other: Cookie) -> Bool {
        name == other.name && isHostOnly == other.isHostOnly && path == other.path
    }

    /// `name=value`, or the bare value.
    var nameValuePair: [UInt8] { name.isEmpty ? value : name + [UInt8(ascii: "=")] + value }

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

/// Parsed `Set-Cookie` field: RFC 6265bis, section 5.6. SameSite and unknown attributes are ignored, because there are
/// no sites.
struct SetCookie {
    let name: ArraySlice<UInt8>
    let value: ArraySlice<UInt8>
    /// Expiry in seconds since 1970; nil without a valid attribute.
    private(set) var expires: Int64?
    /// Value of `Domain` in lower case, without a leading dot; empty without one.
    private(set) var domain: [UInt8] = []
    /// Value of `Path`, if it begins with a slash.
    private(set) var path: ArraySlice<UInt8>?
    private(set) var isSecure = false
    private(set) var isHTTPOnly = false

    /// Parses the value of a field; nil if it must be ignored.
    ///
    /// - Parameter now: Seconds since 1970.
    init?(_ text: ArraySlice<UInt8>, now: Int64) {
        guard text.allSatisfy({ !$0.isControl || $0 == UInt8(ascii: "\t") }) else { return nil }
        var parts = text.split(separator: UInt8(ascii: ";"), omittingEmptySubsequences: false)[...]
        guard let pair = parts.popFirst() else { return nil }
        // Without an equals sign, all of it is the value.
        (name, value) = Self.splitNameValue(pair) ?? ([], pair.trimmed)
        guard !name.isEmpty || !value.isEmpty, name.count + value.count <= HTTPLimits.cookieBytes else { return nil }
        var maxAge: Int64?
        var date: Int64?
        for part in parts {
            let (attribute, value) = Self.splitNameValue(part) ?? (part.trimmed, [])
            guard value.count <= HTTPLimits.cookieAttributeBytes else { continue }
            switch String(decoding: attribute.map(\.lowercased), as: UTF8.self) {
            case "expires": date = CookieDate.parse(value) ?? date
            case "max-age": maxAge = Self.parseMaxAge(value) ?? maxAge
            case "domain":
                domain = (value.first == UInt8(ascii: ".") ? value.dropFirst() : value).map(\.lowercased)
            case "path": path = value.first == UInt8(ascii: "/") ? value : nil
            case "secure": isSecure = true
            case "httponly": isHTTPOnly = true
            default: break
            }
        }
        expires = Self.expiry(maxAge: maxAge, date: date, now: now)
    }

    /// Returns whether the name, or the value of a cookie without a name, begins with `prefix` in any case. `prefix` is
    /// in lower case.
    func nameBegins(with prefix: String) -> Bool {
        (name.isEmpty ? value : name).prefix(prefix.utf8.count).map(\.lowercased).elementsEqual(prefix.utf8)
    }

    private static func splitNameValue(_ text: ArraySlice<UInt8>) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        guard let equals = text.firstIndex(of: UInt8(ascii: "=")) else { return nil }
        return (text[..<equals].trimmed, text[(equals + 1)...].trimmed)
    }

    /// Parses `Max-Age`, 0 to `HTTPLimits.cookieLifetimeSeconds`; nil if it is not a number. A negative one is 0.
    private static func parseMaxAge(_ text: ArraySlice<UInt8>) -> Int64? {
        let isNegative = text.first == UInt8(ascii: "-")
        guard let seconds = DeltaSeconds.parse(isNegative ? text.dropFirst() : text) else { return nil }
        return isNegative ? 0 : min(seconds, HTTPLimits.cookieLifetimeSeconds)
    }

    /// Returns the expiry. `Max-Age` overrides `Expires`; both are limited to 400 days from now.
    private static func expiry(maxAge: Int64?, date: Int64?, now: Int64) -> Int64? {
        func later(by seconds: Int64) -> Int64 {
            let (sum, overflow) = now.addingReportingOverflow(seconds)
            return overflow ? .max : sum
        }
        if let maxAge { return maxAge == 0 ? .min : later(by: maxAge) }
        return date.map { min($0, later(by: HTTPLimits.cookieLifetimeSeconds)) }
    }
}

/// Parser for the `Expires` attribute of a cookie, in all historical formats: RFC 6265bis, section 5.1.1.
enum CookieDate {
    /// Returns the date in seconds since 1970; nil if the day, month, year or time is missing, or there is no such day.
    static func parse(_ text: ArraySlice<UInt8>) -> Int64? {
        var time: (hour: Int, minute: Int, second: Int)?
        var day: Int?
        var month: String?
        var year: Int?
        for token in text.split(whereSeparator: isDelimiter) {
            if time == nil, let found = Self.time(token) {
                time = found
            } else if day == nil, let found = leadingNumber(token, digits: 1...2) {
                day = found
            } else if month == nil, let found = Self.month(token) {
                month = found
            } else if year == nil, let found = leadingNumber(token, digits: 2...4) {
                year = found
            }
        }
        guard let time, let day, let month, var year else { return nil }
        if year < 70 { year += 2000 } else if year < 100 { year += 1900 }
        guard year >= 1601, time.second < 60 else { return nil }
        // Reuses the calendar of HTTPDate, which ignores the name of the day.
        func padded(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let clock = "\(padded(time.hour)):\(padded(time.minute)):\(padded(time.second))"
        return HTTPDate("Thu, \(padded(day)) \(month) \(year) \(clock) GMT", now: 0)?.secondsSince1970
    }

    private static func isDelimiter(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x09, 0x20...0x2f, 0x3b...0x40, 0x5b...0x60, 0x7b...0x7e: true
        default: false
        }
    }

    private static let monthNames = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Returns the month whose abbreviation `token` begins with.
    private static func month(_ token: ArraySlice<UInt8>) -> String? {
        let name = token.prefix(3).map(\.lowercased)
        return monthNames.first { $0.utf8.map(\.lowercased) == name }
    }

    /// Returns the number that `token` begins with, if its number of digits is in range.
    private static func leadingNumber(_ token: ArraySlice<UInt8>, digits: ClosedRange<Int>) -> Int? {
        let number = token.prefix(while: \.isDigit)
        guard digits.contains(number.count) else { return nil }
        return number.reduce(0) { $0 * 10 + Int($1 - 0x30) }
    }

    /// Parses three numbers separated by colons.
    private static func time(_ token: ArraySlice<UInt8>) -> (hour: Int, minute: Int, second: Int)? {
        let parts = token.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0].allSatisfy(\.isDigit), parts[1].allSatisfy(\.isDigit),
            let hour = leadingNumber(parts[0], digits: 1...2), let minute = leadingNumber(parts[1], digits: 1...2),
            let second = leadingNumber(parts[2], digits: 1...2)
        else { return nil }
        return (hour, minute, second)
    }
}
