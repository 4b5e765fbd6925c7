import EarshotClient
import EarshotWire
import Testing

@testable import earshot

/// A sample with the numbers of the test.
private func sample(
    seconds: Double = 1, broker: String = "b", submitted: Int = 10, requested: Int = 10, used: Int = 5, joined: Int = 2,
    handlers: [(name: String, pending: Int, answered: Int)] = []
) throws -> TopSample {
    let status = """
        {"broker":"\(broker)","phase":"serving","requests":{"submitted":\(submitted),"answered":3,\
        "failed":{"timeout":2,"reset":1},"removed":0,"pending":4},"flights":{"started":8,"joined":\(joined)},\
        "cache":{"lookups":\(requested),"used":\(used)},"queue":{"high":1,"normal":2,"low":0,"background":0},\
        "flights-now":{"running":3,"queued":1},"clients":2,"handlers":\(handlers.count),\
        "workers":[{"pid":71,"phase":"ready","slots":64,"running":3},{"pid":72,"phase":"draining","slots":64,"running":0}],\
        "origins":[{"origin":"http://a","running":1,"limit":6,"flights":1},\
        {"origin":"http://b","running":2,"limit":6,"flights":9,"cooling-ms":2500}]}
        """
    let rows = handlers.map {
        """
        {"handler":"\($0.name)","subscribers":1,"requests":{"submitted":9,"answered":\($0.answered),"failed":{"timeout":1},\
        "removed":0,"orphaned":0,"pending":\($0.pending)}}
        """
    }
    let answer = try #require(JSONValue(Array(#"{"handlers":[\#(rows.joined(separator: ","))]}"#.utf8)))
    let value = try #require(JSONValue(Array(status.utf8)))
    return try #require(TopSample(value, HandlerRow.rows(answer), seconds: seconds))
}

@Suite struct TopSampleTests {
    @Test func `numbers that a user may not see are no zeros`() throws {
        let status =
            #"{"broker":"b","phase":"serving","requests":{"submitted":1,"answered":1,"failed":{},"removed":0,"pending":0},"clients":1,"handlers":1}"#
        let value = try #require(JSONValue(Array(status.utf8)))
        let first = try #require(TopSample(value, [], seconds: 1))
        let second = try #require(TopSample(value, [], seconds: 2))
        let fields = second.fields(since: first, time: "now")
        let missing = fields.filter { $0.value == nil }.map(\.name)
        #expect(
            missing == [
                "high", "normal", "low", "background", "queued", "running", "backing-off", "workers", "slots",
                "bytes/s",
                "cache-percent", "shared-percent",
            ])
        #expect(fields.first { $0.name == "pending" }?.value == "0")
        var view = TopView()
        view.showSample(second)
        let screen = view.renderScreen(columns: 100, rows: 12).map(\.text)
        #expect(screen.contains("queue     high -  normal -  low -  background -"))
        #expect(screen.contains("workers   -"))
    }

    @Test func `rates and shares are those since the sample before`() throws {
        let first = try sample(seconds: 1, submitted: 10, requested: 10, used: 5, joined: 2)
        let second = try sample(seconds: 3, submitted: 20, requested: 14, used: 8, joined: 2)
        #expect(second.rate(since: first) { $0.count("requests.submitted") } == 5)
        #expect(second.percent(since: first, TopSample.cacheUses, of: TopSample.cacheLookups) == 75)
        #expect(second.percent(since: nil, TopSample.cacheUses, of: TopSample.cacheLookups) == 57)
        #expect(
            second.percent(since: first, TopSample.joinedRequests, of: TopSample.attachedRequests) == nil,
            "no flight began")
        #expect(second.failedCount == 3)
        #expect(second.slotCount == 128)
    }

    @Test func `counters of another broker are not compared`() throws {
        let first = try sample(seconds: 1, broker: "b", submitted: 100)
        let second = try sample(seconds: 2, broker: "c", submitted: 10)
        #expect(second.rate(since: first) { $0.count("requests.submitted") } == nil)
        #expect(second.percent(since: first, TopSample.joinedRequests, of: TopSample.attachedRequests) == 20)
    }

    @Test func `a line has the same fields with and without rates`() throws {
        let first = try sample()
        let second = try sample(seconds: 2)
        let names = first.fields(since: nil, time: "t").map(\.name)
        #expect(second.fields(since: first, time: "t").map(\.name) == names)
        #expect(names.first == "time" && names.contains("submitted/s"))
        #expect(first.fields(since: nil, time: "t").first { $0.name == "submitted/s" }?.value == nil)
    }

    @Test(arguments: [
        (0.0, "0.0"), (0.04, "0.0"), (3.25, "3.3"), (99.94, "99.9"), (99.96, "100"), (123456.7, "123457"),
    ])
    func `a rate has at most three digits after which it has no fraction`(rate: Double, text: String) {
        #expect(TopSample.rateText(rate) == text)
    }
}

@Suite struct TopKeyTests {
    @Test func `arrows, letters and control keys are decoded`() {
        #expect(TopKey.keys(in: Array("q\u{1b}[A\u{1b}[B\u{1b}OA".utf8)) == [.character("q"), .up, .down, .up])
        #expect(TopKey.keys(in: Array("\u{1b}".utf8)) == [.escape])
        #expect(TopKey.keys(in: Array("\u{1b}[1;5C\u{1b}[3~x\r\u{7f}".utf8)) == [.character("x"), .enter, .backspace])
        #expect(TopKey.keys(in: [0x1b, UInt8(ascii: "[")]) == [])
        #expect(TopKey.keys(in: [0, 0xff, 0xc3]) == [])
    }
}

@Suite struct TopViewTests {
    private static let names = [("b/1", 5, 10), ("a/1", 7, 30), ("c", 5, 20)]

    private func view(_ names: [(name: String, pending: Int, answered: Int)] = names) throws -> TopView {
        var view = TopView()
        view.showSample(try sample(handlers: names))
        return view
    }

    /// Handlers on the screen, in their order.
    private func handlers(_ view: TopView, columns: Int = 80, rows: Int = 40) -> [String] {
        let lines = view.renderScreen(columns: columns, rows: rows).map(\.text)
        let start = lines.firstIndex { $0.hasPrefix("  HANDLER") } ?? lines.count
        return lines.dropFirst(start + 1).dropLast().compactMap { line in
            line.split(separator: " ").first { $0 != ">" }.map { String($0) }
        }
    }

    private func selected(_ view: TopView) -> String? {
        view.renderScreen(columns: 80, rows: 40).first { $0.style == .selected }?.text
    }

    @Test(arguments: [(80, 24), (200, 60), (30, 10), (10, 4), (1, 1), (80, 1), (3, 2)])
    func `the screen has the size of the terminal`(columns: Int, rows: Int) throws {
        let lines = try view().renderScreen(columns: columns, rows: rows)
        #expect(lines.count == rows)
        #expect(lines.allSatisfy { $0.text.count <= columns })
    }

    @Test func `the counters, the workers and the origins are shown`() throws {
        let text = try view().renderScreen(columns: 100, rows: 40).map(\.text)
        #expect(text[1] == "requests  pending 4  answered 3  failed 3  removed 0")
        #expect(text[3] == "queue     high 1  normal 2  low 0  background 0")
        #expect(text[4] == "flights   running 3  queued 1", "others only if there are any")
        #expect(text[5] == "ratios    cache - now, 50 % in all  shared - now, 20 % in all")
        #expect(text[6] == "workers   71 3/64  72 draining 0/64")
        let origins = try #require(text.firstIndex { $0.hasPrefix("  ORIGIN") })
        #expect(text[origins + 1].hasPrefix("  http://b") && text[origins + 1].hasSuffix("2       6       7      2s"))
        #expect(text[origins + 2].hasPrefix("  http://a"))
    }

    @Test func `handlers are sorted by each column in turn`() throws {
        var view = try view()
        #expect(handlers(view) == ["a/1", "b/1", "c"])
        _ = view.handleKey(.character("s"))
        #expect(view.sort == .answered)
        #expect(handlers(view) == ["a/1", "c", "b/1"])
        for _ in 0..<3 { _ = view.handleKey(.character("s")) }
        #expect(view.sort == .name)
        view.showSample(try sample(seconds: 2, handlers: [("b/1", 5, 15), ("a/1", 7, 30), ("c", 5, 21)]))
        for _ in 0..<4 { _ = view.handleKey(.character("s")) }
        #expect(view.sort == .rate)
        #expect(handlers(view) == ["b/1", "c", "a/1"])
        _ = view.handleKey(.character("s"))
        #expect(handlers(view) == ["a/1", "b/1", "c"])
    }

    @Test func `a filter selects by name until Escape`() throws {
        var view = try view()
        for key in "/1".map(TopKey.character) { _ = view.handleKey(key) }
        #expect(handlers(view) == ["a/1", "b/1"])
        #expect(view.renderScreen(columns: 80, rows: 24).last?.text == "filter: 1_")
        _ = view.handleKey(.character("x"))
        #expect(handlers(view) == [])
        _ = view.handleKey(.backspace)
        _ = view.handleKey(.enter)
        #expect(handlers(view) == ["a/1", "b/1"])
        #expect(view.handleKey(.character("q")) == .quit, "the filter is complete")
        _ = view.handleKey(.character("/"))
        _ = view.handleKey(.character("z"))
        _ = view.handleKey(.escape)
        #expect(view.filter == "1", "the edit is undone")
        _ = view.handleKey(.escape)
        #expect(handlers(view).count == 3)
    }

    @Test func `a handler is dropped only after a confirmation`() throws {
        var view = try view()
        _ = view.handleKey(.down)
        #expect(selected(view)?.hasPrefix("> b/1") == true)
        #expect(view.handleKey(.character("d")) == nil)
        #expect(view.renderScreen(columns: 80, rows: 24).last?.text == "drop b/1 and its 5 pending requests? y or n")
        #expect(view.handleKey(.character("n")) == nil)
        #expect(view.handleKey(.character("y")) == nil, "the question is over")
        _ = view.handleKey(.character("d"))
        #expect(view.handleKey(.character("y")) == .dropHandler(try #require(HandlerID("b/1"))))
    }

    @Test func `the selection stays with its handler and on the screen`() throws {
        let many = (0..<50).map { (name: "h/\($0 + 10)", pending: 100 - $0, answered: 0) }
        var view = try view(many)
        for _ in 0..<30 { _ = view.handleKey(.character("j")) }
        #expect(selected(view)?.hasPrefix("> h/40") == true)
        #expect(handlers(view, rows: 24).contains("h/40"))
        view.showSample(try sample(seconds: 2, handlers: many.reversed() + [(name: "new", pending: 500, answered: 0)]))
        #expect(selected(view)?.hasPrefix("> h/40") == true)
        for _ in 0..<100 { _ = view.handleKey(.up) }
        #expect(selected(view)?.hasPrefix("> new") == true)
        view.showSample(try sample(seconds: 3, handlers: []))
        #expect(selected(view) == nil)
        #expect(view.handleKey(.character("d")) == nil)
    }

    @Test func `a paused view keeps its sample`() throws {
        var view = try view()
        _ = view.handleKey(.character("p"))
        view.showSample(try sample(seconds: 2, handlers: [("z", 1, 1)]))
        #expect(handlers(view) == ["a/1", "b/1", "c"])
        #expect(view.renderScreen(columns: 80, rows: 24)[0].text.contains("(paused)"))
        _ = view.handleKey(.character("p"))
        view.showSample(try sample(seconds: 3, handlers: [("z", 1, 1)]))
        #expect(handlers(view) == ["z"])
    }

    @Test func `a narrow terminal has fewer columns and a cut name`() throws {
        let view = try view([(name: "gallery/" + String(repeating: "x", count: 90), pending: 7, answered: 3)])
        let wide = view.renderScreen(columns: 200, rows: 24)
        #expect(wide.contains { $0.text.contains("CLIENTS") })
        let narrow = view.renderScreen(columns: 40, rows: 24).map(\.text)
        let title = try #require(narrow.first { $0.hasPrefix("  HANDLER") })
        #expect(title.contains("ANSWERED") && !title.contains("RATE/S"))
        #expect(narrow.contains { $0.hasPrefix("> gallery/xxx") && $0.contains("~") && $0.hasSuffix("7        3") })
    }

    @Test func `control characters of other programs do not reach the terminal`() throws {
        var view = TopView()
        view.showSample(try sample(handlers: [("a\\u001b[2Jb", 1, 1)]))
        let lines = view.renderScreen(columns: 120, rows: 30).map(\.text)
        #expect(lines.contains { $0.contains(#"a\u{1b}[2Jb"#) })
        #expect(!lines.contains { $0.unicodeScalars.contains { $0.value < 0x20 } })
    }

    @Test func `without a sample the screen says so`() {
        let lines = TopView().renderScreen(columns: 60, rows: 5)
        #expect(lines.map(\.text)[0] == "earshot top: waiting for the broker")
        #expect(lines.count == 5)
    }
}
