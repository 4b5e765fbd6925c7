internal import EarshotHTTP
internal import OrderedCollections

/// Cookie jars of roots without handlers, in LRU order.
struct IdleJars {
    private struct Entry {
        let jar: CookieJar
        let since: Tick
    }

    private var entries: OrderedDictionary<String, Entry> = [:]

    var count: Int { entries.count }

    func contains(_ root: String) -> Bool { entries[root] != nil }

    subscript(_ root: String) -> CookieJar? { entries[root]?.jar }

    /// Time at which the least recently used jar became idle; nil without jars.
    var oldest: Tick? { entries.values.first?.since }

    /// Keeps the jar of a root whose last handler was removed.
    ///
    /// - Precondition: the root has no idle jar.
    mutating func keep(_ jar: CookieJar, of root: String, now: Tick) {
        precondition(entries[root] == nil, "two jars of \(root)")
        entries[root] = Entry(jar: jar, since: now)
    }

    /// Removes and returns the jar of a root that has a handler again. O(jars).
    mutating func take(_ root: String) -> CookieJar? { entries.removeValue(forKey: root)?.jar }

    /// Evicts the least recently used jar.
    ///
    /// - Returns: whether there was one.
    mutating func evict() -> Bool {
        guard !entries.isEmpty else { return false }
        entries.removeFirst()
        return true
    }

    /// Removes jars that have been idle for at least this time.
    mutating func expire(after milliseconds: Int, now: Tick) {
        entries.removeAll { now.milliseconds(since: $0.value.since) >= milliseconds }
    }
}
