import EarshotLoop
import Testing

@testable import EarshotWorker

/// The rate limit of one transfer.
struct PaceTests {
    private func time(_ milliseconds: Int) -> LoopTime { LoopTime(nanoseconds: Int64(milliseconds) * 1_000_000) }

    @Test func `a first piece waits until the rate allows all of its bytes`() {
        var pace = Pace(bytesPerSecond: 1_000, now: time(0))
        #expect(pace.consumeCredit(bytes: 500, now: time(0)) == false)
        #expect(pace.admissionTime(now: time(0)) == time(501))
        #expect(pace.consumeCredit(bytes: 500, now: time(499)) == false)
        #expect(pace.admissionTime(now: time(501)) == nil)
        #expect(pace.consumeCredit(bytes: 500, now: time(501)) == true)
    }

    @Test(arguments: [1, 100, 16_384], [10_000, 100_000, 10_000_000])
    func `the admitted bytes never exceed the rate, and keep to it`(piece: Int, rate: Int) throws {
        var pace = Pace(bytesPerSecond: rate, now: time(0))
        var admitted = 0
        var now = 0
        while now < 10_000 {
            while admitted < 2_000 * piece, pace.consumeCredit(bytes: piece, now: time(now)) { admitted += piece }
            #expect(admitted * 1_000 <= rate * now)
            guard admitted < 2_000 * piece else { break }
            let obstacle = pace.admissionTime(now: time(now))
            let end = try #require(obstacle)
            // Timers are late on a busy machine.
            now = Int((end.since(time(0)) / .milliseconds(1)).rounded(.up)) + 40
        }
        #expect(Double(admitted + piece) >= 0.95 * Double(rate) * Double(now - 41) / 1_000)
    }

    @Test func `an unused rate is kept for a quarter of a second`() {
        var pace = Pace(bytesPerSecond: 1_000, now: time(0))
        #expect(pace.admissionTime(now: time(60_000)) == nil)
        #expect(pace.consumeCredit(bytes: 251, now: time(60_000)) == false)
        #expect(pace.consumeCredit(bytes: 250, now: time(60_000)) == true)
        #expect(pace.consumeCredit(bytes: 1, now: time(60_000)) == false)
    }

    @Test func `a waiting piece keeps its credit when the rate changes`() {
        var pace = Pace(bytesPerSecond: 100, now: time(0))
        #expect(pace.consumeCredit(bytes: 1_000, now: time(0)) == false)
        pace.setRate(bytesPerSecond: 1_000, now: time(5_000))
        #expect(pace.admissionTime(now: time(5_000)) == time(5_501))
        pace.setRate(bytesPerSecond: 1, now: time(5_400))
        #expect(pace.admissionTime(now: time(5_400)) == time(105_401))
    }
}
