/// What a run is made from.
public struct SimulationOptions: Sendable {
    public var seed: UInt64
    /// Events the core is told, until everything is let run out.
    public var steps: Int
    public var handlers = 200
    /// URLs.
    public var keys = 100
    /// Faults switched off besides those the seed switches off.
    public var without: Set<Fault> = []
    /// A fault between core and model that has to be caught.
    public var canary: Canary?

    public init(seed: UInt64, steps: Int) {
        self.seed = seed
        self.steps = steps
    }
}
