import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The cookie jars in isolation: each event in each phase of a jar, the timer, and the limit.
struct CookieJarsTests {
    private static let now = MonotonicTime(nanoseconds: 1_000_000_000)
    private static let later = now.advanced(byMilliseconds: 100)
    private static let most = 1 << 20
    private var jars = CookieJars()
    private var quotas = QuotaBook(limits: QuotaBook.Limits())

    enum Phase: CaseIterable {
        case none, used, idle
    }

    enum Event: CaseIterable {
        case rootAdded, rootRemoved, rootRemovedKeepingNothing, expireEarly, expireLate, evict
    }

    private static func request(_ root: String? = nil, cookie: String? = nil) throws -> HTTPRequest {
        var fields = HeaderFields()
        if let cookie { fields = try HeaderFields(request: Array("cookie: \(cookie)\n".utf8)) }
        var request = HTTPRequest(
            method: .get, url: try FetchURL("http://o/", hostEncoder: nil), fields: fields, route: Route())
        request.cookieJarOwner = root
        return request
    }

    /// Jars of which that of the root "r" is in the given phase, with one cookie. Its idle time began at `now`.
    private static func jars(_ phase: Phase) throws -> Self {
        var own = Self()
        guard phase != .none else { return own }
        try own.fill("r")
        if phase == .idle { _ = own.remove("r") }
        return own
    }

    private mutating func fill(_ root: String, of principal: Handle<Principal> = PrincipalTable.administrator) throws {
        _ = jars.openJar(root, of: principal, within: Self.most, quotas: &quotas)
        try store("\(root)=1", of: root)
    }

    private mutating func store(_ cookie: String, of root: String, within most: Int = most) throws {
        jars.storeCookies(
            HeaderFields(lines: Array("set-cookie: \(cookie)\n".utf8)), from: try Self.request().url, of: root,
            suffixes: .unavailable, seconds: 0, within: most, quotas: &quotas)
    }

    private mutating func remove(_ root: String, now: MonotonicTime = now, keeping time: Int = 100) -> CookieJars
        .Expiry?
    {
        jars.rootRemoved(root, keepingMilliseconds: time, now: now, quotas: &quotas)
    }

    private mutating func expire(now: MonotonicTime) -> CookieJars.Expiry? {
        jars.expire(keepingMilliseconds: 100, now: now, quotas: &quotas)
    }

    /// Faults of the jars and of their counts.
    private var faults: [String] {
        let uses = jars.bytesByPrincipal.mapValues { QuotaBook.Use(cookieBytes: $0) }
        return jars.checkInvariants() + quotas.checkInvariants(expected: uses)
    }

    private static func phase(of root: String, in jars: CookieJars) -> Phase {
        jars.activeRoots.contains(root) ? .used : jars.idleCount > 0 ? .idle : .none
    }

    /// Expected phase; nil for an event that cannot occur in a phase.
    private static func expected(_ event: Event, _ phase: Phase) -> Phase? {
        switch (event, phase) {
        case (.rootAdded, .none): Phase.none
        case (.rootAdded, .idle): .used
        case (.rootAdded, .used): nil
        case (.rootRemoved, .used): .idle
        case (.rootRemoved, .none), (.rootRemovedKeepingNothing, .none), (.rootRemovedKeepingNothing, .used):
            Phase.none
        case (.rootRemoved, .idle), (.rootRemovedKeepingNothing, .idle): nil
        case (.expireEarly, _): phase
        case (.expireLate, .used), (.evict, .used): .used
        case (.expireLate, _), (.evict, _): Phase.none
        }
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leads where the diagram says`(event: Event, phase: Phase) throws {
        guard let expected = Self.expected(event, phase) else { return }
        var own = try Self.jars(phase)
        #expect(Self.phase(of: "r", in: own.jars) == phase)
        switch event {
        case .rootAdded: own.jars.activateJar(of: "r")
        case .rootRemoved: _ = own.remove("r")
        case .rootRemovedKeepingNothing:
            let timer = own.remove("r", keeping: 0)
            #expect(timer == nil)
        case .expireEarly: _ = own.expire(now: Self.now.advanced(byMilliseconds: 99))
        case .expireLate:
            let timer = own.expire(now: Self.later)
            #expect(timer == nil)
        case .evict:
            let isOpen = own.jars.openJar(
                "s", of: PrincipalTable.administrator, within: OwnedJar.emptyJarBytes - 1, quotas: &own.quotas)
            #expect(!isOpen)
        }
        #expect(Self.phase(of: "r", in: own.jars) == expected)
        #expect(own.faults == [])
    }

    @Test mutating func `an empty jar is not kept`() throws {
        #expect(jars.openJar("r", of: PrincipalTable.administrator, within: Self.most, quotas: &quotas))
        #expect(jars.activeRoots.contains("r") && quotas.totalUse.cookieBytes == OwnedJar.emptyJarBytes)
        let timer = remove("r")
        #expect(timer == nil && Self.phase(of: "r", in: jars) == .none && quotas.totalUse.cookieBytes == 0)
    }

    @Test mutating func `one timer serves all idle jars`() throws {
        for root in ["r", "s"] { try fill(root) }
        let removed = remove("r")
        let timer = try #require(removed)
        #expect(timer.expiryTime == Self.later && jars.isCurrentTimer(timer.timerSerial))
        let half = Self.now.advanced(byMilliseconds: 50)
        let second = remove("s", now: half)
        #expect(second == nil)
        let expired = expire(now: timer.expiryTime)
        let next = try #require(expired)
        #expect(next.expiryTime == half.advanced(byMilliseconds: 100))
        #expect(jars.isCurrentTimer(next.timerSerial) && !jars.isCurrentTimer(timer.timerSerial))
        #expect(jars.idleCount == 1 && faults == [])
    }

    @Test mutating func `at the bound the oldest idle jar makes room, and a root with a jar needs none`() throws {
        for root in ["r", "s", "t"] { try fill(root) }
        let full = quotas.totalUse.cookieBytes
        func opens(_ root: String, within bound: Int, _ own: inout Self) -> Bool {
            own.jars.openJar(root, of: PrincipalTable.administrator, within: bound, quotas: &own.quotas)
        }
        #expect(!opens("u", within: full, &self))
        #expect(opens("t", within: full, &self))
        for root in ["r", "s"] { _ = remove(root) }
        #expect(opens("u", within: full, &self))
        jars.activateJar(of: "r")
        jars.activateJar(of: "s")
        #expect(Array(jars.activeRoots).sorted() == ["s", "t", "u"], "the jar of r was evicted")
        #expect(faults == [])
    }

    @Test mutating func `a user at its part loses its own jars and cookies, and no other user does`() throws {
        let (a, b) = (Handle<Principal>(1), Handle<Principal>(2))
        let part = 4_096
        try fill("b", of: b)
        _ = remove("b")
        for root in ["r", "s"] { try fill(root, of: a) }
        _ = remove("r")
        let value = String(repeating: "v", count: 1_000)
        for number in 0..<4 { try store("c\(number)=\(value)", of: "s", within: 4 * part) }
        #expect(quotas.currentUse(by: a).cookieBytes <= part && jars.jar(of: "r") == nil)
        #expect(jars.jar(of: "s")?.cookies(now: 0).contains { $0.name == Array("c3".utf8) } == true)
        while jars.openJar("t\(jars.activeRoots.count)", of: a, within: 4 * part, quotas: &quotas) {}
        #expect(quotas.currentUse(by: a).cookieBytes > part - OwnedJar.emptyJarBytes)
        #expect(jars.jar(of: "b")?.count == 1)
        #expect(faults == [])
    }

    @Test mutating func `a jar's cookies go into requests, unless they have a field of their own`() throws {
        try fill("r")
        let request = jars.withCookies(try Self.request(), of: "r", seconds: 0)
        #expect(request.cookieJarOwner == "r" && request.fields.firstValue(named: "cookie") == "r=1")
        let own = jars.withCookies(try Self.request(cookie: "x=2"), of: "r", seconds: 0)
        #expect(own.cookieJarOwner == nil && own.fields.firstValue(named: "cookie") == "x=2")
    }

    @Test mutating func `cookies for a root without a used jar are dropped`() throws {
        try store("a=1", of: "r")
        #expect(jars.activeRoots.isEmpty && faults == [])
    }
}
