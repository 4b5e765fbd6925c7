internal import EarshotCore

/// Parameters of one run of the simulated `World`, drawn from its seed.
struct Setting {
    /// Maximum number of schemes of users' workers.
    static let mostSchemes = 3

    var faults: Set<Fault>
    var clients: Int
    /// Number of the supervisor's workers.
    var workers: Int
    /// Number of users' workers.
    var ownWorkers = 0
    /// Number of schemes that they serve.
    var schemes = 0
    /// Maximum number of slots per worker.
    var slots: Int
    var origins = 8
    var handlers: Int
    var keys: Int
    /// Number of request IDs per handler: few, so that they collide.
    var requestIDs = 48
    /// Mean durations in nanoseconds: of a message's transit, of a client's pause, of a transfer.
    var delay: Int64
    var pause: Int64
    var latency: Int64
    /// Lifetime of a broker in nanoseconds.
    var brokerLife: Int64
    var limits = CoreLimits()
    /// Whether the run ends with a drain instead of finishing all work.
    var drains: Bool

    init(_ options: SimulationOptions, _ random: inout SeededGenerator) {
        // Drawn in a fixed order: a fault excluded by `options` changes nothing else.
        let later: Set<Fault> = [.diskFaults, .splitPasses, .principals]
        let drawn = Fault.allCases.filter { later.contains($0) || !random.perMille(300) }
        faults = Set(drawn).subtracting(options.excludedFaults)
        clients = 3 + random.below(22)
        workers = 1 + random.below(6)
        slots = 1 + random.below(12)
        handlers = options.handlers
        keys = options.keys
        let millisecond: Int64 = 1_000_000
        delay = [millisecond / 10, millisecond, 8 * millisecond][random.below(3)]
        pause = Int64(20 + random.below(200)) * millisecond
        latency = [10, 60, 400][random.below(3)] * millisecond
        brokerLife = [1_000, 5_000, 40_000][random.below(3)] * millisecond
        // Smaller than some bodies of the catalogue, which therefore always wait in the spool.
        limits.waitingBytes = 1_000
        limits.redirectHops = [1, 2, 10][random.below(3)]
        limits.graceMilliseconds = 500 + random.below(4_000)
        limits.requestsPerClient = [20, 80, 1_000][random.below(3)]
        limits.requestsPerHandler = Self.requestsPerHandler(&random)
        limits.requests = [200, 1_000, 10_000][random.below(3)]
        limits.subscriptionsPerClient = [6, 40, 1_000][random.below(3)]
        limits.dueDeliveries = [60, 300, 2_000][random.below(3)]
        limits.leastPartBytes = 1
        limits.awayClients = [1, 3, 256][random.below(3)]
        limits.outageURLs = min(limits.awayClients, CoreLimits().outageURLs)
        drains = random.perMille(200)
        limits.dueBytes = [500, 5_000, 1 << 20][random.below(3)]
        limits.removalsPerPass = [1, 4, 500][random.below(3)]
        // Departed clients are removed in one event here, because the core may choose the time of each request's end.
        limits.departuresPerPass = 1_000_000
        limits.timersPerPass = .max
        drawRules(&random)
        limits.slowStartMilliseconds = [50, 500, 5_000][random.below(3)]
        drawOwnWorkers(&random)
        // Drawn from a copy of the generator, so that the worlds of seeds named in tests stay the same.
        var own = random
        limits.waitingTerminals = [1, 5, 1_000][own.below(3)]
        if own.perMille(300) { faults.remove(.diskFaults) }
        limits.refusalsPerPass = [1, 5, 1_000][own.below(3)]
        limits.spoolRetryMilliseconds = [20, 1_000][own.below(2)]
        if own.perMille(500) { faults.remove(.splitPasses) }
        let hasPrincipals = own.perMille(400)
        limits.handOverMessages = [1, 4, 512][own.below(3)]
        limits.keptReplies = [2, 8, 256][own.below(3)]
        limits.deathsOfSuspect = 1 + own.below(2)
        limits.isolationMilliseconds = [5, 50, 200][own.below(3)]
        limits.suspicionMilliseconds = [20, 500, 60_000][own.below(3)]
        if !hasPrincipals { faults.remove(.principals) }
        limits.transfersPerUser = [0, 1, 4][own.below(3)]
        limits.dueOutcomes = [20, 200, 20_000][own.below(3)]
        limits.coolDownWaitsPerPass = [1, 1_000][own.below(2)]
        limits.endsPerPass = [1, 3, 200][own.below(3)]
    }

    private mutating func drawOwnWorkers(_ random: inout SeededGenerator) {
        let workers = 1 + random.below(4)
        let schemes = 1 + random.below(Self.mostSchemes)
        limits.poolAbsenceMilliseconds = [50, 500, 5_000][random.below(3)]
        // Not too few if another broker follows, because it is unpredictable of which schemes it has been informed.
        limits.pools = has(.brokerDeaths) ? 64 : [schemes, 64, 64][random.below(3)]
        limits.heartbeatMilliseconds = [300, 5_000][random.below(2)]
        limits.silenceMilliseconds = [300, 10_000][random.below(2)]
        guard has(.ownWorkers) else { return }
        (ownWorkers, self.schemes) = (workers, schemes)
    }

    /// Returns a limit that is rarely low enough to take effect.
    static func requestsPerHandler(_ random: inout SeededGenerator) -> Int {
        random.perMille(200) ? 1 + random.below(8) : 1_000
    }

    func has(_ fault: Fault) -> Bool { faults.contains(fault) }

    /// Draws limits for all origins, and rules and spacings for some.
    mutating func drawRules(_ random: inout SeededGenerator) {
        var rules = OriginRules()
        rules.limit = 1 + random.below(8)
        if random.perMille(100) { rules.spacingMilliseconds = 1 + random.below(20) }
        let names = (0..<origins).flatMap { ["http://o\($0).test", "o\($0).test"] } + ["*.test"]
        for name in names where random.perMille(150) {
            guard let pattern = OriginPattern(name) else { preconditionFailure("\(name) is no pattern") }
            var terms = OriginRules.Terms()
            if random.perMille(600) { terms.limit = 1 + random.below(8) }
            if random.perMille(400) { terms.spacingMilliseconds = [0, 1, 30, 300][random.below(4)] }
            rules.rules[pattern] = terms
        }
        limits.origins = rules
    }
}
