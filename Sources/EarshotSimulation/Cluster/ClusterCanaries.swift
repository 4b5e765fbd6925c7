/// Search for a run in which a check detects a canary.
public enum ClusterCanaries {
    /// Steps of one run. Some canaries need a situation that is rare.
    private static func steps(for canary: ClusterCanary) -> Int {
        switch canary {
        case .losesEnds, .assertsNothing, .startsWithoutGrant, .exchangesResults, .acceptsStaleTokens,
            .servesAnotherBody,
            .ignoresLimits, .answersEarlier, .losesTerminals, .keepsBodies:
            6_000
        case .dropsWithdrawals: 15_000
        case .ignoresAborts, .reapsNothing: 60_000
        }
    }

    /// Faults of the run. A canary is found sooner without windows and without the faults that have its effect.
    private static func faults(for canary: ClusterCanary) -> Set<ClusterFault> {
        switch canary {
        case .losesEnds, .assertsNothing, .startsWithoutGrant, .exchangesResults, .acceptsStaleTokens,
            .servesAnotherBody,
            .ignoresLimits, .answersEarlier, .losesTerminals, .keepsBodies, .dropsWithdrawals:
            []
        case .ignoresAborts: [.longTransfers]
        case .reapsNothing: [.cutConnection, .nodeDeath]
        }
    }

    /// Returns the failure of the first of a few seeds that has one; nil if none has.
    public static func detection(of canary: ClusterCanary) -> ClusterFailure? {
        for seed in 1...6 as ClosedRange<UInt64> {
            var options = ClusterOptions(seed: seed, steps: steps(for: canary))
            options.canary = canary
            options.nodes = 4
            options.without = Set(ClusterFault.allCases).subtracting(faults(for: canary))
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
