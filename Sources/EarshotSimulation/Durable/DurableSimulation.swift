/// Runs of durable requests over the lives of many brokers, each run from one seed.
public enum DurableSimulation {
    /// Runs once.
    /// - Returns: what happened in it.
    /// - Throws: the first promise that was not kept, and where.
    public static func run(
        seed: UInt64, steps: Int, canary: DurableCanary? = nil
    ) throws(Failure) -> DurableReport {
        var world = DurableWorld(seed: seed, canary: canary)
        var step = 0
        do throws(Violation) {
            while step < steps {
                try world.step()
                step += 1
            }
            try world.finish()
        } catch {
            throw Failure(violation: error, step: step)
        }
        return world.report
    }
}

/// What happened in a run in which each promise was kept.
public struct DurableReport: Equatable, Sendable {
    /// Kills of the broker.
    public var restarts = 0
    /// Times that ACCEPTED was said.
    public var accepted = 0
    /// Results that waited at the end.
    public var claimed = 0
}
