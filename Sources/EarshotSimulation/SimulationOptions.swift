/// Parameters of a run.
public struct SimulationOptions: Sendable {
    public var seed: UInt64
    /// Number of events passed to the core before all work is allowed to finish.
    public var steps: Int
    public var handlers = 200
    /// Number of URLs.
    public var keys = 100
    /// Faults disabled in addition to those that the seed disables.
    public var without: Set<Fault> = []
    /// Deliberate fault between core and model that must be detected.
    public var canary: Canary?

    public init(seed: UInt64, steps: Int) {
        self.seed = seed
        self.steps = steps
    }
}
