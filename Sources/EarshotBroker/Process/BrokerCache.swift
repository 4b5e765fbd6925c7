internal import EarshotCache
internal import EarshotCore
internal import EarshotDisk
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// The broker's side of the cache: responses in memory, and outstanding requests to the cache's thread.
///
/// A set with 8 bytes for each cached key answers misses without the thread.
final class BrokerCache {
    /// Maximum bytes of responses in memory.
    private static let memoryCacheBytes = 32 << 20
    /// Maximum bytes and files of responses on their way to the thread. Further responses are not stored, so a slow
    /// disk costs no memory.
    private static let maximumPendingBytes = 64 << 20
    private static let maximumPendingFiles = 64
    /// Number of uses reported to the thread in one message.
    private static let usesPerReport = 256

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
        let requestFields: HeaderFields
    }

    /// Outstanding lookups of a key, and whether the key has changed since the first.
    private struct KeyLookups {
        var count = 0
        var isOutdated = false
    }

    private let store: CacheStore
    private let salt: [UInt8]
    private var memory = MemoryCache(limitBytes: memoryCacheBytes)
    /// Maximum size of the cache in bytes. Larger responses are not sent to the thread.
    private var limitBytes = Int.max
    /// Suffixes of the index's keys; nil until the index is open.
    private var storedKeySuffixes: Set<UInt64>?
    private var lookups: [UInt64: Lookup] = [:]
    private var pendingLookupsByKey: [CacheDigest: KeyLookups] = [:]
    private var readsByTicket: [UInt64: (flight: FlightName, isRange: Bool)] = [:]
    /// Responses on their way to the index, by key, in order: the bytes of each, and whether it has a file.
    private var pendingStores: [CacheDigest: [(bytes: Int, isFile: Bool)]] = [:]
    /// Totals of `pendingStores`.
    private var pendingStoreTotals = (bytes: 0, files: 0)
    private var unreportedUses: [UInt64] = []
    private var lastTicket: UInt64 = 0
    /// Whether it has answered immediately since the last assignment.
    var hasAnsweredImmediately = false

    /// Opens the cache in this folder.
    ///
    /// - Throws: `StoreError` or `SystemError`.
    init(_ folder: CacheFolder, spool: String) throws {
        try folder.prepareFolders()
        let lock = try folder.acquireLock()
        salt = try folder.readSalt()
        store = try CacheStore(
            folder, lock: lock, spool: spool, limit: SettingName.cacheSize.storedValueRange.upperBound)
    }

    /// Readable when answers are available.
    var descriptor: Int32 { store.answers.descriptor }

    /// Completes all writes. The cache cannot be used afterwards.
    func finish() {
        reportUses()
        store.finishBeforeExit()
    }

    // MARK: Lookups and reads

    /// Returns the stored variants for a request; nil if the thread looks them up, whose answer comes later.
    func lookUpVariants(for flight: FlightName, key: CacheKey, request: HTTPRequest) -> [CacheVariant]? {
        let digest = CacheDigest(key, salt: salt)
        if let answers = memory.answers(forKey: digest) {
            return answers.map { resolvingVaryKey(of: $0, for: request.fields).variant }
        }
        if let storedKeySuffixes, !storedKeySuffixes.contains(digest.suffix), pendingStores[digest] == nil { return [] }
        lastTicket += 1
        lookups[lastTicket] = Lookup(
            flight: flight, key: digest, url: key.url.description, requestFields: request.fields)
        pendingLookupsByKey[digest, default: KeyLookups()].count += 1
        store.submit(.lookUp(ticket: lastTicket, digest))
        return nil
    }

    /// Returns the body of a stored response, or a range of it; nil if the thread reads it, whose answer comes later.
    func readBody(for flight: FlightName, entry: CacheEntryID, range: Range<Int>?) -> [UInt8]? {
        unreportedUses.append(entry.rawValue)
        if unreportedUses.count >= Self.usesPerReport { reportUses() }
        if let body = memory.body(of: entry), let part = body.bytes(in: range) { return part }
        lastTicket += 1
        readsByTicket[lastTicket] = (flight, range != nil)
        store.submit(.read(ticket: lastTicket, entry: entry.rawValue, range: range))
        return nil
    }

    private func reportUses() {
        guard !unreportedUses.isEmpty else { return }
        store.submit(.recordUses(unreportedUses))
        unreportedUses.removeAll(keepingCapacity: true)
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
        guard isWhole, variant.length < limitBytes, pendingStoreTotals.bytes + size <= Self.maximumPendingBytes,
            pendingStoreTotals.files < Self.maximumPendingFiles || file == nil
        else {
            if let file { Glibc.close(file) }
            return
        }
        let varyKeyDigest = CacheDigest.variantDigest(variant.response.varyKey, salt: salt)
        let answer = MemoryCache.Answer(variant: variant, varyKeyDigest: varyKeyDigest, body: body)
        if memory.contains(digest) {
            memory.updateAnswers(forKey: digest) { answers in
                answers.removeAll { $0.varyKeyDigest == answer.varyKeyDigest }
                answers.append(answer)
            }
        } else if let storedKeySuffixes, !storedKeySuffixes.contains(digest.suffix), pendingStores[digest] == nil {
            memory.insert([answer], forKey: digest, url: key.url.description)
        }
        markLookupsOutdated(digest)
        pendingStores[digest, default: []].append((size, file != nil))
        pendingStoreTotals.bytes += size
        pendingStoreTotals.files += file == nil ? 0 : 1
        let item = CacheItem(
            entry: variant.entryID.rawValue, key: digest, url: key.url.description,
            isPrivate: !key.trustScope.isCredentialFree, variant: varyKeyDigest, response: variant.response,
            length: variant.length, sha256: variant.sha256, body: file == nil ? body ?? [] : nil,
            owner: owner?.description ?? "")
        store.submit(.store(item, file: file))
    }

    func refresh(_ key: CacheKey, _ entry: CacheEntryID, _ response: StoredResponse) {
        let digest = CacheDigest(key, salt: salt)
        let variant = CacheDigest.variantDigest(response.varyKey, salt: salt)
        memory.updateAnswers(forKey: digest) { answers in
            guard let index = answers.firstIndex(where: { $0.variant.entryID == entry }) else { return }
            answers[index].variant.response = response
            answers[index].varyKeyDigest = variant
        }
        markLookupsOutdated(digest)
        store.submit(.refresh(entry: entry.rawValue, response, variant: variant))
    }

    func discard(_ key: CacheKey, _ entry: CacheEntryID) {
        let digest = CacheDigest(key, salt: salt)
        memory.updateAnswers(forKey: digest) { answers in answers.removeAll { $0.variant.entryID == entry } }
        markLookupsOutdated(digest)
        store.submit(.discard(entry: entry.rawValue))
    }

    func invalidate(_ urls: [String]) {
        for url in urls { memory.remove(url: url) }
        for key in pendingLookupsByKey.keys { markLookupsOutdated(key) }
        store.submit(.invalidate(urls.map { CacheDigest(url: $0, salt: salt) }))
    }

    func setLimit(bytes: Int) {
        limitBytes = bytes
        store.submit(.setLimit(bytes: bytes))
    }

    private func markLookupsOutdated(_ key: CacheDigest) { pendingLookupsByKey[key]?.isOutdated = true }

    // MARK: Answers

    func takeAnswers(_ take: (Answer) -> Void) {
        for answer in store.answers.takeAll() {
            switch answer {
            case .indexOpened(let keys): storedKeySuffixes = keys
            case .indexEmptied:
                storedKeySuffixes = []
                memory.removeAll()
            case .variantsFound(let ticket, let items):
                guard let lookup = lookups.removeValue(forKey: ticket) else { continue }
                take(.variants(lookup.flight, variants(from: items, for: lookup)))
            case .body(let ticket, let body):
                guard let read = readsByTicket.removeValue(forKey: ticket) else { continue }
                take(.body(read.flight, body, isRange: read.isRange))
            case .stored(let key, let isKept): responseStored(key, isKept: isKept)
            case .keysRemoved(let keys):
                for key in keys {
                    storedKeySuffixes?.remove(key.suffix)
                    if pendingStores[key] == nil { memory.remove(key) }
                }
            case .fault(let fault): take(.fault(fault))
            }
        }
    }

    private func variants(from items: [CacheItem], for lookup: Lookup) -> [CacheVariant] {
        let answers = items.map { item in
            let variant = CacheVariant(
                entry: CacheEntryID(rawValue: item.entry), response: item.response, length: item.length,
                sha256: item.sha256)
            let body = item.body.flatMap { $0.isEmpty ? nil : $0 }
            return resolvingVaryKey(
                of: MemoryCache.Answer(variant: variant, varyKeyDigest: item.variant, body: body),
                for: lookup.requestFields)
        }
        var waiting = pendingLookupsByKey[lookup.key] ?? KeyLookups(count: 1)
        waiting.count -= 1
        pendingLookupsByKey[lookup.key] = waiting.count > 0 ? waiting : nil
        if !waiting.isOutdated, !answers.isEmpty, pendingStores[lookup.key] == nil {
            memory.insert(answers, forKey: lookup.key, url: lookup.url)
        }
        return answers.map(\.variant)
    }

    /// Returns a response of the index with its actual `VaryKey`, if it matches the request. Any other response is
    /// returned unchanged and matches no request.
    private func resolvingVaryKey(of answer: MemoryCache.Answer, for request: HeaderFields) -> MemoryCache.Answer {
        let response = answer.variant.response
        guard !answer.varyKeyDigest.isEmpty, response.varyKey.canonicalFields == answer.varyKeyDigest,
            let key = VaryKey(response: response.fields, request: request),
            CacheDigest.variantDigest(key, salt: salt) == answer.varyKeyDigest
        else { return answer }
        var answer = answer
        answer.variant.response = StoredResponse(
            status: response.status, fields: response.fields, requestTime: response.requestTime,
            responseTime: response.responseTime, varyKey: key, isInvalidated: response.isInvalidated)
        return answer
    }

    private func responseStored(_ key: CacheDigest, isKept: Bool) {
        if let item = pendingStores[key]?.removeFirst() {
            pendingStoreTotals.bytes -= item.bytes
            pendingStoreTotals.files -= item.isFile ? 1 : 0
        }
        if pendingStores[key]?.isEmpty == true { pendingStores[key] = nil }
        if isKept { storedKeySuffixes?.insert(key.suffix) } else { memory.remove(key) }
    }
}
