import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Steps of flights as values: nothing is carried out.
@Suite struct FlightStepTests {
    private var rig = CoreRig()

    /// A running flight of requests with these size limits, which may be retried once.
    private mutating func flight(limits: [Int?]) throws -> Handle<Flight> {
        let a = rig.client(1)
        _ = rig.worker()
        rig.pass { rig in
            for (number, limit) in limits.enumerated() {
                rig.fetch("h", "\(number)", "http://x/", by: a) { fetch in
                    fetch.options.maximumBodyBytes = limit
                    fetch.options.retries = 1
                }
            }
        }
        return try #require(rig.core.records.flights.indices.first)
    }

    @Test(arguments: [([1, 5, nil], 3, 1), ([1, 2, 5], 4, 2), ([1, 2], 2, nil), ([nil], nil, nil)])
    mutating func `a body above the limits of some requests fails these, and of all the flight`(
        limits: [Int?], allowed: Int?, failing: Int?
    ) throws {
        let flight = try flight(limits: limits)
        switch Flights.bodyExceededLimit(flight, allowed: allowed, in: &rig.core.records) {
        case .requeueAfterOversizedBody(let requests): #expect(requests.count == failing)
        case .endFlight(let outcome): #expect(rig.core.records.outcomes[outcome].failure == .tooLarge && failing == nil)
        default: Issue.record("another step")
        }
    }

    @Test mutating func `a failure is repeated after a pause, and the one after the last retry ends the flight`() throws
    {
        let flight = try flight(limits: [nil])
        let first = Flights.attemptFailed(flight, .connectionReset, now: rig.now, in: &rig.core.records)
        guard case .retryFlight(let outcome, let ending, .atTime(let time)) = first else {
            Issue.record("no retry: \(first)")
            return
        }
        #expect(rig.core.records.outcomes[outcome].failure == .connectionReset && ending.isEmpty && time > rig.now)
        let second = Flights.attemptFailed(flight, .connectionReset, now: rig.now, in: &rig.core.records)
        guard case .endFlight(let last) = second else {
            Issue.record("no end: \(second)")
            return
        }
        #expect(rig.core.records.outcomes[last].failure == .connectionReset)
    }
}
