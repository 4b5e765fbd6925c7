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
        var varyKeyDigest: [UInt8]
        /// Nil for a body in a file or an empty body.
        var body: [UInt8]?
    }

    private struct Entry {
        var answers: [Answer]
        let url: String
        var costBytes: Int
        /// Its latest position in `useOrder`. Earlier positions of the same key are obsolete.
        var usePosition: UInt64
    }

    private let limitBytes: Int
    private var totalBytes = 0
    private var latestUsePosition: UInt64 = 0
    private var entries: [CacheDigest: Entry] = [:]
    private var keysByEntryID: [CacheEntryID: CacheDigest] = [:]
    private var keysByURL: [String: Set<CacheDigest>] = [:]
    /// Keys in the order of use, the most recently used last.
    private var useOrder: Deque<(key: CacheDigest, turn: UInt64)> = []

    init(limitBytes: Int) {
        self.limitBytes = limitBytes
    }

    /// Returns the variants of a key and marks it as used; nil if only the index has them.
    mutating func answers(forKey key: CacheDigest) -> [Answer]? {
        guard let entry = entries[key] else { return nil }
        markUsed(key)
        return entry.answers
    }

    /// Returns the body of a stored response; nil if it is not in memory.
    func body(of entry: CacheEntryID) -> [UInt8]? {
        guard let key = keysByEntryID[entry] else { return nil }
        return entries[key]?.answers.first { $0.variant.entryID == entry }?.body
    }

    func contains(_ key: CacheDigest) -> Bool { entries[key] != nil }

    /// Adds all variants of a key and evicts the least recently used keys above the limit.
    mutating func insert(_ answers: [Answer], forKey key: CacheDigest, url: String) {
        remove(key)
        let cost = Self.costBytes(of: answers)
        // A key that would evict a large part of all others is not added.
        guard cost <= limitBytes / 8 else { return }
        entries[key] = Entry(answers: answers, url: url, costBytes: cost, usePosition: 0)
        for answer in answers { keysByEntryID[answer.variant.entryID] = key }
        keysByURL[url, default: []].insert(key)
        totalBytes += cost
        markUsed(key)
        evict()
    }

    private static func costBytes(of answers: [Answer]) -> Int {
        answers.reduce(512) { sum, answer in
            sum + 512 + answer.variant.response.fields.bytes.count + (answer.body == nil ? 0 : answer.variant.length)
        }
    }

    private mutating func evict() {
        while totalBytes > limitBytes, let oldest = useOrder.popFirst() {
            if entries[oldest.key]?.usePosition == oldest.turn { remove(oldest.key) }
        }
    }

    /// Changes a key's variants in place, if the key is present, and marks it as used.
    mutating func updateAnswers(forKey key: CacheDigest, _ change: (inout [Answer]) -> Void) {
        guard let place = entries.index(forKey: key) else { return }
        let before = entries.values[place].answers.map(\.variant.entryID)
        change(&entries.values[place].answers)
        let answers = entries.values[place].answers
        let after = answers.map(\.variant.entryID)
        if before != after {
            for entry in before { keysByEntryID[entry] = nil }
            for entry in after { keysByEntryID[entry] = key }
        }
        let cost = Self.costBytes(of: answers)
        totalBytes += cost - entries.values[place].costBytes
        entries.values[place].costBytes = cost
        guard !answers.isEmpty, cost <= limitBytes / 8 else { return remove(key) }
        markUsed(key)
        evict()
    }

    mutating func remove(_ key: CacheDigest) {
        guard let entry = entries.removeValue(forKey: key) else { return }
        for answer in entry.answers { keysByEntryID[answer.variant.entryID] = nil }
        keysByURL[entry.url]?.remove(key)
        if keysByURL[entry.url]?.isEmpty == true { keysByURL[entry.url] = nil }
        totalBytes -= entry.costBytes
    }

    /// Removes all answers for a URL, in all scopes.
    mutating func remove(url: String) {
        for key in keysByURL[url] ?? [] { remove(key) }
    }

    mutating func removeAll() {
        self = MemoryCache(limitBytes: limitBytes)
    }

    private mutating func markUsed(_ key: CacheDigest) {
        latestUsePosition += 1
        entries[key]?.usePosition = latestUsePosition
        useOrder.append((key, latestUsePosition))
        guard useOrder.count > 1_024 + 4 * entries.count else { return }
        useOrder.removeAll { [entries] place in entries[place.key]?.usePosition != place.turn }
    }
}
