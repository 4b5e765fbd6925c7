import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Trust scopes of principals: which requests of two users share a fetch or a stored response.
struct PartitionTests {
    private static let first = ClientID(rawValue: 1)
    private static let second = ClientID(rawValue: 2)
    private static let administrator = ClientID(rawValue: 3)
    private var rig = CoreRig()
    private let worker: WorkerID

    init() {
        rig.core.shellFeatures.publicSuffixes = PublicSuffixes { _ in false }
        worker = rig.worker(slots: 64)
        for (id, user) in [(Self.first, "uid:33"), (Self.second, "uid:34"), (Self.administrator, nil)] {
            rig.pass { rig in
                rig.connect(id, user: user.flatMap { PrincipalName($0) })
                rig.send(.hello(Hello()), by: id)
            }
        }
    }

    private mutating func share(_ isSharing: Bool) throws {
        let words = try #require(SettingWords(["share-between-users", isSharing ? "on" : "off"]))
        rig.pass { $0.send(.changeSetting(words), by: Self.administrator) }
    }

    /// The jobs for one request each of two users.
    private mutating func jobs(
        _ url: String = "http://one/", _ clients: [ClientID] = [Self.first, Self.second],
        changing change: (inout Fetch) -> Void = { _ in }
    ) -> [Job] {
        rig.pass { rig in
            for client in clients { rig.fetch("h", "1", url, by: client, change) }
        }
        let jobs = rig.jobs
        rig.pass { rig in
            for client in clients { rig.remove("h", by: client) }
        }
        rig.pass { [worker] rig in
            for job in jobs { rig.failed(job, "cancelled", by: worker) }
        }
        #expect(rig.core.audit() == [])
        return jobs
    }

    @Test mutating func `users share a fetch only if the setting permits it`() throws {
        #expect(jobs().count == 2)
        #expect(jobs("http://one/", [Self.first, Self.administrator]).count == 2)
        try share(true)
        #expect(jobs().count == 1)
        #expect(jobs("http://one/", [Self.first, Self.administrator]).count == 1)
        try share(false)
        #expect(jobs().count == 2)
    }

    @Test mutating func `requests that may identify a user are never shared`() throws {
        try share(true)
        let changes: [(inout Fetch) -> Void] = [
            { $0.httpFields = Array("authorization: Basic YTpi".utf8) },
            { $0.httpFields = Array("cookie: a=1".utf8) },
            { $0.httpFields = Array("x-api-key: 1".utf8) },
            { $0.httpFields = Array("accept: */*\nx-api-key: 1".utf8) },
            { $0.httpFields = Array("if-none-match: \"1\"".utf8) },
            { $0.url = "http://user:secret@one/" },
            { $0.options.usesCookies = true },
            { $0.options.cacheMode = .noStore },
            { $0.httpFields = Array("cache-control: no-store".utf8) },
            { $0.options.streams = true },
            { $0.options.route.proxy = "http://proxy/" },
            { $0.options.route.verifiesServer = false },
            {
                $0.options.method = "POST"
                $0.options.coalesces = false
            },
        ]
        for (index, change) in changes.enumerated() {
            #expect(jobs(changing: change).count == 2, "change \(index)")
        }
        #expect(jobs { $0.httpFields = Array("accept: text/html\nuser-agent: x".utf8) }.count == 1)
        #expect(jobs { $0.options.method = "HEAD" }.count == 1)
    }

    @Test mutating func `a stored response belongs to the user whose request fetched it`() throws {
        rig.core.shellFeatures.isCaching = true
        func partitions(_ rig: inout CoreRig) -> [String] {
            rig.pass { rig in
                for client in [Self.first, Self.second, Self.administrator] {
                    rig.fetch("h", "1", "http://one/", by: client)
                }
            }
            let keys = rig.actions.compactMap {
                if case .cache(.lookUpVariants(_, let key, _)) = $0 { key.partition } else { nil }
            }
            rig.pass { rig in
                for client in [Self.first, Self.second, Self.administrator] { rig.remove("h", by: client) }
            }
            return keys
        }
        #expect(partitions(&rig) == ["uid:33 ", "uid:34 ", ""])
        try share(true)
        #expect(partitions(&rig) == [""])
    }

    @Test mutating func `a redirect stays in the partition of its request`() {
        rig.pass { rig in
            for client in [Self.first, Self.second] { rig.fetch("h", "1", "http://one/", by: client) }
        }
        for job in rig.jobs {
            rig.pass { [worker] in $0.done(job, by: worker, status: 302, fields: "location: http://two/")
            }
            #expect(rig.jobs.map(\.url) == ["http://two/"])
        }
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `cookies of equal roots of two users never meet`() {
        rig.core.unixTimeSeconds = 1_767_225_600
        rig.pass { rig in
            for client in [Self.first, Self.second] {
                rig.fetch("shop", "1", "http://one/", by: client) { $0.options.usesCookies = true }
            }
        }
        let jobs = rig.jobs
        #expect(jobs.count == 2)
        for (job, value) in zip(jobs, ["first", "second"]) {
            rig.pass { [worker] in $0.done(job, by: worker, fields: "set-cookie: a=\(value)") }
        }
        for (client, value) in [(Self.first, "first"), (Self.second, "second")] {
            rig.pass {
                $0.fetch("shop", "2", "http://one/", by: client) { $0.options.usesCookies = true }
            }
            #expect(rig.jobs.map { HeaderFields(lines: $0.httpFields).firstValue(named: "cookie") } == ["a=\(value)"])
        }
        rig.pass {
            $0.fetch("shop", "2", "http://one/", by: Self.administrator) { $0.options.usesCookies = true }
        }
        #expect(rig.jobs.map { HeaderFields(lines: $0.httpFields).firstValue(named: "cookie") } == [nil])
        #expect(rig.core.audit() == [])
    }
}
