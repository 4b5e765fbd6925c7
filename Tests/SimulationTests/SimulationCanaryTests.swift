import EarshotSimulation
import Testing

/// The reference model detects violations of invariants. `earshot-lab canaries` checks each of them.
struct SimulationCanaryTests {
    @Test func `there is a canary for each invariant from 1 to 12, and from 14 to 16`() {
        #expect(Set(Canary.allCases.flatMap(\.invariants)) == Set(1...12).union([14, 15, 16]))
    }

    @Test func `a failure is explained by a history of a few events`() throws {
        var options = SimulationOptions(seed: 2, steps: 2_000)
        options.canary = .duplicateTerminal
        let failure = try #require(throws: Failure.self) { try Simulation.run(options) }
        let explanation = Simulation.explain(failure, of: options, budget: 30_000)
        #expect(explanation.failure.violation.invariant == 1)
        #expect(explanation.history.count <= 12, "\(explanation)")
    }
}
