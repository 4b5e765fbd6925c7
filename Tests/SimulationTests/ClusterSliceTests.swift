import EarshotSimulation
import Testing

/// Short version of `earshot-lab cluster`.
struct ClusterSliceTests {
    @Test(arguments: 1...3 as ClosedRange<UInt64>)
    func `every request ends once, no key runs twice and limits hold outside the windows after faults`(seed: UInt64) {
        do throws(ClusterFailure) {
            let report = try ClusterSimulation.run(ClusterOptions(seed: seed, steps: 5_000))
            #expect(report.requests > 150 && report.answered > 100 && report.pulls > 10)
        } catch {
            Issue.record("earshot-lab cluster --seed \(seed) --steps 5000: step \(error.step): \(error.violation)")
        }
    }

    @Test func `without faults nodes share fetches, and no key runs twice at any time`() throws {
        var options = ClusterOptions(seed: 77, steps: 5_000)
        options.nodes = 5
        options.without = Set(ClusterFault.allCases)
        let report = try ClusterSimulation.run(options)
        #expect(report.duplicates == 0)
        #expect(report.fetches < report.requests)
        #expect(report.pulls > 50)
    }

    @Test func `the same seed gives the same run`() throws {
        let options = ClusterOptions(seed: 5, steps: 3_000)
        #expect(try ClusterSimulation.run(options) == ClusterSimulation.run(options))
    }

    /// `earshot-lab canaries` checks all of them. Those that are found only at the end of a long run take too long in a debug
    /// build.
    @Test(arguments: [
        ClusterCanary.startsWithoutGrant, .exchangesResults, .acceptsStaleTokens, .givesAnotherBody, .ignoresLimits,
        .answersEarlier, .reapsNothing, .keepsBodies,
    ])
    func `a deliberate fault is detected`(canary: ClusterCanary) {
        let violation = ClusterCanaries.detection(of: canary)?.violation
        #expect(violation.map { canary.invariants.contains($0.invariant) } == true, "\(String(describing: violation))")
    }
}
