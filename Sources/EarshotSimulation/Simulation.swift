internal import EarshotCore

/// Simulations of a whole system in one process, each determined by a seed.
public enum Simulation {
    /// Runs one simulation.
    /// - Returns: Statistics of the run.
    /// - Throws: The first violated invariant, and its position.
    public static func run(_ options: SimulationOptions) throws(Failure) -> Report {
        var world = World(options, keepsHistory: false)
        do throws(Violation) {
            try world.run(steps: options.steps)
        } catch {
            throw Failure(violation: error, step: world.trial.steps)
        }
        return Report(
            steps: world.trial.steps, earlier: world.earlierLedgers, ledger: world.trial.broker.core.ledger,
            fakeSeconds: Int(world.now / 1_000_000_000), faults: world.setting.faults)
    }

    /// Searches for the shortest history that reproduces a failure of `run`.
    /// - Parameter budget: Maximum number of events passed to cores during the search.
    public static func explain(_ failure: Failure, of options: SimulationOptions, budget: Int) -> Explanation {
        var shrinker = Shrinker(failure.violation, budget: budget)
        let (smaller, found) = shrinker.fewerFaults(options, failure)
        var world = World(smaller, keepsHistory: true)
        let limits = world.setting.limits
        let faults = world.setting.faults
        do throws(Violation) {
            try world.run(steps: smaller.steps)
        } catch {
            let history = world.history ?? []
            let shorter = shrinker.fewerEvents(history, Replay(limits: limits, canary: smaller.canary))
            return Explanation(
                failure: found, faults: faults, violation: shorter?.violation ?? error,
                history: shorter?.delivered ?? history)
        }
        preconditionFailure("seed \(smaller.seed) failed and then did not")
    }
}
