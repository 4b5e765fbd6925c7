package import EarshotHTTP
internal import OrderedCollections

/// Cookie jars by root: the first segment of handler names, with the principal; see `HandlerRegistry.rootText`.
///
/// ```
/// none → used ⇄ idle
/// used → none           (the root's last handler is removed, and the jar is empty or not kept)
/// idle → none           (expired or evicted)
/// ```
///
/// A jar is *used* while a handler has its root, and *idle* afterwards. The quotas count the bytes of all jars. A
/// principal at its part loses idle jars, and then the least recently used cookies of the jar that grows.
package struct CookieJars {
    /// Timer that expires the oldest idle jar.
    struct Expiry: Equatable {
        let expiryTime: MonotonicTime
        let timerSerial: UInt64
    }

    private var jars: [String: OwnedJar] = [:]
    private var idleJars = IdleJars()
    /// Serial of the live timer; nil for none.
    private var currentTimerSerial: UInt64?
    private var lastTimerSerial: UInt64 = 0

    /// Roots with a handler and a jar, in any order.
    var activeRoots: some Collection<String> { jars.keys }

    var idleCount: Int { idleJars.count }

    /// Counted bytes of each principal. O(jars).
    var bytesByPrincipal: [Handle<Principal>: Int] {
        (Array(jars.values) + Array(idleJars.jarsByIdleTime)).reduce(into: [:]) {
            $0[$1.principal, default: 0] += $1.countedBytes
        }
    }

    /// Whether the timer with this serial is current.
    func isCurrentTimer(_ serial: UInt64) -> Bool { currentTimerSerial == serial }

    /// Moves an idle jar to the used ones when its root has its first handler.
    mutating func activateJar(of root: String) {
        precondition(jars[root] == nil, "the new root \(root) has a jar")
        if let jar = idleJars.removeJar(of: root) { jars[root] = jar }
    }

    /// Keeps the jar of a root whose last handler is removed, unless the jar is empty or is kept for no time.
    mutating func rootRemoved(
        _ root: String, keepingMilliseconds: Int, now: MonotonicTime, quotas: inout QuotaBook
    ) -> Expiry? {
        guard let jar = jars.removeUnlessEmpty(forKey: root) else { return nil }
        guard jar.jar.count > 0, keepingMilliseconds > 0 else {
            Self.releaseJarQuota(jar, &quotas)
            return nil
        }
        idleJars.insertJar(jar, of: root, now: now)
        return scheduleExpiry(keepingMilliseconds)
    }

    /// Removes expired jars: when the timer fires, and when the time has changed.
    mutating func expire(keepingMilliseconds: Int, now: MonotonicTime, quotas: inout QuotaBook) -> Expiry? {
        currentTimerSerial = nil
        for jar in idleJars.expire(after: keepingMilliseconds, now: now) { Self.releaseJarQuota(jar, &quotas) }
        return scheduleExpiry(keepingMilliseconds)
    }

    /// The single timer of all idle jars, unless it is set.
    private mutating func scheduleExpiry(_ keptMilliseconds: Int) -> Expiry? {
        guard currentTimerSerial == nil, let oldest = idleJars.oldestTime else { return nil }
        lastTimerSerial += 1
        currentTimerSerial = lastTimerSerial
        return Expiry(expiryTime: oldest.advanced(byMilliseconds: keptMilliseconds), timerSerial: lastTimerSerial)
    }

    // MARK: Room

    /// Adds an empty jar to a root that has none.
    ///
    /// - Parameter bound: maximum bytes of all jars.
    /// - Returns: false if its principal may have no more.
    /// - Precondition: a handler has the root.
    mutating func openJar(
        _ root: String, of principal: Handle<Principal>, within bound: Int, quotas: inout QuotaBook
    ) -> Bool {
        guard jars[root] == nil else { return true }
        while !quotas.admitsSharedAmount(OwnedJar.emptyJarBytes, of: \.cookieBytes, for: principal, within: bound) {
            guard evictJar(for: principal, adding: OwnedJar.emptyJarBytes, within: bound, &quotas) else { return false }
        }
        jars[root] = OwnedJar(principal: principal)
        recountJar(of: root, &quotas)
        return true
    }

    /// Evicts the oldest idle jar of a principal. If it has none and is within its own part, others use up the total.
    /// Then evicts an idle jar of the heaviest user that has one.
    private mutating func evictJar(
        for principal: Handle<Principal>, adding bytes: Int, within bound: Int, _ quotas: inout QuotaBook
    ) -> Bool {
        let isWithinPart = quotas.leavesOthersTheirParts(bytes, of: \.cookieBytes, for: principal, within: bound)
        for owner in [principal] + (isWithinPart ? quotas.principalsByDescendingUse(\.cookieBytes) : []) {
            guard let jar = idleJars.evictOldestJar(of: owner) else { continue }
            Self.releaseJarQuota(jar, &quotas)
            return true
        }
        return false
    }

    private static func releaseJarQuota(_ jar: OwnedJar, _ quotas: inout QuotaBook) {
        quotas.addSharedAmount(-jar.countedBytes, of: \.cookieBytes, by: jar.principal)
    }

    /// Counts the present bytes of a used jar.
    private mutating func recountJar(of root: String, _ quotas: inout QuotaBook) {
        guard let jar = jars[root] else { return }
        let bytes = OwnedJar.emptyJarBytes + jar.jar.byteCount
        quotas.addSharedAmount(bytes - jar.countedBytes, of: \.cookieBytes, by: jar.principal)
        jars[root]?.countedBytes = bytes
    }

    // MARK: Cookies

    /// Adds the cookies of a root's jar to a request. A request with a `Cookie` field of its own stays as it is.
    mutating func withCookies(_ request: HTTPRequest, of root: String, seconds: Int64) -> HTTPRequest {
        guard !request.fields.contains("cookie"),
            let fields = jars[root]?.jar.cookieField(for: request.url, now: seconds)
        else { return request }
        var request = request.addingFields(fields)
        request.cookieJarOwner = root
        return request
    }

    /// Stores cookies in a used jar, of a response or of the user. Without such a jar they are dropped.
    ///
    /// - Parameter bound: maximum bytes of all jars.
    mutating func storeCookies(
        _ fields: HeaderFields, from url: FetchURL, by source: CookieJar.Source = .server, of root: String,
        suffixes: PublicSuffixes, seconds: Int64, within bound: Int, quotas: inout QuotaBook
    ) {
        guard let principal = jars[root]?.principal else { return }
        jars[root]?.jar.storeCookies(of: fields, from: url, by: source, suffixes: suffixes, now: seconds)
        recountJar(of: root, &quotas)
        while !quotas.admitsSharedAmount(0, of: \.cookieBytes, for: principal, within: bound) {
            if evictJar(for: principal, adding: 0, within: bound, &quotas) { continue }
            guard let size = jars[root]?.jar.byteCount, size > 0 else { return }
            // Half of it, so that the next cookies find room.
            jars[root]?.jar.shrink(toBytes: size / 2)
            recountJar(of: root, &quotas)
        }
    }

    /// Returns the jar of a root, used or idle; nil without one.
    package func jar(of root: String) -> CookieJar? { jars[root]?.jar ?? idleJars[root]?.jar }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        if idleJars.count > 0, currentTimerSerial == nil {
            faults.append("12: \(idleJars.count) idle jars have no timer")
        }
        if jars.keys.contains(where: { idleJars.contains($0) }) { faults.append("12: a jar is used and idle") }
        let isCounted = (Array(jars.values) + Array(idleJars.jarsByIdleTime)).allSatisfy {
            $0.countedBytes >= OwnedJar.emptyJarBytes + $0.jar.byteCount
        }
        if !isCounted { faults.append("11: the bytes of a jar are not counted") }
        return faults
    }
}

/// Cookie jars of roots without handlers, in LRU order.
struct IdleJars {
    private struct Entry {
        let jar: OwnedJar
        let idleSince: MonotonicTime
    }

    private var entries: OrderedDictionary<String, Entry> = [:]

    var count: Int { entries.count }

    /// All jars, the least recently used first.
    var jarsByIdleTime: some Collection<OwnedJar> { entries.values.lazy.map(\.jar) }

    func contains(_ root: String) -> Bool { entries[root] != nil }

    subscript(_ root: String) -> OwnedJar? { entries[root]?.jar }

    /// Time at which the least recently used jar became idle; nil without jars.
    var oldestTime: MonotonicTime? { entries.values.first?.idleSince }

    /// Keeps the jar of a root whose last handler was removed.
    ///
    /// - Precondition: the root has no idle jar.
    mutating func insertJar(_ jar: OwnedJar, of root: String, now: MonotonicTime) {
        precondition(entries[root] == nil, "two jars of \(root)")
        entries[root] = Entry(jar: jar, idleSince: now)
    }

    /// Removes and returns the jar of a root that has a handler again. O(jars).
    mutating func removeJar(of root: String) -> OwnedJar? { entries.removeValue(forKey: root)?.jar }

    /// Evicts the least recently used jar of a principal. O(jars).
    mutating func evictOldestJar(of principal: Handle<Principal>) -> OwnedJar? {
        guard let place = entries.values.firstIndex(where: { $0.jar.principal == principal }) else { return nil }
        return entries.remove(at: place).value.jar
    }

    /// Removes and returns jars that have been idle for at least this time.
    mutating func expire(after milliseconds: Int, now: MonotonicTime) -> [OwnedJar] {
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
    static let emptyJarBytes = 512
}
