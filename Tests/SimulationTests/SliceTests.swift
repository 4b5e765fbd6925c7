import EarshotCore
import EarshotSimulation
import Foundation
import Testing

/// Short version of `bin/simulate`: every invariant holds in all simulated worlds.
struct SliceTests {
    /// Fixed seeds, and one from the environment (in CI the commit hash). In 1046 a message overtakes an overdue timer.
    static let seeds: [UInt64] = {
        let given = ProcessInfo.processInfo.environment["EARSHOT_SEED"].map { text in
            UInt64(text) ?? UInt64(text.prefix(15), radix: 16) ?? 0
        }
        return Array(1...8) + [1_046] + (given.map { [$0] } ?? [])
    }()

    @Test(arguments: seeds)
    func `all invariants hold through 15,000 events of a world with faults, and nothing is left`(seed: UInt64) {
        let options = SimulationOptions(seed: seed, steps: 15_000)
        do throws(Failure) {
            let report = try Simulation.run(options)
            #expect(report.steps >= options.steps)
            #expect((report.earlier + [report.ledger]).contains { $0.requests.answered > 0 })
        } catch {
            Issue.record("bin/simulate --seed \(seed) --steps 15000: step \(error.step): \(error.violation)")
        }
    }

    @Test func `the same seed gives the same run`() throws {
        let options = SimulationOptions(seed: 5, steps: 3_000)
        #expect(try Simulation.run(options).ledger == Simulation.run(options).ledger)
    }

    /// These worlds do not drain their broker at the end, which would refuse or drop requests.
    @Test(arguments: [1, 7] as [UInt64])
    func `without faults every request is answered`(seed: UInt64) throws {
        var options = SimulationOptions(seed: seed, steps: 5_000)
        options.without = Set(Fault.allCases)
        let ledger = try Simulation.run(options).ledger
        #expect(ledger.requests.submitted > 500)
        #expect(ledger.requests.answered == ledger.requests.submitted, "\(ledger.requests)")
        #expect(ledger.deliveries.acknowledged == ledger.deliveries.due, "\(ledger.deliveries)")
        #expect(ledger.flights.stale == 0)
    }
}
