package import EarshotHTTP

/// Cookie jars by root: the first segment of handler names, with the principal; see `HandlerRegistry.rootText`.
///
/// ```
/// none → used ⇄ idle
/// used → none           (the root's last handler is removed, and the jar is empty or not kept)
/// idle → none           (expired or evicted)
/// ```
///
/// A jar is *used* while a handler has its root, and *idle* afterwards. The quotas count the bytes of all jars. A principal at
/// its part loses idle jars, and then the least recently used cookies of the jar that grows.
package struct CookieJars {
    /// Timer that expires the oldest idle jar.
    struct Expiry: Equatable {
        let end: Tick
        let serial: UInt64
    }

    private var jars: [String: OwnedJar] = [:]
    private var idleJars = IdleJars()
    /// Serial of the live timer; nil for none.
    private var timer: UInt64?
    private var lastSerial: UInt64 = 0

    /// Roots with a handler and a jar, in any order.
    var usedRoots: some Collection<String> { jars.keys }

    var idleCount: Int { idleJars.count }

    /// Counted bytes of each principal. O(jars).
    var bytesByPrincipal: [Handle<Principal>: Int] {
        (Array(jars.values) + Array(idleJars.all)).reduce(into: [:]) { $0[$1.principal, default: 0] += $1.countedBytes }
    }

    /// Whether the timer with this serial is current.
    func isAwaited(_ serial: UInt64) -> Bool { timer == serial }

    /// Takes an idle jar into use: a root has its first handler.
    mutating func rootAdded(_ root: String) {
        precondition(jars[root] == nil, "the new root \(root) has a jar")
        if let jar = idleJars.take(root) { jars[root] = jar }
    }

    /// Keeps the jar of a root whose last handler is removed, unless the jar is empty or is kept for no time.
    mutating func rootRemoved(
        _ root: String, keepingMilliseconds: Int, now: Tick, quotas: inout QuotaBook
    ) -> Expiry? {
        guard let jar = jars.drop(root) else { return nil }
        guard jar.jar.count > 0, keepingMilliseconds > 0 else {
            Self.jarRemoved(jar, &quotas)
            return nil
        }
        idleJars.keepJar(jar, of: root, now: now)
        return nextExpiry(keepingMilliseconds)
    }

    /// Removes expired jars: when the timer fires, and when the time has changed.
    mutating func expire(keepingMilliseconds: Int, now: Tick, quotas: inout QuotaBook) -> Expiry? {
        timer = nil
        for jar in idleJars.expire(after: keepingMilliseconds, now: now) { Self.jarRemoved(jar, &quotas) }
        return nextExpiry(keepingMilliseconds)
    }

    /// The single timer of all idle jars, unless it is set.
    private mutating func nextExpiry(_ keptMilliseconds: Int) -> Expiry? {
        guard timer == nil, let oldest = idleJars.oldestTime else { return nil }
        lastSerial += 1
        timer = lastSerial
        return Expiry(end: oldest.advanced(byMilliseconds: keptMilliseconds), serial: lastSerial)
    }

    // MARK: Room

    /// Gives a root an empty jar if it has none.
    ///
    /// - Parameter bound: maximum bytes of all jars.
    /// - Returns: false if its principal may have no more.
    /// - Precondition: a handler has the root.
    mutating func open(
        _ root: String, of principal: Handle<Principal>, within bound: Int, quotas: inout QuotaBook
    ) -> Bool {
        guard jars[root] == nil else { return true }
        while !quotas.admits(OwnedJar.emptyBytes, of: \.cookieBytes, for: principal, within: bound) {
            guard evict(for: principal, adding: OwnedJar.emptyBytes, within: bound, &quotas) else { return false }
        }
        jars[root] = OwnedJar(principal: principal)
        recount(root, &quotas)
        return true
    }

    /// Evicts the oldest idle jar of a principal. If it has none and is within its own part, others use up the total, and the
    /// heaviest of them loses one.
    private mutating func evict(
        for principal: Handle<Principal>, adding bytes: Int, within bound: Int, _ quotas: inout QuotaBook
    ) -> Bool {
        let isWithinPart = quotas.isWithinPart(bytes, of: \.cookieBytes, for: principal, within: bound)
        for owner in [principal] + (isWithinPart ? quotas.heaviestPrincipals(\.cookieBytes) : []) {
            guard let jar = idleJars.evict(of: owner) else { continue }
            Self.jarRemoved(jar, &quotas)
            return true
        }
        return false
    }

    private static func jarRemoved(_ jar: OwnedJar, _ quotas: inout QuotaBook) {
        quotas.share(-jar.countedBytes, of: \.cookieBytes, by: jar.principal)
    }

    /// Counts the present bytes of a used jar.
    private mutating func recount(_ root: String, _ quotas: inout QuotaBook) {
        guard let jar = jars[root] else { return }
        let bytes = OwnedJar.emptyBytes + jar.jar.byteCount
        quotas.share(bytes - jar.countedBytes, of: \.cookieBytes, by: jar.principal)
        jars[root]?.countedBytes = bytes
    }

    // MARK: Cookies

    /// Adds the cookies of a root's jar to a request. A request with a `Cookie` field of its own does not take part.
    mutating func withCookies(_ request: HTTPRequest, of root: String, seconds: Int64) -> HTTPRequest {
        guard !request.fields.contains("cookie"),
            let fields = jars[root]?.jar.cookieField(for: request.url, now: seconds)
        else { return request }
        var request = request.adding(fields)
        request.jar = root
        return request
    }

    /// Stores cookies in a used jar, of a response or of the user. Without such a jar they are dropped.
    ///
    /// - Parameter bound: maximum bytes of all jars.
    mutating func store(
        _ fields: HeaderFields, from url: FetchURL, by source: CookieJar.Source = .server, of root: String,
        suffixes: PublicSuffixes, seconds: Int64, within bound: Int, quotas: inout QuotaBook
    ) {
        guard let principal = jars[root]?.principal else { return }
        jars[root]?.jar.store(fields, from: url, by: source, suffixes: suffixes, now: seconds)
        recount(root, &quotas)
        while !quotas.admits(0, of: \.cookieBytes, for: principal, within: bound) {
            if evict(for: principal, adding: 0, within: bound, &quotas) { continue }
            guard let size = jars[root]?.jar.byteCount, size > 0 else { return }
            // Half of it, so that the next cookies find room.
            jars[root]?.jar.shrink(toBytes: size / 2)
            recount(root, &quotas)
        }
    }

    /// Returns the jar of a root, used or idle; nil without one.
    package func jar(of root: String) -> CookieJar? { jars[root]?.jar ?? idleJars[root]?.jar }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        if idleJars.count > 0, timer == nil { faults.append("12: \(idleJars.count) idle jars have no timer") }
        if jars.keys.contains(where: { idleJars.contains($0) }) { faults.append("12: a jar is used and idle") }
        let isCounted = (Array(jars.values) + Array(idleJars.all)).allSatisfy {
            $0.countedBytes >= OwnedJar.emptyBytes + $0.jar.byteCount
        }
        if !isCounted { faults.append("11: the bytes of a jar are not counted") }
        return faults
    }
}
