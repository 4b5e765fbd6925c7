internal import EarshotCache
internal import EarshotCore
internal import EarshotDisk
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// The broker's side of the cache: responses in memory, and outstanding requests to the cache's thread.
///
/// A set with 8 bytes for each cached key answers misses without asking the thread.
final class BrokerCache {
    /// Maximum bytes of responses in memory.
    private static let memoryBytes = 32 << 20
    /// Maximum bytes and files of responses on their way to the thread. Further responses are not stored, so a slow
    /// disk costs no memory.
    private static let pendingBytes = 64 << 20
    private static let pendingFiles = 64
    /// Number of uses reported to the thread in one message.
    private static let usesAtOnce = 256

    /// Answer of the thread for the core.
    enum Answer {
        case variants(FlightName, [CacheVariant])
        /// Body of a stored response, or a range of it.
        case body(FlightName, CacheBody, isRange: Bool)
        /// Message for the log.
        case fault(CacheFault)
    }

    private struct Lookup {
        let flight: FlightName
        let key: CacheDigest
        let url: String
        let request: HeaderFields
    }

    /// Outstanding lookups of a key, and whether the key has changed since the first.
    private struct PendingLookups {
        var count = 0
        var isOutdated = false
    }

    private let store: CacheStore
    private let salt: [UInt8]
    private var memory = MemoryCache(limit: memoryBytes)
    /// Maximum size of the cache in bytes. Larger responses are not sent to the thread.
    private var limit = Int.max
    /// Suffixes of the index's keys; nil until the index is open.
    private var knownKeys: Set<UInt64>?
    private var lookups: [UInt64: Lookup] = [:]
    private var looked: [CacheDigest: PendingLookups] = [:]
    private var reads: [UInt64: (flight: FlightName, isRange: Bool)] = [:]
    /// Responses on their way to the index, by key, in order: the bytes of each, and whether it has a file.
    private var storing: [CacheDigest: [(bytes: Int, isFile: Bool)]] = [:]
    /// Totals of `storing`.
    private var pendingTotals = (bytes: 0, files: 0)
    private var usedEntries: [UInt64] = []
    private var lastTicket: UInt64 = 0
    /// Whether it has answered immediately since the last assignment.
    var hasAnswered = false

    /// Opens the cache in this folder.
    ///
    /// - Throws: `StoreError` or `SystemError`.
    init(_ folder: CacheFolder, spool: String) throws {
        try folder.prepare()
        let lock = try folder.take()
        salt = try folder.readSalt()
        store = try CacheStore(folder, lock: lock, spool: spool, limit: SettingName.cacheSize.range.upperBound)
    }

    /// Readable when answers are available.
    var descriptor: Int32 { store.answers.descriptor }

    /// Completes all writes. The cache cannot be used afterwards.
    func finish() {
        reportUses()
        store.finishForGood()
    }

    // MARK: Questions

    /// Returns the stored variants for a request; nil if the thread must be asked, whose answer comes later.
    func lookUp(_ flight: FlightName, _ key: CacheKey, _ request: HTTPRequest) -> [CacheVariant]? {
        let digest = CacheDigest(key, salt: salt)
        if let answers = memory.answers(digest) { return answers.map { resolved($0, for: request.fields).variant } }
        if let knownKeys, !knownKeys.contains(digest.suffix), storing[digest] == nil { return [] }
        lastTicket += 1
        lookups[lastTicket] = Lookup(
            flight: flight, key: digest, url: key.url.description, request: request.fields)
        looked[digest, default: PendingLookups()].count += 1
        store.submit(.lookUp(ticket: lastTicket, digest))
        return nil
    }

    /// Returns the body of a stored response, or a range of it; nil if the thread must be asked, whose answer comes later.
    func read(_ flight: FlightName, _ entry: CacheEntryID, _ range: Range<Int>?) -> [UInt8]? {
        usedEntries.append(entry.rawValue)
        if usedEntries.count >= Self.usesAtOnce { reportUses() }
        if let body = memory.body(of: entry), let part = body.part(range) { return part }
        lastTicket += 1
        reads[lastTicket] = (flight, range != nil)
        store.submit(.read(ticket: lastTicket, entry: entry.rawValue, range: range))
        return nil
    }

    private func reportUses() {
        guard !usedEntries.isEmpty else { return }
        store.submit(.used(usedEntries))
        usedEntries.removeAll(keepingCapacity: true)
    }

    // MARK: Changes

    /// Stores a response, unless too many are on their way to the thread.
    ///
    /// - Parameters:
    ///   - file: Descriptor of the body's file, if it has one. Ownership passes to this method.
    ///   - owner: Principal whose room it takes; nil for the administrator.
    func store(_ key: CacheKey, _ variant: CacheVariant, _ body: [UInt8]?, file: Int32?, owner: PrincipalName?) {
        let digest = CacheDigest(key, salt: salt)
        let isWhole = variant.length == 0 || body != nil || file != nil
        let size = file == nil ? variant.length : 0
        guard isWhole, variant.length < limit, pendingTotals.bytes + size <= Self.pendingBytes,
            pendingTotals.files < Self.pendingFiles || file == nil
        else {
            if let file { Glibc.close(file) }
            return
        }
        let answer = MemoryCache.Answer(
            variant: variant, digest: CacheDigest.variant(variant.response.varyKey, salt: salt), body: body)
        if memory.contains(digest) {
            memory.change(digest) { answers in
                answers.removeAll { $0.digest == answer.digest }
                answers.append(answer)
            }
        } else if let knownKeys, !knownKeys.contains(digest.suffix), storing[digest] == nil {
            memory.put([answer], digest, url: key.url.description)
        }
        markOutdated(digest)
        storing[digest, default: []].append((size, file != nil))
        pendingTotals.bytes += size
        pendingTotals.files += file == nil ? 0 : 1
        let item = CacheItem(
            entry: variant.entry.rawValue, key: digest, url: key.url.description, isPrivate: !key.scope.isShared,
            variant: answer.digest, response: variant.response, length: variant.length, sha256: variant.sha256,
            body: file == nil ? body ?? [] : nil, owner: owner?.description ?? "")
        store.submit(.store(item, file: file))
    }

    func refresh(_ key: CacheKey, _ entry: CacheEntryID, _ response: StoredResponse) {
        let digest = CacheDigest(key, salt: salt)
        let variant = CacheDigest.variant(response.varyKey, salt: salt)
        memory.change(digest) { answers in
            guard let index = answers.firstIndex(where: { $0.variant.entry == entry }) else { return }
            answers[index].variant.response = response
            answers[index].digest = variant
        }
        markOutdated(digest)
        store.submit(.refresh(entry: entry.rawValue, response, variant: variant))
    }

    func discard(_ key: CacheKey, _ entry: CacheEntryID) {
        let digest = CacheDigest(key, salt: salt)
        memory.change(digest) { answers in answers.removeAll { $0.variant.entry == entry } }
        markOutdated(digest)
        store.submit(.discard(entry: entry.rawValue))
    }

    func invalidate(_ urls: [String]) {
        for url in urls { memory.remove(url: url) }
        for key in looked.keys { markOutdated(key) }
        store.submit(.invalidate(urls.map { CacheDigest(url: $0, salt: salt) }))
    }

    func limit(bytes: Int) {
        limit = bytes
        store.submit(.limit(bytes: bytes))
    }

    private func markOutdated(_ key: CacheDigest) { looked[key]?.isOutdated = true }

    // MARK: Answers

    func takeAnswers(_ take: (Answer) -> Void) {
        for answer in store.answers.takeAll() {
            switch answer {
            case .opened(let keys): knownKeys = keys
            case .emptied:
                knownKeys = []
                memory.removeAll()
            case .found(let ticket, let items):
                guard let lookup = lookups.removeValue(forKey: ticket) else { continue }
                take(.variants(lookup.flight, foundVariants(items, for: lookup)))
            case .body(let ticket, let body):
                guard let read = reads.removeValue(forKey: ticket) else { continue }
                take(.body(read.flight, body, isRange: read.isRange))
            case .stored(let key, let isKept): responseStored(key, isKept: isKept)
            case .gone(let keys):
                for key in keys {
                    knownKeys?.remove(key.suffix)
                    if storing[key] == nil { memory.remove(key) }
                }
            case .fault(let fault): take(.fault(fault))
            }
        }
    }

    private func foundVariants(_ items: [CacheItem], for lookup: Lookup) -> [CacheVariant] {
        let answers = items.map { item in
            let variant = CacheVariant(
                entry: CacheEntryID(rawValue: item.entry), response: item.response, length: item.length,
                sha256: item.sha256)
            let body = item.body.flatMap { $0.isEmpty ? nil : $0 }
            return resolved(
                MemoryCache.Answer(variant: variant, digest: item.variant, body: body), for: lookup.request)
        }
        var waiting = looked[lookup.key] ?? PendingLookups(count: 1)
        waiting.count -= 1
        looked[lookup.key] = waiting.count > 0 ? waiting : nil
        if !waiting.isOutdated, !answers.isEmpty, storing[lookup.key] == nil {
            memory.put(answers, lookup.key, url: lookup.url)
        }
        return answers.map(\.variant)
    }

    /// Returns a response of the index with its actual `VaryKey`, if it matches the request. Any other response is
    /// returned unchanged and matches no request.
    private func resolved(_ answer: MemoryCache.Answer, for request: HeaderFields) -> MemoryCache.Answer {
        let response = answer.variant.response
        guard !answer.digest.isEmpty, response.varyKey.canonical == answer.digest,
            let key = VaryKey(response: response.fields, request: request),
            CacheDigest.variant(key, salt: salt) == answer.digest
        else { return answer }
        var answer = answer
        answer.variant.response = StoredResponse(
            status: response.status, fields: response.fields, requestTime: response.requestTime,
            responseTime: response.responseTime, varyKey: key, isInvalidated: response.isInvalidated)
        return answer
    }

    private func responseStored(_ key: CacheDigest, isKept: Bool) {
        if let item = storing[key]?.removeFirst() {
            pendingTotals.bytes -= item.bytes
            pendingTotals.files -= item.isFile ? 1 : 0
        }
        if storing[key]?.isEmpty == true { storing[key] = nil }
        if isKept { knownKeys?.insert(key.suffix) } else { memory.remove(key) }
    }
}
