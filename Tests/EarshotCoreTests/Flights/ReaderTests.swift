import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Requests with different HTTP fields that share a flight: with other conditions, and with `decode: no` as other
/// clients.
struct ReaderTests {
    private var rig = CoreRig()
    private var cache = FakeCache()
    private let client: ClientID
    private let worker: WorkerID
    private var requested = 0
    private let url = "http://o.test/a"
    private let fresh = "cache-control: max-age=100\netag: \"1\""

    init() {
        rig.core.shellFeatures.isCaching = true
        rig.core.unixTimeSeconds = 1_000_000
        client = rig.client(1)
        worker = rig.worker(slots: 64)
    }

    /// Makes a request for each text of fields, in one pass.
    private mutating func submit(
        _ fields: [String], decoding: Bool = false, _ change: (inout Fetch) -> Void = { _ in }
    ) {
        let client = client
        let url = url
        rig.pass { rig in
            for fields in fields {
                requested += 1
                rig.fetch("h", "q\(requested)", url, by: client) { fetch in
                    fetch.options.retries = 0
                    fetch.options.route.decodesBody = decoding
                    fetch.httpFields = Array(fields.utf8)
                    change(&fetch)
                }
            }
        }
        runUntilIdle()
    }

    private mutating func runUntilIdle() {
        cache.answer(&rig)
        #expect(rig.core.audit() == [])
    }

    private mutating func answer(_ job: Job, status: Int = 200, _ fields: String) {
        let worker = worker
        rig.pass { $0.done(job, by: worker, status: status, length: status == 304 ? 0 : 3, fields: fields) }
        runUntilIdle()
    }

    /// Ends all attempts with a response of these fields, until none is assigned.
    ///
    /// - Returns: their number.
    private mutating func answerAll(_ fields: String) -> Int {
        var count = 0
        while !rig.jobs.isEmpty {
            let jobs = rig.jobs
            count += jobs.count
            let worker = worker
            rig.pass { rig in for job in jobs { rig.done(job, by: worker, fields: fields) } }
            runUntilIdle()
        }
        return count
    }

    private var terminals: [String] { rig.terminals(for: client) }

    private var sources: [String?] {
        rig.actions.compactMap { action in
            guard case .client(.deliverTerminal(_, let terminal, _)) = action else { return nil }
            return terminal.response?.source.rawValue
        }
    }

    private var fieldsOfJobs: [String] { rig.jobs.map { String(decoding: $0.httpFields, as: UTF8.self) } }

    // MARK: Conditions

    @Test(
        "a fresh stored response answers a condition: with 304 if it is met",
        arguments: [
            ("if-none-match: \"1\"", 304), ("if-none-match: W/\"1\"", 304), ("if-none-match: \"2\", \"1\"", 304),
            ("if-none-match: *", 304), ("if-none-match: \"2\"", 200), ("if-none-match: nonsense", 200),
            ("if-modified-since: Thu, 01 Jan 1970 00:00:20 GMT", 304),
            ("if-modified-since: Thu, 01 Jan 1970 00:00:19 GMT", 200), ("if-modified-since: nonsense", 200),
            ("if-none-match: \"2\"\nif-modified-since: Thu, 01 Jan 1970 00:00:20 GMT", 200),
            ("if-none-match: \"1\"\nif-modified-since: Thu, 01 Jan 1970 00:00:00 GMT", 304),
        ], [true, false])
    mutating func conditions(_ condition: (String, Int), decoding: Bool) throws {
        submit([""], decoding: decoding)
        answer(
            try #require(rig.jobs.first),
            fresh + "\nlast-modified: Thu, 01 Jan 1970 00:00:20 GMT\ncontent-type: text/plain\ncontent-location: /b")
        submit([condition.0], decoding: decoding)
        #expect(rig.jobs.isEmpty && terminals == ["h q2 \(condition.1)"] && sources == ["cache"])
        guard condition.1 == 304, case .client(.deliverTerminal(_, let terminal, let body))? = rig.actions.last else {
            return
        }
        let response = try #require(terminal.response)
        let fields = String(decoding: response.httpFields, as: UTF8.self)
        #expect(body == nil && response.bodyByteCount == 0 && response.sha256 == nil && response.bodyFilePath == nil)
        #expect(fields.contains("etag: \"1\"") && fields.contains("content-location"))
        #expect(!fields.contains("content-type"))
    }

    @Test mutating func `a condition alone goes to the server, whose 304 is the result`() throws {
        submit(["accept: x\nif-none-match: \"1\""], decoding: true)
        #expect(fieldsOfJobs == ["accept: x\nif-none-match: \"1\""])
        answer(try #require(rig.jobs.first), status: 304, fresh)
        #expect(terminals == ["h q1 304"] && cache.count == 0)
    }

    @Test mutating func `requests with and without conditions share a fetch without any`() throws {
        submit(["if-none-match: \"1\"", "", "if-none-match: \"2\""], decoding: true)
        #expect(fieldsOfJobs == [""])
        answer(try #require(rig.jobs.first), fresh)
        #expect(terminals == ["h q1 304", "h q2 200", "h q3 200"] && cache.count == 1)
    }

    @Test mutating func `equal conditions share their 304, and a request that joined without them is fetched`() throws {
        submit(["if-none-match: \"1\"", "if-none-match: \"1\""], decoding: true)
        #expect(fieldsOfJobs == ["if-none-match: \"1\""])
        let first = try #require(rig.jobs.first)
        submit(["", "if-none-match: \"2\""], decoding: true)
        #expect(rig.jobs.isEmpty)
        answer(first, status: 304, fresh)
        #expect(terminals == ["h q1 304", "h q2 304"] && fieldsOfJobs == [""])
        answer(try #require(rig.jobs.first), fresh)
        #expect(terminals == ["h q3 200", "h q4 200"])
    }

    @Test mutating func `a stale response is validated with its own condition`() throws {
        submit([""], decoding: true)
        answer(try #require(rig.jobs.first), "cache-control: max-age=0\netag: \"1\"")
        submit(["if-none-match: \"0\"", "if-none-match: \"1\""], decoding: true)
        #expect(fieldsOfJobs == ["if-none-match: \"1\""])
        answer(try #require(rig.jobs.first), status: 304, "cache-control: max-age=0\netag: \"1\"")
        #expect(terminals == ["h q2 200", "h q3 304"] && sources == ["revalidated", "revalidated"])
    }

    @Test mutating func `a streaming request gets the response whose bytes it may have read`() throws {
        submit(["", "if-none-match: \"1\""], decoding: true) { $0.options.streams = true }
        answer(try #require(rig.jobs.first), fresh)
        #expect(terminals == ["h q1 200", "h q2 200"])
        submit(["if-none-match: \"1\""], decoding: true) { $0.options.streams = true }
        #expect(terminals == ["h q3 304"])
    }

    @Test(arguments: [404, 301, 206])
    mutating func `only a 200 is compared`(status: Int) throws {
        submit(["if-none-match: \"1\"", ""], decoding: true) {
            $0.options.redirectMode = .manual
            $0.options.route.deliversErrorResponses = true
        }
        answer(try #require(rig.jobs.first), status: status, fresh)
        #expect(terminals == ["h q1 \(status)", "h q2 \(status)"])
    }

    @Test mutating func `long conditions, and those beside a range, go to the server`() {
        let long = "if-none-match: \"\(String(repeating: "x", count: 600))\""
        submit([long, "range: bytes=0-1\nif-none-match: \"1\"", ""], decoding: true)
        #expect(Set(fieldsOfJobs) == [long, "range: bytes=0-1\nif-none-match: \"1\"", ""])
    }

    // MARK: Fields

    private static let shared = [
        "accept: text/html", "accept-encoding: gzip", "accept-language: de", "user-agent: x", "via: 1.1 a",
        "upgrade-insecure-requests: 1", "sec-fetch-dest: image", "Sec-Fetch-Mode: cors", "sec-ch-ua: \"x\"",
        "sec-ch-width: 3", "sec-gpc: 1", "dnt: 1", "save-data: on", "priority: u=1", "referer: http://h/",
        "cache-control: no-transform", "pragma: x",
    ]

    @Test(arguments: shared) mutating func `fields that describe a client do not split a flight`(field: String) {
        submit(["", field])
        #expect(rig.jobs.count == 1)
        submit(["x-a: 1\n\(field)", "x-a: 1"])
        #expect(rig.jobs.count == 1)
        submit(["", field], decoding: true)
        #expect(rig.jobs.count == 2)
    }

    @Test(arguments: [
        "authorization: a", "cookie: a=1", "range: bytes=0-1", "if-match: \"1\"", "if-range: \"1\"",
        "if-unmodified-since: Thu, 01 Jan 1970 00:00:00 GMT", "accept-charset: utf-8", "x-api-key: 1",
        "origin: http://h", "x-forwarded-for: 1.2.3.4", "forwarded: for=1.2.3.4", "from: a@b", "a-im: feed",
        "prefer: x",
        "sec-websocket-key: x", "x-requested-with: x", "content-type: text/plain", "want-digest: x", "max-forwards: 1",
        "proxy-authorization: x",
        "access-control-request-method: GET", "sec-purpose: prefetch", "cache-control: max-stale=9",
    ])
    mutating func `every other field splits a flight`(field: String) {
        submit(["", field])
        #expect(rig.jobs.count == 2)
    }

    @Test mutating func `Cache-Control and Pragma choose the mode`() throws {
        submit([""])
        answer(try #require(rig.jobs.first), fresh)
        submit(["cache-control: no-transform"])
        #expect(sources == ["cache"])
        submit(["cache-control: no-cache", "pragma: no-cache", "cache-control: max-age=0", ""])
        #expect(rig.jobs.count == 1 && fieldsOfJobs[0].contains("if-none-match: \"1\""))
        answer(try #require(rig.jobs.first), status: 304, fresh)
        #expect(terminals.count == 4 && !sources.contains("cache"))
        submit(["cache-control: no-store"])
        #expect(rig.jobs.count == 1 && !fieldsOfJobs[0].contains("if-none-match"))
    }

    @Test mutating func `a response that varies by a field serves those with its value, and the others are fetched`() {
        submit(["user-agent: a", "user-agent: b", "user-agent: a", "user-agent: c", "user-agent: b\naccept: x/y"])
        let first = rig.jobs
        #expect(first.count == 1)
        answer(first[0], "vary: user-agent\n\(fresh)")
        #expect(terminals == ["h q1 200", "h q3 200"])
        #expect(Set(fieldsOfJobs) == ["user-agent: b", "user-agent: c", "user-agent: b\naccept: x/y"])
        #expect(answerAll("vary: user-agent\n\(fresh)") == 3)
        #expect(cache.count == 3)
        submit(["user-agent: c"])
        #expect(sources == ["cache"])
    }

    @Test(arguments: ["", "accept-ranges: none", "vary: user-agent", "content-encoding: gzip"])
    mutating func `a growing body is named to those whom its head suits`(head: String) throws {
        submit(["user-agent: a\naccept-encoding: gzip", "user-agent: b"]) { $0.options.streams = true }
        let job = try #require(rig.jobs.first)
        let part = BodyPart(fileName: "\(worker.rawValue)-\(job.attempt).part", httpFields: Array(head.utf8))
        rig.pass { [worker] rig in
            rig.core.workerMessageReceived(
                .progress(job.attempt, received: 9, total: nil, part: part), body: nil, from: worker, now: rig.now)
        }
        let named = rig.replies(to: client).compactMap { message -> String? in
            guard case .progress(let progress) = message, progress.filePath != nil else { return nil }
            return progress.request.description
        }
        #expect(named == (head == "accept-ranges: none" ? ["q1", "q2"] : ["q1"]))
    }

    @Test mutating func `a response that varies by everything serves only the same fields`() {
        submit(["dnt: 1", "dnt: 1", "dnt: 2"])
        #expect(answerAll("vary: *") == 2)
    }

    @Test(
        "a client that does not accept the coding or type is fetched again, whatever Vary names",
        arguments: [
            ("accept-encoding: gzip", "", "content-encoding: gzip", 2),
            ("accept-encoding: gzip", "accept-encoding: br", "content-encoding: gzip", 2),
            ("accept-encoding: gzip", "accept-encoding: br, *", "content-encoding: gzip", 1),
            ("accept-encoding: gzip", "accept-encoding: br, x-gzip;q=0.1", "content-encoding: gzip", 1),
            ("accept-encoding: gzip", "accept-encoding: gzip;q=0", "content-encoding: gzip", 2),
            ("accept-encoding: gzip", "", "content-type: text/plain", 1),
            ("accept-encoding: gzip", "accept-encoding: br, identity;q=0", "content-type: text/plain", 2),
            ("accept: image/webp", "accept: image/png", "content-type: image/webp", 2),
            ("accept: image/webp", "accept: image/*;q=0.5", "content-type: Image/WebP; x=y", 1),
            ("accept: image/webp", "accept: image/webp;q=0.0, */*", "content-type: image/webp", 2),
            ("accept: image/webp", "", "content-type: image/webp", 1),
        ])
    mutating func accepted(_ first: String, _ second: String, _ response: String, _ fetches: Int) {
        submit([first, second])
        #expect(answerAll("\(fresh)\n\(response)") == fetches)
        #expect(rig.core.ledger.requests.answered == 2)
        // A stored response that the client does not accept is not used either.
        submit([second])
        #expect(rig.jobs.count == fetches - 1 && (sources == ["cache"]) == (fetches == 1))
    }

    @Test mutating func `a flight that only joiners are left of ends if its response suits none`() throws {
        submit(["user-agent: a", "user-agent: b"])
        let job = try #require(rig.jobs.first)
        rig.pass { [client] in $0.remove("h", "q1", by: client) }
        answer(job, "vary: user-agent")
        #expect(terminals.isEmpty && fieldsOfJobs == ["user-agent: b"] && rig.core.records.flights.count == 1)
        #expect(answerAll("vary: user-agent") == 1)
    }

    @Test mutating func `a redirect that varies is followed for each by its own`() throws {
        submit(["user-agent: a", "user-agent: b"])
        answer(try #require(rig.jobs.first), status: 302, "vary: user-agent\nlocation: http://o.test/mobile")
        let jobs = rig.jobs
        #expect(Set(jobs.map(\.url)) == [url, "http://o.test/mobile"])
        let own = try #require(jobs.first { $0.url == url })
        answer(own, status: 302, "vary: user-agent\nlocation: http://o.test/desktop")
        #expect(rig.jobs.map(\.url) == ["http://o.test/desktop"])
        let mobile = try #require(jobs.first { $0.url != url })
        let desktop = try #require(rig.jobs.first)
        answer(mobile, "")
        #expect(terminals == ["h q1 200"])
        answer(desktop, "")
        #expect(terminals == ["h q2 200"])
    }

    @Test mutating func `a long head that joins with other fields is counted until its end`() throws {
        let long = "user-agent: \(String(repeating: "x", count: 2_000))"
        submit(["user-agent: a", long])
        #expect(rig.core.records.requests.requestHeads.totalCountedBytes > 2_000)
        let job = try #require(rig.jobs.first)
        answer(job, "")
        rig.pass { [client] in $0.send(.acknowledge(2), by: client) }
        #expect(rig.core.records.requests.requestHeads == RequestHeads() && rig.core.audit() == [])
    }
}
