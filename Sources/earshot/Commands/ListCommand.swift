internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire
internal import Glibc

/// `earshot list`: the requests of the bus.
struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List requests, or handlers with their counters.",
        usage: "earshot list [<options>] [<handler>]",
        discussion: """
            Prints one line per request: state, class, age, attempts, handler, ID and URL, without its user and query. \
            An ended request has its outcome after the state, failed:CODE for a failure that waits. A request of another \
            user has the user in a further column. A request leaves the list when its result is acknowledged.

            The states are storing, looking-up (in the cache), queued, running, backing-off (before a retry), \
            following (a redirect), delivering (until the acknowledgement) and held (without a subscriber). \
            `earshot why` shows the reason why a request waits.

              earshot list
              earshot list --state queued --origin https://example.org gallery/
              earshot list --state failed night/
              earshot list --handlers
            """)

    @Argument(
        help: "Handler, or NAME/ for all handlers below NAME. (default: all)",
        completion: ShellCompletion.handlerPatterns)
    var handler: HandlerPattern?

    @Flag(help: "List handlers, with the number of their pending and ended requests.")
    var handlers = false

    @OptionGroup(title: "Filter") var filter: RequestFilterOptions
    @OptionGroup(title: "Output") var format: FormatOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func validate() throws {
        if let limit = filter.limit, limit < 1 { throw ValidationError("--limit: give a number of at least 1") }
        guard !handlers || filter.state == nil && filter.origin == nil else {
            throw ValidationError("--state and --origin select requests; omit them with --handlers")
        }
    }

    func run() throws {
        try runAndExit {
            let output = TableOutput(header: handlers ? HandlerRow.columns : RequestRow.columns, json: format.json)
            var room = filter.limit ?? .max
            try PageQuery.forEachPage(
                handlers ? .handlers : .requests, handlers ? "handlers" : "requests",
                filter: QueryPage(handler: handler, state: filter.state?.queriedState), in: place
            ) { answer in
                if handlers {
                    let rows = HandlerRow.rows(answer).prefix(room)
                    room -= rows.count
                    try output.write(rows.map { (cells: $0.cells, json: $0.json) })
                } else {
                    let rows = RequestRow.rows(answer).filter { filter.admits($0) }.prefix(room)
                    room -= rows.count
                    try output.write(rows.map { (cells: $0.cells, json: $0.json) })
                }
                return room > 0
            }
            if let origin = filter.origin, room == filter.limit ?? .max {
                throw CommandError(
                    .nothingMatched,
                    "nothing matched: no request is to \(origin); an origin is such as https://example.org")
            }
            return .success
        }
    }
}

/// Options that select requests.
struct RequestFilterOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Only requests in this state; failed: those that ended with a failure.", valueName: "state"))
    var state: StateFilter?

    @Option(help: ArgumentHelp("Only requests to this origin, such as https://example.org.", valueName: "origin"))
    var origin: String?

    @Option(help: ArgumentHelp("List at most this many.", valueName: "n"))
    var limit: Int?

    func admits(_ row: RequestRow) -> Bool {
        (state != .failed || row.code != nil) && origin.map { $0 == row.origin } ?? true
    }
}

/// Value of `--state`: a state of the protocol, or `failed`.
enum StateFilter: Equatable, ExpressibleByArgument {
    case failed
    case state(RequestState)

    static var allValueStrings: [String] { ["failed"] + RequestState.allCases.map(\.rawValue) }

    init?(argument: String) {
        if argument == "failed" {
            self = .failed
        } else if let state = RequestState(rawValue: argument) {
            self = .state(state)
        } else {
            return nil
        }
    }

    /// State for the query of the broker; nil for any.
    var queriedState: RequestState? { if case .state(let state) = self { state } else { nil } }
}

/// Handler in an answer to QUERY handlers.
struct HandlerRow {
    /// Columns of a line, in their order. Only a handler of another user has the last one.
    static let columns = ["pending", "answered", "failed", "removed", "orphaned", "subscribers", "handler", "user"]

    let handler: String
    /// Principal that owns the handler; nil for the client's own.
    let principal: String?
    let subscriberCount: Int
    /// Number of requests without an end, or with a failure that is kept on disk.
    let pendingCount: Int
    let answeredCount: Int
    /// Number of failures by their code.
    let failureCountsByCode: [(code: String, count: Int)]
    let removedCount: Int
    let orphanedCount: Int
    /// Number of pending requests whose failures are kept on disk.
    let keptFailureCount: Int

    /// Number of failed requests, with those whose failures are kept.
    var failedCount: Int { failureCountsByCode.reduce(keptFailureCount) { $0 + $1.count } }

    /// Number of requests that have not ended.
    var waitingCount: Int { max(0, pendingCount - keptFailureCount) }

    /// Returns the rows of an answer; none if it is not an answer to this query.
    static func rows(_ answer: JSONValue) -> [HandlerRow] {
        answer.items(ofMember: "handlers").compactMap { HandlerRow($0) }
    }

    private init?(_ item: JSONValue) {
        guard let name = item.member("handler")?.scalarText, let requests = item.member("requests") else { return nil }
        func number(_ value: JSONValue?) -> Int { value?.scalarText.flatMap { Int($0) } ?? 0 }
        handler = name
        principal = item.member("principal")?.scalarText
        subscriberCount = number(item.member("subscribers"))
        pendingCount = number(requests.member("pending"))
        keptFailureCount = number(requests.member("failed-kept"))
        answeredCount = number(requests.member("answered"))
        removedCount = number(requests.member("removed"))
        orphanedCount = number(requests.member("orphaned"))
        if case .object(let codes)? = requests.member("failed") {
            failureCountsByCode = codes.map { ($0.name, number($0.value)) }
        } else {
            failureCountsByCode = []
        }
    }

    /// Cells of the line, in the order of ``columns``. Control characters are escaped.
    var cells: [String] {
        [waitingCount, answeredCount, failedCount, removedCount, orphanedCount, subscriberCount].map { String($0) }
            + [handler, principal].compactMap(\.self).map(TerminalText.escaped)
    }

    /// Line of JSON.
    var json: [UInt8] {
        var line = JSONLine()
        line.appendMember("handler", handler)
        if let principal { line.appendMember("principal", principal) }
        line.appendMember("subscribers", subscriberCount)
        line.appendMember("pending", waitingCount)
        line.appendMember("answered", answeredCount)
        line.appendMember("failed", failedCount)
        line.appendMember("removed", removedCount)
        line.appendMember("orphaned", orphanedCount)
        return line.finishedLine()
    }
}

/// Rows on standard output, page by page. A terminal also gets a header.
final class TableOutput {
    private let header: [String]
    private let isJSON: Bool
    private let isTerminal = isatty(STDOUT_FILENO) == 1
    private var hasHeader = false

    init(header: [String], json: Bool) {
        self.header = header
        isJSON = json
    }

    func write(_ rows: [(cells: [String], json: [UInt8])]) throws(CommandError) {
        guard !rows.isEmpty else { return }
        guard !isJSON else { return try StandardOutput().write(rows.flatMap(\.json)) }
        let first = isTerminal && !hasHeader ? [header.map { $0.uppercased() }] : []
        hasHeader = true
        try StandardOutput().write(Array(TextTable(isPadded: isTerminal).text(first + rows.map(\.cells)).utf8))
    }
}
