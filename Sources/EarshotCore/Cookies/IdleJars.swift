internal import EarshotHTTP
internal import OrderedCollections

/// Cookie jars of roots without handlers, in LRU order.
struct IdleJars {
    private struct Entry {
        let jar: OwnedJar
        let idleSince: Tick
    }

    private var entries: OrderedDictionary<String, Entry> = [:]

    var count: Int { entries.count }

    /// All jars, the least recently used first.
    var all: some Collection<OwnedJar> { entries.values.lazy.map(\.jar) }

    func contains(_ root: String) -> Bool { entries[root] != nil }

    subscript(_ root: String) -> OwnedJar? { entries[root]?.jar }

    /// Time at which the least recently used jar became idle; nil without jars.
    var oldestTime: Tick? { entries.values.first?.idleSince }

    /// Keeps the jar of a root whose last handler was removed.
    ///
    /// - Precondition: the root has no idle jar.
    mutating func keepJar(_ jar: OwnedJar, of root: String, now: Tick) {
        precondition(entries[root] == nil, "two jars of \(root)")
        entries[root] = Entry(jar: jar, idleSince: now)
    }

    /// Removes and returns the jar of a root that has a handler again. O(jars).
    mutating func take(_ root: String) -> OwnedJar? { entries.removeValue(forKey: root)?.jar }

    /// Evicts the least recently used jar of a principal. O(jars).
    mutating func evict(of principal: Handle<Principal>) -> OwnedJar? {
        guard let place = entries.values.firstIndex(where: { $0.jar.principal == principal }) else { return nil }
        return entries.remove(at: place).value.jar
    }

    /// Removes and returns jars that have been idle for at least this time.
    mutating func expire(after milliseconds: Int, now: Tick) -> [OwnedJar] {
        let isExpired: (Entry) -> Bool = { now.milliseconds(since: $0.idleSince) >= milliseconds }
        let expired = entries.values.filter(isExpired).map(\.jar)
        if !expired.isEmpty { entries.removeAll { isExpired($0.value) } }
        return expired
    }
}

/// The jar of a root, and the principal whose root it is.
struct OwnedJar {
    var jar = CookieJar()
    let principal: Handle<Principal>
    /// Bytes counted for the principal.
    var countedBytes = 0

    /// Bytes counted for a jar without cookies.
    static let emptyBytes = 512
}
