import EarshotHTTP
import EarshotWire

@testable import EarshotCore

/// Cache for a core under test. Keeps stored responses, and replies when the test calls.
struct FakeCache {
    struct Kept {
        var variant: CacheVariant
        var content: String
        var owner: PrincipalName?
    }

    private(set) var kept: [CacheKey: [Kept]] = [:]
    /// Content of each body in the core.
    var contents: [BodyID: String] = [:]
    private var lastBody: UInt64 = 1_000_000

    var count: Int { kept.values.reduce(0) { $0 + $1.count } }

    /// Carries an action out, if it is one for the cache.
    ///
    /// - Returns: the report to the core.
    mutating func carryOut(_ action: Action) -> ((inout BrokerCore, MonotonicTime) -> Void)? {
        guard case .cache(let requested) = action else { return nil }
        switch requested {
        case .lookUpVariants(let flight, let key, _):
            let variants = kept[key, default: []].map(\.variant)
            return { core, now in core.cacheLookupCompleted(flight, variants, now: now) }
        case .readBody(let flight, let entry, let range):
            let body = read(entry, range)
            let sha256 = range.map { "\($0.lowerBound)-\($0.upperBound)" }
            return { core, now in core.cachedBodyRead(flight, body, sha256: sha256, now: now) }
        case .storeResponse(let key, let variant, let body, _, let owner):
            kept[key, default: []].removeAll { $0.variant.response.varyKey == variant.response.varyKey }
            let content = body.flatMap { contents[$0] } ?? ""
            kept[key, default: []].append(Kept(variant: variant, content: content, owner: owner))
        case .updateStoredFields(let key, let entry, let response):
            guard let index = kept[key, default: []].firstIndex(where: { $0.variant.entryID == entry }) else {
                return nil
            }
            kept[key]?[index].variant.response = response
        case .discardEntry(let key, let entry): kept[key]?.removeAll { $0.variant.entryID == entry }
        case .invalidateURLs(let urls):
            for key in kept.keys where urls.contains(key.url) {
                kept[key] = kept[key]?.map {
                    var kept = $0
                    kept.variant.response = Self.invalidated(kept.variant.response)
                    return kept
                }
            }
        case .setMaximumSize: break
        }
        return nil
    }

    mutating func removeAll() { kept = [:] }

    private mutating func read(_ entry: CacheEntryID, _ range: Range<Int>?) -> CachedBody {
        guard let found = kept.values.joined().first(where: { $0.variant.entryID == entry }) else { return .missing }
        lastBody += 1
        let range = range ?? 0..<found.content.utf8.count
        contents[BodyID(rawValue: lastBody)] = String(found.content.dropFirst(range.lowerBound).prefix(range.count))
        return .inline(BodyID(rawValue: lastBody))
    }

    private static func invalidated(_ response: StoredResponse) -> StoredResponse {
        StoredResponse(
            status: response.status, fields: response.fields, requestTime: response.requestTime,
            responseTime: response.responseTime, varyKey: response.varyKey, isInvalidated: true)
    }
}

extension FakeCache {
    /// Passes the replies to the actions of a rig to its core until there are none. The actions of all passes remain.
    mutating func answer(_ rig: inout CoreRig) {
        var all = rig.actions
        var next = rig.actions
        while true {
            let replies = next.compactMap { carryOut($0) }
            guard !replies.isEmpty else { break }
            rig.pass { rig in for reply in replies { reply(&rig.core, rig.now) } }
            next = rig.actions
            all += next
        }
        rig.actions = all
    }
}
