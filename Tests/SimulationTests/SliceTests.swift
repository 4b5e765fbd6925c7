import EarshotCore
import EarshotSimulation
import Testing

/// Shortest versions of `earshot-lab simulate`, `durable` and `cluster`. `bin/test simulation` runs more and longer ones in the
/// release, which needs a twentieth of the time.
struct SliceTests {
    @Test func `all invariants hold through 3,000 events of a world with faults, and nothing is left`() throws {
        let report = try Simulation.run(SimulationOptions(seed: 1, steps: 3_000))
        #expect(report.steps >= 3_000)
        #expect((report.earlierLedgers + [report.ledger]).contains { $0.requests.answered > 0 })
    }

    @Test func `the same seed gives the same run`() throws {
        let options = SimulationOptions(seed: 5, steps: 2_000)
        #expect(try Simulation.run(options).ledger == Simulation.run(options).ledger)
        let cluster = ClusterOptions(seed: 5, steps: 1_000)
        #expect(try ClusterSimulation.run(cluster) == ClusterSimulation.run(cluster))
    }

    /// These worlds do not drain their broker at the end, which would refuse or drop requests.
    @Test(arguments: [1, 7] as [UInt64])
    func `without faults every request is answered`(seed: UInt64) throws {
        var options = SimulationOptions(seed: seed, steps: 5_000)
        options.excludedFaults = Set(Fault.allCases)
        let ledger = try Simulation.run(options).ledger
        #expect(ledger.requests.submitted > 500)
        #expect(ledger.requests.answered == ledger.requests.submitted, "\(ledger.requests)")
        #expect(ledger.deliveries.acknowledged == ledger.deliveries.started, "\(ledger.deliveries)")
        #expect(ledger.flights.staleCompletions == 0)
    }

    @Test func `durable requests outlive brokers that are killed at any moment`() throws {
        let report = try DurableSimulation.run(seed: 1, steps: 3_000)
        #expect(report.restarts > 20 && report.acceptedRequests > 50 && report.retriedFailures > 3)
    }

    @Test func `nodes without faults share fetches, and no key runs twice at any time`() throws {
        var options = ClusterOptions(seed: 77, steps: 5_000)
        options.nodeCount = 5
        options.excludedFaults = Set(ClusterFault.allCases)
        let report = try ClusterSimulation.run(options)
        #expect(report.requestCount > 150 && report.answeredRequests > 100 && report.pulledBodies > 50)
        #expect(report.duplicateFetches == 0)
        #expect(report.originFetches < report.requestCount)
    }
}
