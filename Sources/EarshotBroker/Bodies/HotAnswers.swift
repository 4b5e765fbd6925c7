internal import DequeModule
internal import EarshotCache
internal import EarshotCore
internal import EarshotHTTP

/// Kept answers that were used or stored last, with their bodies, within a bound of bytes: what they answer is answered
/// in the same pass.
///
/// A key that is here is here with all its variants.
struct HotAnswers {
    /// One kept answer.
    struct Answer {
        var variant: CacheVariant
        /// Its `VaryKey`, as the index has it.
        var digest: [UInt8]
        /// Nil for one that is a file, or has none.
        var body: [UInt8]?
    }

    private struct Entry {
        var answers: [Answer]
        let url: String
        var bytes: Int
        /// Its place in `order`; earlier places of the same key mean nothing.
        var turn: UInt64
    }

    private let limit: Int
    private var bytes = 0
    private var turn: UInt64 = 0
    private var entries: [CacheDigest: Entry] = [:]
    private var keys: [CacheEntryID: CacheDigest] = [:]
    private var byURL: [String: Set<CacheDigest>] = [:]
    /// Keys, those used last at the end.
    private var order: Deque<(key: CacheDigest, turn: UInt64)> = []

    init(limit: Int) {
        self.limit = limit
    }

    /// What there is under a key; nil if the index has to be asked. It counts as used.
    mutating func answers(_ key: CacheDigest) -> [Answer]? {
        guard let entry = entries[key] else { return nil }
        touch(key)
        return entry.answers
    }

    /// The body of an answer; nil if it is not here.
    func body(of entry: CacheEntryID) -> [UInt8]? {
        guard let key = keys[entry] else { return nil }
        return entries[key]?.answers.first { $0.variant.entry == entry }?.body
    }

    func contains(_ key: CacheDigest) -> Bool { entries[key] != nil }

    /// Takes all the variants of a key; removes what was used longest ago if that is too much.
    mutating func put(_ answers: [Answer], _ key: CacheDigest, url: String) {
        remove(key)
        let cost = answers.reduce(512) { sum, answer in
            sum + 512 + answer.variant.response.fields.bytes.count + (answer.body == nil ? 0 : answer.variant.length)
        }
        // One that would drive out a good part of all others is not worth it.
        guard cost <= limit / 8 else { return }
        entries[key] = Entry(answers: answers, url: url, bytes: cost, turn: 0)
        for answer in answers { keys[answer.variant.entry] = key }
        byURL[url, default: []].insert(key)
        bytes += cost
        touch(key)
        while bytes > limit, let oldest = order.popFirst() {
            if entries[oldest.key]?.turn == oldest.turn { remove(oldest.key) }
        }
    }

    /// Changes a key's variants, if they are here.
    mutating func change(_ key: CacheDigest, _ change: (inout [Answer]) -> Void) {
        guard let entry = entries[key] else { return }
        var answers = entry.answers
        change(&answers)
        if answers.isEmpty { remove(key) } else { put(answers, key, url: entry.url) }
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
        self = HotAnswers(limit: limit)
    }

    private mutating func touch(_ key: CacheDigest) {
        turn += 1
        entries[key]?.turn = turn
        order.append((key, turn))
        guard order.count > 1_024 + 4 * entries.count else { return }
        order.removeAll { [entries] place in entries[place.key]?.turn != place.turn }
    }
}
