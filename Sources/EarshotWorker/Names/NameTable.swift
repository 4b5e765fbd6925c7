internal import DequeModule
internal import EarshotLoop

/// Bounded cache of name lookups, and the waiters of running and queued ones. Pure: performs no I/O.
///
/// A lookup continues without waiters, because c-ares cannot cancel a single one. So jobs that come and go could start
/// any number. Beyond `lookupLimit` a name waits in a queue, which it leaves with its last waiter.
struct NameTable<Waiter: Hashable> {
    /// The next step for a waiter.
    enum Decision: Equatable {
        /// The answer is cached.
        case known(NameAnswer)
        /// The caller must start a lookup. The waiter is the first for this name.
        case lookUp
        /// A lookup is running or queued, and the waiter has been added to it.
        case wait
    }

    private struct Entry {
        let answer: NameAnswer
        let expires: LoopTime
    }

    private let limit: Int
    private let lookupLimit: Int
    private var entries: [String: Entry] = [:]
    /// Names of `entries` in the order of their first answer. An updated answer does not move its name.
    private var order: Deque<String> = []
    /// Waiters by the name of a running or queued lookup.
    private var waiters: [String: Set<Waiter>] = [:]
    /// Names whose lookup waits for the end of another one. Each has a waiter, so the jobs bound them.
    private var queue: Deque<String> = []

    /// - Parameters:
    ///   - limit: Maximum number of cached answers. Beyond it the oldest are evicted.
    ///   - lookupLimit: Maximum number of running lookups.
    init(limit: Int = Limits.names, lookupLimit: Int = Limits.lookups) {
        self.limit = limit
        self.lookupLimit = lookupLimit
    }

    private var running: Int { waiters.count - queue.count }

    /// Number of cached answers.
    var count: Int { entries.count }

    /// Returns the cached answer for `name`, or registers `waiter` for it.
    mutating func asked(_ name: String, by waiter: Waiter, now: LoopTime) -> Decision {
        if let entry = entries[name], entry.expires > now { return .known(entry.answer) }
        let startsLookup = waiters[name] == nil && running < lookupLimit
        if waiters[name] == nil, !startsLookup { queue.append(name) }
        waiters[name, default: []].insert(waiter)
        return startsLookup ? .lookUp : .wait
    }

    /// Returns the next name to look up; nil if none is queued or too many lookups run.
    mutating func nextLookup() -> String? { running < lookupLimit ? queue.popFirst() : nil }

    /// Caches the answer of the lookup of `name`.
    ///
    /// - Returns: The waiters of the lookup.
    mutating func answered(_ name: String, _ answer: NameAnswer, lifetime: Duration, now: LoopTime) -> Set<Waiter> {
        let expires = now.advanced(by: lifetime)
        if entries.updateValue(Entry(answer: answer, expires: expires), forKey: name) == nil { order.append(name) }
        while entries.count > limit, let oldest = order.popFirst() { entries[oldest] = nil }
        return waiters.removeValue(forKey: name) ?? []
    }

    /// Removes `waiter` from the lookup of `name`. A running lookup continues, and its answer is cached.
    mutating func withdrawn(_ name: String, by waiter: Waiter) {
        // The empty set stays and marks the running lookup.
        waiters[name]?.remove(waiter)
        guard waiters[name]?.isEmpty == true, let place = queue.firstIndex(of: name) else { return }
        queue.remove(at: place)
        waiters[name] = nil
    }
}
