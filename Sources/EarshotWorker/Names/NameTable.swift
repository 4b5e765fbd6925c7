internal import DequeModule
internal import EarshotLoop

/// Bounded cache of name lookups, and the waiters of running ones. Pure: performs no I/O.
///
/// A lookup continues without waiters, because c-ares cannot cancel a single one. So jobs that come and go could start
/// any number. While `abandonLimit` lookups have no waiter, the last waiter of another one stays until the answer.
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
    private let abandonLimit: Int
    private var entries: [String: Entry] = [:]
    /// Names of `entries` in the order of their first answer. An updated answer does not move its name.
    private var answerOrder: Deque<String> = []
    /// Waiters by the name of a running lookup. Each job waits for one at most, so the slots bound those with waiters.
    private var waiters: [String: Set<Waiter>] = [:]
    /// Number of running lookups without waiters.
    private var abandoned = 0

    /// - Parameters:
    ///   - limit: Maximum number of cached answers. Beyond it the oldest are evicted.
    ///   - abandonLimit: Maximum number of running lookups without waiters.
    init(limit: Int = Limits.names, abandonLimit: Int = Limits.abandonedLookups) {
        self.limit = limit
        self.abandonLimit = abandonLimit
    }

    /// Number of cached answers.
    var count: Int { entries.count }

    /// Returns the cached answer for `name`, or registers `waiter` for it.
    mutating func requested(_ name: String, by waiter: Waiter, now: LoopTime) -> Decision {
        if let entry = entries[name], entry.expires > now { return .known(entry.answer) }
        let running = waiters[name]
        if running?.isEmpty == true { abandoned -= 1 }
        waiters[name, default: []].insert(waiter)
        return running == nil ? .lookUp : .wait
    }

    /// Caches the answer of the lookup of `name`.
    ///
    /// - Returns: The waiters of the lookup.
    mutating func answered(_ name: String, _ answer: NameAnswer, lifetime: Duration, now: LoopTime) -> Set<Waiter> {
        let expires = now.advanced(by: lifetime)
        if entries.updateValue(Entry(answer: answer, expires: expires), forKey: name) == nil {
            answerOrder.append(name)
        }
        while entries.count > limit, let oldest = answerOrder.popFirst() { entries[oldest] = nil }
        guard let waiting = waiters.removeValue(forKey: name) else { return [] }
        if waiting.isEmpty { abandoned -= 1 }
        return waiting
    }

    /// Whether `waiter` may leave the lookup of `name`. The last one may not while too many lookups have no waiter.
    func mayWithdraw(_ name: String, by waiter: Waiter) -> Bool {
        abandoned < abandonLimit || waiters[name] != [waiter]
    }

    /// Removes `waiter` from the lookup of `name`. The lookup continues, and its answer is cached.
    mutating func withdrawn(_ name: String, by waiter: Waiter) {
        guard waiters[name]?.remove(waiter) != nil else { return }
        // The empty set stays and marks the running lookup.
        if waiters[name]?.isEmpty == true { abandoned += 1 }
    }
}

/// Result of the lookup of a host name.
enum NameAnswer: Equatable {
    /// Numeric addresses, at least one. IPv6 addresses have no brackets.
    case addresses([String])
    /// The name does not exist.
    case unknown
    /// No name server gave an answer.
    case failed

    /// Returns the answer for a name that needs no lookup; nil for any other name. Such names are `localhost`,
    /// `invalid` and names below them: RFC 6761, sections 6.3 and 6.4.
    ///
    /// - Parameter name: Lower-case name.
    static func special(_ name: String) -> NameAnswer? {
        let labels = name.split(separator: ".", omittingEmptySubsequences: true)
        switch labels.last {
        case "localhost": return .addresses(["127.0.0.1", "::1"])
        case "invalid": return .unknown
        default: return nil
        }
    }

    /// Returns the addresses of a host and port in the form of CURLOPT_RESOLVE.
    ///
    /// For a name with a trailing dot the list contains both spellings, because libcurl looks it up without the dot.
    static func resolveEntries(host: String, port: UInt16, _ addresses: [String]) -> [String] {
        let list = addresses.map { $0.utf8.contains(UInt8(ascii: ":")) ? "[\($0)]" : $0 }.joined(separator: ",")
        let names = host.utf8.last == UInt8(ascii: ".") ? [host, String(host.dropLast())] : [host]
        return names.map { "\($0):\(port):\(list)" }
    }
}
