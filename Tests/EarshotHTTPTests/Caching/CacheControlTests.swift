import EarshotCore
import EarshotHTTP
import Testing

/// Directives of `Cache-Control` and `Pragma`.
@Suite struct CacheControlTests {
    private static let longest: Int64 = 2_147_483_648

    private func fields(_ lines: String) -> HeaderFields { HeaderFields(lines: Array(lines.utf8)) }

    private func control(_ value: String) -> CacheControl {
        CacheControl(response: fields("Cache-Control: \(value)"))
    }

    @Test(
        "max-age is read as written, and as 0 where it cannot be",
        arguments: [
            Case("RFC 9111 5.2.2.1", "max-age=5", 5 as Int64?),
            Case("RFC 9111 5.2, any case", "MAX-Age=5", 5),
            Case("RFC 9111 5.2, quoted", "max-age=\"5\"", 5),
            Case("RFC 9110 5.6.4, quoted with an escape", "max-age=\"1\\0\"", 10),
            Case("RFC 9111 5.2, among others", "a, no-transform,\t max-age=7 , b=c", 7),
            Case("RFC 9110 5.6.1, empty members", ",, ,max-age=7,", 7),
            Case("RFC 9110 5.6.4, comma in a string", "a=\"x, max-age=9\", max-age=7", 7),
            Case("RFC 9110 5.6.4, escaped quotation mark", "a=\"\\\", max-age=9\", max-age=7", 7),
            Case("RFC 9110 5.6.4, open string", "a=\"x, max-age=9", nil),
            Case("RFC 9111 1.2.2, leading zeros", "max-age=0007", 7),
            Case("RFC 9111 1.2.2, greatest", "max-age=2147483648", 2_147_483_648),
            Case("RFC 9111 1.2.2, overflow", "max-age=99999999999999999999999999", 2_147_483_648),
            Case("RFC 9111 4.2.1, sign", "max-age=-1", 0),
            Case("RFC 9111 4.2.1, plus", "max-age=+1", 0),
            Case("RFC 9111 4.2.1, fraction", "max-age=1.5", 0),
            Case("RFC 9111 4.2.1, text", "max-age=soon", 0),
            Case("RFC 9111 4.2.1, none", "max-age", 0),
            Case("RFC 9111 4.2.1, empty", "max-age=", 0),
            Case("RFC 9111 4.2.1, empty string", "max-age=\"\"", 0),
            Case("RFC 9111 4.2.1, open string", "max-age=\"5", 0),
            Case("RFC 9111 4.2.1, blank before =", "max-age =5", 0),
            Case("RFC 9111 4.2.1, blank after =", "max-age= 5", 0),
            Case("RFC 9111 4.2.1, apostrophes", "max-age='5'", 0),
            Case("RFC 9111 4.2.1, twice the same", "max-age=5, max-age=\"05\"", 5),
            Case("RFC 9111 4.2.1, two that differ", "max-age=5, max-age=6", 0),
            Case("RFC 9111 4.2.1, three", "max-age=5, max-age=6, max-age=5", 0),
            Case("RFC 9111 5.2.3, longer name", "max-ages=5, xmax-age=6", nil),
            Case("RFC 9111 5.2, no token", "=5, \"max-age=5\", ;max-age=5", nil),
            Case("RFC 9111 5.2, nothing", "", nil),
        ])
    func maxAge(_ row: Case<Int64?>) {
        #expect(control(row.input).maxAge == row.expected)
    }

    @Test func `a time that cannot be read is as strict as it can be`() {
        let broken = control("min-fresh=x, max-stale=x, stale-while-revalidate=x, stale-if-error")
        #expect(broken.minFresh == Self.longest)
        #expect(broken.maxStale == 0)
        #expect(broken.staleWhileRevalidate == 0)
        #expect(broken.staleIfError == 0)
    }

    @Test func `max-stale without a number is any staleness`() {
        #expect(control("max-stale").maxStale == Self.longest)
        #expect(control("max-stale=").maxStale == 0)
        #expect(control("max-stale=10").maxStale == 10)
    }

    @Test func `the examples of RFC 5861 are read`() {
        let first = control("max-age=600, stale-while-revalidate=30")
        #expect(first.maxAge == 600 && first.staleWhileRevalidate == 30 && first.staleIfError == nil)
        let second = control("max-age=600, stale-if-error=1200")
        #expect(second.maxAge == 600 && second.staleIfError == 1200 && second.staleWhileRevalidate == nil)
    }

    @Test(
        "a directive without argument is there or not",
        arguments: [
            Case("RFC 9111 5.2.2.4", "no-cache", "no-cache"),
            Case("RFC 9111 5.2.2.4, with fields", "No-Cache=\"set-cookie, x\"", "no-cache"),
            Case("RFC 9111 5.2.2.4, with something else", "no-cache x", "no-cache"),
            Case("RFC 9111 5.2.2.5", "no-store", "no-store"),
            Case("RFC 9111 5.2.2.5, with an argument", "no-store=1", "no-store"),
            Case("RFC 9111 5.2.2.2", "must-revalidate", "must-revalidate"),
            Case("RFC 9111 5.2.2.3", "must-understand, no-store", "no-store must-understand"),
            Case("RFC 9111 5.2.1.7", "only-if-cached", "only-if-cached"),
            Case("RFC 8246 2", "max-age=31536000, immutable", "immutable"),
            Case("RFC 8246 2, argument ignored", "immutable=0", "immutable"),
            Case("RFC 9111 5.2.2.9", "public", "storable"),
            Case("RFC 9111 5.2.2.7", "private=\"x-a\"", "storable"),
            Case("RFC 9111 5.2.2.10", "s-maxage=1, proxy-revalidate, no-transform", ""),
        ])
    func flags(_ row: Case<String>) {
        let control = control(row.input)
        let names = [
            (control.noCache, "no-cache"), (control.noStore, "no-store"), (control.mustRevalidate, "must-revalidate"),
            (control.mustUnderstand, "must-understand"), (control.onlyIfCached, "only-if-cached"),
            (control.isImmutable, "immutable"), (control.allowsStoring, "storable"),
        ]
        #expect(names.filter(\.0).map(\.1).joined(separator: " ") == row.expected)
    }

    @Test func `all lines count, and an open string ends with its line`() {
        let control = CacheControl(response: fields("cache-control: a=\"x\nx: y\nCACHE-CONTROL: no-store, max-age=1"))
        #expect(control.noStore && control.maxAge == 1)
    }

    @Test func `Pragma counts in a request without Cache-Control`() {
        #expect(CacheControl(request: fields("Pragma: no-cache")).noCache)
        #expect(CacheControl(request: fields("pragma: x, No-Cache=y")).noCache)
        #expect(!CacheControl(request: fields("Pragma: no-cache\nCache-Control: max-age=5")).noCache)
        #expect(!CacheControl(request: fields("Pragma: no-store")).noStore)
        #expect(!CacheControl(response: fields("Pragma: no-cache")).noCache)
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `no bytes make it trap, and times are within bounds`(_ seed: UInt64) {
        var generator = SplitMix64Generator(seed: seed)
        let pieces = [
            "max-age", "max-stale", "min-fresh", "stale-if-error", "=", "\"", "\\", ",", " ", "99999999999999999999",
            "5", "\n", "cache-control: ", "no-cache", "\u{0}", "é",
        ].map { Array($0.utf8) }
        var read = 0
        for _ in 0..<5000 {
            let lines = (0..<12).flatMap { _ in pieces.randomElement(using: &generator) ?? [] }
            let control = CacheControl(request: HeaderFields(lines: Array("cache-control: ".utf8) + lines))
            for time in [control.maxAge, control.maxStale, control.minFresh, control.staleIfError] {
                guard let time else { continue }
                read += 1
                #expect((0...Self.longest).contains(time), "seed \(seed): \(lines)")
            }
        }
        #expect(read > 500, "the generator makes too few times to test anything")
    }
}
