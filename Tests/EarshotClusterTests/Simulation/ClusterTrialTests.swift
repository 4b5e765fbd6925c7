import Testing

/// Nodes, engine and network on fake time.
@Suite struct ClusterTrialTests {
    @Test(arguments: 1...6 as ClosedRange<UInt64>)
    func `every request ends once, no key runs twice and limits hold outside the windows after faults`(seed: UInt64) {
        var trial = ClusterTrial(seed: seed, nodes: 3 + Int(seed % 4))
        trial.run(milliseconds: 120_000, withFaults: true)
        #expect(trial.faults == [], "seed \(seed), \(trial.kinds)")
        #expect(trial.ends > 1_000 && trial.fetches > 500)
    }

    @Test func `without faults no key runs twice at any time`() {
        var trial = ClusterTrial(seed: 77, nodes: 5)
        trial.run(milliseconds: 60_000, withFaults: false)
        #expect(trial.faults == [])
        #expect(trial.duplicates == 0)
        #expect(trial.fetches < trial.ends)
    }

    @Test(arguments: ClusterTrial.Canary.allCases)
    func `a deliberate fault is detected`(canary: ClusterTrial.Canary) {
        let isDetected = (1...3 as ClosedRange<UInt64>).contains { seed in
            var trial = ClusterTrial(seed: seed, nodes: 4, canary: canary)
            trial.run(milliseconds: 60_000, withFaults: false)
            return !trial.faults.isEmpty
        }
        #expect(isDetected)
    }
}
