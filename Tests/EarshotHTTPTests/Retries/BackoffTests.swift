import EarshotHTTP
import Testing

struct BackoffTests {
    private let backoff = Backoff(firstMilliseconds: 100, longestMilliseconds: 1_000)

    @Test func `the pauses double up to the longest`() {
        let pauses = (0...8).map { backoff.pause(afterFailures: $0) / 1_000_000 }
        #expect(pauses == [100, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000])
    }

    @Test func `jitter takes up to half of a pause away`() {
        #expect(backoff.pause(afterFailures: 3, random: 0) == 200_000_000)
        #expect(backoff.pause(afterFailures: 3, random: .max) == 400_000_000)
        #expect(backoff.pause(afterFailures: 3, random: .max / 2) == 300_000_000)
    }

    @Test func `no count and no bound overflows`() {
        #expect(backoff.pause(afterFailures: .max, random: .max) == backoff.longest)
        #expect(backoff.pause(afterFailures: .min) == backoff.first)
        #expect(Backoff(first: 1, longest: .max).pause(afterFailures: .max, random: .max) == .max)
        #expect(Backoff(first: 0, longest: 0).pause(afterFailures: 9, random: .max) == 0)
        #expect(Backoff(first: 9, longest: 1).pause(afterFailures: 1) == 1)
    }
}
