internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// `earshot submit`: sends requests without waiting for the results.
struct SubmitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "submit",
        abstract: "Submit requests under a handler, without waiting for the results.",
        discussion: """
            Prints handler and ID of each accepted request. `earshot watch` receives the results; without a subscriber, \
            a result expires after 10 seconds. Ctrl-C removes nothing: use `earshot drop` or `earshot cancel`.

            With --durable a request is on disk before its line is printed. It survives the end of this command, of the \
            broker and of the machine, until its result is acknowledged or the setting durable-time has passed.

              earshot submit --handler gallery/1 https://example.org/
              earshot submit --durable --handler night/backup https://example.org/
            """)

    @Argument(help: "URLs to fetch.", completion: ShellCompletion.none)
    var urls: [String]

    @OptionGroup(title: "Request") var naming: HandlerOptions
    @OptionGroup(title: "Request") var submission: SubmissionOptions
    @OptionGroup var request: RequestOptions
    @OptionGroup(title: "Output") var failure: FailureOptions
    @OptionGroup(title: "Bus") var place: PlaceOptions

    private var id: RequestID? { submission.id }

    func validate() throws {
        guard id == nil || urls.count == 1 else { throw ValidationError("--id names a single request; give one URL") }
        guard request.handling.checksum == nil || urls.count == 1 else {
            throw ValidationError("--checksum describes one body; give one URL")
        }
    }

    func run() throws {
        try conclude {
            let mark = String(UInt32.random(in: 0 ... .max), radix: 16)
            guard let handler = naming.handler ?? HandlerID("submit/\(getpid())-\(mark)") else {
                throw Complaint(.other, "cannot generate a handler name; give --handler NAME")
            }
            let body = try self.request.body()
            let netrc = try self.request.netrc()
            var tally = Tally()
            var refused: Set<RequestID> = []
            var accepted: Set<RequestID> = []
            var isTaken = false
            let session = try BusSession.find(in: place.folder(), client: "submit") { session, event in
                switch event {
                case .answer: isTaken = true
                case .accepted(let key) where key.handler == handler: accepted.insert(key.request)
                case .terminal(let delivery, _) where delivery.key.handler == handler:
                    // Without a subscription a terminal arrives only for a rejected request.
                    let outcome = FetchOutcome(url: delivery.key.request.description, delivery.terminal)
                    Complaint.say(outcome.sentence(verbosely: true))
                    if refused.insert(delivery.key.request).inserted { tally.count(outcome) }
                    session.connection.finish(delivery)
                case .refused(let reply):
                    let sentence = "\(reply.detail ?? "rejected by the broker") (\(reply.code))"
                    guard let request = reply.request else { return session.end(Complaint(.other, sentence)) }
                    Complaint.say("\(handler) \(request): \(sentence)")
                    let outcome = FetchOutcome(url: request.description, code: reply.code, detail: sentence)
                    if refused.insert(request).inserted { tally.count(outcome) }
                case .accepted, .terminal, .progress, .cancelled, .removed, .changed, .state: break
                }
            }
            var asked: [RequestID] = []
            for (index, url) in urls.map(URLText.percentEncoded).enumerated() {
                guard let name = id ?? RequestID("\(mark)-\(index + 1)") else { continue }
                guard let text = URLText.wire(url) else {
                    let outcome = FetchOutcome(malformed: url)
                    Complaint.say(outcome.sentence(verbosely: failure.verbose))
                    tally.count(outcome)
                    continue
                }
                var fetch = self.request.fetch(handler, name, text, body: body)
                fetch.options.subscribes = false
                fetch.options.isWarm = submission.warm
                fetch.options.isDurable = submission.durable
                netrc?.authorize(&fetch)
                try session.connection.fetch(fetch)
                asked.append(name)
            }
            session.connection.query(.ping)
            try session.run {
                isTaken && (!submission.durable || asked.allSatisfy { accepted.contains($0) || refused.contains($0) })
            }
            let taken = asked.filter { !refused.contains($0) }
            tally.countSuccesses(taken.count)
            var lines = LineOutput()
            for name in taken { lines.add(Array("\(handler) \(name)\n".utf8)) }
            lines.flush()
            if let obstacle = lines.obstacle { throw Self.complaint(obstacle, handler, taken.count) }
            return tally.status
        }
    }

    /// Complaint about an output error after the broker has accepted the requests.
    private static func complaint(_ obstacle: Complaint, _ handler: HandlerID, _ count: Int) -> Complaint {
        guard let sentence = obstacle.sentence else { return obstacle }
        let state = "\(count) requests were submitted under \(handler); `earshot drop \(handler)` removes them"
        return Complaint(obstacle.status, "\(sentence); \(state)")
    }
}

/// Options of a request that outlives the command.
struct SubmissionOptions: ParsableArguments {
    @Option(help: ArgumentHelp("ID of a single request. (default: a new one)", valueName: "id"))
    var id: RequestID?

    @Flag(help: "Fetch into the cache, and deliver no body.")
    var warm = false

    @Flag(help: "Store the request on disk until its result is acknowledged. Only for GET and HEAD.")
    var durable = false
}
