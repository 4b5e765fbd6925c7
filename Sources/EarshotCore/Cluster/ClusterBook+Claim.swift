internal import EarshotWire

/// Limits and record types of `ClusterBook`, the table of this node's claims. `ClusterBook.claim` makes a claim, and
/// `takeCalls` tells the engine.
extension ClusterBook {
    /// Bounds and times of the book.
    struct Limits: Equatable {
        /// Open claims for each slot of this node and each member, which may be as large. The local queue keeps the others,
        /// and their order.
        var claimsPerSlot = 4
        /// The same while the engine has too few of them to start, so that claims of full origins do not hold back others.
        var mostClaimsPerSlot = 64
        /// Open claims of this node. After a rejoin all are asserted, in calls of `mostWants`.
        var mostClaims = 16_384
        var assertionMilliseconds = EngineLimits.assertionMilliseconds
        var hostingMilliseconds = EngineLimits.hostingMilliseconds
        var questionMilliseconds = EngineLimits.questionMilliseconds
        var patienceMilliseconds = EngineLimits.patienceMilliseconds
    }

    /// Duration after which a membership counts as lasting: several heartbeats, in which a broken engine shows.
    static let lastingMilliseconds = 5_000
    /// Interval of reports about members and backlog.
    static let surveyMilliseconds = 1_000
    /// Interval of questions of a node that takes no flights of others: it is not woken for them.
    static let unwokenMilliseconds = 250
    /// Time without progress after which a node that leaves its flights to others runs them itself: the others are busy, or
    /// leave theirs, too.
    static let closingMilliseconds = 5_000

    /// Wants and refusals of origins in the calls of one pass. With the longest records they are 320 calls, and a session
    /// permits 1,024.
    static let mostWants = 4_096
    static let mostRefusals = 64
    /// Early aborts that are kept for one answer, which has at most `EngineLimits.batch` grants.
    static let mostEarlyAborts = 4_096
    /// Cancelled attempt that the engine counts.
    struct Ending {
        let key: ClusterKey
        let token: FencingToken
    }

    /// Earliest time at which `timePassed` or `takeCalls` has work; nil for none. Long past while calls wait.
    var deadline: Tick? {
        switch membership {
        case .away(let since):
            isUncoordinated ? nil : since.advanced(byMilliseconds: limits.patienceMilliseconds)
        case .member: traffic.deadline
        }
    }

    /// The limit that this node applies to an origin itself. A member leaves the cluster's limit to the engine.
    func localLimit(of limit: Int) -> Int { isUncoordinated ? max(1, limit / members.divisor) : limit }

    /// The limit that this node gives to an origin in the engine. For a lease after an absence, it leaves out the parts of
    /// nodes that are not back: they may still fetch without the engine.
    func engineLimit(of limit: Int, now: Tick) -> Int {
        guard case .member(let since, let awaySince) = membership, members.presentCount < members.divisor,
            since.milliseconds(since: awaySince) >= limits.patienceMilliseconds,
            now.milliseconds(since: since) < EngineLimits.leaseMilliseconds
        else { return limit }
        return max(1, limit * members.presentCount / members.divisor)
    }

    func flight(of key: ClusterKey) -> LocalFlight? { flights[key] }

    /// Claims in the order of their flights, so that each run is the same.
    var inOrder: [LocalFlight] { claims.keys.sorted { $0.id < $1.id } }

    /// What becomes of the attempt of a flight without local requests.
    enum Withdrawal: Equatable {
        /// It ends. If it runs, `cancelled` follows.
        case end
        /// It goes on for other nodes, unless the engine reports that none wants it.
        case host
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
        let serial: UInt64
        var want: EngineWant
        var phase: Phase
        /// Time from which a result answers this claim.
        let since: Tick
        /// Whether the engine may have a want of this node.
        var isRecorded: Bool
        /// Whether another node ran the flight at the latest assertion.
        package var isFetchedElsewhere = false
        /// Whether the attempt serves other nodes as well.
        var isHosted: Bool
        /// Maximum body size for other nodes; nil for none.
        var hostedBytes: Int?
        /// Time of the next assertion.
        var nextAssertion: Tick

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
