import EarshotHTTP
import Testing

/// Dates of cookies in all their forms.
@Suite struct CookieDateTests {
    @Test(
        "a cookie's date is read in any form",
        arguments: [
            Case("RFC 6265bis 3.1", "Wed, 09 Jun 2021 10:18:14 GMT", 1_623_233_894 as Int64?),
            Case("RFC 850", "Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            Case("asctime", "Sun Nov  6 08:49:37 1994", 784_111_777),
            Case("RFC 6265bis 5.1.1, hyphens", "Mon, 10-Dec-2007 17:02:24 GMT", 1_197_306_144),
            Case("RFC 6265bis 5.1.1, no zone counts", "09 Jun 2021 10:18:14 +0200", 1_623_233_894),
            Case("RFC 6265bis 5.1.1, any order", "2021 10:18:14 JUNE 9", 1_623_233_894),
            Case("RFC 6265bis 5.1.1, one digit each", "9 jun 2021 1:8:4", 1_623_200_884),
            Case("RFC 6265bis 5.1.1, what follows digits", "9th Juneteenth 2021nd 10:18:14.5", 1_623_233_894),
            Case("RFC 6265bis 5.1.1, year 70", "01 Jan 70 00:00:00", 0),
            Case("RFC 6265bis 5.1.1, year 99", "31 Dec 99 23:59:59", 946_684_799),
            Case("RFC 6265bis 5.1.1, year 0", "01 Jan 00 00:00:00", 946_684_800),
            Case("RFC 6265bis 5.1.1, year 69", "01 Jan 69 00:00:00", 3_124_224_000),
            Case("RFC 6265bis 5.1.1, three digits", "01 Jan 199 00:00:00", nil),
            Case("RFC 6265bis 5.1.1, the first year", "01 Jan 1601 00:00:00", -11_644_473_600),
            Case("RFC 6265bis 5.1.1, before it", "31 Dec 1600 23:59:59", nil),
            Case("RFC 6265bis 5.1.1, five digits", "01 Jan 20211 00:00:00", nil),
            Case("RFC 6265bis 5.1.1, no such day", "30 Feb 2021 00:00:00", nil),
            Case("RFC 6265bis 5.1.1, day 0", "00 Feb 2021 00:00:00", nil),
            Case("RFC 6265bis 5.1.1, hour 24", "01 Feb 2021 24:00:00", nil),
            Case("RFC 6265bis 5.1.1, minute 60", "01 Feb 2021 23:60:00", nil),
            Case("RFC 6265bis 5.1.1, second 60", "01 Feb 2021 23:59:60", nil),
            Case("RFC 6265bis 5.1.1, no time", "01 Feb 2021", nil),
            Case("RFC 6265bis 5.1.1, no year", "01 Feb 10:18:14", nil),
            Case("RFC 6265bis 5.1.1, no month", "01 Fib 2021 10:18:14", nil),
            Case("RFC 6265bis 5.1.1, no seconds", "01 Feb 2021 10:18", nil),
            Case("RFC 6265bis 5.1.1, nothing", "", nil),
        ])
    func date(_ row: Case<Int64?>) throws {
        // Checked through the jar, which limits lifetimes to 400 days: its clock is shortly before the date.
        let now = (row.expected ?? 1_612_137_600) - 60
        var jar = CookieJar()
        let field = HeaderFields(lines: Array("set-cookie: a=b; expires=\(row.input)".utf8))
        jar.storeCookies(of: field, from: try FetchURL("http://a.example/"), suffixes: .registries, now: now)
        let cookie = try #require(jar.cookies(now: now).first)
        #expect(cookie.expires == row.expected)
    }
}
