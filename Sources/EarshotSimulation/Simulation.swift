public import EarshotCore

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
            steps: world.trial.steps, earlierLedgers: world.earlierLedgers, ledger: world.trial.broker.core.ledger,
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

/// Parameters of a run.
public struct SimulationOptions: Sendable {
    public var seed: UInt64
    /// Number of events passed to the core before all work is allowed to finish.
    public var steps: Int
    public var handlers = 200
    /// Number of URLs.
    public var keys = 100
    /// Faults disabled in addition to those that the seed disables.
    public var excludedFaults: Set<Fault> = []
    /// Deliberate fault between core and model that must be detected.
    public var canary: Canary?

    public init(seed: UInt64, steps: Int) {
        self.seed = seed
        self.steps = steps
    }
}

/// Statistics of a run without violations.
public struct Report: Sendable {
    /// Number of events passed to the core.
    public var steps: Int
    /// Ledgers of earlier brokers, in order.
    public var earlierLedgers: [Ledger]
    /// Ledger of the last broker.
    public var ledger: Ledger
    public var fakeSeconds: Int
    /// Enabled faults.
    public var faults: Set<Fault>
}

/// Violated invariant, and the number of events before it.
public struct Failure: Error, Sendable, Equatable {
    public var violation: Violation
    public var step: Int
}

/// Failure, minimized as far as possible.
public struct Explanation: Sendable, CustomStringConvertible {
    /// Failure with the fewest kinds of faults.
    public var failure: Failure
    /// Enabled faults.
    public var faults: Set<Fault>
    /// Violation at the end of the history: the same one as in the failure, with the names left in it.
    public var violation: Violation
    /// Events that a core must receive to reproduce it.
    public var history: [HistoryEntry]

    public var description: String {
        let start = history.first?.now.nanoseconds ?? 0
        let lines = history.map { entry in
            let milliseconds = (entry.now.nanoseconds - start) / 1_000_000
            return "  \(milliseconds) ms: \(entry.event)"
        }
        let names = faults.map(\.rawValue).sorted().joined(separator: ", ")
        return """
            step \(failure.step): \(failure.violation)
            faults: \(names.isEmpty ? "none" : names)
            history of \(history.count) events:
            \(lines.joined(separator: "\n"))
            \(violation)
            """
    }
}
