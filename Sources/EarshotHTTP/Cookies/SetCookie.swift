/// A `Set-Cookie` field taken apart: RFC 6265bis, section 5.6. HttpOnly, SameSite and unknown attributes are passed
/// over: here are neither scripts nor sites.
struct SetCookie {
    let name: ArraySlice<UInt8>
    let value: ArraySlice<UInt8>
    /// Seconds since 1970 at which it ends; nil if the server says nothing that can be read.
    private(set) var expires: Int64?
    /// `Domain`, lower-case, without a dot in front; empty if there is none.
    private(set) var domain: [UInt8] = []
    /// `Path`, if it begins with a slash.
    private(set) var path: ArraySlice<UInt8>?
    private(set) var isSecure = false

    /// Takes the value of a field; nil for one that is to be ignored.
    ///
    /// - Parameter now: Seconds since 1970.
    init?(_ text: ArraySlice<UInt8>, now: Int64) {
        guard text.allSatisfy({ !$0.isControl || $0 == UInt8(ascii: "\t") }) else { return nil }
        var parts = text.split(separator: UInt8(ascii: ";"), omittingEmptySubsequences: false)[...]
        guard let pair = parts.popFirst() else { return nil }
        // Without an equals sign it is all value.
        (name, value) = Self.pair(pair) ?? ([], FieldList.trimmed(pair))
        guard !name.isEmpty || !value.isEmpty, name.count + value.count <= HTTPLimits.cookieBytes else { return nil }
        var maxAge: Int64?
        var date: Int64?
        for part in parts {
            let (attribute, value) = Self.pair(part) ?? (FieldList.trimmed(part), [])
            guard value.count <= HTTPLimits.cookieAttributeBytes else { continue }
            switch String(decoding: attribute.map(\.lowercased), as: UTF8.self) {
            case "expires": date = CookieDate.parse(value) ?? date
            case "max-age": maxAge = Self.seconds(value) ?? maxAge
            case "domain":
                domain = (value.first == UInt8(ascii: ".") ? value.dropFirst() : value).map(\.lowercased)
            case "path": path = value.first == UInt8(ascii: "/") ? value : nil
            case "secure": isSecure = true
            default: break
            }
        }
        expires = Self.end(maxAge: maxAge, date: date, now: now)
    }

    /// Whether the name, or the value of a cookie without a name, begins with `prefix`, lower-case, in any case.
    func begins(with prefix: String) -> Bool {
        (name.isEmpty ? value : name).prefix(prefix.utf8.count).map(\.lowercased).elementsEqual(prefix.utf8)
    }

    private static func pair(_ text: ArraySlice<UInt8>) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        guard let equals = text.firstIndex(of: UInt8(ascii: "=")) else { return nil }
        return (FieldList.trimmed(text[..<equals]), FieldList.trimmed(text[(equals + 1)...]))
    }

    /// `Max-Age`, 0 to `HTTPLimits.cookieSeconds`; nil if it is no number. A negative one is 0.
    private static func seconds(_ text: ArraySlice<UInt8>) -> Int64? {
        let isNegative = text.first == UInt8(ascii: "-")
        guard let seconds = DeltaSeconds.parse(isNegative ? text.dropFirst() : text) else { return nil }
        return isNegative ? 0 : min(seconds, HTTPLimits.cookieSeconds)
    }

    /// `Max-Age` before `Expires`, and neither later than 400 days from now.
    private static func end(maxAge: Int64?, date: Int64?, now: Int64) -> Int64? {
        func later(by seconds: Int64) -> Int64 {
            let (sum, overflow) = now.addingReportingOverflow(seconds)
            return overflow ? .max : sum
        }
        if let maxAge { return maxAge == 0 ? .min : later(by: maxAge) }
        return date.map { min($0, later(by: HTTPLimits.cookieSeconds)) }
    }
}
