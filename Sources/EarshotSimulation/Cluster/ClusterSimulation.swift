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
        options.firstTracedStep = max(0, step - options.tracedSteps)
        var trial = ClusterTrial(options)
        do throws(Violation) { try trial.run() } catch {}
        return trial.trace
    }
}

/// Statistics of a run without violations.
public struct ClusterReport: Equatable, Sendable {
    public var nodeCount = 0
    /// Requests of clients, and those of them that got a terminal.
    public var requestCount = 0
    public var answeredRequests = 0
    /// Transfers from origins.
    public var originFetches = 0
    /// Bodies read from other nodes.
    public var pulledBodies = 0
    /// Transfers during which another one of the same key ran in another node, while faults permitted that.
    public var duplicateFetches = 0
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

/// Search for a run in which a check detects a canary.
public enum ClusterCanaries {
    /// Steps of one run. Some canaries need a situation that is rare.
    private static func steps(for canary: ClusterCanary) -> Int {
        switch canary {
        case .losesCompletions, .neverReassertsWants, .startsWithoutGrant, .swapsResults, .acceptsStaleTokens,
            .servesAnotherBody,
            .ignoresLimits, .answersWithOlderResults, .losesTerminals, .leaksBodies:
            6_000
        case .losesWithdrawals: 15_000
        case .ignoresAborts, .neverReapsDeadNodes: 60_000
        }
    }

    /// Faults of the run. A canary is found sooner without windows and without the faults that have its effect.
    private static func faults(for canary: ClusterCanary) -> Set<ClusterFault> {
        switch canary {
        case .losesCompletions, .neverReassertsWants, .startsWithoutGrant, .swapsResults, .acceptsStaleTokens,
            .servesAnotherBody,
            .ignoresLimits, .answersWithOlderResults, .losesTerminals, .leaksBodies, .losesWithdrawals:
            []
        case .ignoresAborts: [.longTransfers]
        case .neverReapsDeadNodes: [.cutConnection, .nodeDeath]
        }
    }

    /// Returns the failure of the first of a few seeds that has one; nil if none has.
    public static func detection(of canary: ClusterCanary) -> ClusterFailure? {
        for seed in 1...6 as ClosedRange<UInt64> {
            var options = ClusterOptions(seed: seed, steps: steps(for: canary))
            options.canary = canary
            options.nodeCount = 4
            options.excludedFaults = Set(ClusterFault.allCases).subtracting(faults(for: canary))
            options.tracedSteps = 0
            do throws(ClusterFailure) {
                _ = try ClusterSimulation.run(options)
            } catch {
                return error
            }
        }
        return nil
    }
}
