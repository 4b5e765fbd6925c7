import Testing

@testable import EarshotCore

/// The circuit breaker: closed, open, and its tries.
@Suite struct CircuitBreakerTests {
    private func tick(_ milliseconds: Int) -> MonotonicTime {
        MonotonicTime(nanoseconds: 0).advanced(byMilliseconds: milliseconds)
    }

    @Test func `it opens after three failures in a row, and a success between them resets it`() {
        var breaker = CircuitBreaker()
        for _ in 0..<2 { #expect(breaker.failed(now: tick(0)) == false) }
        #expect(breaker.succeeded() == false)
        for _ in 0..<2 { #expect(breaker.failed(now: tick(1)) == false) }
        #expect(breaker.isClosed)
        #expect(breaker.failed(now: tick(1)) == true)
        #expect(!breaker.isClosed)
        #expect(!breaker.permitsTrial(now: tick(2_000)))
        #expect(breaker.permitsTrial(now: tick(2_001)))
    }

    @Test func `each failed try doubles the pause, up to a minute, and a success closes it`() {
        var breaker = CircuitBreaker()
        for _ in 0..<3 { _ = breaker.failed(now: tick(0)) }
        // Failures of tries that began before it opened.
        for _ in 0..<9 { #expect(breaker.failed(now: tick(5)) == false) }
        var now = 2_000
        for pause in [4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            #expect(breaker.permitsTrial(now: tick(now)))
            breaker.trialBegan(now: tick(now))
            #expect(!breaker.permitsTrial(now: tick(now)))
            #expect(breaker.failed(now: tick(now)) == false)
            #expect(!breaker.permitsTrial(now: tick(now + pause - 1)))
            now += pause
        }
        breaker.trialBegan(now: tick(now))
        #expect(breaker.succeeded() == true)
        #expect(breaker.isClosed && breaker == CircuitBreaker())
    }

    @Test func `a try whose end is unknown is followed by another one after the pause`() {
        var breaker = CircuitBreaker()
        breaker.open(now: tick(0))
        #expect(!breaker.permitsTrial(now: tick(1_999)))
        breaker.trialBegan(now: tick(2_000))
        #expect(!breaker.permitsTrial(now: tick(3_999)) && breaker.permitsTrial(now: tick(4_000)))
    }
}
