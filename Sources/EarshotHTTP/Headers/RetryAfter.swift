internal import EarshotWire

/// Delay requested by a server: the `Retry-After` field, RFC 9110, section 10.2.3.
public struct RetryAfter: Hashable, Sendable {
    /// Seconds from now: 0 to `HTTPLimits.retryAfterSeconds`. A date in the past is 0.
    public let seconds: Int64

    /// Parses seconds or an HTTP date; nil for other text.
    ///
    /// - Parameter now: Seconds since 1970.
    public init?(_ value: String, now: Int64) {
        if !value.isEmpty, value.utf8.allSatisfy(\.isDigit) {
            let utf8 = value.utf8
            let maximum = Int(HTTPLimits.retryAfterSeconds)
            seconds = Int64(parseDecimal(utf8.span, in: utf8.span.indices, maximum: maximum) ?? maximum)
        } else if let date = HTTPDate(value, now: now) {
            let (wait, overflow) = date.secondsSince1970.subtractingReportingOverflow(now)
            seconds = overflow ? (now < 0 ? HTTPLimits.retryAfterSeconds : 0) : Self.bounded(wait)
        } else {
            return nil
        }
    }

    /// Creates a pause, bounded as a parsed one.
    public init(seconds: Int64) { self.seconds = Self.bounded(seconds) }

    private static func bounded(_ seconds: Int64) -> Int64 {
        min(max(seconds, 0), HTTPLimits.retryAfterSeconds)
    }
}

/// Arithmetic on delta-seconds: RFC 9111, section 1.2.2. Results are saturated at 0 and `maximum`.
enum DeltaSeconds {
    /// Substitute for larger numbers and overflows.
    static let maximum: Int64 = 1 << 31

    /// Parses decimal digits; nil for empty or other input.
    static func parse(_ digits: some Collection<UInt8>) -> Int64? {
        guard !digits.isEmpty else { return nil }
        var value: Int64 = 0
        for byte in digits {
            guard byte.isDigit else { return nil }
            value = min(value * 10 + Int64(byte - 0x30), maximum)
        }
        return value
    }

    /// Returns the seconds from `start` to `end`, both since 1970; 0 if `end` is not later.
    static func between(_ start: Int64, _ end: Int64) -> Int64 {
        guard end > start else { return 0 }
        let (seconds, overflow) = end.subtractingReportingOverflow(start)
        return overflow ? maximum : min(seconds, maximum)
    }

    /// Returns the sum of two durations.
    static func sum(_ first: Int64, _ second: Int64) -> Int64 { min(first + second, maximum) }
}
