import EarshotHTTP
import Testing

/// Dates in the three formats of HTTP.
@Suite struct HTTPDateTests {
    /// 2026-01-01.
    private let now: Int64 = 1_767_225_600

    @Test(
        "a date is read in all three forms",
        arguments: [
            Case("RFC 9110 5.6.7, IMF-fixdate", "Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777 as Int64?),
            Case("RFC 9110 5.6.7, RFC 850", "Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            Case("RFC 9110 5.6.7, asctime", "Sun Nov  6 08:49:37 1994", 784_111_777),
            Case("RFC 9110 5.6.7, asctime with two digits", "Wed Nov 16 08:49:37 1994", 784_975_777),
            Case("RFC 9110 5.6.7, epoch", "Thu, 01 Jan 1970 00:00:00 GMT", 0),
            Case("RFC 9110 5.6.7, before the epoch", "Wed, 31 Dec 1969 23:59:59 GMT", -1),
            Case("RFC 9110 5.6.7, leap day", "Tue, 29 Feb 2000 12:00:00 GMT", 951_825_600),
            Case("RFC 9110 5.6.7, after a leap day", "Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            Case("RFC 9110 5.6.7, no leap day in 1900", "Thu, 29 Feb 1900 00:00:00 GMT", nil),
            Case("RFC 9110 5.6.7, no leap day in 2023", "Wed, 29 Feb 2023 00:00:00 GMT", nil),
            Case("RFC 9110 5.6.7, leap second", "Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            Case("RFC 9110 5.6.7, beyond 32 bits", "Tue, 19 Jan 2038 03:14:08 GMT", 2_147_483_648),
            Case("RFC 9110 5.6.7, the last year", "Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            Case("RFC 9110 5.6.7, the first year", "Sat, 01 Jan 0000 00:00:00 GMT", -62_167_219_200),
            Case("RFC 9110 5.6.7, longest day's name", "Wednesday, 09-Nov-94 08:49:37 GMT", 784_370_977),
            Case("RFC 9110 5.6.7, another day's name", "Mon, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            Case("RFC 9110 5.6.7, no day's name", "Foo, 06 Nov 1994 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, short name in RFC 850", "Sun, 06-Nov-94 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, no zone", "Sun, 06 Nov 1994 08:49:37", nil),
            Case("RFC 9110 5.6.7, another zone", "Sun, 06 Nov 1994 08:49:37 CET", nil),
            Case("RFC 9110 5.6.7, numeric zone", "Sun, 06 Nov 1994 08:49:37 +0000", nil),
            Case("as browsers: small letters", "sun, 06 nov 1994 08:49:37 gmt", 784_111_777),
            Case("as browsers: capitals", "SUN, 06 NOV 1994 08:49:37 GMT", 784_111_777),
            Case("as browsers: small zone", "Sun, 06 Nov 1994 08:49:37 gMT", 784_111_777),
            Case("as browsers: capitals in RFC 850", "SUNDAY, 06-NOV-94 08:49:37 GMT", 784_111_777),
            Case("as browsers: capitals in asctime", "SUN NOV  6 08:49:37 1994", 784_111_777),
            Case("as browsers: one digit of the day", "Sun, 6 Nov 1994 08:49:37 GMT", 784_111_777),
            Case("as browsers: one digit of the day in RFC 850", "Sunday, 6-Nov-94 08:49:37 GMT", 784_111_777),
            Case("as browsers: two digits are two digits", "Wed, 16 Nov 1994 08:49:37 GMT", 784_975_777),
            Case("three digits of the day", "Sun, 006 Nov 1994 08:49:37 GMT", nil),
            Case("no digit of the day", "Sun,  Nov 1994 08:49:37 GMT", nil),
            Case("one digit of the hour", "Sun, 06 Nov 1994 8:49:37 GMT", nil),
            Case("one digit of the hour in RFC 850", "Sunday, 06-Nov-94 8:49:37 GMT", nil),
            Case("no digit of the hour", "Sun, 06 Nov 1994 :49:37 GMT", nil),
            Case("one digit of the minute", "Sun, 06 Nov 1994 08:4:37 GMT", nil),
            Case("one digit of the second", "Sun, 06 Nov 1994 08:49:7 GMT", nil),
            Case("a letter in the hour", "Sun, 06 Nov 1994 8x:49:37 GMT", nil),
            Case("a letter in the day", "Sun, 6x Nov 1994 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, no month", "Sun, 06 Nev 1994 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, day 0", "Sun, 00 Nov 1994 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, day 31 of 30", "Sun, 31 Nov 1994 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, two spaces", "Sun,  6 Nov 1994 08:49:37 GMT", nil),
            Case("RFC 9110 5.6.7, hour", "Sun, 06 Nov 1994 24:00:00 GMT", nil),
            Case("RFC 9110 5.6.7, minute", "Sun, 06 Nov 1994 08:60:37 GMT", nil),
            Case("RFC 9110 5.6.7, second", "Sun, 06 Nov 1994 08:49:61 GMT", nil),
            Case("RFC 9110 5.6.7, text after it", "Sun, 06 Nov 1994 08:49:37 GMT ", nil),
            Case("RFC 9110 5.6.7, empty", "", nil),
            Case("RFC 9110 5.6.7, not ASCII", "Sun, 06 Nov 1994 08:49:37 ÄÖ", nil),
        ])
    func isRead(_ row: Case<Int64?>) {
        #expect(HTTPDate(row.input, now: now)?.secondsSince1970 == row.expected)
    }

    @Test(
        "two digits of a year are near now",
        arguments: [
            ("00", 2000), ("26", 2026), ("76", 2076), ("77", 1977), ("99", 1999),
        ])
    func century(_ digits: String, _ year: Int) throws {
        let short = try #require(HTTPDate("Monday, 01-Mar-\(digits) 00:00:00 GMT", now: now))
        #expect(short == HTTPDate("Mon, 01 Mar \(year) 00:00:00 GMT", now: now))
    }

    @Test func `two digits go past the end of a century`() throws {
        // 2098-07-01 and 1999-12-31.
        #expect(
            HTTPDate("Monday, 01-Mar-01 00:00:00 GMT", now: 4_054_406_400)
                == HTTPDate("Mon, 01 Mar 2101 00:00:00 GMT", now: 0))
        #expect(
            HTTPDate("Monday, 01-Mar-01 00:00:00 GMT", now: 946_684_799)
                == HTTPDate("Mon, 01 Mar 2001 00:00:00 GMT", now: 0))
    }

    @Test func `the days of 400 years follow one another`() throws {
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        var expected = try #require(HTTPDate("Mon, 01 Jan 1600 00:00:00 GMT", now: now)).secondsSince1970
        #expect(expected == -11_676_096_000)
        var days = 0
        for year in 1600..<2000 {
            for month in months {
                for day in 1...31 {
                    let text = "Mon, \(day < 10 ? "0" : "")\(day) \(month) \(year) 00:00:00 GMT"
                    guard let date = HTTPDate(text, now: now) else { continue }
                    if date.secondsSince1970 != expected { Issue.record("\(text)") }
                    expected += 86_400
                    days += 1
                }
            }
        }
        #expect(days == 146_097)
    }

    @Test func `any clock is taken`() {
        for now in [Int64.min, -1, .max] {
            #expect(HTTPDate("Sunday, 06-Nov-94 08:49:37 GMT", now: now) != nil)
        }
    }
}
