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
        let (smaller, found) = shrinker.removeUnneededFaults(options, failure)
        var world = World(smaller, keepsHistory: true)
        let limits = world.setting.limits
        let faults = world.setting.faults
        do throws(Violation) {
            try world.run(steps: smaller.steps)
        } catch {
            let history = world.history ?? []
            let shorter = shrinker.removeUnneededEvents(history, Replay(limits: limits, canary: smaller.canary))
            return Explanation(
                failure: found, faults: faults, violation: shorter?.violation ?? error,
                history: shorter?.deliveredEvents ?? history)
        }
        preconditionFailure("seed \(smaller.seed) failed and then did not")
    }
}

/// Parameters of a run.
public struct SimulationOptions: Sendable {
    public var seed: UInt64
    /// Number of events passed to the core before all work is allowed to finish.
    public var steps: Int
    public var handlerCount = 200
    /// Number of URLs.
    public var keyCount = 100
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

/// The only source of randomness in a run, so that its seed determines everything.
struct SeededGenerator: RandomNumberGenerator {
    private var numbers: SplitMix64Generator

    init(seed: UInt64) {
        numbers = SplitMix64Generator(seed: seed)
    }

    mutating func next() -> UInt64 { numbers.next() }

    /// Returns a number from 0 to `bound` - 1.
    mutating func number(below bound: Int) -> Int {
        Int(next().multipliedFullWidth(by: UInt64(bound)).high)
    }

    /// Returns true with a probability of `chance` per mille.
    mutating func boolean(perMille chance: Int) -> Bool { number(below: 1_000) < chance }

    /// Returns a random duration with the mean `mean` in nanoseconds, 0 to twice that.
    mutating func nanoseconds(around mean: Int64) -> Int64 { Int64(number(below: Int(mean) * 2 + 1)) }
}
