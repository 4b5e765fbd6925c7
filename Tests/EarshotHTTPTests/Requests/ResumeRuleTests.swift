import EarshotCore
import EarshotHTTP
import Testing

/// Resumption of interrupted bodies: when bytes may be joined.
@Suite struct ResumeRuleTests {
    private let rule = ResumeRule()
    private let now: Int64 = 1_767_225_600

    private func fields(_ lines: String) -> HeaderFields { HeaderFields(lines: Array(lines.utf8)) }

    private func request(_ lines: String = "", method: HTTPMethod = .get) throws -> HTTPRequest {
        HTTPRequest(method: method, url: try FetchURL("http://a.example/x"), fields: fields(lines))
    }

    private func kept(_ bytes: Int64 = 400, of total: Int64? = 1000, _ lines: String = "etag: \"a\"") -> PartialBody {
        PartialBody(keptBytes: bytes, totalBytes: total, response: fields(lines), now: now)
    }

    @Test(
        "a Content-Range is read or refused",
        arguments: [
            Case("RFC 9110 14.4", "bytes 42-1233/1234", "42-1234/1234" as String?),
            Case("RFC 9110 14.4, length unknown", "bytes 42-1233/*", "42-1234/-"),
            Case("RFC 9110 14.4, unsatisfied", "bytes */1234", "-/1234"),
            Case("RFC 9110 14.4, first 500 bytes", "bytes 0-499/1234", "0-500/1234"),
            Case("RFC 9110 14.4, last 500 bytes", "bytes 734-1233/1234", "734-1234/1234"),
            Case("RFC 9110 14.1, unit in any case", "Bytes 0-0/1", "0-1/1"),
            Case("RFC 9110 14.4, end beyond the whole", "bytes 0-1234/1234", nil),
            Case("RFC 9110 14.4, end before start", "bytes 5-4/1234", nil),
            Case("RFC 9110 14.4, another unit", "lines 0-4/1234", nil),
            Case("RFC 9110 14.4, neither", "bytes */*", nil),
            Case("RFC 9110 14.4, no total", "bytes 0-4", nil),
            Case("RFC 9110 14.4, empty total", "bytes 0-4/", nil),
            Case("RFC 9110 14.4, no last", "bytes 0-/5", nil),
            Case("RFC 9110 14.4, no first", "bytes -4/5", nil),
            Case("RFC 9110 14.4, blanks", "bytes  0-4/5", nil),
            Case("RFC 9110 14.4, equals sign", "bytes=0-4/5", nil),
            Case("RFC 9110 14.4, sign", "bytes +0-4/5", nil),
            Case("RFC 9110 14.4, two", "bytes 0-4/9, bytes 5-8/9", nil),
            Case("largest", "bytes 0-9223372036854775806/*", "0-9223372036854775807/-"),
            Case("end of the last byte would overflow", "bytes 0-9223372036854775807/*", nil),
            Case("overflow", "bytes 0-4/99999999999999999999", nil),
            Case("unit alone", "bytes", nil),
            Case("nothing", "", nil),
        ])
    func contentRange(_ row: Case<String?>) {
        let range = ContentRange(row.input)
        let text = range.map { range in
            let bytes = range.byteRange.map { "\($0.lowerBound)-\($0.upperBound)" } ?? "-"
            return "\(bytes)/\(range.totalBytes.map(String.init) ?? "-")"
        }
        #expect(text == row.expected)
    }

    @Test func `what is missing is asked for on the condition that nothing has changed`() throws {
        let requested = try #require(rule.rangeRequestFields(toResume: kept(), of: request("accept: image/*")))
        #expect(requested == fields("range: bytes=400-999\nif-range: \"a\"\naccept-encoding: identity"))
        for (bytes, total) in [(400, nil), (1000, 1000)] as [(Int64, Int64?)] {
            #expect(
                rule.rangeRequestFields(toResume: kept(bytes, of: total), of: try request())?.firstValue(named: "range")
                    == "bytes=\(bytes)-")
        }
        let modified = "last-modified: Sunday, 06-Nov-94 08:49:37 GMT"
        let byDate = kept(400, of: nil, "\(modified)\ndate: Sun, 06 Nov 1994 08:49:38 GMT")
        let requestedByDate = try #require(rule.rangeRequestFields(toResume: byDate, of: request()))
        #expect(
            requestedByDate.firstValue(named: "if-range") == "Sunday, 06-Nov-94 08:49:37 GMT",
            "the date goes back as it came")
    }

    @Test(
        "the whole is asked for where the rest might be something else's",
        arguments: [
            Case("RFC 9110 13.1.5, weak tag", "etag: W/\"a\"", 400 as Int64),
            Case("RFC 9110 8.8, no validator", "", 400),
            Case("RFC 9110 8.4, encoded", "etag: \"a\"\ncontent-encoding: gzip", 400),
            Case("RFC 9110 8.4, encoded twice", "etag: \"a\"\ncontent-encoding: identity, br", 400),
            Case("nothing kept", "etag: \"a\"", 0),
            Case("less than nothing kept", "etag: \"a\"", -1),
            Case("more kept than there is", "etag: \"a\"", 1001),
        ])
    func isRequestedFromStart(_ row: Case<Int64>) throws {
        #expect(rule.rangeRequestFields(toResume: kept(row.expected, row.input), of: try request()) == nil)
    }

    private func kept(_ bytes: Int64, _ lines: String) -> PartialBody { kept(bytes, of: 1000, lines) }

    @Test func `a request that chooses its answer is not resumed`() throws {
        for lines in ["Range: bytes=5-", "If-Match: \"a\"", "if-anything: x", "Accept-Encoding: br"] {
            #expect(rule.rangeRequestFields(toResume: kept(), of: try request(lines)) == nil, "\(lines)")
        }
        #expect(rule.rangeRequestFields(toResume: kept(), of: try request(method: .head)) == nil)
        #expect(rule.rangeRequestFields(toResume: kept(), of: try request(method: .post)) == nil)
        #expect(rule.rangeRequestFields(toResume: kept(), of: try request("ifx: 1\naccept: a/b")) != nil)
    }

    @Test(
        "a 206 is joined only if it goes on with the same representation where the kept bytes end",
        arguments: [
            Case("all as asked", "content-range: bytes 400-999/1000\netag: \"a\"", true),
            Case("with its length", "content-range: bytes 400-999/1000\netag: \"a\"\ncontent-length: 600", true),
            Case("total not told again", "content-range: bytes 400-999/*\netag: \"a\"", true),
            Case("another tag", "content-range: bytes 400-999/1000\netag: \"b\"", false),
            Case("weak tag", "content-range: bytes 400-999/1000\netag: W/\"a\"", false),
            Case("no tag", "content-range: bytes 400-999/1000", false),
            Case("two tags", "content-range: bytes 400-999/1000\netag: \"a\"\netag: \"b\"", false),
            Case("starts earlier", "content-range: bytes 399-999/1000\netag: \"a\"", false),
            Case("starts later", "content-range: bytes 401-999/1000\netag: \"a\"", false),
            Case("another total", "content-range: bytes 400-999/1001\netag: \"a\"", false),
            Case("beyond the total", "content-range: bytes 400-1000/*\netag: \"a\"", false),
            Case("no range", "etag: \"a\"", false),
            Case("unsatisfied", "content-range: bytes */1000\netag: \"a\"", false),
            Case("two ranges", "content-range: bytes 400-999/1000\ncontent-range: bytes 0-9/1000\netag: \"a\"", false),
            Case("another length", "content-range: bytes 400-999/1000\netag: \"a\"\ncontent-length: 599", false),
            Case("broken length", "content-range: bytes 400-999/1000\netag: \"a\"\ncontent-length: x", false),
            Case("encoded", "content-range: bytes 400-999/1000\netag: \"a\"\ncontent-encoding: gzip", false),
            Case("several parts", "content-type: multipart/byteranges; boundary=x\netag: \"a\"", false),
        ])
    func continuation(_ row: Case<Bool>) {
        let outcome = rule.outcome(status: 206, response: fields(row.input), kept: kept(), now: now)
        #expect(outcome == (row.expected ? .append(from: 400, to: 1000, total: 1000) : .mismatch))
    }

    @Test func `a 206 may bring less than asked for, and tell a total that was not known`() {
        let response = fields("content-range: bytes 400-499/1000\netag: \"a\"")
        let outcome = rule.outcome(status: 206, response: response, kept: kept(400, of: nil), now: now)
        #expect(outcome == .append(from: 400, to: 500, total: 1000))
        let unknown = fields("content-range: bytes 400-499/*\netag: \"a\"")
        let open = rule.outcome(status: 206, response: unknown, kept: kept(400, of: nil), now: now)
        #expect(open == .append(from: 400, to: 500, total: nil))
    }

    @Test func `a date joins only if it is strong on both sides`() {
        let modified = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT"
        let later = "date: Sun, 06 Nov 1994 08:49:38 GMT"
        let range = "content-range: bytes 400-999/1000"
        let kept = kept(400, "\(modified)\n\(later)")
        func outcome(_ lines: String) -> ResumeOutcome {
            rule.outcome(status: 206, response: fields("\(range)\n\(lines)"), kept: kept, now: now)
        }
        #expect(outcome("\(modified)\n\(later)") == .append(from: 400, to: 1000, total: 1000))
        #expect(outcome(modified) == .mismatch)
        #expect(outcome("\(modified)\n\(later)\netag: \"new\"") == .mismatch)
        #expect(outcome("last-modified: Sun, 06 Nov 1994 08:49:36 GMT\n\(later)") == .mismatch)
    }

    @Test(
        "a 416 ends the transfer only if nothing can be missing",
        arguments: [
            Case("the length that the first answer told", "content-range: bytes */1000", ResumeOutcome.alreadyComplete),
            Case("and the same tag", "content-range: bytes */1000\netag: \"a\"", .alreadyComplete),
            Case("but another tag", "content-range: bytes */1000\netag: \"b\"", .mismatch),
            Case("but a broken tag", "content-range: bytes */1000\netag: b", .mismatch),
            Case("another length", "content-range: bytes */999", .mismatch),
            Case("no length", "etag: \"a\"", .mismatch),
            Case("bytes after all", "content-range: bytes 0-999/1000", .mismatch),
        ])
    func unsatisfied(_ row: Case<ResumeOutcome>) {
        #expect(rule.outcome(status: 416, response: fields(row.input), kept: kept(1000), now: now) == row.expected)
    }

    @Test func `a length that nobody told before needs the same tag to be believed`() {
        let kept = kept(1000, of: nil)
        let bare = fields("content-range: bytes */1000")
        #expect(rule.outcome(status: 416, response: bare, kept: kept, now: now) == .mismatch)
        let tagged = fields("content-range: bytes */1000\netag: \"a\"")
        #expect(rule.outcome(status: 416, response: tagged, kept: kept, now: now) == .alreadyComplete)
    }

    @Test func `other answers take and leave nothing`() {
        for status in [Int.min, 0, 204, 304, 301, 404, 412, 503, .max] {
            let outcome = rule.outcome(status: status, response: fields("etag: \"a\""), kept: kept(), now: now)
            #expect(outcome == .notAResumption)
        }
        #expect(rule.outcome(status: 200, response: fields("etag: \"a\""), kept: kept(), now: now) == .startOver)
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `no answer makes it trap or join what does not fit`(_ seed: UInt64) {
        var generator = SplitMix64Generator(seed: seed)
        let pieces = [
            "content-range: ", "bytes ", "400-999/1000", "400-", "-", "/", "*", "999", "9223372036854775807",
            "99999999999999999999", "\netag: ", "\"a\"", "W/", "\ncontent-length: 600", "\n", "\u{0}", "é",
        ].map { Array($0.utf8) }
        var joined = 0
        for _ in 0..<5_000 {
            var lines = Array("content-range: bytes 400-999/1000\netag: \"a\"".utf8)
            for _ in 0..<Int.random(in: 0...3, using: &generator) {
                let start = Int.random(in: 0...lines.count, using: &generator)
                let end = min(lines.count, start + Int.random(in: 0...3, using: &generator))
                lines.replaceSubrange(start..<end, with: pieces.randomElement(using: &generator) ?? [])
            }
            let total: Int64? = ([nil, 1000, .max] as [Int64?]).randomElement(using: &generator) ?? nil
            let kept = kept(400, of: total)
            _ = rule.outcome(status: 416, response: HeaderFields(lines: lines), kept: kept, now: now)
            let outcome = rule.outcome(status: 206, response: HeaderFields(lines: lines), kept: kept, now: now)
            guard case .append(let from, let to, let whole) = outcome else { continue }
            joined += 1
            #expect(from == 400 && to > from && to <= whole ?? .max, "seed \(seed): \(lines)")
        }
        #expect(joined > 250, "the generator makes too few answers that fit")
    }

    @Test func `a beginning is kept by a strong validator, without a coding, of a plain GET`() throws {
        func isKept(_ lines: String, status: Int = 200, _ requested: String = "") throws -> Bool {
            rule.partialBody(
                keptBytes: 400, status: status, response: fields(lines), of: try request(requested), now: now) != nil
        }
        #expect(try isKept("etag: \"a\"\ncontent-length: 1000"))
        #expect(try isKept("etag: \"a\""))
        #expect(try isKept("last-modified: Wed, 31 Dec 2025 00:00:00 GMT\ndate: Wed, 31 Dec 2025 00:00:01 GMT"))
        #expect(try !isKept("etag: W/\"a\""))
        #expect(try !isKept("last-modified: Wed, 31 Dec 2025 00:00:00 GMT"))
        #expect(try !isKept("content-length: 1000"))
        #expect(try !isKept("etag: \"a\"\ncontent-encoding: gzip"))
        #expect(try !isKept("etag: \"a\"", status: 203))
        #expect(try !isKept("etag: \"a\"\ncontent-length: 399"))
        #expect(try !isKept("etag: \"a\"\ncontent-length: 1000\ncontent-length: 1001"))
        #expect(try !isKept("etag: \"a\"", "range: bytes=0-9"))
        #expect(try !isKept("etag: \"\u{e4}\""))
    }

    @Test func `a strong validator is the same after it was told on`() {
        for lines in [
            "etag: \"a\"",
            "last-modified: Wed, 31 Dec 2025 00:00:00 GMT\ndate: Wed, 31 Dec 2025 00:00:01 GMT",
        ] {
            let validator = Validator(response: fields(lines), now: now)
            let reported = validator.ifRange.flatMap { Validator(ifRange: $0, now: now) }
            #expect(reported?.isStronglyEqual(to: validator) == true)
            #expect(reported?.ifRange == validator.ifRange)
        }
        #expect(Validator(ifRange: "W/\"a\"", now: now) == nil)
        #expect(Validator(ifRange: "yesterday", now: now) == nil)
    }

    @Test func `the whole has the first response's fields, brought up to date, and a length of its own`() {
        let first = fields("content-type: image/png\netag: \"a\"\ncontent-length: 1000\nx-hit: 1")
        let latest = fields("content-range: bytes 400-999/1000\ncontent-length: 600\netag: \"a\"\nx-hit: 2")
        let whole = rule.mergedFields(of: first, completedBy: latest, length: 1000)
        #expect(whole == fields("content-type: image/png\netag: \"a\"\nx-hit: 2\ncontent-length: 1000"))
        #expect(rule.mergedFields(of: first, completedBy: nil, length: 1000).firstValue(named: "x-hit") == "1")
    }
}
