internal import Glibc

/// Calendar time as text.
public enum CalendarTime {
    /// Returns the current time in RFC 3339 format, UTC: `2026-11-22T09:45:00Z`.
    public static func now() -> String {
        var now = time(nil)
        var parts = unsafe tm()
        unsafe gmtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = unsafe strftime(&text, text.count, "%Y-%m-%dT%H:%M:%SZ", &parts)
        return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
