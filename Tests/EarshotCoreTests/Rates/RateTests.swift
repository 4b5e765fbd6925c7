import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Rate limits of the bus, of origins and of handlers.
struct RateTests {
    private var rig = CoreRig()

    private mutating func set(_ text: String, by client: ClientID) throws {
        let words = try #require(SettingWords(text.split(separator: " ").map { String($0) }))
        rig.pass { $0.send(.changeSetting(words), by: client) }
    }

    /// Sent RATE messages of the last pass by number of the flight.
    private var rates: [Int?] {
        rig.actions.compactMap { action -> Int?? in
            if case .worker(.send(_, .changeRate(_, let rate))) = action { .some(rate) } else { nil }
        }
    }

    @Test mutating func `transfers of a handler share its limit, and others have none`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            for number in 1...2 {
                rig.fetch("run/1", "\(number)", "http://o/\(number)", by: a) {
                    $0.options.handlerBytesPerSecond = 1_000
                }
            }
            rig.fetch("other", "1", "http://o/other", by: a)
        }
        #expect(rig.jobs.count == 3)
        #expect(rig.jobs.filter { $0.url == "http://o/other" }.map(\.maximumBytesPerSecond) == [nil])
        #expect(rig.jobs.compactMap(\.maximumBytesPerSecond) == [1_000, 500])
        rig.wait(milliseconds: 50)
        #expect(rates == [500])
        #expect(rig.core.nextTimer == rig.now.advanced(byMilliseconds: 500))
        rig.wait(milliseconds: 500)
        #expect(rates == [])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an end gives its share to the others`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            for number in 1...2 {
                rig.fetch("h", "\(number)", "http://o/\(number)", by: a) { $0.options.handlerBytesPerSecond = 1_000 }
            }
        }
        let jobs = rig.jobs
        rig.wait(milliseconds: 50)
        rig.pass { $0.done(jobs[0], by: worker) }
        rig.wait(milliseconds: 50)
        #expect(rates == [1_000])
        rig.pass { $0.done(jobs[1], by: worker) }
        rig.wait(milliseconds: 50)
        #expect(rig.core.records.rateShares.isEmpty && rig.core.records.rateShares.nextDivisionAt == nil)
    }

    @Test mutating func `a setting and a rule apply to running transfers, and to all handlers`() throws {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://o/1", by: a)
            rig.fetch("h", "2", "http://p/1", by: a)
        }
        #expect(rig.jobs.map(\.maximumBytesPerSecond) == [nil, nil])
        try set("limit-rate 10K", by: a)
        rig.wait(milliseconds: 50)
        #expect(rates == [5_120, 5_120])
        try set("origin o rate=1K", by: a)
        rig.wait(milliseconds: 50)
        #expect(rates == [1_024, 9_216])
        try set("limit-rate 0", by: a)
        rig.wait(milliseconds: 50)
        #expect(rates == [nil])
        try set("origin o default", by: a)
        rig.wait(milliseconds: 50)
        #expect(rates == [nil])
        rig.wait(milliseconds: 5_000)
        #expect(rates == [] && rig.core.records.rateShares.isEmpty)
    }

    @Test mutating func `a request without a limit lifts that of a transfer that it joins`() {
        _ = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://o/", by: a) { $0.options.handlerBytesPerSecond = 1_000 } }
        #expect(rig.jobs.map(\.maximumBytesPerSecond) == [1_000])
        rig.wait(milliseconds: 50)
        rig.pass { $0.fetch("free", "1", "http://o/", by: a) }
        rig.wait(milliseconds: 500)
        #expect(rates == [nil])
    }

    @Test mutating func `a limited transfer that is cancelled or lost leaves no record`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://o/1", by: a) { $0.options.handlerBytesPerSecond = 1_000 } }
        rig.pass { $0.remove("h", by: a) }
        rig.wait(milliseconds: 50)
        #expect(rig.core.records.rateShares.isEmpty)
        rig.pass { $0.fetch("h", "2", "http://o/2", by: a) { $0.options.handlerBytesPerSecond = 1_000 } }
        rig.pass { $0.core.workerLost(worker, now: $0.now) }
        rig.wait(milliseconds: 50)
        #expect(rig.core.records.rateShares.isEmpty && rig.core.records.rateShares.nextDivisionAt == nil)
    }

    @Test mutating func `a transfer that started without a limit of a handler never gets one`() {
        _ = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { $0.fetch("free", "1", "http://o/", by: a) }
        rig.pass { rig in
            rig.fetch("h", "1", "http://o/", by: b) { $0.options.handlerBytesPerSecond = 1_000 }
            rig.fetch("h", "2", "http://o/2", by: b) { $0.options.handlerBytesPerSecond = 1_000 }
        }
        #expect(rig.jobs.map(\.maximumBytesPerSecond) == [1_000])
        rig.pass { $0.remove("free", by: a) }
        rig.wait(milliseconds: 50)
        #expect(rates == [])
        rig.wait(milliseconds: 500)
        #expect(rates == [])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a lifted limit of a handler does not come back`() {
        _ = rig.worker()
        let (a, b) = (rig.client(1), rig.client(2))
        rig.pass { rig in
            for number in 1...2 {
                rig.fetch("h", "\(number)", "http://o/\(number)", by: a) { $0.options.handlerBytesPerSecond = 1_000 }
            }
        }
        rig.wait(milliseconds: 50)
        rig.pass { $0.fetch("free", "1", "http://o/1", by: b) }
        rig.wait(milliseconds: 500)
        #expect(rates == [nil, 1_000])
        rig.pass { $0.remove("free", by: b) }
        rig.wait(milliseconds: 500)
        #expect(rates == [])
        #expect(rig.core.audit() == [])
    }
}
