internal import EarshotWire

/// Parsed `Set-Cookie` field: RFC 6265bis, section 5.6. SameSite and unknown attributes are ignored, because there are no
/// sites.
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
        (name, value) = Self.pair(pair) ?? ([], pair.trimmed)
        guard !name.isEmpty || !value.isEmpty, name.count + value.count <= HTTPLimits.cookieBytes else { return nil }
        var maxAge: Int64?
        var date: Int64?
        for part in parts {
            let (attribute, value) = Self.pair(part) ?? (part.trimmed, [])
            guard value.count <= HTTPLimits.cookieAttributeBytes else { continue }
            switch String(decoding: attribute.map(\.lowercased), as: UTF8.self) {
            case "expires": date = CookieDate.parse(value) ?? date
            case "max-age": maxAge = Self.seconds(value) ?? maxAge
            case "domain":
                domain = (value.first == UInt8(ascii: ".") ? value.dropFirst() : value).map(\.lowercased)
            case "path": path = value.first == UInt8(ascii: "/") ? value : nil
            case "secure": isSecure = true
            case "httponly": isHTTPOnly = true
            default: break
            }
        }
        expires = Self.end(maxAge: maxAge, date: date, now: now)
    }

    /// Returns whether the name, or the value of a cookie without a name, begins with `prefix` in any case. `prefix` is
    /// in lower case.
    func begins(with prefix: String) -> Bool {
        (name.isEmpty ? value : name).prefix(prefix.utf8.count).map(\.lowercased).elementsEqual(prefix.utf8)
    }

    private static func pair(_ text: ArraySlice<UInt8>) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        guard let equals = text.firstIndex(of: UInt8(ascii: "=")) else { return nil }
        return (text[..<equals].trimmed, text[(equals + 1)...].trimmed)
    }

    /// Parses `Max-Age`, 0 to `HTTPLimits.cookieSeconds`; nil if it is not a number. A negative one is 0.
    private static func seconds(_ text: ArraySlice<UInt8>) -> Int64? {
        let isNegative = text.first == UInt8(ascii: "-")
        guard let seconds = DeltaSeconds.parse(isNegative ? text.dropFirst() : text) else { return nil }
        return isNegative ? 0 : min(seconds, HTTPLimits.cookieSeconds)
    }

    /// Returns the expiry. `Max-Age` overrides `Expires`; both are limited to 400 days from now.
    private static func end(maxAge: Int64?, date: Int64?, now: Int64) -> Int64? {
        func later(by seconds: Int64) -> Int64 {
            let (sum, overflow) = now.addingReportingOverflow(seconds)
            return overflow ? .max : sum
        }
        if let maxAge { return maxAge == 0 ? .min : later(by: maxAge) }
        return date.map { min($0, later(by: HTTPLimits.cookieSeconds)) }
    }
}
