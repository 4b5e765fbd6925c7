internal import EarshotClient
internal import EarshotWire

/// Content of the screen of `earshot top`, and the effect of keys.
struct TopView {
    /// Line of the screen.
    struct Line: Equatable {
        enum Style {
            case plain
            case heading
            case selected
        }

        var text: String
        var style = Style.plain
    }

    /// Order of the handlers.
    enum Sort: String, CaseIterable {
        case pending
        case answered
        case failed
        case rate
        case name
    }

    /// Consequence of a key outside the view.
    enum KeyEffect: Equatable {
        case quit
        case dropHandler(HandlerID)
    }

    private enum Mode: Equatable {
        case browsing
        /// The text before the edit returns with Escape.
        case filtering(before: String)
        case confirmingDrop(HandlerID)
    }

    /// Column of a table beside the name.
    private struct Column<Row> {
        let title: String
        let width: Int
        let cellText: (Row) -> String
    }

    /// Maximum length of the filter.
    private static let maximumFilterBytes = 100
    /// Minimum width of a name. The view omits columns that would leave less.
    private static let minimumNameWidth = 16
    /// Minimum number of lines below the counters for a table of origins.
    private static let minimumOriginLines = 10

    private(set) var sort = Sort.pending
    private(set) var filter = ""
    private(set) var isPaused = false
    /// Text at the bottom in place of the keys; nil for none.
    var footerMessage: String?
    private var mode = Mode.browsing
    private var selection: String?
    private var sample: TopSample?
    private var earlierSample: TopSample?
    /// Answered requests of each handler in the earlier sample.
    private var earlierAnsweredCounts: [String: Int] = [:]

    mutating func showSample(_ sample: TopSample) {
        guard !isPaused else { return }
        earlierSample = self.sample
        earlierAnsweredCounts = Dictionary(
            (earlierSample?.handlers ?? []).map { ($0.handler, $0.answeredCount) }
        ) { first, _ in first }
        self.sample = sample
    }

    // MARK: Keys

    mutating func handleKey(_ key: TopKey) -> KeyEffect? {
        switch mode {
        case .browsing: return handleBrowsingKey(key)
        case .filtering(let before):
            editFilter(key, before)
            return nil
        case .confirmingDrop(let handler):
            mode = .browsing
            footerMessage = nil
            return key == .character("y") ? .dropHandler(handler) : nil
        }
    }

    private mutating func handleBrowsingKey(_ key: TopKey) -> KeyEffect? {
        footerMessage = nil
        switch key {
        case .character("q"): return .quit
        case .character("s"):
            let all = Sort.allCases
            sort = all[((all.firstIndex(of: sort) ?? 0) + 1) % all.count]
        case .character("/"): mode = .filtering(before: filter)
        case .character("p"): isPaused.toggle()
        case .character("d"):
            guard let selection = selectedHandler(in: shownHandlers), let handler = HandlerID(selection) else { break }
            mode = .confirmingDrop(handler)
        case .up, .character("k"): moveSelection(-1)
        case .down, .character("j"): moveSelection(1)
        case .escape: filter = ""
        case .character, .enter, .backspace: break
        }
        return nil
    }

    private mutating func editFilter(_ key: TopKey, _ before: String) {
        switch key {
        case .character(let character) where filter.utf8.count < Self.maximumFilterBytes: filter.append(character)
        case .backspace: _ = filter.popLast()
        case .enter: mode = .browsing
        case .escape:
            filter = before
            mode = .browsing
        case .character, .up, .down: break
        }
    }

    private mutating func moveSelection(_ step: Int) {
        let names = shownHandlers.map(\.handler)
        guard !names.isEmpty else { return }
        let index = names.firstIndex { $0 == selection } ?? 0
        selection = names[min(names.count - 1, max(0, index + step))]
    }

    /// The selected handler, or the first one.
    private func selectedHandler(in rows: [HandlerRow]) -> String? {
        rows.contains { $0.handler == selection } ? selection : rows.first?.handler
    }

    // MARK: Rows

    private func answerRate(_ row: HandlerRow) -> Double? {
        guard let sample, let earlierSample, sample.broker == earlierSample.broker,
            sample.seconds > earlierSample.seconds, let before = earlierAnsweredCounts[row.handler]
        else { return nil }
        return Double(max(0, row.answeredCount - before)) / (sample.seconds - earlierSample.seconds)
    }

    /// Handlers that the filter admits, in their order.
    private var shownHandlers: [HandlerRow] {
        let rows = (sample?.handlers ?? []).filter { matchesFilter($0.handler) }
        let rates =
            sort == .rate ? Dictionary(rows.map { ($0.handler, answerRate($0) ?? 0) }) { first, _ in first } : [:]
        func key(_ row: HandlerRow) -> Double {
            switch sort {
            case .pending: Double(row.waitingCount)
            case .answered: Double(row.answeredCount)
            case .failed: Double(row.failedCount)
            case .rate: rates[row.handler] ?? 0
            case .name: 0
            }
        }
        return rows.sorted { left, right in
            let (a, b) = (key(left), key(right))
            return a == b ? left.handler < right.handler : a > b
        }
    }

    private var shownOrigins: [TopSample.Origin] {
        (sample?.origins ?? []).filter { matchesFilter($0.name) }.sorted { left, right in
            (right.runningFlights, right.flights, left.name) < (left.runningFlights, left.flights, right.name)
        }
    }

    private func matchesFilter(_ name: String) -> Bool { filter.isEmpty || name.contains(filter) }

    // MARK: The screen

    /// Renders the screen in exactly `rows` lines of at most `columns` columns.
    func renderScreen(columns: Int, rows: Int) -> [Line] {
        guard rows > 0 else { return [] }
        var lines = summaryLines
        let room = rows - lines.count - 1
        if room >= 2 {
            var handlerLines = room - 1
            if room >= Self.minimumOriginLines {
                let origins = originTable(lines: room / 3, columns)
                lines += [Line(text: "")] + origins
                handlerLines -= origins.count + 1
            }
            lines += [Line(text: "")] + handlerTable(lines: handlerLines, columns)
        }
        lines = Array(lines.prefix(rows - 1))
        lines += [Line](repeating: Line(text: ""), count: rows - 1 - lines.count)
        lines.append(Line(text: footer, style: .heading))
        return lines.map { Line(text: Self.truncated(TerminalText.escaped($0.text), to: columns), style: $0.style) }
    }

    private var summaryLines: [Line] {
        guard let sample else { return [Line(text: "earshot top: waiting for the broker")] }
        func countText(_ path: String) -> String { sample.count(path).map { String($0) } ?? "-" }
        func countsText(_ prefix: String, _ names: [String]) -> String {
            names.map { "\($0) \(countText("\(prefix).\($0)"))" }.joined(separator: "  ")
        }
        func rateText(_ name: String, _ counter: (TopSample) -> Int?) -> String {
            "\(name) \(sample.rate(since: earlierSample, counter).map(TopSample.rateText) ?? "-")"
        }
        func ratioText(_ name: String, _ part: (TopSample) -> Int, _ whole: (TopSample) -> Int) -> String {
            func text(_ percent: Int?) -> String { percent.map { "\($0) %" } ?? "-" }
            let now = earlierSample == nil ? nil : sample.percent(since: earlierSample, part, of: whole)
            return "\(name) \(text(now)) now, \(text(sample.percent(since: nil, part, of: whole))) in all"
        }
        let workers = sample.workers?.map {
            "\($0.pid) \($0.phase == "ready" ? "" : "\($0.phase) ")\($0.runningTransfers)/\($0.slotCount)"
        }
        let rates: [String] = [
            rateText("submitted") { $0.count("requests.submitted") },
            rateText("answered") { $0.count("requests.answered") }, rateText("failed") { $0.failedCount },
            rateText("removed") { $0.count("requests.removed") },
            sample.rate(since: earlierSample) { $0.count("flights.bytes") }.map(ByteSize.text) ?? "- B",
        ]
        // All six phases together exceed 80 columns.
        let shownPhases = ["looking-up", "backing-off", "following", "cancelling"].filter {
            sample.count("flights-now.\($0)") ?? 0 > 0
        }
        let ratios = [
            ratioText("cache", TopSample.cacheUses, TopSample.cacheLookups),
            ratioText("shared", TopSample.joinedRequests, TopSample.attachedRequests),
        ]
        return [
            Line(
                text: "earshot  \(sample.phase)\(isPaused ? " (paused)" : "")  clients \(countText("clients"))  "
                    + "handlers \(countText("handlers"))  outstanding \(countText("deliveries.outstanding"))",
                style: .heading),
            Line(
                text: "requests  pending \(sample.pendingCount.map { String($0) } ?? "-")  "
                    + "answered \(countText("requests.answered"))  "
                    + "failed \(sample.failedCount)  removed \(countText("requests.removed"))"),
            Line(text: "per s     " + rates.joined(separator: "  ")),
            Line(text: "queue     " + countsText("queue", ["high", "normal", "low", "background"])),
            Line(text: "flights   " + countsText("flights-now", ["running", "queued"] + shownPhases)),
            Line(text: "ratios    " + ratios.joined(separator: "  ")),
            Line(text: "workers   " + (workers.map { $0.isEmpty ? "none" : $0.joined(separator: "  ") } ?? "-")),
        ]
    }

    private var footer: String {
        switch mode {
        case .filtering: return "filter: \(filter)_"
        case .confirmingDrop(let handler):
            let pending = sample?.handlers.first { $0.handler == handler.description }?.pendingCount ?? 0
            return "drop \(handler) and its \(pending) pending requests? y or n"
        case .browsing:
            if let footerMessage { return footerMessage }
            let shown = filter.isEmpty ? "" : "  filter: \(filter) (Esc clears)"
            return "q quit  s sort: \(sort.rawValue)  / filter  d drop  p pause\(shown)"
        }
    }

    // MARK: Tables

    private func originTable(lines: Int, _ columns: Int) -> [Line] {
        let rows = shownOrigins
        let table: [Column<TopSample.Origin>] = [
            Column(title: "RUNNING", width: 8) { String($0.runningFlights) },
            Column(title: "LIMIT", width: 8) { $0.limit > 1_000_000 ? "-" : String($0.limit) },
            Column(title: "WAITING", width: 8) { String($0.waitingFlights) },
            Column(title: "COOLING", width: 8) {
                $0.coolingMilliseconds.map { TimeText.age(milliseconds: $0) } ?? "-"
            },
        ]
        return Self.table("ORIGIN", rows, table, name: { $0.name }, first: 0, lines: lines, columns, selected: nil)
    }

    private func handlerTable(lines: Int, _ columns: Int) -> [Line] {
        let rows = shownHandlers
        let selected = selectedHandler(in: rows)
        let position = rows.firstIndex { $0.handler == selected } ?? 0
        // The last screen that has the selection, so that it scrolls as little as possible.
        let first = max(0, position - max(0, lines - 2))
        let earlierCounts = earlierAnsweredCounts
        let table: [Column<HandlerRow>] = [
            Column(title: "PENDING", width: 8) { String($0.waitingCount) },
            Column(title: "ANSWERED", width: 9) { String($0.answeredCount) },
            Column(title: "FAILED", width: 8) { String($0.failedCount) },
            Column(title: "RATE/S", width: 8) { row in
                earlierCounts[row.handler] == nil ? "-" : answerRate(row).map(TopSample.rateText) ?? "-"
            },
            Column(title: "REMOVED", width: 8) { String($0.removedCount) },
            Column(title: "CLIENTS", width: 8) { String($0.subscriberCount) },
        ]
        return Self.table(
            "HANDLER", rows, table, name: { $0.handler }, first: first, lines: lines, columns, selected: selected)
    }

    /// Renders a title and rows in at most `lines` lines. Columns that do not fit are left out from the right.
    private static func table<Row>(
        _ title: String, _ rows: [Row], _ columns: [Column<Row>], name: (Row) -> String, first: Int, lines: Int,
        _ width: Int, selected: String?
    ) -> [Line] {
        guard lines > 0 else { return [] }
        var columns = columns
        // A mark of two columns precedes the name.
        func room() -> Int { width - 2 - columns.reduce(0) { $0 + $1.width } }
        while columns.count > 1, room() < minimumNameWidth { columns.removeLast() }
        let nameWidth = max(4, room())
        func line(_ mark: String, _ name: String, _ cells: [String]) -> String {
            mark + padded(truncated(TerminalText.escaped(name), to: nameWidth), to: nameWidth)
                + zip(cells, columns).map { String(repeating: " ", count: max(1, $1.width - $0.count)) + $0 }.joined()
        }
        let shown = rows.dropFirst(first).prefix(lines - 1)
        return [Line(text: line("  ", title, columns.map(\.title)), style: .heading)]
            + shown.map { row in
                let isSelected = selected == name(row)
                return Line(
                    text: line(isSelected ? "> " : "  ", name(row), columns.map { $0.cellText(row) }),
                    style: isSelected ? .selected : .plain)
            }
    }

    private static func padded(_ text: String, to width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    /// Cuts text to a width; `~` marks the missing end.
    private static func truncated(_ text: String, to width: Int) -> String {
        text.count <= width ? text : width < 1 ? "" : String(text.prefix(width - 1)) + "~"
    }
}
