internal import EarshotWire

/// Limits and record types of `ClusterBook`, the table of this node's claims. `ClusterBook.addClaim` makes a claim, and
/// `takeEngineCalls` reports it to the engine.
extension ClusterBook {
    /// Bounds and times of the book.
    struct Limits: Equatable {
        /// Open claims for each slot of this node and each member, which may be as large. The local queue keeps the
        /// others, and their order.
        var initialClaimsPerSlot = 4
        /// The same while the engine has too few of them to start, so that claims of full origins do not hold back
        /// others.
        var maximumClaimsPerSlot = 64
        /// Open claims of this node. After a rejoin all are asserted, in calls of `maximumWantsPerPass`.
        var maximumOpenClaims = 16_384
        var assertionIntervalMilliseconds = EngineLimits.assertionIntervalMilliseconds
        var hostedAssertionMilliseconds = EngineLimits.hostedAssertionMilliseconds
        var pollIntervalMilliseconds = EngineLimits.pollIntervalMilliseconds
        var engineLossToleranceMilliseconds = EngineLimits.engineLossToleranceMilliseconds
    }

    /// Duration after which a membership counts as lasting: several heartbeats, in which a broken engine shows.
    static let stableMembershipMilliseconds = 5_000
    /// Interval of reports about members and backlog.
    static let surveyIntervalMilliseconds = 1_000
    /// Interval of requests for flights by a node that takes no flights of others: it is not woken for them.
    static let unwokenPollMilliseconds = 250
    /// Time without progress after which a node that leaves its flights to others runs them itself: the others are
    /// busy, or leave theirs, too.
    static let handOverTimeoutMilliseconds = 5_000

    /// Wants and refusals of origins in the calls of one pass. With the longest records they are 320 calls, and a
    /// session permits 1,024.
    static let maximumWantsPerPass = 4_096
    static let maximumRefusalsPerPass = 64
    /// Early aborts that are kept for one answer, which has at most `EngineLimits.maximumFlightsPerCall` grants.
    static let maximumEarlyAborts = 4_096
    /// Cancelled attempt that the engine counts.
    struct CancelledAttempt {
        let key: ClusterKey
        let token: FencingToken
    }

    /// Earliest time at which `timePassed` or `takeEngineCalls` has work; nil for none. Long past while calls wait.
    var deadline: MonotonicTime? {
        switch membership {
        case .away(let since):
            isUncoordinated ? nil : since.advanced(byMilliseconds: limits.engineLossToleranceMilliseconds)
        case .member: engineTraffic.deadline
        }
    }

    func flight(of key: ClusterKey) -> LocalFlight? { flightsByKey[key] }

    /// Claims in the order of their flights, so that each run is the same.
    var flightsInOrder: [LocalFlight] { claims.keys.sorted { $0.id < $1.id } }

    /// Effect of a withdrawal on the attempt of a flight without local requests.
    enum WithdrawalEffect: Equatable {
        /// It ends. If it runs, `cancelled` follows.
        case endAttempt
        /// It goes on for other nodes, unless the engine reports that none wants it.
        case continueHosting
    }

    /// Phase of a claim.
    enum Phase: Equatable {
        /// The engine does not know it, because this node is not a member.
        case waiting
        /// The engine knows it, and this node asserts it again and again.
        case wanted
        /// This node runs it, and has the flight.
        case running(FencingToken)
        /// This node runs it, and the engine has not confirmed it. The token is random.
        case uncoordinated(FencingToken)
        /// This node runs it for its own clients. Another attempt has the flight.
        case overtaken
    }

    package struct Claim {
        /// Distinguishes it from other claims, also of the same flight.
        /// Answers to another serial are ignored.
        var serial: UInt64
        var want: EngineWant
        var phase: Phase
        /// Time from which a result answers this claim.
        var earliestResultTime: MonotonicTime
        /// Whether that is before the arrival of its requests, which had waited for this broker.
        var hasAge = false
        /// Whether the engine may have a want of this node.
        var isKnownToEngine: Bool
        /// Whether another node ran the flight at the latest assertion.
        package var isFetchedElsewhere = false
        /// Whether the attempt serves other nodes as well.
        var isHosted: Bool
        /// Maximum body size for other nodes; nil for none.
        var maximumHostedBytes: Int?
        /// Time of the next assertion.
        var nextAssertionTime: MonotonicTime

        /// Whether the claim is part of the window.
        var isOpen: Bool { phase == .waiting || phase == .wanted }

        /// Token of an attempt that may have the flight.
        var token: FencingToken? {
            switch phase {
            case .running(let token), .uncoordinated(let token): token
            case .waiting, .wanted, .overtaken: nil
            }
        }
    }

    /// Whether the diagram has this transition.
    static func isLegal(from: Phase?, to: Phase?) -> Bool {
        switch (from, to) {
        case (nil, .waiting), (nil, .uncoordinated), (nil, .running): true
        case (.waiting, .wanted), (.wanted, .waiting), (.wanted, .running): true
        case (.uncoordinated, .running), (.uncoordinated, .overtaken), (.running, .overtaken): true
        // The engine lost an attempt, or this node took a flight that it was running for itself.
        case (.overtaken, .running), (.running, .running): true
        case (.some, nil): true
        case (nil, _), (.waiting, _), (.wanted, _), (.uncoordinated, _), (.running, _), (.overtaken, _): false
        }
    }
}

/// Checks of the book's invariants, for tests and simulations. O(claims).
extension ClusterBook {
    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let open = claims.values.count { $0.isOpen }
        if open != openClaimCount { faults.append("11: \(open) claims are open, not \(openClaimCount)") }
        if flightsByKey.count != claims.count {
            faults.append("3: \(flightsByKey.count) keys have \(claims.count) claims")
        }
        for (flight, claim) in claims {
            if flightsByKey[claim.want.key] != flight { faults.append("3: two flights have the key \(claim.want.key)") }
            switch claim.phase {
            case .waiting: if isMember || isUncoordinated { faults.append("1: \(flight) waits for no event") }
            case .wanted: if !isMember { faults.append("1: \(flight) is wanted without a membership") }
            case .running, .uncoordinated, .overtaken: break
            }
            if claim.isHosted, claim.want.lane != .shared || claim.token == nil {
                faults.append("4: \(flight) is hosted as \(claim.phase)")
            }
        }
        if !isMember,
            !engineTraffic.withdrawnWants.isEmpty || !engineTraffic.completions.isEmpty
                || !engineTraffic.newClaims.isEmpty || !endingAttempts.isEmpty
        {
            faults.append("11: calls wait without a membership")
        }
        if isMember, isUncoordinated { faults.append("9: a member fetches without coordination") }
        return faults
    }
}
