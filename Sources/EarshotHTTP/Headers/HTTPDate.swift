internal import EarshotWire

/// Date in HTTP format with a resolution of one second: RFC 9110, section 5.6.7.
public struct HTTPDate: Hashable, Sendable {
    /// Seconds since 1970-01-01 00:00:00 UTC, without leap seconds; negative before.
    public let secondsSince1970: Int64

    /// Parses an IMF-fixdate, or one of the obsolete formats RFC 850 and asctime; nil for other text.
    ///
    /// As in browsers, names are case-insensitive, and the day may have one digit in the first two formats. The name of
    /// the day need not match the date.
    ///
    /// - Parameter now: Seconds since 1970; determines the century of an RFC 850 date, which is at most 50 years later.
    public init?(_ text: String, now: Int64) {
        let utf8 = text.utf8
        self.init(bytes: utf8.span, now: now)
    }

    /// Implements `init(_:now:)` for bytes.
    init?(bytes: Span<UInt8>, now: Int64) {
        guard bytes.count >= 24, bytes.count <= 33 else { return nil }
        let year: Int
        let day: Int
        let month: Int
        let time: Int
        if bytes.count == 24 {
            // Sun Nov  6 08:49:37 1994
            guard Self.isDayName(bytes, in: 0..<3, of: Self.shortDayNames),
                Self.matchesPattern("___ ___ __ __:__:__ ____", bytes, at: 0),
                let dayNumber = parseDecimal(bytes, in: (bytes[8] == UInt8(ascii: " ") ? 9 : 8)..<10, maximum: 31),
                let yearNumber = parseDecimal(bytes, in: 20..<24, maximum: 9999)
            else { return nil }
            (year, day, month, time) = (yearNumber, dayNumber, 4, 11)
        } else {
            // Sun, 06 Nov 1994 08:49:37 GMT, or Sunday, 06-Nov-94 08:49:37 GMT
            let isShort = bytes[3] == UInt8(ascii: ",")
            guard let comma = isShort ? 3 : (6...9).first(where: { bytes[$0] == UInt8(ascii: ",") }),
                Self.isDayName(bytes, in: 0..<comma, of: isShort ? Self.shortDayNames : Self.longDayNames)
            else { return nil }
            let first = comma + 2
            let end = Self.endOfNumber(bytes, at: first)
            let yearDigits = isShort ? 4 : 2
            month = end + 1
            time = month + 5 + yearDigits
            let pattern = isShort ? " ___ ____ " : "-___-__ "
            guard bytes[comma + 1] == UInt8(ascii: " "),
                let dayNumber = parseDecimal(bytes, in: first..<end, maximum: 31),
                Self.matchesPattern(pattern + "__:__:__ GMT", bytes, at: end),
                let yearNumber = parseDecimal(bytes, in: month + 4..<month + 4 + yearDigits, maximum: 9999)
            else { return nil }
            (year, day) = (isShort ? yearNumber : Self.fullYear(yearNumber, now: now), dayNumber)
        }
        guard let monthNumber = Self.month(bytes, at: month), day > 0,
            day <= Self.dayCount(inMonth: monthNumber, ofYear: year),
            let hour = parseDecimal(bytes, in: time..<time + 2, maximum: 23),
            let minute = parseDecimal(bytes, in: time + 3..<time + 5, maximum: 59),
            // 60 is a leap second.
            let second = parseDecimal(bytes, in: time + 6..<time + 8, maximum: 60)
        else { return nil }
        let days = Self.daysSince1970(year: year, month: monthNumber, day: day)
        secondsSince1970 = Int64(days * 86_400 + hour * 3600 + minute * 60 + second)
    }

    /// Returns the index after a number of one or two digits at `start`.
    private static func endOfNumber(_ bytes: Span<UInt8>, at start: Int) -> Int {
        start + 1 < bytes.count && bytes[start + 1].isDigit ? start + 2 : start + 1
    }

    private static let shortDayNames = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    private static let longDayNames = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    private static let monthNames = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Returns whether `bytes` from `start` on match `pattern` in any case. `_` matches any byte.
    private static func matchesPattern(_ pattern: String, _ bytes: Span<UInt8>, at start: Int) -> Bool {
        let utf8 = pattern.utf8
        let wanted = utf8.span
        guard bytes.count == start + wanted.count else { return false }
        for index in wanted.indices
        where wanted[index] != UInt8(ascii: "_") && wanted[index].lowercased != bytes[start + index].lowercased {
            return false
        }
        return true
    }

    private static func isDayName(_ bytes: Span<UInt8>, in range: Range<Int>, of names: [String]) -> Bool {
        names.contains { isEqual(bytes, in: range, ignoringCaseTo: $0) }
    }

    /// Returns the month, 1 to 12, whose abbreviation is at `start`.
    private static func month(_ bytes: Span<UInt8>, at start: Int) -> Int? {
        monthNames.firstIndex { isEqual(bytes, in: start..<start + 3, ignoringCaseTo: $0) }.map { $0 + 1 }
    }

    /// Returns whether `bytes` in `range` are equal to `name`, ignoring case.
    private static func isEqual(_ bytes: Span<UInt8>, in range: Range<Int>, ignoringCaseTo name: String) -> Bool {
        range.count == name.utf8.count
            && zip(range, name.utf8).allSatisfy { bytes[$0].lowercased == $1.lowercased }
    }

    /// Returns the year that ends in `twoDigits`, from 49 years before to 50 years after that of `now`.
    private static func fullYear(_ twoDigits: Int, now: Int64) -> Int {
        // Restricts the clock to the years 1970 to 9999, for which the calculation is valid.
        let thisYear = year(ofDaySince1970: Int(min(max(now, 0), 253_402_300_799)) / 86_400)
        let year = thisYear - thisYear % 100 + twoDigits
        if year > thisYear + 50 { return year - 100 }
        return year <= thisYear - 50 ? year + 100 : year
    }

    private static func dayCount(inMonth month: Int, ofYear year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Returns the days from 1970-01-01 to a date of the Gregorian calendar. Counts in years that begin in March, so
    /// that the leap day comes last.
    private static func daysSince1970(year: Int, month: Int, day: Int) -> Int {
        // Adding 400 years avoids divisions of negative numbers in year 0.
        let marchYear = year + 400 - (month <= 2 ? 1 : 0)
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return marchYear * 365 + marchYear / 4 - marchYear / 100 + marchYear / 400 + dayOfYear - 719_468 - 146_097
    }

    /// Returns the year that contains a day, counted since 1970-01-01.
    private static func year(ofDaySince1970 day: Int) -> Int {
        var year = 1970 + day / 366
        while daysSince1970(year: year + 1, month: 1, day: 1) <= day { year += 1 }
        return year
    }
}
