import Testing

@testable import EarshotCore

/// Arithmetic with times at the ends of the range.
struct TickTests {
    private static let first = MonotonicTime(nanoseconds: .min)
    private static let last = MonotonicTime(nanoseconds: .max)

    @Test func `a time moves by milliseconds and nanoseconds in both directions`() {
        let time = MonotonicTime(nanoseconds: 5_000_000)
        #expect(time.advanced(byMilliseconds: 2).nanoseconds == 7_000_000)
        #expect(time.advanced(byMilliseconds: -2).nanoseconds == 3_000_000)
        #expect(time.advanced(byNanoseconds: -1).nanoseconds == 4_999_999)
        #expect(time.milliseconds(since: MonotonicTime(nanoseconds: 1)) == 4)
        #expect(time.milliseconds(since: time) == 0)
        #expect(time.milliseconds(since: MonotonicTime(nanoseconds: 6_000_000)) == 0)
    }

    @Test(arguments: [9_223_372_036_855, 9_223_372_036_856, Int.max])
    func `a time beyond the range is its first or last one`(milliseconds: Int) {
        for nanoseconds in [0, 1, 1_000_000, .max] as [Int64] {
            #expect(MonotonicTime(nanoseconds: nanoseconds).advanced(byMilliseconds: milliseconds) == Self.last)
            #expect(MonotonicTime(nanoseconds: -nanoseconds).advanced(byMilliseconds: -milliseconds) == Self.first)
        }
        #expect(Self.last.advanced(byNanoseconds: 1) == Self.last)
        #expect(Self.first.advanced(byNanoseconds: -1) == Self.first)
    }

    @Test func `a duration beyond the range is the longest one`() {
        #expect(Self.last.milliseconds(since: Self.first) == Int(Int64.max / 1_000_000))
        #expect(MonotonicTime(nanoseconds: 0).milliseconds(since: Self.first) == Int(Int64.max / 1_000_000))
        #expect(Self.first.milliseconds(since: Self.last) == 0)
    }
}
