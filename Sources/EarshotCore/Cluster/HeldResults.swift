internal import DequeModule
internal import EarshotWire

/// Outcomes with bodies that this node holds for other nodes, for as long as the engine may name them.
///
/// ```
///  (absent) ──hold──→ held ──expired, evicted──→ (absent)
/// ```
///
/// The table has one reference to each outcome, which its caller takes and releases.
package struct HeldResults {
    /// Time for which a body is held. The engine names it for at most twice `EngineLimits.resultRetentionMilliseconds`.
    /// The rest is for nodes that request it then. A full spool ends it earlier.
    static let holdMilliseconds = 2 * EngineLimits.resultRetentionMilliseconds + 5_000
    /// Maximum number of bodies.
    static let maximumBodies = 65_536
    /// Maximum bytes of bodies in memory. Without the oldest body another node fetches its URL itself.
    static let maximumMemoryBytes = 67_108_864

    private struct Entry {
        let outcome: Handle<Outcome>
        let memoryBytes: Int
    }

    private var entries: [HeldBody: Entry] = [:]
    private var expiryOrder = Deque<(body: HeldBody, until: MonotonicTime)>()
    package private(set) var memoryBytes = 0

    package var count: Int { entries.count }

    /// End of the oldest body's time; nil without bodies.
    var deadline: MonotonicTime? { expiryOrder.first?.until }

    /// All held outcomes. O(bodies).
    var outcomes: [Handle<Outcome>] { entries.values.map(\.outcome) }

    subscript(body: HeldBody) -> Handle<Outcome>? { entries[body]?.outcome }

    /// Adds an outcome, for which the caller has taken a reference.
    ///
    /// - Parameter memoryBytes: bytes of a body in memory; 0 for a file.
    /// - Returns: outcomes for the caller to release.
    mutating func hold(
        _ outcome: Handle<Outcome>, as body: HeldBody, memoryBytes bytes: Int, now: MonotonicTime
    ) -> [Handle<Outcome>] {
        guard entries[body] == nil else { return [outcome] }
        entries[body] = Entry(outcome: outcome, memoryBytes: bytes)
        expiryOrder.append((body, now.advanced(byMilliseconds: Self.holdMilliseconds)))
        memoryBytes += bytes
        var released: [Handle<Outcome>] = []
        while entries.count > Self.maximumBodies || memoryBytes > Self.maximumMemoryBytes, let oldest = evictOldest() {
            released.append(oldest)
        }
        return released
    }

    /// Removes bodies whose time is over, at most `most` of them, so that one pass is short.
    ///
    /// - Returns: outcomes for the caller to release.
    mutating func expire(now: MonotonicTime, most: Int) -> [Handle<Outcome>] {
        var released: [Handle<Outcome>] = []
        while released.count < most, let first = expiryOrder.first, first.until <= now, let oldest = evictOldest() {
            released.append(oldest)
        }
        return released
    }

    /// Removes the oldest body.
    ///
    /// - Returns: its outcome, for the caller to release; nil without bodies.
    mutating func evictOldest() -> Handle<Outcome>? {
        guard let first = expiryOrder.popFirst(), let entry = entries.removeValue(forKey: first.body) else {
            return nil
        }
        memoryBytes -= entry.memoryBytes
        return entry.outcome
    }

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        if expiryOrder.count != entries.count {
            faults.append("11: \(entries.count) bodies are held, \(expiryOrder.count) in order")
        }
        let bytes = entries.values.reduce(0) { $0 + $1.memoryBytes }
        if bytes != memoryBytes { faults.append("11: held bodies have \(bytes) bytes, not \(memoryBytes)") }
        if entries.count > Self.maximumBodies || memoryBytes > Self.maximumMemoryBytes {
            faults.append("11: \(entries.count) bodies with \(memoryBytes) bytes are held")
        }
        return faults
    }
}

/// Results of shared attempts that ended without a membership. The next one reports them, so that other nodes need not
/// fetch these URLs again for requests that are older.
struct UnreportedResults {
    /// Bounds: the oldest results are forgotten first, and other nodes fetch their URLs again.
    static let maximumResults = 4_096
    static let maximumResultBytes = 4_194_304

    private struct Entry {
        let key: ClusterKey
        let token: FencingToken
        let result: [UInt8]
        let endedAt: MonotonicTime
    }

    private var entries = Deque<Entry>()
    private var resultBytes = 0

    mutating func addResult(_ result: [UInt8], of key: ClusterKey, _ token: FencingToken, now: MonotonicTime) {
        entries.append(Entry(key: key, token: token, result: result, endedAt: now))
        resultBytes += result.count
        while entries.count > Self.maximumResults || resultBytes > Self.maximumResultBytes { removeFirst() }
    }

    /// Removes and returns the reports of all results that are young enough to answer requests.
    mutating func takeFreshCompletions(now: MonotonicTime) -> [EngineCompletion] {
        defer { (entries, resultBytes) = ([], 0) }
        return entries.compactMap { entry in
            let age = now.milliseconds(since: entry.endedAt)
            guard age < EngineLimits.resultRetentionMilliseconds else { return nil }
            return EngineCompletion(
                key: entry.key, token: entry.token, outcome: .lateResult(entry.result, ageMilliseconds: age),
                isAnswered: false)
        }
    }

    private mutating func removeFirst() { resultBytes -= entries.removeFirst().result.count }
}
