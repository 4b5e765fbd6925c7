import EarshotSimulation
import Testing

/// The reference model detects each violation of an invariant, and reports the invariant's number.
struct CanaryTests {
    @Test func `there is a canary for each invariant from 1 to 12, and from 14 to 16`() {
        #expect(Set(Canary.allCases.flatMap(\.invariants)) == Set(1...12).union([14, 15, 16]))
    }

    /// A canary needs a suitable situation, which not every simulated world contains. Any violation found must be the
    /// canary's. More seeds are tried if twelve worlds did not detect it.
    @Test(arguments: Canary.allCases)
    func `a broken broker is caught with the number of an invariant it breaks`(canary: Canary) {
        var caught = 0
        for seed in 1...48 as ClosedRange<UInt64> where caught < (seed > 12 ? 1 : 2) {
            var options = SimulationOptions(seed: seed, steps: 6_000)
            options.canary = canary
            do throws(Failure) {
                _ = try Simulation.run(options)
            } catch {
                #expect(canary.invariants.contains(error.violation.invariant), "seed \(seed): \(error)")
                caught += 1
            }
        }
        #expect(caught > 0, "\(canary) was never caught")
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
