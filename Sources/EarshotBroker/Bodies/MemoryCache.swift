internal import DequeModule
internal import EarshotCache
internal import EarshotCore
internal import EarshotHTTP

/// LRU cache of stored responses with their bodies, in memory and bounded in bytes. It answers lookups within the same
/// pass, without the cache's thread.
///
/// A key is present either with all its variants or not at all.
struct MemoryCache {
    /// One stored response.
    struct Answer {
        var variant: CacheVariant
        /// Its `VaryKey` as a digest, as in the index.
        var digest: [UInt8]
        /// Nil for a body in a file or an empty body.
        var body: [UInt8]?
    }

    private struct Entry {
        var answers: [Answer]
        let url: String
        var bytes: Int
        /// Its latest position in `useOrder`. Earlier positions of the same key are obsolete.
        var turn: UInt64
    }

    private let limit: Int
    private var bytes = 0
    private var turn: UInt64 = 0
    private var entries: [CacheDigest: Entry] = [:]
    private var keys: [CacheEntryID: CacheDigest] = [:]
    private var byURL: [String: Set<CacheDigest>] = [:]
    /// Keys in the order of use, the most recently used last.
    private var useOrder: Deque<(key: CacheDigest, turn: UInt64)> = []

    init(limit: Int) {
        self.limit = limit
    }

    /// Returns the variants of a key and marks it as used; nil if the index must be asked.
    mutating func answers(_ key: CacheDigest) -> [Answer]? {
        guard let entry = entries[key] else { return nil }
        markUsed(key)
        return entry.answers
    }

    /// Returns the body of a stored response; nil if it is not in memory.
    func body(of entry: CacheEntryID) -> [UInt8]? {
        guard let key = keys[entry] else { return nil }
        return entries[key]?.answers.first { $0.variant.entry == entry }?.body
    }

    func contains(_ key: CacheDigest) -> Bool { entries[key] != nil }

    /// Adds all variants of a key and evicts the least recently used keys above the limit.
    mutating func put(_ answers: [Answer], _ key: CacheDigest, url: String) {
        remove(key)
        let cost = Self.cost(of: answers)
        // A key that would evict a large part of all others is not added.
        guard cost <= limit / 8 else { return }
        entries[key] = Entry(answers: answers, url: url, bytes: cost, turn: 0)
        for answer in answers { keys[answer.variant.entry] = key }
        byURL[url, default: []].insert(key)
        bytes += cost
        markUsed(key)
        evict()
    }

    private static func cost(of answers: [Answer]) -> Int {
        answers.reduce(512) { sum, answer in
            sum + 512 + answer.variant.response.fields.bytes.count + (answer.body == nil ? 0 : answer.variant.length)
        }
    }

    private mutating func evict() {
        while bytes > limit, let oldest = useOrder.popFirst() {
            if entries[oldest.key]?.turn == oldest.turn { remove(oldest.key) }
        }
    }

    /// Changes a key's variants in place, if the key is present, and marks it as used.
    mutating func change(_ key: CacheDigest, _ change: (inout [Answer]) -> Void) {
        guard let place = entries.index(forKey: key) else { return }
        let before = entries.values[place].answers.map(\.variant.entry)
        change(&entries.values[place].answers)
        let answers = entries.values[place].answers
        let after = answers.map(\.variant.entry)
        if before != after {
            for entry in before { keys[entry] = nil }
            for entry in after { keys[entry] = key }
        }
        let cost = Self.cost(of: answers)
        bytes += cost - entries.values[place].bytes
        entries.values[place].bytes = cost
        guard !answers.isEmpty, cost <= limit / 8 else { return remove(key) }
        markUsed(key)
        evict()
    }

    mutating func remove(_ key: CacheDigest) {
        guard let entry = entries.removeValue(forKey: key) else { return }
        for answer in entry.answers { keys[answer.variant.entry] = nil }
        byURL[entry.url]?.remove(key)
        if byURL[entry.url]?.isEmpty == true { byURL[entry.url] = nil }
        bytes -= entry.bytes
    }

    /// Removes all answers for a URL, in all scopes.
    mutating func remove(url: String) {
        for key in byURL[url] ?? [] { remove(key) }
    }

    mutating func removeAll() {
        self = MemoryCache(limit: limit)
    }

    private mutating func markUsed(_ key: CacheDigest) {
        turn += 1
        entries[key]?.turn = turn
        useOrder.append((key, turn))
        guard useOrder.count > 1_024 + 4 * entries.count else { return }
        useOrder.removeAll { [entries] place in entries[place.key]?.turn != place.turn }
    }
}
