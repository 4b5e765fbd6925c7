internal import EarshotCore

/// Parameters of one run of the simulated `World`, drawn from its seed.
struct Setting {
    /// Maximum number of schemes of users' workers.
    static let maximumUserSchemes = 3

    var faults: Set<Fault>
    var clientCount: Int
    /// Number of the supervisor's workers.
    var workerCount: Int
    /// Number of users' workers.
    var userWorkerCount = 0
    /// Number of schemes that they serve.
    var userSchemeCount = 0
    /// Maximum number of slots per worker.
    var maximumSlotsPerWorker: Int
    var originCount = 8
    var handlerCount: Int
    var keyCount: Int
    /// Number of request IDs per handler: few, so that they collide.
    var requestIDsPerHandler = 48
    /// Mean durations in nanoseconds: of a message's transit, of a client's pause, of a transfer.
    var meanTransitNanoseconds: Int64
    var meanPauseNanoseconds: Int64
    var meanTransferNanoseconds: Int64
    /// Lifetime of a broker in nanoseconds.
    var meanBrokerLifeNanoseconds: Int64
    var limits = CoreLimits()
    /// Whether the run ends with a drain instead of finishing all work.
    var endsWithDrain: Bool

    init(_ options: SimulationOptions, _ random: inout SeededGenerator) {
        // Drawn in a fixed order: a fault excluded by `options` changes nothing else.
        let later: Set<Fault> = [.diskFaults, .splitPasses, .multiplePrincipals]
        let drawn = Fault.allCases.filter { later.contains($0) || !random.boolean(perMille: 300) }
        faults = Set(drawn).subtracting(options.excludedFaults)
        clientCount = 3 + random.number(below: 22)
        workerCount = 1 + random.number(below: 6)
        maximumSlotsPerWorker = 1 + random.number(below: 12)
        handlerCount = options.handlerCount
        keyCount = options.keyCount
        let millisecond: Int64 = 1_000_000
        meanTransitNanoseconds = [millisecond / 10, millisecond, 8 * millisecond][random.number(below: 3)]
        meanPauseNanoseconds = Int64(20 + random.number(below: 200)) * millisecond
        meanTransferNanoseconds = [10, 60, 400][random.number(below: 3)] * millisecond
        meanBrokerLifeNanoseconds = [1_000, 5_000, 40_000][random.number(below: 3)] * millisecond
        // Smaller than some bodies of the catalogue, which therefore always wait in the spool.
        limits.maximumWaitingBodyBytes = 1_000
        limits.maximumRedirectHops = [1, 2, 10][random.number(below: 3)]
        limits.subscriberGraceMilliseconds = 500 + random.number(below: 4_000)
        limits.maximumOpenRequestsPerClient = [20, 80, 1_000][random.number(below: 3)]
        limits.maximumOpenRequestsPerHandler = Self.drawRequestsPerHandler(&random)
        limits.maximumOpenRequests = [200, 1_000, 10_000][random.number(below: 3)]
        limits.maximumSubscriptionsPerClient = [6, 40, 1_000][random.number(below: 3)]
        limits.maximumDueTerminalsPerClient = [60, 300, 2_000][random.number(below: 3)]
        limits.minimumKeptPartBytes = 1
        limits.maximumDisconnectedSessions = [1, 3, 256][random.number(below: 3)]
        limits.coolDownURLThreshold = min(limits.maximumDisconnectedSessions, CoreLimits().coolDownURLThreshold)
        endsWithDrain = random.boolean(perMille: 200)
        limits.maximumDueHeaderBytesPerClient = [500, 5_000, 1 << 20][random.number(below: 3)]
        limits.maximumRequestRemovalsPerPass = [1, 4, 500][random.number(below: 3)]
        // Departed clients are removed in one event here, because the core may choose the time of each request's end.
        limits.maximumSessionCleanupsPerPass = 1_000_000
        limits.maximumTimersPerPass = .max
        drawOriginRules(&random)
        limits.slowStartPeriodMilliseconds = [50, 500, 5_000][random.number(below: 3)]
        drawUserWorkers(&random)
        // Drawn from a copy of the generator, so that the worlds of seeds named in tests stay the same.
        var own = random
        limits.maximumWaitingTerminals = [1, 5, 1_000][own.number(below: 3)]
        if own.boolean(perMille: 300) { faults.remove(.diskFaults) }
        limits.maximumCoolDownRefusalsPerPass = [1, 5, 1_000][own.number(below: 3)]
        limits.spoolRetryMilliseconds = [20, 1_000][own.number(below: 2)]
        if own.boolean(perMille: 500) { faults.remove(.splitPasses) }
        let hasPrincipals = own.boolean(perMille: 400)
        limits.maximumCancellationDeferralMessages = [1, 4, 512][own.number(below: 3)]
        limits.maximumRepliesPerLeasedSession = [2, 8, 256][own.number(below: 3)]
        limits.workerDeathsBeforeSuspicion = 1 + own.number(below: 2)
        limits.baseIsolationMilliseconds = [5, 50, 200][own.number(below: 3)]
        limits.maximumSuspectWaitMilliseconds = [20, 500, 60_000][own.number(below: 3)]
        if !hasPrincipals { faults.remove(.multiplePrincipals) }
        limits.maximumTransfersPerUser = [0, 1, 4][own.number(below: 3)]
        limits.maximumDueOutcomesPerClient = [20, 200, 20_000][own.number(below: 3)]
        limits.maximumCoolDownWaitChecksPerPass = [1, 1_000][own.number(below: 2)]
        limits.maximumFlightRequestEndsPerPass = [1, 3, 200][own.number(below: 3)]
    }

    private mutating func drawUserWorkers(_ random: inout SeededGenerator) {
        let workers = 1 + random.number(below: 4)
        let schemes = 1 + random.number(below: Self.maximumUserSchemes)
        limits.emptyPoolGraceMilliseconds = [50, 500, 5_000][random.number(below: 3)]
        // Not too few if another broker follows, because it is unpredictable of which schemes it has been informed.
        limits.maximumWorkerPools = isEnabled(.brokerDeaths) ? 64 : [schemes, 64, 64][random.number(below: 3)]
        limits.silenceBeforePingMilliseconds = [300, 5_000][random.number(below: 2)]
        limits.pingTimeoutMilliseconds = [300, 10_000][random.number(below: 2)]
        guard isEnabled(.userWorkers) else { return }
        (userWorkerCount, self.userSchemeCount) = (workers, schemes)
    }

    /// Returns a limit that is rarely low enough to take effect.
    static func drawRequestsPerHandler(_ random: inout SeededGenerator) -> Int {
        random.boolean(perMille: 200) ? 1 + random.number(below: 8) : 1_000
    }

    func isEnabled(_ fault: Fault) -> Bool { faults.contains(fault) }

    /// Draws limits for all origins, and rules and spacings for some.
    mutating func drawOriginRules(_ random: inout SeededGenerator) {
        var rules = OriginRules()
        rules.defaultMaximumTransfers = 1 + random.number(below: 8)
        if random.boolean(perMille: 100) { rules.defaultSpacingMilliseconds = 1 + random.number(below: 20) }
        let names = (0..<originCount).flatMap { ["http://o\($0).test", "o\($0).test"] } + ["*.test"]
        for name in names where random.boolean(perMille: 150) {
            guard let pattern = OriginPattern(name) else { preconditionFailure("\(name) is no pattern") }
            var terms = OriginRules.RuleTerms()
            if random.boolean(perMille: 600) { terms.maximumTransfers = 1 + random.number(below: 8) }
            if random.boolean(perMille: 400) { terms.spacingMilliseconds = [0, 1, 30, 300][random.number(below: 4)] }
            rules.rules[pattern] = terms
        }
        limits.originRules = rules
    }
}
