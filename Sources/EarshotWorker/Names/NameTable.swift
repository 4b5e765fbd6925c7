internal import DequeModule
internal import EarshotLoop

/// Which names are known, for how long, and who waits for which. Bounded; decides without I/O.
struct NameTable<Waiter: Hashable> {
    /// What to do for who asked.
    enum Decision: Equatable {
        /// The answer is here.
        case known(NameAnswer)
        /// Start a lookup: the first who asked for this name waits now.
        case lookUp
        /// A lookup runs; one more waits for it.
        case wait
    }

    private struct Entry {
        let answer: NameAnswer
        let expires: LoopTime
    }

    private let limit: Int
    private var entries: [String: Entry] = [:]
    /// The names of `entries`, oldest answer first; a name that was answered again stands at its first place.
    private var order: Deque<String> = []
    private var waiters: [String: Set<Waiter>] = [:]

    /// - Parameter limit: how many answers are kept; beyond it the oldest go.
    init(limit: Int = Limits.names) {
        self.limit = limit
    }

    /// How many answers are kept.
    var count: Int { entries.count }

    /// `waiter` wants to know `name`.
    mutating func asked(_ name: String, by waiter: Waiter, now: LoopTime) -> Decision {
        if let entry = entries[name], entry.expires > now { return .known(entry.answer) }
        let isFirst = waiters[name] == nil
        waiters[name, default: []].insert(waiter)
        return isFirst ? .lookUp : .wait
    }

    /// The lookup of `name` ended.
    ///
    /// - Returns: who waited for it.
    mutating func answered(_ name: String, _ answer: NameAnswer, lifetime: Duration, now: LoopTime) -> Set<Waiter> {
        let expires = now.advanced(by: lifetime)
        if entries.updateValue(Entry(answer: answer, expires: expires), forKey: name) == nil { order.append(name) }
        while entries.count > limit, let oldest = order.popFirst() { entries[oldest] = nil }
        return waiters.removeValue(forKey: name) ?? []
    }

    /// `waiter` no longer wants to know `name`. The lookup goes on: its answer is kept for others.
    mutating func withdrawn(_ name: String, by waiter: Waiter) {
        // The key stays, empty: it says that a lookup runs.
        waiters[name]?.remove(waiter)
    }
}
