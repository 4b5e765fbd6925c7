import EarshotCore
import EarshotHTTP
import Testing

/// Retries: when, after which pause, and how often.
@Suite struct RetryRuleTests {
    private func decision(
        _ failure: FailureCode = .connectionReset, status: Int? = nil, method: HTTPMethod = .get, attempts: Int = 1,
        failedAttempts: Int? = nil,
        retries: Int = 20, random: UInt64 = 0, rule: RetryRule = RetryRule()
    ) -> RetryDecision {
        rule.decision(
            after: failure, status: status, method: method, attempts: attempts,
            failedAttempts: failedAttempts ?? attempts,
            retries: retries, random: random)
    }

    @Test(
        "the pause doubles up to 30 seconds, its first half always waited",
        arguments: [
            (0, 125, 250), (1, 125, 250), (2, 250, 500), (3, 500, 1000), (4, 1000, 2000), (7, 8000, 16_000),
            (8, 15_000, 30_000), (9, 15_000, 30_000), (20, 15_000, 30_000),
        ])
    func pause(_ attempts: Int, _ least: Int64, _ most: Int64) {
        let milliseconds: Int64 = 1_000_000
        #expect(decision(attempts: attempts, random: 0) == .retry(afterNanoseconds: least * milliseconds))
        #expect(decision(attempts: attempts, random: .max) == .retry(afterNanoseconds: most * milliseconds))
    }

    @Test func `the pause is the first one after each attempt that brought something`() {
        for failedAttempts in 0...1 {
            #expect(
                decision(attempts: 9, failedAttempts: failedAttempts, random: .max)
                    == .retry(afterNanoseconds: 250_000_000))
        }
        #expect(decision(attempts: 9, failedAttempts: 2, random: .max) == .retry(afterNanoseconds: 500_000_000))
    }

    @Test func `the pause is spread evenly over its second half`() {
        var generator = SplitMix64Generator(seed: 30)
        var counts = [0, 0, 0, 0]
        for _ in 0..<4000 {
            guard case .retry(let pause) = decision(random: generator.next()) else { continue }
            counts[Int((pause - 125_000_000) * 4 / 125_000_001)] += 1
        }
        #expect(counts.allSatisfy { (900...1100).contains($0) }, "\(counts)")
    }

    @Test func `no more attempts are made than allowed`() {
        #expect(decision(attempts: 2, retries: 2) != .fail)
        #expect(decision(attempts: 3, retries: 2) == .fail)
        #expect(decision(attempts: 1, retries: 0) == .fail)
    }

    @Test(
        "only an idempotent method is tried again",
        arguments: [
            ("GET", true), ("HEAD", true), ("OPTIONS", true), ("TRACE", true), ("PUT", true), ("DELETE", true),
            ("POST", false), ("PATCH", false), ("get", false), ("PURGE", false),
        ])
    func idempotence(_ name: String, _ isRetried: Bool) throws {
        #expect((decision(method: try #require(HTTPMethod(name))) != .fail) == isRetried)
    }

    @Test func `only a failure that may pass is tried again`() {
        #expect(decision(.tls) == .fail)
        #expect(decision(.httpStatus, status: 404) == .fail)
        #expect(decision(.httpStatus, status: 503) != .fail)
        #expect(decision(.httpStatus) == .fail)
    }

    @Test func `extreme settings do not overflow`() {
        let rule = RetryRule(initialDelayNanoseconds: .max, maximumDelayNanoseconds: .max)
        #expect(decision(attempts: 20, random: .max, rule: rule) == .retry(afterNanoseconds: .max))
        let none = RetryRule(initialDelayNanoseconds: 0, maximumDelayNanoseconds: 0)
        #expect(decision(attempts: 20, random: .max, rule: none) == .retry(afterNanoseconds: 0))
        let slow = RetryRule(initialDelayNanoseconds: 1, maximumDelayNanoseconds: .max)
        #expect(decision(attempts: .max - 1, retries: .max, random: .max, rule: slow) == .retry(afterNanoseconds: .max))
    }

    @Test(
        "Retry-After is seconds or a date",
        arguments: [
            Case("RFC 9110 10.2.3, seconds", "120", 120 as Int64?),
            Case("RFC 9110 10.2.3, zero", "0", 0),
            Case("RFC 9110 10.2.3, date", "Sun, 06 Nov 1994 08:50:37 GMT", 60),
            Case("RFC 9110 10.2.3, date in the past", "Sun, 06 Nov 1994 08:40:37 GMT", 0),
            Case("RFC 9110 10.2.3, obsolete date", "Sunday, 06-Nov-94 08:49:38 GMT", 1),
            Case("RFC 9110 10.2.3, very long", "99999999999999999999999", 31_536_000),
            Case("RFC 9110 10.2.3, far date", "Sun, 06 Nov 9999 08:50:37 GMT", 31_536_000),
            Case("RFC 9110 10.2.3, sign", "-1", nil),
            Case("RFC 9110 10.2.3, fraction", "1.5", nil),
            Case("RFC 9110 10.2.3, empty", "", nil),
            Case("RFC 9110 10.2.3, text", "soon", nil),
        ])
    func isRead(_ row: Case<Int64?>) {
        #expect(RetryAfter(row.input, now: 784_111_777)?.seconds == row.expected)
    }

    @Test func `no clock makes Retry-After overflow`() {
        for now in [Int64.min, -1, 0, .max] {
            let seconds = RetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", now: now)?.seconds
            #expect(seconds == (now == .max ? 0 : HTTPLimits.retryAfterSeconds))
        }
    }
}

struct BackoffTests {
    private let backoff = Backoff(initialMilliseconds: 100, maximumMilliseconds: 1_000)

    @Test func `the pauses double up to the longest`() {
        let pauses = (0...8).map { backoff.delayNanoseconds(afterFailures: $0) / 1_000_000 }
        #expect(pauses == [100, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000])
    }

    @Test func `jitter takes up to half of a pause away`() {
        #expect(backoff.delayNanoseconds(afterFailures: 3, random: 0) == 200_000_000)
        #expect(backoff.delayNanoseconds(afterFailures: 3, random: .max) == 400_000_000)
        #expect(backoff.delayNanoseconds(afterFailures: 3, random: .max / 2) == 300_000_000)
    }

    @Test func `no count and no bound overflows`() {
        #expect(backoff.delayNanoseconds(afterFailures: .max, random: .max) == backoff.maximumDelayNanoseconds)
        #expect(backoff.delayNanoseconds(afterFailures: .min) == backoff.initialDelayNanoseconds)
        #expect(
            Backoff(initialNanoseconds: 1, maximumNanoseconds: .max).delayNanoseconds(afterFailures: .max, random: .max)
                == .max)
        #expect(
            Backoff(initialNanoseconds: 0, maximumNanoseconds: 0).delayNanoseconds(afterFailures: 9, random: .max) == 0)
        #expect(Backoff(initialNanoseconds: 9, maximumNanoseconds: 1).delayNanoseconds(afterFailures: 1) == 1)
    }
}
