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
