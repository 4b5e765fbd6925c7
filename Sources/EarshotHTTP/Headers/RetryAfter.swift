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
            seconds = Int64(decimal(utf8.span, utf8.span.indices, maximum: maximum) ?? maximum)
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
