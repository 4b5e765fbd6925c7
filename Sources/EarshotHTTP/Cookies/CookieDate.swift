internal import EarshotWire

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
            } else if day == nil, let found = number(token, digits: 1...2) {
                day = found
            } else if month == nil, let found = Self.month(token) {
                month = found
            } else if year == nil, let found = number(token, digits: 2...4) {
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

    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Returns the month whose abbreviation `token` begins with.
    private static func month(_ token: ArraySlice<UInt8>) -> String? {
        let name = token.prefix(3).map(\.lowercased)
        return months.first { $0.utf8.map(\.lowercased) == name }
    }

    /// Returns the number that `token` begins with, if its number of digits is in range.
    private static func number(_ token: ArraySlice<UInt8>, digits: ClosedRange<Int>) -> Int? {
        let number = token.prefix(while: \.isDigit)
        guard digits.contains(number.count) else { return nil }
        return number.reduce(0) { $0 * 10 + Int($1 - 0x30) }
    }

    /// Parses three numbers separated by colons.
    private static func time(_ token: ArraySlice<UInt8>) -> (hour: Int, minute: Int, second: Int)? {
        let parts = token.split(separator: UInt8(ascii: ":"), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0].allSatisfy(\.isDigit), parts[1].allSatisfy(\.isDigit),
            let hour = number(parts[0], digits: 1...2), let minute = number(parts[1], digits: 1...2),
            let second = number(parts[2], digits: 1...2)
        else { return nil }
        return (hour, minute, second)
    }
}
