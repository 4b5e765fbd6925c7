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
        try conclude {
            try BusQuery.runQuery(.status, in: place, json: format.json) { TimesReport.summarized($0).report() }
            return .done
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
        try conclude {
            try BusQuery.runQuery(.why(handler, request), in: place, json: format.json) { $0.table() }
            return .done
        }
    }
}

/// Query of the broker, with all pages of its answer.
enum BusQuery {
    /// Tables in answers, with the queries for their further pages.
    private static let tables: [(name: String, query: Query)] = [
        ("workers", .workers), ("origins", .origins), ("settings", .settings),
    ]

    /// Returns the JSON answers: the first one, then those for the further pages of its tables.
    static func answers(_ query: Query, in place: BusOptions) throws -> [[UInt8]] {
        let failures = try place.place().failures
        do {
            return try runQuery(query, in: place, patience: failures.isEmpty ? nil : patience)
        } catch let commandError as CommandError where commandError.status == .noBroker {
            for failure in failures { CommandError.writeMessage(failure) }
            throw commandError
        }
    }

    /// Maximum time for an answer while the broker is in a crash loop.
    private static let patience = Duration.seconds(2)

    private static func runQuery(_ query: Query, in place: BusOptions, patience: Duration?) throws -> [[UInt8]] {
        var answers: [[UInt8]] = []
        let session = try BusSession.find(in: place.place(), patience: patience) {
            session, event in
            switch event {
            case .answer(_, let json): answers.append(json)
            case .refused(let reply): session.end(Refused.commandError(reply))
            case .accepted, .terminal, .progress, .cancelled, .removed, .changed, .state: break
            }
        }
        session.connection.query(query)
        try session.run { !answers.isEmpty }
        for table in tables {
            // Nearly all answers have one page.
            var next = JSONValue(answers[0])?.member(table.name + "-next")?.text
            while let after = next {
                let count = answers.count
                session.connection.query(table.query, QueryPage(after: after))
                try session.run { answers.count > count }
                next = JSONValue(answers[count])?.member(table.name + "-next")?.text
            }
        }
        return answers
    }

    /// Merges the pages into the first answer.
    static func joined(_ answers: [[UInt8]]) -> JSONValue? {
        let values = answers.compactMap { JSONValue($0) }
        guard values.count == answers.count, case .object(let members)? = values.first else { return nil }
        let pages = Set(tables.map { $0.name + "-next" })
        return .object(
            members.filter { !pages.contains($0.name) }.map { member in
                guard tables.contains(where: { $0.name == member.name }) else { return member }
                return JSONValue.Member(name: member.name, value: .array(values.flatMap { $0.items(member.name) }))
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
        } else if let value = joined(answers) {
            text = Array(show(value).utf8)
        }
        try StandardOutput().write(text)
    }
}
