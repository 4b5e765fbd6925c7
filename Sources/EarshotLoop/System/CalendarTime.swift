internal import Glibc

/// The current calendar time as text, for logs, reports and HTTP responses.
public enum CalendarTime {
    /// Returns the current time in RFC 3339 format, UTC: `2026-11-22T09:45:00Z`.
    public static func now() -> String { formatted(time(nil)) + "Z" }

    /// Returns the current time with milliseconds: `2026-11-22T09:45:00.123Z`.
    public static func nowWithMilliseconds() -> String {
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        let milliseconds = String(now.tv_nsec / 1_000_000)
        let zeros = String(repeating: "0", count: 3 - milliseconds.count)
        return "\(formatted(now.tv_sec)).\(zeros)\(milliseconds)Z"
    }

    /// Returns the current time in the format of HTTP: `Sun, 22 Nov 2026 09:45:00 GMT`. RFC 9110, section 5.6.7.
    public static func httpDate() -> String { formatted(time(nil), format: "%a, %d %b %Y %H:%M:%S GMT") }

    private static func formatted(_ seconds: time_t, format: String = "%Y-%m-%dT%H:%M:%S") -> String {
        var seconds = seconds
        var parts = unsafe tm()
        unsafe gmtime_r(&seconds, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = unsafe strftime(&text, text.count, format, &parts)
        return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
