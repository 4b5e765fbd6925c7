internal import DequeModule
internal import EarshotWire

/// Results of shared attempts that ended without a membership. The next one reports them, so that other nodes need not
/// fetch these URLs again for requests that are older.
struct UnreportedResults {
    /// Bounds: the oldest results are forgotten first, and other nodes fetch their URLs again.
    static let mostResults = 4_096
    static let mostBytes = 4_194_304

    private struct Entry {
        let key: ClusterKey
        let token: FencingToken
        let result: [UInt8]
        let endedAt: Tick
    }

    private var entries = Deque<Entry>()
    private var bytes = 0

    mutating func add(_ result: [UInt8], of key: ClusterKey, _ token: FencingToken, now: Tick) {
        entries.append(Entry(key: key, token: token, result: result, endedAt: now))
        bytes += result.count
        while entries.count > Self.mostResults || bytes > Self.mostBytes { removeFirst() }
    }

    /// Removes and returns the reports of all results that are young enough to answer requests.
    mutating func take(now: Tick) -> [EngineCompletion] {
        defer { (entries, bytes) = ([], 0) }
        return entries.compactMap { entry in
            let age = now.milliseconds(since: entry.endedAt)
            guard age < EngineLimits.resultMilliseconds else { return nil }
            return EngineCompletion(
                key: entry.key, token: entry.token, outcome: .kept(entry.result, ageMilliseconds: age),
                isAnswered: false)
        }
    }

    private mutating func removeFirst() { bytes -= entries.removeFirst().result.count }
}
