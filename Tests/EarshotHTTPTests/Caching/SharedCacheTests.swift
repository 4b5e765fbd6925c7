import EarshotHTTP
import EarshotWire
import Testing

/// Rules of a shared cache where they differ from those of a private one.
@Suite struct SharedCacheTests {
    private let rule = CacheRule(isShared: true)

    private func storing(_ lines: String, status: Int = 200) throws -> StoreDecision {
        rule.storeDecision(
            status: status, response: CacheWorld.fields(lines), to: try CacheWorld.request(), mode: .default,
            requestTime: CacheWorld.now, responseTime: CacheWorld.now)
    }

    private func use(_ lines: String, after seconds: Int64) throws -> CacheDecision {
        let stored = try CacheWorld.stored("\(lines)\netag: \"a\"")
        return rule.decision(
            for: try CacheWorld.request(), mode: .default, stored: [stored], now: CacheWorld.now + seconds)
    }

    @Test(
        "a response for one user is neither kept nor shared",
        arguments: [
            Case(
                "RFC 9111 5.2.2.7", "cache-control: private",
                StoreDecision.Reason.privateResponse as StoreDecision.Reason?),
            Case("RFC 9111 5.2.2.7, with names", "cache-control: max-age=5, private=\"x\"", .privateResponse),
            Case("RFC 9111 5.2.2.7, beside public", "cache-control: public\ncache-control: PRIVATE", .privateResponse),
            Case("RFC 9111 7.3", "Set-Cookie: a=b\ncache-control: public", .privateResponse),
            Case("RFC 9111 5.2.2.5", "cache-control: no-store", .noStore),
            Case("RFC 9111 4.1", "vary: *", .varyWildcard),
            Case("RFC 9111 5.2.2.3", "cache-control: must-understand, no-store", nil),
            Case("RFC 9111 4.1, names", "vary: accept", nil),
            Case("RFC 9111 3, nothing said", "", nil),
        ])
    func personal(_ row: Case<StoreDecision.Reason?>) throws {
        let decision = try storing(row.input)
        let reason: StoreDecision.Reason? = if case .refuse(let reason) = decision { reason } else { nil }
        #expect(reason == row.expected)
        #expect(CacheRule.mayBeShared(CacheWorld.fields(row.input)) == (row.expected == nil))
    }

    @Test(
        "s-maxage overrides every other lifetime",
        arguments: [
            Case("RFC 9111 4.2.1", "cache-control: s-maxage=60", 60 as Int64),
            Case("RFC 9111 4.2.1, shorter", "cache-control: max-age=90, s-maxage=60", 60),
            Case("RFC 9111 4.2.1, longer", "cache-control: s-maxage=60\ncache-control: max-age=0", 60),
            Case("RFC 9111 4.2.1, Expires", "cache-control: s-maxage=60\nexpires: 0", 60),
            Case("RFC 9111 4.2.1, broken", "cache-control: s-maxage=x, max-age=60", 0),
            Case("RFC 9111 4.2.1, different", "cache-control: s-maxage=60, s-maxage=90", 0),
            Case("RFC 9111 4.2.1, absent", "cache-control: max-age=60", 60),
        ])
    func lifetime(_ row: Case<Int64>) throws {
        let stored = try CacheWorld.stored(row.input)
        #expect(rule.lifetime(of: stored) == row.expected)
        #expect(rule.isFresh(stored, now: CacheWorld.now) == (row.expected > 0))
    }

    @Test func `s-maxage permits the storage of an error`() throws {
        guard case .store = try storing("cache-control: s-maxage=60", status: 500) else {
            Issue.record("not stored")
            return
        }
        #expect(try storing("cache-control: max-age=60, s-maxage=0", status: 500) == .refuse(.noExplicitPermission))
    }

    @Test(
        "a stale response is used only if no directive for shared caches forbids it",
        arguments: [
            ("max-age=60, stale-while-revalidate=60", true), ("s-maxage=60, stale-while-revalidate=60", false),
            ("max-age=60, proxy-revalidate, stale-while-revalidate=60", false),
            ("max-age=60, must-revalidate, stale-while-revalidate=60", false),
        ])
    func stale(_ control: String, isUsed: Bool) throws {
        guard case .useVariant = try use("cache-control: \(control)", after: 59) else {
            Issue.record("fresh, not used")
            return
        }
        switch try use("cache-control: \(control)", after: 61) {
        case .useAndRevalidate: #expect(isUsed)
        case .validate: #expect(!isUsed)
        default: Issue.record("neither")
        }
        let other = try CacheWorld.stored("cache-control: \(control), stale-if-error=60")
        let isKept = rule.mayUseStale(
            other, for: try CacheWorld.request(), mode: .default, after: .timeout, status: nil,
            now: CacheWorld.now + 61)
        #expect(isKept == isUsed)
    }

    @Test(arguments: ["cache-control: private, max-age=60", "cache-control: max-age=60\nset-cookie: a=b"])
    func `what a private cache has kept for one user is not used`(_ lines: String) throws {
        #expect(try use(lines, after: 1) == .fetch(adding: HeaderFields()))
        let stored = try CacheWorld.stored("\(lines)\netag: \"a\"")
        let decision = CacheRule().decision(
            for: try CacheWorld.request(), mode: .default, stored: [stored], now: CacheWorld.now + 1)
        #expect(decision == .useVariant(0))
    }

    @Test func `a 304 that makes a response private has it used once`() throws {
        let stored = try CacheWorld.stored("cache-control: max-age=0\netag: \"a\"")
        func freshening(_ rule: CacheRule) throws -> Freshening {
            rule.freshening(
                of: stored, by304: CacheWorld.fields("cache-control: private\netag: \"a\""),
                to: try CacheWorld.request(), requestTime: CacheWorld.now, responseTime: CacheWorld.now)
        }
        guard case .useOnceThenRemove = try freshening(rule), case .replaceStored = try freshening(CacheRule()) else {
            Issue.record("\(try freshening(rule))")
            return
        }
    }
}
