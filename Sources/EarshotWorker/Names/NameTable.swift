internal import DequeModule
internal import EarshotLoop

/// Bounded cache of name lookups and the waiters of running ones. Pure: performs no I/O.
struct NameTable<Waiter: Hashable> {
    /// The next step for a waiter.
    enum Decision: Equatable {
        /// The answer is cached.
        case known(NameAnswer)
        /// The caller must start a lookup. The waiter is the first for this name.
        case lookUp
        /// A lookup is running, and the waiter has been added to it.
        case wait
    }

    private struct Entry {
        let answer: NameAnswer
        let expires: LoopTime
    }

    private let limit: Int
    private var entries: [String: Entry] = [:]
    /// Names of `entries` in the order of their first answer. An updated answer does not move its name.
    private var order: Deque<String> = []
    private var waiters: [String: Set<Waiter>] = [:]

    /// - Parameter limit: Maximum number of cached answers. Beyond it the oldest are evicted.
    init(limit: Int = Limits.names) {
        self.limit = limit
    }

    /// Number of cached answers.
    var count: Int { entries.count }

    /// Returns the cached answer for `name`, or registers `waiter` for it.
    mutating func asked(_ name: String, by waiter: Waiter, now: LoopTime) -> Decision {
        if let entry = entries[name], entry.expires > now { return .known(entry.answer) }
        let isFirst = waiters[name] == nil
        waiters[name, default: []].insert(waiter)
        return isFirst ? .lookUp : .wait
    }

    /// Caches the answer of the lookup of `name`.
    ///
    /// - Returns: The waiters of the lookup.
    mutating func answered(_ name: String, _ answer: NameAnswer, lifetime: Duration, now: LoopTime) -> Set<Waiter> {
        let expires = now.advanced(by: lifetime)
        if entries.updateValue(Entry(answer: answer, expires: expires), forKey: name) == nil { order.append(name) }
        while entries.count > limit, let oldest = order.popFirst() { entries[oldest] = nil }
        return waiters.removeValue(forKey: name) ?? []
    }

    /// Removes `waiter` from the lookup of `name`. The lookup continues, and its answer is cached.
    mutating func withdrawn(_ name: String, by waiter: Waiter) {
        // The empty set stays and marks the running lookup.
        waiters[name]?.remove(waiter)
    }
}
