import EarshotWire
import Testing

@testable import EarshotCore

/// The list of requests in the reply to `QUERY requests`, and the filter of `QUERY handlers`.
struct RequestListTests {
    private var rig = CoreRig()

    /// The reply without its constant prefix.
    private mutating func list(
        _ page: QueryPage = QueryPage(), _ query: Query = .requests, by client: ClientID
    ) -> String {
        rig.pass { $0.send(.query(query, page), by: client) }
        for case .client(.answerQuery(_, _, let json)) in rig.actions {
            return String(decoding: json.dropFirst(#"{"broker":"0000000000000001","#.utf8.count), as: UTF8.self)
        }
        return ""
    }

    /// The values of a member, in order of occurrence.
    private func values(_ name: String, in json: String) -> [String] {
        let mark = Array("\"\(name)\":\"".utf8)
        let bytes = Array(json.utf8)
        return bytes.indices.filter { bytes[$0...].starts(with: mark) }.map { start in
            String(decoding: bytes[(start + mark.count)...].prefix { $0 != UInt8(ascii: "\"") }, as: UTF8.self)
        }
    }

    /// The request IDs of all pages, and the number of pages.
    private mutating func pages(_ filter: QueryPage, by client: ClientID) -> (ids: [String], count: Int) {
        var page = filter
        var ids: [String] = []
        for count in 1...1_000 {
            let json = list(page, by: client)
            ids += values("request", in: json)
            guard let next = values("requests-next", in: json).first else { return (ids, count) }
            page.cursor = next
        }
        return (ids, .max)
    }

    @Test mutating func `a request has its state, its age and its URL without secrets`() {
        rig.core.limits.originRules.defaultMaximumTransfers = 1
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://user:word@x/1?token=2", by: client)
            rig.fetch("h", "2", "http://x/2", by: client) { $0.options.priority = .high }
        }
        rig.wait(milliseconds: 30)
        #expect(
            list(by: client) == """
                "requests":[{"handler":"h","request":"1","state":"queued","class":"normal","age-ms":30,\
                "url":"http://x/1","attempts":0},{"handler":"h","request":"2","state":"running","class":"high",\
                "age-ms":30,"url":"http://x/2","attempts":1,"worker":1,"received":0}]}
                """)
        let job = rig.jobs.first
        _ = (worker, job)
    }

    @Test mutating func `an ended request has its outcome until it is acknowledged`() {
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", "http://x/1?a", by: client)
            rig.fetch("h", "2", "http://y/2", by: client) { $0.options.retries = 0 }
        }
        let jobs = rig.jobs
        rig.pass { rig in
            rig.done(jobs[0], by: worker)
            rig.failed(jobs[1], "connect-refused", by: worker)
        }
        let json = list(by: client)
        let result = #""state":"delivering","class":"normal","age-ms":0,"url":"http://x/1","attempts":1,"status":200"#
        #expect(json.contains(result + #","received":3}"#))
        let failure = #""state":"delivering","class":"normal","age-ms":0,"url":"http://y/2","attempts":1"#
        #expect(json.contains(failure + #","code":"connect-refused"}"#))
        rig.pass { $0.send(.acknowledge(2), by: client) }
        #expect(list(by: client) == #""requests":[]}"#)
    }

    @Test mutating func `each request is on one page, also with a filter`() {
        rig.core.limits.originRules.defaultMaximumTransfers = 4
        rig.core.limits.maximumExaminedRequestsPerPage = 16
        _ = rig.worker()
        let client = rig.client(1)
        rig.pass { rig in
            for n in 0..<100 { rig.fetch("h/\(n % 2)", "\(n)", "http://x/\(n)", by: client) }
            rig.fetch("h", "100", "http://x/100", by: client)
        }
        for limit in [nil, 1, 7] as [Int?] {
            let all = pages(QueryPage(limit: limit), by: client)
            #expect(Set(all.ids).count == 101 && all.ids.count == 101)
        }
        let odd = pages(QueryPage(handler: HandlerPattern("h/1")), by: client)
        #expect(odd.ids.sorted() == (0..<50).map { "\($0 * 2 + 1)" }.sorted())
        #expect(odd.count == 7, "101 records, of which each page examines 16")
        #expect(pages(QueryPage(handler: HandlerPattern("h/")), by: client).ids.count == 100)
        #expect(pages(QueryPage(handler: HandlerPattern("i")), by: client) == ([], 1))
        let running = pages(QueryPage(state: .running), by: client).ids.count
        #expect((1...4).contains(running))
        #expect(pages(QueryPage(state: .queued), by: client).ids.count == 101 - running)
    }

    @Test mutating func `a page is short however long the URLs are`() {
        let client = rig.client(1)
        let path = String(repeating: "a", count: 4_000)
        rig.pass { rig in for n in 0..<50 { rig.fetch("h", "\(n)", "http://x/\(n)/\(path)", by: client) } }
        let json = list(by: client)
        #expect(json.utf8.count <= rig.core.limits.maximumQueryPageBytes + 5_000)
        #expect(pages(QueryPage(), by: client).ids.count == 50)
    }

    @Test mutating func `removed requests are not listed while they wait for their removal`() {
        let client = rig.client(1)
        let other = rig.client(2)
        rig.pass { rig in for n in 0..<1_000 { rig.fetch("h", "\(n)", "http://x/\(n)", by: client) } }
        rig.pass { $0.remove("h", by: client) }
        #expect(pages(QueryPage(), by: other).ids.isEmpty)
    }

    @Test mutating func `a filter of handlers selects a name or a subtree`() {
        let client = rig.client(1)
        let names = ["a", "a-b", "a/1", "a/1/x", "a/2", "a0", "b"]
        rig.pass { rig in for name in names { rig.send(.subscribe(HandlerPattern(name)!), by: client) } }
        func handlers(_ pattern: String, after: String? = nil, limit: Int? = nil) -> String {
            list(QueryPage(cursor: after, limit: limit, handler: HandlerPattern(pattern)), .handlers, by: client)
        }
        #expect(values("handler", in: handlers("a")) == ["a"])
        #expect(values("handler", in: handlers("a/")) == ["a/1", "a/1/x", "a/2"])
        #expect(values("handler", in: handlers("a/", after: "a/1")) == ["a/1/x", "a/2"])
        #expect(values("handler", in: handlers("a/", after: "A")) == ["a/1", "a/1/x", "a/2"])
        #expect(values("handler", in: handlers("a/", after: "a/2")) == [])
        #expect(values("handler", in: handlers("c")) == [])
        #expect(values("handlers-next", in: handlers("a/", limit: 3)) == [], "the last page says so")
        #expect(values("handlers-next", in: handlers("a/", limit: 2)) == ["a/1/x"])
    }
}
