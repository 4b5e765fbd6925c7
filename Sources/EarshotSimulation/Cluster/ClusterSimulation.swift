/// Simulations of a whole cluster, each determined by a seed.
public enum ClusterSimulation {
    /// Runs one simulation.
    ///
    /// - Returns: statistics of the run.
    /// - Throws: the first violated invariant, its position, and the last happenings before it.
    public static func run(_ options: ClusterOptions) throws(ClusterFailure) -> ClusterReport {
        var trial = ClusterTrial(options)
        do throws(Violation) {
            try trial.run()
        } catch {
            throw ClusterFailure(
                violation: error, step: trial.step, milliseconds: trial.now, faults: trial.report.faults,
                history: history(options, until: trial.step))
        }
        return trial.report
    }

    /// Repeats a failed run with a trace of its end.
    private static func history(_ options: ClusterOptions, until step: Int) -> [String] {
        guard options.tracedSteps > 0 else { return [] }
        var options = options
        options.tracesFrom = max(0, step - options.tracedSteps)
        var trial = ClusterTrial(options)
        do throws(Violation) { try trial.run() } catch {}
        return trial.trace
    }
}

/// Statistics of a run without violations.
public struct ClusterReport: Equatable, Sendable {
    public var nodes = 0
    /// Requests of clients, and those of them that got a terminal.
    public var requests = 0
    public var answered = 0
    /// Transfers from origins.
    public var fetches = 0
    /// Bodies read from other nodes.
    public var pulls = 0
    /// Transfers during which another one of the same key ran in another node, while faults permitted that.
    public var duplicates = 0
    public var fakeSeconds = 0
    /// Numbers of faults by kind.
    public var faults: [String: Int] = [:]
}

/// Violated invariant, and the events before it.
public struct ClusterFailure: Error, Equatable, Sendable {
    public var violation: Violation
    /// Number of events before it.
    public var step: Int
    /// Fake time.
    public var milliseconds: Int
    /// Numbers of faults by kind.
    public var faults: [String: Int]
    /// The last events.
    public var history: [String]
}
