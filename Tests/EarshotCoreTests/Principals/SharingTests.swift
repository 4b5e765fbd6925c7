import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Responses between two users with `share-between-users`: the rules of a shared cache, RFC 9111.
struct SharingTests {
    private static let first = ClientID(rawValue: 1)
    private static let second = ClientID(rawValue: 2)
    private static let administrator = ClientID(rawValue: 3)
    private static let url = "http://one/"
    private var rig = CoreRig()
    private var cache = FakeCache()
    private let worker: WorkerID

    init() throws {
        rig.core.shellFeatures.isCaching = true
        rig.core.unixTimeSeconds = 1_000_000
        worker = rig.worker(slots: 64)
        for (id, user) in [(Self.first, "uid:33"), (Self.second, "uid:34"), (Self.administrator, nil)] {
            rig.pass { rig in
                rig.connect(id, user: user.flatMap { PrincipalName($0) })
                rig.send(.hello(Hello(window: 256)), by: id)
            }
        }
        try share(true)
    }

    // MARK: Steps

    private mutating func share(_ isSharing: Bool) throws {
        let words = try #require(SettingWords(["share-between-users", isSharing ? "on" : "off"]))
        rig.pass { $0.send(.changeSetting(words), by: Self.administrator) }
    }

    private mutating func submit(_ clients: [ClientID], _ request: String, _ url: String = Self.url) {
        rig.pass { rig in
            for client in clients { rig.fetch("h", request, url, by: client) { $0.options.retries = 0 } }
        }
        runUntilIdle()
    }

    /// Answers a job. The field `x-fetch` names the fetch.
    private mutating func answer(_ job: Job, _ name: String, status: Int = 200, _ fields: String) {
        let worker = worker
        let length = status < 300 ? 3 : 0
        rig.pass { $0.done(job, by: worker, status: status, length: length, fields: "\(fields)\nx-fetch: \(name)") }
        runUntilIdle()
    }

    /// Passes the cache's replies to the core until there are none. The actions of all passes remain.
    private mutating func runUntilIdle() {
        cache.answer(&rig)
        #expect(rig.core.audit() == [])
    }

    /// Names of the fetches whose responses a client got.
    private func received(by client: ClientID) -> [String] {
        rig.actions.compactMap { action in
            guard case .client(.deliverTerminal(client, let terminal, _)) = action else { return nil }
            return terminal.response.flatMap { HeaderFields(lines: $0.httpFields).firstValue(named: "x-fetch") }
        }
    }

    /// Answers jobs, each of which must be for one user, and returns the names that arrive.
    private mutating func others(_ jobs: [Job]) -> [String] {
        var names: [String] = []
        for job in jobs {
            answer(job, "b", "cache-control: private")
            let responses = [Self.first, Self.second, Self.administrator].map { received(by: $0) }
            #expect(responses.count { !$0.isEmpty } == 1)
            names += responses.joined()
        }
        return names
    }

    private var urls: [String] { rig.jobs.map(\.url).sorted() }

    /// Owners of the responses that were stored, by their principals.
    private var owners: [String] {
        rig.actions.compactMap {
            if case .cache(.storeResponse(_, _, _, _, let owner)) = $0 {
                owner?.description ?? "administrator"
            } else {
                nil
            }
        }
    }

    // MARK: Tests

    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        var status = 200
        let fields: String
        /// Whether two requests that wait for it both get it.
        let isShared: Bool
        /// Whether the cache answers a later request of the other user with it.
        let isReused: Bool

        var testDescription: String { "\(name): \(status) \(fields.debugDescription)" }
    }

    private static let rows = [
        Row(name: "nothing said", fields: "a: b", isShared: true, isReused: false),
        Row(name: "3", fields: "cache-control: max-age=60", isShared: true, isReused: true),
        Row(name: "5.2.2.9", fields: "cache-control: public, max-age=60", isShared: true, isReused: true),
        Row(name: "5.2.2.10", fields: "cache-control: s-maxage=60", isShared: true, isReused: true),
        Row(name: "5.2.2.10", fields: "cache-control: max-age=0, s-maxage=60", isShared: true, isReused: true),
        Row(name: "5.2.2.10", fields: "cache-control: max-age=60, s-maxage=0", isShared: true, isReused: false),
        Row(name: "5.2.2.2", fields: "cache-control: must-revalidate, max-age=60", isShared: true, isReused: true),
        Row(name: "5.2.2.4", fields: "cache-control: no-cache, max-age=60", isShared: true, isReused: false),
        Row(name: "5.2.2.7", fields: "cache-control: private, max-age=60", isShared: false, isReused: false),
        Row(name: "5.2.2.7", fields: "cache-control: Private=\"a\", max-age=60", isShared: false, isReused: false),
        Row(name: "5.2.2.7", fields: "cache-control: public, private", isShared: false, isReused: false),
        Row(name: "5.2.2.7", status: 404, fields: "cache-control: private", isShared: false, isReused: false),
        Row(name: "5.2.2.5", fields: "cache-control: no-store", isShared: false, isReused: false),
        Row(
            name: "5.2.2.3", fields: "cache-control: no-store, must-understand, max-age=60", isShared: true,
            isReused: true),
        Row(name: "7.3", fields: "cache-control: max-age=60\nset-cookie: a=1", isShared: false, isReused: false),
        Row(name: "7.3", fields: "cache-control: public, max-age=60\nSet-Cookie: a", isShared: false, isReused: false),
        Row(name: "4.1", fields: "cache-control: max-age=60\nvary: accept", isShared: true, isReused: true),
        Row(name: "4.1", fields: "cache-control: max-age=60\nvary: accept, *", isShared: false, isReused: false),
        Row(name: "no permission", status: 404, fields: "a: b", isShared: true, isReused: false),
    ]

    @Test("RFC 9111 decides what two users share", arguments: rows)
    mutating func sharing(_ row: Row) throws {
        submit([Self.first, Self.second], "1")
        let job = try #require(rig.jobs.first)
        #expect(rig.jobs.count == 1)
        answer(job, "a", status: row.status, row.fields)
        #expect(received(by: Self.first) == ["a"])
        #expect(received(by: Self.second) == (row.isShared ? ["a"] : []))
        #expect(urls == (row.isShared ? [] : [Self.url]))
        if let own = rig.jobs.first {
            answer(own, "b", status: row.status, row.fields)
            #expect(received(by: Self.first) == [])
            #expect(received(by: Self.second) == ["b"])
        }
        submit([Self.second], "2")
        #expect(received(by: Self.second) == (row.isReused ? ["a"] : []))
        #expect(urls == (row.isReused ? [] : [Self.url]))
    }

    @Test mutating func `all requests of the first user get its response, and those of each other user one`() throws {
        submit([Self.second, Self.first, Self.administrator], "1")
        let job = try #require(rig.jobs.first)
        submit([Self.first, Self.second, Self.administrator], "2")
        #expect(rig.jobs.isEmpty)
        answer(job, "a", "cache-control: private")
        #expect(received(by: Self.second) == ["a", "a"])
        #expect(urls == [Self.url, Self.url])
        let names = others(rig.jobs)
        #expect(names == ["b", "b", "b", "b"])
        #expect(rig.core.records.flights.count == 0)
    }

    @Test(
        "a redirect for one user is followed for that user alone",
        arguments: [
            ("location: http://two/", true),
            ("location: http://two/\ncache-control: private", false),
            ("location: http://two/\ncache-control: no-store", false),
            ("location: http://two/\nset-cookie: a=1", false),
            ("location: http://two/\nvary: *", false),
        ])
    mutating func redirects(_ fields: String, isShared: Bool) throws {
        submit([Self.first, Self.second], "1")
        answer(try #require(rig.jobs.first), "a", status: 302, fields)
        let targets = rig.jobs.filter { $0.url != Self.url }
        #expect(targets.count == 1)
        #expect(rig.jobs.count == (isShared ? 1 : 2))
        // A later request of a third user cannot join what follows the redirect.
        submit([Self.administrator], "2")
        #expect(urls == (isShared ? [] : [Self.url]))
        answer(try #require(targets.first), "b", "cache-control: max-age=60")
        #expect(received(by: Self.first) == ["b"])
        #expect(received(by: Self.second) == (isShared ? ["b"] : []))
        #expect(received(by: Self.administrator) == (isShared ? ["b"] : []))
    }

    @Test mutating func `a response behind a redirect sends other users back to their own URL`() throws {
        submit([Self.first], "1", "http://two/")
        let direct = try #require(rig.jobs.first)
        submit([Self.second, Self.administrator], "1")
        answer(try #require(rig.jobs.first), "a", status: 302, "location: http://two/")
        #expect(rig.jobs.isEmpty, "the target is being fetched")
        answer(direct, "b", "cache-control: private")
        #expect(received(by: Self.first) == ["b"])
        #expect(urls == [Self.url, Self.url])
        let names = others(rig.jobs)
        #expect(names == ["b", "b"])
        #expect(rig.core.records.flights.count == 0)
    }

    @Test mutating func `what the administrator's private cache holds is not for users`() throws {
        try share(false)
        submit([Self.administrator], "1")
        answer(try #require(rig.jobs.first), "a", "cache-control: private, max-age=60")
        submit([Self.administrator], "2")
        #expect(received(by: Self.administrator) == ["a"])
        try share(true)
        submit([Self.first], "1")
        #expect(urls == [Self.url])
    }

    @Test mutating func `a 304 that makes a stored response private ends its sharing`() throws {
        submit([Self.first], "1")
        answer(try #require(rig.jobs.first), "a", "cache-control: max-age=0\netag: \"1\"")
        submit([Self.first, Self.second], "2")
        answer(try #require(rig.jobs.first), "b", status: 304, "cache-control: private\netag: \"1\"")
        #expect(received(by: Self.first) == ["b"])
        #expect(received(by: Self.second) == [])
        #expect(urls == [Self.url])
        #expect(cache.count == 0)
    }

    @Test mutating func `requests that wait while sharing is switched off are separated as well`() throws {
        submit([Self.first, Self.second], "1")
        let job = try #require(rig.jobs.first)
        try share(false)
        answer(job, "a", "cache-control: private")
        #expect(received(by: Self.first) == ["a"])
        #expect(received(by: Self.second) == [])
        #expect(urls == [Self.url])
    }

    @Test mutating func `a kept response for one user has no other user`() throws {
        submit([Self.first], "1")
        let (job, worker) = (try #require(rig.jobs.first), worker)
        rig.pass(unread: [Self.first]) { $0.remove("h", by: Self.first) }
        rig.pass(unread: [Self.first]) { $0.done(job, by: worker, fields: "cache-control: private") }
        rig.pass(unread: [Self.first]) { $0.fetch("h", "1", Self.url, by: Self.second) }
        runUntilIdle()
        #expect(received(by: Self.second) == [])
        #expect(urls == [Self.url])
    }

    @Test mutating func `a stored response takes the room of the user whose request fetched it`() throws {
        let fields = "cache-control: max-age=0, stale-while-revalidate=100\netag: \"1\""
        submit([Self.second, Self.first], "1")
        answer(try #require(rig.jobs.first), "a", fields)
        #expect(owners == ["uid:34"])
        submit([Self.first], "2")
        #expect(received(by: Self.first) == ["a"])
        answer(try #require(rig.jobs.first), "b", fields)
        #expect(owners == ["uid:33"], "a revalidation is for the user of the stale response")
        submit([Self.administrator], "1", "http://two/")
        answer(try #require(rig.jobs.first), "c", "cache-control: max-age=60")
        #expect(owners == ["administrator"])
        try share(false)
        submit([Self.first], "3")
        answer(try #require(rig.jobs.first), "d", "cache-control: private, max-age=60")
        #expect(owners == ["uid:33"])
    }
}
