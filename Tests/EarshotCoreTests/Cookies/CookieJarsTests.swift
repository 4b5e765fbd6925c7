import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The cookie jars in isolation: each event in each phase of a jar, the timer, and the limit.
struct CookieJarsTests {
    private static let now = Tick(nanoseconds: 1_000_000_000)
    private static let later = now.advanced(byMilliseconds: 100)
    private var jars = CookieJars()

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
            method: .get, url: try FetchURL("http://o/", hosts: nil), fields: fields, route: Route())
        request.jar = root
        return request
    }

    /// Jars of which that of the root "r" is in the given phase, with one cookie. Its idle time began at `now`.
    private static func jars(_ phase: Phase) throws -> CookieJars {
        var jars = CookieJars()
        guard phase != .none else { return jars }
        try fill(&jars, "r")
        guard phase == .idle else { return jars }
        _ = jars.rootRemoved("r", keepingMilliseconds: 100, now: now)
        return jars
    }

    private static func fill(_ jars: inout CookieJars, _ root: String) throws {
        _ = jars.withCookies(try request(), of: root, seconds: 0)
        let fields = HeaderFields(lines: Array("set-cookie: \(root)=1\n".utf8))
        jars.store(fields, of: try request(root), suffixes: .unknown, seconds: 0)
    }

    private static func phase(of root: String, in jars: CookieJars) -> Phase {
        jars.used.contains(root) ? .used : jars.idleCount > 0 ? .idle : .none
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
        var jars = try Self.jars(phase)
        #expect(Self.phase(of: "r", in: jars) == phase)
        switch event {
        case .rootAdded: jars.rootAdded("r")
        case .rootRemoved: _ = jars.rootRemoved("r", keepingMilliseconds: 100, now: Self.now)
        case .rootRemovedKeepingNothing:
            #expect(jars.rootRemoved("r", keepingMilliseconds: 0, now: Self.now) == nil)
        case .expireEarly:
            _ = jars.expire(keepingMilliseconds: 100, now: Self.now.advanced(byMilliseconds: 99))
        case .expireLate: #expect(jars.expire(keepingMilliseconds: 100, now: Self.later) == nil)
        case .evict: #expect(jars.makeRoom(for: "s", within: 0) == (phase == .idle))
        }
        #expect(Self.phase(of: "r", in: jars) == expected)
        #expect(jars.checkInvariants() == [])
    }

    @Test mutating func `an empty jar is not kept`() throws {
        _ = jars.withCookies(try Self.request(), of: "r", seconds: 0)
        #expect(jars.used.contains("r"))
        #expect(jars.rootRemoved("r", keepingMilliseconds: 100, now: Self.now) == nil)
        #expect(Self.phase(of: "r", in: jars) == .none)
    }

    @Test mutating func `one timer serves all idle jars`() throws {
        for root in ["r", "s"] { try Self.fill(&jars, root) }
        let removed = jars.rootRemoved("r", keepingMilliseconds: 100, now: Self.now)
        let timer = try #require(removed)
        #expect(timer.end == Self.later && jars.isAwaited(timer.serial))
        let half = Self.now.advanced(byMilliseconds: 50)
        #expect(jars.rootRemoved("s", keepingMilliseconds: 100, now: half) == nil)
        let expired = jars.expire(keepingMilliseconds: 100, now: timer.end)
        let next = try #require(expired)
        #expect(next.end == half.advanced(byMilliseconds: 100))
        #expect(jars.isAwaited(next.serial) && !jars.isAwaited(timer.serial))
        #expect(jars.idleCount == 1 && jars.checkInvariants() == [])
    }

    @Test mutating func `at the limit the oldest idle jar makes room, and a root with a jar needs none`() throws {
        for root in ["r", "s", "t"] { try Self.fill(&jars, root) }
        #expect(jars.makeRoom(for: "u", within: 3) == false)
        #expect(jars.makeRoom(for: "u", within: 4) == true)
        #expect(jars.makeRoom(for: "t", within: 3) == true)
        for root in ["r", "s"] { _ = jars.rootRemoved(root, keepingMilliseconds: 100, now: Self.now) }
        #expect(jars.makeRoom(for: "u", within: 3) == true)
        jars.rootAdded("r")
        jars.rootAdded("s")
        #expect(Array(jars.used).sorted() == ["s", "t"], "the jar of r was evicted")
    }

    @Test mutating func `a jar's cookies go into requests, unless they have a field of their own`() throws {
        try Self.fill(&jars, "r")
        let request = jars.withCookies(try Self.request(), of: "r", seconds: 0)
        #expect(request.jar == "r" && request.fields.first("cookie") == "r=1")
        let own = jars.withCookies(try Self.request(cookie: "x=2"), of: "r", seconds: 0)
        #expect(own.jar == nil && own.fields.first("cookie") == "x=2")
    }

    @Test mutating func `cookies for a root without a used jar are dropped`() throws {
        let fields = HeaderFields(lines: Array("set-cookie: a=1\n".utf8))
        jars.store(fields, of: try Self.request("r"), suffixes: .unknown, seconds: 0)
        jars.store(fields, of: try Self.request(), suffixes: .unknown, seconds: 0)
        #expect(jars.used.isEmpty && jars.checkInvariants() == [])
    }
}
