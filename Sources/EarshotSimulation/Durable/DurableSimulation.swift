/// Simulations of durable requests over the lifetimes of many brokers, each determined by a seed.
public enum DurableSimulation {
    /// Runs one simulation.
    /// - Returns: Statistics of the run.
    /// - Throws: The first violated expectation, and its position.
    public static func run(
        seed: UInt64, steps: Int, canary: DurableCanary? = nil
    ) throws(Failure) -> DurableReport {
        var world = DurableWorld(seed: seed, canary: canary)
        var step = 0
        do throws(Violation) {
            while step < steps {
                try world.performRandomStep()
                step += 1
            }
            try world.finish()
        } catch {
            throw Failure(violation: error, step: step)
        }
        return world.report
    }
}

/// Statistics of a run without violations.
public struct DurableReport: Equatable, Sendable {
    /// Number of times the broker was killed.
    public var restarts = 0
    /// Number of ACCEPTED messages.
    public var acceptedRequests = 0
    /// Number of failures that RETRY made pending again.
    public var retriedFailures = 0
    /// Number of results delivered at the end.
    public var claimedResults = 0
}

/// Deliberate fault of the simulated disk. The run must fail with the number of one of its invariants.
public enum DurableCanary: String, CaseIterable, Sendable {
    /// A request is confirmed as stored but is not stored.
    case unwrittenRequest = "unwritten"
    /// A request is not deleted when it should be.
    case undeletedRequest = "unforgotten"
    /// A result is returned for another request.
    case swappedResult = "exchanged"
    /// A repeated request is deleted with its failure.
    case deletedRetry = "unkept"
    /// Some requests of users belong to the administrator of the next broker.
    case lostPrincipal = "disowned"

    /// Invariants of which it violates one first.
    public var invariants: Set<Int> {
        switch self {
        case .unwrittenRequest, .swappedResult, .deletedRetry, .lostPrincipal: [1]
        // A request that reappears is delivered again, or accepted after its removal.
        case .undeletedRequest: [1, 2]
        }
    }
}
