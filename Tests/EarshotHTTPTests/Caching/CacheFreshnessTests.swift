import EarshotHTTP
import Testing

/// Age and lifetime of stored responses.
@Suite struct CacheFreshnessTests {
    private let rule = CacheRule()

    @Test(
        "an answer is fresh for as long as it says, or by a guess",
        arguments: [
            Case("RFC 9111 4.2.1, max-age", "cache-control: max-age=60", 60),
            Case("RFC 9111 5.3, max-age before Expires", "cache-control: max-age=60\nexpires: 0", 60),
            Case("RFC 9111 4.2.1, Expires", "expires: Sun, 06 Nov 1994 08:50:37 GMT", 60),
            Case("RFC 9111 4.2.1, obsolete Expires", "expires: Sunday, 06-Nov-94 08:50:37 GMT", 60),
            Case("RFC 9111 4.2.1, Expires as browsers read it", "expires: SUN, 6 nov 1994 08:50:37 gmt", 60),
            Case("RFC 9111 5.3, an invalid Expires has passed", "expires: Sun, 06 Nov 1994 8:50:37 GMT", 0),
            Case("RFC 9111 5.3, Expires in the past", "expires: Sun, 06 Nov 1994 08:40:37 GMT", 0),
            Case("RFC 9111 5.3, no date", "expires: 0", 0),
            Case("RFC 9111 5.3, no date", "expires: -1", 0),
            Case("RFC 9111 4.2.1, two that differ", "expires: \(later)\nexpires: Sun, 06 Nov 1994 08:51:37 GMT", 0),
            Case("RFC 9111 4.2.1, twice the same", "expires: \(later)\nexpires: \(later)", 60),
            Case("RFC 9111 5.3, far", "expires: Fri, 31 Dec 9999 23:59:59 GMT", 2_147_483_648),
            Case("RFC 9111 5.2.2.10, for shared caches", "cache-control: s-maxage=60", 0),
            Case("RFC 9111 4.2.2, a tenth", "last-modified: Sun, 06 Nov 1994 08:32:57 GMT", 100),
            Case("RFC 9111 4.2.2, at most a day", "last-modified: Sun, 06 Nov 1904 08:32:57 GMT", 86_400),
            Case("RFC 9111 4.2.2, from the future", "last-modified: Sun, 06 Nov 1994 08:59:37 GMT", 0),
            Case("RFC 9111 4.2.2, no date", "last-modified: x", 0),
            Case("RFC 9111 4.2.2, never beside an explicit time", "\(modified)\nexpires: 0", 0),
            Case("RFC 9111 4.2.2, nor beside a broken one", "\(modified)\ncache-control: max-age", 0),
            Case("nothing", "", 0),
        ])
    func lifetime(_ row: Case<Int64>) throws {
        let stored = try CacheWorld.stored(row.input)
        #expect(rule.lifetime(of: stored) == row.expected)
        #expect(rule.isFresh(stored, now: CacheWorld.now) == (row.expected > 0))
        #expect(!rule.isFresh(stored, now: CacheWorld.now + row.expected), "fresh until before its end")
    }

    private static let later = "Sun, 06 Nov 1994 08:50:37 GMT"
    private static let modified = "last-modified: Sat, 05 Nov 1994 08:49:37 GMT"

    @Test func `a guess is for statuses that allow it`() throws {
        for (status, control, seconds) in [
            (200, "x", 8640), (301, "x", 8640), (302, "x", 0), (302, "public", 8640), (404, "x", 0),
            (404, "public", 0),
        ] as [(Int, String, Int64)] {
            let stored = try CacheWorld.stored("\(Self.modified)\ncache-control: \(control)", status: status)
            #expect(rule.lifetime(of: stored) == seconds, "\(status) \(control)")
        }
        let other = CacheRule(heuristicPercent: 50, maximumHeuristicSeconds: 7200)
        #expect(other.lifetime(of: try CacheWorld.stored(Self.modified)) == 7200)
        #expect(CacheRule(heuristicPercent: 0).lifetime(of: try CacheWorld.stored(Self.modified)) == 0)
    }

    @Test(
        "age is what the fields and the clock say, whichever is more",
        arguments: [
            Case("RFC 9111 4.2.3, just made", "", 14 as Int64),
            Case("RFC 9111 4.2.3, from another cache", "age: 100", 114),
            Case("RFC 9111 4.2.3, apparent age is more", "age: 100\ndate: Sun, 06 Nov 1994 08:39:37 GMT", 610),
            Case("RFC 9111 4.2.3, a clock ahead of ours", "date: Sun, 06 Nov 1994 09:49:37 GMT", 14),
            Case("RFC 9111 5.1, list", "age: 100, 200\nage: 300", 114),
            Case("RFC 9111 5.1, no number", "age: x", 14),
            Case("RFC 9111 5.1, sign", "age: -5", 14),
            Case("RFC 9111 1.2.2, overflow", "age: 99999999999999999999", 2_147_483_648),
            Case("RFC 9110 6.6.1, no date", "date: x", 14),
        ])
    func age(_ row: Case<Int64>) throws {
        let fields = CacheWorld.fields(row.input.contains("date") ? row.input : "\(CacheWorld.date)\n\(row.input)")
        let stored = StoredResponse(
            status: 200, fields: fields, requestTime: CacheWorld.now - 4, responseTime: CacheWorld.now,
            varyKey: VaryKey(canonicalFields: []))
        #expect(stored.age(now: CacheWorld.now + 10) == row.expected)
    }

    @Test(
        "a kept response can be of use while it is fresh, can be validated, or may be used stale",
        arguments: [
            Case("fresh", "cache-control: max-age=5", "4 yes"),
            Case("stale", "cache-control: max-age=5", "5 no"),
            Case("stale with a tag", "cache-control: max-age=5\netag: \"a\"", "5 yes"),
            Case("stale with a date", "cache-control: max-age=5\n\(modified)", "5 yes"),
            Case("RFC 5861 3, at once", "cache-control: max-age=0, stale-while-revalidate=5", "0 yes"),
            Case("RFC 5861 3, at its end", "cache-control: max-age=1, stale-while-revalidate=5", "6 yes"),
            Case("RFC 5861 3, behind it", "cache-control: max-age=1, stale-while-revalidate=5", "7 no"),
            Case("RFC 5861 4, at once", "cache-control: max-age=0, stale-if-error=5", "0 yes"),
            Case("RFC 5861 4, the longer one", "cache-control: stale-while-revalidate=2, stale-if-error=5", "5 yes"),
            Case("RFC 5861 4, for no time", "cache-control: max-age=0, stale-if-error=0", "0 no"),
            Case("RFC 9111 5.2.2.2", "cache-control: max-age=0, stale-if-error=5, must-revalidate", "0 no"),
            Case("RFC 9111 5.2.2.4", "cache-control: max-age=0, stale-while-revalidate=5, no-cache", "0 no"),
        ])
    func use(_ row: Case<String>) throws {
        let seconds = try #require(Int64(row.expected.prefix { $0 != " " }))
        let isUsable = rule.isUsable(try CacheWorld.stored(row.input), now: CacheWorld.now + seconds)
        #expect("\(seconds) \(isUsable ? "yes" : "no")" == row.expected)
    }

    @Test func `no clock makes an age overflow, and one set back makes it the greatest`() throws {
        let times: [Int64] = [.min, -1, 0, CacheWorld.now, .max]
        for requestTime in times {
            for responseTime in times {
                for now in times {
                    let stored = StoredResponse(
                        status: 200, fields: CacheWorld.fields("\(CacheWorld.date)\ncache-control: max-age=60"),
                        requestTime: requestTime, responseTime: responseTime, varyKey: VaryKey(canonicalFields: []))
                    let age = stored.age(now: now)
                    #expect((0...2_147_483_648).contains(age))
                    if now < responseTime { #expect(age == 2_147_483_648) }
                }
            }
        }
    }
}
