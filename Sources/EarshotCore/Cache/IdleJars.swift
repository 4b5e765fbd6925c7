internal import EarshotHTTP
internal import OrderedCollections

/// Cookie jars of roots without handlers, least recently used first.
struct IdleJars {
    private struct Entry {
        let jar: CookieJar
        let since: Tick
    }

    private var entries: OrderedDictionary<String, Entry> = [:]

    var count: Int { entries.count }

    /// When the jar that has been idle for longest became idle; nil without jars.
    var oldest: Tick? { entries.values.first?.since }

    /// Keeps a jar without a handler; the root has none here.
    mutating func keep(_ jar: CookieJar, of root: String, now: Tick) {
        precondition(entries[root] == nil, "two jars of \(root)")
        entries[root] = Entry(jar: jar, since: now)
    }

    /// Removes the jar of a root that has a handler again. O(jars).
    mutating func take(_ root: String) -> CookieJar? { entries.removeValue(forKey: root)?.jar }

    /// Evicts the least recently used jar.
    /// - Returns: whether there was one.
    mutating func evict() -> Bool {
        guard !entries.isEmpty else { return false }
        entries.removeFirst()
        return true
    }

    /// Drops jars that have been idle for so long.
    mutating func expire(after milliseconds: Int, now: Tick) {
        entries.removeAll { now.milliseconds(since: $0.value.since) >= milliseconds }
    }
}
