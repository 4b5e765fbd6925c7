import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Decisions of the core about lookups, stored responses and revalidation.
struct CacheTests {
    private var rig = CoreRig()
    private var cache = FakeCache()
    private let client: ClientID
    private let worker: WorkerID
    private var requested = 0
    private let url = "http://o.test/a"
    private let fresh = "cache-control: max-age=100\netag: \"1\""
    private let stale = "cache-control: max-age=0\netag: \"1\""

    init() {
        rig.core.shellFeatures.isCaching = true
        rig.core.unixTimeSeconds = 1_000_000
        client = rig.client(1)
        worker = rig.worker()
    }

    /// Sends a request, and lets the cache reply. The actions of all passes remain.
    private mutating func submit(
        _ url: String, as mode: CacheMode = .default, fields: String = "", answered: Bool = true,
        _ change: (inout Fetch) -> Void = { _ in }
    ) {
        requested += 1
        let request = "q\(requested)"
        let client = client
        rig.pass { rig in
            rig.fetch("h", request, url, by: client) { fetch in
                fetch.options.cacheMode = mode
                fetch.options.retries = 0
                fetch.httpFields = Array(fields.utf8)
                change(&fetch)
            }
        }
        if answered { runUntilIdle() }
    }

    /// Passes the cache's replies to the core until there are none.
    private mutating func runUntilIdle() {
        cache.answer(&rig)
        #expect(rig.core.audit() == [])
    }

    private mutating func answer(_ job: Job, status: Int = 200, _ fields: String, length: Int = 3) {
        let worker = worker
        rig.pass { $0.done(job, by: worker, status: status, length: status == 304 ? 0 : length, fields: fields) }
        runUntilIdle()
    }

    private mutating func keep(_ fields: String, status: Int = 200, url: String? = nil) throws {
        submit(url ?? self.url)
        answer(try #require(rig.jobs.first), status: status, fields)
        #expect(cache.count > 0)
    }

    private var sources: [String] {
        rig.actions.compactMap { action in
            guard case .client(.deliverTerminal(_, let terminal, _)) = action else { return nil }
            if case .failed(let failure) = terminal.outcome, failure.errorPageResponse == nil { return failure.code }
            return terminal.response?.source.rawValue
        }
    }

    private var terminals: [Terminal] {
        rig.actions.compactMap { if case .client(.deliverTerminal(_, let terminal, _)) = $0 { terminal } else { nil } }
    }

    private var fieldsOfJob: [String] {
        rig.jobs.first.map { String(decoding: $0.httpFields, as: UTF8.self).split(separator: "\n").map { String($0) } }
            ?? []
    }

    // MARK: Decisions

    @Test mutating func `what is fresh is used, and no worker hears of it`() throws {
        try keep(fresh)
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.jobs.isEmpty)
    }

    @Test mutating func `a range of a fresh response comes from the cache`() throws {
        try keep("\(fresh)\ncontent-length: 3")
        submit(url, fields: "range: bytes=1-9")
        #expect(sources == ["cache"] && rig.jobs.isEmpty)
        guard case .result(status: 206, let response)? = terminals.first?.outcome else {
            Issue.record("\(terminals)")
            return
        }
        let fields = String(decoding: response.httpFields, as: UTF8.self).split(separator: "\n")
        #expect(response.bodyByteCount == 2 && response.sha256 == "1-3")
        #expect(fields.contains("content-range: bytes 1-2/3") && fields.contains("content-length: 2"))
    }

    @Test mutating func `a range beyond a fresh response is refused from the cache`() throws {
        try keep(fresh)
        submit(url, fields: "range: bytes=3-")
        #expect(rig.jobs.isEmpty)
        guard case .failed(let failure)? = terminals.first?.outcome else {
            Issue.record("\(terminals)")
            return
        }
        #expect(failure.code == "http-status" && failure.status == 416)
        let fields = String(decoding: failure.errorPageResponse?.httpFields ?? [], as: UTF8.self)
        #expect(fields.contains("content-range: bytes */3"))
    }

    @Test(
        "a range is fetched if the stored response is stale, coded or another version, or the answer is chosen otherwise",
        arguments: [
            ("cache-control: max-age=0\netag: \"1\"", "range: bytes=0-1"),
            ("cache-control: max-age=9\ncontent-encoding: gzip", "range: bytes=0-1"),
            ("cache-control: max-age=9\netag: \"1\"", "range: bytes=0-1\nif-range: \"2\""),
            ("cache-control: max-age=9\netag: W/\"1\"", "range: bytes=0-1\nif-range: W/\"1\""),
            ("cache-control: max-age=9\netag: \"1\"", "range: bytes=0-0,2-2"),
            ("cache-control: max-age=9\netag: \"1\"", "range: bytes=0-1\naccept-encoding: br"),
            ("cache-control: max-age=9\netag: \"1\"", "range: bytes=0-1\nif-none-match: \"1\""),
        ])
    mutating func fetchedRanges(_ stored: String, _ requested: String) throws {
        try keep(stored)
        submit(url, fields: requested)
        #expect(rig.jobs.count == 1 && fieldsOfJob == requested.split(separator: "\n").map { String($0) })
    }

    @Test mutating func `a range with the validator of the stored response comes from the cache`() throws {
        try keep(fresh)
        submit(url, fields: "range: bytes=0-0\nif-range: \"1\"")
        #expect(sources == ["cache"] && rig.jobs.isEmpty)
    }

    @Test mutating func `a stale answer is asked about with conditions that are not part of the key`() throws {
        try keep(stale)
        submit(url)
        #expect(fieldsOfJob == ["if-none-match: \"1\""])
        let job = try #require(rig.jobs.first)
        requested += 1
        submit(url)
        #expect(rig.jobs.isEmpty, "it joins the one that is validated")
        answer(job, status: 304, stale)
        #expect(sources == ["revalidated", "revalidated"])
        #expect(cache.count == 1)
    }

    @Test mutating func `another answer takes the place of a stale one`() throws {
        try keep(stale)
        submit(url)
        answer(try #require(rig.jobs.first), "cache-control: max-age=100\netag: \"2\"")
        #expect(sources == ["network"])
        #expect(cache.count == 1)
        submit(url)
        #expect(sources == ["cache"])
    }

    @Test mutating func `an answer that may not be kept takes the stale one away`() throws {
        try keep(stale)
        submit(url)
        answer(try #require(rig.jobs.first), "cache-control: no-store")
        #expect(cache.count == 0)
    }

    @Test mutating func `an answer whose body was left out is not kept, and takes a stale one away`() throws {
        try keep(stale)
        submit(url)
        let job = try #require(rig.jobs.first)
        let worker = worker
        var completion = Completion(attempt: job.attempt, status: 404)
        completion.httpFields = Array(fresh.utf8)
        completion.isBodyOmitted = true
        rig.pass { $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now) }
        runUntilIdle()
        #expect(sources == ["network"])
        #expect(cache.count == 0)
    }

    @Test(arguments: RedirectMode.allCases)
    mutating func `a job says whether a redirect is its result`(mode: RedirectMode) throws {
        submit(url) { $0.options.redirectMode = mode }
        #expect(try #require(rig.jobs.first).redirectMode == mode)
    }

    @Test mutating func `a 304 that makes the kept header fields too many is a failure`() throws {
        func fields(_ name: String) -> String { "\n\(name): " + String(repeating: "v", count: 30_000) }
        try keep(stale + fields("x-first"))
        submit(url)
        answer(try #require(rig.jobs.first), status: 304, "etag: \"1\"" + fields("x-second"))
        #expect(sources == ["protocol-error"])
    }

    @Test mutating func `a 304 about something else is followed by a question without conditions`() throws {
        try keep(stale)
        submit(url)
        answer(try #require(rig.jobs.first), status: 304, "etag: \"other\"")
        #expect(fieldsOfJob == [])
        answer(try #require(rig.jobs.first), stale)
        #expect(sources == ["network"])
    }

    @Test mutating func `explicit and default requests share a fetch, whichever came first`() throws {
        for modes in [[CacheMode.default, .explicit, .default], [.explicit, .default, .explicit]] {
            let assigned = rig.core.ledger.flights.assignedAttempts
            for mode in modes { submit("\(url)/\(modes[0])", as: mode) }
            #expect(rig.core.ledger.flights.assignedAttempts == assigned + 1)
        }
    }

    @Test mutating func `an explicit request gets nothing of estimated freshness, also behind a redirect`() throws {
        let estimated = "last-modified: Tue, 30 Dec 1969 00:00:00 GMT\ndate: Mon, 12 Jan 1970 13:46:40 GMT"
        try keep(estimated, url: "http://o.test/b")
        submit("http://o.test/b")
        #expect(sources == ["cache"])
        submit("http://o.test/b", as: .explicit)
        #expect(fieldsOfJob == ["if-modified-since: Tue, 30 Dec 1969 00:00:00 GMT"])
        answer(try #require(rig.jobs.first), status: 304, estimated)
        #expect(sources == ["revalidated"])
        // The default request is being fetched when an explicit one joins it.
        submit(url)
        let job = try #require(rig.jobs.first)
        submit(url, as: .explicit)
        #expect(rig.jobs.isEmpty)
        answer(job, status: 302, "location: /b")
        #expect(fieldsOfJob == ["if-modified-since: Tue, 30 Dec 1969 00:00:00 GMT"])
    }

    @Test mutating func `an explicit request does not join a flight that reads the cache`() throws {
        try keep("last-modified: Tue, 30 Dec 1969 00:00:00 GMT\ndate: Mon, 12 Jan 1970 13:46:40 GMT")
        submit(url, answered: false)
        submit(url, as: .explicit)
        #expect(sources == [])
        #expect(fieldsOfJob == ["if-modified-since: Tue, 30 Dec 1969 00:00:00 GMT"])
    }

    @Test mutating func `only-if-cached never asks a server`() throws {
        submit(url, as: .onlyIfCached)
        #expect(sources == ["not-cached"])
        #expect(rig.jobs.isEmpty)
        try keep(stale)
        submit(url, as: .onlyIfCached)
        #expect(sources == ["cache"])
    }

    @Test(arguments: [CacheMode.noStore, .reload])
    mutating func `no-store and reload are not looked up`(mode: CacheMode) throws {
        try keep(fresh)
        submit(url, as: mode, answered: false)
        #expect(!rig.actions.contains { if case .cache(.lookUpVariants) = $0 { true } else { false } })
        #expect(fieldsOfJob.contains("cache-control: no-cache"))
        let before = cache.kept.values.joined().map(\.variant.entryID)
        answer(try #require(rig.jobs.first), fresh)
        #expect((before == cache.kept.values.joined().map(\.variant.entryID)) == (mode == .noStore))
    }

    @Test(arguments: [(4, "store"), (3, "invalidate"), (0, nil)] as [(Int, String?)])
    mutating func `a reload replaces a stored response, or invalidates it if the cache has no room for the new one`(
        size: Int, expected: String?
    ) throws {
        try keep(fresh)
        let setting = try #require(SettingWords(["cache-size", "\(size)"]))
        rig.send(.changeSetting(setting), by: client)
        submit(url, as: .reload)
        answer(try #require(rig.jobs.first), fresh)
        let changes = rig.actions.compactMap { action -> String? in
            switch action {
            case .cache(.storeResponse): "store"
            case .cache(.invalidateURLs): "invalidate"
            default: nil
            }
        }
        #expect(changes == [expected].compactMap(\.self))
    }

    @Test(arguments: ["range: bytes=0-1,3-4", "if-match: \"1\"", "accept-encoding: gzip"])
    mutating func `a request that chooses its answer goes past it`(field: String) throws {
        try keep(fresh)
        submit(url, fields: field, answered: false)
        #expect(!rig.actions.contains { if case .cache(.lookUpVariants) = $0 { true } else { false } })
        #expect(fieldsOfJob == [field])
    }

    @Test mutating func `another scope finds nothing`() throws {
        try keep(fresh)
        submit(url, fields: "authorization: a")
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `a redirect is followed from the cache`() throws {
        try keep(fresh, url: "http://o.test/b")
        submit(url)
        answer(try #require(rig.jobs.first), status: 301, fresh + "\nlocation: /b")
        #expect(sources == ["cache"])
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.jobs.isEmpty)
    }

    @Test mutating func `an error page that is kept is a failure and is not tried again`() throws {
        try keep(fresh, status: 404)
        submit(url) { $0.options.retries = 5 }
        #expect(sources == ["cache"])
        #expect(rig.terminals(for: client) == ["h q2 http-status"])
    }

    @Test(arguments: [true, false])
    mutating func `an error page that is kept is a result only for a request that asks for one`(isKeptAsResult: Bool)
        throws
    {
        submit(url) { $0.options.route.deliversErrorResponses = isKeptAsResult }
        answer(try #require(rig.jobs.first), status: 404, fresh)
        #expect(rig.terminals(for: client) == [isKeptAsResult ? "h q1 404" : "h q1 http-status"])
        #expect(cache.count == 1)
        submit(url) { $0.options.retries = 5 }
        #expect(rig.terminals(for: client) == ["h q2 http-status"])
        submit(url) { $0.options.route.deliversErrorResponses = true }
        #expect(rig.terminals(for: client) == ["h q3 404"] && sources == ["cache"])
    }

    @Test mutating func `a stale response takes the place of an error that would be a result`() throws {
        try keep(stale + "\ncache-control: stale-if-error=100")
        submit(url) { $0.options.route.deliversErrorResponses = true }
        answer(try #require(rig.jobs.first), status: 503, "")
        #expect(rig.terminals(for: client) == ["h q2 200"] && sources == ["cache"])
        submit(url) { $0.options.route.deliversErrorResponses = true }
        answer(try #require(rig.jobs.first), status: 404, "")
        #expect(rig.terminals(for: client) == ["h q3 404"] && sources == ["network"])
    }

    // MARK: Staleness

    @Test mutating func `a stale answer is used while one flight brings it up to date`() throws {
        try keep("cache-control: max-age=0, stale-while-revalidate=100\netag: \"1\"")
        submit(url)
        #expect(sources == ["cache"])
        let job = try #require(rig.jobs.first)
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.jobs.isEmpty, "one for a key")
        answer(job, fresh)
        #expect(sources == [])
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.core.records.flights.count == 0)
    }

    @Test mutating func `a revalidation that fails, or whose worker dies, ends without a trace`() throws {
        try keep("cache-control: max-age=0, stale-while-revalidate=100\netag: \"1\"")
        submit(url)
        let worker = worker
        let job = try #require(rig.jobs.first)
        rig.pass { $0.failed(job, "reset", by: worker) }
        #expect(rig.core.records.flights.count == 0)
        submit(url)
        #expect(rig.jobs.count == 1)
        rig.pass { rig in rig.core.workerLost(worker, now: rig.now) }
        _ = rig.worker(2)
        rig.pass()
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a stale answer makes up for a server in trouble`() throws {
        try keep("cache-control: max-age=0, stale-if-error=100\netag: \"1\"")
        submit(url)
        answer(try #require(rig.jobs.first), status: 500, "")
        #expect(sources == ["cache"])
        #expect(rig.terminals(for: client) == ["h q2 200"])
    }

    @Test mutating func `RFC 5861: a stale answer without a validator makes up for a server in trouble`() throws {
        try keep("cache-control: max-age=0, stale-if-error=100")
        submit(url)
        #expect(fieldsOfJob == [])
        answer(try #require(rig.jobs.first), status: 500, "")
        #expect(sources == ["cache"])
        #expect(rig.terminals(for: client) == ["h q2 200"])
        submit(url)
        let (job, worker) = (try #require(rig.jobs.first), worker)
        rig.pass { $0.failed(job, "reset", by: worker) }
        runUntilIdle()
        #expect(sources == ["cache"])
        submit(url)
        answer(try #require(rig.jobs.first), "cache-control: no-store")
        #expect(sources == ["network"])
        #expect(cache.count == 0)
    }

    @Test mutating func `RFC 5861: a stale answer without a validator is used while another is fetched`() throws {
        try keep("cache-control: max-age=0, stale-while-revalidate=100")
        submit(url)
        #expect(sources == ["cache"])
        #expect(fieldsOfJob == [])
        answer(try #require(rig.jobs.first), fresh)
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.jobs.isEmpty)
    }

    @Test mutating func `a HEAD brings a stale answer without a validator up to date`() throws {
        try keep("cache-control: max-age=0, stale-if-error=100")
        submit(url) { $0.options.method = "HEAD" }
        let (job, worker) = (try #require(rig.jobs.first), worker)
        rig.pass { $0.done(job, by: worker, length: 0, fields: "cache-control: max-age=100") }
        runUntilIdle()
        #expect(sources == ["network"])
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.jobs.isEmpty)
    }

    @Test mutating func `an error of the server does not take the place of what is kept`() throws {
        try keep(stale)
        submit(url)
        answer(try #require(rig.jobs.first), status: 500, fresh)
        #expect(rig.terminals(for: client) == ["h q2 http-status"])
        submit(url)
        #expect(fieldsOfJob == ["if-none-match: \"1\""])
    }

    @Test mutating func `an error is kept if no other attempt follows it`() throws {
        submit(url) { $0.options.retries = 1 }
        answer(try #require(rig.jobs.first), status: 500, fresh)
        #expect(cache.count == 0)
        rig.wait(milliseconds: 1_000)
        answer(try #require(rig.jobs.first), status: 500, fresh)
        #expect(cache.count == 1)
        submit(url)
        #expect(sources == ["cache"])
        #expect(rig.terminals(for: client) == ["h q2 http-status"])
    }

    // MARK: Strictness

    @Test mutating func `a reload does not join what began before it, and others join the reload`() throws {
        submit(url)
        let first = try #require(rig.jobs.first)
        submit(url, as: .reload)
        #expect(rig.jobs.count == 1)
        let reload = try #require(rig.jobs.first)
        submit(url, as: .noCache)
        #expect(rig.jobs.isEmpty)
        answer(first, fresh)
        #expect(sources == ["network"])
        answer(reload, fresh)
        #expect(sources == ["network", "shared"])
    }

    // MARK: Timing

    @Test mutating func `what nobody wants any more does not wait for the cache, and its answer is nothing`() throws {
        submit(url, answered: false)
        let late = try #require(rig.actions.compactMap { cache.carryOut($0) }.first)
        let client = client
        rig.pass { $0.remove("h", by: client) }
        #expect(rig.core.records.flights.count == 0)
        rig.pass { rig in late(&rig.core, rig.now) }
        #expect(rig.jobs.isEmpty)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a body that comes too late is given back`() throws {
        try keep(fresh)
        submit(url, answered: false)
        let reported = try #require(rig.actions.compactMap { cache.carryOut($0) }.first)
        rig.pass { rig in reported(&rig.core, rig.now) }
        let late = try #require(rig.actions.compactMap { cache.carryOut($0) }.first)
        let client = client
        rig.pass { $0.remove("h", by: client) }
        rig.pass { rig in late(&rig.core, rig.now) }
        #expect(rig.releasedBodies == 1)
    }

    @Test mutating func `an answer whose body is gone is fetched anew`() throws {
        try keep(fresh)
        submit(url, answered: false)
        let reported = try #require(rig.actions.compactMap { cache.carryOut($0) }.first)
        rig.pass { rig in reported(&rig.core, rig.now) }
        cache.removeAll()
        runUntilIdle()
        #expect(rig.jobs.count == 1)
    }

    @Test mutating func `a broker without a cache asks none`() throws {
        rig.core.shellFeatures.isCaching = false
        submit(url, answered: false)
        #expect(rig.actions.allSatisfy { if case .cache(.lookUpVariants) = $0 { false } else { true } })
        let worker = worker
        let job = try #require(rig.jobs.first)
        rig.pass { [fresh] in $0.done(job, by: worker, fields: fresh) }
        #expect(rig.actions.allSatisfy { if case .cache(.storeResponse) = $0 { false } else { true } })
        submit(url, as: .onlyIfCached, answered: false)
        #expect(sources == ["not-cached"])
    }
}
