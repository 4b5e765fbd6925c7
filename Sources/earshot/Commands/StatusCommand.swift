internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot status`: the state of the broker.
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show queue, transfers, workers, origins and counters.",
        discussion: """
            The counters balance: submitted = answered + failed + removed + orphaned + pending, and due = acknowledged + \
            lost + outstanding. The percentiles of `times` are upper bounds, exact to a factor of two. With --json, \
            further lines hold further workers and origins.

              earshot status
            """)

    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try runAndExit {
            try BusQuery.runQuery(.status, in: place, json: format.json) {
                TimesReport.summarizingHistograms($0).reportText()
            }
            return .success
        }
    }
}

/// `earshot why`: the state of one request, and the reason why it waits.
struct WhyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "why", abstract: "Show the state of a request, and the reason why it waits.",
        discussion: """
            The reason names the resource that the request waits for: a worker slot, the limit or cool-down of its \
            origin, a retry, a subscriber, or an acknowledgement. The state of an unknown request is `unknown`. It is no \
            error, because the request may have ended already.

              earshot why gallery/1 cover
            """)

    @Argument(help: "Handler of the request.")
    var handler: HandlerID

    @Argument(help: "ID of the request.")
    var request: RequestID

    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try runAndExit {
            try BusQuery.runQuery(.explainRequest(handler, request), in: place, json: format.json) { $0.tableText() }
            return .success
        }
    }
}

/// Query of the broker, with all pages of its answer.
enum BusQuery {
    /// Tables in answers, with the queries for their further pages.
    private static let pagedTables: [(name: String, query: Query)] = [
        ("workers", .workers), ("origins", .origins), ("settings", .settings),
    ]

    /// Returns the JSON answers: the first one, then those for the further pages of its tables.
    static func answers(_ query: Query, in place: BusOptions) throws -> [[UInt8]] {
        let failures = try place.busLocation().failingChildren
        do {
            return try allPages(of: query, in: place, timeout: failures.isEmpty ? nil : answerTimeout)
        } catch let commandError as CommandError where commandError.status == .noBroker {
            for failure in failures { CommandError.writeMessage(failure) }
            throw commandError
        }
    }

    /// Maximum time for an answer while the broker is in a crash loop.
    private static let answerTimeout = Duration.seconds(2)

    private static func allPages(of query: Query, in place: BusOptions, timeout: Duration?) throws -> [[UInt8]] {
        var answers: [[UInt8]] = []
        let session = try BusSession.connect(to: place.busLocation(), answerTimeout: timeout) { session, event in
            switch event {
            case .queryAnswer(_, let json): if session.parseAnswer(json) != nil { answers.append(json) }
            case .messageRefused(let reply): session.end(with: .refused(reply))
            case .accepted, .terminal, .progress, .cancelled, .removed, .settingChanged, .state: break
            }
        }
        session.connection.query(query)
        try session.run { !answers.isEmpty }
        for table in pagedTables {
            // Nearly all answers have one page.
            var next = JSONValue(answers[0])?.member(table.name + "-next")?.scalarText
            while let after = next {
                let count = answers.count
                session.connection.query(table.query, QueryPage(cursor: after))
                try session.run { answers.count > count }
                next = JSONValue(answers[count])?.member(table.name + "-next")?.scalarText
            }
        }
        return answers
    }

    /// Merges the pages into the first answer.
    static func mergedAnswer(_ answers: [[UInt8]]) -> JSONValue? {
        let values = answers.compactMap { JSONValue($0) }
        guard values.count == answers.count, case .object(let members)? = values.first else { return nil }
        let pages = Set(pagedTables.map { $0.name + "-next" })
        return .object(
            members.filter { !pages.contains($0.name) }.map { member in
                guard pagedTables.contains(where: { $0.name == member.name }) else { return member }
                return JSONValue.Member(
                    name: member.name, value: .array(values.flatMap { $0.items(ofMember: member.name) }))
            })
    }

    /// Queries the broker and prints the answer.
    ///
    /// - Parameter show: renders the answer as text.
    static func runQuery(_ query: Query, in place: BusOptions, json: Bool, show: (JSONValue) -> String) throws {
        let answers = try answers(query, in: place)
        var text: [UInt8] = []
        if json {
            // One line for each answer, as received.
            for answer in answers { text += answer + [UInt8(ascii: "\n")] }
        } else if let value = mergedAnswer(answers) {
            text = Array(show(value).utf8)
        }
        try StandardOutput().write(text)
    }
}

/// Summary of the histograms in `QUERY status`, for display.
enum TimesReport {
    /// Percentiles that the summary shows.
    private static let percentiles = [50, 90, 99]

    /// Replaces the histograms of `times` by counts and percentiles. A percentile is the upper bound of its bucket.
    static func summarizingHistograms(_ status: JSONValue) -> JSONValue {
        guard case .object(let members) = status else { return status }
        return .object(
            members.map { member in
                guard member.name == "times", case .object(let times) = member.value else { return member }
                let bounds = member.value.integers(ofMember: "bounds-us")
                let summaries = times.filter { $0.name != "bounds-us" }.map { histogram in
                    JSONValue.Member(
                        name: histogram.name,
                        value: histogramSummary(histogram.value.integers(ofMember: "buckets"), bounds))
                }
                return JSONValue.Member(name: "times", value: .object(summaries))
            })
    }

    private static func histogramSummary(_ buckets: [Int], _ bounds: [Int]) -> JSONValue {
        let count = buckets.reduce(0, +)
        var members = [JSONValue.Member(name: "count", value: .scalar("\(count)"))]
        for percentile in percentiles where count > 0 {
            // Rank of the observation, rounded up.
            let rank = (count * percentile + 99) / 100
            var seen = 0
            let bucket = buckets.firstIndex { number in
                seen += number
                return seen >= rank
            }
            let bound = bucket.flatMap { bounds.indices.contains($0) ? bounds[$0] : nil }
            let text = bound.map { "\(millisecondsText($0)) ms" } ?? "above \(millisecondsText(bounds.last ?? 0)) ms"
            members.append(JSONValue.Member(name: "p\(percentile)", value: .scalar(text)))
        }
        return .object(members)
    }

    /// Returns a number of microseconds as milliseconds, without trailing zeros.
    private static func millisecondsText(_ microseconds: Int) -> String {
        let (whole, part) = microseconds.quotientAndRemainder(dividingBy: 1_000)
        guard part > 0 else { return "\(whole)" }
        var digits = String(String(1_000 + part).dropFirst())
        while digits.hasSuffix("0") { digits.removeLast() }
        return "\(whole).\(digits)"
    }
}
