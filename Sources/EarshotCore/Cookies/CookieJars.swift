internal import EarshotHTTP

/// Cookie jars by root: the first segment of handler names, with the principal; see `HandlerRegistry.rootText`.
///
/// ```
/// none → used ⇄ idle
/// used → none           (the root's last handler is removed, and the jar is empty or not kept)
/// idle → none           (expired or evicted)
/// ```
///
/// A jar is *used* while a handler has its root, and *idle* afterwards.
struct CookieJars {
    /// Timer that expires the oldest idle jar.
    struct Expiry: Equatable {
        let end: Tick
        let serial: UInt64
    }

    private var jars: [String: CookieJar] = [:]
    private var idle = IdleJars()
    /// Serial of the live timer; nil for none.
    private var timer: UInt64?
    private var lastSerial: UInt64 = 0

    /// Roots with a handler and a jar, in any order.
    var used: some Collection<String> { jars.keys }

    var idleCount: Int { idle.count }

    /// Whether the timer with this serial is current.
    func isAwaited(_ serial: UInt64) -> Bool { timer == serial }

    /// Takes an idle jar into use: a root has its first handler.
    mutating func rootAdded(_ root: String) {
        precondition(jars[root] == nil, "the new root \(root) has a jar")
        if let jar = idle.take(root) { jars[root] = jar }
    }

    /// Keeps the jar of a root whose last handler is removed, unless the jar is empty or is kept for no time.
    mutating func rootRemoved(_ root: String, keepingMilliseconds: Int, now: Tick) -> Expiry? {
        guard let jar = jars.drop(root), jar.count > 0, keepingMilliseconds > 0 else { return nil }
        idle.keep(jar, of: root, now: now)
        return nextExpiry(keepingMilliseconds)
    }

    /// Removes expired jars: when the timer fires, and when the time has changed.
    mutating func expire(keepingMilliseconds: Int, now: Tick) -> Expiry? {
        timer = nil
        idle.expire(after: keepingMilliseconds, now: now)
        return nextExpiry(keepingMilliseconds)
    }

    /// The single timer of all idle jars, unless it is set.
    private mutating func nextExpiry(_ keptMilliseconds: Int) -> Expiry? {
        guard timer == nil, let oldest = idle.oldest else { return nil }
        lastSerial += 1
        timer = lastSerial
        return Expiry(end: oldest.advanced(byMilliseconds: keptMilliseconds), serial: lastSerial)
    }

    /// Whether a root has a jar or may have one. Evicts the oldest idle jar if that makes room.
    mutating func makeRoom(for root: String, within limit: Int) -> Bool {
        jars[root] != nil || jars.count + idle.count < limit || idle.evict()
    }

    /// Adds the cookies of a root's jar to a request. A request with a `Cookie` field of its own does not take part.
    ///
    /// - Precondition: a handler has the root.
    mutating func withCookies(_ request: HTTPRequest, of root: String, seconds: Int64) -> HTTPRequest {
        guard !request.fields.contains("cookie") else { return request }
        var request = request.adding(jars[root, default: CookieJar()].cookieField(for: request.url, now: seconds))
        request.jar = root
        return request
    }

    /// Stores the cookies of a response in the jar of its root, if that is still used.
    mutating func store(
        _ fields: HeaderFields, of request: HTTPRequest, suffixes: PublicSuffixes, seconds: Int64
    ) {
        guard let root = request.jar else { return }
        jars[root]?.store(fields, from: request.url, suffixes: suffixes, now: seconds)
    }

    /// Stores cookies of the user, as if the server of a URL had set them.
    ///
    /// - Precondition: a handler has the root.
    mutating func load(
        _ fields: HeaderFields, from url: FetchURL, of root: String, suffixes: PublicSuffixes, seconds: Int64
    ) {
        jars[root, default: CookieJar()].store(fields, from: url, by: .user, suffixes: suffixes, now: seconds)
    }

    /// Returns the jar of a root, used or idle; nil without one.
    func jar(of root: String) -> CookieJar? { jars[root] ?? idle[root] }

    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        if idle.count > 0, timer == nil { faults.append("12: \(idle.count) idle jars have no timer") }
        if jars.keys.contains(where: { idle.contains($0) }) { faults.append("12: a jar is used and idle") }
        return faults
    }
}
