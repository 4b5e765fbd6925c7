internal import ArgumentParser
internal import EarshotSimulation

/// `earshot-lab canaries`: the reference model detects each deliberate fault of the core, and reports the number of the
/// invariant that it violates. The explanation of the failure concerns that failure, not another one of the same invariant.
struct CanariesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "canaries", abstract: "Check that the simulation detects each deliberate fault of the core.")

    /// A canary needs a suitable situation, which not every world contains. It must be detected in one of these.
    private static let worlds: UInt64 = 48
    private static let steps = 6_000
    /// Events for the search of a shorter history.
    private static let maximumSearchEvents = 5_000

    func run() throws {
        var hasFailed = false
        for canary in Canary.allCases {
            let faults = failureSentences(of: canary)
            print("\(canary.rawValue): \(faults.isEmpty ? "detected" : "FAILED")")
            for fault in faults { print("FAIL: canary \(canary.rawValue): \(fault)") }
            hasFailed = hasFailed || !faults.isEmpty
        }
        for canary in ClusterCanary.allCases {
            let violation = ClusterCanaries.detection(of: canary)?.violation
            let isDetected = violation.map { canary.invariants.contains($0.invariant) } ?? false
            print("cluster, \(canary.rawValue): \(isDetected ? "detected" : "FAILED")")
            if !isDetected {
                print("FAIL: canary \(canary.rawValue): \(violation.map { "\($0)" } ?? "not detected")")
            }
            hasFailed = hasFailed || !isDetected
        }
        for canary in DurableCanary.allCases {
            let violation = detection(of: canary)
            let isDetected = violation.map { canary.invariants.contains($0.invariant) } ?? false
            print("durable, \(canary.rawValue): \(isDetected ? "detected" : "FAILED")")
            if !isDetected {
                print("FAIL: canary \(canary.rawValue): \(violation.map { "\($0)" } ?? "not detected")")
            }
            hasFailed = hasFailed || !isDetected
        }
        if hasFailed { throw ExitCode(1) }
    }

    /// Returns the violation of the first of a few seeds that has one; nil if none has.
    private func detection(of canary: DurableCanary) -> Violation? {
        for seed in 1...3 as ClosedRange<UInt64> {
            do throws(Failure) {
                _ = try DurableSimulation.run(seed: seed, steps: 3_000, canary: canary)
            } catch {
                return error.violation
            }
        }
        return nil
    }

    /// Returns a sentence for each fault of the simulation; none if it detects the canary.
    private func failureSentences(of canary: Canary) -> [String] {
        for seed in 1...Self.worlds {
            var options = SimulationOptions(seed: seed, steps: Self.steps)
            options.canary = canary
            do throws(Failure) {
                _ = try Simulation.run(options)
            } catch {
                let violation = error.violation
                var faults: [String] = []
                if !canary.invariants.contains(violation.invariant) {
                    faults.append("seed \(seed), step \(error.step): another invariant, \(violation)")
                }
                let explanation = Simulation.explain(error, of: options, budget: Self.maximumSearchEvents)
                for found in [explanation.violation, explanation.failure.violation]
                where found.invariant != violation.invariant || found.kind != violation.kind {
                    faults.append("seed \(seed): \(violation) is explained as \(found)")
                }
                return faults
            }
        }
        return ["not detected in \(Self.worlds) worlds"]
    }
}
