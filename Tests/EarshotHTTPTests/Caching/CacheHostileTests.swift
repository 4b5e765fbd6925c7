import EarshotCore
import EarshotHTTP
import EarshotWire
import Testing

/// Random responses through the life cycle of a stored response: nothing traps, and all decisions satisfy their
/// invariants.
@Suite struct CacheHostileTests {
    private static let pieces = [
        "cache-control: ", "max-age=", "no-cache", "no-store", "must-revalidate", "immutable", "stale-if-error=",
        "stale-while-revalidate=9", "max-stale", "min-fresh=", "only-if-cached", "public", ",", "=", "\"", "5", "600",
        "99999999999999999999", "\n", "vary: ", "accept", "*", "etag: ", "\"a\"", "W/\"a\"", "age: ", "date: ",
        "expires: ", "last-modified: ", "Sun, 06 Nov 1994 08:49:37 GMT", "Sat, 05 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:50:37 GMT", "connection: ", "content-length: 5", "location: /y", "\u{0}", "é", " ",
    ].map { Array($0.utf8) }

    private static func fields(_ generator: inout SplitMix64Generator) -> HeaderFields {
        let names = ["cache-control: ", "vary: ", "etag: ", "expires: ", "age: ", "date: ", "last-modified: ", ""]
        var lines: [UInt8] = []
        for _ in 0..<Int.random(in: 0...4, using: &generator) {
            lines += (names.randomElement(using: &generator) ?? "").utf8
            for _ in 0..<Int.random(in: 0...5, using: &generator) {
                lines += pieces.randomElement(using: &generator) ?? []
            }
            lines.append(0x0a)
        }
        return HeaderFields(lines: lines)
    }

    private static func time(_ generator: inout SplitMix64Generator) -> Int64 {
        switch Int.random(in: 0..<8, using: &generator) {
        case 0: Int64(bitPattern: generator.next())
        default: CacheWorld.now + Int64.random(in: -100...1000, using: &generator)
        }
    }

    /// Whether everything derived from the fields of a stored response is the same after the fields were read from disk.
    private static func isAsRead(_ stored: StoredResponse) -> Bool {
        let read = StoredResponse(
            status: stored.status, fields: stored.fields, requestTime: stored.requestTime,
            responseTime: stored.responseTime, varyKey: stored.varyKey)
        let (rule, now) = (CacheRule(), stored.responseTime)
        return read.revalidationConditions == stored.revalidationConditions && read.hasValidator == stored.hasValidator
            && read.age(now: now) == stored.age(now: now) && rule.lifetime(of: read) == rule.lifetime(of: stored)
            && rule.isUsable(read, now: now) == rule.isUsable(stored, now: now)
    }

    @Test(arguments: 0..<8 as Range<UInt64>)
    func `no answer and no clock makes the cache trap or forget what was said`(_ seed: UInt64) throws {
        var generator = SplitMix64Generator(seed: seed)
        let rule = CacheRule()
        let (empty, url) = (HeaderFields(), try FetchURL("http://a.example/x"))
        var counts = [0, 0, 0]
        for _ in 0..<4000 {
            let request = HTTPRequest(
                url: url, fields: Bool.random(using: &generator) ? empty : Self.fields(&generator))
            let status = [200, 301, 302, 404, 503, -1].randomElement(using: &generator) ?? 200
            let response = Self.fields(&generator)
            let time = Self.time(&generator)
            let decision = rule.storeDecision(
                status: status, response: response, to: request, mode: .default, requestTime: time,
                responseTime: Self.time(&generator))
            guard case .store(var stored) = decision else { continue }
            counts[0] += 1
            let control = CacheControl(response: response)
            #expect(!control.noStore || control.mustUnderstand, "seed \(seed): \(response.bytes)")
            #expect(!stored.revalidationConditions.bytes.contains(0), "seed \(seed): \(response.bytes)")
            #expect(stored.fields.bytes.count <= HTTPLimits.headerBytes)
            #expect(Self.isAsRead(stored), "seed \(seed): \(response.bytes)")

            let newer = Self.fields(&generator)
            switch rule.freshening(
                of: stored, by304: newer, to: request, requestTime: time, responseTime: Self.time(&generator))
            {
            case .replaceStored(let updated):
                counts[1] += 1
                stored = updated
                let kept = CacheControl(response: updated.fields)
                #expect(!kept.noStore || kept.mustUnderstand)
                #expect(Self.isAsRead(updated), "seed \(seed): \(newer.bytes)")
            case .useOnceThenRemove, .otherRepresentation, .noEffect: break
            }
            _ = rule.freshening(
                of: stored, byHead: 200, newer, to: request, requestTime: time, responseTime: Self.time(&generator))
            _ = rule.invalidatedURLs(status: 200, response: newer, to: request)

            let now = Self.time(&generator)
            let mode = CacheMode.allCases.randomElement(using: &generator) ?? .default
            let later = HTTPRequest(url: url, fields: Self.fields(&generator))
            _ = rule.mayUseStale(stored, for: later, mode: mode, after: .connectionReset, status: nil, now: now)
            let variants = [stored, stored.invalidated()]
            guard case .useVariant(let index, _) = rule.decision(for: later, mode: mode, stored: variants, now: now)
            else {
                continue
            }
            counts[2] += 1
            #expect(index == 0 && mode != .noStore && mode != .reload, "seed \(seed): \(stored.fields.bytes)")
            guard mode == .default || mode == .noCache else { continue }
            #expect(!CacheControl(response: stored.fields).noCache, "seed \(seed): \(stored.fields.bytes)")
            guard CacheControl(request: later.fields).maxStale == nil else { continue }
            let isBehind = CacheControl(response: stored.fields).staleWhileRevalidate != nil
            #expect(rule.isFresh(stored, now: now) || isBehind, "seed \(seed): \(stored.fields.bytes)")
        }
        #expect(counts[0] > 1000 && counts[1] > 200 && counts[2] > 50, "the generator tests too little: \(counts)")
    }
}
