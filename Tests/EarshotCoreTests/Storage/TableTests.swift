import EarshotWire
import Testing

@testable import EarshotCore

/// Replies to QUERY with pages of a table.
@Suite struct TableTests {
    var rig = CoreRig()

    /// The reply to a query for one page.
    private mutating func answer(_ query: Query, _ page: QueryPage = QueryPage(), to client: ClientID) -> String {
        rig.pass { $0.send(.query(query, page), by: client) }
        for case .client(.answerQuery(client, query, let json)) in rig.actions {
            return String(decoding: json, as: UTF8.self)
        }
        return ""
    }

    /// The values of a member, in order of occurrence.
    private func values(_ name: String, in json: String) -> [String] {
        json.components(after: "\"\(name)\":\"")
    }

    /// All pages of a table.
    private mutating func pages(_ name: String, _ query: Query, limit: Int? = nil, to client: ClientID) -> [String] {
        var pages: [String] = []
        var page = QueryPage(limit: limit)
        while pages.count < 1_000 {
            let json = answer(query, page, to: client)
            pages.append(json)
            guard let next = values("\(name)-next", in: json).first else { break }
            page.cursor = next
        }
        return pages
    }

    @Test mutating func `handlers come in the order of their names, each once`() {
        let client = rig.client(1)
        let names = (0..<2_500).map { "h/\(($0 &* 7_919) % 10_007)" }
        rig.pass { rig in for name in names { rig.send(.subscribe(HandlerPattern(name)!), by: client) } }
        for limit in [nil, 1_000, 100, 7] as [Int?] {
            let pages = pages("handlers", .handlers, limit: limit, to: client)
            #expect(pages.flatMap { values("handler", in: $0) } == names.sorted())
            #expect(pages.allSatisfy { values("handler", in: $0).count <= limit ?? 1_000 })
            #expect(
                pages.allSatisfy { $0.utf8.count <= rig.core.limits.maximumQueryPageBytes + 1_000 }, "a page is short")
        }
    }

    @Test mutating func `a page goes on behind a handler that is gone`() {
        let client = rig.client(1)
        rig.pass { rig in for name in ["a", "b", "c"] { rig.send(.subscribe(HandlerPattern(name)!), by: client) } }
        rig.pass { $0.send(.unsubscribe(HandlerPattern("b")!), by: client) }
        #expect(values("handler", in: answer(.handlers, QueryPage(cursor: "b"), to: client)) == ["c"])
        #expect(values("handler", in: answer(.handlers, QueryPage(cursor: "z"), to: client)) == [])
    }

    @Test mutating func `a full page that is the last one says so`() {
        let client = rig.client(1)
        rig.pass { rig in for name in ["a", "b"] { rig.send(.subscribe(HandlerPattern(name)!), by: client) } }
        #expect(!answer(.handlers, QueryPage(limit: 2), to: client).contains("next"))
        #expect(answer(.handlers, QueryPage(limit: 1), to: client).contains(#""handlers-next":"a""#))
    }

    @Test mutating func `origins, workers and settings have pages, and status has the first`() {
        let client = rig.client(1)
        for number in 1...5 { _ = rig.worker(UInt64(number), slots: 1) }
        rig.pass { rig in for n in 1...50 { rig.fetch("h", "\(n)", "http://x\(n)/", by: client) } }
        let origins = pages("origins", .origins, limit: 7, to: client).flatMap { values("origin", in: $0) }
        #expect(Set(origins) == Set((1...50).map { "http://x\($0)" }))
        #expect(origins.count == 50)
        #expect(pages("workers", .workers, limit: 2, to: client).count == 3)
        let settings = pages("settings", .settings, limit: 3, to: client).flatMap { values("name", in: $0) }
        #expect(settings == rig.core.settings.rows.map(\.name))
        let status = answer(.status, QueryPage(limit: 4), to: client)
        #expect(values("origin", in: status).count == 4)
        #expect(values("workers-next", in: status).count == 1 && values("origins-next", in: status).count == 1)
    }

    @Test(arguments: ["x", "-1", "-9223372036854775808", "2147483647", "99999999999999999999"])
    mutating func `a cursor that no answer told is no harm`(after: String) {
        let client = rig.client(1)
        _ = rig.worker()
        for query in [Query.origins, .workers, .settings, .handlers, .requests, .status] {
            #expect(answer(query, QueryPage(cursor: after), to: client).hasSuffix("}"))
        }
    }
}

extension String {
    /// The text between each `mark` and the next quotation mark.
    fileprivate func components(after mark: String) -> [String] {
        var found: [String] = []
        var rest = utf8[...]
        let mark = Array(mark.utf8)
        while let start = rest.firstIndex(of: mark[0]) {
            rest = rest[start...]
            guard rest.starts(with: mark) else {
                rest = rest.dropFirst()
                continue
            }
            rest = rest.dropFirst(mark.count)
            let value = rest.prefix { $0 != UInt8(ascii: "\"") }
            found.append(String(decoding: value, as: UTF8.self))
            rest = rest[value.endIndex...]
        }
        return found
    }
}
