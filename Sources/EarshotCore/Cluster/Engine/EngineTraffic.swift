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

    typealias Assertion = (flight: LocalFlight, due: Tick)

    /// Assertions of ended claims that are kept, so that a few claims are not looked through again and again.
    private static let spareAssertions = 1_024

    /// Claims that are asserted again, in the order of their times.
    var assertions = Deque<Assertion>()
    /// The same for attempts that serve other nodes only.
    var hostedAssertions = Deque<Assertion>()
    /// Claims that the next calls assert.
    var newClaims: [LocalFlight] = []
    /// Wants without an answer, in order. A later claim of a key must not take the answer to an earlier one.
    var questions = Deque<SentWant>()
    var unwants: [ClusterKey] = []
    var refusals: [EngineRefusal] = []
    var completions: [EngineCompletion] = []
    /// Aborts that arrived before the grants of their attempts.
    var earlyAborts: [ClusterKey: FencingToken] = [:]
    var taking = TakeState()
    /// Latest report about members and backlog.
    package var survey: EngineSurvey?
    var nextSurvey: Tick?

    /// Earliest time at which a call is due; nil for none. Long past while one waits.
    var deadline: Tick? {
        if !newClaims.isEmpty || !unwants.isEmpty || !refusals.isEmpty || !completions.isEmpty {
            return Tick(nanoseconds: .min)
        }
        return [assertions.first?.due, hostedAssertions.first?.due, taking.deadline, nextSurvey].compactMap(\.self)
            .min()
    }

    /// Adds an assertion. Those of ended claims are removed before they are more than the others.
    mutating func add(
        _ assertion: Assertion, isForOthers: Bool, claims: [LocalFlight: ClusterBook.Claim]
    ) {
        guard !isForOthers else { return hostedAssertions.append(assertion) }
        assertions.append(assertion)
        guard assertions.count > 2 * claims.count + Self.spareAssertions else { return }
        assertions.removeAll { claims[$0.flight]?.nextAssertion != $0.due }
    }

    /// Removes and returns an assertion that is due.
    mutating func takeAssertion(now: Tick) -> Assertion? {
        if let first = assertions.first, first.due <= now { return assertions.removeFirst() }
        if let first = hostedAssertions.first, first.due <= now { return hostedAssertions.removeFirst() }
        return nil
    }
}

/// Decides when a node asks the engine for flights: at most one question at a time, and only if the answer may have some.
struct TakeState: Equatable {
    /// Whether flights may wait that this node has not asked for.
    var isDue = false
    /// Slots of the question without an answer; nil for none.
    private var requestedSlots: Int?
    /// Whether other nodes must be woken by the next question, because this node has left flights to them.
    private var needsWakeUp = false
    /// Time of the next question without an event: a paused origin opens, or a wake-up may have been lost.
    private(set) var deadline: Tick?

    /// Whether a question has no answer.
    var isQuerying: Bool { requestedSlots != nil }

    /// Slots to ask for now; nil for no question.
    ///
    /// - Parameter wakesOthers: whether wants or ends were sent, after which another node may start flights.
    mutating func next(freeSlots: Int, wakesOthers: Bool, now: Tick) -> Int? {
        if let time = deadline, time <= now {
            isDue = true
            deadline = nil
        }
        // Kept while another question has no answer.
        if wakesOthers { needsWakeUp = true }
        guard requestedSlots == nil, isDue, freeSlots > 0 || needsWakeUp else { return nil }
        let slots = min(max(freeSlots, 0), EngineLimits.batch)
        requestedSlots = slots
        needsWakeUp = false
        // Without free slots the question remains.
        isDue = slots == 0
        return slots
    }

    /// - Parameter pause: milliseconds until the next question without an event.
    /// - Returns: whether all slots were filled; nil if none was offered.
    mutating func answered(_ count: Int, opens: Int?, now: Tick, pause: Int) -> Bool? {
        let isFilled = requestedSlots.flatMap { $0 > 0 ? count >= $0 : nil }
        if isFilled == true { isDue = true }
        requestedSlots = nil
        deadline = now.advanced(byMilliseconds: min(max(opens ?? pause, 1), pause))
        return isFilled
    }
}
