import EarshotSimulation
import Testing

/// Short version of `earshot-lab durable`.
struct DurableSliceTests {
    @Test(arguments: 1...4 as ClosedRange<UInt64>)
    func `durable requests outlive brokers that are killed at any moment`(seed: UInt64) {
        do throws(Failure) {
            let report = try DurableSimulation.run(seed: seed, steps: 3_000)
            #expect(report.restarts > 20 && report.accepted > 50 && report.repeated > 3)
        } catch {
            Issue.record("earshot-lab durable --seed \(seed) --steps 3000: step \(error.step): \(error.violation)")
        }
    }

    @Test(arguments: DurableCanary.allCases)
    func `a disk that lies is found out`(canary: DurableCanary) {
        let failure = #expect(throws: Failure.self) {
            for seed in 1...3 as ClosedRange<UInt64> {
                _ = try DurableSimulation.run(seed: seed, steps: 3_000, canary: canary)
            }
        }
        let invariant = failure?.violation.invariant
        #expect(invariant.map { canary.invariants.contains($0) } == true, "\(String(describing: failure))")
    }
}
