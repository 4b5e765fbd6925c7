internal import DequeModule

/// Calls that a node has yet to make to the engine, and calls without an answer. Each membership begins without any.
package struct EngineTraffic {
    /// Want that was sent and has no answer yet.
    struct SentWant {
        /// Serial of its claim.
        let claim: UInt64
        let key: ClusterKey
        let token: FencingToken?
    }

    typealias Assertion = (flight: LocalFlight, due: MonotonicTime)

    /// Assertions of ended claims that are kept, so that a few claims are not looked through again and again.
    private static let maximumStaleAssertions = 1_024

    /// Claims that are asserted again, in the order of their times.
    var assertions = Deque<Assertion>()
    /// The same for attempts that serve other nodes only.
    var hostedAssertions = Deque<Assertion>()
    /// Claims that the next calls assert.
    var newClaims: [LocalFlight] = []
    /// Wants without an answer, in order. A later claim of a key must not take the answer to an earlier one.
    var unansweredWants = Deque<SentWant>()
    var withdrawnWants: [ClusterKey] = []
    var originRefusals: [EngineRefusal] = []
    var completions: [EngineCompletion] = []
    /// Aborts that arrived before the grants of their attempts.
    var earlyAborts: [ClusterKey: FencingToken] = [:]
    var takeState = FlightTakeState()
    /// Latest report about members and backlog.
    package var latestSurvey: EngineSurvey?
    var nextSurveyTime: MonotonicTime?

    /// Earliest time at which a call is due; nil for none. Long past while one waits.
    var deadline: MonotonicTime? {
        if !newClaims.isEmpty || !withdrawnWants.isEmpty || !originRefusals.isEmpty || !completions.isEmpty {
            return MonotonicTime(nanoseconds: .min)
        }
        let times = [assertions.first?.due, hostedAssertions.first?.due, takeState.deadline, nextSurveyTime]
        return times.compactMap(\.self).min()
    }

    /// Adds an assertion. Those of ended claims are removed before they are more than the others.
    mutating func addAssertion(
        _ assertion: Assertion, isForOthers: Bool, claims: [LocalFlight: ClusterBook.Claim]
    ) {
        guard !isForOthers else { return hostedAssertions.append(assertion) }
        assertions.append(assertion)
        guard assertions.count > 2 * claims.count + Self.maximumStaleAssertions else { return }
        assertions.removeAll { claims[$0.flight]?.nextAssertionTime != $0.due }
    }

    /// Removes and returns an assertion that is due.
    mutating func takeDueAssertion(now: MonotonicTime) -> Assertion? {
        if let first = assertions.first, first.due <= now { return assertions.removeFirst() }
        if let first = hostedAssertions.first, first.due <= now { return hostedAssertions.removeFirst() }
        return nil
    }
}

/// Decides when a node requests flights from the engine: at most one request at a time, and only if the answer may have
/// some.
struct FlightTakeState: Equatable {
    /// Whether flights may wait that this node has not requested.
    var isRequestDue = false
    /// Slots of the request without an answer; nil for none.
    private var pendingRequestSlots: Int?
    /// Whether other nodes must be woken by the next request, because this node has left flights to them.
    private var needsPeerWakeUp = false
    /// Time of the next request without an event: a paused origin opens, or a wake-up may have been lost.
    private(set) var deadline: MonotonicTime?

    /// Whether a request has no answer.
    var isRequestPending: Bool { pendingRequestSlots != nil }

    /// Slots to request now; nil for no request.
    ///
    /// - Parameter wakesOthers: whether wants or ends were sent, after which another node may start flights.
    mutating func slotsToRequest(freeSlots: Int, wakesOthers: Bool, now: MonotonicTime) -> Int? {
        if let time = deadline, time <= now {
            isRequestDue = true
            deadline = nil
        }
        // Kept while another request has no answer.
        if wakesOthers { needsPeerWakeUp = true }
        guard pendingRequestSlots == nil, isRequestDue, freeSlots > 0 || needsPeerWakeUp else { return nil }
        let slots = min(max(freeSlots, 0), EngineLimits.maximumFlightsPerCall)
        pendingRequestSlots = slots
        needsPeerWakeUp = false
        // Without free slots the request remains due.
        isRequestDue = slots == 0
        return slots
    }

    /// - Parameter pause: milliseconds until the next request without an event.
    /// - Returns: whether all slots were filled; nil if none was offered.
    mutating func takeAnswered(_ count: Int, opens: Int?, now: MonotonicTime, pause: Int) -> Bool? {
        let isFilled = pendingRequestSlots.flatMap { $0 > 0 ? count >= $0 : nil }
        if isFilled == true { isRequestDue = true }
        pendingRequestSlots = nil
        deadline = now.advanced(byMilliseconds: min(max(opens ?? pause, 1), pause))
        return isFilled
    }
}
