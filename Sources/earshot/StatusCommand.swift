internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot status`: what the broker does.
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "status", abstract: "Tell what the broker does.")

    @Flag(help: "As JSON, as the broker says it.")
    var json = false

    @OptionGroup var place: PlaceOptions

    func run() throws {
        try conclude {
            try Question.ask(.status, in: place, json: json) { $0.report() }
            return .done
        }
    }
}

/// `earshot why`: what one request waits for.
struct WhyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "why", abstract: "Tell why a request is not done yet.")

    @Argument(help: "Its handler.")
    var handler: HandlerID

    @Argument(help: "Its ID.")
    var request: RequestID

    @Flag(help: "As JSON, as the broker says it.")
    var json = false

    @OptionGroup var place: PlaceOptions

    func run() throws {
        try conclude {
            try Question.ask(.why(handler, request), in: place, json: json) { $0.table() }
            return .done
        }
    }
}

/// A question to the broker.
enum Question {
    /// What the broker says, JSON.
    static func answer(_ query: Query, in place: PlaceOptions) throws -> [UInt8] {
        let failures = FailureReport(try place.folder()).sentences()
        do {
            return try ask(query, in: place, patience: failures.isEmpty ? nil : patience)
        } catch let complaint as Complaint where complaint.status == .noBroker {
            for failure in failures { Complaint.say(failure) }
            throw complaint
        }
    }

    /// How long a broker that fails may take to answer between two of its deaths.
    private static let patience = Duration.seconds(2)

    private static func ask(_ query: Query, in place: PlaceOptions, patience: Duration?) throws -> [UInt8] {
        var answer: [UInt8]?
        let session = try BusSession.find(in: place.folder(), client: "query", patience: patience) { session, event in
            switch event {
            case .answer(_, let json): answer = json
            case .refused(let reply): session.end(Complaint(.other, "\(reply.detail ?? "refused") (\(reply.code))"))
            case .accepted, .terminal, .progress, .cancelled, .removed, .changed, .state: break
            }
        }
        session.connection.query(query)
        try session.run { answer != nil }
        return answer ?? []
    }

    /// Asks, and writes the answer to standard output.
    /// - Parameter show: makes text for people of the answer.
    static func ask(_ query: Query, in place: PlaceOptions, json: Bool, show: (JSONValue) -> String) throws {
        var text = try answer(query, in: place)
        if json {
            text.append(UInt8(ascii: "\n"))
        } else if let value = JSONValue(text) {
            text = Array(show(value).utf8)
        }
        try StandardOutput().write(text)
    }
}
