internal import EarshotCore

/// Search for the shortest history with the same violation: first with fewer kinds of faults, then with fewer events
/// (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002).
///
/// An equal invariant does not suffice: partial histories are unlike those of any world, and cause other disagreements
/// of core and model.
struct Shrinker {
    /// Number of events that may still be passed to cores.
    private var budget: Int
    private let soughtViolation: Violation

    init(_ sought: Violation, budget: Int) {
        self.soughtViolation = sought
        self.budget = budget
    }

    /// Disables unnecessary faults.
    mutating func removeUnneededFaults(_ options: SimulationOptions, _ failure: Failure) -> (SimulationOptions, Failure)
    {
        var best = (options: options, failure: failure)
        for fault in Fault.allCases where !options.excludedFaults.contains(fault) && budget > 0 {
            var candidate = best.options
            candidate.excludedFaults.insert(fault)
            candidate.steps = best.failure.step
            budget -= candidate.steps
            guard case .failure(let found) = Result(catching: { () throws(Failure) in try Simulation.run(candidate) }),
                found.violation.isSame(as: soughtViolation), found.step <= best.failure.step
            else { continue }
            best = (candidate, found)
        }
        return best
    }

    /// Omits unnecessary events.
    /// - Returns: nil if the replay does not reproduce the violation.
    mutating func removeUnneededEvents(_ history: [HistoryEntry], _ replay: Replay) -> Replay.Finding? {
        var steps = replay.steps(of: history)
        guard var best = tryReplay(steps, replay) else { return nil }
        steps.removeSubrange(best.stepCount...)
        var chunk = max(1, steps.count / 2)
        while budget > 0 {
            var start = 0
            let before = steps.count
            while start < steps.count, budget > 0 {
                var candidate = steps
                candidate.removeSubrange(start..<min(start + chunk, steps.count))
                if let found = tryReplay(candidate, replay) {
                    candidate.removeSubrange(found.stepCount...)
                    steps = candidate
                    best = found
                } else {
                    start += chunk
                }
            }
            if chunk == 1, steps.count == before { break }
            chunk = max(1, chunk / 2)
        }
        return best
    }

    private mutating func tryReplay(_ steps: [Replay.Step], _ replay: Replay) -> Replay.Finding? {
        budget -= steps.count
        guard let found = replay.finding(in: steps), found.violation.isSame(as: soughtViolation) else { return nil }
        return found
    }
}
